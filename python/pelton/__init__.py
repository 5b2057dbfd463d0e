"""Pelton feeds training from the files you have, in a full random order every epoch, without converting them.

>>> import pelton
>>> batches = pelton.load("demo:images").shuffle(seed=0).batch(256)
>>> for batch in batches:
...     pixels, labels = batch["image"], batch["label"]
...     break
>>> pixels.shape, pixels.dtype.name
((256, 32, 32, 3), 'uint8')

Batches are dicts of NumPy arrays over memory of the loader, or of tensors (``.torch()``, ``.jax()``, ``.tf()``). Threads
read, decode and augment without Python's lock; there are no worker processes. ``state_dict`` is where a loop stands,
exactly, on any number of ranks.
"""

from typing import Any

from ._batch import Batch, Ragged
from ._dataset import Dataset, collate
from ._pelton import BadRecordError, ConfigurationError, DataError, StateError, __version__
from ._pipeline import Pipeline, load

__all__ = [
    "BadRecordError",
    "Batch",
    "ConfigurationError",
    "DataError",
    "Dataset",
    "Pipeline",
    "Ragged",
    "StateError",
    "__version__",
    "collate",
    "load",
]


def __getattr__(name: str) -> Any:
    """Parts that need other libraries are imported when they are asked for."""
    if name in ("heads",):
        from importlib import import_module

        return import_module(f".{name}", __name__)
    raise AttributeError(f"module `pelton` has no `{name}`")
