"""What the documentation says about accuracies, computed from the raw runs."""

from __future__ import annotations

import importlib.util
import pathlib
import statistics
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def bench(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "bench" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_near_comes_closest_to_the_full_head() -> None:
    pytest.importorskip("numpy")
    found = bench("heads").compared(ROOT / "bench" / "results" / "heads.csv")
    page = (ROOT / "docs" / "classes.md").read_text()
    kinds = sorted({data for data, _ in found})
    assert kinds
    for data in kinds:
        _, full, _ = found[data, "full"]
        below = {head: statistics.mean(below) for (of, head), (_, _, below) in found.items() if of == data and head != "full"}
        assert below["near:0.1"] == min(below.values())
        assert below["near:0.1"] <= (0.5 if data.startswith("families") else 1.0), data
        if "near:0.05" in below:
            assert below["near:0.05"] <= 0.5
        row = next(line for line in page.splitlines() if line.startswith(f"| `{data}` "))
        columns = [head for head in ("near:0.1", "near:0.05", "knn:10:0.1", "sampled:0.1") if head in below]
        cells = [f"{statistics.mean(full):.1f} %", *(f"{below[head]:.2f}" for head in columns)]
        shown = [cell.strip() for cell in row.strip("|").split("|")[2:]]
        assert [cell for cell in shown if cell] == cells
