"""Batches as a ``tf.data.Dataset``."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from operator import length_hint
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from ._batch import Batch, Ragged

if TYPE_CHECKING:
    from ._interface import AnyPipeline


def to_dataset(pipeline: AnyPipeline) -> tf.data.Dataset:
    """A dataset whose every iteration is the next epoch of ``pipeline``; add ``.prefetch`` as usual.

    The signature is that of the first batch, with the first dimension of every array open. Ragged fields become ragged
    tensors.
    """
    # A copy, because looking at a batch must not count as an epoch.
    first = next(iter(copy.copy(pipeline)))

    def spec(value: Any) -> Any:
        if isinstance(value, Ragged):
            return tf.RaggedTensorSpec([None, None], value.values.dtype, ragged_rank=1, row_splits_dtype=tf.int64)
        # Padded lengths differ from batch to batch too.
        padded = value.ndim >= 2 and bool(first.padded)
        shape = [None, None, *value.shape[2:]] if padded else [None, *value.shape[1:]]
        return tf.TensorSpec(shape[: value.ndim], value.dtype)

    def convert(value: Any) -> Any:
        if isinstance(value, Ragged):
            return tf.RaggedTensor.from_row_splits(value.values, value.offsets, validate=False)
        return value

    def batches() -> Iterator[dict[str, Any]]:
        batch: Batch
        for batch in pipeline:
            yield {name: convert(value) for name, value in batch.items()}

    signature = {name: spec(value) for name, value in first.items() if isinstance(value, (np.ndarray, Ragged))}
    dataset = tf.data.Dataset.from_generator(batches, output_signature=signature)
    return dataset.apply(tf.data.experimental.assert_cardinality(length_hint(pipeline, tf.data.UNKNOWN_CARDINALITY)))
