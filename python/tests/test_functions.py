"""Functions of one's own, samplers, and lengths that Python says."""

from __future__ import annotations

import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pelton

Sample = dict[str, Any]


def doubled(sample: Sample) -> Sample:
    return {"twice": 2 * sample["x"], "name": f"record {sample['record']}", "label_too": sample["label"]}


def test_functions_make_the_fields_that_they_return(rows: tuple[Path, np.ndarray]) -> None:
    path, values = rows
    pipeline = pelton.load(path).shuffle(seed=1).map(doubled).batch(100)
    seen = 0
    for batch in pipeline:
        assert set(batch) == {"twice", "name", "label_too", "label"}
        np.testing.assert_array_equal(batch["twice"], 2 * values[batch.ids])
        np.testing.assert_array_equal(batch["label_too"], batch.ids % 7)
        seen += len(batch.ids)
    assert seen == 1003
    # Text of unequal length is batched with offsets on request.
    ragged = pelton.load(path).map(doubled).batch(50, collate="ragged")
    batch = next(iter(ragged))
    assert batch["name"].texts() == [f"record {i}" for i in batch.ids]
    again = pickle.loads(pickle.dumps(ragged))
    assert next(iter(again))["name"].texts() == batch["name"].texts()


def test_functions_may_change_labels(rows: tuple[Path, np.ndarray]) -> None:
    for batch in pelton.load(rows[0]).map(lambda sample: {"x": sample["x"], "label": sample["label"] * 10}).batch(100):
        np.testing.assert_array_equal(batch["label"], batch.ids % 7 * 10)


def test_functions_run_in_turn_with_random_numbers_of_their_own(rows: tuple[Path, np.ndarray]) -> None:
    def noisy(sample: Sample, rng: np.random.Generator) -> Sample:
        return {"x": sample["x"], "noise": rng.normal(size=3)}

    def summed(sample: Sample) -> Sample:
        return {"sum": np.float32(sample["x"].sum()), "noise": sample["noise"].astype(np.float32)}

    make = lambda: pelton.load(rows[0]).shuffle(seed=1).map(noisy).map(summed).batch(64)  # noqa: E731
    first, second = list(make()), list(make().threads(1))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_allclose(a["sum"], rows[1][a.ids].sum(1), rtol=1e-4)
        np.testing.assert_array_equal(a["noise"], b["noise"])
    noise = np.concatenate([batch["noise"] for batch in first])
    assert len(np.unique(noise)) == noise.size


def test_functions_may_come_before_augmentation() -> None:
    def darker(sample: Sample) -> Sample:
        return {"image": sample["image"] // 2}

    def check(sample: Sample) -> Sample:
        assert sample["image"].shape == (16, 16, 3) and sample["image"].max() < 128
        return sample

    pipeline = pelton.load("demo:images:200").map(darker, before_augmentation=True).random_crop(16).map(check).batch(20)
    assert sum(len(batch["image"]) for batch in pipeline) == 200


def test_an_exception_comes_with_the_records_place(rows: tuple[Path, np.ndarray]) -> None:
    def fails(sample: Sample) -> Sample:
        if sample["record"] == 500:
            raise ZeroDivisionError("five hundred")
        return sample

    with pytest.raises(pelton.BadRecordError, match=r"rows.npz: record 500.*ZeroDivisionError: five hundred") as raised:
        list(pelton.load(rows[0]).map(fails).batch(100))
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert raised.value.record == 500 and raised.value.path.endswith("rows.npz")
    assert raised.value.__cause__.__traceback__ is not None
    kept = list(pelton.load(rows[0]).map(fails).batch(100).on_bad_record("skip"))
    assert sum(len(batch.ids) for batch in kept) == 1002


@pytest.mark.parametrize(
    ("function", "part"),
    [
        (lambda sample: None, "return a dict"),
        (lambda sample: {"x": object()}, "return numbers, text or bytes"),
        (lambda sample: {"x": sample["x"] if sample["record"] else 1}, "x"),
        (lambda sample: {f"x{sample['record']}": 1}, "x"),
        (lambda sample: {"x": sample["x"][: sample["record"] % 5 + 1]}, "shape"),
    ],
)
def test_what_a_function_may_not_return(rows: tuple[Path, np.ndarray], function: Any, part: str) -> None:
    with pytest.raises((pelton.BadRecordError, pelton.DataError, ValueError), match=part):
        list(pelton.load(rows[0]).map(function).batch(100))


def test_records_are_drawn_as_asked(rows: tuple[Path, np.ndarray]) -> None:
    path = rows[0]
    wanted = np.array([5, 5, 900, 3, 5])
    counts = Counter(int(i) for batch in pelton.load(path).shuffle(seed=0).sample(ids=wanted).batch(2) for i in batch.ids)
    assert counts == Counter(wanted.tolist())
    kept = [int(i) for batch in pelton.load(path).sample(ids=wanted).batch(2) for i in batch.ids]
    assert kept == wanted.tolist()
    weights = np.zeros(1003)
    weights[10], weights[20] = 1, 3
    drawn = pelton.load(path).shuffle(seed=0).sample(weights=weights, examples=4000).batch(500)
    counts = Counter(int(i) for batch in drawn for i in batch.ids)
    assert counts.keys() == {10, 20} and abs(counts[20] - 3000) < 150
    first = list(drawn)[2].ids
    drawn.set_epoch(1)
    np.testing.assert_array_equal(list(drawn)[2].ids, first)


def test_classes_are_balanced(tmp_path: Path) -> None:
    labels = np.repeat([0, 1, 2], [900, 90, 10])
    np.savez(tmp_path / "skewed.npz", x=np.arange(1000, dtype=np.float32), label=labels)
    balanced = pelton.load(tmp_path / "skewed.npz").shuffle(seed=0).sample(balanced=True).batch(100)
    counts = Counter(int(label) for batch in balanced for label in batch["label"])
    assert max(counts.values()) - min(counts.values()) <= 1 and len(counts) == 3


def test_lengths_are_those_that_python_says(tmp_path: Path) -> None:
    lengths = np.arange(400) * 7 % 40 + 1
    path = tmp_path / "lists.jsonl"
    path.write_text("".join(f'{{"x": {list(range(n))}, "n": {n}}}\n' for n in lengths))
    expected = None
    for length in (lengths, "n", lambda sample: len(sample["x"])):
        batches = pelton.load(path).shuffle(seed=0).buckets(boundaries=[10, 20, 41], length=length)
        batches = batches.batch(16, collate="pad")
        ids = []
        for batch in batches:
            assert batch["x_lengths"].tolist() == lengths[batch.ids].tolist()
            top = np.searchsorted([10, 20, 41], lengths[batch.ids])
            assert len(set(top)) == 1, lengths[batch.ids]
            ids.append(batch.ids.tolist())
        assert sorted(sum(ids, [])) == list(range(400))
        expected = expected or ids
        assert ids == expected


@pytest.mark.parametrize(
    ("make", "part"),
    [
        (lambda p: p.sample(), "give one of"),
        (lambda p: p.sample(ids=[0.5]), "whole numbers"),
        (lambda p: p.sample(ids=[2000]), "2000"),
        (lambda p: p.shuffle().sample(weights=[1.0, 2.0]), "2 weights"),
        (lambda p: p.shuffle().sample(weights=-np.ones(1003)), "weight"),
        (lambda p: p.buckets(length=[1, 2]), "2 "),
        (lambda p: p.buckets(length="nothing"), "nothing"),
    ],
)
def test_mistakes_are_told(rows: tuple[Path, np.ndarray], make: Any, part: str) -> None:
    with pytest.raises(ValueError, match=part):
        list(make(pelton.load(rows[0]).batch(100)))


def test_a_field_named_record_stays_what_it_is(tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", x=np.arange(6), record=np.arange(6) + 40)
    np.savez(tmp_path / "plain.npz", x=np.arange(6))
    (batch,) = pelton.load(tmp_path / "rows.npz").map(lambda sample: sample).batch(6)
    assert batch["record"].tolist() == [40, 41, 42, 43, 44, 45]
    (batch,) = pelton.load(tmp_path / "plain.npz").map(lambda sample: sample).batch(6)
    assert set(batch) == {"x", "label"} or set(batch) == {"x"}
    (batch,) = pelton.load(tmp_path / "plain.npz").map(lambda sample: {"record": 2 * sample["record"]}).batch(6)
    assert batch["record"].tolist() == [0, 2, 4, 6, 8, 10]


def columns(batch: dict[str, Any], rng: Any) -> dict[str, Any]:
    """Works on columns: arrays of one shape side by side, lists of others."""
    assert isinstance(batch["x"], np.ndarray) and batch["x"].ndim == 2
    assert len(batch["x"]) == len(batch["record"]) == len(batch["label"]) == len(rng) <= 10
    return {
        "twice": 2 * batch["x"],
        "noise": [one.normal(size=3) for one in rng],
        "name": [f"record {record}" for record in batch["record"]],
        "record": batch["record"],
    }


@pytest.mark.parametrize("processes", [None, 1])
def test_functions_of_columns_are_those_of_samples(rows: tuple[Path, np.ndarray], processes: int | None) -> None:
    def single(sample: Sample, rng: np.random.Generator) -> Sample:
        return {"twice": 2 * sample["x"], "noise": rng.normal(size=3), "name": f"record {sample['record']}"}

    def after(sample: Sample) -> Sample:
        return {**sample, "label": sample["label"] + 1}

    data = pelton.load(rows[0]).shuffle(seed=1)
    expected = data.map(single).map(after).batch(64, collate="ragged")
    found = data.map(columns, batched=10, processes=processes).map(after).threads(1 if processes else 2).batch(64, collate="ragged")
    for a, b in zip(expected, found, strict=True):
        assert set(a) == set(b) == {"twice", "noise", "name", "label"}
        np.testing.assert_array_equal(a["twice"], b["twice"])
        np.testing.assert_array_equal(a["noise"], b["noise"])
        np.testing.assert_array_equal(a["label"], b["label"])
        assert a["name"].texts() == b["name"].texts()
    # Repeats are handed over one by one.
    echoed = data.map(columns, batched=10).echo(2).batch(64, collate="ragged")
    for a, b in zip(data.map(single).echo(2).batch(64, collate="ragged"), echoed, strict=True):
        np.testing.assert_array_equal(a["noise"], b["noise"])


def test_one_record_of_a_batch_may_fail(rows: tuple[Path, np.ndarray]) -> None:
    def careful(batch: dict[str, Any]) -> dict[str, Any]:
        if 500 in batch["record"]:
            raise ValueError("five hundred")
        return {"x": batch["x"]}

    data = pelton.load(rows[0]).map(careful, batched=64)
    with pytest.raises(pelton.BadRecordError, match="five hundred") as failed:
        list(data.batch(100))
    assert "record 500" in str(failed.value)
    left = data.on_bad_record("skip").batch(100)
    assert sorted(np.concatenate([batch.ids for batch in left])) == [i for i in range(1003) if i != 500]


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda batch: {"x": batch["x"][:-1]}, r"returned \d+ entries of `x` for a batch of \d+ records, from record \d+ to \d+; return one"),
        (lambda batch: {"x": 3}, "returned int as `x`; return a list or an array"),
        (lambda batch: [1, 2], "returned list; return a dict of columns"),
    ],
)
def test_what_is_no_columns_is_said(rows: tuple[Path, np.ndarray], made: Any, said: str) -> None:
    with pytest.raises(pelton.BadRecordError, match=said):
        list(pelton.load(rows[0]).map(made, batched=64).batch(100))
    with pytest.raises(pelton.ConfigurationError, match="`batched` is 0"):
        pelton.load(rows[0]).map(made, batched=0)


def test_sequences_are_asked_for_many_items() -> None:
    asked: list[int] = []

    class Many:
        def __len__(self) -> int:
            return 500

        def __getitem__(self, i: int) -> tuple[np.ndarray, int]:
            if i == 77:
                raise RuntimeError("item 77 is lost")
            return np.arange(i, i + 3), i

        def __getitems__(self, items: list[int]) -> list[tuple[np.ndarray, int]]:
            asked.append(len(items))
            return [self[i] for i in items]

    data = pelton.from_sequence(Many()).on_bad_record("skip").shuffle(seed=3).batch(100)
    batches = list(data)
    assert max(asked) > 10
    assert sorted(np.concatenate([batch.ids for batch in batches])) == [i for i in range(500) if i != 77]
    for batch in batches:
        np.testing.assert_array_equal(batch["data"], batch.ids[:, None] + np.arange(3))
        np.testing.assert_array_equal(batch["label"], batch.ids)


def test_columns_keep_their_label_behind_functions() -> None:
    labels = np.arange(100, dtype=np.int64) * 3
    data = pelton.from_arrays(x=np.arange(400.0).reshape(100, 4), label=labels)
    for batch in data.map(lambda sample: {"x": sample["x"] + 1}).shuffle(seed=2).batch(30):
        np.testing.assert_array_equal(batch["label"], labels[batch.ids])
        np.testing.assert_array_equal(batch["x"], np.arange(400.0).reshape(100, 4)[batch.ids] + 1)


def test_kept_samples_are_made_once_and_stay_the_same(tmp_path: Path) -> None:
    calls: list[int] = []

    def made(sample: dict[str, Any]) -> dict[str, Any]:
        calls.append(sample["record"])
        return {"x": np.arange(sample["record"] % 7), "label": int(sample["record"]) % 3}

    def columns(batch: dict[str, Any]) -> dict[str, Any]:
        calls.extend(batch["record"])
        return {"x": [np.arange(record % 7) for record in batch["record"]], "label": [int(record) % 3 for record in batch["record"]]}

    data = pelton.from_arrays(y=np.zeros((300, 2), np.float32))
    for mapped in (data.map(made), data.map(columns, batched=16)):
        plain = mapped.map(lambda sample: {**sample, "k": sample["x"].sum()}).shuffle(seed=3).batch(8, collate="pad")
        kept = mapped.cache("1MiB").map(lambda sample: {**sample, "k": sample["x"].sum()}).shuffle(seed=3).batch(8, collate="pad")
        calls.clear()
        epochs = [list(kept) for _ in range(3)]
        # One that two threads want at once, at the end of an epoch, may be made twice.
        assert set(calls) == set(range(300)) and len(calls) <= 330
        for ours, theirs in zip(epochs, [list(plain) for _ in range(3)]):
            for one, other in zip(ours, theirs, strict=True):
                assert all((one[name] == other[name]).all() for name in other) and (one.ids == other.ids).all()
    # A quarter of them find room, and stay.
    calls.clear()
    little = data.map(made).cache(300 * (128 * 2 + 8 + 24) // 4).shuffle(seed=3).batch(8, collate="ragged")
    for _ in range(3):
        list(little)
    left_out = len({record for record in calls if calls.count(record) >= 3})
    assert 200 <= left_out <= 280 and len(set(calls)) == 300

    pictures = np.random.default_rng(0).integers(0, 256, (20, 16, 16, 3), np.uint8)
    augmented = pelton.from_arrays(image=pictures).map(lambda sample: {"image": sample["image"]}).cache("1MiB").flip().random_crop(12)
    first, second = (list(augmented.shuffle(seed=1).batch(20)) for _ in range(2))
    assert (first[0]["image"] == second[0]["image"]).all()
    loop = augmented.shuffle(seed=1).batch(20)
    one, other = (batch["image"][np.argsort(batch.ids)] for batch in (*loop, *loop))
    assert (one != other).any()
    with pytest.raises(pelton.ConfigurationError, match=r"call .cache\(\) before .augment\(\): it would keep one draw"):
        pelton.from_arrays(image=pictures).flip().cache("1MiB")
    with pytest.raises(pelton.ConfigurationError, match=r"before .map\(\) of a function with random numbers"):
        data.map(lambda sample, rng: sample).cache("1MiB")
    with pytest.raises(pelton.ConfigurationError, match=r"call .map\(before_augmentation=True\) before .cache"):
        data.cache("1MiB").map(made, before_augmentation=True)


def test_a_kept_failure_is_tried_again() -> None:
    calls = []

    def fails(sample: dict[str, Any]) -> dict[str, Any]:
        calls.append(sample["record"])
        if sample["record"] == 5:
            raise ValueError("five")
        return sample

    pipeline = pelton.from_arrays(x=np.arange(20.0)).map(fails).cache("1MiB").on_bad_record("skip").batch(10)
    assert [sum(len(batch.ids) for batch in pipeline) for _ in range(2)] == [19, 19]
    assert calls.count(5) >= 2 and calls.count(4) == 1
