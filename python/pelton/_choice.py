"""Which records of the data take part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _pelton
from ._checks import checked_lengths
from ._steps import GETS_SAMPLES, Choice, Steps

if TYPE_CHECKING:
    from ._interface import AnyPipeline


# Digests are 64 bits.
_ALL = float(1 << 64)


@dataclass(frozen=True, eq=False)
class Filter(Choice):
    """Records for which a function of the sample, decoded by some settings, returns true."""

    function: Any = None
    decoding: Mapping[str, Any] = field(default_factory=dict)
    must_precede = {"map": "it gets samples before functions of .map() change them", "batch": GETS_SAMPLES}

    def choose(self, keeps: np.ndarray, pipeline: AnyPipeline, source: _pelton.Source) -> None:
        kept = answers(pipeline, self.decoding, self.function)
        keeps &= np.fromiter((bool(kept.get(record)) for record in range(len(keeps))), bool, len(keeps))


@dataclass(frozen=True, eq=False)
class Part(Choice):
    """Records with a digest in this part of all digests."""

    start: float = 0.0
    to: float = 1.0
    seed: int = 0

    def choose(self, keeps: np.ndarray, pipeline: AnyPipeline, source: _pelton.Source) -> None:
        digests = np.asarray(source.record_digests(self.seed)) / _ALL
        keeps &= (digests >= self.start) & (digests < self.to)


@dataclass(frozen=True, eq=False)
class Take(Choice):
    """The first records that are left."""

    records: int = 0
    must_precede = {
        "shuffle": "it keeps the first records of the data; .split() makes random parts",
        "sample": "it keeps the first records of the data",
        "batch": "it counts records, not batches",
    }

    def choose(self, keeps: np.ndarray, pipeline: AnyPipeline, source: _pelton.Source) -> None:
        keeps[np.flatnonzero(keeps)[self.records :]] = False


class Skip(Take):
    """All that are left but the first."""

    def choose(self, keeps: np.ndarray, pipeline: AnyPipeline, source: _pelton.Source) -> None:
        keeps[np.flatnonzero(keeps)[: self.records]] = False


def chosen(pipeline: AnyPipeline, source: _pelton.Source) -> np.ndarray | None:
    """Whether each record takes part; ``None`` where all do."""
    choices = pipeline._steps.of(Choice)
    if not choices:
        return None
    keeps = np.ones(len(source), bool)
    for choice in choices:
        choice.choose(keeps, pipeline, source)
    if not keeps.any():
        raise _pelton.ConfigurationError(f"{_named(choices)} leaves none of the {len(keeps)} records; check it")
    return keeps


def check_listed(steps: Steps, kept: np.ndarray | None) -> None:
    """Refuses a list of records of which choices leave some out."""
    draws = steps.draws
    if draws is None or kept is None or draws.dtype != np.uint64:
        return
    known = draws[draws < len(kept)]
    missing = known[~kept[known]]
    if len(missing):
        raise _pelton.ConfigurationError(
            f"{_named(steps.of(Choice))} leaves out {len(missing)} of the records of .sample(ids=…), the first of them {missing[0]}; list only "
            "records that are left"
        )


def _named(choices: Sequence[Choice]) -> str:
    return " and ".join(f".{choice.call}()" for choice in choices)


def answers(pipeline: AnyPipeline, config: Mapping[str, Any], function: Callable[[dict[str, Any]], Any]) -> dict[int, int]:
    """What a function says of the fields of every record, in one pass over the data. Threads call it, as they call
    those of ``.map()``; records that a policy skips are left out."""
    found: dict[int, int] = {}
    batches = pipeline._decoded(config).map(_Answer(function)).batch(256)
    batches._running().is_pass = True
    for batch in batches:
        found.update(zip(batch.ids.tolist(), batch["answer"].tolist()))
    return found


def lengths_by(length: Callable[[dict[str, Any]], int], pipeline: AnyPipeline, records: int) -> np.ndarray:
    """The length of every record by a function, in one pass over what is stored."""
    found = answers(pipeline, {}, length)
    return checked_lengths(np.array([found[record] for record in range(records)], np.int64))


class LengthOf:
    """The length of a field of items: a number, or how many elements it has."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, sample: dict[str, Any]) -> int:
        if self.name not in sample:
            raise _pelton.ConfigurationError(f"`length` names `{self.name}`, and samples have {', '.join(sample)}")
        value = sample[self.name]
        return int(value) if np.ndim(value) == 0 and not isinstance(value, bytes) else len(value)


def check_has_lengths(pipeline: AnyPipeline) -> None:
    """Refuses buckets over what a program makes, whose lengths nobody knows."""
    steps, config = pipeline._steps, pipeline._steps.config
    is_given = steps.lengths is not None or "lengths" in config or config.get("decode", "").startswith(("words", "bytes", "pairs"))
    if "buckets" in config and not is_given and (steps.has("map") or pipeline._items is not None):
        raise _pelton.ConfigurationError(
            ".buckets() needs the length of each record, and functions or items make them: give it length=, the name of a stored field, "
            "an array with one length a record, or a function of the stored fields such as lambda sample: len(sample['text'].split())"
        )


def check_by_index(pipeline: AnyPipeline) -> None:
    """Refuses choices that only loops over a pipeline follow."""
    steps = pipeline._steps
    if steps.batch_functions:
        raise _pelton.ConfigurationError(
            ".dataset() has samples as arrays, and .torch(), .tuples() and .map_batches() change batches: leave them out, and "
            "give the loader collate_fn=pelton.collate for tensors"
        )
    if "step" in steps.included:
        raise _pelton.ConfigurationError(".dataset() has no steps; leave `step` out of .include()")
    chosen_by = [name for name in ("keep_lengths", "keep_classes", "sample", "mix", "echo") if steps.config.get(name)]
    if chosen_by or steps.draws is not None:
        name = (chosen_by or ["sample"])[0].split("_")[0]
        raise _pelton.ConfigurationError(
            f".{name}() chooses records for loops over the pipeline, and .dataset() has records by index; use .filter() or "
            ".split(), or a sampler of the loader"
        )


class _Answer:
    """A function of samples whose only field is what another says."""

    def __init__(self, function: Callable[[dict[str, Any]], Any]) -> None:
        self.function = function

    def __call__(self, sample: dict[str, Any]) -> dict[str, Any]:
        answer = self.function(sample)
        if not isinstance(answer, (bool, np.bool_, int, np.integer)):
            name = getattr(self.function, "__name__", repr(self.function))
            raise TypeError(f"{name} returned {type(answer).__name__}; return a truth value or a whole number")
        return {"answer": np.int64(answer)}
