"""A running pipeline: its open data, and the loops over it."""

from __future__ import annotations

import atexit
import itertools
import json
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, TypeVar
from weakref import WeakSet, ref

import numpy as np

from . import _pelton
from ._batch import Batch, Samples, from_native
from ._processes import Processes
from ._stage import Chain
from ._workers import Told, Worker, mixed, this_worker
from ._world import World, compare, connect, end_all

ConfigurationError = _pelton.ConfigurationError
StateError = _pelton.StateError

# Keys of a state: samples of the next step that were yielded one by one, and the ranks that divided the step.
_SAMPLES = "samples"
# Key: a worker has yielded all of its epoch, and the state is after it.
_OVER = "over"


# Ranks compare these parts of their states before a loop begins.
_COMPARED = {"data": "data set", "plan": "plan (order, seed, batch)", "stages": "vocabulary", "epoch": "epoch", "step": "step"}
_numbers = itertools.count()

T = TypeVar("T")

_NOTHING = Batch({}, 0, 0, np.empty(0, np.int64))


def _of_loader(state: Mapping[str, Any]) -> str:
    """The part of a state that the native loader knows, as JSON."""
    return json.dumps({name: value for name, value in state.items() if name not in (_SAMPLES, _OVER)})


class Run:
    """Open data, and the positions of its loops.

    Each ``for`` is a `Loop` with its own loader, so several may run at once. A loop that ends leaves its loader,
    which has started to read the next epoch, to the next loop.
    """

    def __init__(
        self,
        source: _pelton.Source,
        native: _pelton.Pipeline,
        kept: np.ndarray | None,
        fill: Callable[[Batch], Batch] | None,
        maps: list[Callable[[Batch], Any]],
        batched: bool,
        told: Told,
        pools: Sequence[Processes],
        chains: Sequence[Chain],
    ) -> None:
        self.process = os.getpid()
        # Called by the native part, which refers to it weakly.
        self.chains = chains
        # Worker processes that functions run in.
        self.pools = pools
        self.source, self.native = source, native
        # Ids of the records that take part if not all do, and functions that add fields by record number.
        self.kept = kept
        self.fill = fill
        self.maps, self.batched, self.told = maps, batched, told
        # Whether its only loop does not start to read the next epoch.
        self.is_pass = False
        # Examples in the last output.
        self.last_examples = 0
        self.lock = threading.RLock()
        self.next_epoch = told.epoch or 0
        # Whether a loop began here; a worker that persists between epochs counts by itself.
        self.began = False
        self.loops: WeakSet[Loop[Any]] = WeakSet()
        # The position of the loop that last started or yielded something, and how often it did so in succession.
        self.recent: _Mark | None = None
        self.streak = 0
        # A state that the next loop begins with.
        self.resumed: dict[str, Any] | None = None
        # Whether the data is read through the memory of all ranks.
        self.peers = False
        # Its index among the pipelines that ranks iterate, and its number of loops.
        self.number: int | None = None
        self.counted = 0
        # Steps from which all loops have yielded something.
        self.taken = 0
        # A loader at the beginning of an epoch, with that epoch and share.
        self.parked: tuple[_pelton.Loader, tuple[Any, ...]] | None = None
        _runs.add(self)

    @contextmanager
    def causes(self) -> Iterator[None]:
        """A context in which errors of the native part get the exception of a function that they come from as cause."""
        try:
            yield
        except Exception as error:
            for raised in (raised for chain in self.chains for raised in reversed([*chain.raised])):
                with suppress(Exception):
                    if error.__cause__ is None and f"{type(raised).__qualname__}: {raised}" in str(error):
                        error.__cause__ = raised
            raise

    def claim(
        self, loop: Loop[Any], world: World, given: Mapping[str, Any] | None
    ) -> tuple[int, Mapping[str, Any] | None]:
        """The epoch of a starting loop, and the state if it starts within one. Iterators that yielded nothing have
        none, so programs may create and drop them, and set the epoch afterwards."""
        if _ending:
            raise RuntimeError("the program is exiting; no loop can start")
        with self.lock:
            worker = this_worker()
            resumed, self.resumed = self.resumed, None
            state = resumed if given is None else given
            if worker is not None and state is None:
                epoch = self._epoch_of(worker, world)
            else:
                epoch = self.next_epoch if state is None else state["epoch"]
            self.next_epoch, self.began = epoch + 1, True
            if worker is None and world.size > 1:
                self._check_ranks(world, state or self.beginning(epoch))
            if world.size > 1:
                self._check_shares(world, epoch)
            self.loops.add(loop)
            self.recent, self.streak = loop.mark, 0
            self.told.resumed_in = None
            return epoch, state

    def _check_ranks(self, world: World, state: Mapping[str, Any]) -> None:
        """Refuses to start a loop if another rank has other data, another plan or another epoch, since their shares
        would not make up one epoch."""
        if self.number is None:
            self.number = next(_numbers)
        self.counted += 1
        own = {what: state.get(name) for name, what in _COMPARED.items()}
        own["number of steps behind it"] = self.taken
        other = compare(f"{self.number}/{self.counted}", world, own)
        if other is not None:
            differs = next(what for what in own if own[what] != other[1][what])
            raise ConfigurationError(
                f"rank {world.rank} has another {differs} than rank {other[0].rank} ({own[differs]}, {other[1][differs]}), so some "
                "records would be used twice and others not at all; give every rank the same data, settings and loops, "
                "or let each read all data with .shard(0, 1)"
            )

    def _check_shares(self, world: World, epoch: int) -> None:
        """Refuses an epoch in which some rank would get a batch without examples; warns of one in which ranks have other
        numbers of samples."""
        if not self.batched:
            fewest, most = (self.native.share_len(epoch, rank, world.size) for rank in (0, world.size - 1))
            if fewest != most:
                warnings.warn(
                    f"ranks have from {fewest} to {most} samples in an epoch; where they must take equally many steps, call .batch()",
                    stacklevel=5,
                )
            return
        smallest = self.native.smallest_batch(epoch)
        if smallest is not None and smallest < world.size:
            raise ConfigurationError(
                f"epoch {epoch} has a batch of {smallest} for {world.size} ranks, so some would get no example; use larger batches, "
                "wider buckets or fewer ranks, or let each rank read all data with .shard(0, 1)"
            )

    def _epoch_of(self, worker: Worker, world: World) -> int:
        """The epoch that a worker of a ``DataLoader`` reads, which the program has not started itself."""
        if self.told.resumed_in not in (None, self.process):
            raise StateError(
                "load_state_dict does not reach the workers of a DataLoader; use torchdata's StatefulDataLoader, or "
                "num_workers=0: a pipeline reads with threads of its own"
            )
        told = self.told.newly_set()
        if told is not None:
            again = (
                f"epoch {told} is read again, in the same order: call .set_epoch(epoch) before each epoch, since workers that "
                "are started for every epoch cannot count them"
            )
            self.told.read_by(worker, again)
            return told
        if self.began:
            return self.next_epoch
        if world.size > 1:
            raise ConfigurationError(
                f"workers of {world.size} ranks cannot agree on the epoch: call .set_epoch(epoch) before each epoch"
            )
        return mixed(worker.seed)

    def set_epoch(self, epoch: int) -> None:
        if epoch < 0:
            raise ConfigurationError(f"there is no epoch {epoch}; epochs start at 0")
        with self.lock:
            self.told.set_epoch(epoch)
            if self.resumed is None or self.resumed["epoch"] != epoch:
                # Otherwise the rest of this epoch comes next, as programs that set each epoch expect.
                self.resumed, self.recent, self.told.resumed_in = None, None, None
            self.next_epoch = epoch

    def resume(self, state: Mapping[str, Any]) -> None:
        """Starts the next loop from a state; refuses a state of another pipeline."""
        resumed = dict(state)
        self.check(resumed)
        with self.lock:
            self.resumed, self.recent, self.told.resumed_in = resumed, None, self.process
            self.next_epoch = resumed["epoch"]

    def check(self, state: Mapping[str, Any]) -> None:
        """Refuses a state of another pipeline or of other data."""
        for note in self.native.check_state(_of_loader(state)):
            warnings.warn(note, stacklevel=5)

    def current_epoch(self) -> int:
        """The current or next epoch."""
        loop = None if self.recent is None else self.recent.loop()
        return self.next_epoch if loop is None or loop.ended else loop.epoch

    def state(self) -> dict[str, Any]:
        with self.lock:
            if self.told.read_in_workers and this_worker() is None:
                raise StateError(
                    "this pipeline was read by workers of a DataLoader, and only they know their position; use torchdata's "
                    "StatefulDataLoader, or num_workers=0: a pipeline reads with threads of its own"
                )
            if self.recent is None:
                return self.coming()
            others = [loop for loop in self.loops if loop.handed_out and not loop.ended and loop.mark is not self.recent]
            if self.streak < 2 and others:
                raise StateError(
                    "several loops over this pipeline are running, so it has no single position; call iterator.state_dict() "
                    "of one of them, or end the others"
                )
            return self.recent.state()

    def coming(self) -> dict[str, Any]:
        """Where the next loop starts."""
        return self.resumed or self.beginning(self.next_epoch)

    def beginning(self, epoch: int) -> dict[str, Any]:
        """The state before an epoch."""
        state: dict[str, Any] = json.loads(self.native.state(epoch))
        return state

    def meters(self) -> tuple[dict[str, Any], str]:
        found = None if self.recent is None else self.recent.meters()
        if not found:
            loader = self.native.loader(self.next_epoch, ((0, 1), None))
            found = loader.meters()
            loader.close()
        return json.loads(found[0]), found[1]

    def park(self, loader: tuple[_pelton.Loader, tuple[Any, ...]] | None) -> None:
        """Keeps a loader for the next loop, replacing another."""
        with self.lock:
            before, self.parked = self.parked, loader
        if before is not None:
            before[0].close()

    def unpark(self, key: tuple[Any, ...]) -> _pelton.Loader | None:
        """The parked loader that is where a loop starts, if there is one."""
        with self.lock:
            if self.parked is not None and self.parked[1] == key:
                (loader, _), self.parked = self.parked, None
                return loader
        self.park(None)
        return None

    def interrupt(self, loop: Loop) -> None:
        """Closes a loop upon Ctrl-C, without waiting for worker processes that are inside a function. They start
        again with the next loop."""
        alone = not any(other.begun and not other.ended for other in self.loops if other is not loop)
        with ExitStack() as stack:
            if self.pools and alone:
                for pool in self.pools:
                    stack.enter_context(pool.stopped(0))
                # The loader is reading the next epoch, without what the workers had.
                self.park(None)
            loop.close()

    def close(self) -> None:
        with self.lock:
            loops = list(self.loops)
        for loop in loops:
            loop.close()
        self.park(None)
        for pool in self.pools:
            with pool.stopped():
                pass


def with_progress(batches: Iterable[T], count: int | None, run: Run, every: float) -> Iterator[T]:
    """What a loop yields, with progress every so many seconds and the verdict at its end."""
    began = told = time.monotonic()
    examples, of = 0, "" if count is None else f" of {count}"
    for number, batch in enumerate(batches, start=1):
        examples += run.last_examples
        yield batch
        now = time.monotonic()
        if now - told >= every or number == count:
            told = now
            rate = examples / (now - began)
            _say(f"\rbatch {number}{of}, {rate:,.0f} examples/s ")
    _say(f"\n{run.meters()[1]}\n")


def _say(text: str) -> None:
    # A full disk or a closed terminal must not end the loop.
    with suppress(AttributeError, OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()


class _Mark:
    """The position of a loop, for code that must not keep it alive."""

    def __init__(self, loop: Loop[Any]) -> None:
        self.loop = ref(loop)
        # State and meters of a loop that ended.
        self.left: tuple[dict[str, Any], tuple[str, str] | None] | None = None

    def state(self) -> dict[str, Any]:
        loop = self.loop()
        if self.left is None and loop is not None:
            return loop.state_dict()
        assert self.left is not None, "an ended loop leaves its state"
        return self.left[0]

    def meters(self) -> tuple[str, str] | None:
        loop = self.loop()
        if self.left is not None:
            return self.left[1]
        return None if loop is None else loop.meters()


class Loop(Iterator[T]):
    """A running epoch: an iterator over its batches, or its samples if the pipeline makes no batches.

    ``state_dict()`` is the position of this loop.
    """

    def __init__(self, run: Run, world: Callable[[], World]) -> None:
        self.begun = False
        """Whether it has an epoch, as it has from the first batch on."""
        self.epoch = -1
        """The epoch."""
        self.ended = False
        """Whether it has ended."""
        self.handed_out = 0
        """Batches or samples so far."""
        self._run, self._find_world = run, world
        self._loader: _pelton.Loader | None = None
        self._taking = threading.Lock()
        self.mark = _Mark(self)

    def _claim(self, given: Mapping[str, Any] | None = None) -> None:
        self._world, self._worker = self._find_world(), this_worker()
        if self._run.peers and self._worker is not None:
            raise ConfigurationError(
                ".peers() reads in the process that trains, whose threads read ahead; give the DataLoader num_workers=0"
            )
        part = (0, 1) if self._run.is_pass else None
        if self._worker is not None:
            part = (self._worker.number, self._worker.workers)
        self._share = ((self._world.rank, self._world.size), part)
        if given is None and self._worker is None:
            _load_positions_of_lightning()
        self.epoch, state = self._run.claim(self, self._world, given)
        self.begun = True
        self._begin(state)

    def _begin(self, state: Mapping[str, Any] | None) -> None:
        self._from = None if state is None else dict(state)
        # Samples of the batch that is yielded one by one: how many were, all, and the state before them.
        self._taken, self._samples, self._before = 0, Samples(_NOTHING), self._from
        # Whether the last batch was the last of its epoch, and which step it was.
        self._ended_epoch, self._step = bool(self._from and self._from.get(_OVER)), -1
        self.ended, self.handed_out, self.mark.left, self._loader = False, 0, None, None

    def __next__(self) -> T:
        if not self._taking.acquire(blocking=False):
            raise RuntimeError(
                "another thread is taking a batch from this iterator; give each thread its own, or take turns"
            )
        try:
            if self.ended:
                raise StopIteration
            if not self.begun:
                self._claim()
            made: T = self._next_batch() if self._run.batched else self._next_sample()
        except KeyboardInterrupt:
            self._run.interrupt(self)
            raise
        except BaseException:
            self.close()
            raise
        finally:
            self._taking.release()
        run = self._run
        with run.lock:
            run.streak = run.streak + 1 if run.recent is self.mark else 1
            run.recent = self.mark
        self.handed_out += 1
        if self._worker is not None:
            run.told.note_worker()
        return made

    def _next_sample(self) -> Any:
        while self._taken == len(self._samples):
            self._before = json.loads(self._running().state())
            skipped = self._skipped() if self.handed_out == 0 and self._taken == 0 else 0
            batch = self._next_batch()
            if not isinstance(batch, Batch):
                raise ConfigurationError("map_batches needs batches; call .batch(examples) before it")
            self._taken, self._samples = skipped, Samples(batch)
        self._taken += 1
        self._run.last_examples = 1
        return self._samples[self._taken - 1]

    def _next_batch(self) -> Any:
        if self._ends_behind():
            self._end()
            raise StopIteration
        loader = self._running()
        with self._run.causes():
            head = loader.next()
        if head is None:  # it was closed, perhaps by another thread
            raise StopIteration
        batch, self._ended_epoch = from_native(head)
        self._step, self._run.last_examples = batch.step, len(batch.ids)
        with self._run.lock:
            self._run.taken += 1
        fill = self._run.fill
        made: Any = batch if fill is None else fill(batch)
        for function in self._run.maps:
            made = function(made)
        return made

    def _ends_behind(self) -> bool:
        """Whether this loop has yielded all of its steps."""
        if self._ended_epoch:
            return True
        if self._worker is None and self._loader is not None:
            return False
        steps = self._run.native.steps(self.epoch)
        if self._worker is None:
            return steps == 0
        first = (self._from or {}).get("step", 0) if self._step < 0 else self._step + 1
        behind = first + (self._worker.number - first) % self._worker.workers
        return behind >= steps

    def _running(self) -> _pelton.Loader:
        if self._loader is None:
            run = self._run
            if self._from is None or self._from["step"] == 0:
                self._loader = run.unpark((self.epoch, self._share))
            if self._loader is None:
                for pool in run.pools:
                    pool.start()
                state = None
                if self._from is not None:
                    self._skipped()
                    state = _of_loader(self._from)
                ranks = connect(self._world) if run.peers else None
                self._loader = run.native.loader(self.epoch, self._share, state, ranks)
            if self.ended:  # meanwhile, by another thread
                self._loader.close()
        return self._loader

    def _skipped(self) -> int:
        """Samples of the first step that were yielded before the state was taken."""
        samples, ranks = (self._from or {}).get(_SAMPLES, (0, self._world.size))
        if ranks != self._world.size:
            raise StateError(
                f"the state is within a step of {ranks} ranks, and this run has {self._world.size}; resume with {ranks} ranks, "
                "or use .batch(), which allows any number of ranks"
            )
        return int(samples)

    def state_dict(self) -> dict[str, Any]:
        """The position of this loop, after everything yielded so far."""
        if self.mark.left is not None:
            return self.mark.left[0]
        if not self.begun and this_worker() is not None:
            # Its epoch is that of the other workers, even if another comes next here.
            self._claim()
        if not self.begun:
            return self._run.coming()
        if self._loader is None:
            return self._run.beginning(self.epoch) if self._from is None else self._from
        return self._within() or self._after(self._loader.state())

    def _within(self) -> dict[str, Any] | None:
        """The position between the samples of a batch; ``None`` after all of them."""
        if self._before is None or self._taken == len(self._samples):
            return None
        return {**self._before, _SAMPLES: [self._taken, self._world.size]}

    def _after(self, native: str) -> dict[str, Any]:
        """The position after the last batch of the native loader."""
        state: dict[str, Any] = json.loads(native)
        return {**state, **({_OVER: True} if self._worker is not None and self._ended_epoch else {})}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resumes after the last batch that was yielded when the state was taken."""
        self.close()
        self._run.check(state)
        self._claim(state)

    def meters(self) -> tuple[str, str] | None:
        """Counters of its loader and the verdict; ``None`` before it has a loader."""
        if self.mark.left is not None:
            return self.mark.left[1]
        return None if self._loader is None else self._loader.meters()

    def _end(self) -> None:
        """Ends after the last batch; the loader has started the next epoch."""
        loader, behind = self._loader, self._run.beginning(self.epoch + 1)
        meters = None if loader is None else loader.meters()
        if self._worker is not None:
            self._leave({**behind, _OVER: True}, meters)
            if loader is not None:
                loader.close()
        elif loader is None:
            self._leave(behind)
            left_out = self._run.native.left_out(self.epoch)
            if left_out:
                warnings.warn(f'an epoch has no batches: last="drop" drops all {left_out} examples', stacklevel=5)
        else:
            self._leave(json.loads(loader.state()), meters)
            self._run.park((loader, (self.epoch + 1, self._share)))

    def close(self) -> None:
        """Ends the loop at its current position, and its threads. A thread that waits for its next batch finds that it ended."""
        if self.ended or not self.begun:
            self.ended = True
        elif (loader := self._loader) is None:
            self._leave(self.state_dict())
        else:
            self.ended = True
            left = loader.close()
            if left is not None:
                self._leave(self._within() or self._after(left[0]), left[1])

    def _leave(self, state: dict[str, Any], meters: tuple[str, str] | None = None) -> None:
        self.mark.left = (state, meters)
        self.ended, self._loader = True, None

    # At the end of a program, names of modules are gone, and so are loops.
    def __del__(self, own: Callable[[], int] = os.getpid, ends: Callable[[], bool] = sys.is_finalizing) -> None:
        if getattr(self, "_run", None) is not None and not ends() and self._run.process == own():
            self.close()


def _load_positions_of_lightning() -> None:
    """Has a trainer of Lightning that resumes load the positions of its loaders.

    It does so when it makes them. Where ``configure_optimizers`` asks for the number of steps, that is before it has read the
    checkpoint, and the positions are left over.
    """
    frame = sys._getframe(2) if {"lightning", "pytorch_lightning"} & sys.modules.keys() else None
    while frame is not None:
        if str(frame.f_globals.get("__name__")).startswith(("lightning.", "pytorch_lightning.")):
            loop = frame.f_locals.get("self")
            if getattr(loop, "_combined_loader_states_to_load", None):
                loop._load_combined_loader_states()  # type: ignore[union-attr]
                return
        frame = frame.f_back


_runs: WeakSet[Run] = WeakSet()
_ending = False


def _end_all() -> None:
    """Ends all threads before the interpreter does, since they call its functions."""
    global _ending
    _ending = True
    for run in list(_runs):
        if run.process == os.getpid():
            run.source.interrupt()
            for pool in run.pools:
                pool.end()
            for loop in list(run.loops):
                loop.close()
            run.park(None)
    end_all()


atexit.register(_end_all)
