"""Functions that worker processes import, which takes long with all that tests import."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import numpy as np

Sample = dict[str, Any]


def noisy(sample: Sample, rng: np.random.Generator) -> Sample:
    return {"x": sample["x"], "noise": rng.normal(size=3), "is_up": sample["x"] > 0, "name": f"r{sample['record']}"}


def summed(sample: Sample) -> Sample:
    """What only a mask of bool and text select and join as here."""
    chosen = sample["x"][sample["is_up"]].sum()
    return {"sum": chosen, "noise": sample["noise"], "name": f"{sample['name']:>8}", "label": 2 * sample["label"], "id": sample["record"]}


def relabelled(sample: Sample) -> Sample:
    return {**sample, "label": sample["label"] + 100}


def with_process(sample: Sample) -> Sample:
    return {"pid": os.getpid(), "is_child": os.getppid()}


class Odd(Exception):
    """It cannot be pickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")
        self.lock = threading.Lock()


def fails(sample: Sample) -> Sample:
    if sample["record"] == 300:
        raise Odd("this", "that")
    if sample["record"] == 500:
        raise KeyError("five hundred")
    return sample


def exits(sample: Sample) -> Sample:
    if sample["record"] == 500:
        os._exit(3)
    return sample


def is_killed(sample: Sample) -> Sample:
    if sample["record"] == 500:
        os.kill(os.getpid(), signal.SIGKILL)
    return sample


def grown(sample: Sample) -> Sample:
    return {"x": np.tile(sample["x"], 1_000_000), "none": np.zeros((0, 3))}


def turned(sample: Sample) -> Sample:
    """Of a sample that it may write to."""
    assert sample["x"].nbytes == 20_000_000 and sample["none"].shape == (0, 3)
    sample["x"] += 1
    return {"x": sample["x"][::-1], "none": sample["none"]}


def shrunk(sample: Sample) -> Sample:
    return {"first": sample["x"][:5], "sum": sample["x"].sum(), "none": sample["none"]}


def drawn(sample: Sample) -> Sample:
    import torch

    return {"drawn": torch.rand(3)}
