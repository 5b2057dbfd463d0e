"""Custom functions over samples, between the native threads and Python."""

from __future__ import annotations

import inspect
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol, Union

import numpy as np

Function = Callable[..., dict[str, Any]]
# A sample that passes through functions, or what one of them raised.
Made = Union[dict[str, Any], BaseException]

_STORED_AS = {"bool": "uint8", "uint64": "int64"}
_MOST_INT64 = np.iinfo(np.int64).max
KNOWN = {"uint8", "int8", "int16", "uint16", "int32", "int64", "uint32", "float16", "float32", "float64"}


class Number(int):
    """The number of a record as it is handed to functions, told from one that they return: it does not go into batches."""


class Calls(Protocol):
    """Calls functions in sequence on samples, for several native threads at once."""

    def many(self, samples: Sequence[Made], own_label: bool, records: Sequence[int], keys: Sequence[int]) -> list[Made]:
        """The samples that functions make of these. ``own_label`` says whether labels are among their fields."""


class Caller:
    """Calls functions in this process: on each sample, or with ``batched`` on columns of at most so many."""

    def __init__(self, functions: Sequence[Function], batched: int = 0, *, last: bool = True) -> None:
        self.functions = [(function, has_rng(function)) for function in functions]
        self.batched, self.last = batched, last

    def many(self, samples: Sequence[Made], own_label: bool, records: Sequence[int], keys: Sequence[int]) -> list[Made]:
        made: list[Made] = []
        with _torch_draws() as draws_of:
            if self.batched:
                for start in range(0, len(samples), self.batched):
                    part = slice(start, start + self.batched)
                    made += self._columns(samples[part], own_label, keys[part], draws_of)
                return made
            for sample, key in zip(samples, keys):
                if isinstance(sample, dict):
                    try:
                        draws_of(key)
                        sample = self._called(sample, own_label, key)
                    except BaseException as error:
                        sample = error
                made.append(sample)
        return made

    def _called(self, sample: dict[str, Any], own_label: bool, key: int) -> dict[str, Any]:
        made = sample
        for at, (function, takes_rng) in enumerate(self.functions, 1):
            made = function(sample, rng=np.random.default_rng(key)) if takes_rng else function(sample)
            if not isinstance(made, dict):
                raise TypeError(f"{_name(function)} returned {type(made).__name__}; return a dict of the sample's fields")
            if at < len(self.functions) or not self.last:
                made = sample = _passed_on(sample, made)
        if own_label and "label" not in made and "label" in sample:
            return {"label": sample["label"], **made}
        return made

    def _columns(
        self, samples: Sequence[Made], own_label: bool, keys: Sequence[int], draws_of: Callable[[int], None]
    ) -> list[Made]:
        """Calls a function on columns; if it fails, on each sample alone, so that only those fail that make it."""
        [(function, takes_rng)] = self.functions
        taken = [at for at, sample in enumerate(samples) if isinstance(sample, dict)]
        given = [sample for sample in samples if isinstance(sample, dict)]
        made = list(samples)
        try:
            if not given:
                return made
            columns = _as_columns(given)
            draws_of(keys[taken[0]])
            named = {"rng": _Generators([keys[at] for at in taken])} if takes_rng else {}
            result = function(dict(columns), **named)
            rows = _as_rows(_name(function), columns, result, len(given))
        except BaseException as error:
            if len(given) == 1 or isinstance(error, _Miscounted):
                for at in taken:
                    made[at] = error
                return made
            for at in taken:
                made[at] = self._columns([samples[at]], own_label, [keys[at]], draws_of)[0]
            return made
        for at, sample, row in zip(taken, given, rows):
            if not self.last:
                row = _passed_on(sample, row)
            elif own_label and "label" not in row and "label" in sample:
                row = {"label": sample["label"], **row}
            made[at] = row
        return made


def _passed_on(sample: dict[str, Any], made: dict[str, Any]) -> dict[str, Any]:
    """What the next function gets: what the last one made, with label and number of the record."""
    if "label" in sample and "label" not in made:
        made = {"label": sample["label"], **made}
    number = sample.get("record")
    if isinstance(number, Number) and "record" not in made:
        made = {**made, "record": number}
    return made


class _Miscounted(ValueError):
    """A function of columns returned another number of records than it got."""


class _Generators(Sequence[np.random.Generator]):
    """A generator for each record of a batch, made when it is asked for."""

    def __init__(self, keys: Sequence[int]) -> None:
        self._keys = keys

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, at: Any) -> Any:
        return np.random.default_rng(self._keys[at])


def _as_columns(samples: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Fields of samples side by side: an array where their arrays or numbers have one type and shape, otherwise a list."""
    names = list(samples[0])
    for sample in samples:
        if sample.keys() != samples[0].keys():
            other = sorted(sample.keys() ^ samples[0].keys())
            raise ValueError(f"records of one batch have different fields ({', '.join(other)}); leave `batched` out")
    columns: dict[str, Any] = {}
    for name in names:
        values = [sample[name] for sample in samples]
        first = values[0]
        if isinstance(first, np.ndarray):
            alike = all(value.shape == first.shape and value.dtype == first.dtype for value in values)
            columns[name] = np.stack(values) if alike else values
        elif isinstance(first, (int, float)):
            columns[name] = np.array(values)
        else:
            columns[name] = values
    return columns


def _as_rows(name: str, columns: dict[str, Any], made: Any, count: int) -> list[dict[str, Any]]:
    if not isinstance(made, dict):
        raise TypeError(f"{name} returned {type(made).__name__}; return a dict of columns")
    rows: list[dict[str, Any]] = [{} for _ in range(count)]
    for field, values in made.items():
        # The numbers of records do not go into batches unless the function changes them.
        if field == "record" and values is columns.get("record"):
            continue
        if not isinstance(values, (list, tuple, np.ndarray)) and hasattr(values, "__array__"):
            values = np.asarray(values)
        if not isinstance(values, (list, tuple, np.ndarray)) or getattr(values, "ndim", 1) == 0:
            raise TypeError(f"{name} returned {type(values).__name__} as `{field}`; return a list or an array with one entry a record")
        if len(values) != count:
            numbers = columns.get("record", [])
            which = f", from record {numbers[0]} to {numbers[-1]}" if len(numbers) and isinstance(numbers[0], (int, np.integer)) else ""
            raise _Miscounted(
                f"{name} returned {len(values)} entries of `{field}` for a batch of {count} records{which}; return one for each record"
            )
        for row, value in zip(rows, values):
            row[field] = value
    return rows


class _Here(threading.local):
    """What this thread works for."""

    opening: tuple[Any, ...] = ()
    """The pipelines that cannot be opened before its functions have returned."""


here = _Here()


@contextmanager
def opening(pipeline: Any) -> Iterator[None]:
    """A context in which functions are called because a pipeline is being opened."""
    before, here.opening = here.opening, (*here.opening, pipeline)
    try:
        yield
    finally:
        here.opening = before


class Chain:
    """Callers one after another, as native threads call them for one run.

    The native part refers to it weakly, and the run keeps it, so that Python's collector sees what functions refer to.
    """

    def __init__(self, callers: Sequence[Calls], together: int = 64) -> None:
        self.callers = callers
        self.together = together
        """Most samples of a call."""
        self.raised: deque[BaseException] = deque(maxlen=64)
        """What functions raised last; those of records that are skipped stay here."""
        self.opening = here.opening

    def __call__(self, samples: list[Made], own_label: bool, records: list[int], keys: list[int]) -> list[Made]:
        before, here.opening = here.opening, self.opening or here.opening
        try:
            for caller in self.callers:
                samples = caller.many(samples, own_label, records, keys)
                own_label = own_label or getattr(caller, "gives_label", False)
            for sample in samples:
                if isinstance(sample, BaseException):
                    self.raised.append(sample)
            return samples
        except BaseException as error:
            self.raised.append(error)
            raise
        finally:
            here.opening = before


def _no_draws(key: int) -> None:
    pass


def _torch_draws() -> AbstractContextManager[Callable[[int], None]]:
    """A context in which random numbers of PyTorch, where that is in use, follow from the key last given to what it yields."""
    if "torch" not in sys.modules:
        return nullcontext(_no_draws)
    from .torch import keyed_draws

    return keyed_draws()


def _name(function: Function) -> str:
    return getattr(function, "__name__", repr(function))


def has_rng(function: Function) -> bool:
    """Whether a function takes random numbers."""
    try:
        return "rng" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def plain(name: str, value: Any) -> np.ndarray | bytes:
    """A value as the native part takes it: an array in C's order of a type that it knows, or bytes."""
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, (bytes, bytearray)):
        return bytes(value)
    if is_pil(value):
        value = _pixels(name, value)
    try:
        array = np.asarray(value)
    except ValueError:
        raise TypeError(f"`{name}` is a list of lists of unequal lengths; make it an array, or a field for each list") from None
    if not array.size and array.ndim == 1 and name.startswith("box"):
        array = array.reshape(0, 4)
    kind = _STORED_AS.get(array.dtype.name, array.dtype.name)
    if kind not in KNOWN:
        raise TypeError(f"`{name}` is {type(value).__name__} of {array.dtype}; return numbers, text or bytes")
    if array.dtype == np.uint64 and (array > _MOST_INT64).any():
        raise ValueError(f"`{name}` contains {array.max()}, which does not fit int64; return it as two numbers, or as bytes")
    return array.astype(kind, order="C", subok=False, copy=False)


def is_pil(value: Any) -> bool:
    """Whether it is a picture of PIL."""
    return type(value).__module__.startswith("PIL.") and hasattr(value, "convert")


def _pixels(name: str, picture: Any) -> np.ndarray:
    """A picture of PIL as height × width × channels, as files of its kind are decoded (`docs/pipelines.md`, the types of pictures)."""
    is_colours, mode = name.startswith("image"), picture.mode
    if mode in ("LA", "La") or (is_colours and mode == "1"):
        picture = picture.convert("LA").convert("L")
    elif mode not in ("L", "1", "P", "PA", "I", "F") and not mode.startswith("I;") or (is_colours and mode in ("P", "PA")):
        picture = picture.convert("RGB")
    pixels = np.asarray(picture)
    return pixels[:, :, :1] if mode == "PA" and pixels.ndim == 3 and not is_colours else pixels.reshape(*pixels.shape[:2], -1)
