"""The command that the package installs is the one that cargo builds."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import sysconfig
import time
from pathlib import Path

import pytest

import pelton

SCRIPT = Path(sysconfig.get_path("scripts")) / "pelton"
HOW = {"script": [str(SCRIPT)], "module": [sys.executable, "-W", "error", "-m", "pelton"]}
TRAIN = ["train", "linear", "demo:higgs:20000", "--cache-dir", "cache"]


@pytest.fixture(autouse=True)
def installed() -> None:
    if not SCRIPT.exists():
        pytest.skip("SKIPPED: the command: the package is not installed")


def run(folder: Path, *words: str, how: str = "script") -> subprocess.CompletedProcess[bytes]:
    return subprocess.run([*HOW[how], *words], cwd=folder, capture_output=True, timeout=120)


@pytest.mark.parametrize("how", HOW)
def test_version_and_help(how: str, tmp_path: Path) -> None:
    version = run(tmp_path, "--version", how=how)
    assert (version.returncode, version.stdout, version.stderr) == (0, f"pelton {pelton.__version__}\n".encode(), b"")
    shown = run(tmp_path, "bench", "--help", how=how)
    assert shown.returncode == 0 and b"Usage: pelton bench" in shown.stdout
    # The features of a default build.
    shown = run(tmp_path, "--help", how=how)
    assert shown.returncode == 0 and b"  serve " in shown.stdout


@pytest.mark.parametrize("how", HOW)
def test_bad_usage_ends_with_2_and_a_sentence(how: str, tmp_path: Path) -> None:
    for words in ([], ["bench", "--nonesuch"], ["probe", "no-such-folder"], [os.fsdecode(b"\xff\xfe")]):
        ended = run(tmp_path, *words, how=how)
        assert ended.returncode == 2, ended
        assert ended.stderr.startswith(b"pelton: ") and b"Traceback" not in ended.stderr
        assert len(ended.stderr.splitlines()) == 1 and not ended.stdout


def test_paths_need_not_be_utf8(tmp_path: Path) -> None:
    (tmp_path / os.fsdecode(b"r\xff.csv")).write_text("1,2,0\n3,4,1\n")
    ended = run(tmp_path, "inspect", os.fsdecode(b"r\xff.csv"))
    assert ended.returncode == 0, ended


def test_train_eval_and_predict(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("".join(f"{i % 7},{i % 11},{int(i % 7 > 3)}\n" for i in range(500)))
    trained = run(tmp_path, "train", "linear", "rows.csv", "--out", "run", "--scale", "standard", "--json")
    assert trained.returncode == 0, trained
    assert json.loads(trained.stdout)["relative_gap"] < 1e-2
    evaluated = run(tmp_path, "eval", "run", "rows.csv", "--json")
    assert evaluated.returncode == 0, evaluated
    predicted = run(tmp_path, "predict", "run", "rows.csv")
    assert predicted.returncode == 0 and len(predicted.stdout.splitlines()) == 500, predicted


def test_a_failed_run_ends_as_the_command_says(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("1,2,0\nx,y\n")
    ended = run(tmp_path, "train", "linear", "rows.csv", "--out", "run")
    assert ended.returncode == 2 and b"rows.csv" in ended.stderr, ended


def test_a_reader_that_closes_the_pipe_ends_it_quietly(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("".join(f"{i % 7},{i % 11},{int(i % 7 > 3)}\n" for i in range(200_000)))
    assert run(tmp_path, "train", "linear", "rows.csv", "--out", "run").returncode == 0
    child = subprocess.Popen([SCRIPT, "predict", "run", "rows.csv"], cwd=tmp_path, stdout=-1, stderr=-1)
    assert child.stdout is not None and child.stderr is not None
    assert child.stdout.readline()
    child.stdout.close()
    told = child.stderr.read()
    assert child.wait(60) == 0, told
    assert b"Traceback" not in told and b"rror" not in told


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
@pytest.mark.parametrize("how", HOW)
def test_a_signal_ends_a_run_soon_with_its_state_saved(how: str, name: str, tmp_path: Path) -> None:
    line = [*TRAIN, "--target", "1e-15", "--epochs", "100000", "--memory", "1/8", "--checkpoint-every", "0", "--out", "run"]
    child = subprocess.Popen([*HOW[how], *line], cwd=tmp_path, stdout=-1, stderr=-1)
    state = tmp_path / "run" / "checkpoint" / "manifest.json"
    while not state.exists():
        assert child.poll() is None, child.communicate()
        time.sleep(0.02)
    child.send_signal(signal.Signals[name])
    began = time.monotonic()
    _, told = child.communicate(timeout=60)
    assert time.monotonic() - began < 5
    assert child.returncode == 130 and b"interrupted; the state is saved" in told and b"Traceback" not in told, told
    # Once more, from there.
    again = run(tmp_path, *TRAIN, "--epochs", "2", "--memory", "1/8", "--resume", "--out", "run")
    assert b"resuming from" in again.stderr, again


def test_closed_standard_streams_are_not_files_of_the_run(tmp_path: Path) -> None:
    line = " ".join([str(SCRIPT), *TRAIN, "--epochs", "1", "--out", "run", ">&- 2>&- <&-"])
    assert subprocess.run(["sh", "-c", line], cwd=tmp_path, timeout=120).returncode in (0, 3)
    assert (tmp_path / "run" / "model.safetensors").exists()
    # The report has a column of that name.
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file() and path.name != "report.html"]
    assert not [path for path in files if b"primal  " in path.read_bytes()]


def test_the_command_needs_no_numpy(tmp_path: Path) -> None:
    program = "import sys, pelton._command; assert 'numpy' not in sys.modules; import pelton; pelton.load; assert 'numpy' in sys.modules"
    subprocess.run([sys.executable, "-W", "error", "-c", program], check=True, timeout=60)
