"""Next to JAX and TensorFlow."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import pelton


def test_jax_gets_the_same_numbers(rows: tuple[Path, np.ndarray]) -> None:
    jax = pytest.importorskip("jax", reason="SKIPPED: JAX is not installed")
    path, values = rows
    seen = []
    for batch in pelton.load(path).shuffle(seed=1).batch(100).jax():
        assert isinstance(batch["x"], jax.Array)
        seen.append((batch.ids, batch["x"]))
    # Arrays that were kept are unchanged, even after the loader reused memory.
    for ids, array in seen:
        np.testing.assert_array_equal(np.asarray(array), values[ids])
    # NumPy's arrays also support DLPack, without a copy.
    batch = next(iter(pelton.load(path).batch(100)))
    shared = jax.dlpack.from_dlpack(batch["x"])
    np.testing.assert_array_equal(np.asarray(shared), values[:100])


def test_tensorflow_gets_a_dataset(rows: tuple[Path, np.ndarray], sentences: tuple[Path, list[str]]) -> None:
    tf = pytest.importorskip("tensorflow", reason="SKIPPED: TensorFlow is not installed")
    path, values = rows
    dataset = pelton.load(path).shuffle(seed=1).batch(100).tf()
    assert int(dataset.cardinality()) == 11
    orders = []
    for _ in range(2):
        rows_of = [batch["x"].numpy() for batch in dataset.prefetch(tf.data.AUTOTUNE)]
        np.testing.assert_allclose(np.sort(np.concatenate(rows_of), 0), np.sort(values, 0))
        orders.append(np.concatenate(rows_of))
    assert not np.array_equal(*orders)
    texts = []
    for batch in pelton.load(sentences[0]).batch(60).tf():
        texts.extend(bytes(row.numpy()).decode() for row in batch["text"])
    assert texts == sentences[1]
    padded = pelton.load(sentences[0]).decode("words").buckets("auto").batch(30).tf()
    assert sum(len(batch["tokens_lengths"]) for batch in padded) == 500
