"""What views of a pipeline use of it, so that their files need not import the pipeline's."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import numpy as np
    from typing_extensions import TypeIs

    from ._batch import Batch
    from ._run import Run
    from ._steps import Steps
    from ._world import World


class AnyPipeline(Protocol):
    """A `pelton.Pipeline`."""

    _steps: Steps
    _items: Any

    def __iter__(self) -> Iterator[Any]: ...
    def __len__(self) -> int: ...

    @property
    def records(self) -> int: ...
    @property
    def classes(self) -> list[Any]: ...
    @property
    def fields(self) -> list[tuple[str, str, list[int | None]]]: ...

    def dataset(self, epoch: int | None = None) -> Any: ...
    def _decoded(self, config: Mapping[str, Any]) -> Any: ...
    def _running(self) -> Run: ...
    def _world(self) -> World: ...
    def _identity(self) -> bytes: ...
    def _chosen_ids(self) -> np.ndarray | None: ...
    def _batch_columns(self) -> dict[str, Any]: ...
    def _filled(self, batch: Batch) -> Batch: ...


def is_pipeline(value: Any) -> TypeIs[AnyPipeline]:
    """Whether this is a pipeline."""
    return hasattr(value, "_running")
