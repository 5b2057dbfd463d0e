"""The LIBLINEAR side of examples/against_liblinear.rs: trains on the rows it wrote, at a list of
tolerances, and prints one line each: tolerance, seconds in LIBLINEAR's train (C code, data already in
its form), primal objective in float64. Needs `pip install liblinear-official numpy scipy`.

    python against_liblinear.py FOLDER EPSILON...
"""
import sys, time
import numpy as np
import scipy.sparse as sp
from liblinear.liblinearutil import problem, parameter
from liblinear.liblinear import liblinear, toPyModel

folder, epsilons = sys.argv[1], sys.argv[2:]
ends = np.fromfile(f"{folder}/ends.u64", dtype=np.uint64).astype(np.int64)
indices = np.fromfile(f"{folder}/indices.u32", dtype=np.uint32).astype(np.int32)
values = np.fromfile(f"{folder}/values.f32", dtype=np.float32).astype(np.float64)
y = np.fromfile(f"{folder}/signs.f32", dtype=np.float32).astype(np.float64)
features = int(open(f"{folder}/features.txt").read())
x = sp.csr_matrix((values, indices, np.concatenate([[0], ends])), shape=(len(y), features))
data = problem(y, x)
for epsilon in epsilons:
    parameters = parameter(f"-s 3 -c 1 -e {epsilon} -q")
    data.set_bias(-1)
    start = time.perf_counter()
    model = liblinear.train(data, parameters)
    seconds = time.perf_counter() - start
    model = toPyModel(model)
    w = np.ctypeslib.as_array(model.w, (model.nr_feature,)).copy()
    if model.label[0] < 0:
        w = -w
    w = np.pad(w, (0, features - len(w)))
    primal = 0.5 * w @ w + np.maximum(0, 1 - y * (x @ w)).sum()
    print(epsilon, seconds, repr(float(primal)), flush=True)
