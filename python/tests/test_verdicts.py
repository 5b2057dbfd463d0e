"""What the documentation says about accuracies, computed from the raw runs."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import statistics
import sys
from typing import Any

import pytest

ROOT = pathlib.Path(__file__).parents[2]


def bench(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, ROOT / "bench" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
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


def test_verdicts_on_the_papers_follow_from_their_raw_runs() -> None:
    found = bench("verdicts").verdicts()
    lines = (ROOT / "docs" / "papers.md").read_text().splitlines()
    for beginning, effects in found.items():
        (row,) = [line for line in lines if line.startswith(f"| {beginning}")]
        cells = [cell.strip() for cell in row.strip().strip("|").split("|")]
        said = re.findall(r"\b(holds|smaller|not here|open)\b", cells[-1])
        assert said == [verdict for _, verdict in effects], (beginning, effects)


def test_the_page_says_when_each_file_was_made() -> None:
    page = (ROOT / "docs" / "papers.md").read_text()
    rows = [tuple(cell.strip(" `") for cell in line.strip("|").split("|")) for line in page.splitlines() if re.match(r"\| `\w+\.csv`", line)]
    assert rows == bench("verdicts").sources()


def test_a_verdict_is_what_the_page_says() -> None:
    effect = bench("verdicts").Effect
    for mean, half, verdict in ((5, 2, "holds"), (3, 2.5, "holds"), (3, 1, "smaller"), (1, 2, "not here"), (1, 5, "open"), (-6, 1, "not here")):
        assert effect(mean, half, 0).verdict(10) == verdict and effect(-mean, half, 0).verdict(-10) == verdict
        assert effect(1 + mean, half, 1).verdict(11) == verdict
    for mean, half, verdict in ((0.1, 0.3, "holds"), (0.3, 0.3, "open"), (-0.9, 0.3, "not here"), (0, 2, "open")):
        assert effect(mean, half, 0).equality() == verdict
