"""Lightning, the Trainer of transformers and accelerate use each record once an epoch, also where a schedule asks for the number
of steps and a validation loop runs, and after they were stopped within an epoch, on as many ranks as before or others."""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from trainers import BATCH, EPOCHS, FITS, RECORDS, STEPS, STOPPED

PROGRAM = str(Path(__file__).with_name("trainers.py"))
Used = dict[tuple[Any, ...], list[tuple[int, int, list[int]]]]


def run(folder: Path, ranks: int, *folders: str) -> Used:
    """What the program prints: rank, epoch and records of its batches by combination, phase and whether it trained."""
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={ranks}"] if ranks > 1 else []
    command = [sys.executable, *launcher, PROGRAM, "data.npz", *folders]
    variables = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "ACCELERATE_USE_CPU": "true", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, cwd=folder, env={**os.environ, **variables}, stdout=-1, stderr=-2, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-6000:]
    used: Used = {}
    for line in done.stdout.splitlines():
        if line.startswith('["'):
            *key, rank, epoch, ids = json.loads(line)
            used.setdefault(tuple(key), []).append((rank, epoch, ids))
    return used


def check(before: Used, after: Used, phase: str, ranks: tuple[int, int]) -> None:
    """That runs, and those that resumed them, together use each record once an epoch."""
    for key in itertools.product(FITS, (False, True), (False, True)):
        first, rest = before[*key, "first", True], after[*key, phase, True]
        where = f"{key}, {phase}, ranks {ranks}"
        assert len(first) == STOPPED * ranks[0], where
        assert len(rest) == (EPOCHS * STEPS - STOPPED) * ranks[1], where
        for epoch in range(EPOCHS):
            times = Counter(record for _, at, ids in [*first, *rest] if at == epoch for record in ids)
            assert times == Counter(range(RECORDS)), f"{where}: epoch {epoch} used {len(times)} records, some {max(times.values())} times"
        assert {rank for rank, _, _ in rest} == set(range(ranks[1])), where
        validated = Counter(record for _, _, ids in after.get((*key, phase, False), []) for record in ids)
        # One pass for each finished epoch.
        assert validated == Counter({record: 2 for record in range(20)} if key[2] else {}), where


def test_trainers_use_each_record_once(tmp_path: Path) -> None:
    for module in ("torch", *FITS):
        if importlib.util.find_spec(module) is None:
            pytest.skip(f"SKIPPED: {module} is not installed; ./test examples installs it")
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "data.npz", x=rng.random((RECORDS, 3), np.float32), label=np.arange(RECORDS) % 10)
    assert RECORDS % BATCH and STOPPED % STEPS
    alone = run(tmp_path, 1, "one")
    check(alone, alone, "same", (1, 1))
    together = run(tmp_path, 2, "two", "one")
    check(together, together, "same", (2, 2))
    check(alone, together, "others", (1, 2))
    check(together, run(tmp_path, 1, "-", "two"), "others", (2, 1))
