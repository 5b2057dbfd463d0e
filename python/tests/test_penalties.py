"""Penalties with ‖w‖₁ of the estimators, next to scikit-learn's."""

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
