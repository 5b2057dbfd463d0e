"""132 ordinary problems a loss: 11 shapes, three sizes of noise, four costs; equal columns, and columns of sizes 1e-3 to 1e3.

For each problem the CPU time of Pelton's solvers to a proven relative gap of 1e-4, and that of scikit-learn's LinearSVC or
LogisticRegression to the same objective: of its runs at tolerances from 1e-1 to 1e-6 the cheapest that ends within 1e-4 of
the best objective known. Medians of three runs. Usage: ordinary.py OUT.csv [loss ...] [--uneven]
"""

import csv
import statistics
import sys
import time
import warnings

import numpy as np
from sklearn.linear_model import LogisticRegression as SkLogistic
from sklearn.svm import LinearSVC

from pelton import LinearClassifier, LogisticRegression

SHAPES = [(100, 2), (100, 20), (100, 100), (100, 500), (500, 5), (500, 50), (500, 500), (1000, 200), (2000, 2), (2000, 20), (2000, 500)]
TOL = 1e-4


def problems(uneven):
    for n, d in SHAPES:
        for noise in (0.1, 1.0, 3.0):
            for cost in (0.01, 1.0, 10.0, 100.0):
                r = np.random.default_rng(n + 7 * d + int(noise * 10))
                x = r.normal(size=(n, d))
                s = x @ r.normal(size=d) / d**0.5
                y = (s + noise * r.normal(size=n) > 0).astype(int)
                if uneven:
                    x = x * 10.0 ** r.uniform(-3, 3, size=d)
                yield n, d, noise, cost, np.ascontiguousarray(x.astype("f4")), y


def objective(loss, cost, x, y, coef, intercept):
    m = (2 * y - 1) * (x.astype(float) @ coef + intercept)
    h = np.maximum(0, 1 - m)
    terms = {"hinge": h, "squared_hinge": h * h, "logistic": np.logaddexp(0, -m)}[loss]
    return 0.5 * (coef @ coef + intercept**2) + cost * terms.sum()


def timed(run, times=3):
    taken = []
    for _ in range(times):
        begin = time.process_time()
        found = run()
        taken.append(time.process_time() - begin)
        if taken[-1] > 1:
            break
    return statistics.median(taken), found


def pelton(loss, cost, solver, x, y):
    kind = LogisticRegression if loss == "logistic" else LinearClassifier
    options = {} if loss == "logistic" else {"loss": loss}
    return timed(lambda: kind(C=cost, solver=solver, tol=TOL, random_state=0, **options).fit(x, y))


def peers(loss, cost, x, y):
    wide = x.astype(float)
    for tol in (1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6):
        if loss == "logistic":
            # The intercept is regularised as in Pelton.
            model = SkLogistic(C=cost, tol=tol, solver="liblinear", max_iter=30_000, random_state=0)
        else:
            model = LinearSVC(loss=loss, C=cost, tol=tol, max_iter=30_000, dual="auto" if loss != "hinge" else True, random_state=0)
        seconds, model = timed(lambda model=model: model.fit(wide, y))
        yield seconds, objective(loss, cost, x, y, model.coef_[0], model.intercept_[0])
        if seconds > 4:
            return


def main():
    warnings.simplefilter("ignore")
    arguments = [a for a in sys.argv[1:] if not a.startswith("--")]
    out, losses = arguments[0], arguments[1:] or ["hinge", "squared_hinge", "logistic"]
    uneven = "--uneven" in sys.argv
    solvers = ("auto", "newton", "coordinate-descent")
    with open(out, "a", newline="") as file:
        rows = csv.writer(file)
        if file.tell() == 0:
            rows.writerow(["loss", "uneven", "n", "d", "noise", "cost"] + [f"{s} {f}" for s in solvers for f in ("cpu_s", "gap", "n_iter")] + ["peer cpu_s"])
        for loss in losses:
            reached, ratio, worst = dict.fromkeys(solvers, 0), [], []
            for n, d, noise, cost, x, y in problems(uneven):
                row, best, own = [loss, int(uneven), n, d, noise, cost], np.inf, {}
                for solver in solvers:
                    seconds, model = pelton(loss, cost, solver, x, y)
                    row += [f"{seconds:.5f}", f"{model.gap_:.2e}", model.n_iter_]
                    reached[solver] += model.gap_ <= TOL
                    own[solver] = seconds if model.gap_ <= TOL else np.inf
                    best = min(best, model.primal_)
                runs = list(peers(loss, cost, x, y))
                best = min([best, *(value for _, value in runs)])
                near = [seconds for seconds, value in runs if value <= best * (1 + TOL)]
                peer = min(near, default=np.inf)
                ratio.append(own["auto"] / peer)
                worst.append(own["auto"] / min(own["newton"], own["coordinate-descent"]))
                rows.writerow([*row, f"{peer:.5f}"])
                file.flush()
            q = lambda values, share: float(np.quantile(values, share))
            print(f"{loss}{' uneven' if uneven else ''}: reached {reached} of {len(ratio)}; auto : peer median {q(ratio, .5):.2f} "
                  f"(quartiles {q(ratio, .25):.2f}, {q(ratio, .75):.2f}); auto : better solver median {q(worst, .5):.2f}, "
                  f"90 % {q(worst, .9):.2f}, most {max(worst):.2f}", flush=True)


main()
