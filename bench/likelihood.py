"""Coefficients and standard errors of `--penalty none` next to statsmodels, on the tables of packages.

python bench/likelihood.py PELTON FOLDER > bench/results/likelihood.csv

FOLDER has the tables of pydataset 0.2.0 (csv/) and ISLP 0.6.0 (ISLP/). Of each, the last column of numbers without missing
cells is the target and the others are features: least squares, a logistic model where it has two values, a Poisson model
where it is counts. `off` is the largest difference from statsmodels 0.15, in standard errors, over coefficients and their
errors. Left out: fits of which statsmodels finds another of many optima (it spreads combinations of columns), and R2 above
1 - 1e-9, whose errors are rounding. Ends with the verdict: all others within 1e-3, nothing without an optimum in silence.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import warnings

import numpy as np
import pandas as pd
import statsmodels.api as sm


def table(path: pathlib.Path) -> pd.DataFrame | None:
    try:
        found = pd.read_csv(path, nrows=20_000).select_dtypes("number").dropna(axis=1)
    except (ValueError, UnicodeDecodeError):
        return None
    found = found.loc[:, [name for name in found if found[name].nunique() > 1 and str(name).lower() not in ("rownames", "id", "unnamed: 0")]]
    if not 2 <= found.shape[1] <= 40 or len(found) < found.shape[1] + 10:
        return None
    return found.set_axis([*(f"c{at}" for at in range(found.shape[1] - 1)), "y"], axis=1)


def losses(y: pd.Series) -> list[str]:
    if y.nunique() == 2:
        return ["squared", "logistic"]
    return ["squared", "poisson"] if (y >= 0).all() and (y == y.round()).all() and y.max() < 1e5 else ["squared"]


def theirs(loss: str, X: pd.DataFrame, y: pd.Series) -> object:
    X = sm.add_constant(X.astype(float))
    if loss == "squared":
        return sm.OLS(y, X).fit()
    family = sm.families.Binomial() if loss == "logistic" else sm.families.Poisson()
    return sm.GLM(y, X, family=family).fit(maxiter=100, tol=1e-13)


def main() -> None:
    pelton, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    warnings.simplefilter("ignore")
    print("table,loss,records,features,passes,off,not_found")
    compared = far = separable = combined = exact = 0
    with tempfile.TemporaryDirectory() as place:
        for path in [*sorted(folder.glob("csv/*/*.csv")), *sorted(folder.glob("ISLP/*.csv"))]:
            data = table(path)
            for loss in [] if data is None else losses(data.y):
                if loss == "logistic":
                    data.y = (data.y == data.y.max()).astype(int)
                data.to_csv(f"{place}/t.csv", index=False)
                kinds = [f"--column={name}=number" for name in data if name != "y"]
                line = [pelton, "train", "linear", f"{place}/t.csv", "--label", "y", "--loss", loss, "--penalty", "none", "--out", f"{place}/run"]
                done = subprocess.run([*line, "--overwrite", "--json", "--cache-dir", place, *kinds], capture_output=True, text=True)
                name = f"{path.parent.name}/{path.name},{loss},{len(data)},{data.shape[1] - 1}"
                if done.returncode:
                    print(f"{name},,,{done.stderr.strip().splitlines()[-1][:60].replace(',', ';')}", flush=True)
                    separable += "separated" in done.stderr
                    far += "separated" not in done.stderr
                    continue
                figures = json.loads(done.stdout)
                reference = theirs(loss, data.drop(columns="y"), data.y.astype(float))
                found = {"const" if row["name"] == "intercept" else row["name"]: row for row in figures["inference"]["coefficients"]}
                lost = [key for key, row in found.items() if row["standard_error"] is None]
                errors = reference.bse
                off = max(
                    (abs(row[key] - value[at]) / errors[at] for at, row in found.items() if at not in lost for key, value in (("estimate", reference.params), ("standard_error", errors))),
                    default=0.0,
                )
                print(f"{name},{figures['epochs']},{off:.1e},{' '.join(lost)}", flush=True)
                if lost:
                    combined += 1
                elif loss == "squared" and reference.rsquared > 1 - 1e-9:
                    exact += 1
                else:
                    compared += 1
                    far += not off <= 1e-3
    print(f"# {compared} fits compared, {far} further than 1e-3 standard errors, {separable} separable, {combined} with combinations, {exact} exact: {'holds' if far == 0 else 'does not hold'}")


main()
