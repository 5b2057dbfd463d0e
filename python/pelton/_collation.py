"""What batches become: collated as a program says, tensors, tuples."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _pelton
from ._batch import Batch, Ragged, Samples
from ._columns import channel_axis

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
    made.decoded = None if pipeline._steps.config.get("planar") else native.pictures
    made.may_be_made = pipeline._steps.has("map")
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

    def __init__(self, convert: Callable[[Batch], Batch], channels_first: bool, layout: str | Mapping[str, str]) -> None:
        self.convert, self.channels_first = convert, channels_first
        self.layouts = {"": layout} if isinstance(layout, str) else dict(layout)
        for given in self.layouts.values():
            if given not in ("auto", "hwc", "chw"):
                raise _pelton.ConfigurationError(f"`layout` is {given!r}; give 'auto', 'hwc' or 'chw', or a dict of these by field")
        # Names of decoded pictures in addition to the usual names; `None` if all have channels first.
        self.decoded: Sequence[str] | None = ()
        # Whether functions may have made the pictures; such functions set the layout themselves.
        self.may_be_made = False
        self._told: set[str] = set()

    def __call__(self, batch: Batch) -> Batch:
        if not isinstance(batch, Batch):
            raise _pelton.ConfigurationError(
                f".torch() got {type(batch).__name__}, not a batch; call it before .tuples() and functions that return something else"
            )
        made = self.convert(batch)
        if self.decoded is None or not self.channels_first:
            return made
        for name, picture in made.items():
            if not isinstance(batch[name], (np.ndarray, Ragged)):
                continue  # tensors that a function made, or .torch() before
            if name not in self.decoded and not name.startswith(("image", "mask")):
                continue
            if getattr(picture, "ndim", 0) == 4 and not self._is_planar(name, picture.shape[1:]):
                made[name] = picture.permute(0, 3, 1, 2)
            elif isinstance(picture, list):
                made[name] = [
                    one.permute(2, 0, 1) if one.ndim == 3 and not self._is_planar(name, one.shape) else one for one in picture
                ]
        return made

    def _is_planar(self, name: str, shape: Sequence[int]) -> bool:
        """Whether channels are first in pictures of this shape."""
        layout = self.layouts.get(name, self.layouts.get("", "auto"))
        if layout != "auto":
            return layout == "chw"
        axis, spelled = channel_axis(shape), " × ".join(map(str, shape))
        if axis is None:
            raise _pelton.ConfigurationError(
                f"`{name}` has pictures of {spelled}, and the channels may be first or last: say .torch(layout={{{name!r}: 'hwc'}}) or 'chw'"
            )
        if axis == 0 and name not in self._told and not self.may_be_made:
            self._told.add(name)
            warnings.warn(
                f"`{name}` is taken to have channels first, because only the first dimension of {spelled} is 1, 3 or 4; "
                f"say .torch(layout={{{name!r}: 'chw'}}) if that is right, or 'hwc'",
                stacklevel=4,
            )
        return axis == 0


class Tuples:
    """Batches as tuples of fields."""

    def __init__(self, fields: Sequence[str]) -> None:
        self.fields = fields

    def __call__(self, batch: Batch) -> tuple[Any, ...]:
        for name in self.fields:
            if name not in batch:
                raise _pelton.ConfigurationError(f".tuples() names `{name}`, and batches have {', '.join(batch)}")
        return tuple(batch[name] for name in self.fields)
