"""Every public function and method names an argument of another type, and what it expects instead."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pelton

WRONG: dict[str, Any] = {
    "None": None, "int": 3, "float": 1.5, "bytes": b"z", "str": "zz", "list": [object()], "dict": {"zz": 1}, "object": object(),
}  # fmt: skip
# Words in annotations that allow a value of this type.
FITS = {
    "None": "None", "int": "int|float|Classes", "float": "float", "bytes": "bytes|FileName|Paths", "str": "str|PathLike|FileName|Paths|Any$",
    "list": "Sequence|tuple|ArrayLike|Classes|Words|Iterable", "dict": "Mapping|Iterable|Any$", "object": "$^",
}  # fmt: skip
# Patterns of errors from the languages below.
BARE = r"object has no attribute|object is not|invalid type|expected value|missing field|unknown variant|line \d+ column|argument '|not supported between|must be real|cannot unpack|panicked"

# Arguments that a call needs in addition to the wrong one.
VALID: dict[str, dict[str, Any]] = {
    "mix": {"pipelines": [], "shares": [1.0]}, "echo": {"times": "batch:2"}, "windows": {"length": 4, "dtype": "uint8"}, "take": {"records": 5}, "skip": {"records": 5},
    "split": {"share_of_first": 0.5}, "filter": {"function": lambda sample: True}, "map": {"function": lambda sample: sample},
    "map_batches": {"function": lambda batch: batch}, "decode": {"kind": "image"}, "augment": {"steps": "flip"}, "resize": {"size": 8},
    "cache": {"memory": "1MiB"}, "crop": {"size": 8}, "center_crop": {"size": 8}, "random_crop": {"size": 8}, "random_resized_crop": {"size": 8}, "gaussian_blur": {"kernel_size": 3},
    "on_bad_record": {"policy": "fail"}, "batch": {"examples": 4}, "memory": {"size": "64MiB"}, "threads": {"threads": 1},
    "access": {"path": "auto"}, "shard": {"rank": 0, "world_size": 1}, "peek": {"record": 0}, "step_ids": {"epoch": 0, "step": 0},
    "locate": {"record": 0}, "set_epoch": {"epoch": 0}, "load_state_dict": {"state": {}}, "sample": {}, "normalise": {"mean": 0.5, "std": 0.5},
    "normalize": {"mean": 0.5, "std": 0.5}, "batch_at": {"epoch": 0, "step": 0}, "from_manifest": {"table": {"f": ["x.npz"]}, "files": "f"},
    "from_sequence": {"items": [{"x": 1}]}, "from_generator": {"make": lambda: iter([1, 2])}, "load": {"paths": "x.npz"}, "bytes": {"i": 0}, "text": {"i": 0}, "Dataset.sample": {"record": 0, "epoch": 0},
}  # fmt: skip
NOT_HERE = {"tf", "jax", "torch", "close", "progress"}


@pytest.fixture
def pipeline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    images = np.zeros((20, 16, 16, 3), np.uint8)
    np.savez("x.npz", image=images, label=np.arange(20) % 2)
    return pelton.load("x.npz")


def calls(pipeline: Any) -> Iterator[tuple[str, Callable[..., Any]]]:
    for name in ("load", "from_sequence", "from_generator", "from_arrays", "from_manifest", "concat", "mix", "collate"):
        yield f"pelton.{name}", getattr(pelton, name)
    ragged = pelton.Ragged.of([np.zeros(2, np.uint8)])
    for thing in (pipeline, pipeline.dataset(), ragged):
        for name, _ in inspect.getmembers(type(thing), inspect.isfunction):
            if not name.startswith("_") and name not in NOT_HERE:
                yield f"{type(thing).__name__}.{name}", getattr(thing, name)


def test_arguments_of_other_types_are_named(pipeline: Any) -> None:
    wrong: list[str] = []
    tried = 0
    for called, function in calls(pipeline):
        name = called.partition(".")[2]
        for parameter in inspect.signature(function).parameters.values():
            said = str(parameter.annotation)
            for kind, value in WRONG.items():
                is_meant = re.search(FITS[kind], said) is not None
                if kind == "None" and parameter.default is None:
                    continue
                tried += 1
                given = {**VALID.get(called, VALID.get(name, {})), parameter.name: value}
                positional = [value] if parameter.kind == parameter.VAR_POSITIONAL else []
                if positional:
                    del given[parameter.name]
                if parameter.kind == parameter.VAR_KEYWORD:
                    given = {"zz": value}
                if name == "mix" and called == "pelton.mix" and parameter.name != "pipelines":
                    given["pipelines"] = [pipeline, pipeline]
                elif called == "Pipeline.mix":
                    del given["pipelines"]
                    given["shares"] = value
                how = f"{called}({parameter.name}={value!r}): "
                try:
                    made = function(*positional, **given)
                    if isinstance(made, pelton.Pipeline):
                        next(iter(made), None)
                except (TypeError, ValueError, OSError, IndexError, pelton.DataError) as error:
                    if re.search(BARE, str(error)) or (not is_meant and not re.search(rf"`{parameter.name}`|`zz`", str(error))):
                        wrong.append(how + f"{type(error).__name__}: {error}")
                except BaseException as error:
                    wrong.append(how + f"{type(error).__name__}: {error}")
                else:
                    if not is_meant and "Any" not in said:
                        wrong.append(how + "accepted")
    assert tried > 300
    assert not wrong, "\n".join(wrong)
