"""The programs of ``examples`` for very many classes: they run, and their losses are the plain ones."""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")
from torch.nn import functional as F  # noqa: E402

EXAMPLES = Path(__file__).parents[2] / "examples"


def example(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, *words: str, ranks: int, folder: Path) -> str:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks > 1 else []
    command = [sys.executable, *launcher, str(EXAMPLES / f"{name}.py"), *words]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=folder)
    assert ended.returncode == 0, ended.stderr[-3000:]
    return ended.stdout


def test_two_towers_have_the_plain_loss() -> None:
    module = example("two_tower")
    torch.manual_seed(0)
    towers, counts = module.Towers(50, 80), torch.randint(1, 9, (80,))
    optimiser = torch.optim.Adam(towers.parameters(), 0.01)
    for step in range(5):
        user, item = torch.randint(50, (32,)), torch.randint(80, (32,))
        users, items = towers(user)
        plain = F.cross_entropy(users @ items.t(), item)
        loss = module.loss_of(towers, user, item, None)
        torch.testing.assert_close(loss, plain)
        chooser = module.chooser_of("popular", counts, 0.2)
        torch.manual_seed(step)
        rows, correction = chooser(users, item, items)
        torch.manual_seed(step)
        drawn = module.loss_of(towers, user, item, chooser)
        logits, place = (users @ items.t())[:, rows], torch.searchsorted(rows, item)
        own = torch.arange(len(rows)) == place[:, None]
        torch.testing.assert_close(drawn, F.cross_entropy(logits + torch.where(own, 0.0, correction), place), rtol=1e-4, atol=1e-5)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    # What is drawn stands for all: sums of exponentials are right on average.
    chooser, weights, sums = module.Popular(counts, 0.2), torch.rand(80), []
    share = chooser.share
    for _ in range(4000):
        rows, correction = chooser(users, torch.multinomial(share, 16, replacement=True), items)
        sums.append((weights[rows] * correction.exp()).sum())
    sums = torch.stack(sums)
    assert (sums.mean() - weights.sum()).abs() < 4 * sums.std() / len(sums) ** 0.5


def test_faces_have_the_loss_of_arcface() -> None:
    module = example("faces")
    torch.manual_seed(0)
    net = module.iresnet18(16, 16, 16)
    head = module.head_of(30, argparse.Namespace(budget=1.0, scale=64.0, margin=0.5, dim=16), 1)
    optimiser = torch.optim.SGD(net.parameters(), 0.1)
    for _ in range(4):
        pictures, persons = torch.randn(24, 3, 16, 16), torch.randint(30, (24,))
        embedded = net(pictures)
        cosines = (F.normalize(embedded) @ F.normalize(head.weight).t()).clamp(-1 + 1e-7, 1 - 1e-7)
        turned = torch.where(F.one_hot(persons, 30) > 0, (cosines.acos() + 0.5).cos(), cosines)
        loss = head(embedded, persons)
        torch.testing.assert_close(loss, F.cross_entropy(64 * turned, persons), rtol=1e-4, atol=1e-4)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        head.step(0.1)


def test_the_programs_run(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, count in (("train", 600), ("test", 60)):
        pairs = [(50, 30), *zip(rng.integers(0, 50, count), rng.integers(0, 30, count), strict=True)]
        (tmp_path / f"{name}.csv").write_text("user,item\n" + "".join(f"{user},{item}\n" for user, item in pairs))
    words = ["train.csv", "test.csv", "--epochs", "2", "--batch", "64"]
    for ranks, negatives in ((1, "near"), (2, "popular")):
        assert "epoch 2: loss" in run("two_tower", *words, "--negatives", negatives, ranks=ranks, folder=tmp_path)
    image = pytest.importorskip("PIL.Image", reason="SKIPPED: Pillow is not installed")
    for person in range(8):
        for number in range(6):
            path = tmp_path / "faces" / f"p{person}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            image.fromarray(rng.integers(0, 255, (18, 18, 3), dtype=np.uint8)).save(path)
    # Fewer than 16 channels corrupt memory in oneDNN (its issue 6035).
    words = ["--side", "16", "--width", "16", "--dim", "8", "--batch", "8", "--epochs", "1", "--budget", "1"]
    said = run("faces", "faces", *words, ranks=2, folder=tmp_path)
    assert "of 8 persons" in said and (tmp_path / "faces.pt").exists()
