"""Rows of few features in memory: time of training alone, next to LIBLINEAR's and Snap ML's.

    python3 -m pip install liblinear-official snapml numpy scipy
    taskset -c 0 python3 bench/peers/narrow.py [CASE…]     one thread
    python3 bench/peers/narrow.py [CASE…]                  as many threads as there are

Every side has the same f32 rows. LIBLINEAR: -s 0, 2, 3 at its default tolerance, its problem made beforehand. Snap ML: at
a list of tolerances; its rows made beforehand; its primal value is computed here in f64. Pelton: `compute_s`, to
certified targets; what comes before its first pass (reading) is left out on all sides. Sides are interleaved; PELTON_RUNS (5) runs of
each. `difference` is relative to the best dual value, a lower bound of the optimum. Rows `Pelton, pass` are the passes of
one run to 1e-6: what the primal value was after so many seconds, as Snap ML's rows are, which certify nothing. Comments at
the end say for each level how long each side takes to a primal value that near, medians.
"""

import json
import os
import sys

import numpy as np
import peers
import scipy.sparse
import snapml
import time
from liblinear.liblinearutil import parameter, problem, train

RUNS = int(os.environ.get("PELTON_RUNS", "5"))
LOSSES = {"logistic": ("-s 0", "log"), "squared-hinge": ("-s 2", "l2"), "hinge": ("-s 3", "hinge")}
SHAPES = {"1m-20": (1_000_000, 20), "600k-10": (600_000, 10), "500k-28": (500_000, 28)}
THREADS = len(os.sched_getaffinity(0))


def rows(name):
    """Overlapping classes: normal features, labels by a noisy plane."""
    count, width = SHAPES[name]
    draw = np.random.default_rng(5)
    x = draw.standard_normal((count, width)).astype(np.float32)
    plane = draw.standard_normal(width)
    plane /= np.linalg.norm(plane)
    y = np.where(x @ plane + draw.standard_normal(count) > 0, 1.0, -1.0)
    path = peers.WORK / f"{name}.npy"
    if not path.exists():
        peers.WORK.mkdir(parents=True, exist_ok=True)
        np.save(path, np.column_stack([x, y]).astype(np.float32))
    return path, x, y


def primal(loss, x, y, w):
    margins = y * (x.astype(np.float64) @ w)
    short = np.maximum(0.0, 1.0 - margins)
    losses = {"hinge": lambda: short, "squared-hinge": lambda: short**2, "logistic": lambda: np.logaddexp(0, -margins)}
    return 0.5 * w @ w + losses[loss]().sum()


def pelton(path, loss, target):
    figures = peers.train(path, "--loss", loss, "--target", target, "--memory", "4GiB")
    return figures["compute_s"], figures["primal"], figures["dual"]


def passes():
    """Seconds of computing and primal value after each pass of the run before."""
    spent = 0.0
    for line in open(peers.WORK / "runs/bench/metrics.jsonl"):
        record = json.loads(line)
        spent += record["compute_s"]
        yield spent, record["primal"]


def liblinear(made, loss, x, y):
    began = time.perf_counter()
    model = train(made, parameter(LOSSES[loss][0] + " -c 1 -q"))
    spent = time.perf_counter() - began
    w = np.array(model.w[: x.shape[1]]) * (1 if model.get_labels()[0] == 1 else -1)
    return spent, primal(loss, x, y, w)


def snap(loss, x, y, tolerance):
    kind = snapml.LogisticRegression if loss == "logistic" else snapml.SupportVectorMachine
    model = kind(regularizer=1.0, tol=tolerance, n_jobs=THREADS, max_iter=10_000)
    began = time.perf_counter()
    model.fit(x, y)
    spent = time.perf_counter() - began
    return spent, primal(loss, x, y, np.asarray(model.coef_, dtype=np.float64).ravel())


def main():
    results = peers.Results("narrow", "case,loss,side,threads,setting,seconds,primal,difference".split(","), f"{THREADS} threads")
    for name in [name for name in SHAPES if not sys.argv[1:] or name in sys.argv[1:]]:
        path, x, y = rows(name)
        made = problem(y, scipy.sparse.csr_matrix(x.astype(np.float64)))
        for loss in LOSSES:
            best = pelton(path, loss, "1e-8")[2]
            all_runs = []
            for run in range(RUNS):
                found = []
                for target in ["1e-2", "1e-3", "1e-4", "1e-5", "1e-6"]:
                    found.append(("Pelton", target, *pelton(path, loss, target)[:2]))
                found += [("Pelton, pass", i + 1, *reached) for i, reached in enumerate(passes())]
                if loss != "squared-hinge":
                    for tolerance in [1e-1, 3e-2, 1e-2, 1e-3, 1e-4]:
                        found.append(("Snap ML", tolerance, *snap(loss, x, y, tolerance)))
                if name != "500k-28":
                    found.append(("LIBLINEAR", "default", *liblinear(made, loss, x, y)))
                for side, setting, seconds, value in found:
                    results.add(
                        case=name, loss=loss, side=side, threads=1 if side == "LIBLINEAR" else THREADS, setting=setting,
                        seconds=seconds, primal=value, difference=value / best - 1,
                    )
                all_runs.append([(side, setting, seconds, value / best - 1) for side, setting, seconds, value in found])
            summarise(results, name, loss, all_runs)


def summarise(results, name, loss, runs):
    def least(run, side, level):
        return min((s for which, _, s, off in run if which == side and off <= level), default=float("inf"))

    for level in [1e-2, 1e-3, 1e-5]:
        sides = {side: peers.median(least(run, side, level) for run in runs) for side in ["Pelton, pass", "Snap ML"]}
        results.note(f"{name} {loss}: primal within {level:g}: " + ", ".join(f"{side} {s:.3f} s" for side, s in sides.items()))
    for target in ["1e-4", "1e-6"]:
        ours = peers.median(s for run in runs for side, setting, s, _ in run if side == "Pelton" and setting == target)
        theirs = [s for run in runs for side, _, s, _ in run if side == "LIBLINEAR"]
        ratio = f", LIBLINEAR {peers.median(theirs):.3f} s, {peers.median(theirs) / ours:.1f} times as long" if theirs else ""
        results.note(f"{name} {loss}: certified {target}: Pelton {ours:.3f} s{ratio}")


main()
