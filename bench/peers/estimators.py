"""Arrays in memory: `pelton.LinearClassifier` and `LogisticRegression` next to scikit-learn's, which wrap LIBLINEAR.

    python3 -m pip install scikit-learn scipy; pip install . (this repository, release)
    python3 bench/peers/estimators.py [CASE…]

Each fit runs in a process of its own, which reads the same file of rows first; what is measured is `fit` alone, of an array of
f32 (scikit-learn makes its own copies of f64). `cpu_s` counts all threads, in user and system mode, so that other
programs on the machine change it little; `extra_mib` is how far the fit raised the largest resident memory above what it
was with the rows loaded. `difference` is the objective, by its definition in f64, above the best dual value that any
certificate of this problem proved, relative to that.
"""

import json
import os
import resource
import subprocess
import sys
import time
import warnings

import numpy as np
import peers
from scipy import sparse

RUNS = int(os.environ.get("PELTON_RUNS", "3"))
LOSSES = ["hinge", "squared_hinge", "logistic"]
CASES = {"dense-1m-20": (1_000_000, 20, None), "sparse-100k-1m": (100_000, 1_000_000, 50)}


def make(name):
    """Overlapping classes: normal features, or some whose frequency falls off as words' does; labels by a noisy plane."""
    rows, features, stored = CASES[name]
    path = peers.WORK / f"{name}.npz"
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    draw = np.random.default_rng(5)
    plane = draw.standard_normal(features)
    if stored is None:
        x = draw.standard_normal((rows, features)).astype(np.float32)
        noise = np.linalg.norm(plane) * draw.standard_normal(rows)
        np.savez(path, x=x, y=np.where(x @ plane + noise > 0, 1, -1))
        return path
    columns = np.minimum(features ** draw.random((rows, stored)), features - 1).astype(np.int32)
    x = sparse.csr_array((np.ones(rows * stored, np.float32), columns.ravel(), np.arange(rows + 1) * stored), (rows, features))
    x.sum_duplicates()
    x.data[:] = 1.0
    x = sparse.csr_array(sparse.diags_array(1.0 / np.sqrt(x.sum(axis=1))) @ x).astype(np.float32)
    score = x @ plane
    y = np.where(score + score.std() * draw.standard_normal(rows) > 0, 1, -1)
    np.savez(path, data=x.data, indices=x.indices.astype(np.int32), indptr=x.indptr.astype(np.int32), y=y)
    return path


def load(name):
    parts = np.load(make(name))
    if "x" in parts:
        return parts["x"], parts["y"]
    shape = CASES[name][:2]
    return sparse.csr_matrix((parts["data"], parts["indices"], parts["indptr"]), shape), parts["y"]


def estimator(side, loss, tol):
    if side == "pelton":
        import pelton

        if loss == "logistic":
            return pelton.LogisticRegression(tol=tol, regularise_intercept=True, random_state=0)
        return pelton.LinearClassifier(loss=loss, tol=tol, regularise_intercept=True, random_state=0)
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    if loss == "logistic":
        return LogisticRegression(solver="liblinear", tol=tol, random_state=0)
    return LinearSVC(loss=loss, dual=loss == "hinge" or "auto", tol=tol, random_state=0)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def child(name, side, loss, tol):
    """One fit; prints its figures."""
    warnings.simplefilter("ignore")
    x, y = load(name)
    model = estimator(side, loss, float(tol))
    # Excludes the imports of both, and the threads' stacks.
    model.fit(x[:200], y[:200])
    before, wall, cpu = peak(), time.perf_counter(), time.process_time()
    model.fit(x, y)
    wall, cpu, after = time.perf_counter() - wall, time.process_time() - cpu, peak()
    w, b = model.coef_[0].astype(np.float64), float(model.intercept_[0])
    margins = y * (np.concatenate([x[at : at + 65536] @ w for at in range(0, len(y), 65536)]) + b)
    losses = {
        "hinge": lambda: np.maximum(0.0, 1.0 - margins),
        "squared_hinge": lambda: np.maximum(0.0, 1.0 - margins) ** 2,
        "logistic": lambda: np.logaddexp(0.0, -margins),
    }
    primal = 0.5 * (w @ w + b * b) + losses[loss]().sum()
    figures = {"wall_s": wall, "cpu_s": cpu, "extra_mib": after - before, "primal": primal}
    print(json.dumps({**figures, "dual": getattr(model, "dual_", 0.0), "iterations": int(np.max(model.n_iter_))}))


def fit(name, side, loss, tol):
    command = [sys.executable, __file__, "--child", name, side, loss, str(tol)]
    return {"side": side, "tol": tol, **json.loads(peers.run(command))}


def main(names):
    columns = "case,loss,side,tol,cpu_s,wall_s,extra_mib,iterations,primal,difference".split(",")
    results = peers.Results("estimators", columns, f"{len(os.sched_getaffinity(0))} threads")
    for name in names:
        make(name)
        for loss in LOSSES:
            sides = [("pelton", 1e-3), ("pelton", 1e-4), ("pelton", 1e-6), ("scikit-learn", 1e-4)]
            found = [fit(name, side, loss, tol) for _ in range(RUNS) for side, tol in sides]
            best = max(figures["dual"] for figures in found)
            for figures in found:
                results.add(case=name, loss=loss, difference=figures["primal"] / best - 1.0, **figures)
            for side, tol in sides:
                own = [figures for figures in found if (figures["side"], figures["tol"]) == (side, tol)]
                median = {key: peers.median(figures[key] for figures in own) for key in ("cpu_s", "wall_s", "extra_mib")}
                text = ", ".join(f"{key} {value:.3g}" for key, value in median.items())
                results.note(f"{name} {loss} {side} {tol:g}: {text}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:])
    else:
        main(sys.argv[1:] or list(CASES))
