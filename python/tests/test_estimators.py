"""The classifiers against LIBLINEAR and SciPy, and arrays against files."""

import itertools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")

from scipy import optimize, sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.datasets import dump_svmlight_file, load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression as SklearnLogistic
from sklearn.svm import SVC, LinearSVC

import pelton
from pelton import LinearClassifier, LogisticRegression

LOSSES = {
    "hinge": lambda m: np.maximum(0.0, 1.0 - m),
    "squared_hinge": lambda m: np.maximum(0.0, 1.0 - m) ** 2,
    "logistic": lambda m: np.logaddexp(0.0, -m),
}


def make(loss, **settings):
    """With a regularised intercept, unless told otherwise: as the references have it."""
    settings = {"random_state": 0, "regularise_intercept": True, **settings}
    return LogisticRegression(loss=loss, **settings) if loss == "logistic" else LinearClassifier(loss=loss, **settings)


def problem(rows=600, features=8, classes=2, seed=0, noise=0.2):
    """Rows of float32, so that no rounding stands between the problem given and the problem solved."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, features)).astype(np.float32)
    y = (X @ random.normal(size=(features, classes)) + random.normal(size=classes)).argmax(axis=1)
    flipped = random.random(rows) < noise
    y[flipped] = random.integers(classes, size=flipped.sum())
    return X, y


def objective(loss, C, w, b, X, signs):
    """½(‖w‖² + b²) + C Σ loss, in float64 by its definition; C as the solver has it, in 32 bits."""
    margins = signs * (X.astype(np.float64) @ w + b)
    return 0.5 * (w @ w + b * b) + float(np.float32(C)) * LOSSES[loss](margins).sum()


def optimum(loss, C, X, signs):
    """The optimum as LIBLINEAR or SciPy find it at tight tolerances: value, w and b."""
    X = np.asarray(X.todense() if sparse.issparse(X) else X, dtype=np.float64)
    if loss == "hinge":
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            svm = LinearSVC(C=C, loss="hinge", dual=True, tol=1e-12, max_iter=300_000, random_state=0).fit(X, signs)
        found = np.append(svm.coef_[0], svm.intercept_[0])
    else:
        rows = np.column_stack([X, np.ones(len(X))]) * signs[:, None]

        def value(w):
            m = rows @ w
            if loss == "logistic":
                slopes = -expit(-m)
            else:
                slopes = -2.0 * np.maximum(0.0, 1.0 - m)
            return 0.5 * w @ w + C * LOSSES[loss](m).sum(), w + C * (rows.T @ slopes)

        start = np.zeros(rows.shape[1])
        settings = {"maxiter": 100_000, "maxfun": 1_000_000, "ftol": 1e-16, "gtol": 1e-9, "maxcor": 50}
        found = optimize.minimize(value, start, jac=True, method="L-BFGS-B", options=settings).x
    return objective(loss, C, found[:-1], found[-1], X, signs), found[:-1], found[-1]


@pytest.mark.parametrize("solver", ["newton", "coordinate-descent"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("C", [0.01, 1.0])
def test_the_intercept_is_free_as_scikit_learns(loss, C, solver):
    X, y = problem(rows=500)
    # Far from 0 and mostly of one class, so that a regularised intercept is far from a free one.
    kept = (y == 1) | (np.arange(len(y)) % 5 == 0)
    X, y = X[kept] + np.float32(1.5), y[kept]
    model = make(loss, C=C, solver=solver, regularise_intercept=False, tol=1e-5, max_epochs=3000).fit(X, y)
    signs = 2.0 * y - 1.0
    if loss == "hinge":
        expected = SVC(C=C, kernel="linear", tol=1e-10).fit(X.astype(np.float64), y)
    elif loss == "logistic":
        expected = SklearnLogistic(C=C, tol=1e-12, max_iter=10_000).fit(X.astype(np.float64), y)
    else:
        expected = LinearSVC(C=C, dual=False, intercept_scaling=1e4, tol=1e-12, max_iter=100_000).fit(X.astype(np.float64), y)

    def value(w, b):
        return 0.5 * w @ w + float(np.float32(C)) * LOSSES[loss](signs * (X.astype(np.float64) @ w + b)).sum()

    best = value(expected.coef_[0], expected.intercept_[0])
    found = value(model.coef_[0], model.intercept_[0])
    assert found == pytest.approx(model.primal_, rel=1e-6)
    assert model.dual_ <= best and found <= best * (1.0 + 1e-4)
    assert model.gap_ <= 1e-5 or loss == "hinge" and model.gap_ <= 1e-3
    regularised = make(loss, C=C, solver=solver).fit(X, y)
    assert value(regularised.coef_[0], regularised.intercept_[0]) > found * (1.0 + 1e-6)


@pytest.mark.parametrize("solver", ["newton", "coordinate-descent"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("classes, scale", [(2, "none"), (3, "none"), (2, "standard"), (2, "max-abs")])
def test_a_weight_counts_as_so_many_rows(loss, solver, classes, scale):
    X, y = problem(rows=300, classes=classes)
    counts = np.random.default_rng(1).integers(0, 4, size=len(y))
    settings = {"solver": solver, "tol": 1e-5, "C": 0.3, "scale": scale}
    weighted = make(loss, **settings).fit(X, y, sample_weight=counts)
    repeated = make(loss, **settings).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    plain = make(loss, **settings).fit(X, y)
    assert weighted.primal_ == pytest.approx(repeated.primal_, rel=2e-5)
    assert weighted.dual_ <= repeated.primal_ * (1 + 1e-9) and repeated.dual_ <= weighted.primal_ * (1 + 1e-9)
    difference = np.abs(weighted.coef_ - repeated.coef_).max()
    assert difference < 0.02 and difference < 0.2 * np.abs(weighted.coef_ - plain.coef_).max()
    # The content of removed rows does not matter.
    X[counts == 0], y[counts == 0] = 1e6, 1 - np.minimum(y[counts == 0], 1)
    again = make(loss, **settings).fit(X, y, sample_weight=counts)
    assert again.primal_ == pytest.approx(weighted.primal_, rel=2e-5)


def test_files_have_weights_as_arrays_have(tmp_path):
    X, y = problem(rows=400)
    weights = np.random.default_rng(2).uniform(0.0, 3.0, size=len(y)).astype(np.float32)
    table = tmp_path / "table.csv"
    header = ",".join([f"f{column}" for column in range(X.shape[1])] + ["label"])
    np.savetxt(table, np.column_stack([X, y]), delimiter=",", header=header, comments="", fmt="%.9g")
    np.save(tmp_path / "weights.npy", weights)
    np.savetxt(tmp_path / "weights.txt", weights, fmt="%.9g")
    for settings in [{}, {"class_weight": "balanced"}, {"class_weight": {0: 2.0}}]:
        expected = LogisticRegression(**settings).fit(X, y, sample_weight=weights)
        assert expected.primal_ != LogisticRegression(**settings).fit(X, y).primal_
        for given in [weights, weights.tolist(), tmp_path / "weights.npy", tmp_path / "weights.txt"]:
            found = LogisticRegression(**settings).fit(table, sample_weight=given)
            assert found.primal_ == expected.primal_
    for given, said in [
        (weights[:-1], "399 weights for 400 records"),
        (-weights, "is -"),
        (0 * weights, "every record has the weight 0"),
        (tmp_path / "table.csv", "line 1 is"),
    ]:
        with pytest.raises(ValueError, match=said):
            LogisticRegression().fit(table, sample_weight=given)


@pytest.mark.parametrize("solver", ["newton", "coordinate-descent"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("C", [0.01, 1.0, 10.0])
@pytest.mark.parametrize("tol", [0.1, 1e-4])
def test_the_gap_bounds_the_distance_to_the_optimum(loss, C, solver, tol):
    X, y = problem()
    signs = 2.0 * y - 1.0
    best, w, b = optimum(loss, C, X, signs)
    model = make(loss, C=C, tol=tol, solver=solver).fit(X, y)
    value = objective(loss, C, model.coef_[0], model.intercept_[0], X, signs)
    # Sums of 600 terms in float64.
    assert model.primal_ == pytest.approx(value, rel=1e-12)
    assert model.gap_ == pytest.approx(model.primal_ / model.dual_ - 1.0, abs=1e-12)
    assert model.gap_ <= tol
    # The other's solution is above the optimum by no more than its own tolerance.
    assert model.dual_ <= best * (1.0 + 1e-12)
    assert value - best <= model.gap_ * model.dual_
    # P is 1-strongly convex: ½‖w − w*‖² ≤ P(w) − P*.
    apart = np.linalg.norm(np.append(model.coef_[0] - w, model.intercept_[0] - b))
    assert apart <= np.sqrt(2.0 * model.gap_ * model.dual_) + 1e-4
    if tol == 0.1:
        assert value > best


@pytest.mark.parametrize("loss", LOSSES)
def test_agrees_with_liblinear_on_a9a(loss, data):
    path = data / "libsvm" / "a9a"
    if not path.exists():
        pytest.skip(f"SKIPPED: {path} is not there, so nothing was compared on a9a")
    X, y = load_svmlight_file(str(path), dtype=np.float32)
    # LIBLINEAR takes indices of 32 bits only.
    X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    C = 0.1
    model = make(loss, C=C, tol=1e-5).fit(X, y)
    if loss == "logistic":
        other = SklearnLogistic(C=C, solver="liblinear", tol=1e-8, max_iter=1000).fit(X, y)
    else:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            other = LinearSVC(C=C, loss=loss, dual=loss == "hinge", tol=1e-6, max_iter=20_000).fit(X, y)
    best = objective(loss, C, other.coef_[0], other.intercept_[0], X, y)
    assert model.gap_ <= 1e-5
    assert model.dual_ <= best
    assert model.primal_ <= best * (1.0 + 1e-5)
    assert model.primal_ == pytest.approx(objective(loss, C, model.coef_[0], model.intercept_[0], X, y), rel=1e-9)
    assert (model.predict(X) == other.predict(X)).mean() > 0.998
    # The same file, read by Pelton, with the solver it picks for files of this size.
    model = make(loss, C=C, tol=1e-5, solver="newton").fit(X, y)
    from_file = make(loss, C=C, tol=1e-5, solver="newton").fit(path)
    np.testing.assert_array_equal(from_file.coef_, model.coef_)
    np.testing.assert_array_equal(from_file.intercept_, model.intercept_)
    np.testing.assert_array_equal(from_file.classes_, [-1, 1])
    assert (from_file.primal_, from_file.dual_, from_file.n_iter_) == (model.primal_, model.dual_, model.n_iter_)


@pytest.mark.parametrize("classes", [2, 4])
@pytest.mark.parametrize("solver", ["newton", "coordinate-descent"])
@pytest.mark.parametrize("scale", ["none", "standard", "max-abs"])
@pytest.mark.parametrize("loss", LOSSES)
def test_files_give_the_model_of_the_array(tmp_path, loss, scale, solver, classes):
    X, y = problem(classes=classes)
    # LIBLINEAR orders classes by first appearance, which here is scikit-learn's order too.
    y[:classes] = np.arange(classes)
    path = tmp_path / "rows.csv"
    columns = ["a", "label", *"bcdefgh"]
    table = np.column_stack([X[:, :1], y, X[:, 1:]])
    lines = [",".join(repr(float(value)) for value in row) for row in table]
    path.write_text("\n".join([",".join(columns), *lines]))
    settings = {"solver": solver, "scale": scale, "random_state": 3}
    array = make(loss, **settings).fit(X, y)
    file = make(loss, **settings).fit(path, label="label")
    np.testing.assert_array_equal(file.coef_, array.coef_)
    np.testing.assert_array_equal(file.intercept_, array.intercept_)
    np.testing.assert_array_equal(file.classes_, array.classes_)
    np.testing.assert_array_equal(file.predict(X), array.predict(X))
    assert (file.gap_, file.n_iter_, file.n_features_in_) == (array.gap_, array.n_iter_, array.n_features_in_)


@pytest.mark.parametrize("loss", LOSSES)
def test_files_larger_than_memory(tmp_path, loss):
    X, y = problem(rows=40_000, features=30)
    paths = [tmp_path / f"{part}.libsvm" for part in range(3)]
    for part, path in enumerate(paths):
        dump_svmlight_file(X[part::3], y[part::3], str(path), zero_based=False)
    # 4.8 MB as rows of 32-bit numbers.
    settings = {"tol": 1e-3, "solver": "coordinate-descent", "scratch_dir": tmp_path, "C": 0.01}
    model = make(loss, memory="2MiB", **settings).fit(paths)
    whole = make(loss, memory="1GiB", **settings).fit([str(path) for path in paths])
    assert max(model.gap_, whole.gap_) <= 1e-3
    assert np.any(model.coef_ != whole.coef_), "it was trained block by block"
    signs = 2.0 * y - 1.0
    for found in (model, whole):
        value = objective(loss, 0.01, found.coef_[0], found.intercept_[0], X, signs)
        # dump_svmlight_file writes 16 digits.
        assert found.primal_ == pytest.approx(value, rel=1e-9)
    assert max(model.dual_, whole.dual_) <= min(model.primal_, whole.primal_)
    again = make(loss, memory="2MiB", **settings).fit(paths)
    np.testing.assert_array_equal(again.coef_, model.coef_)
    other = make(loss, memory="2MiB", **{**settings, "random_state": 1}).fit(paths)
    assert np.any(other.coef_ != model.coef_), "another seed visits rows in another order"
    newton = make(loss, memory="2MiB", **{**settings, "solver": "newton"}).fit(paths)
    assert newton.gap_ <= 1e-3
    assert sorted(path.suffix for path in tmp_path.iterdir()) == 3 * [".libsvm"] + 3 * [".pelton-index"]


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("features, density", [(40, 0.1), (40, 0.7), (100_000, 3e-4)])
def test_sparse_rows_are_dense_ones(loss, features, density):
    random = np.random.default_rng(1)
    X = sparse.random_array((400, features), density=density, format="csr", dtype=np.float32, rng=random)
    y = random.integers(2, size=400)
    settings = {"tol": 1e-6, "C": 0.5}
    model = make(loss, **settings).fit(X, y)
    for other_X in [sparse.csr_matrix(X), X.tocoo(), X.astype(np.float64)]:
        other = make(loss, **settings).fit(other_X, y)
        np.testing.assert_array_equal(other.coef_, model.coef_)
    wide = X.copy()
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    np.testing.assert_array_equal(make(loss, **settings).fit(wide, y).coef_, model.coef_)
    # Each value as two halves, in descending columns.
    halves = sparse.csr_array(
        (np.repeat(X.data, 2)[::-1] / 2, np.repeat(X.indices, 2)[::-1], 2 * (X.nnz - X.indptr)[::-1]), shape=X.shape
    )
    assert not halves.has_canonical_format
    given = halves.data.copy()
    apart = np.linalg.norm(make(loss, **settings).fit(halves, y[::-1]).coef_ - model.coef_)
    assert apart <= 2.0 * np.sqrt(2e-6 * model.primal_)
    np.testing.assert_array_equal(halves.data, given)
    if features <= 1000:
        dense = make(loss, **settings).fit(X.toarray(), y)
        apart = np.linalg.norm(dense.coef_ - model.coef_)
        assert apart <= 2.0 * np.sqrt(2e-6 * model.primal_)
        np.testing.assert_allclose(model.decision_function(X), model.decision_function(X.toarray()), rtol=1e-6, atol=1e-6)


def test_any_layout_of_memory_is_the_same_problem(tmp_path):
    X, y = problem()
    model = make("hinge").fit(X, y)
    np.save(tmp_path / "X.npy", X)
    strided = np.repeat(X, 3, axis=1)[:, ::3]
    mapped = np.load(tmp_path / "X.npy", mmap_mode="r")
    for other in [X.astype(np.float64), np.asfortranarray(X), strided, mapped, X.tolist()]:
        np.testing.assert_array_equal(make("hinge").fit(other, y).coef_, model.coef_)


def test_pieces_of_an_array_are_the_array(monkeypatch):
    from pelton import _array_rows

    X, y = problem()
    rows = sparse.random_array((600, 5000), density=1e-3, format="csr", dtype=np.float32, rng=np.random.default_rng(0))
    whole = [make("hinge").fit(X, y).coef_, make("hinge").fit(rows, y).coef_]
    monkeypatch.setattr(_array_rows, "_PIECE_VALUES", 17)
    np.testing.assert_array_equal(make("hinge").fit(X, y).coef_, whole[0])
    np.testing.assert_array_equal(make("hinge").fit(rows, y).coef_, whole[1])


@pytest.mark.parametrize("loss", LOSSES)
def test_each_class_is_trained_against_the_rest(loss):
    X, y = problem(classes=4)
    names = np.array(["d", "b", "c", "a"])
    model = make(loss, tol=1e-6).fit(X, names[y])
    np.testing.assert_array_equal(model.classes_, ["a", "b", "c", "d"])
    assert model.coef_.shape == (4, 8) and model.intercept_.shape == (4,)
    for place, name in enumerate(model.classes_):
        alone = make(loss, tol=1e-6).fit(X, names[y] == name)
        gap = np.sqrt(2e-6 * model.primal_) + np.sqrt(2e-6 * alone.primal_)
        assert np.linalg.norm(model.coef_[place] - alone.coef_[0]) <= gap
    best = model.decision_function(X).argmax(axis=1)
    np.testing.assert_array_equal(model.predict(X), model.classes_[best])
    assert model.score(X, names[y]) > 0.6


def test_more_than_two_classes_are_multinomial():
    X, y = problem(classes=4)
    names = np.array(["d", "b", "c", "a"])[y]
    weights = np.random.default_rng(1).integers(1, 4, len(y)).astype(float)
    for settings in ({"C": 0.1}, {"C": 10.0, "class_weight": {"a": 2.0, "b": 0.5}}, {"fit_intercept": False}):
        model = LogisticRegression(tol=1e-8, **settings).fit(X, names, sample_weight=weights)
        other = SklearnLogistic(tol=1e-8, max_iter=10_000, **settings).fit(X, names, sample_weight=weights)
        assert model.gap_ <= 1e-8
        np.testing.assert_allclose(model.coef_, other.coef_, atol=2e-3)
        np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-3)
    same = LinearClassifier(loss="multinomial", tol=1e-8, fit_intercept=False).fit(X, names, sample_weight=weights)
    np.testing.assert_array_equal(same.coef_, model.coef_)
    np.testing.assert_array_equal(same.predict_proba(X), model.predict_proba(X))
    for loss in ("hinge", "softmax"):
        with pytest.raises(ValueError, match="use 'multinomial' or 'logistic'"):
            LogisticRegression(loss=loss).fit(X, names)
    with pytest.raises(pelton.ConfigurationError, match="needs l-bfgs"):
        LogisticRegression(solver="newton").fit(X, names)


def test_probabilities():
    X, y = problem()
    model = LogisticRegression(tol=1e-8).fit(X, y)
    other = SklearnLogistic(tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), atol=1e-4)
    np.testing.assert_allclose(np.exp(model.predict_log_proba(X)), model.predict_proba(X))
    X, y = problem(classes=3)
    for loss in ("multinomial", "logistic"):
        shares = LogisticRegression(loss=loss).fit(X, y).predict_proba(X)
        np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    assert not hasattr(LinearClassifier(), "predict_proba")


def test_probabilities_far_from_all_classes():
    X, y = problem(classes=3)
    for classes, loss in itertools.product((2, 3), ("multinomial", "logistic")):
        model = LogisticRegression(loss=loss).fit(X[y < classes], y[y < classes])
        for far in (1e3 * model.coef_.sum(axis=0), -1e3 * model.coef_.sum(axis=0)):
            shares = model.predict_proba(1e3 * far[None])
            assert np.isfinite(shares).all() and np.isfinite(model.predict_log_proba(1e3 * far[None])).all()
            np.testing.assert_allclose(shares.sum(), 1.0)
            assert model.classes_[shares.argmax()] == model.predict(1e3 * far[None])[0]


def test_classes_of_files_are_those_that_are_listed(tmp_path):
    X, y = problem(classes=3)
    names = np.array(["a", "b", "c"])[y]
    (tmp_path / "rows.csv").write_text("".join(",".join(map(str, row)) + f",{name}\n" for row, name in zip(X, names)))
    own = LinearClassifier().fit(tmp_path / "rows.csv")
    listed = LinearClassifier().fit(tmp_path / "rows.csv", classes=["c", "a", "b"])
    np.testing.assert_array_equal(listed.classes_, own.classes_)
    np.testing.assert_allclose(listed.coef_, own.coef_, rtol=1e-2, atol=1e-3)
    with pytest.raises(Exception, match='class "b"'):
        LinearClassifier().fit(tmp_path / "rows.csv", classes=["c", "a"])


@pytest.mark.parametrize("loss", LOSSES)
def test_a_weight_of_a_class_is_its_rows_so_many_times(loss):
    X, y = problem(rows=300)
    weighted = make(loss, tol=1e-6, class_weight={0: 3.0}).fit(X, y)
    rows = np.concatenate([np.arange(300), *2 * [np.flatnonzero(y == 0)]])
    repeated = make(loss, tol=1e-6).fit(X[rows], y[rows])
    assert weighted.primal_ == pytest.approx(repeated.primal_, rel=2e-6)
    assert np.linalg.norm(weighted.coef_ - repeated.coef_) <= 2.0 * np.sqrt(2e-6 * repeated.primal_)
    counts = np.bincount(y)
    factors = {place: 300 / (2 * count) for place, count in enumerate(counts)}
    balanced = make(loss, class_weight="balanced").fit(X, y)
    np.testing.assert_array_equal(balanced.coef_, make(loss, class_weight=factors).fit(X, y).coef_)


def test_weights_of_classes_in_files(tmp_path):
    X, y = problem()
    y[0] = 0
    np.savetxt(tmp_path / "rows.csv", np.column_stack([X, y]), delimiter=",", fmt="%.9g")
    array = make("hinge", class_weight={1: 2.0}).fit(X, y)
    file = make("hinge", class_weight={1: 2.0}).fit(tmp_path / "rows.csv")
    np.testing.assert_array_equal(file.coef_, array.coef_)
    array = make("hinge", class_weight="balanced").fit(X, y)
    file = make("hinge", class_weight="balanced").fit(tmp_path / "rows.csv")
    np.testing.assert_array_equal(file.coef_, array.coef_)
    with pytest.raises(ValueError, match="'auto' is not known; give 'balanced' or a dict"):
        make("hinge", class_weight="auto").fit(tmp_path / "rows.csv")
    with pytest.raises(ValueError, match="no record has the label 7"):
        make("hinge", class_weight={7: 2.0}).fit(tmp_path / "rows.csv")


def test_scaled_features_are_undone_in_the_coefficients():
    X, y = problem()
    sizes = np.float32([1e3, 1e-3, 1, 1, 1, 1, 1, 1])
    uneven = (X + np.float32(2.0)) * sizes
    model = make("logistic", scale="standard", tol=1e-6).fit(uneven, y)
    scaled = (uneven.astype(np.float64) - uneven.mean(axis=0, dtype=np.float64)) / uneven.std(axis=0, dtype=np.float64)
    other = make("logistic", tol=1e-6).fit(scaled, y)
    assert model.primal_ == pytest.approx(other.primal_, rel=1e-5)
    np.testing.assert_allclose(model.decision_function(uneven), other.decision_function(scaled), atol=1e-2)


def test_without_an_intercept():
    X, y = problem()
    model = make("squared_hinge", fit_intercept=False, tol=1e-6).fit(X, y)
    assert model.intercept_ == 0.0
    other = LinearSVC(fit_intercept=False, dual=False, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=np.sqrt(2e-6 * model.primal_))
    # A constant feature of 10 costs a hundredth.
    model = make("squared_hinge", intercept_scaling=10.0, tol=1e-6).fit(X, y)
    other = LinearSVC(intercept_scaling=10.0, dual=False, tol=1e-10).fit(X, y)
    np.testing.assert_allclose(model.intercept_, other.intercept_, atol=10.0 * np.sqrt(2e-6 * model.primal_))


def test_a_target_that_is_not_reached_is_warned_of():
    X, y = problem()
    uneven = X * np.float32([1e4, 1, 1, 1, 1, 1, 1, 1e-2])
    model = LinearClassifier(tol=1e-9, max_epochs=1, solver="coordinate-descent", random_state=0)
    with pytest.warns(ConvergenceWarning, match="after 1 epochs.*scale.*standard"):
        model.fit(uneven, y)
    assert model.gap_ > 1e-9 and model.n_iter_ == 1


@pytest.mark.parametrize("loss", LOSSES)
def test_pickled_and_cloned(loss):
    X, y = problem()
    model = make(loss).fit(X, y)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.decision_function(X), model.decision_function(X))
    np.testing.assert_array_equal(clone(model).fit(X, y).coef_, model.coef_)


def check_refused(kind, match, X, y=None, model=None, **data):
    with pytest.raises(kind, match=match):
        (model or make("hinge")).fit(X, y, **data)


def test_what_cannot_be_trained_on(tmp_path):
    X, y = problem()
    holed = X.copy()
    holed[3, 2] = np.nan
    check_refused(ValueError, "NaN", holed, y)
    far = X.astype(np.float64)
    far[3, 2] = 1e39
    check_refused(ValueError, "row 3, column 2", far, y)
    check_refused(ValueError, "row 3, column 2", sparse.csr_array(far), y)
    check_refused(ValueError, "one class only, 0", X, np.zeros(len(X), dtype=int))
    check_refused(ValueError, "Unknown label type", X, X[:, 0])
    check_refused(TypeError, "`label` applies to files", X, y, label="first")
    for wrong in [{"C": 0.0}, {"C": np.nan}, {"tol": 1.0}, {"max_epochs": 0}, {"threads": 0}, {"intercept_scaling": -1.0}]:
        check_refused(ValueError, next(iter(wrong)), X, y, make("hinge", **wrong))
    check_refused(ValueError, "not a loss", X, y, make("huber"))
    check_refused(ValueError, "not a solver", X, y, make("hinge", solver="sgd"))
    check_refused(ValueError, "not a scaling", X, y, make("hinge", scale="log"))
    check_refused(ValueError, "not an amount of memory", X, y, make("hinge", memory="much"))
    check_refused(ValueError, "newton supports at most 1024 features", np.zeros((4, 2000)), [0, 1, 0, 1], make("hinge", solver="newton"))

    path = tmp_path / "rows.csv"
    check_refused(FileNotFoundError, "rows.csv", path)
    path.write_text("a,b,label\n1,2,0\n3,4,1\n")
    check_refused(TypeError, "y is only for arrays", path, y)
    check_refused(pelton.ConfigurationError, "no label column.*its columns are", path, label="class")
    check_refused(TypeError, "lable", path, lable="class")
    path.write_text("a,b,label\n1,2,0\n3,4,0\n")
    check_refused(ValueError, "at least two labels", path)
    path.write_text("a,b,label\n1,2,0\n3,nan,1\n")
    check_refused(pelton.DataError, "rows.csv: line 3", path)


def test_a_failed_fit_changes_nothing():
    X, y = problem()
    model = make("hinge").fit(X, y)
    before = model.coef_
    with pytest.raises(ValueError):
        model.fit(X, np.zeros(len(X)))
    assert model.coef_ is before


@pytest.mark.parametrize("solver", ["newton", "coordinate-descent"])
@pytest.mark.parametrize("of_files", [False, True])
def test_ctrl_c_ends_a_fit(tmp_path, solver, of_files):
    # Features of very different sizes, which would take very long.
    X, y = problem(rows=100_000, features=20, noise=0.8)
    X *= np.float32(10.0) ** np.linspace(-3, 3, 20, dtype=np.float32)
    classes = np.arange(len(y)) % 50
    model = LinearClassifier(tol=1e-12, max_epochs=10_000, solver=solver, C=100.0)
    arguments = (X, classes)
    if of_files:
        path = tmp_path / "rows.npy"
        np.save(path, np.column_stack([X, classes]).astype(np.float32))
        arguments = (path,)
    sent = []

    def interrupt():
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    timer = threading.Timer(2.0, interrupt)
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        model.fit(*arguments)
    # A second, and another in case other programs are using the processors.
    assert time.monotonic() - sent[0] < 2.0
    assert not hasattr(model, "coef_")


def fit_in_child(X, y, queue):
    queue.put(make("logistic", solver="newton").fit(X, y).coef_)


def test_a_forked_process_trains_too():
    X, y = problem()
    model = make("logistic", solver="newton").fit(X, y)
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=fit_in_child, args=(X, y, queue))
    child.start()
    np.testing.assert_array_equal(queue.get(timeout=60), model.coef_)
    child.join(timeout=60)


def test_the_number_of_threads_changes_nothing():
    X, y = problem(rows=20_000)
    models = [make("hinge", solver="newton", threads=threads).fit(X, y) for threads in (1, 3)]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


def test_scikit_learn_is_imported_where_it_is_asked_for():
    code = "import sys, pelton; assert 'sklearn' not in sys.modules; pelton.LinearClassifier; assert 'sklearn' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert "LinearClassifier" in dir(pelton)
    with pytest.raises(AttributeError, match="no attribute 'Forest'"):
        pelton.Forest


def clock(rows: int = 400) -> tuple[np.ndarray, np.ndarray]:
    """Seconds of a clock within about a minute, which float32 makes two values of, and a random column."""
    random = np.random.default_rng(0)
    seconds = 1_600_000_000 + random.integers(0, 64, rows)
    return np.column_stack([seconds, random.normal(size=rows)]), (seconds % 64 >= 32).astype(int)


def test_columns_far_from_zero_are_centred_before_they_are_rounded(tmp_path):
    X, y = clock()
    models = [LogisticRegression(C=100, scale="standard").fit(X, y)]
    np.savetxt(tmp_path / "t.csv", np.column_stack([X, y]), fmt=["%d", "%.9g", "%d"], delimiter=",")
    np.save(tmp_path / "t.npy", np.column_stack([X, y]))
    for name in ("t.csv", "t.npy"):
        models.append(LogisticRegression(C=100, scale="standard").fit(tmp_path / name))
    for model in models:
        assert model.score(X, y) > 0.97 and model.gap_ <= 1e-4
        # Seconds are whole numbers; `predict` does not round them either.
        assert model.score(X.astype(object), y) > 0.97
    seconds = X[:, :1].astype(np.int64)
    assert LogisticRegression(C=100, scale="standard").fit(seconds, y).score(seconds, y) > 0.97
    # A constant column changes nothing.
    constant = np.column_stack([X, np.full(len(X), 1.6e9)])
    assert LogisticRegression(C=100, scale="standard").fit(constant, y).score(constant, y) > 0.97


def test_columns_far_from_zero_are_refused_without_centring(tmp_path):
    X, y = clock()
    np.savetxt(tmp_path / "t.csv", np.column_stack([X, y]), fmt=["%d", "%.9g", "%d"], delimiter=",")
    for scale in ("none", "max-abs"):
        with pytest.raises(ValueError, match="column 0 has values about 1.60000003e.09 that differ by about 2e.01"):
            LogisticRegression(scale=scale).fit(X, y)
        with pytest.raises(pelton.ConfigurationError, match="t.csv: column 1 has values about 1.60000003.*`scale` standard"):
            LogisticRegression(scale=scale).fit(tmp_path / "t.csv")
    LogisticRegression().fit(X - [1.6e9, 0.0], y)
    # Large numbers with a large spread work.
    LogisticRegression(scale="max-abs").fit(X * [[1e6, 1.0]] * np.arange(1, len(X) + 1)[:, None], y)


def test_columns_of_text_are_features(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    from pyarrow import table

    X, y = problem()
    columns = {f"x{i}": column for i, column in enumerate(X.T)}
    parquet.write_table(table({**columns, "sex": np.where(y, "m", "f"), "y": y}), tmp_path / "t.parquet")
    model = LinearClassifier().fit(tmp_path / "t.parquet", label="y")
    assert model.n_features_in_ == X.shape[1] + 1
    assert list(model.get_feature_names_out()[-2:]) == ["sex=f", "sex=m"]
    assert (model.predict(tmp_path / "t.parquet") == y).all()


def test_a_table_of_classes_goes_with_folders(tmp_path):
    X, y = problem()
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    with pytest.raises(pelton.DataError, match="X.npy: `label_file` does not apply to npy files, only to folders of images"):
        LinearClassifier().fit(tmp_path / "X.npy", label_file=tmp_path / "y.npy")


def test_balanced_classes_count_a_row_of_weight_2_twice():
    X, y = problem(classes=3)
    weights = np.random.default_rng(4).integers(0, 3, len(y))
    settings = {"class_weight": "balanced", "tol": 1e-8}
    weighted = LogisticRegression(**settings).fit(X, y, sample_weight=weights.astype(float))
    listed = LogisticRegression(**settings).fit(np.repeat(X, weights, axis=0), np.repeat(y, weights))
    np.testing.assert_allclose(weighted.coef_, listed.coef_, atol=1e-3)
