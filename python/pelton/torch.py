"""Batches as PyTorch tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from ._batch import Batch, Ragged


def tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor that shares the memory of ``array``. Numbers of a vocabulary (uint32) become int32, which layers take."""
    if array.dtype == np.uint32:
        array = array.view(np.int32)
    if not array.flags.writeable:
        # Repeats of a batch share its memory, and a tensor could be written to.
        array = array.copy()
    return torch.from_numpy(array)


def to_torch(device: Any = None) -> Callable[[Batch], Batch]:
    """A function that makes tensors of a batch, on ``device`` through pinned memory where one is named.

    Ragged fields of numbers become nested tensors with the layout ``torch.jagged``; ragged bytes stay as they are.
    """
    device = None if device is None else torch.device(device)
    pins = device is not None and device.type == "cuda"

    def place(made: torch.Tensor) -> torch.Tensor:
        if pins:
            made = made.pin_memory()
        return made if device is None else made.to(device, non_blocking=pins)

    def convert(value: Any) -> Any:
        if isinstance(value, Ragged):
            if value.values.dtype == np.uint8:
                return value
            return torch.nested.nested_tensor_from_jagged(
                place(tensor(value.values)), place(tensor(value.offsets))
            )
        return place(tensor(value)) if isinstance(value, np.ndarray) else value

    def to_tensors(batch: Batch) -> Batch:
        return batch.replaced({name: convert(value) for name, value in batch.items()})

    return to_tensors
