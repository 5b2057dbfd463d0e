"""What batches become: collated as a program says, tensors, tuples."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _pelton
from ._batch import Batch, Ragged, Samples

if TYPE_CHECKING:
    from ._interface import AnyPipeline


def collation(collate: str | Mapping[str, str], pad: float | Mapping[str, float], multiple: int) -> str:
    """``collate``, ``pad`` and ``multiple`` as the native part takes them."""
    rules = {"": collate} if isinstance(collate, str) else {"": "auto", **collate}
    for name, number in (pad if isinstance(pad, Mapping) else {"": pad} if pad else {}).items():
        if isinstance(number, (bool, str)):
            raise _pelton.ConfigurationError(f"`pad` has {number!r}; give a number")
        how = rules.get(name, rules[""])
        rules[name] = f"{'pad' if how == 'auto' and name else how}:{number}"
    spelled = [rules.pop("")] + [f"{name}={rule}" for name, rule in rules.items()]
    return ",".join(spelled + ([f"multiple:{multiple}"] if multiple > 1 else []))


def bound(function: Callable[[Batch], Any], pipeline: AnyPipeline, native: _pelton.Pipeline) -> Callable[[Batch], Any]:
    """A function over batches that knows the pipeline it belongs to, where it asks for that."""
    if not isinstance(function, ToTensors):
        return function
    made = copy.copy(function)
    made.pictures = native.pictures if function.channels_first and not pipeline._config.get("planar") else []
    made.may_be_made = any(pipeline._maps.values()) or pipeline._items is not None
    return made


class Collated:
    """Batches that a function makes of lists of samples."""

    def __init__(self, function: Callable[[list[dict[str, Any]]], Any]) -> None:
        self.function = function

    def __call__(self, batch: Batch) -> Any:
        made = self.function(list(Samples(batch)))
        is_dict = isinstance(made, dict) and not isinstance(made, Batch)
        return batch.replaced(made) if is_dict else made


class ToTensors:
    """Batches as tensors, with pictures as nets take them."""

    def __init__(self, convert: Callable[[Batch], Batch], channels_first: bool) -> None:
        self.convert, self.channels_first = convert, channels_first
        self.pictures: Sequence[str] = ()
        # Whether functions have made the pictures, so that their dimensions must show what they are.
        self.may_be_made = False

    def __call__(self, batch: Batch) -> Batch:
        if not isinstance(batch, Batch):
            raise _pelton.ConfigurationError(
                f".torch() got {type(batch).__name__}, not a batch; call it before .tuples() and functions that return something else"
            )
        made = self.convert(batch)
        for name in self.pictures:
            picture: Any = made.get(name)
            if not isinstance(batch.get(name), (np.ndarray, Ragged)):
                continue  # tensors that a function made, or .torch() before
            if getattr(picture, "ndim", 0) == 4 and not (self.may_be_made and self._is_planar(picture.shape)):
                made[name] = picture.permute(0, 3, 1, 2)
            elif isinstance(picture, list):
                made[name] = [one.permute(2, 0, 1) for one in picture]
        return made

    @staticmethod
    def _is_planar(shape: Sequence[int]) -> bool:
        return shape[3] not in (1, 3, 4)


class Tuples:
    """Batches as tuples of fields."""

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = fields

    def __call__(self, batch: Batch) -> tuple[Any, ...]:
        for name in self.fields:
            if name not in batch:
                raise _pelton.ConfigurationError(f".tuples() names `{name}`, and batches have {', '.join(batch)}")
        return tuple(batch[name] for name in self.fields)
