"""Batches as dicts of NumPy arrays, and arrays whose rows have lengths of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np


class Batch(dict[str, Any]):
    """One step: arrays by the name of their field, such as ``batch["image"]`` and ``batch["label"]``.

    Arrays use memory of the loader, which it reuses once nothing refers to them; they stay valid for as long as you
    keep them, and you may write to them. Padded fields come with their lengths
    (``batch["tokens_lengths"]``), packed ones also with the number of examples in each row (``batch["tokens_row_samples"]``).
    Fields of unequal length that are not padded are `Ragged`.
    """

    __slots__ = ("epoch", "step", "ids")

    epoch: int
    """Epoch, from 0."""
    step: int
    """Step of the epoch, from 0."""
    ids: np.ndarray
    """Record ids, int64 [examples]; the order of the examples in every field."""

    def __init__(
        self, fields: Any = (), epoch: int = 0, step: int = 0, ids: np.ndarray | None = None
    ) -> None:
        # Libraries that move tensors to a device make a dict of the same class with the fields alone.
        super().__init__(fields)
        self.epoch = epoch
        self.step = step
        self.ids = np.empty(0, np.int64) if ids is None else ids

    def replaced(self, fields: dict[str, Any]) -> Batch:
        """The same step with other fields."""
        return Batch(fields, self.epoch, self.step, self.ids)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Batch, (dict(self), self.epoch, self.step, self.ids))


class Ragged:
    """Rows of unequal length, one after another in one array.

    ``len(ragged)`` is the number of rows, ``ragged[i]`` row ``i`` as a view of ``values``; ``ragged.bytes(i)`` and
    ``ragged.text(i)`` are for rows of bytes.
    """

    __slots__ = ("values", "offsets")

    def __init__(self, values: np.ndarray, offsets: np.ndarray) -> None:
        self.values = values
        """All rows, one after another."""
        self.offsets = offsets
        """int64 [rows + 1]: row ``i`` lies from ``offsets[i]`` to ``offsets[i + 1]``."""

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        if not -len(self) <= i < len(self):
            raise IndexError(f"there is no row {i}; there are {len(self)}")
        i %= len(self)
        return self.values[self.offsets[i] : self.offsets[i + 1]]

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def bytes(self, i: int) -> bytes:
        """The bytes of row ``i``."""
        return self[i].tobytes()

    def text(self, i: int, encoding: str = "utf-8") -> str:
        """Row ``i`` as text."""
        return self.bytes(i).decode(encoding)

    def texts(self, encoding: str = "utf-8") -> list[str]:
        """All rows as text."""
        return [self.text(i, encoding) for i in range(len(self))]

    def lengths(self) -> np.ndarray:
        """Length of each row, int64 [rows]."""
        return np.diff(self.offsets)

    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows of {self.values.dtype})"


def from_native(head: tuple[Any, ...]) -> tuple[Batch, bool]:
    """A batch from the native loader's output, and whether its epoch ends with it."""
    epoch, step, ends_epoch, ids, fields = head
    named: dict[str, Any] = {}
    asarray = np.asarray
    for name, array, layout, lengths, row_samples in fields:
        values = asarray(array)
        if layout == 0:
            named[name] = values
        elif layout == 2:
            named[name] = Ragged(values, asarray(lengths))
        else:
            named[name] = values
            named[f"{name}_lengths"] = asarray(lengths)
            if row_samples is not None:
                named[f"{name}_row_samples"] = asarray(row_samples)
    return Batch(named, epoch, step, asarray(ids)), ends_epoch
