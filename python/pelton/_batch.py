"""Batches as dicts of NumPy arrays, their samples, and arrays whose rows have lengths of their own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _pelton

# Fields added next to padded and packed ones: the length of each sample, and the samples of each row.
_ADDED = ("_lengths", "_row_samples")


class Batch(dict[str, Any]):
    """One step: arrays by the name of their field, such as ``batch["image"]`` and ``batch["label"]``.

    Arrays use memory of the loader, which it reuses once nothing refers to them; they stay valid for as long as you
    keep them, and you may write to them. Padded fields come with their lengths
    (``batch["tokens_lengths"]``), packed ones also with the number of examples in each row (``batch["tokens_row_samples"]``);
    data that has a field of such a name next to the padded one is refused. Fields of unequal length that are not padded are `Ragged`.

    ``epoch``, ``step`` and ``ids`` survive ``.to(device)``, which Lightning and accelerate call, pickling and copying. A
    library that makes a new batch from its fields loses them, and asking for them is then an error; the fields of
    `Pipeline.include` survive everything.
    """

    __slots__ = ("epoch", "step", "ids", "padded")

    epoch: int
    """Epoch, from 0."""
    step: int
    """Step of the epoch, from 0."""
    ids: np.ndarray
    """Record ids, int64 [examples]; the order of the examples in every field."""
    padded: tuple[str, ...]
    """Names of the fields that are padded or packed, next to which are their lengths."""

    def __init__(
        self,
        fields: Any = (),
        epoch: int | None = None,
        step: int | None = None,
        ids: np.ndarray | None = None,
        padded: tuple[str, ...] = (),
    ) -> None:
        # Some libraries rebuild a dict of the same class from the fields alone.
        super().__init__(fields)
        self.padded = padded
        if epoch is not None and step is not None and ids is not None:
            self.epoch, self.step, self.ids = epoch, step, ids

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            if name in ("epoch", "step", "ids"):
                raise AttributeError(
                    f"this batch was made by another library from the fields of Pelton's and has no `{name}`; ask for it as a "
                    f"field, .include({name!r}), and take batch[{name!r}]"
                )
            raise AttributeError(f"a batch has no attribute {name!r}")

    def __repr__(self) -> str:
        epoch, step, ids, _ = self._position()
        position = "" if ids is None else f"epoch {epoch}, step {step}, {len(ids)} examples: "
        return f"Batch({position}{', '.join(f'{name} {_told(value)}' for name, value in self.items())})"

    def replaced(self, fields: dict[str, Any]) -> Batch:
        """The same step with other fields."""
        try:
            return Batch(fields, self.epoch, self.step, self.ids, self.padded)
        except AttributeError:
            return Batch(fields, padded=self.padded)

    def to(self, device: Any, non_blocking: bool = False, **options: Any) -> Batch:
        """The same step with its tensors on a device of PyTorch; ``non_blocking`` and other ``options`` are those of
        ``Tensor.to``."""
        return self._each("to", device, non_blocking=non_blocking, **options)

    def pin_memory(self, device: Any = None) -> Batch:
        """The same step with its tensors in pinned memory."""
        return self._each("pin_memory", *([] if device is None else [device]))

    def _each(self, method: str, *arguments: Any, **options: Any) -> Batch:
        def moved(value: Any) -> Any:
            move = None if isinstance(value, np.ndarray) else getattr(value, method, None)
            return value if move is None else move(*arguments, **options)

        return self.replaced({name: moved(value) for name, value in self.items()})

    def _position(self) -> tuple[Any, ...]:
        return (*(getattr(self, name, None) for name in ("epoch", "step", "ids")), self.padded)

    def __reduce__(self) -> tuple[Any, ...]:
        return (Batch, (dict(self), *self._position()))


def _told(value: Any) -> str:
    """Type and dimensions of a field."""
    if hasattr(value, "dtype") and hasattr(value, "shape"):
        return f"{str(value.dtype).removeprefix('torch.')} {list(value.shape)}"
    return repr(value) if isinstance(value, Ragged) else type(value).__name__


class Ragged:
    """Rows of unequal length, one after another in one array.

    ``len(ragged)`` is the number of rows, ``ragged[i]`` row ``i`` in its shape as a view of ``values``;
    ``ragged.bytes(i)`` and ``ragged.text(i)`` are for rows of bytes.
    """

    __slots__ = ("values", "offsets", "shapes")

    def __init__(self, values: np.ndarray, offsets: np.ndarray, shapes: np.ndarray | None = None) -> None:
        self.values = values
        """All rows, one after another."""
        self.offsets = offsets
        """int64 [rows + 1]: row ``i`` lies from ``offsets[i]`` to ``offsets[i + 1]``."""
        self.shapes = shapes
        """int64 [rows, dimensions] where rows have several dimensions, as pictures do; otherwise ``None``."""

    @classmethod
    def of(cls, rows: Sequence[np.ndarray]) -> Ragged:
        """These rows, which have one type and number of dimensions."""
        offsets = np.zeros(len(rows) + 1, np.int64)
        np.cumsum([row.size for row in rows], out=offsets[1:])
        values = np.concatenate([row.reshape(-1) for row in rows]) if rows else np.empty(0, np.uint8)
        flat = all(row.ndim == 1 for row in rows)
        return cls(values, offsets, None if flat else np.array([row.shape for row in rows], np.int64))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, i: int) -> np.ndarray:
        if not isinstance(i, (int, np.integer)):
            raise TypeError(f"`i` is {i!r}; give a whole number")
        if not -len(self) <= i < len(self):
            raise IndexError(f"there is no row {i}; there are {len(self)}")
        i %= len(self)
        row = self.values[self.offsets[i] : self.offsets[i + 1]]
        return row if self.shapes is None else row.reshape(self.shapes[i])

    def __iter__(self) -> Iterator[np.ndarray]:
        return (self[i] for i in range(len(self)))

    def bytes(self, i: int) -> bytes:
        """The bytes of row ``i``."""
        return self[i].tobytes()

    def text(self, i: int, encoding: str = "utf-8") -> str:
        """Row ``i`` as text in this ``encoding``."""
        data = self.bytes(i)
        try:
            return data.decode(encoding)
        except (LookupError, TypeError):
            raise ValueError(f"`encoding` is {encoding!r}; give the name of an encoding, such as utf-8") from None

    def texts(self, encoding: str = "utf-8") -> list[str]:
        """All rows as text."""
        return [self.text(i, encoding) for i in range(len(self))]

    def lengths(self) -> np.ndarray:
        """Length of each row, int64 [rows]."""
        return np.diff(self.offsets)

    def __repr__(self) -> str:
        return f"Ragged({len(self)} rows of {self.values.dtype})"


class Samples(Sequence[dict[str, Any]]):
    """Samples that were read together: a sequence of dicts over one `Batch`."""

    def __init__(self, batch: Batch) -> None:
        self.batch = batch
        """The samples in one array a field."""
        self._added = {f"{name}{ending}" for name in batch.padded for ending in _ADDED}

    def __len__(self) -> int:
        return len(self.batch.ids)

    def __getitem__(self, i: Any) -> Any:
        if isinstance(i, slice):
            return [self[k] for k in range(*i.indices(len(self)))]
        if not -len(self) <= i < len(self):
            raise IndexError(f"there is no sample {i}; there are {len(self)}")
        i %= len(self)
        return {name: _row(self.batch, name, i) for name in self.batch if name not in self._added}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (self[i] for i in range(len(self)))


def _row(batch: Batch, name: str, i: int) -> Any:
    field = batch[name]
    row = field[i]
    if name in batch.padded and f"{name}_lengths" in batch:
        row = row[: batch[f"{name}_lengths"][i]]
    return row.item() if isinstance(row, np.generic) else row


def from_native(head: tuple[Any, ...]) -> tuple[Batch, bool]:
    """A batch from the native loader's output, and whether its epoch ends with it."""
    epoch, step, ends_epoch, ids, fields = head
    named: dict[str, Any] = {}
    padded: list[str] = []
    asarray = np.asarray
    for name, array, layout, lengths, row_samples in fields:
        values = asarray(array)
        if layout == 0:
            named[name] = values
        elif layout == 2:
            offsets = asarray(lengths)
            shapes = asarray(row_samples)
            named[name] = Ragged(values, offsets, shapes.reshape(len(offsets) - 1, -1) if shapes.size else None)
        else:
            named[name] = values
            padded.append(name)
    for name, _, layout, lengths, row_samples in fields:
        if layout in (1, 3):
            for ending, numbers in zip(_ADDED, (lengths, row_samples)):
                if f"{name}{ending}" in named:
                    raise _pelton.ConfigurationError(
                        f"the data has a field `{name}{ending}`, and so is called what padding adds to `{name}`; give the field another "
                        f"name in a function, or leave `{name}` unpadded, as in .batch(…, collate={{{name!r}: 'ragged'}})"
                    )
                if numbers is not None:
                    named[f"{name}{ending}"] = asarray(numbers)
    return Batch(named, epoch, step, asarray(ids), tuple(padded)), ends_epoch
