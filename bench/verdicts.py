"""The verdicts of docs/papers.md on effects, by the rule that the page states, from the raw runs of both arms.

python bench/verdicts.py prints them; a test compares the page with them.
"""

from __future__ import annotations

import csv
import math
import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

RESULTS = Path(__file__).parent / "results"
# Quantiles of Student's distribution at 0.975, by degrees of freedom.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262]


@dataclass
class Effect:
    """A mean over seeds with half of its 95 % interval, and what no effect would be."""

    mean: float
    half: float
    none: float

    def verdict(self, published: float) -> str:
        """Of an effect of this size."""
        sign = math.copysign(1, published - self.none)
        low, high = (sign * (self.mean - self.none) + end * self.half for end in (-1, 1))
        half_published = abs(published - self.none) / 2
        if low > 0:
            return "holds" if high >= half_published else "smaller"
        return "not here" if high < half_published else "open"

    def equality(self) -> str:
        """Of a claim that two are equal, in points."""
        low, high = self.mean - self.half, self.mean + self.half
        return "holds" if -0.5 <= low and high <= 0.5 else "not here" if low > 0.5 or high < -0.5 else "open"


def arms(
    name: str, column: str, arm: str = "method", keep: Callable[[dict[str, str]], bool] = lambda row: True, best: bool = False
) -> dict[str, dict[str, float]]:
    """The last number of each seed by arm, or the best over its epochs."""
    found: dict[str, dict[str, float]] = {}
    with open(RESULTS / f"reproduce_{name}_runs.csv") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            if keep(row):
                seed, number = row.get("seed") or row["turn"], float(row[column])
                of = found.setdefault(row[arm], {})
                of[seed] = max(number, of.get(seed, number)) if best else number
    return found


def effect(pairs: Sequence[float], none: float) -> Effect:
    return Effect(statistics.mean(pairs), STUDENT[len(pairs) - 2] * statistics.stdev(pairs) / math.sqrt(len(pairs)), none)


def points(of: dict[str, dict[str, float]], one: str, other: str, factor: float = 100.0) -> Effect:
    """Points that one arm is above another, seed by seed."""
    return effect([factor * (of[one][seed] - of[other][seed]) for seed in of[one] if seed in of[other]], 0.0)


def times(of: dict[str, dict[str, float]], one: str, other: str) -> Effect:
    """How many times another arm one has, seed by seed."""
    return effect([of[one][seed] / of[other][seed] for seed in of[one] if seed in of[other]], 1.0)


def verdicts() -> dict[str, list[tuple[Effect, str]]]:
    """By the beginning of a row: its effects and their verdicts, in the order in which the row has them."""
    knn, speed = (arms("knn_softmax", column) for column in ("test_accuracy", "samples_per_s"))
    overlap, fccs = arms("overlap", "samples_per_s"), arms("fccs", "test_accuracy")
    sparse, turns = arms("sparsification", "samples_per_s"), arms("topk", "ms")
    nets = arms("lirs_dnn", "accuracy_percent", "order", lambda row: row["file"] == "shuffled", best=True)
    drawn = arms("deepio_order_nets", "accuracy_percent", best=True)
    equal = [points(knn, "knn", "full"), points(knn, "knn, as published", "full, as published")]
    losses = [(points(knn, kind, "full, as published"), published) for kind, published in (("selective", -1.0), ("mach", -7.3))]
    overlaps = [times(overlap, f"{n} ranks, 1 Gbit/s, overlap", f"{n} ranks, 1 Gbit/s, one after the other") for n in (2, 4)]
    published = "piecewise decay, lars, 20 epochs"
    growth = points(fccs, "FCCS, cosine growth at each step", published)
    without = points(fccs, "FCCS without growth", "FCCS, cosine growth at each step")
    faster, selected = times(speed, "knn", "full"), times(turns, "loop", "grouped")
    sparser, ordered = times(sparse, "a thousandth", "all gradients"), points(nets, "LIRS", "queue of 0.78 %", 1.0)
    found: dict[str, list[tuple[Effect, str]]] = {
        "Table 2: KNN softmax as accurate": [(of, of.equality()) for of in equal],
        "Table 2: selective softmax": [(of, of.verdict(size)) for of, size in losses],
        "Table 3: KNN 1.2 to 3.5": [(faster, faster.verdict(3.5))],
        "Table 4: 1.042 to 1.054": [(of, of.verdict(1.042)) for of in overlaps],
        "Table 4: 1.123 to 1.162": [(sparser, sparser.verdict(1.162))],
        "Table 6: selecting": [(selected, selected.verdict(17.0))],
        "Table 7, Figure 6": [(growth, growth.equality())],
        "Table 7: without growth": [(without, without.verdict(-19.3))],
        "Tables 6 and 7, nets": [(ordered, ordered.verdict(0.65))],
    }
    for batch, sizes in (("32", (2.76, 3.65)), ("128", (3.37, 4.55))):
        of = bucketed(batch)
        gains = [(times(of, "none", policy), size) for policy, size in zip(("static:10,20,30,40,50,60", "auto"), sizes)]
        found[f"{sizes[0]} times as fast with static buckets, {sizes[1]} automatic"] = [(of, of.verdict(size)) for of, size in gains]
    fresh, seconds = (arms("echo_small", column, "echo", of_echo) for column in ("fresh_to_target", "seconds_to_target"))
    gain, saved = times(seconds, "none", "before:5"), times(fresh, "none", "before:2")
    found["3.25 times less time with e = 5"] = [(gain, gain.verdict(3.25))]
    found["fewer fresh examples with e = 2"] = [(saved, saved.verdict(2.0))]
    # The paper draws its figure without numbers: any fall is one.
    falls = [points(drawn, arm, "single pictures", 1.0) for arm in ("chunks of 4", "chunks of 16", "chunks of 244", "constant order")]
    found["Figure 7: accuracy falls"] = [(of, of.verdict(-1e-9)) for of in falls]
    costs = [points(drawn, f"memory {part}, opportunistic", "single pictures", 1.0) for part in ("1/2", "1/4", "1/8")]
    return {**found, "Figure 8: drawing": [(of, of.equality()) for of in costs]}


def of_echo(row: dict[str, str]) -> bool:
    """Whether it is a measured training that reached its target."""
    return row["phase"] == "measured" and row["fresh_to_target"] != ""


def bucketed(batch: str) -> dict[str, dict[str, float]]:
    """Seconds of each timed turn by policy; `none` computes its padding as words."""
    found: dict[str, dict[str, float]] = {}
    with open(RESULTS / "reproduce_buckets_trained_runs.csv") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            is_timed = row["batch"] == batch and row["ranks"] == "1" and not row["measured_on"]
            if is_timed and (row["policy"] != "none" or row["padding_is_words"] == "true"):
                found.setdefault(row["policy"], {})[row["epoch"]] = float(row["compute_s"]) + float(row["wait_s"])
    return found


def sources() -> list[tuple[str, str, str]]:
    """Of each file of raw runs of `pelton-lab reproduce`: its name, the day of its runs, and the commits that made them."""
    found = []
    for path in sorted(RESULTS.glob("reproduce_*.csv")):
        lines = path.read_text().splitlines()
        head = " ".join(line for line in lines if line.startswith("#"))
        days = re.findall(r"\d{4}-\d\d-\d\d", head)
        commits = re.findall(r"commit ([0-9a-f]{7,})", head)
        for row in csv.DictReader(line for line in lines if not line.startswith("#")):
            commits += [row["commit"]] if row.get("commit") else []
        short = dict.fromkeys(commit[:8] for commit in commits)
        found.append((path.name.removeprefix("reproduce_"), days[0], ", ".join(short)))
    return found


if __name__ == "__main__":
    for row, of in verdicts().items():
        print(row, "|", ", ".join(f"{effect.mean:.2f} ± {effect.half:.2f}: {said}" for effect, said in of))
    for source in sources():
        print("|", " | ".join(source), "|")
