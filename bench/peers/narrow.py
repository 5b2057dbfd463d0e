"""Rows of few features in memory: time of training alone, beside LIBLINEAR's and Snap ML's.

    python3 -m pip install liblinear-official snapml numpy scipy
    taskset -c 0 python3 bench/peers/narrow.py [CASE…]     one thread
    python3 bench/peers/narrow.py [CASE…]                  as many threads as there are

Every side has the same f32 rows. LIBLINEAR: -s 0, 2, 3 at its default tolerance, its problem made beforehand. Snap ML: at
a list of tolerances; its rows made beforehand; its primal value is computed here in f64. Pelton: `compute_s`, to
certified targets; what comes before its first pass (reading) is left out on all sides. Sides are interleaved; five runs
of each. `difference` is relative to the best dual value, a lower bound of the optimum.
"""

import os
import sys

import numpy as np
import peers
import scipy.sparse
import snapml
import time
from liblinear.liblinearutil import parameter, problem, train

RUNS = 5
LOSSES = {"logistic": ("-s 0", "log"), "l2": ("-s 2", "l2"), "l1": ("-s 3", "hinge")}
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
    losses = {"l1": lambda: short, "l2": lambda: short**2, "logistic": lambda: np.logaddexp(0, -margins)}
    return 0.5 * w @ w + losses[loss]().sum()


def pelton(path, loss, target):
    figures = peers.train(path, "--loss", loss, "--target", target, "--memory", "4GiB")
    return figures["compute_s"], figures["primal"], figures["dual"]


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
            for _ in range(RUNS):
                found = []
                for target in ["1e-2", "1e-3", "1e-4", "1e-5", "1e-6"]:
                    found.append(("Pelton", target, *pelton(path, loss, target)[:2]))
                if loss != "l2":
                    for tolerance in [1e-1, 3e-2, 1e-2, 1e-3, 1e-4]:
                        found.append(("Snap ML", tolerance, *snap(loss, x, y, tolerance)))
                if name != "500k-28":
                    found.append(("LIBLINEAR", "default", *liblinear(made, loss, x, y)))
                for side, setting, seconds, value in found:
                    results.add(
                        case=name, loss=loss, side=side, threads=1 if side == "LIBLINEAR" else THREADS, setting=setting,
                        seconds=seconds, primal=value, difference=value / best - 1,
                    )


main()
