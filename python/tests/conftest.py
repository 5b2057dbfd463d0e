"""Data that tests share."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    """No launcher, whatever the tests were started by."""
    for name in [*os.environ]:
        if name in ("RANK", "WORLD_SIZE") or name.startswith(("OMPI_", "PMI", "SLURM_", "TORCHELASTIC_")):
            monkeypatch.delenv(name)


@pytest.fixture
def rows(tmp_path: Path) -> tuple[Path, np.ndarray]:
    """A file of 1003 rows of 5 numbers, and the same as an array."""
    values = np.random.default_rng(0).normal(size=(1003, 5)).astype(np.float32)
    path = tmp_path / "rows.npz"
    np.savez(path, x=values, label=np.arange(1003) % 7)
    return path, values


@pytest.fixture
def sentences(tmp_path: Path) -> tuple[Path, list[str]]:
    """A file of 500 sentences of 0 to 12 words, and the sentences."""
    lines = [" ".join(f"w{(i * k) % 50}" for k in range(1, i % 13 + 1)) for i in range(500)]
    path = tmp_path / "sentences.txt"
    path.write_text("".join(line + "\n" for line in lines))
    return path, lines


@pytest.fixture(scope="session")
def data() -> Path:
    """Real data, where there is some."""
    for folder in (os.environ.get("PELTON_DATA"), Path(__file__).parents[3] / "shared" / "data"):
        if folder and Path(folder).is_dir():
            return Path(folder)
    pytest.skip("SKIPPED: real data: set PELTON_DATA to a folder that holds it")
