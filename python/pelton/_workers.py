"""What passes between a program and the workers of its ``DataLoader``."""

from __future__ import annotations

import functools
import sys
import warnings
from hashlib import blake2b
from typing import Any, NamedTuple


@functools.cache
def iterable_dataset(pipeline: type, base: type) -> type:
    """What a pipeline is where PyTorch is: a ``Pipeline`` and an ``IterableDataset``."""
    return type("Pipeline", (pipeline, base), {"__module__": pipeline.__module__})


class Worker(NamedTuple):
    """A worker process of a ``torch.utils.data.DataLoader``."""

    number: int
    workers: int
    seed: int
    """The same for all workers of an iteration; another one for each iteration, unless workers are persistent."""


def this_worker() -> Worker | None:
    """The worker that this process is, or ``None``."""
    data = sys.modules.get("torch.utils.data")
    info = data.get_worker_info() if data else None
    return info and Worker(info.id, info.num_workers, info.seed - info.id)


def mixed(*numbers: int) -> int:
    """A number of 63 bits that follows from these."""
    digest = blake2b(repr(numbers).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class Told:
    """The epoch that a program set, in memory shared with workers, including persistent ones.

    The memory is PyTorch's, since forked and spawned workers both inherit it. Without PyTorch there are no workers.
    """

    def __init__(self) -> None:
        # How often the epoch was set, the epoch, whether a worker has read, and the seed of the last iteration that did.
        self._shared: Any = None
        self._alone = [0, 0, 0, 0]
        self._seen = 0
        # The process with a state that was loaded but not resumed yet.
        self.resumed_in: int | None = None

    def share(self) -> None:
        """Moves it into shared memory, if workers can follow."""
        torch = sys.modules.get("torch")
        if self._shared is None and torch is not None and this_worker() is None:
            self._shared = torch.tensor(self._alone, dtype=torch.int64).share_memory_()

    @property
    def _cells(self) -> Any:
        return self._alone if self._shared is None else self._shared

    def set_epoch(self, epoch: int) -> None:
        """The next iteration runs this epoch."""
        self.share()
        self._cells[1] = epoch
        self._cells[3] = 0
        self._cells[0] += 1

    @property
    def epoch(self) -> int | None:
        """The epoch that was set last; ``None`` before."""
        return int(self._cells[1]) if self._cells[0] else None

    def newly_set(self) -> int | None:
        """The epoch, if it was set since this process asked last."""
        seen, self._seen = self._seen, int(self._cells[0])
        return self.epoch if self._seen > seen else None

    def read_by(self, worker: Worker, again: str) -> None:
        """Notes that a worker reads the epoch that was set; warns with ``again`` where an earlier iteration has read it."""
        seed, before = worker.seed % 2**63 or 1, int(self._cells[3])
        if worker.number == 0 and before not in (0, seed):
            warnings.warn(again, stacklevel=3)
        self._cells[3] = seed

    def note_worker(self) -> None:
        """Records that batches were yielded in a worker, where the program cannot count them."""
        self._cells[2] = 1

    @property
    def read_in_workers(self) -> bool:
        """Whether a worker yielded batches."""
        return bool(self._cells[2])
