# mypy: allow-untyped-calls, disable-error-code="arg-type, assignment, call-arg, call-overload, index, list-item, return-value"
# (PyTorch 1.13 has comparisons and sums of tensors return numbers.)
"""Keyed random numbers, as ``pelton_key`` has them, in tensors."""

from __future__ import annotations

import math
from collections.abc import Iterator

import torch
from torch import Tensor

MASK = (1 << 64) - 1
#: Numbers of 53 bits.
NAMES = 1 << 53


def mix(word: int) -> int:
    """SplitMix64's finaliser (``pelton_key::mix``)."""
    word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 & MASK
    word = (word ^ word >> 27) * 0x94D049BB133111EB & MASK
    return word ^ word >> 31


def signed(word: int) -> int:
    """The bits of an unsigned word as int64 has them."""
    return word - (1 << 64) if word >> 63 else word


def shifted(words: Tensor, bits: int) -> Tensor:
    return (words >> bits) & ((1 << (64 - bits)) - 1)


def mixed(words: Tensor) -> Tensor:
    """:func:`mix` of the bits of int64."""
    words = (words ^ shifted(words, 30)) * signed(0xBF58476D1CE4E5B9)
    words = (words ^ shifted(words, 27)) * signed(0x94D049BB133111EB)
    return words ^ shifted(words, 31)


def _uniform(keys: Tensor, counters: Tensor) -> Tensor:
    """Numbers of ``pelton_key::KeyedRng`` in [0, 1), ``[keys, counters]``."""
    keys = keys[:, None]
    inner = mixed(counters * signed(0x9E3779B97F4A7C15) ^ keys)
    words = mixed(inner + (keys << 32 | shifted(keys, 32)))
    return shifted(words, 11).double() / NAMES


def first_weights(seed: int, classes: range, dim: int, device: torch.device) -> Iterator[Tensor]:
    """The weights that classes begin with, block by block: normal, of mean length 1, each by its own number."""
    key = signed(mix(seed & MASK ^ 0x636C6173))
    for first in range(classes.start, classes.stop, 8192):
        numbers = torch.arange(first, min(first + 8192, classes.stop), device=device)
        uniform = _uniform(mixed(numbers ^ key), torch.arange(2 * dim, device=device))
        u, v = 1 - uniform[:, 0::2], uniform[:, 1::2]
        yield ((-2 * u.log()).sqrt() * (2 * math.pi * v).cos() / math.sqrt(dim)).float()


def is_compiling() -> bool:
    """Whether ``torch.compile`` follows this call, which then must not wait for numbers."""
    return hasattr(torch, "compiler") and bool(torch.compiler.is_compiling())
