"""What arguments must be, checked at the call that has them."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from . import _pelton

ConfigurationError = _pelton.ConfigurationError

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


def sides(name: str, size: Any) -> list[int]:
    """One or two sides in pixels, of ``224``, ``(224,)`` or ``(height, width)``."""
    given = list(size) if isinstance(size, (tuple, list)) else [size]
    if len(given) not in (1, 2):
        raise ConfigurationError(f"`{name}` is {size!r}; give one side, or (height, width)")
    return [whole(name, side, 1) for side in given]


def square(name: str, size: Any) -> int:
    """The side of a square, of ``224`` or ``(224, 224)``."""
    given = sides(name, size)
    if len(set(given)) > 1:
        raise ConfigurationError(f"`{name}` is {size!r}, and only squares are cut; give one side, and .resize((height, width)) after it")
    return given[0]


def channels(name: str, values: Any, most: float) -> str:
    """Numbers of one or three channels as the native part takes them."""
    given: Any = values if isinstance(values, (tuple, list, np.ndarray)) else [values]
    if len(given) not in (1, 3):
        raise ConfigurationError(f"`{name}` is {values!r}; give a number, or three")
    return "/".join(str(share(name, value, most)) for value in given)


def checked_lengths(lengths: ArrayLike) -> np.ndarray:
    """Lengths as the native part takes them."""
    numbers = np.asarray(lengths)
    if numbers.ndim != 1 or not np.issubdtype(numbers.dtype, np.integer) or (numbers < 0).any() or (numbers >= 2**32).any():
        raise ConfigurationError("lengths must be whole numbers below 2^32 in one dimension, one a record")
    return np.ascontiguousarray(numbers, np.uint32)
