"""Functions in worker processes: the same samples as in threads, and processes that end whatever happens."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from importlib.util import find_spec
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pelton
from mapped import drawn, exits, fails, grown, is_killed, noisy, relabelled, shrunk, summed, turned, with_process

Rows = tuple[Path, np.ndarray]


def assert_equal(first: list[Any], second: list[Any]) -> None:
    for a, b in zip(first, second, strict=True):
        assert a.keys() == b.keys()
        for name in a:
            for x, y in zip(arrays(a[name]), arrays(b[name]), strict=True):
                assert x.dtype == y.dtype
                np.testing.assert_array_equal(x, y)


def arrays(field: Any) -> list[np.ndarray]:
    return [field.values, field.offsets] if isinstance(field, pelton.Ragged) else [np.asarray(field)]


# Processes that earlier tests have left.
earlier: set[int] = set()


def children(process: int | str = "self") -> set[int]:
    """Processes that this one started, and that were not waited for, without Python's own for shared memory."""
    found: set[int] = set()
    for task in Path(f"/proc/{process}/task").iterdir():
        # A thread, or a child of another process, may have ended.
        with suppress(OSError):
            for child in map(int, (task / "children").read_text().split()):
                if b"resource_tracker" not in Path(f"/proc/{child}/cmdline").read_bytes():
                    found.add(child)
    return found - earlier


def is_gone(process: int) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().split()[2] == "Z"
    except OSError:
        return True


@pytest.fixture(autouse=True)
def leaves_nothing() -> Iterator[None]:
    """Each test ends all of its processes, and closes what they were reached by."""
    gc.collect()
    # Python's own process for shared memory has a file, too.
    resource_tracker.ensure_running()
    earlier.update(children())
    files = len(os.listdir("/proc/self/fd"))
    yield
    gc.collect()
    # Python opens these once for processes: two files if pytest has workers.
    assert not children() and len(os.listdir("/proc/self/fd")) <= files + 2


@pytest.mark.parametrize("counts", [(2, 2), (1, None), (None, 2)])
def test_samples_are_those_of_threads(counts: tuple[int | None, int | None], rows: Rows) -> None:
    def make(*counts: int | None) -> pelton.Pipeline:
        made = pelton.load(rows[0]).shuffle(seed=1).map(noisy, processes=counts[0])
        return made.map(summed, processes=counts[1]).batch(64, collate="ragged")

    in_threads = make(None, None)
    expected = [list(in_threads), list(in_threads)]
    pipeline = make(*counts)
    found = []
    for batch in pipeline:
        found.append(batch)
        if batch.step == 4:
            state = pipeline.state_dict()
            break
    pipeline.close()
    pipeline = make(*counts)
    pipeline.load_state_dict(state)
    assert_equal(found + list(pipeline), expected[0])
    assert_equal(list(pipeline), expected[1])
    assert len(children()) == max(filter(None, counts))
    pipeline.close()


def test_functions_before_and_after_augmentation_pass_the_label_on() -> None:
    def make(first: int | None, second: int | None) -> pelton.Pipeline:
        loaded = pelton.load("demo:images:40").map(relabelled, before_augmentation=True, processes=first)
        return loaded.random_crop(16).map(relabelled, processes=second).batch(20)

    expected = list(make(None, None))
    assert expected[0]["label"].min() >= 200
    assert_equal(list(make(1, 1)), expected)


def test_exactly_these_processes_run_and_loops_share_them(rows: Rows) -> None:
    pipeline = pelton.load(rows[0]).map(with_process, processes=2).batch(10)
    assert len(pipeline) == 101 and not children()
    assert pipeline.peek(3)["is_child"] == os.getpid()
    assert len(children()) == 1
    for _ in range(2):
        for batch in pipeline:
            break
    first, second = iter(pipeline), iter(pipeline)
    found = {pid for pair in zip(first, second) for batch in pair for pid in batch["pid"].tolist()}
    assert found <= children() and len(children()) == 2
    loops = [threading.Thread(target=lambda: list(pipeline)) for _ in range(2)]
    for loop in loops:
        loop.start()
    for loop in loops:
        loop.join()
    assert len(children()) == 2
    del pipeline, first, second, batch


def test_an_exception_is_the_functions_own(rows: Rows) -> None:
    pipeline = pelton.load(rows[0]).sample(ids=range(400, 600)).map(fails, processes=1).batch(100)
    with pytest.raises(pelton.BadRecordError, match="rows.npz: record 500.*KeyError: 'five hundred'") as raised:
        list(pipeline)
    cause = raised.value.__cause__
    assert type(cause) is KeyError and cause.args == ("five hundred",)
    assert "in fails" in str(cause.__cause__) and 'raise KeyError("five hundred")' in str(cause.__cause__)
    with pytest.raises(pelton.BadRecordError, match="Odd: this and that") as raised:
        list(pipeline.sample(ids=[300]))
    assert "in fails" in str(raised.value.__cause__.__cause__)
    kept = list(pelton.load(rows[0]).map(fails, processes=1).batch(100).on_bad_record("skip"))
    assert sum(len(batch.ids) for batch in kept) == 1001


@pytest.mark.parametrize(("function", "part"), [(exits, "exit code 3"), (is_killed, "SIGKILL")])
def test_a_worker_that_dies_is_told_and_replaced(function: Any, part: str, rows: Rows) -> None:
    pipeline = pelton.load(rows[0]).map(function, processes=2).batch(100)
    with pytest.raises(pelton.BadRecordError, match=f"record 500.*worker process ended with {part}.*record 500"):
        list(pipeline)
    kept = list(pipeline.on_bad_record("skip"))
    assert sum(len(batch.ids) for batch in kept) == 1002


def test_a_worker_that_dies_between_loops_is_replaced(rows: Rows) -> None:
    pipeline = pelton.load(rows[0]).map(noisy, processes=1).batch(100)
    expected = list(pipeline)
    (worker,) = children()
    os.kill(worker, signal.SIGKILL)
    pipeline.set_epoch(0)
    assert_equal(list(pipeline), expected)


def test_samples_may_be_big(rows: Rows) -> None:
    """In whole and in parts, pickled and as fields."""
    pipeline = pelton.load(rows[0]).sample(ids=[3, 4, 5])
    expected = list(pipeline.map(grown).map(turned).map(shrunk).batch(3))
    np.testing.assert_array_equal(expected[0]["first"][0], rows[1][3][::-1] + 1)
    assert_equal(list(pipeline.map(grown).map(turned, processes=1).map(shrunk).batch(3)), expected)
    (whole,) = pipeline.map(grown, processes=1).map(turned, processes=1).batch(3)
    assert whole["x"].shape == (3, 5_000_000)
    np.testing.assert_array_equal(whole["x"][:, :5], expected[0]["first"])


def test_functions_that_cannot_be_sent_are_refused(rows: Rows, monkeypatch: pytest.MonkeyPatch) -> None:
    offset = 5
    nested = lambda sample: {"x": sample["x"] + offset}  # noqa: E731
    pipeline = pelton.load(rows[0])
    if find_spec("cloudpickle"):
        (batch,) = pipeline.map(nested, processes=1).batch(1003)
        np.testing.assert_array_equal(batch["x"], rows[1] + 5)
    monkeypatch.setitem(sys.modules, "cloudpickle", None)
    with pytest.raises(pelton.ConfigurationError, match="lambda.*top level of a module, or install cloudpickle"):
        pipeline.map(nested, processes=1)


@pytest.mark.parametrize("processes", [0, -1, True, 1.0, "2"])
def test_other_numbers_of_processes_are_refused(processes: Any, rows: Rows) -> None:
    with pytest.raises(pelton.ConfigurationError, match="whole number"):
        pelton.load(rows[0]).map(noisy, processes=processes)


def test_a_worker_of_another_loader_is_told(rows: Rows) -> None:
    pipeline = pelton.load(rows[0]).map(noisy, processes=2).batch(100)

    def read() -> None:
        with pytest.raises(pelton.ConfigurationError, match="without a DataLoader"):
            next(iter(pipeline))

    child = multiprocessing.get_context("fork").Process(target=read, daemon=True)
    child.start()
    child.join()
    assert child.exitcode == 0
    child.close()


def test_torchs_random_numbers_follow_from_the_record(rows: Rows) -> None:
    pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")
    pipeline = pelton.load(rows[0]).shuffle(seed=2)
    assert_equal(list(pipeline.map(drawn, processes=2).batch(100)), list(pipeline.map(drawn).batch(100)))


BEGIN = """
import os, signal, sys, threading, time
import numpy as np
import pelton
def slow(sample):
    time.sleep({seconds})
    return sample
def program():
    p = pelton.load("s.npy").map(slow, processes=2).batch(10)
{code}
"""
GUARDED = "if __name__ == '__main__':\n    program()\n"


def started(folder: Path, code: str, *, seconds: float = 0.001, call: str = GUARDED) -> subprocess.Popen[str]:
    np.save(folder / "s.npy", np.arange(100))
    lines = "".join(f"    {line}\n" for line in code.splitlines())
    (folder / "program.py").write_text(BEGIN.format(seconds=seconds, code=lines) + call)
    return subprocess.Popen([sys.executable, "program.py"], cwd=folder, stdout=-1, stderr=-1, text=True, start_new_session=True)


def workers_of(process: int) -> set[int]:
    """Both of its workers, once they are there."""
    wait_for(lambda: len(children(process)) == 2, seconds=60)
    return children(process)


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("for b in p: break", 0),
        ("p.it = i = iter(p); next(i)", 0),
        ("for b in p: sys.exit(3)", 3),
        ("global q, i\nq = p; i = iter(p); next(i)", 0),
    ],
)
def test_a_program_ends_with_its_workers(code: str, expected: int, tmp_path: Path) -> None:
    child = started(tmp_path, code)
    printed, told = child.communicate(timeout=60)
    assert (child.returncode, printed, told) == (expected, "", "")
    # Python's own process for shared memory ends after it.
    wait_for(lambda: all(is_gone(each) for each in map(int, filter(str.isdigit, os.listdir("/proc"))) if session_of(each) == child.pid))


def wait_for(condition: Callable[[], bool], seconds: float = 10) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def session_of(process: int) -> int:
    try:
        return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[3])
    except OSError:
        return -1


def test_a_program_without_guard_is_told_once(tmp_path: Path) -> None:
    child = started(tmp_path, "for b in p: pass", call="program()\n")
    _, told = child.communicate(timeout=60)
    assert child.returncode == 1
    assert told.count("Traceback") == 1 and 'ConfigurationError: a worker process starts the program again' in told
    assert 'put what the program does under `if __name__ == "__main__":`' in told


@pytest.mark.parametrize("how", ["in a function", "in the loop", "at the start"])
def test_ctrl_c_ends_all_within_a_second(how: str, tmp_path: Path) -> None:
    in_loop = how == "in the loop"
    code = "for b in p:\n    print('ready', flush=True); time.sleep(60)" if in_loop else "next(iter(p))"
    child = started(tmp_path, code, seconds=0.01 if in_loop else 60)
    workers = workers_of(child.pid)
    if in_loop:
        assert child.stdout is not None and child.stdout.readline() == "ready\n"
    if how == "in a function":
        time.sleep(0.7)
    began = time.monotonic()
    # As a terminal does, to all processes.
    os.killpg(child.pid, signal.SIGINT)
    _, told = child.communicate(timeout=60)
    assert time.monotonic() - began < 2
    assert child.returncode == -signal.SIGINT and told.count("Traceback") == 1 and told.endswith("KeyboardInterrupt\n"), told
    wait_for(lambda: all(map(is_gone, workers)))


def test_workers_end_with_a_program_that_is_killed(tmp_path: Path) -> None:
    child = started(tmp_path, "next(iter(p))", seconds=60)
    workers = workers_of(child.pid)
    time.sleep(0.5)
    child.kill()
    child.wait()
    wait_for(lambda: all(map(is_gone, workers)))
    assert child.communicate()[1] == ""
