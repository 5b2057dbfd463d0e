"""Records that a program makes: sequences, other pipelines, and generators that are kept in a file."""

from __future__ import annotations

import hashlib
import os
import pickle
import tempfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _pelton
from ._columns import is_picture
from ._stage import KNOWN, Made, is_pil, plain

if TYPE_CHECKING:
    from ._interface import AnyPipeline

# Keys are 64 bits, and epochs of samples 63.
_EPOCHS = (1 << 63) - 1


class Items:
    """Makes the fields of a record from the parts that the records are in."""

    def __init__(self, parts: Sequence[Any], names: Sequence[str] | None = None, identity: str = "") -> None:
        self.parts, self.identity = parts, identity
        self.names = None if names is None else tuple(names)
        self._names: dict[Any, str] = {}
        lengths = [len(part) for part in parts]
        self.ends = list(accumulate(lengths))
        if not all(lengths):
            raise _pelton.ConfigurationError("there are no items; give a sequence with at least one")

    def many(self, samples: Sequence[Made], own_label: bool, records: Sequence[int], keys: Sequence[int]) -> list[Made]:
        """The fields of records."""
        if len(self.parts) == 1 and len(records) > 1 and hasattr(self.parts[0], "__getitems__"):
            with suppress(Exception):  # What fails is found out one by one.
                items = self.parts[0].__getitems__(list(records))
                if isinstance(items, (list, tuple)) and len(items) == len(records):
                    return [self.named(item) for item in items]
        made: list[Made] = []
        alone = self.parts[0] if len(self.parts) == 1 and not isinstance(self.parts[0], _Samples) else None
        for record, key in zip(records, keys):
            try:
                made.append(self.item(record, key) if alone is None else self.named(alone[record]))
            except BaseException as error:
                made.append(error)
        return made

    def item(self, record: int, key: int) -> dict[str, Any]:
        """The fields of a record; what is random in it follows from the key."""
        number = bisect_right(self.ends, record) if len(self.parts) > 1 else 0
        part = self.parts[number]
        at = record - (self.ends[number - 1] if number else 0)
        if isinstance(part, _Samples):
            return part.sample(at, key)
        return self.named(part[at])

    def named(self, item: Any) -> dict[str, Any]:
        """An item as fields with names."""
        if type(item) is not tuple and isinstance(item, Mapping):
            if not item:
                return {}
            if self.names is not None:
                return {name: _plain(item[name]) for name in self.names}
            return {str(name): _plain(value) for name, value in item.items()}
        parts = tuple(item) if isinstance(item, (tuple, list)) else (item,)
        for part in parts:
            if part is None:
                _plain(part)
        names = self.names
        if names is None:
            names = (self._name_of(parts[0]) if parts else "data", "label")[: 2 if len(parts) == 2 else 1]
        if len(names) != len(parts):
            raise TypeError(
                f"an item has {len(parts)} parts and {len(names)} names; name them, as in "
                'from_sequence(items, names=("image", "label", "weight"))'
            )
        return dict(zip(names, parts))

    def _name_of(self, value: Any) -> str:
        """The name of a value of an item without names, found out once for arrays of a type and shape."""
        if type(value) is not np.ndarray:
            return _name_of(value)
        kind = (value.dtype, value.shape)
        name = self._names.get(kind)
        if name is None:
            if len(self._names) > 1000:
                self._names.clear()
            name = self._names[kind] = _name_of(value)
        return name

    def paths(self) -> list[str]:
        """Names of the parts for the native reader: how many items, and a digest of the first and last."""
        made, first = [], 0
        for number, end in enumerate(self.ends):
            digest = hashlib.blake2b(self.identity.encode(), digest_size=8)
            part = self.parts[number]
            if isinstance(part, _Samples):
                digest.update(part.pipeline._identity())
            else:
                for record in (first, end - 1):
                    digest.update(repr([_told(name, value) for name, value in self.item(record, 0).items()]).encode())
            made.append(f"items:{end - first}:{digest.hexdigest()}")
            first = end
        return made

    @cached_property
    def known(self) -> list[tuple[str, str, list[int | None]]]:
        """What the first item tells of the fields: pictures, which augmentation must know of, and bytes, which are decoded.
        Only in arrays have the others its dimensions."""
        for part in self.parts:
            if isinstance(part, _Samples):
                part.pipeline._running()  # here, before several threads ask for it
        known: list[tuple[str, str, list[int | None]]] = []
        for name, value in self.item(0, 0).items():
            value = plain(name, value)
            if isinstance(value, bytes):
                known.append((name, "uint8", [None]))
            elif is_picture(name, value.dtype.name, value.shape):
                dims = list(value.shape) if isinstance(self.parts[0], Rows) else [None] * value.ndim
                known.append((name, value.dtype.name, dims))
        return known

    def rows(self) -> list[tuple[str, str, np.ndarray]] | None:
        """Arrays that the native part takes rows of itself, with their names and types; ``None`` where Python makes the items."""
        rows = self.parts[0]
        if not isinstance(rows, Rows):
            return None
        if not all(column.flags.c_contiguous and column.dtype.name in KNOWN for column in rows.columns.values()):
            return None
        return [
            (name, column.dtype.name, column.view("uint16") if column.dtype == "float16" else column)
            for name, column in rows.columns.items()
        ]

    @property
    def stacked(self) -> list[str]:
        """Pictures that are stacked, although their dimensions are not known beforehand."""
        return [name for name, _, dims in self.known if len(dims) > 1 and None in dims]


class Rows(Sequence[dict[str, Any]]):
    """So many records with these fields."""

    def __init__(self, records: int, columns: Mapping[str, np.ndarray]) -> None:
        self._records, self.columns = records, columns

    def __len__(self) -> int:
        return self._records

    def __getitem__(self, i: Any) -> Any:
        return {name: column[i] for name, column in self.columns.items()}

    def __getitems__(self, records: list[int]) -> list[dict[str, Any]]:
        items: list[dict[str, Any]] = [{} for _ in records]
        for name, column in self.columns.items():
            for item, row in zip(items, column[records]):
                item[name] = row
        return items


class _Samples:
    """The records of a pipeline as items."""

    def __init__(self, pipeline: AnyPipeline) -> None:
        if pipeline._steps.has("shuffle") or pipeline._steps.has("batch"):
            raise _pelton.ConfigurationError(
                "pipelines are joined sample by sample: leave out .shuffle(), .batch(), .buckets(), .torch() and .map_batches() of "
                "each, and call them on the result"
            )
        self.pipeline = pipeline
        self.dataset = pipeline.dataset()
        self.chosen = pipeline._chosen_ids()
        self.texts = {name for name, dtype, dims in pipeline.fields if dtype == "uint8" and dims == [None]}

    def __len__(self) -> int:
        return len(self.dataset)

    def sample(self, at: int, key: int) -> dict[str, Any]:
        sample = self.dataset._sample(at if self.chosen is None else int(self.chosen[at]), key & _EPOCHS)
        # Text and bytes of variable length become bytes.
        return {name: value.tobytes() if name in self.texts else value for name, value in sample.items()}


def samples_of(pipelines: Sequence[AnyPipeline]) -> Items:
    """The records of several pipelines, one after another."""
    if len(pipelines) < 2:
        raise _pelton.ConfigurationError("give at least two pipelines to join")
    first, *others = ([str(name) for name in pipeline.classes] for pipeline in pipelines)
    for other in others:
        if other != first:
            raise _pelton.ConfigurationError(
                f"the pipelines number their classes differently ({', '.join(first[:5])}; {', '.join(other[:5])}); open them with "
                "the same `classes`"
            )
    return Items([_Samples(pipeline) for pipeline in pipelines])


class Spool(Sequence[Any]):
    """What a generator yielded, one after another in a temporary file."""

    def __init__(self, make: Callable[[], Iterable[Any]], limit: int | None, folder: str | None) -> None:
        self._starts, end = [0], 0
        descriptor, name = tempfile.mkstemp(".pelton-spool", dir=folder)
        self._file = os.fdopen(descriptor, "w+b")
        os.unlink(name)

        def keep(write: Callable[..., Any], *data: bytes) -> None:
            try:
                write(*data)
            except OSError as error:
                where = f"items of the generator are kept in {os.path.dirname(name)}; give another `folder`"
                raise OSError(error.errno, f"{error.strerror}: {where}") from error

        for number, item in enumerate(make()):
            if limit is not None and number >= limit:
                break
            pickled = pickle.dumps(item, protocol=5)
            keep(self._file.write, pickled)
            end += len(pickled)
            self._starts.append(end)
        keep(self._file.flush)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, i: Any) -> Any:
        start, end = self._starts[i], self._starts[i + 1]
        return pickle.loads(os.pread(self._file.fileno(), end - start, start))

    def __del__(self) -> None:
        if hasattr(self, "_file"):
            self._file.close()

    def __reduce__(self) -> Any:
        raise TypeError(
            "a generator's items are in a temporary file of the process that drew them; in processes that are spawned, give "
            "from_sequence a sequence"
        )


def _told(name: str, value: Any) -> tuple[Any, ...]:
    """What tells a value from another."""
    value = plain(name, value)
    return (name, value) if isinstance(value, bytes) else (name, value.dtype.name, value.shape, value.tobytes())


def _plain(value: Any) -> Any:
    if value is None:
        raise TypeError("an item has None in it; give a number, an array, text or bytes, or leave the field out")
    return value


def _name_of(value: Any) -> str:
    if isinstance(value, (bytes, bytearray)):
        return "bytes"
    if isinstance(value, str):
        return "text"
    if is_pil(value):
        return "image"
    array = np.asarray(value)
    is_matrix = array.dtype == np.uint8 and array.ndim == 2
    return "image" if is_matrix or is_picture("", array.dtype, array.shape) else "data"
