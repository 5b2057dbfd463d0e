"""Tables whose rows name files."""

from __future__ import annotations

import csv
import io
import json
import os
import re
from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from . import _pelton
from ._columns import as_column

ConfigurationError = _pelton.ConfigurationError
# These digits are a code, not a number.
_CODE = re.compile(r"\s*[-+]?0\d")


class Files(Sequence[dict[str, Any]]):
    """Records of several files each: their bytes as fields, by the name of the column that names them."""

    def __init__(self, paths: Mapping[str, Sequence[str]]) -> None:
        self._paths = paths
        for name, column in paths.items():
            for row, path in enumerate(column, 1):
                if not os.path.isfile(path):
                    raise ConfigurationError(f"column `{name}` names {path} in row {row}, which is no file")

    def __len__(self) -> int:
        return len(next(iter(self._paths.values())))

    def __getitem__(self, i: Any) -> Any:
        sample = {}
        for name, column in self._paths.items():
            with open(column[i], "rb") as file:
                sample[name] = file.read()
        return sample


class Manifest(NamedTuple):
    """Files with their labels, and the other columns of the table."""

    paths: dict[str, list[str]]
    labels: list[Any] | None
    columns: dict[str, Any]

    @classmethod
    def of(cls, table: Any, files: Sequence[str], label: str | None, folder: str | os.PathLike[str] | None) -> Manifest:
        """The rows of a file or of columns in memory."""
        of_file = isinstance(table, (str, os.PathLike))
        if folder is None:
            folder = os.path.dirname(os.fspath(table)) if of_file else ""
        columns = _read(os.fspath(table)) if of_file else dict(rows_of("table", table))
        for name in files if label is None else [*files, label]:
            if name not in columns:
                raise ConfigurationError(f"the table has no column `{name}`; it has {', '.join(map(str, columns))}")
        paths = {
            column: [os.path.join(os.fspath(folder), _text(name, column, row)) for row, name in enumerate(columns.pop(column))]
            for column in dict.fromkeys(files)
        }
        names = next(iter(paths.values()), [])
        if not names:
            raise ConfigurationError("the table has no rows" if paths else "`files` names no column")
        # Data frames number their rows in a column without a name when they are saved.
        for name in [name for name in ("", "__index_level_0__") if np.array_equal(columns.get(name, ()), range(len(names)))]:
            del columns[name]
        if label is not None and "label" in columns and label != "label":
            raise ConfigurationError(f"the label is column `{label}`, and the table has another named `label`; rename it")
        labels = None if label is None else _labels(list(columns.pop(label)))
        return cls(paths, labels, {str(name): as_column(str(name), values, len(names)) for name, values in columns.items()})


def rows_of(argument: str, table: Any) -> Mapping[str, Any]:
    """The columns of a dict or data frame."""
    if isinstance(table, Mapping):
        return table
    if hasattr(table, "column_names") and hasattr(table, "to_pydict"):
        return {name: table[name].to_numpy(zero_copy_only=False) for name in table.column_names}
    if hasattr(table, "columns") and hasattr(table, "__getitem__"):
        return {str(name): table[name].to_numpy() for name in table.columns}
    raise ConfigurationError(f"`{argument}` is {type(table).__name__}; give a dict of columns or a data frame")


def _text(name: Any, column: str, row: int) -> str:
    if not isinstance(name, (str, os.PathLike)):
        raise ConfigurationError(f"column `{column}` has {name!r} in row {row + 1} where the name of a file is expected")
    return os.fspath(name)


def _labels(values: list[Any]) -> list[Any]:
    """Numbers where all are numbers."""
    for row, value in enumerate(values):
        if value is None or value == "" or value != value:
            raise ConfigurationError(f"the label of row {row + 1} is missing; leave the row out, or fill it")
    return values


def _read(path: str) -> dict[str, Any]:
    ending = path.rsplit(".", 1)[-1].lower()
    if ending in ("parquet", "pq", "arrow", "feather"):
        try:
            kind = "parquet" if ending in ("parquet", "pq") else "feather"
            table = import_module(f"pyarrow.{kind}").read_table(path)
        except ImportError as error:
            raise ImportError(f"{path} is read by pyarrow; install it") from error
        return dict(rows_of("table", table))
    if ending in ("jsonl", "ndjson", "json"):
        rows = _rows(path, _text_of(path))
        names = list(dict.fromkeys(name for row in rows for name in row))
        for number, row in enumerate(rows, 1):
            lacking = [name for name in names if name not in row]
            if lacking:
                raise ConfigurationError(f"{path}: row {number} has no `{lacking[0]}`, and others do; give every row the same keys")
        return {name: [row[name] for row in rows] for name in names}
    cells = list(csv.reader(io.StringIO(_text_of(path), newline=""), delimiter="\t" if ending == "tsv" else ","))
    if not cells:
        raise ConfigurationError(f"{path} is empty; its first line must name the columns")
    heading, *table = (row for row in cells if row)
    if len(set(heading)) != len(heading):
        raise ConfigurationError(f"{path} names a column twice: {', '.join(heading)}")
    for number, cells_of in enumerate(table, 2):
        if len(cells_of) != len(heading):
            raise ConfigurationError(f"{path}: line {number} has {len(cells_of)} cells, and {len(heading)} columns are named")
    return {name: _numbers([row[at] for row in table]) for at, name in enumerate(heading)}


def _text_of(path: str) -> str:
    """A file's text, with its line ends as they are."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as text:
            return text.read()
    except UnicodeDecodeError as error:
        raise ConfigurationError(f"{path} is not UTF-8 ({error.reason} at byte {error.start}); save it so") from error


def _rows(path: str, text: str) -> list[dict[str, Any]]:
    """The rows of a list, or of lines with one each."""
    if text.lstrip().startswith("["):
        try:
            rows = json.loads(text)
        except ValueError as error:
            raise ConfigurationError(f"{path} is not JSON ({error})") from error
        if not all(isinstance(row, dict) for row in rows):
            raise ConfigurationError(f"{path}: an entry of its list is not a JSON object")
        return rows
    return [_json(path, number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def _json(path: str, number: int, line: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise ConfigurationError(f"{path}: line {number} is not JSON ({error})") from error
    if not isinstance(row, dict):
        raise ConfigurationError(f"{path}: line {number} is not a JSON object")
    return row


def _numbers(cells: list[str]) -> Any:
    """A column of text as numbers where every cell is one or, as data frames write NaN, empty. Codes such as 01234 stay text."""
    filled = [cell for cell in cells if cell]
    if not filled or any("_" in cell or _CODE.match(cell) for cell in filled):
        return cells
    for kind in (np.int64, np.float64):
        try:
            if kind is np.float64 or len(filled) == len(cells):
                return np.array([kind(cell or "nan") for cell in cells], kind)
        except (ValueError, OverflowError):
            continue
    return cells
