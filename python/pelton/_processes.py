"""Custom functions in worker processes, for functions that hold Python's lock.

A native thread that calls a function takes an idle worker, hands it the sample and waits without Python's lock. Each
worker runs an ordinary `Caller`, so what comes out does not depend on where a function runs. Small samples travel in a
message of a socket, others in a file in memory, written and read without the lock. It is no file of ``/dev/shm``, which
containers limit to 64 MB; its size is that of the largest sample so far.
"""

from __future__ import annotations

import importlib
import itertools
import os
import pickle
import queue
import signal
import socket
import sys
import tempfile
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from multiprocessing import connection, get_context, parent_process, process, reduction, resource_tracker
from typing import Any

import numpy as np

from . import _pelton
from ._stage import Caller, Calls, Chain, Function, Made, Number

ConfigurationError = _pelton.ConfigurationError

_spawn = get_context("spawn")

# The name of workers, and the exit status of one that would start the program's loops itself.
_NAME = "pelton map"
_UNGUARDED = 86

# Bytes of a message; longer ones go through memory. Sockets take at least this in one piece.
_MOST_INLINE = 32 << 10
# Bytes of arrays that are handed over in one with those of other records.
_MOST_STACKED = 16 << 10
# How often a wait checks that the other process is alive, and how long a worker may take to end by itself.
_LOOK_S = 1.0
_GRACE_S = 0.5

# The program's main module as pickle spells it.
_MAIN = b"\x8c\x08__main__"


def checked(function: Function, processes: int | None) -> int:
    """The worker processes of a function, 0 for none. Refuses a function that cannot be sent to them."""
    if processes is None:
        return 0
    if isinstance(processes, bool) or not isinstance(processes, (int, np.integer)) or processes < 1:
        raise ConfigurationError(
            f"`processes` is {processes!r}; give a whole number from 1, or leave it out to call the function in threads"
        )
    try:
        pickled(function)
    except Exception as error:
        name = getattr(function, "__qualname__", repr(function))
        remedy = "" if find_spec("cloudpickle") else ", or install cloudpickle"
        raise ConfigurationError(
            f"`{name}` cannot be sent to worker processes ({error}); define it at the top level of a module{remedy}"
        ) from error
    return int(processes)


def grouped(maps: Sequence[tuple[Function, int, int]]) -> list[tuple[int, int, list[Function]]]:
    """Functions in sequence, those together that the same worker processes call; each with its number of processes and the
    most records that it takes at once."""
    groups: list[tuple[int, int, list[Function]]] = []
    for function, count, batched in maps:
        if groups and groups[-1][:2] == (count, batched) and not batched:
            groups[-1][2].append(function)
        else:
            groups.append((count, batched, [function]))
    return groups


def caller_of(maps: Sequence[tuple[Function, int, int]], pools: list[Processes], before: Sequence[Calls] = ()) -> Chain:
    """A caller of functions after ``before``; adds their worker processes to ``pools``."""
    callers: list[Calls] = [*before]
    groups = grouped(maps)
    for at, (count, batched, functions) in enumerate(groups, start=1):
        caller = Caller(functions, batched, last=at == len(groups))
        if count > 0:
            pools.append(Processes(caller, count))
        callers.append(pools[-1] if count > 0 else caller)
    return Chain(callers, max([64, *(batched for _, batched, _ in groups)]))


def pickled(thing: Any, buffers: list[pickle.PickleBuffer] | None = None) -> bytes:
    """What another process can load: by pickle, or by cloudpickle where that is needed and installed. Arrays go to
    ``buffers`` if it is given."""
    callback = None if buffers is None else buffers.append
    try:
        made = pickle.dumps(thing, 5, buffer_callback=callback)
        if _MAIN not in made or _workers_have_main():
            return made
        failure: Exception = pickle.PicklingError("it was defined in a notebook or at a prompt")
    except Exception as error:
        failure = error
    try:
        cloudpickle = importlib.import_module("cloudpickle")
    except ImportError:
        raise failure from None
    if buffers is not None:
        buffers.clear()
    data: bytes = cloudpickle.dumps(thing, 5, buffer_callback=callback)
    return data


def _workers_have_main() -> bool:
    """Whether processes that are spawned import the program's main module."""
    main = sys.modules["__main__"]
    name = getattr(getattr(main, "__spec__", None), "name", None)
    if name is not None:
        return not f".{name}".endswith(".__main__")
    path = getattr(main, "__file__", None)
    return path is not None and os.path.splitext(os.path.basename(path))[0] != "ipython"


class Processes:
    """A caller that has worker processes call its functions, each for one thread at a time.

    They start when a loop does, or one by one where there is no loop.
    """

    def __init__(self, caller: Caller, count: int) -> None:
        own = process.current_process()
        # A worker that imports the program may get here too; `start` stops it.
        if own.daemon and not getattr(own, "_inheriting", False):
            raise ConfigurationError(
                "`processes` is for the program's own process, and this is a worker process, which cannot start others: iterate the "
                "pipeline without a DataLoader, or leave `processes` out"
            )
        main = sys.modules["__main__"]
        path = getattr(main, "__file__", None)
        if getattr(main, "__spec__", None) is None and path and not os.path.exists(os.path.join(process.ORIGINAL_DIR or "", path)):
            raise ConfigurationError(f"worker processes read the program's file, and there is no file {path}; write the program to one")
        functions = pickled(caller)
        self._workers = [_Worker(functions) for _ in range(count)]
        # The most recently idle worker comes first, so that one thread needs only one worker.
        self._idle: queue.LifoQueue[_Worker] = queue.LifoQueue()
        for worker in self._workers:
            self._idle.put(worker)
        weakref.finalize(self, _end, self._workers, os.getpid()).atexit = False

    def many(self, samples: Sequence[Made], own_label: bool, records: Sequence[int], keys: Sequence[int]) -> list[Made]:
        worker = self._idle.get()
        try:
            try:
                return worker.call(samples, own_label, records, keys)
            except ConfigurationError:
                raise
            except Exception:
                if len(samples) == 1 or worker.ends:
                    raise
            # Only those fail that make it fail.
            made: list[Made] = []
            for sample, record, key in zip(samples, records, keys):
                try:
                    made += worker.call([sample], own_label, [record], [key])
                except ConfigurationError:
                    raise
                except Exception as error:
                    made.append(error)
            return made
        finally:
            self._idle.put(worker)

    def start(self) -> None:
        """Starts the workers that are not running and waits until they can be called.

        Errors: a worker cannot load the functions, or does not start.
        """
        workers = []
        try:
            with suppress(queue.Empty):
                while True:
                    workers.append(self._idle.get_nowait())
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.wait_until_ready()
        except ConfigurationError:
            # The other workers report the same.
            _end(workers, os.getpid(), 0)
            raise
        finally:
            for worker in reversed(workers):
                self._idle.put(worker)

    @contextmanager
    def stopped(self, grace_s: float = _GRACE_S) -> Iterator[None]:
        """Ends the workers, and has calls fail meanwhile; they start again when they are needed."""
        try:
            self.end(grace_s)
            yield
        finally:
            for worker in self._workers:
                worker.ends = False

    def end(self, grace_s: float = _GRACE_S) -> None:
        """Ends the workers for good. One that is inside a function after the grace is killed."""
        for worker in self._workers:
            worker.ends = True
        _end(self._workers, os.getpid(), grace_s)


def _end(workers: list[_Worker], owner: int, grace_s: float = _GRACE_S) -> None:
    """Ends workers, where this is the process that started them."""
    if os.getpid() == owner:
        running = [each for each in [worker.hang_up() for worker in workers] if each is not None]
        deadline = time.monotonic() + grace_s
        for each in running:
            _reap(each, deadline - time.monotonic())


def _reap(running: Any, grace_s: float) -> int | None:
    """The exit code of a process; ``None`` where it does not end by itself, and is killed."""
    running.join(max(grace_s, 0))
    code: int | None = running.exitcode
    running.kill()
    running.join()
    # Frames of exceptions may keep it.
    with suppress(ValueError):
        running.close()
    return code


def _closing() -> RuntimeError:
    return RuntimeError("the pipeline is being closed")


class _Worker:
    """A worker process, or none yet, as the threads that call it see it."""

    def __init__(self, functions: bytes) -> None:
        self._functions = functions
        self._process: Any = None
        self._channel: _Channel | None = None
        self._is_ready = False
        self._launching = threading.Lock()
        # Whether starting processes is disabled.
        self.ends = False

    def start(self) -> None:
        """Starts a process if none is running."""
        own = process.current_process()
        if getattr(own, "_inheriting", False) and own.name == _NAME:
            os._exit(_UNGUARDED)
        if self.ends:
            raise _closing()
        running = self._process
        if running is not None and not running.is_alive():
            self._forget()
        if self._process is None:
            # In a thread, because Ctrl-C can interrupt the main thread anywhere.
            with ThreadPoolExecutor(1) as thread:
                thread.submit(self._launch).result()

    def _launch(self) -> None:
        with self._launching:
            if self._process is not None:
                return
            ours, theirs = _channels()
            ours.send(None, [self._functions])
            # Otherwise it unblocks the signal when it starts.
            resource_tracker.ensure_running()
            # Daemons, so that Python ends them if nothing else does.
            made = _spawn.Process(target=_work, args=(theirs, "torch" in sys.modules), name=_NAME, daemon=True)
            # Ctrl-C goes to all processes of a terminal; one that is starting would print a traceback.
            before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
            try:
                made.start()
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, before)
            self._is_ready, self._channel, self._process = False, ours, made
        if self.ends:
            self._forget(0)
            raise _closing()

    def wait_until_ready(self) -> None:
        """Waits until the process has loaded the functions."""
        if self._is_ready:
            return
        running, channel = self._process, self._channel
        if channel is None:
            raise _closing()
        try:
            failure, _ = channel.receive(running.is_alive)
        except EOFError:
            code = self._forget()
            # Frames of exceptions may keep it.
            channel.close()
            if self.ends:
                raise _closing() from None
            raise ConfigurationError(
                "a worker process starts the program again and comes to a loop in it; put what the program does under "
                '`if __name__ == "__main__":`, or its function and loop into different files'
                if code == _UNGUARDED
                else f"a worker process ended with {_told(code)} before it could load the functions; what it printed may tell why"
            ) from None
        if failure is not None:
            self._forget()
            error = _raised(failure)
            raise ConfigurationError(
                f"a worker process cannot load the functions ({type(error).__name__}: {error}); define them in a module that it can import"
            ) from error
        self._is_ready = True

    def call(self, samples: Sequence[Made], own_label: bool, records: Sequence[int], keys: Sequence[int]) -> list[Made]:
        """Calls the functions in the process, which is started if it does not run."""
        self.start()
        self.wait_until_ready()
        running, channel = self._process, self._channel
        if channel is None:
            raise _closing()
        # What failed before stays here.
        places = [at for at, sample in enumerate(samples) if isinstance(sample, dict)]
        head, parts = _taken_apart([samples[at] for at in places])
        try:
            channel.send((head, own_label, [records[at] for at in places], [keys[at] for at in places]), parts)
            (failure, head), parts = channel.receive(running.is_alive)
        except (EOFError, ConnectionError):
            code = self._forget()
            # Frames of exceptions may keep it.
            channel.close()
            if self.ends:
                raise _closing() from None
            raise RuntimeError(
                f"the worker process ended with {_told(code)} while a function had record {records[0]}"
            ) from None
        except BaseException:
            # Its answer may still come, and would be mistaken for that to another sample.
            self._forget(0)
            channel.close()
            raise
        if failure is not None:
            raise _raised(failure)
        made = list(samples)
        for at, one in zip(places, _put_together(head, parts)):
            made[at] = _raised(one) if isinstance(one, tuple) else one
        return made

    def hang_up(self) -> Any:
        """Has the process end; returns it, or none."""
        running, channel = self._process, self._channel
        self._process = self._channel = None
        if channel is not None:
            channel.shut()
        return running

    def _forget(self, grace_s: float = _GRACE_S) -> int | None:
        """Ends the process, and returns its exit code as `_reap` does."""
        running = self.hang_up()
        if running is None:
            return None
        return _reap(running, grace_s)


class _Channel:
    """An end of a connection of two processes that send in turn: a socket, and memory for what is long."""

    def __init__(self, end: socket.socket, memory: int) -> None:
        self._end, self._memory = end, open(memory, "r+b", buffering=0)
        end.settimeout(_LOOK_S)

    def __reduce__(self) -> tuple[Any, ...]:
        return _inherited, (self._end, reduction.DupFd(self._memory.fileno()))

    def send(self, head: Any, parts: Sequence[Any]) -> None:
        """Sends ``head``, pickled, and bytes."""
        blob = pickle.dumps((head, [len(part) for part in parts]), 5)
        size = len(blob).to_bytes(8, "little")
        if len(blob) + sum(map(len, parts)) <= _MOST_INLINE:
            self._end.send(b"".join([size, blob, *parts]))
            return
        at = 0
        for part in [blob, *parts]:
            rest = memoryview(part)
            while rest:
                written = os.pwrite(self._memory.fileno(), rest, at)
                at, rest = at + written, rest[written:]
        self._end.send(size)

    def receive(self, other_lives: Callable[[], bool]) -> tuple[Any, list[bytearray]]:
        """What the other process sent. An `EOFError` if it has ended."""
        while True:
            try:
                message = self._end.recv(_MOST_INLINE + 8)
                break
            except ConnectionError:
                raise EOFError from None
            except TimeoutError:
                # A third process, forked meanwhile, may keep its end open.
                if not other_lives():
                    raise EOFError from None
        if not message:
            raise EOFError
        size = int.from_bytes(message[:8], "little")
        if len(message) == 8:
            read = self._read
        else:
            rest = memoryview(message)[8:]
            read = lambda at, size: bytearray(rest[at : at + size])  # noqa: E731
        head, sizes = pickle.loads(read(0, size))
        starts = itertools.accumulate([size, *sizes])
        return head, [read(at, size) for at, size in zip(starts, sizes)]

    def _read(self, at: int, size: int) -> bytearray:
        made = bytearray(size)
        rest = memoryview(made)
        while rest:
            count = os.preadv(self._memory.fileno(), [rest], at)
            if count == 0:
                raise EOFError
            at, rest = at + count, rest[count:]
        return made

    def close(self) -> None:
        """Closes this end, in the thread that uses it."""
        self._end.close()
        self._memory.close()

    __del__ = close

    def shut(self) -> None:
        """Has both ends find that there is nothing more, also one that waits."""
        with suppress(OSError):
            self._end.shutdown(socket.SHUT_RDWR)


def _channels() -> tuple[_Channel, _Channel]:
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    if hasattr(os, "memfd_create"):
        memory = os.memfd_create("pelton")
    else:
        # Pythons built for old systems.
        with tempfile.TemporaryFile() as file:
            memory = os.dup(file.fileno())
    return _Channel(ends[0], memory), _Channel(ends[1], os.dup(memory))


def _inherited(end: socket.socket, memory: Any) -> _Channel:
    return _Channel(end, memory.detach())


def _taken_apart(samples: list[Any]) -> tuple[bytes, list[Any]]:
    """What is pickled of samples, and what is handed over as bytes."""
    buffers: list[pickle.PickleBuffer] = []
    made = pickled(_columns(samples), buffers)
    return made, [buffer.raw() for buffer in buffers]


def _put_together(head: bytes, parts: list[bytearray]) -> list[Any]:
    samples: Any = pickle.loads(head, buffers=parts)
    if isinstance(samples, list):
        return samples
    count, columns = samples
    made: list[Any] = [{} for _ in range(count)]
    for name, kind, values in columns:
        if kind is not None:
            values = [values[i, ...] for i in range(count)] if kind is np.ndarray else map(kind, values)
        for sample, value in zip(made, values):
            sample[name] = value
    return made


def _columns(samples: list[Any]) -> Any:
    """Samples of the same fields as their number and columns, which are pickled faster; others as they are."""
    first = samples[0] if samples else None
    if len(samples) < 2 or type(first) is not dict or any(type(each) is not dict or each.keys() != first.keys() for each in samples):
        return samples
    columns: list[tuple[str, Any, Any]] = []
    for name, one in first.items():
        values: Any = [sample[name] for sample in samples]
        kind: Any = type(one)
        if any(type(value) is not kind for value in values):
            kind = None
        elif kind is Number:
            values = [int(value) for value in values]
        elif kind is np.ndarray and one.nbytes <= _MOST_STACKED and not one.dtype.hasobject:
            if all(value.shape == one.shape and value.dtype == one.dtype for value in values):
                values = np.stack(values)
            else:
                kind = None
        else:
            kind = None
        columns.append((name, kind, values))
    return len(samples), columns


class WorkerTraceback(Exception):
    """Where an exception was raised in a worker process."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f'\n"""\n{self.text}"""'


def _failure(error: BaseException) -> tuple[bytes, str]:
    """An exception for another process, and its traceback."""
    text = "".join(traceback.format_exception(type(error), error, error.__traceback__))
    try:
        made = pickled(error)
        pickle.loads(made)
    except Exception:
        made = pickle.dumps(RuntimeError(traceback.format_exception_only(type(error), error)[-1].strip()))
    return made, text


def _raised(failure: tuple[bytes, str]) -> BaseException:
    made, text = failure
    try:
        error: BaseException = pickle.loads(made)
    except Exception:
        error = RuntimeError(text.rstrip().rpartition("\n")[2])
    error.__cause__ = WorkerTraceback(text)
    return error


def _told(code: int | None) -> str:
    if code is None:
        return "its connection closed"
    if code >= 0:
        return f"exit code {code}"
    hint = ", often a sign that memory ran out" if code == -signal.SIGKILL else ""
    return f"{signal.Signals(-code).name}{hint}"


def _work(channel: _Channel, with_torch: bool) -> None:
    """What a worker process does: calls functions until the other process hangs up or ends."""
    # Neither SIG_DFL nor SIG_IGN: programs that functions start would inherit it.
    signal.signal(signal.SIGINT, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    parent = parent_process()
    assert parent is not None, "workers are started by a process"
    lives = lambda: os.getppid() == parent.pid  # noqa: E731
    threading.Thread(target=_end_after, args=(lives, parent.sentinel), daemon=True).start()
    with suppress(EOFError, ConnectionError):
        try:
            if with_torch:
                # Without workers, functions that import PyTorch when called draw its random numbers by record; so do they here.
                importlib.import_module("torch")
            _, (functions,) = channel.receive(lives)
            caller: Caller = pickle.loads(functions)
        except BaseException as error:
            channel.send(_failure(error), [])
            return
        channel.send(None, [])
        while True:
            (head, *rest), parts = channel.receive(lives)
            try:
                made = caller.many(_put_together(head, parts), *rest)
                head, parts = _taken_apart([_failure(one) if isinstance(one, BaseException) else one for one in made])
                failure = None
            except BaseException as error:
                failure, head, parts = _failure(error), None, []
            channel.send((failure, head), parts)


def _end_after(lives: Callable[[], bool], sentinel: int) -> None:
    """Ends this process after its parent, also inside a function."""
    while lives():
        connection.wait([sentinel], 5)
    os._exit(1)
