"""No lock is held while functions of a program run, Python's collector sees what they refer to, and loops end from any thread."""

from __future__ import annotations

import gc
import signal
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pelton


def parts() -> list[Any]:
    return [pelton.from_arrays(x=np.arange(k, k + 60), label=np.arange(60) % 3) for k in (0, 60)]


def returns(work: Callable[[], Any], seconds: float = 30) -> Any:
    """What a function returns in time."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, f"nothing was returned within {seconds} s"
    return found[0]


def records(pipeline: Any) -> list[int]:
    return sorted(int(x) for batch in pipeline for x in np.ravel(batch["x"]))


ALL = list(range(120))


@pytest.mark.parametrize("join", [lambda: pelton.concat(*parts()), lambda: pelton.mix(parts(), [0.5, 0.5])], ids=["concat", "mix"])
@pytest.mark.parametrize(
    ("call", "left"),
    [
        (lambda p: p.filter(lambda s: int(s["x"]) % 2 == 0).batch(8), ALL[::2]),
        (lambda p: p.map(lambda s: {"x": s["x"]}).batch(8), ALL),
        (lambda p: p.map(lambda s: {"x": s["x"]}, before_augmentation=True).batch(8), ALL),
        (lambda p: p.buckets(boundaries=[30, 200], length=lambda s: int(s["x"])).batch(8), ALL),
        (lambda p: p.buckets(boundaries=[30, 200], length=np.arange(120)).batch(8), ALL),
        (lambda p: p.take(40).batch(8), None),
        (lambda p: p.skip(40).batch(8), None),
        (lambda p: p.split(0.5)[0].batch(8), None),
        (lambda p: p.shuffle(seed=1).batch(8).map_batches(dict), ALL),
        (lambda p: p.batch(8, collate=lambda samples: {"x": [s["x"] for s in samples]}), ALL),
        (lambda p: p.include("ids", "path").batch(8), ALL),
        (lambda p: p.shard(0, 1).threads(3).memory("64MiB").batch(8), ALL),
        (lambda p: p, ALL),
    ],
)
def test_every_method_after_joining(join: Any, call: Any, left: Any) -> None:
    try:
        joined = call(join())
    except pelton.ConfigurationError as error:
        assert "before .shuffle()" in str(error) and left is None, "only mixtures have no first records"
        return
    found = returns(lambda: records(joined))
    if left is None:
        assert 0 < len(found) and set(found) <= set(ALL)
    else:
        assert set(found) == set(left)


def test_samples_by_index_after_joining() -> None:
    data = pelton.concat(*parts()).filter(lambda s: int(s["x"]) >= 30).dataset()
    assert returns(lambda: [int(data[i]["x"]) for i in (0, 89)]) == [30, 119]


def test_a_choice_may_use_other_pipelines_but_not_its_own() -> None:
    first, second = parts()
    kept = first.filter(lambda sample: second.peek(int(sample["x"]))["x"] >= 100)
    assert returns(lambda: records(kept.batch(8))) == list(range(40, 60))
    own: list[Any] = []
    own.append(first.filter(lambda sample: own[0].records > 0))
    with pytest.raises(pelton.DataError, match="uses the pipeline that is opened by calling it"):
        _ = own[0].records


def test_threads_open_a_pipeline_once() -> None:
    calls: list[int] = []
    kept = parts()[0].filter(lambda sample: calls.append(1) or True)
    threads = [threading.Thread(target=lambda: kept.records) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(calls) == 60


class Keeps:
    """An object that keeps a pipeline of its own methods."""

    def __init__(self, make: Callable[[Any], Any], read: Callable[[Any], Any]) -> None:
        self.pipeline = make(self)
        self.read = read(self.pipeline)

    def changed(self, sample: dict[str, Any]) -> dict[str, Any]:
        return {"x": sample["x"] + 1}

    def fails(self, sample: dict[str, Any]) -> dict[str, Any]:
        raise ValueError("no")

    def is_kept(self, sample: dict[str, Any]) -> bool:
        return True

    def __len__(self) -> int:
        return 60

    def __getitem__(self, i: int) -> Any:
        return {"x": np.float32(i)}


def some(pipeline: Any) -> Any:
    loop = iter(pipeline)
    next(loop)
    return loop


@pytest.mark.parametrize(
    ("make", "read"),
    [
        (lambda own: parts()[0].map(own.changed).batch(4), some),
        (lambda own: parts()[0].map(own.changed).batch(4), list),
        (lambda own: parts()[0].map(own.changed, before_augmentation=True), lambda p: p.dataset()[3]),
        (lambda own: parts()[0].map(own.changed).batch(4), lambda p: p.peek(1)),
        (lambda own: parts()[0].filter(own.is_kept).batch(4), some),
        (lambda own: parts()[0].map(own.fails).on_bad_record("skip").batch(4), list),
        (lambda own: pelton.from_sequence(own).batch(4), some),
        (lambda own: pelton.concat(parts()[0], parts()[1].map(own.changed)).batch(4), some),
    ],
)
def test_an_object_that_keeps_its_pipeline_is_collected(make: Any, read: Any) -> None:
    threads = native_threads()
    kept = Keeps(make, read)
    gone = weakref.ref(kept)
    del kept
    for _ in range(100):
        # A thread that is inside a function still refers to it.
        gc.collect()
        if gone() is None and native_threads() <= threads:
            break
        time.sleep(0.05)
    assert gone() is None
    assert native_threads() <= threads


def native_threads() -> int:
    return len(list(Path("/proc/self/task").iterdir()))


@pytest.mark.parametrize("batched", [True, False])
def test_another_thread_ends_a_loop_that_waits(batched: bool) -> None:
    goes_on, waits = threading.Event(), threading.Event()

    def slow(sample: dict[str, Any]) -> dict[str, Any]:
        if int(sample["x"]) >= 32:
            waits.set()
            goes_on.wait(20)
        return sample

    data = parts()[0].map(slow).threads(1)
    data = data.batch(8) if batched else data
    found: list[Any] = []
    ended: list[float] = []

    def loop() -> None:
        found.extend(data)
        ended.append(time.monotonic())

    thread = threading.Thread(target=loop, daemon=True)
    thread.start()
    assert waits.wait(20)
    time.sleep(0.3)
    began = time.monotonic()
    # Its threads end with the function that they are in.
    closes = threading.Thread(target=data.close, daemon=True)
    closes.start()
    thread.join(5)
    assert ended and ended[0] - began < 1, "the loop ends within a second"
    goes_on.set()
    closes.join(20)
    assert not closes.is_alive()
    taken = sum(len(batch["x"]) for batch in found) if batched else len(found)
    assert taken <= 32
    assert len(records(data)) == 60, "it can be iterated again"


def test_a_signal_handler_closes_the_loop_that_waits() -> None:
    goes_on = threading.Event()
    data = parts()[0].map(lambda sample: (goes_on.wait(20) if int(sample["x"]) >= 32 else None, sample)[1]).threads(1).batch(8)

    def closes(*_: Any) -> None:
        goes_on.set()
        data.close()

    before = signal.signal(signal.SIGALRM, closes)
    signal.setitimer(signal.ITIMER_REAL, 0.5)
    try:
        assert len(list(data)) <= 8
    finally:
        signal.signal(signal.SIGALRM, before)
