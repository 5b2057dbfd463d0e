"""Peers' memory from Python: the batches are those without it, under every launcher."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest

import pelton

BEGIN = """
import json, os, sys, warnings
import numpy as np
import pelton
warnings.simplefilter("ignore")
RANK = int(os.environ.get("RANK", os.environ.get("OMPI_COMM_WORLD_RANK", 0)))
if "torch" in sys.argv[1:]:
    import torch.distributed
    torch.distributed.init_process_group("gloo")
plain = pelton.load("rows.npz").shuffle(seed=3).batch(60)
def read(pipeline, epochs=2):
    return [[b.ids.tolist(), b["x"].sum().item(), b.step] for _ in range(epochs) for b in pipeline]
def report(found):
    with open(f"found.{RANK}", "w") as file:
        json.dump(found, file)
"""

pytestmark = pytest.mark.filterwarnings("ignore:this process reads its share")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    draw = np.random.default_rng(0)
    x = draw.normal(size=(3001, 16)).astype("f4")
    np.savez(tmp_path / "rows.npz", x=x, label=np.arange(3001) % 3)
    return tmp_path


def start(folder: Path, program: str, ranks: int, launcher: str = "variables", **more: str) -> list[subprocess.Popen[str]]:
    path = folder / "program.py"
    path.write_text(BEGIN + textwrap.dedent(program))
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    common = {**os.environ, "OMP_NUM_THREADS": "1", **more}
    command = [sys.executable, str(path), launcher]
    if launcher == "mpirun":
        if shutil.which("mpirun") is None:
            pytest.skip("SKIPPED: mpirun is not installed")
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        lines = [(["mpirun", "--oversubscribe", "-n", str(ranks), *command], root)]
    else:
        world = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "localhost", "MASTER_PORT": port}
        lines = [(command, {"RANK": str(rank), **world}) for rank in range(ranks)]
    return [
        subprocess.Popen(line, cwd=folder, env={**common, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        for line, env in lines
    ]


def finish(children: list[subprocess.Popen[str]], seconds: float = 100) -> list[str]:
    told = [child.communicate(timeout=seconds)[0] for child in children]
    assert [child.returncode for child in children] == [0] * len(children), "\n".join(told)[-4000:]
    return told


def found(folder: Path, ranks: int) -> list[list[list[object]]]:
    return [json.loads((folder / f"found.{rank}").read_text()) for rank in range(ranks)]


@pytest.mark.parametrize("launcher", ["variables", "torch", "mpirun"])
@pytest.mark.parametrize("ranks", [1, 3])
def test_batches_are_those_without_it(ranks: int, launcher: str, folder: Path) -> None:
    if launcher == "torch" and ranks == 1:
        pytest.skip("as without it")
    program = """
    own = read(plain)
    for memory in (None, "1/4", 20_000):
        assert read(plain.peers(memory)) == own, memory
    # Two at once, as training and validation are, and one that is broken off.
    first, second = plain.peers(), pelton.load("rows.npz").batch(100).peers("1/2")
    for b in first:
        if b.step == 3: break
    state = first.state_dict()
    assert read(second, 1) == read(pelton.load("rows.npz").batch(100), 1)
    again = plain.peers("1/3")
    again.load_state_dict(state)
    assert read(again, 2) == own[4:len(own)]
    # Parts of a batch go to those that hold the records; all batches stay the same.
    report([b.ids.tolist() for b in plain.peers(near=True)])
    """
    finish(start(folder, program, ranks, launcher))
    plan = pelton.load(folder / "rows.npz").shuffle(seed=3).batch(60).shard(0, 1)
    for batch, *shares in zip(plan, *found(folder, ranks), strict=True):
        assert sorted(batch.ids.tolist()) == sorted(sum(shares, []))


def test_opportunistic_uses_every_record_once(folder: Path) -> None:
    program = """
    pipeline = plain.peers("1/2", mode="opportunistic", unit_bytes=1000)
    report([[b.ids.tolist() for b in pipeline] for _ in range(2)])
    """
    finish(start(folder, program, 3))
    for epoch in range(2):
        shares = [ids for rank in found(folder, 3) for ids in rank[epoch]]
        assert sorted(sum(shares, [])) == list(range(3001))


def test_a_rank_that_fails_is_named(folder: Path) -> None:
    program = """
    for b in plain.peers():
        if RANK == 1 and b.step == 5: raise ValueError("the scales are broken")
    for _ in range(1000):
        for b in plain.peers(): pass
    """
    children = start(folder, program, 3)
    began = time.monotonic()
    told = [child.communicate(timeout=60)[0] for child in children]
    assert time.monotonic() - began < 30
    assert [child.returncode for child in children] == [1, 1, 1]
    for rank in (0, 2):
        assert "rank 1 failed: ValueError: the scales are broken" in told[rank], told[rank]


def test_ctrl_c_ends_the_wait_for_others(folder: Path) -> None:
    program = """
    import time
    if RANK == 1: time.sleep(30)
    print("waits", flush=True)
    read(plain.peers())
    """
    for launcher in ("variables", "torch"):
        children = start(folder, program, 2, launcher)
        assert children[0].stdout is not None
        assert children[0].stdout.readline() == "waits\n"
        time.sleep(1)
        children[0].send_signal(signal.SIGINT)
        told = children[0].communicate(timeout=10)[0]
        assert "KeyboardInterrupt" in told
        children[1].kill()
        children[1].communicate()


def test_what_cannot_be_is_refused(folder: Path) -> None:
    rows = pelton.load(folder / "rows.npz").batch(60)
    for memory in ("3/2", "0/4", "1/0", "much", 0, -1):
        with pytest.raises(pelton.ConfigurationError, match="memory"):
            rows.peers(memory)
    with pytest.raises(pelton.ConfigurationError, match="ordered, opportunistic"):
        next(iter(rows.peers(mode="random")))
    with pytest.raises(pelton.ConfigurationError, match="how the ranks find one another"):
        next(iter(rows.peers().shard(0, 2)))
    torch = pytest.importorskip("torch")
    loader = torch.utils.data.DataLoader(rows.peers(), batch_size=None, num_workers=1)
    with pytest.raises(Exception, match="num_workers=0"):
        next(iter(loader))
