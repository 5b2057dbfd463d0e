"""Data frames of pandas, polars and pyarrow as Arrow files."""

from __future__ import annotations

import contextlib
import importlib
import os
import re
import tempfile
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse


def table_of(X: Any, is_wanted: bool) -> Any:
    """A data frame as a pyarrow table, if some columns are not numbers, or if it is wanted; else None."""
    if hasattr(X, "dtypes") and hasattr(X, "to_numpy") and not is_wanted:
        kinds = X.dtypes if isinstance(X.dtypes, list) else list(X.dtypes)
        if all(getattr(kind, "kind", "O") in "biuf" for kind in kinds if isinstance(kind, np.dtype)) and all(
            isinstance(kind, np.dtype) for kind in kinds
        ):
            return None
    is_frame = hasattr(X, "__dataframe__") or hasattr(X, "__arrow_c_stream__")
    if not is_frame or sparse.issparse(X):
        return None
    try:
        pa = importlib.import_module("pyarrow")
    except ImportError as error:
        raise ImportError("data frames with columns of text are handed over by pyarrow; install it") from error
    if hasattr(X, "to_arrow"):
        table = X.to_arrow()
    elif isinstance(X, pa.Table):
        table = X
    elif hasattr(X, "iloc"):
        table = pa.Table.from_pandas(X, preserve_index=False)
    else:
        table = pa.table(X)
    if not is_wanted and are_numbers(table):
        return None
    # Dates and timestamps stay unconverted: the reader handles them like those of Parquet files, in UTC.
    kind = pa.types
    for at, field in enumerate(table.schema):
        column = table.column(at)
        if kind.is_dictionary(field.type):
            # Numeric categories are names.
            column = column.cast(field.type.value_type).cast(pa.string())
        elif kind.is_uint64(field.type):
            column = column.cast(pa.float64(), safe=False)
        else:
            continue
        table = table.set_column(at, field.name, column)
    return table


def are_numbers(table: Any) -> bool:
    """Whether all columns of a pyarrow table are numbers or truth values."""
    kind = importlib.import_module("pyarrow").types
    tests = [kind.is_integer, kind.is_floating, kind.is_boolean, kind.is_decimal]
    return all(any(test(field.type) for test in tests) for field in table.schema)


@contextlib.contextmanager
def written(table: Any) -> Iterator[str]:
    """The name of an Arrow file of the table. Errors name the row of the data frame instead."""
    pa = importlib.import_module("pyarrow")
    with tempfile.TemporaryDirectory(prefix="pelton-") as folder:
        file = os.path.join(folder, "frame.arrow")
        with pa.OSFile(file, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)
        try:
            yield file
        except Exception as error:
            said = re.sub(rf"{re.escape(file)}: record (\d+)( at byte \d+)?", r"row \1 of the data frame", str(error))
            said = said.replace(file, "the data frame")
            raise error if said == str(error) else type(error)(said) from None
