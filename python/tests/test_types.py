"""What type checkers say of programs that use the package."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """\
import pelton
from torch.utils.data import DataLoader

batches = pelton.load("x.npz").batch(4).torch()
loader = DataLoader(batches, batch_size=None, num_workers=2)
by_index = DataLoader(pelton.load("x.npz").dataset(), batch_size=4, collate_fn=pelton.collate)
for batch in batches:
    print(batch.epoch, batch["x"])
batches.augment(5)  # wrong
batches.echo(b"z")  # wrong
"""


def test_pipelines_have_types_that_loaders_take(tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("SKIPPED: PyTorch is not installed")
    pyright = Path(sys.executable).with_name("pyright")
    if pyright.exists() or shutil.which("pyright"):
        checker = [str(pyright) if pyright.exists() else "pyright", "--pythonpath", sys.executable]
    elif importlib.util.find_spec("mypy"):
        checker = [sys.executable, "-m", "mypy"]
    else:
        pytest.skip("SKIPPED: neither pyright nor mypy is installed")
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run([*checker, str(program)], cwd=tmp_path, stdout=-1, stderr=-2, text=True, timeout=300)
    said = [line for line in done.stdout.splitlines() if "program.py:" in line and "error" in line]
    lines = {int(line.split("program.py:")[1].split(":")[0]) for line in said}
    wrong = {number for number, line in enumerate(PROGRAM.splitlines(), 1) if "# wrong" in line}
    assert lines == wrong, done.stdout
