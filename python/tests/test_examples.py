"""The programs of ``examples`` use each photo once an epoch, on two ranks where they have ranks, and after they were stopped in
the middle of an epoch.

They are written for today's libraries; `./test examples` installs these. Elsewhere the programs whose libraries are missing are
skipped.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PHOTOS = 23
BATCH = 4
# Steps of an epoch, and of the first run, which is stopped in the middle of its second epoch.
STEPS = -(-PHOTOS // BATCH)
STOPPED = STEPS + 2

SEEN = re.compile(r"epoch (\d+) rank (\d+) records \[([\d, ]+)\]")


def needs(*modules: str) -> None:
    for module in ("torch", "torchvision", *modules):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"SKIPPED: {module} is not installed; ./test examples installs it")
    import torch

    if int(torch.__version__.partition(".")[0]) < 2:
        pytest.skip(f"SKIPPED: PyTorch {torch.__version__} is older than the examples; ./test examples installs today's")


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A folder of photos of noise in three classes."""
    image = pytest.importorskip("PIL.Image", reason="SKIPPED: Pillow is not installed; ./test examples installs it")
    rng = np.random.default_rng(0)
    for i in range(PHOTOS):
        path = tmp_path / "photos" / ("cat", "dog", "owl")[i % 3] / f"{i:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(rng.integers(0, 255, (70 + i % 7, 90 - i % 5, 3), dtype=np.uint8)).save(path)
    return tmp_path / "photos"


def seen(folder: Path, program: str, *arguments: str, ranks: int = 0, side: bool = True) -> list[tuple[int, int, list[int]]]:
    """Runs a program in this folder, under torchrun if there are `ranks`; the epoch, rank and records of its batches."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks else []
    command = [sys.executable, *launcher, str(EXAMPLES / program), *arguments]
    command += ["--epochs", "2", "--batch", str(BATCH), "--show", *(["--side", "64"] if side else [])]
    # Ray prints lines twice otherwise, and leaves repeated ones out.
    variables = {"RAY_DEDUP_LOGS": "0", "RAY_TRAIN_ENABLE_PRINT_PATCH": "0", "ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": ""}
    variables |= {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, stdout=-1, stderr=-2, text=True, timeout=240)
    assert done.returncode == 0, done.stdout[-6000:]
    return [(int(epoch), int(rank), list(map(int, ids.split(",")))) for epoch, rank, ids in SEEN.findall(done.stdout)]


def check(batches: list[tuple[int, int, list[int]]], *, epochs: int = 2, ranks: int = 1) -> None:
    """That each epoch has each photo once over all ranks, and another order than the other."""
    orders = [[record for at, _, ids in batches if at == epoch for record in ids] for epoch in range(epochs)]
    for epoch, order in enumerate(orders):
        times = Counter(order)
        wrong = {record: times[record] for record in range(PHOTOS) if times[record] != 1}
        assert not wrong and len(times) == PHOTOS, f"epoch {epoch} used these photos so often: {wrong}"
    assert sum(map(len, orders)) == sum(len(ids) for _, _, ids in batches), "there are more epochs than asked for"
    assert {rank for _, rank, _ in batches} == set(range(ranks))
    assert len(set(map(tuple, orders))) == epochs, "epochs have the same order"


def test_resnet_on_a_folder(photos: Path) -> None:
    needs()
    check(seen(photos.parent, "resnet_folder.py", "photos"))
    assert len(seen(photos.parent, "resnet_folder.py", "photos", "--steps", "2")) == 2


def test_detection(photos: Path) -> None:
    needs("pyarrow")
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(0)
    # Every fifth picture has no object.
    boxes = [[[*rng.uniform(0, 40, 2), *rng.uniform(5, 40, 2)] for _ in range(i % 5)] for i in range(PHOTOS)]
    files = sorted(photos.rglob("*.jpg"))
    rows = [
        {"image": {"bytes": file.read_bytes(), "path": file.name}, "objects": {"bbox": each, "category": [i % 3 for i in range(len(each))]}}
        for file, each in zip(files, boxes)
    ]
    parquet.write_table(pa.Table.from_pylist(rows), photos.parent / "train.parquet")
    check(seen(photos.parent, "detection.py", "train.parquet", "--classes", "3"))


def test_timm(photos: Path) -> None:
    needs("timm")
    check(seen(photos.parent, "timm_train.py", "photos", side=False))


# The libraries of each program, its output option, the options of its first run, and its option for ranks, if it has one.
RESUMED = {
    "torchrun.py": ((), ["--checkpoint", "run.pt"], [], None),
    "accelerate_resume.py": (("accelerate",), ["--out", "run"], [], None),
    "hf_trainer.py": (("accelerate", "transformers"), ["--out", "run"], ["--save-every", str(STOPPED)], None),
    "lightning_fit.py": (("lightning",), ["photos", "--out", "run"], ["--save-every", str(STOPPED)], "--devices"),
    "ray_train.py": (("ray",), ["--out", "run"], [], "--workers"),
}


@pytest.mark.parametrize("program", RESUMED)
def test_two_ranks_resume_in_the_middle_of_an_epoch(program: str, photos: Path) -> None:
    libraries, saves, first, option = RESUMED[program]
    needs(*libraries)
    given = ["photos", *saves, *([option, "2"] if option else [])]
    ranks = 0 if option else 2
    before = seen(photos.parent, program, *given, *first, "--steps", str(STOPPED), ranks=ranks)
    assert len(before) == 2 * STOPPED, "the first run stops in the middle of an epoch"
    check(before + seen(photos.parent, program, *given, ranks=ranks), ranks=2)


def test_two_ranks_go_on_as_one(photos: Path) -> None:
    needs()
    given = ["photos", "--checkpoint", "run.pt"]
    before = seen(photos.parent, "torchrun.py", *given, "--steps", str(STOPPED), ranks=2)
    check(before + seen(photos.parent, "torchrun.py", *given, ranks=1), ranks=2)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_a_stateful_dataloader_resumes_in_the_middle_of_an_epoch(workers: str, photos: Path) -> None:
    needs("torchdata")
    given = ["photos", "--checkpoint", "run.pt", "--workers", workers]
    before = seen(photos.parent, "stateful_dataloader.py", *given, "--steps", str(STOPPED))
    assert len(before) == STOPPED
    check(before + seen(photos.parent, "stateful_dataloader.py", *given))


def check_chat_model() -> None:
    """That a chat sees only itself, and that the loss is that of the whole logits."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    sys.path.insert(0, str(EXAMPLES))
    from chat_finetune import Chat

    torch.manual_seed(0)
    net = Chat(LlamaConfig(vocab_size=257, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4))
    ids, positions = torch.randint(0, 257, (1, 30)), torch.cat([torch.arange(12), torch.arange(18)])[None]
    labels = torch.where(torch.rand(1, 30) < 0.3, -100, ids)
    labels[:, 12] = -100
    together = net(ids, positions, labels)["loss"]
    parts = [LlamaForCausalLM.forward(net, ids[:, part], labels=labels[:, part]).loss for part in (slice(0, 12), slice(12, 30))]
    counts = [(labels[:, 1:12] >= 0).sum(), (labels[:, 13:] >= 0).sum()]
    expected = sum(loss * count for loss, count in zip(parts, counts)) / sum(counts)
    torch.testing.assert_close(together, expected)


CHAT = re.compile(r"rank (\d+) chats \[([\d, ]+)\] tokens (\d+)")


def test_packed_chats_go_on_as_other_ranks(tmp_path: Path) -> None:
    needs("accelerate", "transformers", "pyarrow")
    import pyarrow as pa
    from pyarrow import parquet

    rng = np.random.default_rng(0)

    def words(count: int) -> str:
        return " ".join(str(word) for word in rng.integers(0, 999, count))

    turns = [
        [{"role": role, "content": words(rng.integers(1, 12))} for role in ("user", "assistant") * int(rng.integers(1, 4))] for _ in range(60)
    ]
    parquet.write_table(pa.table({"messages": turns}), tmp_path / "chats.parquet", row_group_size=13)

    def steps(out: str, *arguments: str, ranks: int = 1) -> list[tuple[set[int], int]]:
        """The chats of each step and the sum of their tokens, over all ranks."""
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2"] if ranks > 1 else []
        command = [sys.executable, *launcher, str(EXAMPLES / "chat_finetune.py"), "chats.parquet", "--out", out, "--show"]
        command += ["--row", "256", "--batch", "4", "--epochs", "2", *arguments]
        variables = {"CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, cwd=tmp_path, env={**os.environ, **variables}, stdout=-1, stderr=-2, text=True, timeout=240)
        assert done.returncode == 0, done.stdout[-6000:]
        found = [(int(rank), set(map(int, ids.split(","))), int(tokens)) for rank, ids, tokens in CHAT.findall(done.stdout)]
        of_ranks = [[(ids, tokens) for at, ids, tokens in found if at == rank] for rank in range(ranks)]
        return [(set.union(*(ids for ids, _ in each)), sum(tokens for _, tokens in each)) for each in zip(*of_ranks, strict=True)]

    whole = steps("whole")
    check_chat_model()
    total = sum(
        sum(f"{turn['role']}: {turn['content']}".encode()) + 256 for chat in turns for turn in chat
    )  # fmt: skip
    epoch = len(whole) // 2
    for part in (whole[:epoch], whole[epoch:]):
        assert set.union(*(ids for ids, _ in part)) == set(range(60)) and sum(tokens for _, tokens in part) == total
    stopped = str(epoch + 2)
    first = steps("parts", "--steps", stopped, "--save-every", stopped, ranks=2)
    assert first + steps("parts") == whole
