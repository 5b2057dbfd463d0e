"""CPU time of l1 penalties to an objective within 1e-4 and 1e-6 of the best, next to scikit-learn's (LIBLINEAR and Lasso).

    python bench/penalties.py [--rows 4000] > bench/results/penalties.csv

Problems are generated: rows, features, correlated or not, dense or sparse, and costs that leave few or many weights. Each
program runs at falling tolerances until its objective is near enough, and the time counted is that of the first such run.
"""

import argparse
import csv
import sys
import time
import warnings

import numpy as np
from scipy import sparse
from sklearn.linear_model import Lasso, LogisticRegression

import pelton

TOLERANCES = [1e-1, 1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9]


def problem(seed, rows, features, kind):
    random = np.random.default_rng(seed)
    if kind == "sparse":
        X = sparse.random(rows, features, 0.02, "csr", np.float32, random, lambda n: random.normal(size=n).astype(np.float32))
    else:
        X = random.normal(size=(rows, features)).astype(np.float32)
        if kind == "correlated":
            X = 0.9 * np.repeat(X[:, ::5], 5, axis=1)[:, :features] + 0.4 * X
            X = X.astype(np.float32)
    w = np.zeros(features)
    w[random.choice(features, max(features // 10, 3), replace=False)] = random.normal(size=max(features // 10, 3))
    u = X @ w
    return X, u / max(u.std(), 1e-9) + 0.5 * random.normal(size=rows)


def logistic(X, y, C, coef):
    return np.abs(coef).sum() + C * np.logaddexp(0, -y * (X @ coef)).sum()


def lasso(X, y, C, coef):
    return np.abs(coef).sum() + 0.5 * C * np.square(y - X @ coef).sum()


def timed(fit):
    began = time.process_time()
    model = fit()
    return time.process_time() - began, np.ravel(model.coef_).astype(np.float64)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=4000)
    parser.add_argument("--loss", nargs="+", default=["logistic", "squared"])
    parser.add_argument("--kind", nargs="+", default=["dense", "correlated", "sparse"])
    parser.add_argument("--features", nargs="+", type=int, default=[50, 500, 3000])
    arguments = parser.parse_args()
    rows = arguments.rows
    warnings.simplefilter("ignore")
    out = csv.writer(sys.stdout)
    out.writerow(["loss", "kind", "features", "cost", "weights", "within", "pelton_s", "scikit_learn_s", "ratio"])
    ratios = {}
    for loss in arguments.loss:
        for kind in arguments.kind:
            for features in arguments.features:
                X, target = problem(features, rows, features, kind)
                y = np.where(target > 0, 1.0, -1.0) if loss == "logistic" else target
                # The cost from which on a weight is nonzero.
                first = 1 / np.abs(X.T @ (0.5 * y if loss == "logistic" else y)).max()
                for times in (3, 30, 300):
                    C = float(first * times)
                    value = logistic if loss == "logistic" else lasso

                    def ours(tol):
                        if loss == "logistic":
                            return pelton.LogisticRegression(C, l1_ratio=1.0, fit_intercept=False, tol=tol).fit(X, y)
                        return pelton.LinearRegressor(C, l1_ratio=1.0, fit_intercept=False, tol=tol).fit(X, y)

                    def theirs(tol):
                        if loss == "logistic":
                            model = LogisticRegression(
                                C=C, penalty="l1", solver="liblinear", fit_intercept=False, tol=tol, max_iter=3000
                            )
                            return model.fit(X, y)
                        model = Lasso(1 / (C * rows), fit_intercept=False, tol=tol, max_iter=20000)
                        return model.fit(X, y)

                    runs = {}
                    for name, fit in (("pelton", ours), ("theirs", theirs)):
                        runs[name] = []
                        for tol in TOLERANCES:
                            seconds, coef = timed(lambda: fit(tol))
                            runs[name].append((seconds, value(X, y, C, coef), np.count_nonzero(coef)))
                            if seconds > 5:
                                break
                    best = min(run[1] for all_runs in runs.values() for run in all_runs)
                    for within in (1e-4, 1e-6):
                        near = {
                            name: min((run[0] for run in all_runs if run[1] <= best * (1 + within)), default=float("inf"))
                            for name, all_runs in runs.items()
                        }
                        ratio = near["pelton"] / near["theirs"]
                        ratios.setdefault((loss, within), []).append(ratio)
                        out.writerow(
                            [loss, kind, features, f"{C:.3g}", runs["pelton"][-1][2], within]
                            + [f"{near['pelton']:.4f}", f"{near['theirs']:.4f}", f"{ratio:.3f}"]
                        )
                        sys.stdout.flush()
    for (loss, within), all_ratios in ratios.items():
        print(f"{loss} within {within}: median ratio {np.median(all_ratios):.2f} of {len(all_ratios)}", file=sys.stderr)


if __name__ == "__main__":
    main()
