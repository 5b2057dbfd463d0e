"""The calls that made a pipeline, one step each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from . import _pelton
from ._stage import has_rng

if TYPE_CHECKING:
    import numpy as np

    from ._stage import Function
    from ._world import World

S = TypeVar("S", bound="Step")

GETS_SAMPLES = "it gets samples; functions of .map_batches() get batches"


@dataclass(frozen=True, eq=False)
class Step:
    """A call, and the settings that it adds to those of the native pipeline; ``None`` takes an earlier one back."""

    call: str
    config: Mapping[str, Any] = field(default_factory=dict)
    terms: Mapping[str, Any] = field(default_factory=dict)

    must_precede: ClassVar[Mapping[str, str]] = {}
    """Calls that it must come before, because it would then not run in the order of the calls, and why."""

    def check(self, earlier: Steps) -> None:
        """Refuses the call after one that it must precede."""
        for other, why in self.must_precede.items():
            if earlier.has(other):
                named = {"batch": ".batch(), .buckets(), .torch() and .map_batches()", "behind": ".map()"}.get(other, f".{other}()")
                raise _pelton.ConfigurationError(f"call .{self.call}() before {named}: {why}")


class Choice(Step):
    """Which records of the data take part."""

    def choose(self, keeps: np.ndarray, pipeline: Any, source: _pelton.Source) -> None:
        """Clears ``keeps`` for records that do not."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False)
class Sample(Step):
    """Which records an epoch draws: ids, or a weight for each record."""

    draws: np.ndarray | None = None


@dataclass(frozen=True, eq=False)
class Decode(Step):
    """A decoder, with a vocabulary that is not a file."""

    vocabulary: Any = None
    must_precede = {"map": "functions of .map() get decoded samples"}


@dataclass(frozen=True, eq=False)
class Augment(Step):
    """Some steps of augmentation."""

    steps: Sequence[str] = ()
    must_precede = {"behind": "functions get what augmentation makes, unless they are given before_augmentation=True"}


@dataclass(frozen=True, eq=False)
class Map(Step):
    """A function of samples, and the worker processes that call it."""

    function: Any = None
    processes: int = 0
    batched: int = 0
    before_augmentation: bool = False
    must_precede = {"batch": GETS_SAMPLES}

    def check(self, earlier: Steps) -> None:
        super().check(earlier)
        if self.before_augmentation and earlier.has("cache"):
            raise _pelton.ConfigurationError("call .map(before_augmentation=True) before .cache(): the function runs before it")


@dataclass(frozen=True, eq=False)
class Cache(Step):
    """Samples kept in memory as they are at this call."""

    bytes: int = 0
    must_precede = {
        "cache": "one of them keeps the samples",
        "augment": "it would keep one draw of the augmentation of each record",
        "batch": GETS_SAMPLES,
    }

    def check(self, earlier: Steps) -> None:
        super().check(earlier)
        for step in earlier.of(Map):
            if has_rng(step.function):
                raise _pelton.ConfigurationError(
                    "call .cache() before .map() of a function with random numbers (`rng`): it would keep one draw of each record"
                )


@dataclass(frozen=True, eq=False)
class MapBatches(Step):
    """A function of batches."""

    function: Any = None


@dataclass(frozen=True, eq=False)
class Windows(Step):
    """Windows of token ids, with the ids one further as targets."""

    targets: bool = True


@dataclass(frozen=True, eq=False)
class Buckets(Step):
    """Buckets, with lengths that are not a stored field."""

    lengths: Any = None


@dataclass(frozen=True, eq=False)
class Shard(Step):
    """The rank of this process."""

    world: World | None = None


@dataclass(frozen=True, eq=False)
class Include(Step):
    """Fields to add to batches."""

    fields: Sequence[str] = ()


class Steps:
    """The calls so far, in their order. Of settings that several calls give, the last one counts."""

    def __init__(self, steps: tuple[Step, ...] = ()) -> None:
        self.steps = steps

    def then(self, step: Step) -> Steps:
        """With one more call."""
        step.check(self)
        return Steps((*self.steps, step))

    def of(self, kind: type[S]) -> list[S]:
        """The steps of a kind."""
        return [step for step in self.steps if isinstance(step, kind)]

    def has(self, call: str) -> bool:
        """Whether a call, or one like it, is among them."""
        if call == "shuffle":
            return bool(self.terms["order"] != "sequential")
        if call == "batch":
            return self.batched or bool(self.batch_functions)
        if call == "behind":
            return bool(self.functions(False))
        return any(step.call == call for step in self.steps)

    @cached_property
    def config(self) -> dict[str, Any]:
        """Settings of decoding, batches and which records take part."""
        merged = {name: value for step in self.steps for name, value in step.config.items()}
        return {name: value for name, value in merged.items() if value is not None}

    @cached_property
    def terms(self) -> dict[str, Any]:
        """Order, size of a batch, and how it is run."""
        given = {name: value for step in self.steps for name, value in step.terms.items()}
        return {"order": "sequential", "seed": 0, **given}

    @property
    def batched(self) -> bool:
        """Whether the loop yields batches."""
        return "batch" in self.terms or "buckets" in self.config

    @cached_property
    def augment(self) -> str:
        """The steps of augmentation; empty without one."""
        return ",".join(step for call in self.of(Augment) for step in call.steps)

    def functions(self, before_augmentation: bool) -> list[tuple[Function, int, int]]:
        """Functions of samples before or after augmentation, or a cache, the worker processes of each, and how many samples it takes at once."""
        kept = next((at for at, step in enumerate(self.steps) if isinstance(step, Cache)), 0)
        maps = [
            step
            for at, step in enumerate(self.steps)
            if isinstance(step, Map) and (step.before_augmentation or at < kept) is before_augmentation
        ]
        return [(step.function, step.processes, step.batched) for step in maps]

    @property
    def batch_functions(self) -> list[Callable[[Any], Any]]:
        """Functions of batches."""
        return [step.function for step in self.of(MapBatches)]

    @property
    def draws(self) -> np.ndarray | None:
        """The ids or weights of ``.sample()``."""
        return self._last(Sample("sample")).draws

    @property
    def vocabulary(self) -> Any:
        """A list of words or a pipeline."""
        return self._last(Decode("decode")).vocabulary

    @property
    def lengths(self) -> Any:
        """The length of each record, or a function that gives it."""
        given = [step.lengths for step in self.of(Buckets) if "lengths" in step.config]
        return given[-1] if given else None

    @property
    def has_targets(self) -> bool:
        """Whether windows of token ids end with the target of their last one."""
        return any(step.targets for step in self.of(Windows))

    @property
    def world(self) -> World | None:
        """The rank given by ``.shard()``."""
        return self._last(Shard("shard")).world

    @cached_property
    def included(self) -> tuple[str, ...]:
        """Fields that are added to batches."""
        return tuple(dict.fromkeys(name for step in self.of(Include) for name in step.fields))

    def _last(self, default: S) -> S:
        return (self.of(type(default)) or [default])[-1]
