"""Several machines: namespaces with their own network and disk. ``PELTON_HOSTS=all`` also runs what takes long."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

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
        ["train", "classify", "demo:classes:300:4:16", "--head", "knn", "--epochs", "2", "--out", "run"],
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
