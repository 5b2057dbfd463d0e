"""What arguments must be, checked at the call that has them."""

from __future__ import annotations

import functools
import inspect
import os
import re
import reprlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike

from . import _pelton

ConfigurationError = _pelton.ConfigurationError

T = TypeVar("T")


class _Kind(NamedTuple):
    """What an argument may be: in words, in words of several, and a test."""

    one: str
    several: str
    fits: Callable[[Any], bool]


def _is_number(value: Any, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, (bool, np.bool_))


def _is_list(value: Any) -> bool:
    return hasattr(value, "__len__") and hasattr(value, "__getitem__") and not isinstance(value, (str, bytes, bytearray, Mapping))


# By the first word of an annotation; others are not checked here.
_KINDS = {
    "None": _Kind("None", "", lambda value: value is None),
    "str": _Kind("a string", "strings", lambda value: isinstance(value, str)),
    "int": _Kind("a whole number", "whole numbers", lambda value: _is_number(value, int, np.integer)),
    "float": _Kind("a number", "numbers", lambda value: _is_number(value, int, float, np.integer, np.floating)),
    "bool": _Kind("True or False", "", lambda value: isinstance(value, (bool, np.bool_))),
    "os.PathLike": _Kind("a path", "paths", lambda value: isinstance(value, os.PathLike)),
    "Callable": _Kind("a function", "functions", callable),
    "Function": _Kind("a function", "functions", callable),
    "Mapping": _Kind("a dict", "dicts", lambda value: isinstance(value, Mapping)),
    "Sequence": _Kind("a list", "lists", _is_list),
    "Pipeline": _Kind("a pipeline", "pipelines", lambda value: hasattr(value, "_running")),
    "tuple": _Kind("a tuple", "tuples", _is_list),
}


def _kinds_of(annotation: str) -> list[_Kind] | None:
    """The kinds of an annotation such as ``Sequence[str] | None``; ``None`` where it has others."""
    kinds: list[_Kind] = []
    depth, parts = 0, [""]
    for letter in annotation:
        depth += (letter == "[") - (letter == "]")
        if depth == 0 and letter in "|,":
            parts.append("")
        else:
            parts[-1] += letter
    for part in parts:
        name, _, inner = part.strip().partition("[")
        kind = _KINDS.get(name)
        if kind is None or inner == "Any]":
            return None
        items = _kinds_of(inner[:-1]) if name in ("Sequence", "tuple") else None
        kinds.append(kind if items is None else _list_of(kind, items))
    return kinds


def _list_of(kind: _Kind, items: list[_Kind]) -> _Kind:
    def fits(value: Any) -> bool:
        return kind.fits(value) and all(any(item.fits(each) for item in items) for each in value)

    named = " or ".join(item.several for item in items if item.several)
    return kind._replace(one=f"{kind.one} of {named}", fits=fits) if named else kind


def typed(thing: T) -> T:
    """A function, or a class with public methods, that checks arguments by the annotations of its parameters."""
    if isinstance(thing, type):
        wrapped: dict[Any, Any] = {}
        for name, member in list(vars(thing).items()):
            if inspect.isfunction(member) and not name.startswith("_"):
                setattr(thing, name, wrapped.setdefault(member, typed(member)))
        return thing
    function: Any = thing
    signature = inspect.signature(function)
    parameters = [(name, said, _kinds_of(said.annotation)) for name, said in signature.parameters.items() if isinstance(said.annotation, str)]
    checked = [(name, said, kinds) for name, said, kinds in parameters if kinds and said.annotation != "None"]

    @functools.wraps(function)
    def call(*args: Any, **named: Any) -> Any:
        given = signature.bind(*args, **named).arguments
        for name, said, kinds in checked:
            for value in given.get(name, ()) if said.kind == said.VAR_POSITIONAL else [given[name]] if name in given else []:
                if not any(kind.fits(value) for kind in kinds):
                    refuse(name, value, kinds)
        return function(*args, **named)

    return call  # type: ignore[return-value]


def refuse(name: str, value: Any, kinds: list[_Kind]) -> None:
    """Refuses an argument of another kind."""
    wanted = " or ".join(dict.fromkeys(kind.one for kind in kinds))
    raise ConfigurationError(f"`{name}` is {reprlib.repr(value)}; give {wanted}")


def choice(name: str, value: Any, *options: str) -> Any:
    """One of some words, or ``None``."""
    if value is not None and not (isinstance(value, str) and value in options):
        raise ConfigurationError(f"`{name}` is {value!r}; give {' or '.join(map(repr, options))}")
    return value


_UNITS = {"": 1, "B": 1}
for _i, _letter in enumerate("KMGT", start=1):
    _UNITS[f"{_letter}iB"] = 1024**_i
    _UNITS[f"{_letter}B"] = 1000**_i



def parse_bytes(size: int | str) -> int:
    """Bytes of a size such as ``"512MiB"``, ``"2GB"`` or a number."""
    if isinstance(size, (int, np.integer)) and not isinstance(size, bool) and size > 0:
        return int(size)
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMGT]i?B|B|)\s*", str(size))
    if not match or float(match[1]) == 0:
        raise ConfigurationError(f"`{size}` is not an amount of memory: give a number of bytes, or text such as 512MiB or 2GB")
    return int(float(match[1]) * _UNITS[match[2]])


def whole(name: str, value: Any, least: int = 0) -> int:
    """A whole number that is not below ``least``; text, fractions and truth values are refused."""
    if isinstance(value, (bool, np.bool_, str)) or not isinstance(value, (int, np.integer)) or value < least:
        raise ConfigurationError(f"`{name}` is {value!r}; give a whole number from {least} on")
    return int(value)


def share(name: str, value: Any, most: float = 1.0) -> float:
    """A number from 0 to ``most``."""
    if isinstance(value, (bool, str)) or not isinstance(value, (int, float, np.number)) or not 0 <= value <= most:
        raise ConfigurationError(f"`{name}` is {value!r}; give a number from 0 to {most:g}")
    return float(value)


def sides(name: str, size: Any) -> str:
    """One or two sides in pixels, of ``224``, ``(224,)`` or ``(height, width)``, as the native part takes them."""
    given = list(size) if isinstance(size, (tuple, list)) else [size]
    if len(given) not in (1, 2):
        raise ConfigurationError(f"`{name}` is {size!r}; give one side, or (height, width)")
    return "x".join(str(whole(name, side, 1)) for side in given)


def channels(name: str, values: Any, most: float) -> str:
    """Numbers of one or three channels as the native part takes them."""
    given: Any = values if isinstance(values, (tuple, list, np.ndarray)) else [values]
    if len(given) not in (1, 3):
        raise ConfigurationError(f"`{name}` is {values!r}; give a number, or three")
    return "/".join(str(share(name, value, most)) for value in given)


def checked_weights(weights: ArrayLike) -> np.ndarray:
    """Weights as the native part takes them."""
    try:
        numbers = np.ascontiguousarray(weights, np.float64)
    except (TypeError, ValueError):
        numbers = np.zeros((0, 0))
    if numbers.ndim != 1 or np.ndim(weights) != 1:
        raise ConfigurationError("`weights` must be numbers in one dimension, one a record")
    return numbers


def checked_lengths(lengths: ArrayLike) -> np.ndarray:
    """Lengths as the native part takes them."""
    numbers = np.asarray(lengths)
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer) or (numbers < 0).any() or (numbers >= 2**32).any():
        raise ConfigurationError("`length` must be whole numbers below 2^32 in one dimension, one a record")
    return np.ascontiguousarray(numbers, np.uint32)
