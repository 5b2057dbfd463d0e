"""Heads that take a part of the classes, on data whose classes resemble each other, next to the full head.

python bench/heads.py PELTON FOLDER [SEEDS [KIND...]] > bench/results/heads.csv

FOLDER is for the data, made here: `families` are class centres around centres around centres in 16 dimensions, seen through
a nonlinear map into 64, 12 views of each class to train on and 5 to test with; `tail` has 4 000 such classes of 1 to 600
views, more than 4 in 10 of them with one. Each head trains with each rate, which is its tuning; a line a run.

python bench/heads.py --verdict bench/results/heads.csv

prints for each kind of data the mean accuracy of each head with the rate that is best for it, and how far it is below `full`
with the 95 % interval of the differences paired by seed.
"""

import csv
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict

import numpy as np

# Data: classes, views of each (0: a tail), batch, epochs, rates, heads.
KINDS: dict[str, tuple[int, int, int, int, list[float], list[str]]] = {
    "families-3000": (3000, 12, 32, 6, [0.02, 0.05], ["full", "near:0.1", "near:0.05", "knn:10:0.1", "sampled:0.1"]),
    "families-10000": (10000, 12, 128, 4, [0.1, 0.2], ["full", "near:0.1", "near:0.05", "knn:10:0.1", "sampled:0.1"]),
    "families-20000": (20000, 12, 128, 4, [0.1, 0.2], ["full", "near:0.1", "near:0.05", "knn:10:0.1", "sampled:0.1"]),
    "tail-4000": (4000, 0, 32, 8, [0.02, 0.05], ["full", "near:0.1", "knn:10:0.1", "sampled:0.1"]),
}
COLUMNS = ["data", "head", "rate", "seed", "accuracy", "active", "list_recall", "head_s", "graph_s", "wall_s"]


def centres(classes: int, rng: np.random.Generator) -> np.ndarray:
    around = rng.normal(size=(max(1, classes // 80), 16))
    for count, spread in ((max(1, classes // 8), 0.55), (classes, 0.3)):
        around = around[rng.integers(len(around), size=count)] + rng.normal(size=(count, 16)) * spread
    return around


def make(folder: pathlib.Path, kind: str) -> tuple[pathlib.Path, pathlib.Path]:
    """The files to train on and to test with."""
    classes, views, *_ = KINDS[kind]
    files = folder / f"{kind}-train.npz", folder / f"{kind}-test.npz"
    if all(file.exists() for file in files):
        return files
    rng = np.random.default_rng(100)
    of_class = centres(classes, rng)
    first, second = rng.normal(size=(16, 64)) / 4, rng.normal(size=(64, 64)) / 8
    counts = np.minimum(600, rng.random(classes) ** -1.1).astype(int) if views == 0 else np.full(classes, views)
    mean = deviation = None
    for file, count in zip(files, (counts, np.full(classes, 5)), strict=True):
        labels = np.repeat(np.arange(classes), count)
        hidden = of_class[labels] + 0.3 * rng.normal(size=(len(labels), 16))
        seen = np.tanh(1.5 * hidden @ first) @ second + 0.3 * (hidden @ first) ** 2
        if mean is None or deviation is None:
            mean, deviation = seen.mean(0), seen.std(0)
        np.savez(file, features=((seen - mean) / deviation).astype(np.float32), label=labels)
    return files


def run(pelton: str, folder: pathlib.Path, kind: str, head: str, rate: float, seed: int) -> list[object]:
    _, _, batch, epochs, *_ = KINDS[kind]
    train, test = make(folder, kind)
    with tempfile.TemporaryDirectory(dir=folder) as out:
        flags = f"--model mlp --embedding 64 --head {head} --batch {batch} --epochs {epochs} --rate {rate} --head-rate 3 "
        flags += f"--schedule cosine --seed {seed} --threads 1 --overwrite --out {out}/run --test {test}"
        subprocess.run([pelton, "train", "classify", train, *flags.split()], check=True, capture_output=True)
        made = json.loads((pathlib.Path(out) / "run" / "summary.json").read_text())
    figures = ["test_accuracy", "active_fraction", "list_recall", "head_s", "graph_s", "wall_s"]
    return [kind, head, rate, seed, *(round(made[name], 5) if name in made else "" for name in figures)]


#: 97.5 % quantiles of Student's t, by degrees of freedom.
STUDENT = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776}


def compared(file: str) -> dict[tuple[str, str], tuple[str, list[float], list[float]]]:
    """Of each kind of data and head the best rate, the accuracies of its seeds, and how far each is below ``full``."""
    with open(file, encoding="utf-8") as lines:
        runs = list(csv.DictReader(line for line in lines if not line.startswith("#")))
    arms: dict[tuple[str, str], dict[str, dict[str, float]]] = defaultdict(lambda: defaultdict(dict))
    for made in runs:
        arms[made["data"], made["head"]][made["rate"]][made["seed"]] = 100 * float(made["accuracy"])
    best = {arm: max(rates.items(), key=lambda of: statistics.mean(of[1].values())) for arm, rates in arms.items()}
    found = {}
    for (data, head), (rate, seeds) in best.items():
        of_full = best[data, "full"][1]
        found[data, head] = rate, list(seeds.values()), [of_full[seed] - seeds[seed] for seed in seeds if seed in of_full]
    return found


def verdict(file: str) -> None:
    for (data, head), (rate, accuracies, below) in compared(file).items():
        line = f"{data:15} {head:12} {statistics.mean(accuracies):6.2f} % at rate {rate}, {len(accuracies)} seeds"
        if head != "full" and len(below) > 1:
            spread = STUDENT[len(below) - 1] * statistics.stdev(below) / math.sqrt(len(below))
            line += f", {statistics.mean(below):.2f} ± {spread:.2f} below full"
        print(line)


def main() -> None:
    if sys.argv[1] == "--verdict":
        return verdict(sys.argv[2])
    pelton, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    seeds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
    print(",".join(COLUMNS), flush=True)
    for kind in sys.argv[4:] or KINDS:
        for seed in range(seeds):
            for rate in KINDS[kind][4]:
                for head in KINDS[kind][5]:
                    print(*run(pelton, folder, kind, head, rate, seed), sep=",", flush=True)
    return None


if __name__ == "__main__":
    main()
