"""The feed from Python: what comes out, in which order, whose memory it is, and what is said when something is wrong."""

from __future__ import annotations

import json
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import pelton


def ids_of(pipeline: pelton.Pipeline) -> list[int]:
    """The ids of one epoch."""
    return [int(i) for batch in pipeline for i in batch.ids]


def test_an_epoch_has_every_record_once_with_its_values(rows: tuple[Path, np.ndarray]) -> None:
    path, values = rows
    pipeline = pelton.load(path).shuffle(seed=3).batch(100)
    assert (len(pipeline), pipeline.records) == (11, 1003)
    seen = []
    for step, batch in enumerate(pipeline):
        assert (batch.epoch, batch.step) == (0, step)
        assert batch["x"].dtype == np.float32 and batch["label"].dtype == np.int64
        np.testing.assert_array_equal(batch["x"], values[batch.ids])
        np.testing.assert_array_equal(batch["label"], batch.ids % 7)
        seen.extend(batch.ids)
    assert sorted(seen) == list(range(1003)) and seen != sorted(seen)


def test_every_epoch_has_an_order_of_its_own_that_the_seed_decides(rows: tuple[Path, np.ndarray]) -> None:
    pipeline = pelton.load(rows[0]).shuffle(seed=3).batch(100)
    first, second = ids_of(pipeline), ids_of(pipeline)
    assert first != second and sorted(first) == sorted(second)
    pipeline.set_epoch(1)
    assert ids_of(pipeline) == second
    assert ids_of(pelton.load(rows[0]).shuffle(seed=3).batch(100)) == first
    assert ids_of(pelton.load(rows[0]).shuffle(seed=4).batch(100)) != first
    assert ids_of(pelton.load(rows[0]).batch(100)) == list(range(1003))
    planned = [int(i) for step in range(len(pipeline)) for i in pipeline.step_ids(1, step)]
    assert planned == second


def test_arrays_are_the_loaders_memory_and_may_be_written(rows: tuple[Path, np.ndarray]) -> None:
    path, values = rows
    pipeline = pelton.load(path).shuffle(seed=0).batch(50)
    batches = list(pipeline)
    for batch in batches:
        array = batch["x"]
        # No copy: the array uses the native object's memory, which begins at a multiple of 64.
        owner = array.base
        while isinstance(owner, np.ndarray):
            owner = owner.base
        assert type(owner).__name__ == "Array"
        assert owner.__array_interface__["data"] == (array.ctypes.data, False)
        assert array.ctypes.data % 64 == 0 and array.flags.writeable
    # Kept batches are unchanged, even after the loader went further.
    addresses = {batch["x"].ctypes.data for batch in batches}
    assert len(addresses) == len(batches)
    for batch in batches:
        np.testing.assert_array_equal(batch["x"], values[batch.ids])
    batches[0]["x"][:] = 7
    np.testing.assert_array_equal(batches[1]["x"], values[batches[1].ids])


def test_memory_of_batches_that_are_gone_is_used_again(rows: tuple[Path, np.ndarray]) -> None:
    pipeline = pelton.load(rows[0]).shuffle(seed=0).batch(5).threads(1)
    addresses = [batch["x"].ctypes.data for _ in range(5) for batch in pipeline]
    assert len(set(addresses)) < len(addresses)


def test_a_state_goes_on_exactly_on_any_number_of_ranks(rows: tuple[Path, np.ndarray]) -> None:
    make = lambda: pelton.load(rows[0]).shuffle(seed=5).batch(64)  # noqa: E731
    whole = make()
    expected = [batch.ids.tolist() for _ in range(2) for batch in whole]
    for taken in (0, 1, 7, len(whole) - 1, len(whole), len(whole) + 3):
        pipeline = make()
        got = []
        for _ in range(3):
            if len(got) == taken:
                break
            for batch in pipeline:
                got.append(batch.ids.tolist())
                if len(got) == taken:
                    break
        state = pickle.loads(pickle.dumps(pipeline.state_dict()))
        ranks = [make().shard(rank, 3) for rank in range(3)]
        for rank in ranks:
            rank.load_state_dict(state)
        rest = []
        while len(got) + len(rest) < len(expected):
            for parts in zip(*ranks, strict=True):
                rest.append([int(i) for part in parts for i in part.ids])
        assert [sorted(ids) for ids in got + rest] == [sorted(ids) for ids in expected], taken
        pipeline = make()
        pipeline.load_state_dict(state)
        again = [batch.ids.tolist() for batch in pipeline]
        assert again == expected[taken : taken + len(again)] and again


def test_a_loop_that_is_broken_off_is_followed_by_the_next_epoch(rows: tuple[Path, np.ndarray]) -> None:
    pipeline = pelton.load(rows[0]).shuffle(seed=5).batch(64)
    first = next(iter(pipeline))
    second = next(iter(pipeline))
    assert (first.epoch, second.epoch, second.step) == (0, 1, 0)


def test_sentences_come_padded_ragged_and_in_buckets(sentences: tuple[Path, list[str]]) -> None:
    path, lines = sentences
    for batch in pelton.load(path).batch(60):
        assert batch["text"].texts() == [lines[i] for i in batch.ids]
        assert batch["text"].lengths().tolist() == [len(lines[i]) for i in batch.ids]
    words = pelton.load(path).shuffle(seed=1).decode("words").buckets(boundaries=[4, 8, 14]).batch(20)
    vocabulary = words.vocabulary
    assert vocabulary is not None
    seen = []
    for batch in words:
        tokens, lengths = batch["tokens"], batch["tokens_lengths"]
        for row, length, i in zip(tokens, lengths, batch.ids, strict=True):
            text = " ".join(vocabulary[token] for token in row[: length - 1])
            assert text == lines[i] and vocabulary[row[length - 1]] == "<eos>"
            assert not row[length:].any()
        seen.extend(batch.ids)
    assert sorted(seen) == list(range(500))
    assert words.meters()["padded_fraction"] < 0.5


def test_text_among_other_fields_is_numbered_as_text_alone(sentences: tuple[Path, list[str]], tmp_path: Path) -> None:
    path, lines = sentences
    records = [json.dumps({"id": number, "text": line, "label": number % 2}) for number, line in enumerate(lines)]
    fields = tmp_path / "lines.jsonl"
    fields.write_text("\n".join(records) + "\n")
    alone, among = (pelton.load(each).shuffle(seed=1).decode("words").buckets("auto").batch(8) for each in (path, fields))
    for one, other in zip(alone, among, strict=True):
        np.testing.assert_array_equal(one.ids, other.ids)
        np.testing.assert_array_equal(one["tokens"], other["tokens"])
        np.testing.assert_array_equal(other["id"], other.ids)
        np.testing.assert_array_equal(other["label"], other.ids % 2)
    assert alone.vocabulary == among.vocabulary


def test_an_array_is_whole_unless_a_column_of_it_is_the_label(tmp_path: Path) -> None:
    for dtype in (np.float32, np.int16, np.uint16, np.int8):
        values = np.arange(60).reshape(20, 3).astype(dtype)
        np.save(tmp_path / "values.npy", values)
        (batch,) = pelton.load(tmp_path / "values.npy").batch(20)
        assert set(batch) == {"data"} and batch["data"].dtype == dtype
        np.testing.assert_array_equal(batch["data"], values)
    np.save(tmp_path / "values.npy", values.astype(np.float32))
    (batch,) = pelton.load(tmp_path / "values.npy", label="first").batch(20)
    np.testing.assert_array_equal(batch["features"], values[:, 1:])
    assert pelton.load(tmp_path / "values.npy", label="last").fields == [("features", "float32", [2])]


def test_what_is_left_out_of_the_data_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "some.jsonl"
    path.write_text('{"x": 1, "label": 3}\n{"x": 2}\n')
    pipeline = pelton.load(path).batch(2)
    with pytest.warns(UserWarning, match='1 of 2 records, the first in line 2, have no "label"') as told:
        list(pipeline)
    assert [each.filename for each in told] == [__file__]
    assert len(pipeline.notes) == 1


@pytest.mark.filterwarnings("ignore:this process reads its share")
def test_ranks_divide_every_batch(rows: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = list(pelton.load(rows[0]).shuffle(seed=2).batch(100))
    parts = []
    for rank in range(4):
        monkeypatch.setenv("RANK", str(rank))
        monkeypatch.setenv("WORLD_SIZE", "4")
        parts.append(list(pelton.load(rows[0]).shuffle(seed=2).batch(100)))
    for batch, *shares in zip(whole, *parts, strict=True):
        assert sorted(batch.ids) == sorted(i for share in shares for i in share.ids)
    monkeypatch.setenv("RANK", "4")
    with pytest.raises(ValueError, match="RANK=4 and WORLD_SIZE=4"):
        next(iter(pelton.load(rows[0]).batch(100)))


def test_a_pipeline_is_pickled_as_its_settings(rows: tuple[Path, np.ndarray]) -> None:
    pipeline = pelton.load(rows[0]).shuffle(seed=2).batch(100)
    expected = ids_of(pipeline)
    assert ids_of(pickle.loads(pickle.dumps(pipeline))) == expected


def test_functions_over_batches_are_called_in_turn(rows: tuple[Path, np.ndarray]) -> None:
    pipeline = pelton.load(rows[0]).batch(100).map_batches(lambda batch: batch["x"]).map_batches(np.sum)
    np.testing.assert_allclose(sum(pipeline), rows[1].sum(), rtol=1e-3)


@pytest.mark.parametrize(
    ("make", "error", "part"),
    [
        (lambda path: pelton.load([]), ValueError, "name at least one file in `paths`"),
        (lambda path: pelton.load("missing.tar").batch(3), FileNotFoundError, "missing.tar: no such file"),
        (lambda path: pelton.load(path).batch(0), ValueError, "`examples` is 0"),
        (lambda path: pelton.load(path).shuffle(order="fool").batch(2), ValueError, "order 'fool' is unknown"),
        (lambda path: pelton.load(path).memory("3 apples"), ValueError, "such as 512MiB or 2GB"),
        (lambda path: pelton.load(path).memory(10).batch(2), pelton.DataError, "memory"),
        (lambda path: pelton.load(path).decode("jpg").batch(2), ValueError, "x"),
        (lambda path: pelton.load(path, label="y").batch(2), pelton.DataError, "y"),
        (lambda path: pelton.load(path).on_bad_record("hide").batch(2), ValueError, "use fail, skip"),
        (lambda path: pelton.load(path).shard(2, 2), ValueError, "there is no rank 2 of 2"),
    ],
)
def test_mistakes_are_told_in_a_sentence(rows: tuple[Path, np.ndarray], make, error, part: str) -> None:
    with pytest.raises(error, match=part) as raised:
        next(iter(make(rows[0])))
    assert "line 1 column" not in str(raised.value)


def test_a_bad_record_says_where_it_is(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    lines = [f"{i},{i + 1},{i % 2}\n" for i in range(50)]
    lines[17] = "17,what,1\n"
    path.write_text("".join(lines))
    for policy in ("skip", "replace"):
        pipeline = pelton.load(path).shuffle(seed=0).batch(10).on_bad_record(policy)
        assert set(ids_of(pipeline)) == set(range(50)) - {17}, policy
        (bad,) = pipeline.meters()["bad_examples"]
        assert "table.csv" in bad and "what" in bad
    with pytest.raises(pelton.DataError, match=r"table.csv.*what"):
        ids_of(pelton.load(path).shuffle(seed=0).batch(10))


def test_states_of_other_pipelines_are_refused(rows: tuple[Path, np.ndarray]) -> None:
    state = pelton.load(rows[0]).shuffle(seed=1).batch(10).state_dict()
    with pytest.raises(pelton.StateError, match="another order, seed, batch"):
        pelton.load(rows[0]).shuffle(seed=2).batch(10).load_state_dict(state)
    with pytest.raises(pelton.StateError, match="it cannot be read"):
        pelton.load(rows[0]).shuffle(seed=1).batch(10).load_state_dict({"epoch": 1})


def python(program: str, **options: object) -> subprocess.Popen[str]:
    program = textwrap.dedent(program)
    return subprocess.Popen([sys.executable, "-c", program], text=True, stdout=-1, stderr=-1, **options)  # type: ignore[call-overload]


def test_ctrl_c_ends_a_loop_within_a_second() -> None:
    child = python(
        """
        import pelton
        # A disk so slow that the loop waits for it.
        batches = pelton.load("demo:images", device_model="hdd").shuffle(seed=0).batch(5000).memory("200MB")
        print("begun", flush=True)
        while True:
            for batch in batches:
                pass
        """
    )
    assert child.stdout is not None and child.stdout.readline() == "begun\n"
    time.sleep(1)
    child.send_signal(signal.SIGINT)
    began = time.monotonic()
    _, told = child.communicate(timeout=10)
    assert time.monotonic() - began < 2
    assert "KeyboardInterrupt" in told and "panicked" not in told


def test_a_forked_loader_says_so_and_a_forked_pipeline_begins_anew(rows: tuple[Path, np.ndarray]) -> None:
    pipeline = pelton.load(rows[0]).shuffle(seed=2).batch(100)
    iterator = iter(pipeline)
    next(iterator)
    expected = ids_of(pelton.load(rows[0]).shuffle(seed=2).batch(100))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            next(iterator)
        except RuntimeError as error:
            code = 0 if "forked" in str(error) and ids_of(pipeline) == expected else 2
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    next(iterator)


def test_two_threads_do_not_share_a_loop_unawares() -> None:
    child = python(
        """
        import threading, pelton
        batches = pelton.load("demo:images", device_model="hdd").shuffle(seed=0).batch(5000).memory("200MB")
        iterator = iter(batches)
        told = []
        def take():
            try:
                next(iterator)
            except RuntimeError as error:
                told.append(str(error))
        threads = [threading.Thread(target=take) for _ in range(3)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        print(told)
        """
    )
    printed, told = child.communicate(timeout=60)
    assert "another thread is taking a batch" in printed, told


def test_a_batch_costs_little(rows: tuple[Path, np.ndarray]) -> None:
    """What Python adds to a batch, next to waiting for it; 5 µs where nothing else runs."""
    pipeline = pelton.load(rows[0]).shuffle(seed=0).batch(1).threads(1)
    ids_of(pipeline)
    began, waited = time.perf_counter(), pipeline.meters()["wait_s"]
    batches = sum(1 for _ in range(5) for _ in pipeline)
    spent = time.perf_counter() - began - (pipeline.meters()["wait_s"] - waited)
    assert spent / batches < 100e-6


def test_a_pipeline_is_a_dataset_by_number(rows: tuple[Path, np.ndarray], sentences: tuple[Path, list[str]]) -> None:
    path, values = rows
    pipeline = pelton.load(path).shuffle(seed=1).batch(100)
    dataset = pipeline.dataset()
    assert len(dataset) == 1003
    for i in (0, 5, 1002, -1):
        sample = dataset[i]
        np.testing.assert_array_equal(sample["x"], values[i])
        assert sample["label"] == (i % 1003) % 7
    np.testing.assert_array_equal(pipeline.peek(8)["x"], values[8])
    with pytest.raises(TypeError, match=r"\.peek\(8\)"):
        pipeline[8]
    samples = dataset.__getitems__([4, 4, 900])
    np.testing.assert_array_equal(samples.batch["x"], values[[4, 4, 900]])
    assert [sample["label"] for sample in samples] == [4, 4, 900 % 7]
    with pytest.raises(IndexError, match="no record 1003; there are 1003"):
        dataset[1003]
    expected = [batch for _ in range(2) for batch in pipeline][14]
    made = pickle.loads(pickle.dumps(dataset)).batch_at(1, 3)
    np.testing.assert_array_equal(made.ids, expected.ids)
    np.testing.assert_array_equal(made["x"], expected["x"])
    with pytest.raises(IndexError, match="epoch 1 has no step 11"):
        dataset.batch_at(1, 11)
    text = pelton.load(sentences[0]).decode("words").dataset().__getitems__([3, 9])
    assert [len(sample["tokens"]) for sample in text] == [4, 10]


def test_progress_is_told_with_the_verdict(rows: tuple[Path, np.ndarray], capsys: pytest.CaptureFixture[str]) -> None:
    pipeline = pelton.load(rows[0]).batch(100)
    assert sum(len(batch.ids) for batch in pipeline.progress()) == 1003
    told = capsys.readouterr().err
    assert "batch 11 of 11" in told and "bound" in told.splitlines()[-1]


def test_progress_that_cannot_be_shown_ends_no_loop(
    rows: tuple[Path, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = pelton.load(rows[0]).batch(100)
    for stream in (None, open("/dev/full", "w", buffering=1)):
        monkeypatch.setattr(sys, "stderr", stream)
        assert sum(len(batch.ids) for batch in pipeline.progress()) == 1003


def test_names_of_files_may_be_any_bytes(tmp_path: Path, rows: tuple[Path, np.ndarray]) -> None:
    name = os.fsencode(tmp_path) + b"/caf\xe9.npz"
    with open(name, "wb") as file:
        file.write(rows[0].read_bytes())
    for named in (name, os.fsdecode(name), Path(os.fsdecode(name)), [name], str(tmp_path / "c*.npz")):
        assert pelton.load(named).records == pelton.load(rows[0]).records
    with pytest.raises(FileNotFoundError, match="caf"):
        pelton.load(name.replace(b"\xe9", b"\xe8")).records  # noqa: B018


def test_numbers_beyond_the_machine_are_refused(rows: tuple[Path, np.ndarray]) -> None:
    for threads, told in ((100_000, "at most 1024"), (0, "from 1 on")):
        with pytest.raises(pelton.ConfigurationError, match=told):
            len(pelton.load(rows[0]).batch(10).threads(threads))
