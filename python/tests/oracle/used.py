"""What a program used: one line for each example that came out of a loader, for `check`.

A program imports `Used`, names its data, and tells each batch. Every process writes a file of its own.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

RECORDS = 96
SIDE = 12


def make(folder: Path) -> None:
    """Data whose every record is known by its own fields: rows, and pictures."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(RECORDS, 3)).astype(np.float32)
    label = np.arange(RECORDS) * 5 % 7
    np.savez(folder / "rows.npz", x=rows, record=np.arange(RECORDS), label=label)
    # The dominant value of a picture is its number, in every crop.
    pictures = np.repeat(np.arange(RECORDS, dtype=np.uint8), SIDE * SIDE * 3).reshape(RECORDS, SIDE, SIDE, 3)
    pictures[:, ::3, 1::2] = rng.integers(128, 255, pictures[:, ::3, 1::2].shape)
    np.savez(folder / "pictures.npz", image=pictures, label=label)


def note_worker(sample: dict[str, Any]) -> dict[str, Any]:
    """A function for ``map`` that says which worker of a ``DataLoader`` made a sample."""
    from torch.utils.data import get_worker_info

    info = get_worker_info()
    return {**sample, "worker": -1 if info is None else info.id}


class Line(NamedTuple):
    """One example."""

    rank: int
    worker: int
    epoch: int
    step: int
    record: int
    label: int
    digest: str


class Used:
    """Writes what this process used."""

    def __init__(self, rank: int | None = None, part: str = "") -> None:
        self.rank = rank = int(os.environ.get("RANK", 0)) if rank is None else rank
        folder = Path(os.environ["USED"]) / part
        folder.mkdir(exist_ok=True)
        self.file = open(folder / f"{rank}-{os.getpid()}.jsonl", "a")

    def __call__(self, epoch: int, batch: Any, step: int = -1) -> None:
        """Notes a batch: a dict of arrays or tensors, one row an example."""
        batch = {name: np.asarray(value) for name, value in batch.items()}
        field = "x" if "x" in batch else "image"
        for i, value in enumerate(batch[field]):
            record = int(batch["record"][i]) if field == "x" else int(Counter(value[value < RECORDS].ravel().tolist()).most_common(1)[0][0])
            digest = hashlib.sha1(np.ascontiguousarray(value).tobytes()).hexdigest()
            worker = int(batch["worker"][i]) if "worker" in batch else -1
            line = Line(self.rank, worker, int(epoch), int(step), record, int(batch["label"][i]), digest)
            self.file.write(json.dumps(line) + "\n")
        self.file.flush()


def lines_of(folder: Path) -> list[Line]:
    """All lines of a program, in the order in which each process wrote them."""
    return [Line(*json.loads(line)) for file in sorted(folder.glob("*.jsonl")) for line in file.read_text().splitlines()]


def check(data: Path, lines: list[Line], *, epochs: int, ranks: int = 1, each: int = 1, shuffled: bool = True) -> None:
    """That each epoch used every record `each` times over all ranks, with its own fields, and in an order of its own."""
    pictures = "pictures" in data.name
    stored = np.load(data)
    orders: dict[int, list[int]] = defaultdict(list)
    digests: dict[int, dict[int, str]] = defaultdict(dict)
    for line in lines:
        assert line.label == stored["label"][line.record], f"record {line.record} has the label {line.label}"
        if not pictures:
            assert line.digest == hashlib.sha1(stored["x"][line.record].tobytes()).hexdigest(), f"record {line.record} has other fields"
        orders[line.epoch].append(line.record)
        digests[line.epoch][line.record] = line.digest
    assert sorted(orders) == list(range(epochs))
    for epoch, order in orders.items():
        times = Counter(order)
        wrong = {record: times[record] for record in range(RECORDS) if times[record] != each}
        assert not wrong, f"epoch {epoch} used these records so often: {wrong}"
    assert {line.rank for line in lines} == set(range(ranks)), "a rank used nothing"
    if shuffled:
        kinds = {tuple(order) for order in orders.values()}
        assert len(kinds) == epochs and tuple(range(RECORDS)) not in kinds, "epochs have the same order"
    if pictures:
        for epoch in range(1, epochs):
            same = sum(digests[epoch][record] == digests[0][record] for record in range(RECORDS))
            assert same < RECORDS / 4, f"{same} of {RECORDS} pictures are augmented in epoch {epoch} as in epoch 0"


def check_plan(pipeline: Any, lines: list[Line], *, epochs: int) -> None:
    """That the ranks together used in each step what the plan says."""
    steps: dict[tuple[int, int], list[int]] = defaultdict(list)
    for line in lines:
        steps[line.epoch, line.step].append(line.record)
    planned = {
        (epoch, step): sorted(pipeline.step_ids(epoch, step).tolist()) for epoch in range(epochs) for step in range(len(pipeline))
    }
    assert {place: sorted(records) for place, records in steps.items()} == planned
