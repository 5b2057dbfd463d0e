"""Custom functions over samples, between the native threads and Python."""

from __future__ import annotations

import inspect
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Union

import numpy as np

Function = Callable[..., dict[str, Any]]
Field = tuple[str, "str | None", tuple[int, ...], "bytes | bytearray"]
# The fields of a sample; or between callers the sample itself, and whether its "record" is the record's number.
Given = Union[list[Field], tuple[dict[str, Any], bool, bool]]

_STORED_AS = {"bool": "uint8", "uint64": "int64"}
_MOST_INT64 = np.iinfo(np.int64).max
_KNOWN = {"uint8", "int8", "int16", "uint16", "int32", "int64", "uint32", "float16", "float32", "float64"}


class _Number(int):
    """The number of a record as it is handed to functions, told from one that they return."""


class Caller:
    """Calls functions in sequence on a sample, for several native threads at once.

    It takes the fields of the sample, or what a caller before it left, and gives fields if it is the last. ``whole_labels``
    says whether labels are classes; it is ``None`` where records have none but among their fields.
    """

    def __init__(self, functions: Sequence[Function], whole_labels: bool | None, *, last: bool = True) -> None:
        self.functions = [(function, _takes_rng(function)) for function in functions]
        self.whole_labels, self.last = whole_labels, last

    def __call__(self, given: Given, label: float, record: int, key: int) -> Given:
        number = _Number(record)
        if isinstance(given, list):
            sample: dict[str, Any] = {name: _decoded(dtype, dims, data) for name, dtype, dims, data in given}
            # Functions before augmentation, and programs that make records, put their label among the fields.
            own_label = "label" in sample
            if not own_label and self.whole_labels is not None:
                sample["label"] = int(label) if self.whole_labels else label
            elif own_label and getattr(sample["label"], "ndim", 1) == 0:
                sample["label"] = sample["label"].item()
            # If the data has a field with this name, it stays unchanged.
            numbered = "record" not in sample
            if numbered:
                sample["record"] = number
        else:
            sample, numbered, own_label = given
        for function, takes_rng in self.functions:
            with _torch_draws(key):
                made = function(sample, rng=np.random.default_rng(key)) if takes_rng else function(sample)
            if not isinstance(made, dict):
                name = getattr(function, "__name__", repr(function))
                raise TypeError(f"{name} returned {type(made).__name__}; return a dict of the sample's fields")
            sample = {**({"label": sample["label"]} if "label" in sample else {}), **made}
            if numbered:
                sample.setdefault("record", number)
        if not self.last:
            return sample, numbered, own_label
        # If the function returns no label, the record keeps its own; the record's number is in the batch's ids.
        left_out = set() if own_label or "label" in made else {"label"}
        if numbered and isinstance(sample["record"], _Number):
            left_out.add("record")
        return [encoded(name, value) for name, value in sample.items() if name not in left_out]


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

    def __init__(self, callers: Sequence[Callable[[Any, float, int, int], Any]]) -> None:
        self.callers = callers
        self.raised: deque[BaseException] = deque(maxlen=64)
        """What functions raised last; those of records that are skipped stay here."""
        self.opening = here.opening

    def __call__(self, given: Given, label: float, record: int, key: int) -> Given:
        before, here.opening = here.opening, self.opening or here.opening
        try:
            for caller in self.callers:
                given = caller(given, label, record, key)
            return given
        except BaseException as error:
            self.raised.append(error)
            raise
        finally:
            here.opening = before


def _torch_draws(key: int) -> AbstractContextManager[Any]:
    """Random numbers of PyTorch that follow from ``key``, where PyTorch is in use."""
    if "torch" not in sys.modules:
        return nullcontext()
    from .torch import KeyedDraws

    return KeyedDraws(key)


def _takes_rng(function: Function) -> bool:
    try:
        return "rng" in inspect.signature(function).parameters
    except (TypeError, ValueError):
        return False


def _decoded(dtype: str | None, dims: tuple[int, ...], data: bytes | bytearray) -> Any:
    if dtype is None:
        return bytes(data)
    # A copy, so that a function may write to it.
    own = data if isinstance(data, bytearray) else bytearray(data)
    return np.frombuffer(own, dtype).reshape(dims)


def encoded(name: str, value: Any) -> Field:
    """A value as the native part takes it."""
    if is_pil(value):
        value = _pixels(name, value)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(value, (bytes, bytearray)):
        return name, None, (len(value),), bytes(value)
    try:
        array = np.asarray(value)
    except ValueError:
        raise TypeError(f"`{name}` is a list of lists of unequal lengths; make it an array, or a field for each list") from None
    if not array.size and array.ndim == 1 and name.startswith("box"):
        array = array.reshape(0, 4)
    kind = _STORED_AS.get(array.dtype.name, array.dtype.name)
    if kind not in _KNOWN:
        raise TypeError(f"`{name}` is {type(value).__name__} of {array.dtype}; return numbers, text or bytes")
    if array.dtype == np.uint64 and (array > _MOST_INT64).any():
        raise ValueError(f"`{name}` contains {array.max()}, which does not fit int64; return it as two numbers, or as bytes")
    return name, kind, array.shape, np.ascontiguousarray(array, kind).tobytes()


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
