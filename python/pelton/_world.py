"""Which of several processes this one is."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import socket
import sys
import time
import warnings
from multiprocessing.context import get_spawning_popen
from typing import Any, NamedTuple

from . import _pelton


class World(NamedTuple):
    """This process among those that train together."""

    rank: int
    size: int
    known_by: str
    """What says so, for people."""

    def __str__(self) -> str:
        return f"rank {self.rank} of {self.size}, by {self.known_by}"


ALONE = World(0, 1, "default")
TORCH = "torch.distributed"

# From the innermost launcher to the outermost: torchrun, Ray Train and Lightning; Open MPI; MPICH and its relatives; and
# Slurm. Its variables count only inside a step: a batch script has those of its allocation, but runs once.
_LAUNCHERS = [
    ("RANK", "WORLD_SIZE"),
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    ("PMI_RANK", "PMI_SIZE"),
    ("SLURM_PROCID", "SLURM_STEP_NUM_TASKS"),
]
_REMEDY = "correct them, or name the rank with .shard(rank, world_size)"

_told: set[World] = set()


def find_world(inherited: World | None = None) -> World:
    """This process's rank: from ``torch.distributed`` if it is initialised, else from the parent process, else from
    a launcher's environment variables.

    Warns once about a rank that only the environment states, since a variable may be left over.

    Raises ``ValueError`` for variables that contradict each other.
    """
    world = _of_torch() or inherited
    if world is None:
        world = _of_environment()
        if world.size > 1 and world not in _told:
            _told.add(world)
            warnings.warn(f"this process reads its share of the data as {world}; .shard(0, 1) reads all of it", stacklevel=5)
    return world


def ranks_here() -> int:
    """Ranks that share this machine, as far as their launcher says."""
    said = os.environ.get("LOCAL_WORLD_SIZE") or os.environ.get("OMPI_COMM_WORLD_LOCAL_SIZE") or ""
    return max(1, int(said)) if said.isdigit() else 1


def handed_on() -> World | None:
    """The rank to pass to a process that this one starts, such as a worker of a ``DataLoader``."""
    return _of_torch() if get_spawning_popen() is not None else None


def compare(key: str, world: World, own: dict[str, Any]) -> tuple[World, dict[str, Any]] | None:
    """The value that another rank of ``torch.distributed`` stored under this key, if it differs; ``None`` if it is
    the same or missing. Does not wait."""
    store = _store() if world.known_by == TORCH else None
    if store is None:
        return None
    if store.add(f"pelton/{key}/told", 1) == 1:
        store.set(f"pelton/{key}", json.dumps([world.rank, own]))
        return None
    # The first process to count stores its values right away, so this wait is short.
    rank, told = json.loads(store.get(f"pelton/{key}"))
    return None if told == own else (world._replace(rank=rank), told)


def _store() -> Any:
    """The store of ``torch.distributed``, if it is initialised."""
    if _of_torch() is None:
        return None
    return sys.modules["torch.distributed.distributed_c10d"]._get_default_store()


# The key of the exception that ended the first rank.
_ENDED = "pelton/ended"
# How long ranks wait for one another.
_WITHIN = 120.0
_connected: dict[World, _pelton.Ranks] = {}


def connect(world: World) -> _pelton.Ranks:
    """The ranks of this world, connected once in a process: through the store of ``torch.distributed`` where that says who
    they are, otherwise as the launcher says. All ranks call it.

    Raises ``ConfigurationError`` for ranks that nothing connects, and ``ConnectionError`` if some do not come.
    """
    if world not in _connected:
        _connected[world] = _connect(world)
    return _connected[world]


def _connect(world: World) -> _pelton.Ranks:
    if world.size == 1:
        return _pelton.Ranks.alone()
    if world.known_by == TORCH:
        return _by_store(world)
    ranks = _pelton.Ranks.launched()
    if ranks is None or ranks.size != world.size:
        raise _pelton.ConfigurationError(
            f"this process is {world}, but nothing says how the ranks find one another, as .peers() needs; call "
            "torch.distributed.init_process_group first, or start the program with mpiexec or torchrun"
        )
    return ranks


def _by_store(world: World) -> _pelton.Ranks:
    from torch.distributed.distributed_c10d import _get_default_store

    store, address = _get_default_store(), own_address()
    listener = _pelton.Listener(address)
    own = [address, listener.port, socket.gethostname(), secrets.randbits(128)]
    store.set(f"pelton/ranks/{world.rank}", json.dumps(own))
    keys = [f"pelton/ranks/{rank}" for rank in range(world.size)]
    until = time.monotonic() + _WITHIN
    # Without waiting inside, so that signals are heard.
    while not store.check(keys):
        if time.monotonic() > until:
            missing = [str(rank) for rank, key in enumerate(keys) if not store.check([key])]
            raise ConnectionError(
                f"rank {world.rank} waited {_WITHIN:.0f} s for rank {', '.join(missing)} to begin a loop over a pipeline with "
                ".peers(); all ranks must"
            )
        time.sleep(0.01)
    every = [json.loads(store.get(key)) for key in keys]
    addresses = [(host, port) for host, port, _, _ in every]
    return _pelton.Ranks.connected((listener, world.rank, addresses, every[0][3]), [name for _, _, name, _ in every])


def _tell_others(raised: BaseException) -> None:
    store, world = _store(), _of_torch()
    if store is None or world is None:
        return
    own = f"rank {world.rank} on {socket.gethostname()} ended by {type(raised).__name__}: {raised}"
    first = store.compare_set(_ENDED, "", own).decode()
    if first != own:
        sys.stderr.write(f"pelton: the first to fail was {first}\n")


def end_all() -> None:
    """Ends this rank's part in all worlds: after an exception at once, with it as the reason."""
    raised = getattr(sys, "last_value", None)
    if raised is not None:
        # The exceptions of the others only say that a connection was lost; or the store is lost with its process.
        with contextlib.suppress(Exception):
            _tell_others(raised)
    reason = None if raised is None else f"{type(raised).__name__}: {raised}"
    for ranks in _connected.values():
        ranks.end(reason)


def own_address() -> str:
    """The address of the interface towards the rank that others look for; nothing is sent."""
    master = os.environ.get("MASTER_ADDR", "localhost")
    family, kind, protocol, _, address = socket.getaddrinfo(master, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as towards:
        towards.connect(address)
        return str(towards.getsockname()[0])


def _of_torch() -> World | None:
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return World(distributed.get_rank(), distributed.get_world_size(), TORCH)


def _of_environment() -> World:
    found: list[tuple[World, str]] = []
    for names in _LAUNCHERS:
        if names[0].startswith("SLURM") and "SLURM_STEP_ID" not in os.environ:
            continue
        rank, size = (os.environ.get(name) for name in names)
        if rank is None and (size is None or size == "1"):
            continue
        said = " and ".join(f"{name}={value}" for name, value in zip(names, (rank, size)) if value is not None)
        if rank is None or size is None:
            missing = names[0] if rank is None else names[1]
            raise ValueError(
                f"the environment has {said} but no {missing}, so this process's rank is unknown; call "
                "torch.distributed.init_process_group first, or name the rank with .shard(rank, world_size)"
            )
        if not (rank.isdigit() and size.isdigit() and int(rank) < int(size)):
            raise ValueError(f"the environment has {said}, and there is no such rank; {_REMEDY}")
        found.append((World(int(rank), int(size), " and ".join(names)), said))
    if not found:
        return ALONE
    (world, said), *outer = found
    # One launcher may start another, which starts at least as many processes; torchrun sets a variable if it did.
    for other, also in [] if "TORCHELASTIC_RUN_ID" in os.environ else outer:
        if other.size > world.size or (other.size == world.size and other.rank != world.rank):
            raise ValueError(f"the environment has {said}, but also {also}; {_REMEDY}")
    return world
