"""Batches as PyTorch tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from ._batch import Batch, Ragged

# Random functions that take a generator. Others, such as dropout, keep PyTorch's own.
_DRAW = {
    torch.rand, torch.randn, torch.randint, torch.randperm, torch.normal, torch.bernoulli, torch.multinomial, torch.poisson,
    torch.Tensor.bernoulli, torch.Tensor.bernoulli_, torch.Tensor.cauchy_, torch.Tensor.exponential_, torch.Tensor.geometric_,
    torch.Tensor.log_normal_, torch.Tensor.multinomial, torch.Tensor.normal_, torch.Tensor.random_, torch.Tensor.uniform_,
}  # fmt: skip


class KeyedDraws(TorchFunctionMode):
    """A context in which this thread's PyTorch random numbers on the CPU come from a generator seeded with a key.

    The program's own random stream is not touched, whatever other threads do meanwhile.
    """

    def __init__(self, key: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self.follow(key)

    def follow(self, key: int) -> None:
        """From now on numbers follow from this key."""
        self._key = key
        self._generator: torch.Generator | None = None

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        like = _LIKE.get(function)
        if like is not None:
            return like(self._own(), *args, **kwargs)
        if function in _DRAW and kwargs.get("generator") is None and _on_cpu(args, kwargs):
            kwargs = {**kwargs, "generator": self._own()}
        return function(*args, **kwargs)

    def _own(self) -> torch.Generator:
        if self._generator is None:
            self._generator = torch.Generator()
            self._generator.manual_seed(self._key)
        return self._generator


@contextmanager
def keyed_draws() -> Iterator[Callable[[int], None]]:
    """A context in which random numbers follow from the key that was last given to what it yields."""
    with KeyedDraws() as draws:
        yield draws.follow


def _on_cpu(args: Any, kwargs: Any) -> bool:
    device = kwargs.get("device")
    if device is None and args and isinstance(args[0], torch.Tensor):
        device = args[0].device
    if device is None and hasattr(torch, "get_default_device"):
        device = torch.get_default_device()
    return device is None or torch.device(device).type == "cpu"


def _rand_like(generator: torch.Generator, like: torch.Tensor, **options: Any) -> torch.Tensor:
    return torch.empty_like(like, **options).uniform_(generator=generator)


def _randn_like(generator: torch.Generator, like: torch.Tensor, **options: Any) -> torch.Tensor:
    return torch.empty_like(like, **options).normal_(generator=generator)


# Random functions that take none.
_LIKE = {torch.rand_like: _rand_like, torch.randn_like: _randn_like}


def tensor(array: np.ndarray) -> torch.Tensor:
    """A tensor that shares the memory of ``array``. Vocabulary indices (uint32) become int64, which layers and losses accept."""
    if array.dtype == np.uint32:
        return torch.from_numpy(array.astype(np.int64))
    if not array.flags.writeable:
        # Repeats of a batch share its memory, and a tensor could be written to.
        array = array.copy()
    return torch.from_numpy(array)


def _ids(name: str, value: Any) -> Any:
    """Token ids of 16 bits as layers take them."""
    if name == "tokens" and isinstance(value, np.ndarray) and value.dtype == np.uint16:
        return value.astype(np.int64)
    return value


class _ToTorch:
    """Converts a batch to tensors; can be sent to other processes with a pipeline."""

    def __init__(self, device: Any) -> None:
        self.device = None if device is None else torch.device(device)
        self.pins = self.device is not None and self.device.type == "cuda"

    def __call__(self, batch: Batch) -> Batch:
        return batch.replaced({name: self._convert(_ids(name, value)) for name, value in batch.items()})

    def _convert(self, value: Any) -> Any:
        if isinstance(value, Ragged):
            if value.values.dtype == np.uint8 and value.shapes is None:
                return value
            if value.shapes is not None or not hasattr(torch.nested, "nested_tensor_from_jagged"):
                return [self._place(tensor(row)) for row in value]
            return torch.nested.nested_tensor_from_jagged(
                self._place(tensor(value.values)), self._place(tensor(value.offsets))
            )
        return self._place(tensor(value)) if isinstance(value, np.ndarray) else value

    def _place(self, made: torch.Tensor) -> torch.Tensor:
        if self.pins:
            made = made.pin_memory()
        return made if self.device is None else made.to(self.device, non_blocking=self.pins)


def to_torch(device: Any = None) -> Callable[[Batch], Batch]:
    """A function that converts a batch to tensors, on ``device`` through pinned memory if one is given.

    Ragged fields of numbers become nested tensors with the layout ``torch.jagged``, or lists of tensors where rows have
    several dimensions or PyTorch is too old for it; ragged bytes are unchanged.
    """
    return _ToTorch(device)
