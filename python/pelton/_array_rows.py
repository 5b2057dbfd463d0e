"""Rows of arrays and CSR matrices, piece by piece to where the solver reads them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from . import _pelton

# Values of an array that are passed to the native code at a time.
_PIECE_VALUES = 2 << 20


def hand_over(rows: _pelton.LinearRows, X: Any, places: np.ndarray, centre: np.ndarray | None) -> None:
    """Copies rows piece by piece, with the indices of their classes, to where the solver reads them."""
    if not sparse.issparse(X):
        step = max(1, _PIECE_VALUES // X.shape[1])
        for start in range(0, X.shape[0], step):
            piece = slice(start, start + step)
            values = X[piece] if centre is None else X[piece] - centre
            rows.push_dense(places[piece].tobytes(), bytes_of(values, np.float32))
        return
    if not X.has_canonical_format:
        X = X.copy()
        X.sum_duplicates()
    lengths = np.diff(X.indptr)
    for start, end in _cuts(X.indptr):
        values = slice(X.indptr[start], X.indptr[end])
        rows.push_sparse(
            places[start:end].tobytes(),
            bytes_of(lengths[start:end], np.uint32),
            bytes_of(X.indices[values], np.uint32),
            bytes_of(X.data[values], np.float32),
        )


def _cuts(ends: np.ndarray) -> Iterator[tuple[int, int]]:
    """Runs of rows with this many values together."""
    inner = np.searchsorted(ends, np.arange(_PIECE_VALUES, ends[-1], _PIECE_VALUES))
    cuts = np.unique(np.concatenate([[0], inner, [len(ends) - 1]])).tolist()
    return zip(cuts, cuts[1:])


def bytes_of(values: np.ndarray, dtype: Any) -> bytes:
    """The values as bytes of this type."""
    # A value that does not fit becomes infinite; the solver refuses it and names its row.
    with np.errstate(over="ignore"):
        return values.astype(dtype, order="C", copy=False).tobytes()
