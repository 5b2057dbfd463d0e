"""What training used, under any loop and launcher, against the plan and the files.

Each program is a loop as people write them. It tells `oracle.used.Used` every batch that it gets; then every record must have
been used as often as asked, with its own label and fields, in an order of its own each epoch, and by every rank.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import socket
import subprocess
import sys
import textwrap
from importlib.metadata import version
from pathlib import Path

import pytest

import pelton

sys.path.insert(0, str(Path(__file__).parent / "oracle"))
from used import Line, check, check_plan, lines_of, make  # noqa: E402

BEGIN = f"""
import multiprocessing, os, sys
sys.path.insert(0, {str(Path(__file__).parent / "oracle")!r})
from used import Used, note_worker
import pelton
def rows(): return pelton.load("rows.npz").shuffle(seed=3)
def pictures(): return pelton.load("pictures.npz").shuffle(seed=3).augment("randomcrop:8,flip")
"""
TORCH = """
import torch, types
if torch.__version__ < "2":
    # That of Debian does not import this one with its own Python.
    sharded = types.ModuleType("torch.distributed._shard.sharded_tensor")
    sharded.pre_load_state_dict_hook = sharded.state_dict_hook = lambda *_: None
    sys.modules["torch.distributed._shard.sharded_tensor"] = sharded
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
def finish():
    # Threads of Gloo end some programs with an abort otherwise, whatever the data.
    if torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()
def group():
    torch.distributed.init_process_group("gloo")
    return torch.distributed.get_rank()
"""


def needs(*modules: str) -> None:
    for module in modules:
        if importlib.util.find_spec(module.partition(".")[0]) is None:
            pytest.skip(f"SKIPPED: {module} is not installed")


class Programs:
    """Runs programs in a folder with the data, and reads what they used."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.used = folder, folder / "log"
        make(folder)
        self.used.mkdir()

    def write(self, program: str, head: str = "") -> Path:
        path = self.folder / "program.py"
        path.write_text(BEGIN + head + textwrap.dedent(program))
        return path

    def run(self, *commands: list[str], env: list[dict[str, str]] | None = None, timeout: float = 240) -> list[Line]:
        """Runs all commands at once; each must end well."""
        common = {**os.environ, "USED": str(self.used), "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
        variables = env or [{}] * len(commands)
        children = [
            subprocess.Popen(command, cwd=self.folder, env={**common, **more}, stdout=-1, stderr=-2, text=True)
            for command, more in zip(commands, variables, strict=True)
        ]
        told = [child.communicate(timeout=timeout)[0] for child in children]
        assert [child.returncode for child in children] == [0] * len(children), "\n".join(told)[-4000:]
        return lines_of(self.used)


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    return Programs(tmp_path)


PLAIN = {
    "epochs": "for epoch in range(3):\n  for b in p: used(b.epoch, b, b.step)",
    "set_epoch": "for epoch in range(3):\n  p.set_epoch(epoch)\n  for b in p: used(epoch, b, b.step)",
    "zip": "for pair in zip(p, p, p):\n  for b in pair: used(b.epoch, b, b.step)",
    "two iterators": (
        "i, j = iter(p), iter(p)\nfor _ in range(len(p)):\n  for b in (next(i), next(j)): used(b.epoch, b, b.step)\n"
        "for b in p: used(b.epoch, b, b.step)"
    ),
    "a look in the loop": (
        "for epoch in range(3):\n  p.set_epoch(epoch)\n  for b in p:\n    used(b.epoch, b, b.step)\n    if b.step == 2: next(iter(p)); p.peek(3)"
    ),
    "broken off and gone on": (
        "for epoch in range(3):\n  for b in p:\n    used(b.epoch, b, b.step)\n    if b.step == 4: break\n"
        "  p.load_state_dict(p.state_dict())\n  for b in p: used(b.epoch, b, b.step)"
    ),
    "resumed by another program": (
        "import json, subprocess\nfor b in p:\n  used(b.epoch, b, b.step)\n  if b.step == 4: break\n"
        "code = open(sys.argv[0]).read().split('# here')[0]\n"
        "code += 'p.load_state_dict(json.loads(sys.argv[1]))\\nfor _ in range(3):\\n  for b in p: used(b.epoch, b, b.step)'\n"
        "subprocess.run([sys.executable, '-c', 'import json\\n' + code, json.dumps(p.state_dict())], check=True)"
    ),
    "threads": (
        "import threading\ndef go():\n  for b in p: batches.append(b)\nbatches = []\n"
        "t = [threading.Thread(target=go) for _ in range(3)]\n[x.start() for x in t]; [x.join() for x in t]\n"
        "for b in sorted(batches, key=lambda b: (b.epoch, b.step)): used(b.epoch, b, b.step)"
    ),
}


@pytest.mark.parametrize("data", ["rows", "pictures"])
@pytest.mark.parametrize("loop", PLAIN)
def test_plain_loops(loop: str, data: str, programs: Programs) -> None:
    path = programs.write(f"used = Used()\np = {data}().batch(10)\n# here\n" + PLAIN[loop])
    lines = programs.run([sys.executable, str(path)])
    check(programs.folder / f"{data}.npz", lines, epochs=3)
    check_plan(pelton.load(programs.folder / f"{data}.npz").shuffle(seed=3).batch(10), lines, epochs=3)


LOADERS = {
    "dataset": "pictures().dataset()",
    "dataset, own collate": "pictures().dataset()",
    "batches": "rows().map(note_worker).batch(8).torch()",
    "samples": "rows().map(note_worker)",
}
WORKERS = {
    "none": "",
    "forked": ", num_workers=2",
    "forked, persistent": ", num_workers=3, persistent_workers=True",
    "spawned, persistent": ", num_workers=2, persistent_workers=True, multiprocessing_context='spawn'",
}


@pytest.mark.parametrize("workers", WORKERS)
@pytest.mark.parametrize("kind", LOADERS)
def test_torchs_dataloader(kind: str, workers: str, programs: Programs) -> None:
    needs("torch")
    options = {
        "dataset": "batch_size=8, shuffle=True",
        "dataset, own collate": "batch_size=8, shuffle=True, collate_fn=pelton.collate",
        "batches": "batch_size=None",
        "samples": "batch_size=8",
    }[kind]
    path = programs.write(
        f"""
        def go(sets, part):
            torch.manual_seed(0)
            d = {LOADERS[kind]}
            loader, used = DataLoader(d, {options}{WORKERS[workers]}), Used(part=part)
            for epoch in range(3):
                if sets: d.set_epoch(epoch)
                for step, b in enumerate(loader): used(epoch, b, step)
        if __name__ == "__main__":
            for part in ("first", "again"): go(False, part)
            go(True, "set")
        """,
        TORCH,
    )
    programs.run([sys.executable, str(path)])
    first, again, told = (lines_of(programs.used / part) for part in ("first", "again", "set"))
    data = programs.folder / ("pictures.npz" if "dataset" in kind else "rows.npz")
    for lines in (first, told):
        check(data, lines, epochs=3)
    assert again == first, "a program repeats itself under a seed"
    if "dataset" not in kind and workers != "none":
        # Samples are divided in 64s.
        assert {line.worker for line in told} == set(range(3 if workers == "forked, persistent" and kind == "batches" else 2))
    if kind == "batches":
        # Workers divide the steps, and the loader takes turns: the order is that of the plan.
        check_plan(pelton.load(data).shuffle(seed=3).batch(8), told, epochs=3)


def torchrun(programs: Programs, ranks: int, path: Path) -> list[Line]:
    """The program under torchrun, or, where its torchrun does not know this Python, in processes with torchrun's variables."""
    import torch

    if int(torch.__version__.partition(".")[0]) >= 2:
        return programs.run([sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}", str(path)])
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    common = {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "TORCHELASTIC_RUN_ID": "none"}
    env = [{**common, "RANK": str(rank), "LOCAL_RANK": str(rank)} for rank in range(ranks)]
    return programs.run(*[[sys.executable, str(path)]] * ranks, env=env)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_torchrun(ranks: int, programs: Programs) -> None:
    needs("torch")
    path = programs.write(
        """
        used, p = Used(group()), rows().batch(10).torch()
        for epoch in range(2):
            for b in p: used(b.epoch, b, b.step)
        finish()
        """,
        TORCH,
    )
    lines = torchrun(programs, ranks, path)
    check(programs.folder / "rows.npz", lines, epochs=2, ranks=ranks)
    check_plan(pelton.load(programs.folder / "rows.npz").shuffle(seed=3).batch(10), lines, epochs=2)


@pytest.mark.parametrize("kind", ["batches", "samples", "dataset"])
@pytest.mark.parametrize("workers", [0, 2])
def test_torchrun_with_a_dataloader(workers: int, kind: str, programs: Programs) -> None:
    needs("torch")
    path = programs.write(
        f"""
        def main():
            used = Used(group())
            d = {{"batches": rows().batch(10), "samples": rows(), "dataset": rows().dataset()}}[{kind!r}]
            sampler = DistributedSampler(d) if {kind!r} == "dataset" else None
            loader = DataLoader(d, batch_size={None if kind == "batches" else 4}, sampler=sampler, num_workers={workers},
                                multiprocessing_context="spawn" if {workers} else None)
            for epoch in range(2):
                d.set_epoch(epoch)
                if sampler: sampler.set_epoch(epoch)
                for b in loader: used(epoch, b)
            finish()
        if __name__ == "__main__": main()
        """,
        TORCH,
    )
    check(programs.folder / "rows.npz", torchrun(programs, 2, path), epochs=2, ranks=2)


def test_workers_of_ranks_that_nobody_tells_the_epoch_say_so(programs: Programs) -> None:
    needs("torch")
    path = programs.write(
        """
        group()
        try:
            next(iter(DataLoader(rows().batch(10), batch_size=None, num_workers=1)))
        except Exception as error:
            assert "call .set_epoch(epoch) before each epoch" in str(error), error
        else:
            raise SystemExit(5)
        finish()
        """,
        TORCH,
    )
    assert torchrun(programs, 2, path) == []


@pytest.mark.parametrize("ranks", [2, 3])
def test_mp_spawn(ranks: int, programs: Programs) -> None:
    needs("torch")
    path = programs.write(
        f"""
        import torch.multiprocessing as mp
        def work(rank, p):
            torch.distributed.init_process_group("gloo", rank=rank, world_size={ranks}, init_method="file://" + os.path.abspath("store"))
            used = Used(rank)
            for epoch in range(2):
                for b in p: used(b.epoch, b, b.step)
            finish()
        if __name__ == "__main__": mp.spawn(work, (rows().batch(10),), nprocs={ranks})
        """,
        TORCH,
    )
    lines = programs.run([sys.executable, str(path)])
    check(programs.folder / "rows.npz", lines, epochs=2, ranks=ranks)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", ["pipeline", "workers", "dataset"])
def test_lightning(kind: str, ranks: int, programs: Programs) -> None:
    name = "lightning.pytorch" if importlib.util.find_spec("lightning") else "pytorch_lightning"
    needs("torch", name.partition(".")[0])
    path = programs.write(
        f"""
        import {name} as lightning
        class Net(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(3, 1)
            def training_step(self, b, i):
                if not hasattr(self, "used"): self.used = Used(self.global_rank)
                self.used(self.current_epoch, b, i)
                return self.layer(b["x"]).sum()
            def configure_optimizers(self): return torch.optim.SGD(self.parameters(), 0.1)
            # Before the next iterator is taken; it is taken before `on_train_epoch_start`.
            def on_train_epoch_end(self): d.set_epoch(self.current_epoch + 1)
        if __name__ == "__main__":
            kind = {kind!r}
            d = rows().dataset() if kind == "dataset" else rows().batch(8).torch()
            d.set_epoch(0)
            data = {{"pipeline": lambda: d, "workers": lambda: DataLoader(d, batch_size=None, num_workers=2),
                    "dataset": lambda: DataLoader(d, batch_size=4, shuffle=True)}}[kind]()
            lightning.Trainer(accelerator="cpu", devices={ranks}, strategy="ddp" if {ranks} > 1 else "auto", max_epochs=2, logger=False,
                enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False).fit(Net(), data)
        """,
        TORCH,
    )
    lines = programs.run([sys.executable, str(path)])
    check(programs.folder / "rows.npz", lines, epochs=2, ranks=ranks)


@pytest.mark.parametrize("dispatch", [None, True, False])
@pytest.mark.parametrize("kind", ["batches", "samples", "samples, workers", "dataset", "pipeline"])
def test_accelerate(kind: str, dispatch: bool | None, programs: Programs) -> None:
    """Which has rank 0 read all, or divides what every rank reads, and moves the epoch on."""
    needs("torch", "accelerate")
    if (kind, dispatch) in (("dataset", True), ("pipeline", True), ("pipeline", False), ("batches", False)):
        pytest.skip("accelerate refuses it, or it is no choice there")
    if kind == "batches" and version("accelerate") < "1":
        pytest.skip("this accelerate fails where batches come as they are, whatever the data")
    path = programs.write(
        f"""
        from accelerate import Accelerator
        import accelerate
        try:
            from accelerate.utils import DataLoaderConfiguration
            a = Accelerator(cpu=True, dataloader_config=DataLoaderConfiguration(dispatch_batches={dispatch}))
        except ImportError:
            a = Accelerator(cpu=True, dispatch_batches={dispatch})
        # Without a seed its ranks sample differently, whatever the data.
        accelerate.utils.set_seed(1)
        kind, used = {kind!r}, Used(a.process_index)
        d = rows().dataset() if kind == "dataset" else rows().batch(8).torch() if kind in ("batches", "pipeline") else rows()
        data = {{"batches": lambda: DataLoader(d, batch_size=None), "samples": lambda: DataLoader(d, batch_size=4),
                "samples, workers": lambda: DataLoader(d, batch_size=4, num_workers=2),
                "dataset": lambda: DataLoader(d, batch_size=4, shuffle=True), "pipeline": lambda: d}}[kind]()
        data = a.prepare(data)
        for epoch in range(2):
            if kind != "pipeline": data.set_epoch(epoch)
            for b in data: used(epoch, b)
        finish()
        """,
        TORCH,
    )
    lines = torchrun(programs, 2, path)
    check(programs.folder / "rows.npz", lines, epochs=2, ranks=2)


@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("kind", ["samples", "dataset", "dataset, workers"])
def test_trainer_of_transformers(kind: str, ranks: int, programs: Programs) -> None:
    needs("torch", "transformers", "accelerate")
    path = programs.write(
        f"""
        from transformers import Trainer, TrainingArguments
        class Net(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.layer = torch.nn.Linear(3, 1)
            def forward(self, x, record, labels):
                used(state.epoch_of(), {{"x": x, "record": record, "label": labels}})
                return {{"loss": self.layer(x).sum()}}
        class State:
            epoch_of = lambda self: int(trainer.state.epoch + 1e-9)
        def main():
            global used, state, trainer
            kind, state = {kind!r}, State()
            p = rows()
            arguments = TrainingArguments("out", num_train_epochs=2, per_device_train_batch_size=4, report_to=[], save_strategy="no",
                use_cpu=True, disable_tqdm=True, remove_unused_columns=False, dataloader_num_workers=2 if "workers" in kind else 0)
            used = Used(arguments.process_index)
            trainer = Trainer(Net(), arguments, train_dataset=p if kind == "samples" else p.dataset())
            trainer.train()
            finish()
        if __name__ == "__main__": main()
        """,
        TORCH,
    )
    lines = torchrun(programs, ranks, path)
    check(programs.folder / "rows.npz", lines, epochs=2, ranks=ranks)


def test_ray_train(programs: Programs) -> None:
    needs("torch", "ray")
    path = programs.write(
        """
        import ray.train
        from ray.train.torch import TorchTrainer
        import used as module
        here, there = os.getcwd(), os.path.dirname(module.__file__)
        del Used, note_worker, module
        def work(config):
            os.chdir(here)
            sys.path.insert(0, there)
            from used import Used
            used = Used(ray.train.get_context().get_world_rank())
            for epoch in range(2):
                for b in config["p"]: used(b.epoch, b, b.step)
        if __name__ == "__main__":
            p = pelton.load(os.path.abspath("rows.npz")).shuffle(seed=3).batch(10)
            TorchTrainer(work, train_loop_config={"p": p}, scaling_config=ray.train.ScalingConfig(num_workers=2)).fit()
        """,
        TORCH,
    )
    lines = programs.run([sys.executable, str(path)])
    check(programs.folder / "rows.npz", lines, epochs=2, ranks=2)


@pytest.mark.parametrize("ranks", [1, 2, 3])
@pytest.mark.parametrize("launcher", ["mpirun", "srun", "torchrun's variables"])
def test_launchers(launcher: str, ranks: int, programs: Programs) -> None:
    rank = {"mpirun": "OMPI_COMM_WORLD_RANK", "srun": "SLURM_PROCID"}.get(launcher, "RANK")
    path = programs.write(
        f"""
        used, p = Used(int(os.environ[{rank!r}])), rows().batch(10)
        for epoch in range(2):
            for b in p: used(b.epoch, b, b.step)
        """
    )
    command = [sys.executable, str(path)]
    if launcher == "mpirun":
        if shutil.which("mpirun") is None:
            pytest.skip("SKIPPED: Open MPI is not installed")
        root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        lines = programs.run(["mpirun", "--oversubscribe", "-n", str(ranks), *command], env=[root])
    elif launcher == "srun":
        step = {"SLURM_JOB_ID": "5", "SLURM_STEP_ID": "0", "SLURM_NTASKS": "8", "SLURM_STEP_NUM_TASKS": str(ranks)}
        lines = programs.run(*[command] * ranks, env=[{**step, "SLURM_PROCID": str(i)} for i in range(ranks)])
    else:
        lines = programs.run(*[command] * ranks, env=[{"RANK": str(i), "WORLD_SIZE": str(ranks)} for i in range(ranks)])
    check(programs.folder / "rows.npz", lines, epochs=2, ranks=ranks)
    check_plan(pelton.load(programs.folder / "rows.npz").shuffle(seed=3).batch(10), lines, epochs=2)


def test_a_batch_script_of_slurm_reads_everything(programs: Programs) -> None:
    path = programs.write("used = Used()\nfor _ in range(2):\n  for b in rows().batch(10): used(_, b)")
    script = {"SLURM_JOB_ID": "5", "SLURM_NTASKS": "8", "SLURM_PROCID": "0", "SLURM_NPROCS": "8"}
    check(programs.folder / "rows.npz", programs.run([sys.executable, str(path)], env=[script]), epochs=2, shuffled=False)


@pytest.mark.parametrize("kind", ["batches", "samples", "dataset"])
@pytest.mark.parametrize("workers", [0, 2])
def test_stateful_dataloader(workers: int, kind: str, programs: Programs) -> None:
    """Resumed in the middle of an epoch, it goes on exactly."""
    needs("torch", "torchdata.stateful_dataloader")
    path = programs.write(
        f"""
        from torchdata.stateful_dataloader import StatefulDataLoader
        def loader():
            torch.manual_seed(7)
            if {kind!r} == "dataset":
                return StatefulDataLoader(pictures().dataset(), batch_size=8, num_workers={workers}, shuffle=True)
            d = rows().batch(8) if {kind!r} == "batches" else rows()
            return StatefulDataLoader(d, batch_size=None if {kind!r} == "batches" else 8, num_workers={workers})
        whole = [{{name: torch.as_tensor(v).tolist() for name, v in b.items()}} for b in loader()]
        assert len(whole) == 12
        for taken in (1, 5, 6, 11):
            first = loader()
            for step, b in enumerate(first):
                if step == taken - 1: break
            again = loader()
            again.load_state_dict(first.state_dict())
            rest = [{{name: torch.as_tensor(v).tolist() for name, v in b.items()}} for b in again]
            assert rest == whole[taken:], taken
        """,
        TORCH,
    )
    programs.run([sys.executable, str(path)])


@pytest.mark.parametrize("launcher", ["threads", "mpirun"])
def test_the_commands_own_ranks(launcher: str, programs: Programs) -> None:
    """Its log has the ids of each rank; the plan is the one that Python computes."""
    command = os.environ.get("PELTON") or shutil.which("pelton")
    if command is None:
        pytest.skip("SKIPPED: the command is not built; PELTON names it")
    if launcher == "mpirun" and shutil.which("mpirun") is None:
        pytest.skip("SKIPPED: mpirun is not installed")
    import numpy as np

    planned = pelton.load(programs.folder / "rows.npz").shuffle(seed=3).batch(10)
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    for ranks in (1, 2, 3):
        log = programs.folder / f"log-{ranks}"
        line = [command, "bench", "rows.npz", "--batch", "10", "--seed", "3", "--epochs", "2"]
        line += ["--log", str(log), "--state", f"{log}.state"]
        if launcher == "mpirun":
            line = ["mpirun", "--oversubscribe", "-n", str(ranks), *line]
        elif ranks > 1:
            line += ["--ranks", str(ranks)]
        programs.run(line, env=[root])
        logs = sorted(path for path in programs.folder.glob(f"log-{ranks}*") if path.suffix != ".state")
        ids = [np.fromfile(path, "<u8").tolist() for path in logs]
        assert len(ids) == ranks and all(ids), [str(path) for path in logs]
        for step in range(2 * len(planned)):
            epoch, step = divmod(step, len(planned))
            wanted = planned.step_ids(epoch, step).tolist()
            found = []
            for rank, own in enumerate(ids):
                share = len(wanted) * (rank + 1) // ranks - len(wanted) * rank // ranks
                found += own[:share]
                del own[:share]
            assert sorted(found) == sorted(wanted)
        assert not any(ids)
