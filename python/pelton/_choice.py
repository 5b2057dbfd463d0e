"""Which records of the data take part."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from . import _pelton
from ._checks import checked_lengths

if TYPE_CHECKING:
    from ._interface import AnyPipeline


class Choice(NamedTuple):
    """One step of choosing."""

    kind: str
    """``"filter"``, ``"take"``, ``"skip"`` or ``"part"``."""
    argument: Any


# Digests are 64 bits.
_ALL = float(1 << 64)


def chosen(pipeline: AnyPipeline, source: _pelton.Source, choices: Sequence[Choice]) -> np.ndarray | None:
    """Whether each record takes part; ``None`` where all do."""
    if not choices:
        return None
    keeps = np.ones(len(source), bool)
    for kind, argument in choices:
        if kind == "filter":
            function, config = argument
            kept = answers(pipeline, config, function)
            keeps &= np.fromiter((bool(kept.get(record)) for record in range(len(keeps))), bool, len(keeps))
        elif kind == "part":
            low, high, seed = argument
            digests = np.asarray(source.record_digests(seed)) / _ALL
            keeps &= (digests >= low) & (digests < high)
        else:
            ids = np.flatnonzero(keeps)
            keeps[ids[argument:] if kind == "take" else ids[:argument]] = False
    if not keeps.any():
        raise _pelton.ConfigurationError(f"{_named(choices)} leaves none of the {len(keeps)} records; check it")
    return keeps


def check_listed(draws: np.ndarray | None, kept: np.ndarray | None, choices: Sequence[Choice]) -> None:
    """Refuses a list of records of which choices leave some out."""
    if draws is None or kept is None or draws.dtype != np.uint64:
        return
    known = draws[draws < len(kept)]
    missing = known[~kept[known]]
    if len(missing):
        raise _pelton.ConfigurationError(
            f"{_named(choices)} leaves out {len(missing)} of the records of .sample(ids=…), the first of them {missing[0]}; list only "
            "records that are left"
        )


def _named(choices: Sequence[Choice]) -> str:
    return " and ".join(f".{'split' if kind == 'part' else kind}()" for kind, _ in choices)


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
    config = pipeline._config
    is_given = pipeline._lengths is not None or "lengths" in config or config.get("decode", "").startswith(("words", "bytes", "pairs"))
    if "buckets" in config and not is_given and (any(pipeline._maps.values()) or pipeline._items is not None):
        raise _pelton.ConfigurationError(
            ".buckets() needs the length of each record, and functions or items make them: give it length=, the name of a stored field, "
            "an array with one length a record, or a function of the stored fields such as lambda sample: len(sample['text'].split())"
        )


# Calls that must not come before another, because they would then not run in the order of the calls.
_GETS_SAMPLES = "it gets samples; functions of .map_batches() get batches"
_COUNTS = {
    "shuffle": "it keeps the first records of the data; .split() makes random parts",
    "sample": "it keeps the first records of the data",
    "batch": "it counts records, not batches",
}
_MUST_PRECEDE = {
    "take": _COUNTS,
    "skip": _COUNTS,
    "filter": {"map": "it gets samples before functions of .map() change them", "batch": _GETS_SAMPLES},
    "map": {"batch": _GETS_SAMPLES},
    "decode": {"map": "functions of .map() get decoded samples"},
    "augment": {"behind": "functions get what augmentation makes, unless they are given before_augmentation=True"},
}


def check_order(call: str, pipeline: AnyPipeline) -> None:
    """Refuses a call that comes after one that it must precede."""
    has = {
        "shuffle": pipeline._terms["order"] != "sequential",
        "sample": bool(pipeline._config.get("sample")) or pipeline._draws is not None,
        "map": any(pipeline._maps.values()),
        "behind": bool(pipeline._maps[False]),
        "batch": "batch" in pipeline._terms or "buckets" in pipeline._config or bool(pipeline._batch_maps),
    }
    for other, why in _MUST_PRECEDE[call].items():
        if has[other]:
            named = {"batch": ".batch(), .buckets(), .torch() and .map_batches()", "behind": ".map()"}.get(other, f".{other}()")
            raise _pelton.ConfigurationError(f"call .{call}() before {named}: {why}")


def check_by_index(pipeline: AnyPipeline) -> None:
    """Refuses choices that only loops over a pipeline follow."""
    if pipeline._batch_maps:
        raise _pelton.ConfigurationError(
            ".dataset() has samples as arrays, and .torch(), .tuples() and .map_batches() change batches: leave them out, and "
            "give the loader collate_fn=pelton.collate for tensors"
        )
    if "step" in pipeline._include:
        raise _pelton.ConfigurationError(".dataset() has no steps; leave `step` out of .include()")
    chosen_by = [name for name in ("keep_lengths", "keep_classes", "sample", "mix", "echo") if pipeline._config.get(name)]
    if chosen_by or pipeline._draws is not None:
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
