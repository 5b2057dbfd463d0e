"""Other processes and threads: data behind a URL in forked ones, random numbers of PyTorch in functions, and states that a
program cannot know."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import pelton
from conftest import Server

Rows = tuple[Path, np.ndarray]


def in_child(work: object) -> int:
    """Exit code of a forked process that does `work`; the number of a signal, below zero, where one ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.alarm(20)
            work()  # type: ignore[operator]
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:http")
@pytest.mark.parametrize("before", ["nothing", "len", "one", "epoch", "loop"])
def test_data_behind_a_url_is_read_in_forked_processes(before: str, server: Server, tmp_path: Path) -> None:
    """They hung, or the parent died."""
    pipeline = pelton.load(server.url, cache_dir=tmp_path).decode("member:txt").batch(5)
    dataset = pipeline.dataset()
    loop = iter(pipeline)
    {"nothing": lambda: None, "len": lambda: len(dataset), "one": lambda: dataset[0], "epoch": lambda: list(pipeline), "loop": lambda: next(loop)}[
        before
    ]()

    def read() -> None:
        assert bytes(dataset[7]["txt"]) == b"n0007"
        assert len(list(pipeline)) == 8
        # The parent's objects are left alone.
        del pipeline._run

    for _ in range(2):
        assert in_child(read) == 0
        assert bytes(dataset[3]["txt"]) == b"n0003"
        assert len(list(pipeline)) == 8


@pytest.mark.filterwarnings("ignore:http")
def test_workers_of_a_dataloader_read_behind_a_url(server: Server, tmp_path: Path) -> None:
    data = pytest.importorskip("torch.utils.data", reason="SKIPPED: PyTorch is not installed")
    dataset = pelton.load(server.url, cache_dir=tmp_path).decode("member:txt").dataset()
    dataset[0]
    for _ in range(2):
        loader = data.DataLoader(dataset, batch_size=5, num_workers=2, shuffle=True, collate_fn=list, timeout=20)
        assert sorted(bytes(sample["txt"]) for batch in loader for sample in batch) == [b"n%04d" % i for i in range(40)]


def test_torchs_random_numbers_in_a_function_follow_from_the_record(rows: Rows) -> None:
    """Whatever threads make the samples, and without moving the program's own stream."""
    torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")

    def draws(sample: dict[str, object]) -> dict[str, object]:
        drawn = [torch.rand(1), torch.empty(1).uniform_(), torch.randint(9, (1,)), torch.randperm(5)[:1], torch.rand_like(torch.zeros(1))]
        return {"drawn": torch.cat([each.double() for each in drawn]).numpy()}

    def epoch(pipeline: pelton.Pipeline) -> np.ndarray:
        found = np.concatenate([batch["drawn"][np.argsort(batch.ids)] for batch in pipeline])
        return found

    made = [pelton.load(rows[0]).shuffle(seed=4).map(draws).batch(100).threads(threads) for threads in (1, 4)]
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    first, second = epoch(made[0]), epoch(made[1])
    np.testing.assert_array_equal(first, second)
    assert len(np.unique(first[:, 0])) > 990
    assert not np.array_equal(epoch(made[0]), first)
    # Samples that are made while the program draws, too.
    for batch in made[1]:
        pass
    assert torch.equal(torch.rand(4), expected)


def test_a_place_that_only_workers_know_is_not_made_up(rows: Rows) -> None:
    data = pytest.importorskip("torch.utils.data", reason="SKIPPED: PyTorch is not installed")
    pipeline = pelton.load(rows[0]).shuffle(seed=4).batch(100)
    state = pipeline.state_dict()
    loader = data.DataLoader(pipeline, batch_size=None, num_workers=2)
    assert sum(len(batch["x"]) for batch in loader) == 1003
    with pytest.raises(pelton.StateError, match="StatefulDataLoader"):
        pipeline.state_dict()
    pipeline = pelton.load(rows[0]).shuffle(seed=4).batch(100)
    pipeline.load_state_dict(state)
    with pytest.raises(pelton.StateError, match="does not reach the workers"):
        next(iter(data.DataLoader(pipeline, batch_size=None, num_workers=1)))


def test_an_epoch_that_workers_read_twice_is_warned_of(rows: Rows) -> None:
    pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")
    program = f"""
        import sys, pelton
        from torch.utils.data import DataLoader
        pipeline = pelton.load({str(rows[0])!r}).shuffle(seed=4).batch(500)
        loader = DataLoader(pipeline, batch_size=None, num_workers=1)
        for epoch in (3, None, 4):
            if epoch: pipeline.set_epoch(epoch)
            list(loader)
            print("then", file=sys.stderr)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=60)
    first, second, third, _ = done.stderr.split("then\n")
    assert "epoch 3 is read again, in the same order" in second, done.stderr
    assert "read again" not in first + third


def test_echoes_do_not_go_with_several_workers(rows: Rows, sentences: tuple[Path, list[str]]) -> None:
    data = pytest.importorskip("torch.utils.data", reason="SKIPPED: PyTorch is not installed")
    pipeline = pelton.load(sentences[0]).echo("batch:2").batch(50)
    assert sum(1 for _ in data.DataLoader(pipeline, batch_size=None, num_workers=1)) == 20
    with pytest.raises(pelton.ConfigurationError, match="echo needs a single worker"):
        list(data.DataLoader(pipeline, batch_size=None, num_workers=2))


def test_a_pipeline_is_what_it_is(rows: Rows) -> None:
    pipeline = pelton.load(rows[0]).batch(10)
    assert isinstance(pipeline, pelton.Pipeline) and type(pipeline) is pelton.Pipeline
    data = pytest.importorskip("torch.utils.data", reason="SKIPPED: PyTorch is not installed")
    assert isinstance(pipeline, data.IterableDataset) and isinstance(pipeline, pelton.Pipeline)
