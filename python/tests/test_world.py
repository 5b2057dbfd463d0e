"""Which rank a process is, no matter who started it."""

from __future__ import annotations

import multiprocessing
import re
import socket
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import pelton
from pelton._world import World, find_world

OMPI = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "4"}
SRUN = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "2", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": "8"}
SBATCH = {"SLURM_JOB_ID": "7", "SLURM_PROCID": "0", "SLURM_NTASKS": "8"}


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, (0, 1)),
        ({"RANK": "1", "WORLD_SIZE": "2"}, (1, 2)),
        (OMPI, (1, 4)),
        ({"PMI_RANK": "2", "PMI_SIZE": "3"}, (2, 3)),
        (SRUN, (2, 8)),
        # A batch script runs once, regardless of its allocation.
        (SBATCH, (0, 1)),
        # As `srun --pty bash` within it has.
        ({**SBATCH, "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1"}, (0, 1)),
        # One launcher started by another.
        ({**SRUN, "RANK": "9", "WORLD_SIZE": "32", "TORCHELASTIC_RUN_ID": "x"}, (9, 32)),
        ({**SRUN, "RANK": "9", "WORLD_SIZE": "32"}, (9, 32)),
        ({**OMPI, "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0", "SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"}, (1, 4)),
        ({**OMPI, "RANK": "0", "WORLD_SIZE": "1", "TORCHELASTIC_RUN_ID": "x"}, (0, 1)),
        ({"WORLD_SIZE": "1"}, (0, 1)),
        # Values that are not a launcher's rank.
        ({"RANK": "3", "WORLD_SIZE": "2"}, "RANK=3 and WORLD_SIZE=2, and there is no such rank"),
        ({"RANK": "-1", "WORLD_SIZE": "2"}, "RANK=-1"),
        ({"RANK": "one", "WORLD_SIZE": "2"}, "RANK=one"),
        ({"RANK": "1"}, "RANK=1 but no WORLD_SIZE"),
        ({"WORLD_SIZE": "2", "LOCAL_RANK": "1"}, "WORLD_SIZE=2 but no RANK"),
        # Left over in an image, or in a shell.
        ({**OMPI, "RANK": "0", "WORLD_SIZE": "1"}, "RANK=0 and WORLD_SIZE=1, but also OMPI_COMM_WORLD_RANK=1"),
        ({**OMPI, "RANK": "0", "WORLD_SIZE": "4"}, "but also OMPI_COMM_WORLD_RANK=1"),
    ],
)
@pytest.mark.filterwarnings("ignore:this process reads its share")
def test_launchers_say_the_rank(
    variables: dict[str, str], expected: tuple[int, int] | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            find_world()
    else:
        assert find_world()[:2] == expected


def test_a_rank_that_only_the_environment_says_is_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    np.savez(tmp_path / "rows.npz", x=np.arange(100))
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", "2")
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "5")
    pipeline = pelton.load(tmp_path / "rows.npz").batch(10)
    with pytest.warns(UserWarning, match=r"rank 2 of 5, by OMPI_COMM_WORLD_RANK.*\.shard\(0, 1\) reads all of it") as told:
        assert [len(batch.ids) for batch in pipeline] == [2] * 10
    assert [each.filename for each in told] == [__file__]
    assert pipeline.notes == ["reads the share of rank 2 of 5, by OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE"]
    assert [len(batch.ids) for batch in pipeline.shard(0, 1)] == [10] * 10


def work(pipeline: pelton.Pipeline, results: object) -> None:
    results.put((list(pipeline._world()), len(next(iter(pipeline)).ids)))  # type: ignore[attr-defined]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_of_a_rank_reads_for_its_parent(method: str, tmp_path: Path) -> None:
    """A child that is spawned has no torch.distributed; the rank goes along with the pipeline."""
    pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")
    program = f"""
        import multiprocessing, sys
        import numpy as np
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_world import work
        import pelton
        if __name__ == "__main__":
            import torch.distributed as dist
            np.savez("rows.npz", x=np.arange(100))
            pipeline = pelton.load("rows.npz").batch(10)
            # Asked before there are ranks.
            assert len(next(iter(pipeline)).ids) == 10
            dist.init_process_group("gloo", rank=0, world_size=1, init_method="file://" + sys.argv[1])
            dist.get_rank, dist.get_world_size = lambda: 1, lambda: 4
            assert len(next(iter(pipeline)).ids) == 3, "two and a half"
            context = multiprocessing.get_context({method!r})
            results = context.Queue()
            child = context.Process(target=work, args=(pipeline, results))
            child.start()
            print(results.get(timeout=60))
            child.join()
    """
    (tmp_path / "program.py").write_text(textwrap.dedent(program))
    done = subprocess.run(
        [sys.executable, "program.py", str(tmp_path / "store")], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.stdout == "([1, 4, 'torch.distributed'], 3)\n", done.stderr


def test_a_pipeline_that_is_sent_elsewhere_takes_no_rank_along(tmp_path: Path) -> None:
    """Only children of a process read for it."""
    np.savez(tmp_path / "rows.npz", x=np.arange(100))
    pipeline = pelton.load(tmp_path / "rows.npz").batch(10)
    pipeline._inherited = World(1, 2, "a parent")
    assert pipeline._world()[:2] == (1, 2)
    assert multiprocessing.context.get_spawning_popen() is None


@pytest.mark.parametrize(
    ("differs", "told"),
    [
        ("p = p.shuffle(seed=rank)", r"another plan \(order, seed, batch\) than rank"),
        ("p = p.batch(10 + rank)", r"another plan \(order, seed, batch\) than rank"),
        ("if rank: p.set_epoch(3)", r"another epoch than rank \d \(\d, \d\)"),
        ("if rank: next(iter(p))", "another number of steps behind it"),
        ("if rank: p = pelton.load('other.npz').shuffle().batch(10)", "another data set than rank"),
        ("", ""),
        # Shares of a step differ by a sample.
        ("p = pelton.load('odd.npz').shuffle()\ndist.get_world_size = lambda: 3", ""),
        ("p = p.shuffle(seed=rank).shard(0, 1)", ""),
    ],
)
def test_ranks_that_differ_do_not_begin(differs: str, told: str, tmp_path: Path) -> None:
    pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")
    np.savez(tmp_path / "rows.npz", x=np.arange(100))
    np.savez(tmp_path / "other.npz", x=np.arange(100) + 1)
    np.savez(tmp_path / "odd.npz", x=np.arange(150))
    program = """
import sys, pelton
import torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", rank=rank, world_size=2, init_method="file://" + sys.argv[2])
p = pelton.load("rows.npz").shuffle().batch(10)
DIFFERS
for _ in range(2): ids = [i for b in p for i in (b.ids.tolist() if hasattr(b, "ids") else [b["x"]])]
print(len(ids))
""".replace("DIFFERS", differs)
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(rank), str(tmp_path / "store")], cwd=tmp_path, stdout=-1, stderr=-1, text=True)
        for rank in range(2)
    ]
    ended = [child.communicate(timeout=120) for child in children]
    errors = [line for _, error in ended for line in error.splitlines() if "pelton.ConfigurationError" in line]
    if told:
        assert errors and re.search(told, errors[0]), ended
    else:
        assert not errors and {output for output, _ in ended} <= {"49\n", "50\n", "100\n"}, ended


def test_ranks_that_do_not_differ_name_the_one_that_does(tmp_path: Path) -> None:
    """Their own errors only say that a connection was lost."""
    pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")
    np.savez(tmp_path / "rows.npz", x=np.arange(100))
    program = """
import sys, time, torch, pelton
import torch.distributed as dist
rank = int(sys.argv[1])
dist.init_process_group("gloo", rank=rank, world_size=3, init_method="tcp://127.0.0.1:" + sys.argv[2])
p = pelton.load("rows.npz").shuffle(seed=int(rank == 2)).batch(10)
if rank == 2: time.sleep(1)
for batch in p: dist.all_reduce(torch.ones(1))
"""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    children = [
        subprocess.Popen([sys.executable, "-c", program, str(rank), port], cwd=tmp_path, stdout=-1, stderr=-1, text=True) for rank in range(3)
    ]
    errors = [child.communicate(timeout=120)[1] for child in children]
    named = "rank 2 has another plan (order, seed, batch) than rank"
    assert f"pelton.ConfigurationError: {named}" in errors[2] and "the first to fail" not in errors[2], errors[2]
    first = re.escape(f"ended by ConfigurationError: {named}")
    assert all(re.search(rf"pelton: the first to fail was rank 2 on \S+ {first}", error) for error in errors[:2]), errors


def test_ranks_of_a_machine_share_its_memory(monkeypatch):
    from pelton import _pelton, _world

    for name in ("LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"):
        monkeypatch.delenv(name, raising=False)
    assert _world.ranks_here() == 1
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert _world.ranks_here() == 4
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "nonsense")
    assert _world.ranks_here() == 1
    assert _pelton.memory_budget(1 << 20, 1) == 1 << 20
    assert _pelton.memory_budget(1 << 60, 1) > 2 * _pelton.memory_budget(1 << 60, 4)
