"""Data that tests share."""

from __future__ import annotations

import http.server
import io
import os
import re
import signal
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest


# Programs that a shell starts in the background ignore Ctrl-C, and so would those of the tests.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest test first: at the end one process would wait for it."""
    items.sort(key=lambda item: item.name != "test_trainers_use_each_record_once")


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


class Server:
    """A web server of one tar file, which answers ranges until it `hangs`."""

    def __init__(self) -> None:
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as tar:
            for i in range(40):
                for name, content in ((f"{i:03}.txt", f"n{i:04}"), (f"{i:03}.cls", str(i % 3))):
                    member = tarfile.TarInfo(name)
                    member.size = len(content)
                    tar.addfile(member, io.BytesIO(content.encode()))
        self.hangs = threading.Event()
        body, hangs, ended = out.getvalue(), self.hangs, threading.Event()

        class Answer(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_HEAD(self) -> None:
                self.answer(False)

            def do_GET(self) -> None:
                self.answer(True)

            def answer(self, send: bool) -> None:
                if hangs.is_set():
                    ended.wait(120)
                    return
                match = re.match(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
                first, last = (0, len(body) - 1) if match is None else (int(match[1]), min(len(body) - 1, int(match[2] or 1 << 40)))
                self.send_response(206 if match else 200)
                if match:
                    self.send_header("Content-Range", f"bytes {first}-{last}/{len(body)}")
                for name, value in (("Content-Length", str(last + 1 - first)), ("Accept-Ranges", "bytes"), ("ETag", '"1"')):
                    self.send_header(name, value)
                self.end_headers()
                if send:
                    self.wfile.write(body[first : last + 1])

            def log_message(self, *_: object) -> None:
                pass

        class Quiet(http.server.ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, *_: object) -> None:
                """Clients that go away are none of the tests' business."""

        self.ended = ended
        self.server = Quiet(("127.0.0.1", 0), Answer)
        self.url = f"http://127.0.0.1:{self.server.server_port}/a.tar"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self.ended.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.close()
