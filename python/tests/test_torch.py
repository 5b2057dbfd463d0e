"""Next to PyTorch: tensors over the loader's memory, its own DataLoader over our samples, and its ranks."""

from __future__ import annotations

import copy
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

import pelton

torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")
from torch.utils.data import DataLoader  # noqa: E402


def test_tensors_share_the_arrays_memory(rows: tuple[Path, np.ndarray]) -> None:
    path, values = rows
    arrays = []
    pipeline = pelton.load(path).shuffle(seed=1).batch(100)
    pipeline = pipeline.map_batches(lambda batch: arrays.append(batch["x"]) or batch).torch()
    for batch in pipeline:
        assert isinstance(batch["x"], torch.Tensor) and batch["label"].dtype == torch.int64
        assert batch["x"].data_ptr() == arrays[-1].ctypes.data
        np.testing.assert_array_equal(batch["x"].numpy(), values[batch.ids])


def test_libraries_make_batches_anew(rows: tuple[Path, np.ndarray]) -> None:
    """As Lightning and others do when they move tensors to a device."""
    batch = next(iter(pelton.load(rows[0]).shuffle(seed=0).batch(8).torch()))
    moved = type(batch)((name, tensor.clone()) for name, tensor in batch.items())
    assert moved.keys() == batch.keys()
    with pytest.raises(AttributeError, match="include"):
        print(moved.ids)
    assert list(batch.to("cpu").ids) == list(batch.ids) and batch.to("cpu").step == batch.step
    assert list(copy.copy(batch).ids) == list(batch.ids)


def test_tokens_are_numbers_that_layers_take(sentences: tuple[Path, list[str]]) -> None:
    pipeline = pelton.load(sentences[0]).decode("words").buckets("auto").batch(16).torch()
    layer = torch.nn.Embedding(100, 4)
    for batch in pipeline:
        assert layer(batch["tokens"]).shape == (*batch["tokens"].shape, 4)


@pytest.mark.parametrize("workers", [0, 2])
def test_its_dataloader_takes_our_samples(rows: tuple[Path, np.ndarray], workers: int) -> None:
    path, values = rows
    dataset = pelton.load(path).dataset()
    dataset[0]
    for collate in (None, pelton.collate):
        loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=workers, collate_fn=collate)
        seen = 0
        for batch in loader:
            labels = {int(x): i for i, x in enumerate(batch["label"])}
            assert labels.keys() <= set(range(7))
            found = batch["x"].numpy()
            # The first number of a row identifies it.
            at = [int(np.argmin(abs(values[:, 0] - row[0]))) for row in found]
            np.testing.assert_array_equal(found, values[at])
            np.testing.assert_array_equal(batch["label"].numpy(), np.array(at) % 7)
            seen += len(found)
        assert seen == 1003


def test_a_net_learns_and_goes_on_where_it_stood() -> None:
    make = lambda: pelton.load("demo:images:2000").shuffle(seed=0).batch(100).torch()  # noqa: E731

    def train(pipeline: pelton.Pipeline, net: torch.nn.Module, steps: int) -> list[float]:
        optimiser = torch.optim.SGD(net.parameters(), 0.05)
        losses: list[float] = []
        while True:
            for batch in pipeline:
                pixels = batch["image"].float().div(255).flatten(1)
                loss = torch.nn.functional.cross_entropy(net(pixels), batch["label"])
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()
                losses.append(loss.item())
                if len(losses) == steps:
                    return losses

    def net() -> torch.nn.Module:
        torch.manual_seed(0)
        return torch.nn.Sequential(torch.nn.Linear(3072, 32), torch.nn.ReLU(), torch.nn.Linear(32, 10))

    expected = train(make(), net(), 40)
    pipeline, trained = make(), net()
    first = train(pipeline, trained, 27)
    other = make()
    other.load_state_dict(pipeline.state_dict())
    assert first + train(other, trained, 13) == expected
    assert np.mean(expected[-5:]) < np.mean(expected[:5])


@pytest.mark.skipif(sys.platform != "linux", reason="SKIPPED: processes are forked")
def test_ragged_numbers_become_nested_tensors(tmp_path: Path) -> None:
    path = tmp_path / "lists.jsonl"
    path.write_text("".join(f'{{"x": {list(range(i % 5 + 1))}}}\n' for i in range(40)))
    is_new = hasattr(torch.nested, "nested_tensor_from_jagged")
    for batch in pelton.load(path).batch(8, collate="ragged").torch():
        assert isinstance(batch["x"], torch.Tensor if is_new else list)
        for row, i in zip(batch["x"].unbind() if is_new else batch["x"], batch.ids, strict=True):
            assert row.tolist() == list(range(i % 5 + 1))


def test_a_pipeline_of_tensors_is_pickled(rows: tuple[Path, np.ndarray]) -> None:
    pipeline = pickle.loads(pickle.dumps(pelton.load(rows[0]).batch(8).torch()))
    assert isinstance(next(iter(pipeline))["x"], torch.Tensor)


def test_samples_that_came_one_by_one_are_collated(rows: tuple[Path, np.ndarray], tmp_path: Path) -> None:
    """As from a data set of PyTorch around ours, which takes no lists of indices."""
    from torch.utils.data import ConcatDataset, Subset

    path, values = rows
    dataset = pelton.load(path).dataset()
    for around, expected in ((ConcatDataset([dataset, dataset]), [*range(1003), *range(1003)]), (Subset(dataset, [5, 9]), [5, 9])):
        batches = list(DataLoader(around, batch_size=100, collate_fn=pelton.collate))
        np.testing.assert_array_equal(torch.cat([batch["x"] for batch in batches]).numpy(), values[expected])
        labels = torch.cat([batch["label"] for batch in batches])
        assert labels.dtype == torch.int64 and labels.tolist() == [record % 7 for record in expected]
    with pytest.raises(pelton.ConfigurationError, match="samples have different fields, x and y; give all the same"):
        pelton.collate([{"x": 1}, {"y": 2}])
    mixed = pelton.collate([{"x": np.zeros((2, 3)), "name": "a"}, {"x": np.ones((1, 3)), "name": "b"}])
    assert [tuple(row.shape) for row in mixed["x"]] == [(2, 3), (1, 3)] and mixed["name"] == ["a", "b"]


def test_accelerate_skips_batches_of_a_share(rows: tuple[Path, np.ndarray]) -> None:
    """Its function only looks at a loader; it does not divide what comes out."""
    accelerate = pytest.importorskip("accelerate", reason="SKIPPED: accelerate is not installed")
    if torch.__version__.startswith("1."):
        pytest.skip("SKIPPED: accelerate needs a newer PyTorch to skip batches")
    accelerate.PartialState(cpu=True)
    pipeline = pelton.load(rows[0]).shuffle(seed=3).batch(100).include("ids").shard(1, 2).torch()
    expected = [batch["ids"].tolist() for batch in pipeline][4:]
    pipeline.set_epoch(0)
    skipped = accelerate.skip_first_batches(DataLoader(pipeline, batch_size=None), 4)
    assert [batch["ids"].tolist() for batch in skipped] == expected
    with pytest.raises(AttributeError, match=r"load its state .*ignore_data_skip=True"):
        accelerate.skip_first_batches(pipeline, 4)
