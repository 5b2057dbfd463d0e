"""Data on an object store: a real server of the S3 protocol on this machine."""

from __future__ import annotations

import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
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
