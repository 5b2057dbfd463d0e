"""Samples by number, for loaders and samplers of other libraries."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _pelton
from ._batch import Batch, Ragged, from_native

if TYPE_CHECKING:
    from ._pipeline import Pipeline


class Dataset:
    """A map-style view of a pipeline: ``dataset[i]`` is record ``i``, decoded and augmented, as a dict.

    It goes into ``torch.utils.data.DataLoader`` as it is, with workers or without. ``collate_fn=pelton.collate`` takes
    each batch as it was made, in one read and one array, instead of stacking samples anew::

        DataLoader(pelton.load("train.tar").decode("jpg").augment("rrc:224").dataset(), batch_size=64, shuffle=True,
                   collate_fn=pelton.collate)

    What is random about a sample depends on the pipeline's seed, ``epoch`` and the record; set ``dataset.epoch`` for
    each epoch. Batches, order and ranks are then the other loader's, and so is its speed: a pipeline that is iterated
    itself reads ahead.
    """

    def __init__(self, pipeline: Pipeline, epoch: int = 0) -> None:
        self.pipeline = pipeline
        self.epoch = epoch
        self._native: _pelton.Samples | None = None
        self._process = 0

    def __len__(self) -> int:
        return len(self._samples())

    def __getitem__(self, record: int) -> dict[str, Any]:
        record = _checked(record, len(self))
        fields = self._samples().sample(self.epoch, record)
        sample = {name: np.asarray(array)[0] for name, array in fields}
        # A number by itself, as other datasets have their labels.
        return {name: value.item() if np.ndim(value) == 0 else value for name, value in sample.items()}

    def __getitems__(self, records: Sequence[int]) -> Samples:
        """Several records, read together."""
        count = len(self)
        ids = [_checked(record, count) for record in records]
        return Samples(from_native(self._samples().batch(self.epoch, ids))[0])

    def batch_at(self, epoch: int, step: int) -> Batch:
        """The batch that iterating the pipeline gives at this step of this epoch."""
        return from_native(self._samples().batch_at(epoch, step))[0]

    def __getstate__(self) -> dict[str, Any]:
        return {"pipeline": self.pipeline, "epoch": self.epoch, "_native": None, "_process": 0}

    def _samples(self) -> _pelton.Samples:
        if self._native is None or self._process != os.getpid():
            # A forked process opens the files anew.
            self._native = self.pipeline._running().native.samples()
            self._process = os.getpid()
        return self._native


class Samples(Sequence[dict[str, Any]]):
    """Samples that were read together: a sequence of dicts over one `Batch`."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        """The samples in one array a field."""

    def __len__(self) -> int:
        return len(self.batch.ids)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(f"there is no sample {i} among {len(self)}")
        i %= len(self)
        return {name: _row(self.batch, name, i) for name in self.batch if not name.endswith("_lengths")}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))


def collate(samples: Samples) -> Batch:
    """A ``collate_fn`` for PyTorch's DataLoader over a `Dataset`: tensors of the batch as it was made, without a copy."""
    from .torch import to_torch

    return to_torch()(samples.batch)


def _row(batch: Batch, name: str, i: int) -> Any:
    field = batch[name]
    row = field[i]
    if not isinstance(field, Ragged) and f"{name}_lengths" in batch:
        row = row[: batch[f"{name}_lengths"][i]]
    return row.item() if np.ndim(row) == 0 else row


def _checked(record: int, count: int) -> int:
    record = int(record)
    if not -count <= record < count:
        raise IndexError(f"there is no record {record} among {count}")
    return record % count
