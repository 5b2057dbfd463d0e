"""Fields that are known by record number: columns of a table next to the data, and what describes a record."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _pelton
from ._batch import Batch, Ragged

if TYPE_CHECKING:
    from ._run import Run
    from ._stage import Made

DESCRIBED = ("ids", "epoch", "step", "path")
PACKED = ("segment_ids", "position_ids", "cu_seqlens")


def as_column(name: str, values: Any, records: int | None = None) -> Any:
    """A column as an array of numbers, or a list of texts, bytes or arrays of any lengths, one a record."""
    nulls = getattr(values, "null_count", 0)
    nulls = nulls() if callable(nulls) else nulls
    if nulls and any(kind in str(getattr(values, "dtype", getattr(values, "type", ""))).lower() for kind in ("int", "bool")):
        raise _pelton.ConfigurationError(
            f"column `{name}` has {nulls} missing values among whole numbers; fill them (fill_null), or leave the rows out (drop_nulls)"
        )
    # Data frames keep text in special arrays.
    if not isinstance(values, (np.ndarray, list)):
        values = values.to_numpy() if hasattr(values, "to_numpy") else values
    if hasattr(values, "numpy") and not isinstance(values, np.ndarray):
        values = values.numpy()
    try:
        made: Any = values if isinstance(values, np.ndarray) and values.dtype.kind in "biuf" else np.asarray(values)
    except ValueError:
        made = _rows(name, values)
    if isinstance(made, np.ndarray) and made.dtype == object and made.size and made.ndim and isinstance(made[0], (list, np.ndarray)):
        made = _rows(name, made)
    if isinstance(made, np.ndarray) and made.shape[1:] == (0,) and name.startswith("box"):
        made = made.reshape(len(made), 0, 4)
    if isinstance(made, np.ndarray) and made.dtype.kind in "OUST" and made.ndim == 1:
        texts = values.tolist() if isinstance(values, np.ndarray) else list(values)
        for i, text in enumerate(texts):
            if not isinstance(text, (str, bytes)):
                raise _pelton.ConfigurationError(
                    f"column `{name}` has {text!r} at row {i}, and other rows have text; give every row text, or numbers"
                )
        made = texts
    elif isinstance(made, np.ndarray) and (made.dtype.kind not in "biuf" or made.ndim == 0):
        raise _pelton.ConfigurationError(f"column `{name}` is {made.dtype}, not numbers or text with one entry a record")
    if isinstance(made, np.ndarray):
        made = made.view(np.uint8) if made.dtype == bool else made.astype(made.dtype.newbyteorder("="), copy=False)
    if records is not None and len(made) != records:
        raise _pelton.ConfigurationError(f"column `{name}` has {len(made)} entries, and there are {records} records; give one a record")
    return made


def _rows(name: str, values: Iterable[Any]) -> list[np.ndarray]:
    """Rows of any lengths as arrays of one type and number of dimensions."""
    try:
        rows = [np.array([np.asarray(each) for each in row] if len(row) else []) for row in values]
    except (ValueError, TypeError) as error:
        raise _pelton.ConfigurationError(
            f"a row of column `{name}` is not an array: its parts have different shapes, or it is a number by itself; "
            "make arrays of them, or give the items to from_sequence"
        ) from error
    filled = [row for row in rows if row.size]
    dtype = np.result_type(*filled) if filled else np.dtype(np.float64)
    # Without any box, or an array with a shape, the name determines how many numbers a box has.
    shaped = [*filled, *(row for row in values if isinstance(row, np.ndarray) and row.ndim > 1)]
    shape = shaped[0].shape[1:] if shaped else (4,) if name.startswith("box") else ()
    if dtype.kind not in "biuf" or any(row.ndim != len(shape) + 1 for row in filled):
        raise _pelton.ConfigurationError(f"rows of column `{name}` are not numbers in the same number of dimensions")
    dtype = np.dtype(np.uint8) if dtype == bool else dtype
    # Empty rows do not determine the shape.
    return [row.astype(dtype) if row.size else np.empty((0, *shape), dtype) for row in rows]


def is_picture(name: str, dtype: Any, dims: Sequence[int]) -> bool:
    """Whether a field of these dimensions is a picture or mask, which are augmented."""
    if len(dims) not in (2, 3) or name.startswith("mask"):
        return len(dims) in (2, 3)
    return str(dtype) in ("uint8", "uint16") and (name.startswith("image") or (len(dims) == 3 and channel_axis(dims) is not None))


def channel_axis(dims: Sequence[int]) -> int | None:
    """The axis of a picture's channels: the last, or the first where only that can be; ``None`` where neither can."""
    return next((axis for axis in (2, 0) if dims[axis] in (1, 3, 4)), None)


def free(name: str, fields: Collection[str], column: Any) -> Any:
    """The column, unless the data has a field of its name."""
    if name in fields:
        raise _pelton.ConfigurationError(f"the data has a field `{name}`, and so have the columns; rename the column")
    return column


def taken(column: Any, ids: np.ndarray) -> Any:
    """The entries of these records."""
    if isinstance(column, np.ndarray):
        return column[ids]
    rows = [column[i] for i in ids]
    if rows and isinstance(rows[0], np.ndarray):
        return Ragged.of(rows)
    return Ragged.of([np.frombuffer(row if isinstance(row, bytes) else row.encode(), np.uint8) for row in rows])


def ragged(columns: Mapping[str, Any]) -> list[str]:
    """The names of those with arrays of any lengths."""
    return [name for name, column in columns.items() if isinstance(column, list) and isinstance(column[0], np.ndarray)]


def has_planes(column: Any) -> bool:
    """Whether a column has arrays of two or three dimensions."""
    row = column[0]
    return isinstance(row, np.ndarray) and row.ndim in (2, 3)


class WithColumns:
    """Adds columns to samples, before functions that a program has given."""

    def __init__(self, columns: Mapping[str, Any]) -> None:
        self.columns, self.gives_label = columns, "label" in columns

    def many(self, samples: Sequence[Made], own_label: bool, records: Sequence[int], keys: Sequence[int]) -> list[Made]:
        ids = np.array(records, np.int64)
        for name, column in self.columns.items():
            # Functions may write to their copy.
            rows: Any = column[ids] if isinstance(column, np.ndarray) else [_copied(column[i]) for i in records]
            if name == "label" and isinstance(rows, np.ndarray) and rows.dtype in (np.int64, np.float64):
                # As labels of files are.
                rows = rows.tolist()
            for sample, row in zip(samples, rows):
                if isinstance(sample, dict):
                    # Every sample has a label.
                    if name in sample and name != "label":
                        free(name, sample, column)
                    sample[name] = row
        return list(samples)


def _copied(value: Any) -> Any:
    return value.copy() if isinstance(value, np.ndarray) else value


def described(batch: Batch, include: Sequence[str], run: Run) -> Batch:
    """A batch with what describes its records as fields."""
    packed = packing(batch) if any(name in PACKED for name in include) else {}
    for name in include:
        if name in batch:
            raise _pelton.ConfigurationError(f"the data has a field `{name}`, so .include({name!r}) has no place for its own")
        if name == "path":
            batch[name] = Ragged.of([np.frombuffer(run.source.locate(int(i))[0].encode(), np.uint8) for i in batch.ids])
        elif name in packed:
            batch[name] = packed[name]
        else:
            batch[name] = batch.ids if name == "ids" else np.full(len(batch.ids), getattr(batch, name), np.int64)
    return batch


def packing(batch: Batch) -> dict[str, np.ndarray]:
    """Where the samples of packed rows are: of each element its sample in the row, from 1, and its position there, and the
    bounds of samples and padding in all rows one after another."""
    packed = next((name for name in batch.padded if f"{name}_row_samples" in batch), None)
    if packed is None:
        raise _pelton.ConfigurationError(f"only packed rows have {', '.join(PACKED)}; call .buckets('pack:LENGTH')")
    lengths, counts = (batch[f"{packed}{ending}"].astype(np.int64) for ending in ("_lengths", "_row_samples"))
    rows, length = batch[packed].shape[:2]
    row = np.repeat(np.arange(rows), counts)
    first = np.cumsum(counts) - counts
    ends = np.cumsum(lengths)
    before = ends - lengths
    # Rows are filled from their beginning.
    starts = row * length + before - np.repeat(before[first] if len(before) else before, counts)
    position = np.arange(ends[-1] if len(ends) else 0) - np.repeat(before, lengths)
    at = np.repeat(starts, lengths) + position
    segments, positions = np.zeros(rows * length, np.int32), np.zeros(rows * length, np.int32)
    segments[at] = np.repeat(np.arange(len(row)) - np.repeat(first, counts) + 1, lengths)
    positions[at] = position
    bounds = np.unique(np.concatenate([starts, starts + lengths, np.arange(rows + 1) * length]))
    return {
        "segment_ids": segments.reshape(rows, length),
        "position_ids": positions.reshape(rows, length),
        "cu_seqlens": bounds.astype(np.int32),
    }
