"""Several machines: namespaces with their own network and disk. ``PELTON_HOSTS=all`` also runs what takes long."""

from __future__ import annotations

import contextlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hosts import DISK, PELTON, Hosts, Process, reason_for_none

ALL = os.environ.get("PELTON_HOSTS") == "all"
REASON = reason_for_none()
pytestmark = pytest.mark.skipif(REASON is not None, reason=REASON or "")

LINEAR = ["train", "linear", "rows.svm", "--out", "run"]


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    with Hosts(3, tmp_path) as hosts:
        yield hosts


def write_rows(folder: Path, rows: int = 3000, seed: int = 1) -> None:
    draw = random.Random(seed)
    lines = []
    for _ in range(rows):
        x = [draw.gauss(0, 1) for _ in range(6)]
        y = "+1" if sum(x[:3]) + draw.gauss(0, 1) > 0 else "-1"
        lines.append(y + "".join(f" {i + 1}:{v:.4f}" for i, v in enumerate(x)) + "\n")
    (folder / "rows.svm").write_text("".join(lines))


def write_text(folder: Path) -> None:
    draw = random.Random(2)
    words = [f"w{i}" for i in range(50)]
    lines = (" ".join(draw.choices(words, k=draw.randint(3, 20))) + "\n" for _ in range(600))
    (folder / "text.txt").write_text("".join(lines))


def summary(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "run/summary.json").read_text())
    return found


def finish(ranks: list[Process], code: int = 0) -> None:
    for process in ranks:
        assert process.wait() == code, process.output


@pytest.mark.parametrize(
    "line",
    [
        LINEAR,
        ["train", "image", "demo:images:2000", "--model", "mlp", "--epochs", "1", "--cache", "peers", "--out", "run"],
        ["train", "language", "text.txt", "--parallel", "model", "--epochs", "2", "--layers", "3", "--hidden", "20", "--out", "run"],
        ["train", "classify", "demo:classes:300:4:16", "--head", "knn:10:0.6", "--epochs", "2", "--out", "run"],
    ],
    ids=lambda line: line[1],
)
def test_hosts_train_the_model_that_threads_do(line: list[str], hosts: Hosts, tmp_path: Path) -> None:
    """To the bit: sums are in the order of the ranks on every transport."""
    alone = tmp_path / "alone"
    alone.mkdir()
    for folder in (alone, *map(hosts.disk, range(3))):
        write_rows(folder)
        write_text(folder)
    finish(hosts.start_ranks(PELTON, *line))
    subprocess.run([PELTON, *line, "--ranks", "3"], cwd=alone, check=True, capture_output=True)
    models = [folder / "run/model.safetensors" for folder in (alone, hosts.disk(0))]
    assert models[0].read_bytes() == models[1].read_bytes()
    # Others write nothing but what they keep of the data.
    assert not (hosts.disk(1) / "run").exists()


def environment(path: Path) -> dict[str, str]:
    """Variables for a launcher whose programs are there."""
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return {**root, "PATH": f"{path.parent}:/usr/bin:/bin:/usr/sbin:/sbin"}


def recipe(name: str, hosts: Hosts) -> list[Process]:
    """Starts ``train linear`` on three hosts as that launcher is used; the first process is that of rank 0's output."""
    command = [PELTON, *LINEAR, "--overwrite"]
    if name == "variables":
        return hosts.start_ranks(*command)
    if name == "torchrun":
        torchrun = Path(sys.executable).with_name("torchrun")
        if not torchrun.exists():
            pytest.skip("SKIPPED: torchrun is not installed")
        nodes = ["--nnodes", 3, "--nproc-per-node", 1, "--master-addr", "h0", "--master-port", 29500, "--no-python"]
        return [hosts.start(i, torchrun, *nodes, "--node-rank", i, *command) for i in range(3)]
    if name == "slurm":
        step = {"SLURM_STEP_ID": 0, "SLURM_STEP_NUM_TASKS": 3, "MASTER_ADDR": "h0", "MASTER_PORT": 29600}
        return [hosts.start(i, *command, SLURM_PROCID=i, **step) for i in range(3)]
    return [mpiexec(name, hosts, *command)]


def mpiexec(name: str, hosts: Hosts, *command: object, **variables: object) -> Process:
    """Starts a command on three hosts under the system's MPI, or one that ./test mpi has installed."""
    folder = Path(os.environ.get("PELTON_MPI_FOLDER", "/nowhere")) / name / "bin"
    program = folder / "mpiexec" if name != "system" else Path(shutil.which("mpirun") or "/nowhere")
    if not program.exists():
        pytest.skip(f"SKIPPED: MPI ({name}) is not installed; ./test mpi installs it")
    shell = hosts.base / "rsh"
    net = "10.88.0.0/24"
    open_mpi = ["--host", "h0,h1,h2", "--mca", "btl_tcp_if_include", net]
    # Other hosts get the variables that are named.
    named = [word for key, value in variables.items() for word in ("-x", f"{key}={value}")]
    if name == "system":
        flags = [*open_mpi, *named, "--mca", "plm_rsh_agent", shell, "--mca", "oob_tcp_if_include", net]
    elif name == "openmpi":
        flags = [*open_mpi, *named, "--prtemca", "plm_ssh_agent", shell, "--prtemca", "oob_tcp_if_include", net]
    else:
        flags = ["-launcher", "ssh", "-launcher-exec", shell, "-hosts", "h0,h1,h2", *(["-iface", "veth0"] if name == "mpich" else ["-ppn", 1])]
        flags += [word for key, value in variables.items() for word in ("-genv", key, value)]
    return hosts.start(0, program, *flags, "-n", 3, *command, I_MPI_ROOT=folder.parent, **environment(program))


@pytest.mark.parametrize("name", ["variables", "torchrun", "slurm", "system", "mpich", "impi-rt", "openmpi"])
def test_recipes_train_the_same_model(name: str, hosts: Hosts, tmp_path: Path) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    for folder in (alone, *map(hosts.disk, range(3))):
        write_rows(folder)
    finish(recipe(name, hosts))
    assert summary(hosts.disk(0))["ranks"] == 3
    subprocess.run([PELTON, *LINEAR, "--ranks", "3"], cwd=alone, check=True, capture_output=True)
    models = [folder / "run/model.safetensors" for folder in (alone, hosts.disk(0))]
    assert models[0].read_bytes() == models[1].read_bytes()


# Reads peers' memory until it is ended.
READS = ["bench", "demo:higgs:60000", "--batch", "100", "--epochs", "100000", "--cache", "peers"]


def reading(hosts: Hosts, seconds: float) -> list[Process]:
    ranks = hosts.start_ranks(PELTON, *READS, PELTON_HEARTBEAT_SECONDS=seconds, PELTON_LOG="debug")
    for rank in ranks:
        rank.wait_for("memory is ready", 60)
    time.sleep(0.5)
    return ranks


@pytest.mark.parametrize("fault", ["kill", "cut", *(["stop"] if ALL else [])])
def test_a_host_that_fails_is_named(fault: str, hosts: Hosts) -> None:
    ranks = reading(hosts, 3)
    if fault == "cut":
        hosts.cut(1)
    else:
        ranks[1].signal(signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
    for rank in (ranks[0], ranks[2]):
        assert rank.wait(30) == 1
        message = rank.output.splitlines()[-1]
        assert message.startswith("pelton: rank 1 on h1 failed: "), message


def of_host(hosts: Hosts, host: int, part: str) -> int:
    """The process on a host whose command has this part."""
    for folder in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            line = (folder / "cmdline").read_bytes().split(b"\0")
            name = os.readlink(folder / "ns/uts") if part.encode() in line[1:2] and line[0] == PELTON.encode() else ""
            if name and name == os.readlink(f"/proc/{hosts.process(host)}/ns/uts"):
                return int(folder.name)
    raise AssertionError(f"no {part} on h{host}")


@pytest.mark.parametrize("fault", ["none", "kill", *(["cut", "stop"] if ALL else [])])
@pytest.mark.parametrize("name", ["mpich", "openmpi", *(["impi-rt", "system"] if ALL else [])])
def test_peers_memory_under_mpi(name: str, fault: str, hosts: Hosts) -> None:
    epochs = "2" if fault == "none" else "100000"
    job = mpiexec(name, hosts, PELTON, *(epochs if word == "100000" else word for word in READS), PELTON_HEARTBEAT_SECONDS=5, PELTON_LOG="debug")
    if fault == "none":
        assert job.wait() == 0, job.output
        return
    job.wait_for("memory is ready", 60)
    time.sleep(1)
    victim = of_host(hosts, 1, "bench")
    if fault == "cut":
        hosts.cut(1)
    else:
        os.kill(victim, signal.SIGKILL if fault == "kill" else signal.SIGSTOP)
    if fault == "kill":
        # The launcher ends all before a rank can tell.
        assert job.wait(60) != 0
    else:
        # The launchers of Open MPI and Intel then wait for their part on the host that is gone.
        job.wait_for("pelton: rank 1 on h1 failed: no heartbeat", 60)
    assert not re.search(r"rank [02] on h[02] failed", job.output), job.output


@pytest.mark.parametrize("fault", ["cut", *(["stop"] if ALL else [])])
def test_what_lasts_a_moment_ends_nothing(fault: str, hosts: Hosts) -> None:
    ranks = reading(hosts, 6)
    if fault == "cut":
        hosts.cut(1)
        time.sleep(3)
        hosts.join(1)
    else:
        ranks[1].signal(signal.SIGSTOP)
        time.sleep(3)
        ranks[1].signal(signal.SIGCONT)
    time.sleep(8)
    assert all(rank.process.poll() is None for rank in ranks), ranks[0].output
    # Any rank's interruption ends all.
    ranks[2].signal(signal.SIGINT)
    assert ranks[0].wait(10) == 130
    assert "interrupted" in ranks[0].output
    assert [rank.wait(10) for rank in ranks[1:]] == [0, 0]


def test_what_a_host_has_otherwise_is_named(hosts: Hosts) -> None:
    for i in range(3):
        write_rows(hosts.disk(i), seed=1 + (i == 2))
    for process in hosts.start_ranks(PELTON, *LINEAR):
        assert process.wait() == 2
        assert "rank 2 has" in process.output, process.output
    assert not (hosts.disk(0) / "run").exists()


def test_a_full_disk_loses_no_checkpoint(hosts: Hosts) -> None:
    """Rank 0's disk is full: it says so, the others name it, and the run goes on when there is room."""
    for i in range(3):
        write_text(hosts.disk(i))
    line = ["train", "language", "text.txt", "--hidden", "200", "--out", "small/run", "--resume", "--epochs", 3]
    hosts.small_disk(0, "4m")
    first = hosts.start_ranks(PELTON, *line)
    codes = [process.wait() for process in first]
    assert codes == [1, 1, 1] and "No space left" in first[0].output, (codes, first[0].output)
    assert "rank 0 on h0 failed" in first[2].output, first[2].output
    hosts.small_disk(0, "100m")
    again = hosts.start_ranks(PELTON, *line)
    finish(again)
    assert "epoch 3" in again[0].output and "epoch 1" not in again[0].output, again[0].output


@pytest.mark.parametrize("seed", range(25 if ALL else 1))
@pytest.mark.parametrize("kind", ["language", *(["classify", "peers", "layers"] if ALL else [])])
def test_a_run_survives_any_fault(kind: str, seed: int, hosts: Hosts) -> None:
    """Something happens to a random host at a random moment; in the end the model is that of an undisturbed run."""
    text = ["language", "text.txt", "--hidden", "64", "--epochs", "12"]
    line = ["train", *{
        "language": text,
        "layers": [*text, "--parallel", "model", "--layers", "3"],
        "peers": ["image", "demo:images:3000", "--model", "mlp", "--epochs", "12", "--cache", "peers"],
        "classify": ["classify", "demo:classes:3000:4:16", "--head", "knn", "--epochs", "12"],
    }[kind], "--resume"]  # fmt: skip
    for i in range(3):
        write_text(hosts.disk(i))
    finish(hosts.start_ranks(PELTON, *line, "--out", "undisturbed"))
    draw = random.Random(f"{kind} {seed}")
    fault, victim = draw.choice(["kill", "stop", "cut", "cut for a moment", "interrupt"]), draw.randrange(3)
    ranks = hosts.start_ranks(PELTON, *line, "--out", "run", PELTON_HEARTBEAT_SECONDS=6)
    ranks[0].wait_for("epoch 1", 60)
    time.sleep(draw.uniform(0, 2))
    began = time.monotonic()
    if fault.startswith("cut"):
        hosts.cut(victim)
    else:
        number = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP, "interrupt": signal.SIGINT}[fault]
        ranks[victim].signal(number)
    if fault == "cut for a moment":
        time.sleep(2)
        hosts.join(victim)
    others = [rank for number, rank in enumerate(ranks) if number != victim]
    codes = [rank.wait(90) for rank in others]
    assert time.monotonic() - began < 90
    # It may have been at its end.
    if any(codes) and fault in ("kill", "stop", "cut"):
        for rank in others:
            message = rank.output.splitlines()[-1]
            assert message.startswith(f"pelton: rank {victim} on h{victim} failed: "), (fault, message)
    elif fault == "cut for a moment":
        assert codes == [0, 0], [rank.output for rank in others]
    ranks[victim].end()
    if fault == "cut":
        hosts.join(victim)
    finish(hosts.start_ranks(PELTON, *line, "--out", "run"))
    models = [(hosts.disk(0) / run / "model.safetensors").read_bytes() for run in ("undisturbed", "run")]
    assert models[0] == models[1], (fault, victim)


LOOP = """
import os, sys, torch, torch.distributed as dist, pelton
torch.set_num_threads(1)
dist.init_process_group("gloo")
pipeline = pelton.load("rows.npz").shuffle(seed=1).batch(60)
pipeline = (pipeline.peers("1/2") if "peers" in sys.argv else pipeline).torch()
torch.manual_seed(0)
net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(6, 2))
steps = torch.optim.SGD(net.parameters(), 0.1)
for _ in range(3):
    for batch in pipeline:
        steps.zero_grad()
        torch.nn.functional.cross_entropy(net(batch["x"]), batch["label"]).backward()
        steps.step()
torch.save(net.module.state_dict(), f"net-{dist.get_rank()}")
dist.destroy_process_group()
"""


def test_a_loop_of_pytorch_reads_its_peers_on_other_hosts(hosts: Hosts) -> None:
    """Only rank 0's model is read, which all have: the same with peers' memory and without."""
    torch = pytest.importorskip("torch")
    draw = np.random.default_rng(3)
    x = draw.normal(size=(600, 6)).astype("f4")
    for i in range(3):
        np.savez(hosts.disk(i) / "rows.npz", x=x, label=(x[:, 0] > 0).astype("i8"))
        (hosts.disk(i) / "loop.py").write_text(LOOP)
    nets = []
    for how in ("plain", "peers"):
        finish(hosts.start_ranks(sys.executable, "loop.py", how, GLOO_SOCKET_IFNAME="veth0"))
        nets.append(torch.load(hosts.disk(0) / "net-0"))
    assert all(torch.equal(nets[0][name], nets[1][name]) for name in nets[0])
