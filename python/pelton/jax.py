"""Batches as JAX arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np

from ._batch import Batch, Ragged


def to_jax(device: Any = None) -> Callable[[Batch], Batch]:
    """A function that converts a batch to JAX arrays, on ``device`` or the default one. On a CPU they share memory
    if JAX allows it. Ragged fields are unchanged."""
    return partial(_to_arrays, device)


def _to_arrays(device: Any, batch: Batch) -> Batch:
    def convert(value: Any) -> Any:
        if isinstance(value, Ragged) or not isinstance(value, np.ndarray):
            return value
        return jax.device_put(value, device)

    return batch.replaced({name: convert(value) for name, value in batch.items()})
