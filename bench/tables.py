"""Ordinary tables from file to figures with one command each, next to scikit-learn's pipeline on the same split.

python bench/tables.py PELTON FOLDER > bench/results/tables.csv

FOLDER has the tables of the packages pydataset 0.2.0 (csv/), ISLP 0.6.0 (ISLP/) and palmerpenguins 0.1.6
(penguins/); those of scikit-learn are written there. pelton: `train linear --loss logistic --target 1e-6`;
scikit-learn: means for missing numbers, StandardScaler, OneHotEncoder (unknown values ignored), LogisticRegression.
Some tables are rewritten with semicolons and decimal commas, quotes within cells and missing values.
"""

import csv
import json
import pathlib
import subprocess
import sys

import numpy as np
import pandas as pd
from sklearn import datasets
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

TABLES = [
    ("csv/COUNT/titanic.csv", "survived"),
    ("csv/Ecdat/Hdma.csv", "deny"),
    ("csv/Zelig/turnout.csv", "vote"),
    ("csv/Zelig/voteincome.csv", "vote"),
    ("csv/MASS/biopsy.csv", "class"),
    ("csv/MASS/Pima.te.csv", "type"),
    ("csv/car/Mroz.csv", "work"),
    ("csv/Ecdat/Participation.csv", "lfp"),
    ("csv/survival/heart.csv", "event"),
    ("ISLP/OJ.csv", "Purchase"),
    ("ISLP/Default.csv", "default"),
    ("ISLP/Caravan.csv", "Purchase"),
    ("penguins/penguins.csv", "species"),
    ("breast_cancer.csv", "target"),
    ("wine.csv", "target"),
]


def odd(frame: pd.DataFrame, at: int, path: pathlib.Path) -> list[str]:
    """Writes a table as people do; returns the flags that this needs."""
    if at % 3 == 1:
        frame.to_csv(path, sep=";", decimal=",", index=False)
    elif at % 3 == 2:
        frame.to_csv(path, index=False, quoting=csv.QUOTE_NONNUMERIC)
    else:
        frame.to_csv(path, index=False, na_rep="NA")
    return []


def pipeline(x: pd.DataFrame) -> object:
    numbers = make_column_selector(dtype_include="number")
    texts = make_column_selector(dtype_exclude="number")
    columns = make_column_transformer(
        (make_pipeline(SimpleImputer(), StandardScaler()), numbers),
        (OneHotEncoder(handle_unknown="ignore"), texts),
    )
    return make_pipeline(columns, LogisticRegression(max_iter=5000, tol=1e-8))


def main() -> None:
    pelton, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    for name in ["breast_cancer", "wine"]:
        found = getattr(datasets, f"load_{name}")(as_frame=True)
        found.frame.to_csv(folder / f"{name}.csv", index=False)
    out = csv.writer(sys.stdout)
    out.writerow("table rows columns pelton_auc sklearn_auc pelton_log_loss sklearn_log_loss pelton_accuracy sklearn_accuracy seconds".split())
    for at, (file, label) in enumerate(TABLES):
        frame = pd.read_csv(folder / file)
        frame = frame.drop(columns=[c for c in frame.columns if c.startswith("Unnamed") or c in ("rownames", "ID")])
        if at % 3 == 2:
            frame.insert(0, "note", [f'said "{i % 3}", twice' for i in range(len(frame))])
        is_test = np.random.default_rng(at).random(len(frame)) < 0.3
        train, test = folder / "train.csv", folder / "test.csv"
        for path, part in [(train, frame[~is_test]), (test, frame[is_test])]:
            odd(part, at, path)
        run = folder / "run"
        command = [pelton, "train", "linear", str(train), "--label", label, "--loss", "logistic", "--intercept", "free",
                   "--missing", "mean", "--scale", "standard", "--target", "1e-6", "--test", str(test), "--out", str(run),
                   "--overwrite", "--json"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            print(file, done.stderr[-600:], file=sys.stderr)
            out.writerow([file, len(frame), frame.shape[1], "failed"])
            continue
        summary = json.loads(done.stdout)
        x = frame.drop(columns=label)
        y = frame[label].astype(str)
        model = pipeline(x).fit(x[~is_test], y[~is_test])
        shares = model.predict_proba(x[is_test])
        truth = y[is_test]
        auc = roc_auc_score(truth, shares[:, 1]) if shares.shape[1] == 2 else float("nan")
        figures = summary["test"]
        out.writerow([
            file, len(frame), frame.shape[1] - 1,
            figures.get("auc"), auc,
            figures.get("log_loss"), log_loss(truth, shares, labels=model.classes_),
            figures.get("accuracy"), accuracy_score(truth, model.predict(x[is_test])),
            summary.get("seconds"),
        ])
        sys.stdout.flush()


main()
