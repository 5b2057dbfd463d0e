"""Python functions and sequences in a pipeline next to PyTorch's DataLoader without and with workers.

python bench/functions.py [ROUNDS [WORKLOAD...]] > bench/results/functions.csv

100 000 rows of 16 floats and a label, batches of 256, shuffled. Sides take turns, a line a round with microseconds a record of
wall time: `sequence` and `items` make records by `__getitem__` and `__getitems__`, `rows` are arrays in memory, `map` calls a
function that returns its sample, `columns` the same on up to 64 records at once, `released` one that sleeps for 20 us without
Python's lock, `held` one that computes for about 15 us with it, by two worker processes.
"""

import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pelton
from torch.utils.data import DataLoader, Dataset

RECORDS, BATCH = 100_000, 256
X = np.random.default_rng(0).random((RECORDS, 16), np.float32)
Y = np.arange(RECORDS) % 10
Sample = dict[str, Any]


def same(sample: Sample) -> Sample:
    return sample


def released(sample: Sample) -> Sample:
    time.sleep(20e-6)
    return sample


def held(sample: Sample) -> Sample:
    total = 0
    for i in range(600):
        total += i
    return {"x": sample["x"], "label": sample["label"], "total": total}


class Items:
    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, i: int) -> tuple[np.ndarray, Any]:
        return X[i], Y[i]


class ManyItems(Items):
    def __getitems__(self, items: list[int]) -> list[tuple[np.ndarray, Any]]:
        return list(zip(X[items], Y[items]))


class Peers(Dataset):
    def __init__(self, function: Callable[[Sample], Sample] | None = None) -> None:
        self.function = function

    def __len__(self) -> int:
        return RECORDS

    def __getitem__(self, i: int) -> Any:
        return (X[i], Y[i]) if self.function is None else self.function({"x": X[i], "label": Y[i]})


def ours(data: Any) -> Any:
    return data.shuffle(seed=0).batch(BATCH)


def theirs(function: Callable[[Sample], Sample] | None = None, workers: int = 0) -> Any:
    return DataLoader(Peers(function), BATCH, shuffle=True, num_workers=workers, persistent_workers=workers > 0)


def main(rounds: int, only: list[str]) -> None:
    rows = lambda: pelton.from_arrays(x=X, label=Y)  # noqa: E731
    sides: dict[str, dict[str, Any]] = {
        "sequence": {"pelton": ours(pelton.from_sequence(Items())), "torch": theirs()},
        "items": {"pelton": ours(pelton.from_sequence(ManyItems())), "torch": theirs()},
        "rows": {"pelton": ours(rows()), "torch": theirs()},
        "map": {"pelton": ours(rows().map(same)), "torch": theirs(same)},
        "columns": {"pelton": ours(rows().map(same, batched=64)), "torch": theirs(same)},
        "released": {"pelton": ours(rows().map(released)), "torch": theirs(released), "torch-2": theirs(released, 2)},
        "held": {"pelton": ours(rows().map(held)), "pelton-2": ours(rows().map(held, processes=2)), "torch": theirs(held), "torch-2": theirs(held, 2)},
    }
    print(f"# pelton {pelton.__version__}, 2 cores; us a record of an epoch, after one that is not counted")
    print("workload,side,round,us_per_record")

    def epoch(loop: Iterable[Any], side: str) -> float:
        if side == "pelton-2":
            # Its workers start in an epoch that is not counted; those of the DataLoader stay.
            for _ in loop:
                pass
        began = time.perf_counter()
        for _ in loop:
            pass
        took = (time.perf_counter() - began) / RECORDS * 1e6
        # Otherwise it would work ahead in the next side's turn.
        if isinstance(loop, pelton.Pipeline):
            loop.close()
        return took

    for workload, loops in sides.items():
        if only and workload not in only:
            continue
        for side, loop in loops.items():
            epoch(loop, side)
        for number in range(rounds):
            for side, loop in loops.items():
                print(f"{workload},{side},{number},{epoch(loop, side):.3f}", flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]) if sys.argv[1:] else 5, sys.argv[2:])
