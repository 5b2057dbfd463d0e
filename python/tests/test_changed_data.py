"""Data that changed between a state and the loop that resumes from it."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import pelton

RECORDS = 6000


def _between_samples(path: Path, suits: Callable[[int], bool]) -> int:
    """The offset of a byte that no sample of the file's fingerprint covers."""
    data = path.read_bytes()
    first, second = ((len(data) - 4096) * i // 63 for i in (30, 31))
    assert second - first > 6000
    return next(at for at in range(first + 4096, second) if suits(data[at]))


def _change(path: Path, suits: Callable[[int], bool] = lambda byte: True) -> None:
    """Changes one byte, and neither size nor time."""
    at, times = _between_samples(path, suits), path.stat()
    with open(path, "r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))


def _text(path: Path) -> Path:
    path.write_text("".join(f"record {i:09d} {'x' * 100}\n" for i in range(RECORDS)))
    return path


def _raw(path: Path) -> Path:
    np.arange(RECORDS * 100, dtype=np.uint8).tofile(path)
    return path


def _tar(path: Path) -> Path:
    with tarfile.open(path, "w") as tar:
        for i in range(1000):
            for suffix, data in (("txt", b"x" * 1500), ("cls", b"3")):
                info = tarfile.TarInfo(f"{i:05d}.{suffix}")
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
    return path


def _idx(path: Path) -> Path:
    path.write_bytes(bytes([0, 0, 8, 3]) + np.array([RECORDS, 10, 10], ">u4").tobytes() + bytes(RECORDS * 100))
    labels = path.with_name(path.name.replace("images-idx3", "labels-idx1"))
    labels.write_bytes(bytes([0, 0, 8, 1]) + np.array([RECORDS], ">u4").tobytes() + bytes(i % 10 for i in range(RECORDS)))
    return path


KINDS: dict[str, tuple[Callable[[Path], Path], str, dict[str, str], Callable[[int], bool]]] = {
    "text": (_text, "lines.txt", {}, lambda byte: byte == ord("x")),
    "raw": (_raw, "rows.bin", {"format": "raw:u8[100]"}, lambda byte: True),
    "tar": (_tar, "samples.tar", {}, lambda byte: byte == ord("x")),
    "idx": (_idx, "train-images-idx3-ubyte", {}, lambda byte: True),
}


def _batches(path: Path, options: dict[str, str]) -> pelton.Pipeline:
    return pelton.load(path, **options).shuffle(seed=1).batch(100)


def _state(path: Path, options: dict[str, str], batches: int) -> dict[str, object]:
    pipeline = _batches(path, options)
    left = batches
    while left > 0:
        for _ in pipeline:
            left -= 1
            if left == 0:
                return pipeline.state_dict()
    raise AssertionError


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("epochs", [0, 1])
def test_changed_records_are_refused(kind: str, epochs: int, tmp_path: Path) -> None:
    make, name, options, suits = KINDS[kind]
    path = make(tmp_path / name)
    steps = len(_batches(path, options))
    # All but one batch of the epoch.
    state = _state(path, options, epochs * steps + steps - 1)
    os.utime(path)
    resumed = _batches(path, options)
    resumed.load_state_dict(state)
    assert sum(len(batch.ids) for batch in resumed) == 100
    _change(path, suits)
    with pytest.raises(pelton.DataError, match=f"{name}: contains other records"):
        _batches(path, options).load_state_dict(state)
    # If modification times show nothing, the check at the end of the epoch does, once a whole epoch is known.
    resumed = _batches(path, options)
    resumed.load_state_dict({**state, "files": resumed.state_dict()["files"]})
    with pytest.raises(pelton.DataError, match=f"{name}: contains other records"):
        for _ in range(2):
            list(resumed)


def test_changed_labels_in_another_file_are_refused(tmp_path: Path) -> None:
    path = _idx(tmp_path / "train-images-idx3-ubyte")
    state = _state(path, {}, 3)
    with open(tmp_path / "train-labels-idx1-ubyte", "r+b") as labels:
        labels.seek(5000)
        labels.write(bytes([7]))
    with pytest.raises(pelton.StateError, match="other data"):
        _batches(path, {}).load_state_dict(state)
