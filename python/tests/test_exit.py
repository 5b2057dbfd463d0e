"""Programs that end while threads read, and call functions: each exits soon and as Python says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from conftest import Server

BEGIN = """
import os, signal, sys, threading, time
import numpy as np
import pelton
def slow(sample):
    time.sleep(0.002)
    return sample
p = pelton.load({path!r}).shuffle().map(slow).batch(100)
"""

#: The work of a program, and how it ends.
ENDS = {
    "one epoch": ("for b in p: pass", 0),
    "break": ("for b in p: break", 0),
    "break, and the iterator is kept": ("i = iter(p)\nnext(i)", 0),
    "two loops": ("i, j = iter(p), iter(p)\nnext(i), next(j)", 0),
    "in a function": ("def main():\n  for b in p.batch(10): break\nmain()", 0),
    "exception": ("for b in p: raise SystemError('mine')", 1),
    "exception in a function": ("def f(s): raise KeyError('mine')\nfor b in p.map(f): pass", 1),
    "sys.exit": ("for b in p: sys.exit(3)", 3),
    "sys.exit in a function": ("def f(s): sys.exit(3)\nfor b in p.map(f): pass", 1),
    "os._exit": ("for b in p: os._exit(4)", 4),
    "closed": ("for b in p: break\np.close()", 0),
    "a thread goes on": ("threading.Thread(target=lambda: [None for _ in range(99) for b in p], daemon=True).start()\ntime.sleep(.2)", 0),
    "held by a cycle": ("class A: pass\na = A(); a.me = a; a.i = iter(p); next(a.i); del a", 0),
    "at exit of the program": ("import atexit\natexit.register(lambda: next(iter(p)))", 0),
    "Ctrl-C": ("threading.Timer(.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\nwhile True:\n  for b in p: pass", -2),
    "Ctrl-C, then an epoch": (
        "signal.setitimer(signal.ITIMER_REAL, .1)\nsignal.signal(signal.SIGALRM, signal.default_int_handler)\n"
        "try:\n  while True:\n    for b in p: pass\nexcept KeyboardInterrupt: pass\nfor b in p: pass",
        0,
    ),
    "samples": ("d = p.dataset()\nd[3]", 0),
    "a child ends": ("next(iter(p))\nif os.fork() == 0: sys.exit(0)\nsys.exit(os.waitstatus_to_exitcode(os.wait()[1]))", 0),
}


def pythons() -> list[str]:
    """This Python, and those named in PELTON_PYTHONS, which know the package."""
    return [sys.executable, *filter(None, os.environ.get("PELTON_PYTHONS", "").split(":"))]


def ends(python: str, program: str, folder: Path) -> tuple[int, str, float]:
    began = time.monotonic()
    done = subprocess.run([python, "-c", program], cwd=folder, capture_output=True, text=True, timeout=60)
    return done.returncode, done.stderr, time.monotonic() - began


@pytest.mark.parametrize("python", pythons())
@pytest.mark.parametrize("how", ENDS)
def test_a_program_ends(how: str, python: str, tmp_path: Path) -> None:
    np.save(tmp_path / "s.npy", np.arange(300, dtype="i4"))
    code, expected = ENDS[how]
    for _ in range(3):
        found, told, seconds = ends(python, BEGIN.format(path="s.npy") + code, tmp_path)
        assert found == expected, told
        assert seconds < 20 and "panicked" not in told and "Fatal" not in told


#: After the first epoch the server stops answering.
DEAD = {
    "break": ("for b in p:\n  hang()\n  break", 0),
    "exception": ("for b in p:\n  hang()\n  raise SystemError('mine')", 1),
    "Ctrl-C": ("threading.Timer(1, lambda: os.kill(os.getpid(), signal.SIGINT)).start()\nnext(iter(p)); hang()\nfor b in p: pass", -2),
    "the end": ("i = iter(p); next(i); hang()", 0),
}


@pytest.mark.parametrize("how", DEAD)
def test_a_program_ends_where_its_server_hangs(how: str, server: Server, tmp_path: Path) -> None:
    code, expected = DEAD[how]
    program = BEGIN.format(path=server.url).replace(".shuffle()", ".shuffle().decode('member:txt')").replace("batch(100)", "batch(5)")
    program = program.replace("load(", "load(cache_dir='c', paths=") + "def hang(): print('hang', flush=True); sys.stdin.readline()\n" + code
    child = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program], cwd=tmp_path, stdin=-1, stdout=-1, stderr=-1, text=True
    )
    assert child.stdin is not None and child.stdout is not None
    assert child.stdout.readline() == "hang\n"
    server.hangs.set()
    began = time.monotonic()
    _, told = child.communicate("\n", timeout=60)
    assert child.returncode == expected, told
    assert time.monotonic() - began < 8, told
