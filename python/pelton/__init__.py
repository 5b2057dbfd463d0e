"""Pelton feeds training from the files you have, in a full random order every epoch, without converting them.

>>> import pelton
>>> batches = pelton.load("demo:images").shuffle(seed=0).batch(256)
>>> for batch in batches:
...     pixels, labels = batch["image"], batch["label"]
...     break
>>> pixels.shape, pixels.dtype.name
((256, 32, 32, 3), 'uint8')

Batches are dicts of NumPy arrays over memory of the loader, or of tensors (``.torch()``, ``.jax()``, ``.tf()``). Threads
read, decode and augment without Python's lock; there are no worker processes, unless ``.map`` is told to use some. ``state_dict`` is the exact position
of a loop, valid for any number of ranks.
"""

from typing import TYPE_CHECKING, Any

from ._pelton import BadRecordError, ConfigurationError, DataError, StateError, __version__

if TYPE_CHECKING:
    from ._batch import Batch as Batch, Ragged as Ragged
    from ._dataset import Dataset as Dataset, collate as collate
    from ._load import (
        concat as concat,
        from_arrays as from_arrays,
        from_generator as from_generator,
        from_manifest as from_manifest,
        from_sequence as from_sequence,
        load as load,
        mix as mix,
    )
    from ._pipeline import Pipeline as Pipeline
    from ._partial import partial_cross_entropy as partial_cross_entropy
    from .estimators import (
        LinearClassifier as LinearClassifier,
        LinearRegressor as LinearRegressor,
        LogisticRegression as LogisticRegression,
    )

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
    "concat",
    "from_arrays",
    "from_generator",
    "from_manifest",
    "from_sequence",
    "load",
    "mix",
    "partial_cross_entropy",
]

# Imported when they are first used: the command needs no NumPy, and only the estimators need more than NumPy.
_LAZY = {
    **dict.fromkeys(["Batch", "Ragged"], "_batch"),
    **dict.fromkeys(["Dataset", "collate"], "_dataset"),
    "Pipeline": "_pipeline",
    "partial_cross_entropy": "_partial",
    **dict.fromkeys(["concat", "from_arrays", "from_generator", "from_manifest", "from_sequence", "load", "mix"], "_load"),
    **dict.fromkeys(["LinearClassifier", "LinearRegressor", "LogisticRegression"], "estimators"),
}


def __getattr__(name: str) -> Any:
    from importlib import import_module

    if name in ("choose", "estimators", "heads", "optim"):
        return import_module(f".{name}", __name__)
    if name not in _LAZY:
        raise AttributeError(f"module 'pelton' has no attribute {name!r}")
    try:
        module = import_module(f".{_LAZY[name]}", __name__)
    except ModuleNotFoundError as error:
        if error.name not in ("scipy", "sklearn"):
            raise
        raise ImportError(f"pelton.{name} needs scikit-learn: pip install 'pelton[estimators]'") from error
    # Python asks this function only for names that the package does not have yet.
    globals()[name] = value = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])
