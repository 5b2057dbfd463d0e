"""What an epoch's batches are made of: shares of ranks, of files and classes, and repeats."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pelton

Rows = tuple[Path, np.ndarray]


def of(records: int, folder: Path) -> pelton.Pipeline[Any]:
    np.savez(folder / "few.npz", x=np.arange(records))
    return pelton.load(folder / "few.npz")


def test_the_last_two_batches_share_what_is_left(tmp_path: Path) -> None:
    pipeline = of(6001, tmp_path).shuffle(seed=1)
    ends = {"even": [600, 301, 300], "short": [600, 600, 1], "drop": [600, 600, 600]}
    for last, sizes in ends.items():
        batched = pipeline.batch(600, last=last)
        ids = [batch.ids for batch in batched]
        assert [len(of_batch) for of_batch in ids][-3:] == sizes and len(ids) == len(batched)
        flat = np.concatenate(ids)
        np.testing.assert_array_equal(flat, np.concatenate([batch.ids for batch in pipeline.batch(77)])[: len(flat)])
    assert [len(batch.ids) for batch in pipeline.batch(600)] == [600] * 9 + [301, 300]
    with pytest.raises(pelton.ConfigurationError, match="`all` is not a treatment of the last examples: use even, short or drop"):
        len(pipeline.batch(600, last="all"))


@pytest.mark.parametrize("records", [1, 3, 7, 8, 9, 15, 17, 31, 64, 65, 71])
def test_no_rank_lacks_examples(records: int, tmp_path: Path) -> None:
    pipeline = of(records, tmp_path).shuffle(seed=2).batch(8)
    for ranks in (2, 4):
        parts = [pipeline.shard(rank, ranks) for rank in range(ranks)]
        if records < ranks:
            for part in parts:
                with pytest.raises(pelton.ConfigurationError, match=rf"a batch of {records} for {ranks} ranks"):
                    next(iter(part))
            continue
        shares = [[len(batch.ids) for batch in part] for part in parts]
        assert len({len(sizes) for sizes in shares}) == 1 and all(min(sizes) >= 1 for sizes in shares)
        assert sum(map(sum, shares)) == records
    short = pipeline.batch(8, last="short").shard(0, 4)
    if 0 < records % 8 < 4:
        with pytest.raises(pelton.ConfigurationError, match="some would get no example"):
            list(short)


def test_a_small_bucket_is_refused_before_the_first_batch(sentences: tuple[Path, list[str]]) -> None:
    pipeline = pelton.load(sentences[0]).decode("words").shuffle(seed=0).buckets(boundaries=[2, 13]).batch(32)
    assert min(len(batch.ids) for batch in pipeline) >= 16
    assert sum(len(batch.ids) for rank in range(3) for batch in pipeline.shard(rank, 3)) == 500
    # Sentences of the greatest length form separate batches.
    alone = pelton.load(sentences[0]).decode("words").buckets("tokens:12").shard(1, 2)
    with pytest.raises(pelton.ConfigurationError, match="a batch of 1 for 2 ranks"):
        next(iter(alone))


def test_samples_of_ranks_are_counted_and_their_difference_is_said(rows: Rows) -> None:
    for order in ("full", "page:200"):
        pipeline = pelton.load(rows[0]).shuffle(seed=3, order=order)
        parts = [pipeline.shard(rank, 3) for rank in range(3)]
        # In another epoch a `page` order has other lengths.
        said = [len(part) for part in parts]
        with pytest.warns(UserWarning, match=r"ranks have from \d+ to \d+ samples"):
            found = [len(list(part)) for part in parts]
        assert found == said and sum(found) == 1003


@pytest.mark.parametrize("shares", [[0.7, 0.3], [1, 1, 1], [5, 2, 1, 0.3]])
def test_files_have_their_shares_at_any_point(shares: list[float], tmp_path: Path) -> None:
    sizes = [100 + 50 * i for i in range(len(shares))]
    for i, size in enumerate(sizes):
        np.savez(tmp_path / f"{i}.npz", x=np.arange(size))
    files = [tmp_path / f"{i}.npz" for i in range(len(sizes))]
    mixed = pelton.load(files).shuffle(seed=5).mix(shares).batch(7)
    counts, drawn = Counter[int](), 0
    bound = 1 if len(shares) == 2 or len(set(shares)) == 1 else 4
    for _ in range(3):
        for batch in mixed:
            for part in np.searchsorted(np.cumsum(sizes), batch.ids, "right").tolist():
                counts[part] += 1
                drawn += 1
                for i, share in enumerate(shares):
                    assert abs(counts[i] - drawn * share / sum(shares)) < bound + 1e-6


def test_classes_come_equally_often_at_any_point(rows: Rows) -> None:
    counts = Counter[int]()
    for batch in pelton.load(rows[0]).shuffle(seed=5).sample(balanced=True, examples=500).batch(33):
        for label in batch["label"].tolist():
            counts[label] += 1
            assert max(counts.values()) - min(counts[c] for c in range(7)) <= 1


def test_repeats_of_a_short_epoch_come_within_it(tmp_path: Path) -> None:
    pipeline = of(300, tmp_path).shuffle(seed=1).batch(30)
    for echo in (3, 3.0, "before:3"):
        ids = np.concatenate([batch.ids for batch in pipeline.echo(echo)])
        assert set(Counter(ids.tolist()).values()) == {3}
        half = Counter(ids[:450].tolist())
        assert len(half) < 200 and max(half.values()) > 1
    assert len(list(pipeline.echo(1.5))) == 15
    for wrong in (b"z", None, True, -1, 1001, [3]):
        with pytest.raises(pelton.ConfigurationError, match="`times`"):
            pipeline.echo(wrong)  # type: ignore[arg-type]
    for wrong in ({"a": 1}, "0.5", 3, [0.5, "b"], [-1, 2]):
        with pytest.raises(pelton.ConfigurationError, match="`shares`"):
            pipeline.mix(wrong)  # type: ignore[arg-type]


def test_the_length_with_auto_echo_is_unknown(tmp_path: Path) -> None:
    pipeline = of(300, tmp_path).batch(30).echo("auto")
    with pytest.raises(TypeError, match=re.escape("not known with echo('auto'), which adds repeats to its 10 batches")):
        len(pipeline)
    assert set(np.concatenate([batch.ids for batch in list(pipeline)]).tolist()) == set(range(300))
    assert sum(1 for _ in pipeline.progress()) >= 10


def test_a_listed_record_that_is_left_out_is_named(tmp_path: Path) -> None:
    pipeline = of(20, tmp_path).filter(lambda sample: sample["x"] % 2 == 0)
    kept = pipeline.sample(ids=[4, 4, 0, 18]).batch(2)
    assert [batch.ids.tolist() for batch in kept] == [[4, 4], [0, 18]]
    says = ".filter() leaves out 2 of the records of .sample(ids=…), the first of them 7"
    with pytest.raises(pelton.ConfigurationError, match=re.escape(says)):
        len(pipeline.sample(ids=[4, 7, 0, 9]).batch(2))
    with pytest.raises(pelton.ConfigurationError, match="the list has record 99"):
        len(pipeline.sample(ids=[4, 99]).batch(2))
