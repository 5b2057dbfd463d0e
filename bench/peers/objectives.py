"""Objectives and accuracies next to LIBLINEAR's (-s 3 -c 1 -e 1e-6, no bias): stock, and with its cap of
300 passes raised, since the stock one often ends at the cap before it reaches its tolerance.

    python3 bench/peers/objectives.py [CASE…]
"""

import json
import subprocess
import sys

import peers

CAP = 3000
SECONDS = 60
EXACT = ["--memory", "4GiB", "--inner-passes", "until:1e-3:2000", "--epochs", "10", "--target", "1e-5"]


def binarised(source, positive, name):
    """LIBSVM text with the label `positive` as +1 and any other as -1."""
    target = peers.WORK / name
    with open(source) as rows, open(target, "w") as out:
        for row in rows:
            label, features = row.split(" ", 1)
            out.write(("+1 " if float(label) == positive else "-1 ") + features)
    return target


def scaled(source, name):
    """The comma-separated rows with every column but the last, the label, divided by its largest value."""
    target = peers.WORK / name
    rows = [line.strip().split(",") for line in open(source)]
    most = [max(abs(float(value)) for value in column) or 1.0 for column in zip(*rows)]
    with open(target, "w") as out:
        for row in rows:
            values = [f"{float(value) / top:.7g}" for value, top in zip(row[:-1], most)]
            out.write(",".join(values + row[-1:]) + "\n")
    return target


def cases():
    svm = peers.DATA / "libsvm"
    yield "a9a", svm / "a9a", svm / "a9a.t", [], lambda: (svm / "a9a", svm / "a9a.t")

    raw = svm / "covtype.20k.csv"
    for name, csv in [("covtype2-scaled", scaled(raw, "covtype-scaled.csv")), ("covtype2-raw", raw)]:

        def covtype(csv=csv, name=name):
            text = binarised(peers.as_libsvm(csv, f"{name}.all"), 2, f"{name}.svm")
            return text, text

        yield name, csv, csv, ["--positive", "2"], covtype

    def imdb():
        return tuple(peers.unzipped(svm / f"imdb.{part}.libsvm.gz", f"imdb.{part}") for part in ("train", "test"))

    yield "imdb", svm / "imdb.train.libsvm.gz", svm / "imdb.test.libsvm.gz", [], imdb
    for spec in ["demo:webspam:1000", "demo:kdd:50000", "demo:epsilon:5000", "demo:higgs:100000"]:
        train, test = peers.demo_files(spec)
        name = spec[5:].replace(":", "-")
        yield spec, train, test, [], lambda train=train, test=test, name=name: (
            peers.as_libsvm(train, f"{name}.svm"),
            peers.as_libsvm(test, f"{name}-test.svm"),
        )


def liblinear(cap, text, test):
    try:
        command = [peers.liblinear(cap), "train", text, "1e-6", test]
        return json.loads(peers.run(command, timeout=SECONDS))
    except subprocess.TimeoutExpired:
        return None


def main():
    results = peers.Results(
        "objectives",
        "case,side,primal,dual,relative_gap,difference_to_raised,train_accuracy,test_accuracy,seconds,note".split(","),
        f"differences are relative to LIBLINEAR with its cap raised to {CAP} passes (the stock one where that took more than {SECONDS} s)",
    )
    for name, train, test, options, text in cases():
        if sys.argv[1:] and name not in sys.argv[1:]:
            continue
        ours = peers.train(train, *options, "--test", test, *EXACT)
        rows = [("LIBLINEAR", liblinear(None, *text())), (f"LIBLINEAR cap {CAP}", liblinear(CAP, *text()))]
        reference = (rows[1][1] or rows[0][1])["primal"]
        results.add(
            case=name, side="Pelton", primal=ours["primal"], dual=ours["dual"], relative_gap=ours["relative_gap"],
            difference_to_raised=ours["primal"] / reference - 1, train_accuracy=ours["train_accuracy"],
            test_accuracy=ours["test_accuracy"], seconds=ours["wall_s"], note=f"{ours['epochs']} epochs",
        )
        for side, theirs in rows:
            if theirs is None:
                results.add(case=name, side=side, note=f"stopped after {SECONDS} s")
                continue
            results.add(
                case=name, side=side, primal=theirs["primal"], difference_to_raised=theirs["primal"] / reference - 1,
                train_accuracy=theirs["train_accuracy"], test_accuracy=theirs["test_accuracy"],
                seconds=theirs["train_cpu_s"], note="ended at its cap" if theirs["capped"] else "reached its tolerance",
            )


main()
