"""Samples by index, for loaders and samplers of other libraries."""

from __future__ import annotations

import operator
import os
import reprlib
import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _pelton
from ._batch import Batch, Ragged, Samples, from_native
from ._checks import typed
from ._columns import described, free
from ._workers import Told, mixed

if TYPE_CHECKING:
    from torch.utils import data

    from ._interface import AnyPipeline
    from ._run import Run

    Base = data.Dataset[dict[str, Any]]
else:
    # PyTorch takes anything with `len` and `[i]`.
    Base = object

# So many consecutive first records show that the order is not random.
_IN_ORDER = 6


class Dataset(Base):  # type: ignore[misc, unused-ignore]
    """A map-style view of a pipeline: ``dataset[i]`` is record ``i``, decoded and augmented, as a dict; of the records that
    `Pipeline.filter`, `take`, `skip` and `split` leave, where it chooses.

    Pass it to ``torch.utils.data.DataLoader``, with or without workers. ``collate_fn=pelton.collate`` takes each
    batch as read, in one array, instead of stacking samples again::

        DataLoader(pelton.load("train.tar").decode("jpg").augment("rrc:224").dataset(), batch_size=64, shuffle=True,
                   collate_fn=pelton.collate)

    Random augmentation is drawn again each time a sample is requested: it depends on PyTorch's initial seed in this
    process and on how many samples were drawn before, so a program is reproducible under
    ``torch.manual_seed``, and PyTorch's own random numbers stay as they are. After ``set_epoch`` it depends on the
    pipeline's seed, the epoch and the record; only then does a run resumed within an epoch see the same pictures. (``StatefulDataLoader`` keeps the count, and resumes exactly too.)

    The other loader decides batches, order and ranks, and limits the speed: only a pipeline that you iterate reads ahead.
    """

    def __init__(self, pipeline: AnyPipeline, epoch: int | None = None) -> None:
        self.pipeline = pipeline
        self._told = Told()
        self._native: dict[tuple[int, int, int], _Samples] = {}
        # Samples drawn so far, and the seed of the draws if a state gives it.
        self._draws, self._seed = 0, None
        if epoch is not None:
            self.set_epoch(epoch)

    @typed
    def set_epoch(self, epoch: int) -> None:
        """Sets the epoch that random numbers depend on, also for workers of a ``DataLoader``."""
        self._told.set_epoch(epoch)

    @property
    def epoch(self) -> int | None:
        """The epoch that was set; ``None`` before."""
        return self._told.epoch

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """How many samples were drawn, and the seed that they follow from."""
        return {"seed": self._first_seed(), "draws": self._draws}

    @typed
    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes random numbers from a state."""
        if not {"seed", "draws"} <= state.keys():
            raise _pelton.StateError("`state` is not one of .dataset(); give what its state_dict() returned")
        self._seed, self._draws = state["seed"], state["draws"]

    def __len__(self) -> int:
        self._told.share()
        return self.pipeline.records

    def __getitem__(self, record: int) -> dict[str, Any]:
        return self._item(self._ids([record])[0], self._key(1))

    @typed
    def peek(self, record: int) -> dict[str, Any]:
        """Record ``record`` of the data, whatever the pipeline chooses."""
        return self._item(_checked(record, len(self._samples().native)), self._key(1))

    def _item(self, record: int, epoch: int) -> dict[str, Any]:
        sample = self._sample(record, epoch)
        # A scalar becomes a plain number, as labels are in other datasets.
        return {name: value.item() if isinstance(value, (np.ndarray, np.generic)) and value.ndim == 0 else value for name, value in sample.items()}

    def _ids(self, records: Sequence[int]) -> list[int]:
        count = len(self)
        at = [_checked(record, count) for record in records]
        ids = self.pipeline._chosen_ids()
        return at if ids is None else [int(ids[i]) for i in at]

    @typed
    def sample(self, record: int, epoch: int) -> dict[str, Any]:
        """Record ``record`` of the data as it is in this ``epoch``."""
        return self._sample(_checked(record, len(self._samples().native)), epoch)

    def _sample(self, record: int, epoch: int) -> dict[str, Any]:
        samples = self._samples()
        with samples.run.causes():
            sample: dict[str, Any] = {name: np.asarray(array)[0] for name, array in samples.native.sample(epoch, record)}
        columns = {name: free(name, sample, column)[record] for name, column in self.pipeline._batch_columns().items()}
        told = described(Batch({}, self.epoch or 0, 0, np.array([record])), self.pipeline._steps.included, self.pipeline._running())
        return {**sample, **columns, **{name: field[0] for name, field in told.items()}}

    def __getitems__(self, records: Sequence[int]) -> Samples:
        """Several records, read together."""
        is_shuffled = self.pipeline._steps.has("shuffle")
        if is_shuffled and len(records) >= _IN_ORDER and list(records) == list(range(len(records))):
            warnings.warn(
                "the loader asks for records in the order of the data, whatever .shuffle() says; give it shuffle=True or a sampler",
                stacklevel=2,
            )
        ids = self._ids(records)
        samples = self._samples()
        with samples.run.causes():
            batch = from_native(samples.native.batch(self._key(len(ids)), ids))[0]
        batch.epoch = self.epoch or 0
        return Samples(self.pipeline._filled(batch))

    @typed
    def batch_at(self, epoch: int, step: int) -> Batch:
        """The batch that iterating the pipeline gives at this step of this epoch."""
        rank, size, _ = self.pipeline._world()
        samples = self._samples((rank, size))
        with samples.run.causes():
            return self.pipeline._filled(from_native(samples.native.batch_at(epoch, step))[0])

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_native": {}}

    def _key(self, samples: int) -> int:
        """The epoch that the next samples are drawn for: what was set, or a number of their own."""
        epoch = self.epoch
        if epoch is None:
            epoch = mixed(self._first_seed(), self._draws)
            self._draws += samples
        return epoch

    def _first_seed(self) -> int:
        if self._seed is not None:
            return self._seed
        torch = sys.modules.get("torch")
        seed: int = self.pipeline._steps.terms["seed"] if torch is None else torch.initial_seed()
        return seed

    def _samples(self, share: tuple[int, int] = (0, 1)) -> _Samples:
        # A forked process opens the files again.
        key = (os.getpid(), *share)
        samples = self._native.get(key)
        if samples is None:
            run = self.pipeline._running()
            samples = self._native[key] = _Samples(run, run.native.samples(*share))
        return samples


class _Samples(NamedTuple):
    """What makes samples, and the run that has the functions."""

    run: Run
    native: _pelton.Samples


def collate(samples: Sequence[dict[str, Any]]) -> Batch:
    """A ``collate_fn`` for PyTorch's DataLoader over a `Dataset`: tensors of the batch as it was made, without a copy.

    Samples that came one by one, as from ``ConcatDataset``, are stacked; rows of unequal shape become `Ragged`.
    """
    from .torch import to_torch

    is_list = isinstance(samples, Sequence) and len(samples) > 0
    if not isinstance(samples, Samples) and not (is_list and all(isinstance(sample, dict) for sample in samples)):
        raise _pelton.ConfigurationError(f"`samples` is {reprlib.repr(samples)}; give a list of samples, which are dicts of fields")
    return to_torch()(samples.batch if isinstance(samples, Samples) else _stacked(samples))


def _stacked(samples: Sequence[dict[str, Any]]) -> Batch:
    for sample in samples:
        if sample.keys() != samples[0].keys():
            raise _pelton.ConfigurationError(
                f"samples have different fields, {', '.join(samples[0])} and {', '.join(sample)}; give all the same, with .map()"
            )
    fields: dict[str, Any] = {}
    for name in samples[0]:
        rows = [np.asarray(sample[name]) for sample in samples]
        if rows[0].dtype.kind not in "biuf":
            fields[name] = [sample[name] for sample in samples]
        elif all(row.shape == rows[0].shape for row in rows):
            fields[name] = np.stack(rows)
        else:
            fields[name] = Ragged.of(rows)
    return Batch(fields)


def _checked(record: int, count: int) -> int:
    record = operator.index(record)
    if not -count <= record < count:
        raise IndexError(f"there is no record {record}; there are {count}")
    return record % count
