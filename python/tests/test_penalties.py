"""Penalties with ‖w‖₁ of the estimators, next to scikit-learn's."""

import pickle

import numpy as np
import pytest
from scipy import sparse
from sklearn.linear_model import ElasticNet, Lasso
from sklearn.linear_model import LogisticRegression as Theirs

from pelton.estimators import LinearClassifier, LinearRegressor, LogisticRegression


def _problem(seed, rows=300, columns=40):
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, columns)).astype(np.float32)
    u = X[:, :5] @ random.normal(size=5) + 0.7
    return X, u + 0.3 * random.normal(size=rows)


@pytest.mark.parametrize("ratio", [1.0, 0.5])
def test_lasso_and_elastic_net_are_scikit_learns(ratio):
    X, y = _problem(1)
    alpha = 0.1
    theirs = Lasso(alpha, tol=1e-10) if ratio == 1 else ElasticNet(alpha, l1_ratio=ratio, tol=1e-10)
    theirs.fit(X.astype(np.float64), y)
    ours = LinearRegressor(1 / (len(y) * alpha), l1_ratio=ratio, tol=1e-8).fit(X, y)
    assert ours.gap_ <= 1e-8
    np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=1e-4)
    assert np.array_equal(ours.coef_ != 0, theirs.coef_ != 0)


def test_logistic_regression_with_few_weights_is_scikit_learns():
    X, u = _problem(2)
    y = np.where(u > 0.7, "yes", "no")
    for features in (X, sparse.csr_matrix(X)):
        ours = LogisticRegression(0.2, l1_ratio=1.0, regularise_intercept=True, tol=1e-7).fit(features, y)
        theirs = Theirs(C=0.2, penalty="l1", solver="liblinear", tol=1e-10, max_iter=10000).fit(X, y)
        np.testing.assert_allclose(ours.coef_, theirs.coef_, atol=1e-4)
        assert 0 < np.count_nonzero(ours.coef_) < 20
        assert ours.gap_ <= 1e-7


def test_what_the_penalty_does_not_go_with_is_refused():
    X, u = _problem(3)
    with pytest.raises(ValueError, match="loss hinge does not support penalty l1"):
        LinearClassifier(l1_ratio=1.0).fit(X, u > 0)
    with pytest.raises(ValueError, match="loss multinomial does not support penalty elastic-net:0.5"):
        LogisticRegression(l1_ratio=0.5).fit(X, np.digitize(u, [0, 1]))
    with pytest.raises(ValueError, match="l1_ratio=2 is not a share"):
        LinearRegressor(l1_ratio=2).fit(X, u)


def _sizes(seed=0, n=600):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 3)) * [1.0, 100.0, 0.01] + [0.0, 5.0, 0.0]
    return rng, X, X @ [0.8, 0.01, 50.0]


@pytest.mark.parametrize("kind", ["array", "frame", "file"])
def test_no_penalty_has_standard_errors(kind, tmp_path):
    pd = pytest.importorskip("pandas")
    rng, X, u = _sizes()
    y = u + 1e6 + rng.normal(size=len(u))
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    model = LinearRegressor(C=np.inf)
    if kind == "array":
        model.fit(X, y)
    elif kind == "frame":
        model.fit(frame, y, columns={"a": "number"})
    else:
        frame.assign(y=y).to_parquet(tmp_path / "t.parquet")
        model.fit(tmp_path / "t.parquet", label="y")
    A = np.column_stack([np.ones(len(y)), X])
    beta = np.linalg.lstsq(A, y, rcond=None)[0]
    residual = y - A @ beta
    error = np.sqrt(np.diag(np.linalg.inv(A.T @ A)) * (residual @ residual) / (len(y) - 4))
    found = model.summary_frame()
    names = ["x0", "x1", "x2"] if kind == "array" else ["a", "b", "c"]
    assert list(found.index) == ["intercept", *names]
    np.testing.assert_allclose((found["estimate"] - beta) / error, 0, atol=1e-3)
    np.testing.assert_allclose(found["standard_error"], error, rtol=1e-4)
    np.testing.assert_allclose(found["t"], beta / error, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(model.predict(X if kind == "array" else frame), A @ beta, atol=1e-2)
    with pytest.raises(ValueError, match="C=np.inf"):
        LinearRegressor().fit(X, y).summary_frame()
    with pytest.raises(ValueError, match="l1_ratio"):
        LinearRegressor(C=np.inf, l1_ratio=0.5).fit(X, y)


def test_no_penalty_of_classes():
    rng, X, u = _sizes(1)
    y = np.where(u + 2 * rng.logistic(size=len(u)) > 0, "yes", "no")
    found = LogisticRegression(C=np.inf, scale="standard").fit(X, y).summary_frame()
    # By the definition: Newton's method on the likelihood of "yes".
    A, t, beta = np.column_stack([np.ones(len(y)), X]), (y == "yes").astype(float), np.zeros(4)
    for _ in range(50):
        p = 1 / (1 + np.exp(-A @ beta))
        H = A.T @ (A * (p * (1 - p))[:, None])
        beta = beta + np.linalg.solve(H, A.T @ (t - p))
    error = np.sqrt(np.diag(np.linalg.inv(H)))
    np.testing.assert_allclose((found["estimate"] - beta) / error, 0, atol=1e-5)
    np.testing.assert_allclose(found["standard_error"], error, rtol=1e-5)
    assert (found["p"] < 0.05)[1:].all()
    three = np.digitize(u + rng.normal(size=len(u)), [-0.5, 0.5])
    found = LogisticRegression(C=np.inf, loss="logistic", scale="standard").fit(X, np.array(["low", "mid", "top"])[three]).summary_frame()
    assert list(found.loc["top"].index) == ["intercept", "x0", "x1", "x2"]
    with pytest.raises(ValueError, match="separated"):
        LogisticRegression(C=np.inf).fit(X, u > 0)


def test_a_warm_start_begins_from_the_fit_before():
    rng, X, u = _sizes(2, 3000)
    y = u + rng.normal(size=len(u)) > 0
    X = X / X.std(axis=0)
    cold = LogisticRegression(tol=1e-6, warm_start=True).fit(X, y)
    first = cold.n_iter_
    again = cold.fit(X, y)
    assert again.n_iter_ <= 2 < first
    near = LogisticRegression(tol=1e-6).fit(X, y)
    np.testing.assert_allclose(again.coef_, near.coef_, atol=1e-3)
    assert pickle.loads(pickle.dumps(again)).fit(X, y).n_iter_ <= 2
    with pytest.raises(ValueError, match="other classes"):
        again.fit(X, np.where(y, "yes", "no"))
    with pytest.raises(ValueError, match="3 features"):
        again.fit(X[:, :2], y)
    with pytest.raises(ValueError, match="smooth loss"):
        LinearClassifier(warm_start=True).fit(X, y)
