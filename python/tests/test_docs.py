"""The programs in the documentation run, and its links lead somewhere."""

from __future__ import annotations

import doctest
import importlib.util
import os
import re
import shlex
import struct
import subprocess
import sys
import tarfile
import zlib
from io import BytesIO
from pathlib import Path

import pytest

import pelton

DOCS = Path(__file__).parents[2] / "docs"


def png(side: int, grey: int) -> bytes:
    """A picture of one colour."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = (b"\0" + bytes([grey] * 3 * side)) * side
    head = struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the programs read."""
    monkeypatch.chdir(tmp_path)
    with tarfile.open("photos.tar", "w") as tar:
        for i in range(60):
            for name, data in ((f"{i:03}.cls", str(i % 10).encode()), (f"{i:03}.png", png(40 + i % 7, 4 * i))):
                member = tarfile.TarInfo(name)
                member.size = len(data)
                tar.addfile(member, BytesIO(data))
    for name in "ab":
        Path(f"{name}.png").write_bytes(png(100, 9))
    Path("sentences.txt").write_text("".join("word " * (i % 9 + 1) + f"w{i % 30}\n" for i in range(300)))
    clicks = ["clicked," + ",".join(f"f{i}" for i in range(8))]
    clicks += [",".join(map(str, [i % 2, *(i * (j + 3) % 11 for j in range(8))])) for i in range(200)]
    Path("clicks-0.csv").write_text("\n".join(clicks) + "\n")
    Path("train.bin").write_bytes(b"".join(struct.pack("<H", i * 40_503 % 50_257) for i in range(3000)))
    Path("sorted.csv").write_text("".join(f"{i},{i * i},{i // 100}\n" for i in range(1000)))


@pytest.mark.parametrize("page", sorted({path.name for path in DOCS.glob("*.md")} - {"first-hour.md"}))
def test_programs_run(page: str, files: None) -> None:
    names: dict[str, object] = {}
    missing = set()
    for block in re.findall(r"^```python\n(.*?)^```", (DOCS / page).read_text(), re.M | re.S):
        modules = re.findall(r"^(?:import|from) (\w+)", block, re.M)
        modules += ["sklearn"] if "LinearClassifier" in block or "LogisticRegression" in block else []
        modules += ["torch"] if "torch" in block else []
        lacking = {module for module in modules if importlib.util.find_spec(module) is None}
        missing |= lacking
        if not lacking:
            exec(compile(block, page, "exec"), names)
    if missing:
        pytest.skip(f"SKIPPED: programs with {', '.join(sorted(missing))}, which are not installed")


def test_the_first_hour_goes_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("torch", "PIL"):
        pytest.importorskip(module, reason=f"SKIPPED: {module} is not installed")
    monkeypatch.chdir(tmp_path)
    command = tmp_path / "bin" / "pelton"
    command.parent.mkdir()
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m pelton "$@"\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:{os.environ['PATH']}")
    names: dict[str, object] = {}
    for kind, block in re.findall(r"^```(python|sh)\n(.*?)^```", (DOCS / "first-hour.md").read_text(), re.M | re.S):
        if kind == "python":
            exec(compile(block, "first-hour.md", "exec"), names)
            continue
        ended = subprocess.run(["bash", "-euo", "pipefail", "-c", block], capture_output=True, text=True)
        assert ended.returncode == 0, ended.stderr
        assert "did not fall" not in ended.stderr
    assert (tmp_path / "runs" / "flowers" / "report.html").exists()
    assert len(Path("predicted.tsv").read_text().split()) == 1000
    rows = [line.split("\t")[0] for line in Path("classes.tsv").read_text().splitlines()]
    assert sorted(rows) == ["columns"] * 150 + ["rows"] * 150


@pytest.mark.parametrize("page", sorted(path.name for path in DOCS.glob("*.md")))
def test_links_lead_somewhere(page: str) -> None:
    for target in re.findall(r"\]\(([^)#\s]*\.md)(?:#[\w-]*)?\)", (DOCS / page).read_text()):
        assert (DOCS / target).exists(), f"{page} names {target}"


def test_the_example_of_the_package_runs(files: None) -> None:
    result = doctest.testmod(pelton)
    assert result.attempted > 0 and not result.failed


def test_the_book_has_every_page() -> None:
    listed = set(re.findall(r"\]\(([^)]*\.md)\)", (DOCS / "SUMMARY.md").read_text()))
    assert listed == {path.name for path in DOCS.glob("*.md")} - {"SUMMARY.md"}
