"""Writes liblinear_objectives.txt: the objective values that LIBLINEAR reaches on the data sets of
tests/linear/liblinear.rs. Needs `pip install liblinear-official numpy scipy`; usage:

    python liblinear_objectives.py DATA_FOLDER > liblinear_objectives.txt

LIBLINEAR's dual solvers stop after 300 passes, which is 1e-4 off on these sets: build it from its sdist
with `dual_solver_max_iter` in cpp-source/linear.cpp raised to 200000. Tolerances: 1e-4 for the L1 loss,
1e-6 for the others, of which the better of the dual and the primal solver counts.

Each line: data set, loss, bias, cost, primal objective of LIBLINEAR's w in float64.
"""
import gzip, sys
import numpy as np
import scipy.sparse as sp
from liblinear import liblinear
from liblinear.liblinearutil import problem, parameter, train

FOLDER = sys.argv[1]
SOLVERS = {"hinge": 3, "squared_hinge": 1, "logistic": 7}
# The primal Newton solvers of the same objectives, which reach a tight tolerance far sooner.
PRIMAL_SOLVERS = {"squared_hinge": 2, "logistic": 0}


def read_libsvm(lines, features):
    labels, data, indices, ends = [], [], [], [0]
    for line in lines:
        parts = line.split()
        labels.append(float(parts[0]))
        for part in parts[1:]:
            index, value = part.split(":")
            indices.append(int(index) - 1)
            data.append(float(value))
        ends.append(len(data))
    x = sp.csr_matrix((data, indices, ends), shape=(len(labels), features))
    return np.array(labels), x


def datasets():
    with open(f"{FOLDER}/libsvm/a9a") as file:
        yield "a9a", *read_libsvm(file, 123)
    table = np.loadtxt(f"{FOLDER}/libsvm/covtype.20k.csv", delimiter=",", dtype=np.float32)
    x, y = table[:, :54], table[:, 54]
    x = x / np.abs(x).max(axis=0).clip(1e-30)
    yield "covtype", np.where(y == 2, 1.0, -1.0), sp.csr_matrix(x.astype(np.float32).astype(float))
    with gzip.open(f"{FOLDER}/libsvm/imdb.train.libsvm.gz", "rt") as file:
        y, x = read_libsvm(file, 87170)
    norms = np.sqrt(np.asarray(x.multiply(x).sum(axis=1)).ravel()).clip(1e-30)
    x = sp.diags((1.0 / norms)) @ x
    x = sp.csr_matrix(x.astype(np.float32).astype(float))
    yield "imdb", y, x


def objective(loss, cost, bias, x, y, w):
    z = x @ w[: x.shape[1]]
    if bias > 0:
        z = z + bias * w[-1]
    m = y * z
    if loss == "hinge":
        losses = np.maximum(0, 1 - m)
    elif loss == "squared_hinge":
        losses = np.maximum(0, 1 - m) ** 2
    else:
        losses = np.logaddexp(0, -m)
    return 0.5 * w @ w + cost * losses.sum()


for name, y, x in datasets():
    y = np.where(y > 0, 1.0, -1.0)
    for loss, solver in SOLVERS.items():
        for bias in (-1, 1):
            for cost in (1.0,):
                best = np.inf
                for s in {solver, PRIMAL_SOLVERS.get(loss, solver)}:
                    param = parameter(f"-s {s} -c {cost} -e {1e-4 if s == 3 else 1e-6} -B {bias} -q")
                    prob = problem(y, x)
                    model = train(prob, param)
                    n = x.shape[1] + (bias > 0)
                    w = np.array(model.w[:n])
                    if model.label[0] < 0:
                        w = -w
                    best = min(best, objective(loss, cost, bias, x, y, w))
                print(name, loss, bias, cost, repr(float(best)), flush=True)
