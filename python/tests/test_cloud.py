"""Data on an object store: a real server of the S3 protocol on this machine."""

from __future__ import annotations

import http.server
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

import pelton

pytest.importorskip("moto", reason="SKIPPED: moto[server] is not installed, so there is no object store to read from")


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)], stdout=-3, stderr=-3
    )
    url = f"http://127.0.0.1:{port}"
    for _ in range(300):
        try:
            put(f"{url}/data", b"")
            break
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    else:
        server.kill()
        pytest.fail("the object store did not start")
    yield url
    server.kill()
    server.wait()


def put(url: str, body: bytes) -> None:
    # The server requires an account, but checks nothing.
    sign = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
    # The server would parse a body of the default type as a form.
    headers = {"Authorization": sign, "Content-Type": "application/octet-stream"}
    request = urllib.request.Request(url, body, headers, method="PUT")
    urllib.request.urlopen(request, timeout=10).close()


@pytest.fixture
def store(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in (
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ALLOW_HTTP", "true"),
        ("AWS_REGION", "us-east-1"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ):
        monkeypatch.setenv(name, value)
    return endpoint


def test_files_of_a_bucket_are_a_data_set(store: str, tmp_path: Path) -> None:
    for part in range(3):
        rows = "".join(f"{i},{i * i},{part}\n" for i in range(part * 100, part * 100 + 100))
        put(f"{store}/data/part-{part}.csv", rows.encode())
    for names in (["s3://data/part-{0..2}.csv"], [f"s3://data/part-{i}.csv" for i in range(3)], ["s3://data/part-*.csv"]):
        pipeline = pelton.load(names, cache_dir=tmp_path / "cache").shuffle(seed=0).batch(32)
        seen = []
        for batch in pipeline:
            np.testing.assert_array_equal(batch["features"][:, 1], batch["features"][:, 0] ** 2)
            np.testing.assert_array_equal(batch["label"], batch["features"][:, 0] // 100)
            seen.extend(batch.ids)
        assert sorted(seen) == list(range(300)), names


def test_a_name_that_is_there_is_no_pattern(store: str, tmp_path: Path) -> None:
    names = ["a[1].csv", "x{1}.csv", "/lead.csv", "a//b.csv", "a b//ü.csv", "q1.csv", "q2.csv"]
    for number, name in enumerate(names):
        put(f"{store}/data/{urllib.parse.quote(name)}", f"1,{number + 5},3\n2,{number + 5},4\n".encode())
    for number, name in enumerate(names):
        (batch,) = pelton.load(f"s3://data/{name}", cache_dir=tmp_path / "cache").batch(2)
        np.testing.assert_array_equal(batch["features"][:, 1], [number + 5] * 2)
    for pattern in ("q*.csv", "q[12].csv", "q{1..2}.csv"):
        (batch,) = pelton.load(f"s3://data/{pattern}", cache_dir=tmp_path / "cache").batch(4)
        np.testing.assert_array_equal(batch["features"][:, 1], [10, 10, 11, 11])


def test_what_was_read_from_a_bucket_is_kept(store: str, tmp_path: Path) -> None:
    values = np.arange(4000, dtype=np.float32).reshape(1000, 4)
    np.save(tmp_path / "values.npy", values)
    put(f"{store}/data/values.npy", (tmp_path / "values.npy").read_bytes())
    sizes = {}
    for limit in (None, "50MB"):
        folder = tmp_path / f"cache-{limit}"
        pipeline = pelton.load("s3://data/values.npy", cache_dir=folder, remote_cache=limit).shuffle(seed=0).batch(100)
        for batch in pipeline:
            np.testing.assert_array_equal(batch["data"], values[batch.ids])
        pipeline.close()
        sizes[limit] = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    assert sizes["50MB"] >= values.nbytes > (sizes[None] or 0)


def test_what_is_not_there_is_told(store: str, tmp_path: Path) -> None:
    with pytest.raises((FileNotFoundError, pelton.DataError), match="nothing.csv"):
        next(iter(pelton.load("s3://data/nothing.csv", cache_dir=tmp_path).batch(2)))


def request(url: str, method: str, body: bytes | None = None) -> bytes:
    sign = "AWS4-HMAC-SHA256 Credential=key/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0"
    headers = {"Authorization": sign, "Content-Type": "application/octet-stream"}
    with urllib.request.urlopen(urllib.request.Request(url, body, headers, method=method), timeout=10) as answer:
        return answer.read()


def names(endpoint: str, run: str) -> set[str]:
    """The files of a run in the bucket."""
    listed = request(f"{endpoint}/data?list-type=2&prefix={run}/", "GET").decode()
    return {part.split("</Key>")[0].removeprefix(f"{run}/") for part in listed.split("<Key>")[1:]}


class Gate(http.server.ThreadingHTTPServer):
    """Passes requests on to a store, and refuses or drops those that a test names."""

    def __init__(self, store: str) -> None:
        self.store, self.refuses, self.is_down = store, "", False
        super().__init__(("127.0.0.1", 0), GateHandler)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, *_: object) -> None:
        pass


class GateHandler(http.server.BaseHTTPRequestHandler):
    server: Gate

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.server.is_down:
            return self.connection.close()
        # The store would parse a body of the default type as a form.
        headers = {"Content-Type": "application/octet-stream"}
        headers |= {name: value for name, value in self.headers.items() if name.lower() != "host"}
        asked = urllib.request.Request(self.server.store + self.path, body or None, headers, method=self.command)
        try:
            if self.command == self.server.refuses:
                raise urllib.error.HTTPError(self.path, 403, "Forbidden", None, None)  # type: ignore[arg-type]
            answer = urllib.request.urlopen(asked, timeout=30)
        except urllib.error.HTTPError as error:
            self.send_error(error.code)
            return
        with answer:
            body = answer.read()
            self.send_response(answer.status)
            for name, value in answer.headers.items():
                if name.lower() not in ("connection", "content-length", "transfer-encoding", "server", "date"):
                    self.send_header(name, value)
            is_head = self.command == "HEAD"
            self.send_header("Content-Length", answer.headers["Content-Length"] if is_head else str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def gate(store: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    gate = Gate(store)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{gate.server_port}")
    yield gate
    gate.shutdown()
    gate.server_close()


class Host:
    """A machine: a folder with a cache of its own, and the data."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        values = np.random.default_rng(3).normal(size=(3000, 20)).astype(np.float32)
        labels = (values @ np.linspace(-1, 1, 20) + np.random.default_rng(4).normal(size=3000) > 0).astype(int)
        lines = (",".join(f"{value:.4f}" for value in row) + f",{label}\n" for row, label in zip(values, labels))
        (folder / "rows.csv").write_text("".join(lines))
        words = np.minimum(np.random.default_rng(5).exponential(10, size=(2000, 8)).astype(int), 40)
        (folder / "text.txt").write_text("".join(" ".join(f"w{word}" for word in line) + "\n" for line in words))

    def start(self, *words: str, **variables: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PELTON_CACHE": str(self.folder / "cache"), **variables}
        return subprocess.Popen(
            [sys.executable, "-m", "pelton", *words], cwd=self.folder, env=environment, text=True, stdout=-1, stderr=-1
        )

    def pelton(self, *words: str, code: int = 0) -> str:
        process = self.start(*words)
        out, errors = process.communicate(timeout=120)
        assert process.returncode == code, errors
        return out + errors

    def kept(self) -> list[Path]:
        return [path for path in (self.folder / "cache" / "runs").glob("*") if (path / "run.toml").exists()]


TRAIN = ("train", "linear", "rows.csv", "--target", "none", "--seed", "1", "--epochs", "6")
"""A short run."""
EPOCHS = 50
LONG = ("train", "language", "text.txt", "--hidden", "48", "--seed", "1", "--epochs", str(EPOCHS))
"""A run of several seconds, with a checkpoint after each epoch."""


def until(condition: Callable[[], bool]) -> None:
    """Waits until something happens."""
    for _ in range(600):
        if condition():
            return
        time.sleep(0.1)
    pytest.fail("it did not happen within a minute")


def test_a_run_in_a_bucket_is_that_of_a_folder(store: str, tmp_path: Path) -> None:
    here, there = Host(tmp_path / "here"), Host(tmp_path / "there")
    here.pelton(*TRAIN, "--out", "run")
    assert "s3://data/same" in here.pelton(*TRAIN, "--out", "s3://data/same")
    found = names(store, "same")
    assert found >= {"manifest.json", "run.toml", "metrics.jsonl", "summary.json", "report.html"}
    assert ".writer" not in found and not here.kept()
    assert request(f"{store}/data/same/model.safetensors", "GET") == (here.folder / "run/model.safetensors").read_bytes()
    figures = here.pelton("eval", "run", "rows.csv")
    for model in ("s3://data/same", "s3://data/same/", "s3://data/same/model.safetensors"):
        assert there.pelton("eval", model, "rows.csv").split(",")[0] == figures.split(",")[0]
    # What is there is not lost, and replaced if that is asked for.
    assert "contains a finished run" in here.pelton(*TRAIN, "--out", "s3://data/same", code=2)
    there.pelton(*TRAIN, "--cost", "0.01", "--out", "s3://data/same", "--overwrite")
    assert {name for name in found if "events" not in name} <= names(store, "same")
    assert there.pelton("eval", "s3://data/same", "rows.csv") != figures
    put(f"{store}/data/foreign/notes.txt", b"mine")
    assert "do not belong to a run (notes.txt)" in here.pelton(*TRAIN, "--out", "s3://data/foreign", "--overwrite", code=2)
    assert names(store, "foreign") == {"notes.txt"}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """The model of [LONG] without an interruption."""
    host = Host(tmp_path_factory.mktemp("undisturbed") / "host")
    host.pelton(*LONG, "--out", "run")
    return (host.folder / "run/model.safetensors").read_bytes()


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGKILL])
def test_a_run_goes_on_from_a_bucket_on_another_machine(
    store: str, tmp_path: Path, ending: signal.Signals, undisturbed: bytes
) -> None:
    here, there, run = Host(tmp_path / "here"), Host(tmp_path / "there"), f"moves-{ending}"
    process = here.start(*LONG, "--out", f"s3://data/{run}")
    until(lambda: "checkpoint/manifest.json" in names(store, run))
    process.send_signal(ending)
    _, errors = process.communicate(timeout=60)
    if ending == signal.SIGINT:
        assert process.returncode == 130 and f"the state is saved in s3://data/{run}" in errors
        assert not here.kept() and ".writer" not in names(store, run)
    done = request(f"{store}/data/{run}/metrics.jsonl", "GET")
    assert 0 < done.count(b"\n") < EPOCHS and "manifest.json" not in names(store, run)
    assert "contains no finished model" in there.pelton("eval", f"s3://data/{run}", "text.txt", code=2)
    there.pelton("train", "language", "--resume", "--out", f"s3://data/{run}")
    assert request(f"{store}/data/{run}/model.safetensors", "GET") == undisturbed
    lines = request(f"{store}/data/{run}/metrics.jsonl", "GET")
    assert lines.count(b"\n") == EPOCHS and lines.startswith(done.split(b"\n")[0])
    # One state, that of the manifest.
    (state,) = (name for name in names(store, run) if name.startswith("checkpoint/state"))
    assert state in request(f"{store}/data/{run}/checkpoint/manifest.json", "GET").decode()


def test_processes_of_two_machines_write_a_run_in_a_bucket(store: str, tmp_path: Path) -> None:
    hosts = [Host(tmp_path / f"host{rank}") for rank in range(2)]

    def together(*words: str) -> list[str]:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        variables = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
        started = [host.start(*words, RANK=str(rank), **variables) for rank, host in enumerate(hosts)]
        said = [process.communicate(timeout=120) for process in started]
        assert [process.returncode for process in started] == [0, 0], said
        return [out + errors for out, errors in said]

    together(*TRAIN, "--out", "s3://data/two")
    assert "resuming" in together(*TRAIN[:-1], "12", "--out", "s3://data/two", "--resume")[0]
    hosts[0].pelton(*TRAIN, "--ranks", "2", "--out", "run")
    hosts[0].pelton(*TRAIN[:-1], "12", "--ranks", "2", "--out", "run", "--resume")
    whole = (hosts[0].folder / "run/model.safetensors").read_bytes()
    assert request(f"{store}/data/two/model.safetensors", "GET") == whole
    assert not hosts[0].kept() and not hosts[1].kept()


def test_what_a_store_refuses_is_told_before_the_run(gate: Gate, tmp_path: Path) -> None:
    host = Host(tmp_path / "host")
    gate.refuses = "PUT"
    said = host.pelton(*TRAIN, "--out", "s3://data/closed", code=2)
    assert "s3://data/closed/.writer: the server answered 403 Forbidden" in said and "may write there" in said
    gate.refuses = ""
    assert "give s3://, gs:// or az://" in host.pelton(*TRAIN, "--out", "https://host/run", code=2)
    assert "s3://data/none: contains no finished model" in host.pelton("eval", "s3://data/none", "rows.csv", code=2)
    host.pelton(*TRAIN, "--out", "s3://data/torn")
    (model,) = (name for name in names(gate.store, "torn") if name == "model.safetensors")
    request(f"{gate.store}/data/torn/{model}", "DELETE")
    said = host.pelton("eval", "s3://data/torn", "rows.csv", code=2)
    assert "model.safetensors" in said and "is missing" in said, said


def test_files_that_could_not_be_sent_are_kept(gate: Gate, tmp_path: Path, undisturbed: bytes) -> None:
    host = Host(tmp_path / "host")
    process = host.start(*LONG, "--out", "s3://data/kept")
    until(lambda: "checkpoint/manifest.json" in names(gate.store, "kept"))
    gate.refuses = "PUT"
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1 and "--resume on this machine sends them" in errors, errors
    (local,) = host.kept()
    assert str(local) in errors
    assert "contains an unfinished run" in host.pelton(*LONG, "--out", "s3://data/kept", code=2)
    done = (local / "metrics.jsonl").read_bytes()
    assert len(done) > len(request(f"{gate.store}/data/kept/metrics.jsonl", "GET"))
    gate.refuses = ""
    host.pelton("train", "language", "--resume", "--out", "s3://data/kept")
    assert request(f"{gate.store}/data/kept/metrics.jsonl", "GET").startswith(done)
    assert request(f"{gate.store}/data/kept/model.safetensors", "GET") == undisturbed
    assert not host.kept()


def test_a_store_may_be_away_for_a_while(gate: Gate, tmp_path: Path, undisturbed: bytes) -> None:
    host = Host(tmp_path / "host")
    process = host.start(*LONG, "--out", "s3://data/away")
    until(lambda: "run.toml" in names(gate.store, "away"))
    gate.is_down = True
    time.sleep(2)
    gate.is_down = False
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert request(f"{gate.store}/data/away/model.safetensors", "GET") == undisturbed


def test_a_second_writer_ends_the_first(store: str, tmp_path: Path) -> None:
    here, there = Host(tmp_path / "here"), Host(tmp_path / "there")
    command = [*LONG[:-1], "4000", "--out", "s3://data/twice"]
    first = here.start(*command)
    until(lambda: "checkpoint/manifest.json" in names(store, "twice"))
    assert "another process is writing this run" in here.pelton(*command, "--resume", code=2)
    second = there.start(*command, "--resume")
    _, errors = first.communicate(timeout=60)
    assert first.returncode != 0 and "s3://data/twice: the run folder was removed, moved or replaced" in errors
    second.send_signal(signal.SIGINT)
    _, errors = second.communicate(timeout=60)
    assert second.returncode == 130 and "the state is saved in s3://data/twice" in errors
