"""Loops over one pipeline: several at once, broken off, empty, over samples, and where each stands."""

from __future__ import annotations

import copy
import threading
from pathlib import Path

import numpy as np
import pytest

import pelton

Rows = tuple[Path, np.ndarray]


def steps(loop: object) -> list[tuple[int, int]]:
    return [(batch.epoch, batch.step) for batch in loop]  # type: ignore[attr-defined]


def test_a_look_inside_a_loop_does_not_end_it(rows: Rows) -> None:
    pipeline = pelton.load(rows[0]).shuffle(seed=3).batch(100)
    seen: list[int] = []
    for batch in pipeline:
        if batch.step == 3:
            look = next(iter(pipeline))
            assert (look.epoch, look.step) == (1, 0)
        assert batch.epoch == 0
        seen.extend(batch.ids)
    assert sorted(seen) == list(range(1003))


def test_loops_at_once_are_epochs_of_their_own(rows: Rows) -> None:
    pipeline = pelton.load(rows[0]).shuffle(seed=3).batch(100)
    pairs = list(zip(pipeline, pipeline, strict=True))
    assert [(one.epoch, one.step, other.epoch, other.step) for one, other in pairs] == [(0, step, 1, step) for step in range(11)]
    expected = pelton.load(rows[0]).shuffle(seed=3).batch(100)
    for epoch in range(2):
        for batch, pair in zip(expected, pairs, strict=True):
            np.testing.assert_array_equal(batch.ids, pair[epoch].ids)
            np.testing.assert_array_equal(batch["x"], pair[epoch]["x"])
    counted = [0, 0, 0]

    def count(i: int) -> None:
        counted[i] = sum(1 for _ in pipeline)

    threads = [threading.Thread(target=count, args=(i,)) for i in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counted == [11, 11, 11]
    assert next(iter(pipeline)).epoch == 5


def test_what_is_set_inside_a_loop_holds_for_the_next_one(rows: Rows) -> None:
    pipeline = pelton.load(rows[0]).shuffle(seed=3).batch(100)
    found = []
    for batch in pipeline:
        found.append((batch.epoch, batch.step))
        if batch.step == 4:
            pipeline.set_epoch(7)
    assert found == [(0, step) for step in range(11)]
    assert steps(pipeline) == [(7, step) for step in range(11)]
    found = []
    for batch in pipeline:
        found.append((batch.epoch, batch.step))
        if batch.step == 4:
            pipeline.load_state_dict(pipeline.state_dict())
    assert found == [(8, step) for step in range(11)]
    assert steps(pipeline) == [(8, step) for step in range(5, 11)]


def test_naming_the_epoch_of_a_state_keeps_its_place(rows: Rows) -> None:
    """Programs name every epoch, also the one that they resume within."""
    make = lambda: pelton.load(rows[0]).shuffle(seed=3).batch(100)  # noqa: E731
    pipeline = make()
    for batch in pipeline:
        if batch.step == 4:
            break
    again = make()
    again.load_state_dict(pipeline.state_dict())
    assert again.state_dict() == pipeline.state_dict()
    again.set_epoch(0)
    assert steps(again) == [(0, step) for step in range(5, 11)]
    again.load_state_dict(pipeline.state_dict())
    again.set_epoch(2)
    assert steps(again) == [(2, step) for step in range(11)]


def test_an_epoch_may_be_named_behind_its_iterator(rows: Rows) -> None:
    pipeline = pelton.load(rows[0]).shuffle(seed=3).batch(100)
    found = []
    for epoch in range(3):
        loop = iter(pipeline)
        pipeline.set_epoch(epoch)
        found.append(next(loop).epoch)
    assert found == [0, 1, 2]


def test_each_loop_says_where_it_stands(rows: Rows) -> None:
    pipeline = pelton.load(rows[0]).shuffle(seed=3).batch(100)
    outer = iter(pipeline)
    taken = [next(outer), next(outer)]
    place = pipeline.state_dict()
    inner = iter(pipeline)
    next(inner)
    with pytest.raises(pelton.StateError, match=r"several loops .* iterator.state_dict\(\)"):
        pipeline.state_dict()
    assert outer.state_dict() == place
    assert (inner.state_dict()["epoch"], inner.state_dict()["step"]) == (1, 1)
    del inner
    taken.append(next(outer))
    taken.append(next(outer))
    assert (pipeline.state_dict()["epoch"], pipeline.state_dict()["step"]) == (0, 4)
    other = pelton.load(rows[0]).shuffle(seed=3).batch(100)
    loop = iter(other)
    loop.load_state_dict(place)
    np.testing.assert_array_equal(next(loop).ids, taken[2].ids)


@pytest.mark.parametrize("batch", [None, 10])
def test_an_epoch_without_batches_is_one(tmp_path: Path, batch: int | None) -> None:
    np.savez(tmp_path / "few.npz", x=np.arange(5))
    pipeline = pelton.load(tmp_path / "few.npz")
    pipeline = pipeline.batch(batch or 6, last="drop")
    for _ in range(2):
        with pytest.warns(UserWarning, match='last="drop" drops all 5 examples'):
            assert list(pipeline) == []
    assert len(pipeline) == 0


def test_without_batches_samples_come_one_by_one(rows: Rows) -> None:
    path, values = rows
    pipeline = pelton.load(path).shuffle(seed=3)
    assert len(pipeline) == 1003
    batched = [int(i) for batch in pelton.load(path).shuffle(seed=3).batch(64) for i in batch.ids]
    samples = list(pipeline)
    assert all(isinstance(sample, dict) and isinstance(sample["label"], int) for sample in samples)
    np.testing.assert_array_equal([sample["x"] for sample in samples], values[batched])
    parts = [list(pelton.load(path).shuffle(seed=3).shard(rank, 3)) for rank in range(3)]
    assert [len(part) for part in parts] == [len(pelton.load(path).shuffle(seed=3).shard(rank, 3)) for rank in range(3)]
    found = np.concatenate([[sample["x"] for sample in part] for part in parts])
    np.testing.assert_array_equal(np.sort(found, axis=0), np.sort(values, axis=0))
    doubled = pelton.load(path).map(lambda sample: {"x": 2 * sample["x"]})
    np.testing.assert_array_equal(next(iter(doubled))["x"], 2 * values[0])
    with pytest.raises(pelton.ConfigurationError, match=r"call \.batch\(examples\)"):
        next(iter(pelton.load(path).map_batches(lambda batch: 7)))


def test_a_state_between_samples_goes_on_there(rows: Rows) -> None:
    make = lambda: pelton.load(rows[0]).shuffle(seed=3)  # noqa: E731
    expected = [sample["x"].tolist() for sample in make()]
    for taken in (0, 1, 63, 64, 65, 200, 1002):
        pipeline = make()
        loop = iter(pipeline)
        for _ in range(taken):
            next(loop)
        state = copy.deepcopy(pipeline.state_dict())
        again = make()
        again.load_state_dict(state)
        assert [sample["x"].tolist() for sample in again] == expected[taken:], taken
    other = make().shard(0, 2)
    other.load_state_dict(state)
    with pytest.raises(pelton.StateError, match="of 1 ranks, and this run has 2"):
        next(iter(other))


def test_a_loop_gives_its_memory_back(rows: Rows) -> None:
    """Threads of loops that were broken off are gone."""
    pipeline = pelton.load(rows[0]).shuffle(seed=3).batch(10).threads(2)
    threads = lambda: sum(name.read_text().startswith("pelton-") for name in Path("/proc/self/task").glob("*/comm"))  # noqa: E731
    before = threads()
    for _ in range(5):
        for _ in pipeline:
            break
    assert threads() == before
    assert pipeline.meters()["batches"] == 1 and pipeline.state_dict()["epoch"] == 4
