"""The regressor against those of scikit-learn, and arrays against files."""

import warnings

import numpy as np
import pytest

pytest.importorskip("sklearn")

from scipy import optimize, sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import PoissonRegressor, Ridge
from sklearn.metrics import mean_absolute_error, mean_poisson_deviance, r2_score, root_mean_squared_error
from sklearn.svm import LinearSVR

from pelton import DataError, LinearRegressor

LOSSES = ["squared", "epsilon_insensitive", "squared_epsilon_insensitive", "huber", "poisson"]
EPSILON = {"epsilon_insensitive": 0.1, "squared_epsilon_insensitive": 0.1, "huber": 1.35}


def problem(loss, rows=500, features=6, seed=0):
    """Rows and targets of float32, so that no rounding stands between the problem given and the problem solved."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(rows, features)).astype(np.float32)
    linear = X @ random.normal(size=features) * 0.5 + 1.0
    if loss == "poisson":
        return X, random.poisson(np.exp(linear)).astype(np.float64)
    y = 3.0 * linear + random.normal(size=rows)
    # Some outliers, for Huber's loss.
    y[::17] += 20.0
    return X, y.astype(np.float32).astype(np.float64)


def loss_of(loss, y, u, epsilon=None):
    epsilon = EPSILON.get(loss) if epsilon is None else epsilon
    r = np.abs(y - u)
    if loss == "squared":
        return 0.5 * r**2
    if loss == "epsilon_insensitive":
        return np.maximum(0.0, r - epsilon)
    if loss == "squared_epsilon_insensitive":
        return np.maximum(0.0, r - epsilon) ** 2
    if loss == "huber":
        return np.where(r <= epsilon, 0.5 * r**2, epsilon * r - 0.5 * epsilon**2)
    return np.exp(u) - y * u + np.where(y > 0, y * np.log(np.maximum(y, 1.0)), 0.0) - y


def objective(loss, C, w, b, X, y, weights=1.0):
    """½‖w‖² + C Σ loss, in float64 by its definition; C as the solver has it, in 32 bits."""
    return 0.5 * w @ w + float(np.float32(C)) * (weights * loss_of(loss, y, X.astype(np.float64) @ w + b)).sum()


def optimum(loss, C, X, y):
    """The weights and the intercept that scikit-learn finds, or for what it lacks SciPy."""
    X = X.astype(np.float64)
    if loss == "squared":
        found = Ridge(alpha=1.0 / C, tol=1e-12).fit(X, y)
    elif loss == "poisson":
        found = PoissonRegressor(alpha=1.0 / (len(y) * C), tol=1e-10, max_iter=10_000, solver="newton-cholesky").fit(X, y)
    elif loss.endswith("epsilon_insensitive"):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)
            # Its intercept is regularised, but hardly.
            settings = {"epsilon": 0.1, "C": C, "loss": loss, "tol": 1e-10, "max_iter": 200_000, "intercept_scaling": 1e3}
            found = LinearSVR(dual=loss == "epsilon_insensitive", random_state=0, **settings).fit(X, y)
    else:

        def value(w):
            r = y - X @ w[:-1] - w[-1]
            pull = C * np.clip(r, -EPSILON[loss], EPSILON[loss])
            slopes = np.append(w[:-1] - X.T @ pull, -pull.sum())
            return 0.5 * w[:-1] @ w[:-1] + C * loss_of(loss, r, 0.0).sum(), slopes

        start = np.zeros(X.shape[1] + 1)
        settings = {"maxiter": 100_000, "maxfun": 1_000_000, "ftol": 1e-16, "gtol": 1e-9}
        found = optimize.minimize(value, start, jac=True, method="L-BFGS-B", options=settings).x
        return found[:-1], found[-1]
    return found.coef_, np.ravel(found.intercept_)[0]


@pytest.mark.parametrize("solver", ["newton", "coordinate-descent"])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("C", [0.01, 1.0])
def test_the_optimum_is_scikit_learns(loss, C, solver):
    X, y = problem(loss)
    model = LinearRegressor(C, loss=loss, solver=solver, tol=1e-6, random_state=0, max_epochs=3000).fit(X, y)
    w, b = optimum(loss, C, X, y)
    best = objective(loss, C, w, b, X, y)
    found = objective(loss, C, model.coef_, model.intercept_, X, y)
    assert model.primal_ == pytest.approx(found, rel=1e-9)
    assert model.dual_ <= best * (1 + 1e-9) and found <= best * (1 + 1e-5)
    assert model.gap_ <= 1e-6 or solver == "coordinate-descent" and model.gap_ <= 1e-4
    if loss in ("squared", "huber", "poisson"):
        np.testing.assert_allclose(np.append(model.coef_, model.intercept_), np.append(w, b), atol=2e-3)


@pytest.mark.parametrize("loss", LOSSES)
def test_weights_intercepts_and_sparse_rows(loss):
    X, y = problem(loss, rows=300)
    counts = np.random.default_rng(1).integers(0, 4, size=len(y))
    settings = {"loss": loss, "tol": 1e-6, "C": 0.3, "random_state": 0}
    weighted = LinearRegressor(**settings).fit(X, y, sample_weight=counts)
    repeated = LinearRegressor(**settings).fit(np.repeat(X, counts, axis=0), np.repeat(y, counts))
    assert weighted.primal_ == pytest.approx(repeated.primal_, rel=2e-5)
    again = LinearRegressor(**settings).fit(sparse.csr_array(X), y, sample_weight=counts)
    assert again.primal_ == pytest.approx(weighted.primal_, rel=2e-6)
    found = objective(loss, 0.3, weighted.coef_, weighted.intercept_, X, y, counts)
    assert weighted.primal_ == pytest.approx(found, rel=1e-9)
    regularised = LinearRegressor(regularise_intercept=True, **settings).fit(X, y, sample_weight=counts)
    assert regularised.primal_ > weighted.primal_
    none = LinearRegressor(fit_intercept=False, **settings).fit(X, y, sample_weight=counts)
    assert none.intercept_ == 0.0 and none.primal_ > regularised.primal_


@pytest.mark.parametrize("loss", LOSSES)
def test_files_are_arrays(loss, tmp_path):
    X, y = problem(loss)
    header = ",".join([f"f{column}" for column in range(X.shape[1])] + ["target"])
    np.savetxt(tmp_path / "table.csv", np.column_stack([X, y]), delimiter=",", header=header, comments="", fmt="%.9g")
    np.save(tmp_path / "table.npy", np.column_stack([X, y]))
    files = [(tmp_path / "table.csv", "target"), (tmp_path / "table.npy", "last")]
    pandas = pytest.importorskip("pandas")
    if hasattr(pandas, "DataFrame"):
        try:
            frame = pandas.DataFrame(X, columns=[f"f{column}" for column in range(X.shape[1])])
            frame.assign(target=y).to_parquet(tmp_path / "table.parquet")
            files.append((tmp_path / "table.parquet", "target"))
        except ImportError:
            pass
    settings = {"loss": loss, "tol": 1e-5, "solver": "newton"}
    model = LinearRegressor(**settings).fit(X, y)
    for path, label in files:
        found = LinearRegressor(**settings).fit(path, label=label)
        np.testing.assert_array_equal(found.coef_, model.coef_)
        assert (found.intercept_, found.primal_) == (model.intercept_, model.primal_)
    X, y = problem(loss, rows=20_000)
    np.save(tmp_path / "large.npy", np.column_stack([X, y]))
    model = LinearRegressor(loss=loss, tol=1e-4).fit(X, y)
    out_of_core = LinearRegressor(loss=loss, tol=1e-3, memory="600KiB", random_state=0).fit(tmp_path / "large.npy", label="last")
    assert out_of_core.primal_ == pytest.approx(model.primal_, rel=1.1e-3)
    assert model.score(X, y) == r2_score(y, model.predict(X)) > (0.1 if loss == "poisson" else 0.3)


def test_commands_have_the_figures_of_scikit_learn(tmp_path):
    # The command's figures come from one pass; here those of the same predictions.
    X, y = problem("poisson")
    model = LinearRegressor(loss="poisson", C=0.1).fit(X, y)
    predicted = model.predict(X)
    assert np.all(predicted > 0) and mean_poisson_deviance(y, predicted) < mean_poisson_deviance(y, np.full(len(y), y.mean()))
    least = objective("poisson", 0.1, model.coef_, model.intercept_, X, y)
    half = 0.5 * mean_poisson_deviance(y, predicted) * len(y)
    assert least == pytest.approx(0.5 * model.coef_ @ model.coef_ + float(np.float32(0.1)) * half, rel=1e-9)
    assert mean_absolute_error(y, predicted) <= root_mean_squared_error(y, predicted)


def test_targets_of_any_size_and_far_from_zero():
    for size, centre in [(1e-4, 0.0), (1e5, 0.0), (1.0, 1e4)]:
        for loss in LOSSES[:4]:
            X, y = problem(loss)
            # So that every size is the same problem.
            C = 100.0 * size if loss == "epsilon_insensitive" else 100.0
            model = LinearRegressor(C, loss=loss, epsilon=None if loss == "squared" else 0.2 * size, tol=1e-3)
            model.fit(X, size * y + centre)
            assert model.score(X, size * y + centre) > 0.2, (size, centre, loss)


def test_what_is_wrong_is_said(tmp_path):
    X, y = problem("squared")
    for settings, said in [
        ({"loss": "l1"}, "loss='l1' is not a loss of a regression: use one of 'squared'"),
        ({"epsilon": 0.1}, "epsilon does not apply to loss='squared'"),
        ({"loss": "huber", "epsilon": 0.0}, "out of range"),
        ({"loss": "epsilon_insensitive", "epsilon": -1.0}, "out of range"),
        ({"loss": "poisson"}, "targets of at least 0"),
        ({"C": 0.0}, "C=0.0 is out of range"),
    ]:
        with pytest.raises(ValueError, match=said):
            LinearRegressor(**settings).fit(X, y)
    with pytest.raises(ValueError, match="beyond 32-bit"):
        LinearRegressor().fit(X, y * 1e39)
    (tmp_path / "text.csv").write_text("a,b\n1,2\n2,cheap\n")
    with pytest.raises(DataError, match='text.csv.*line 3.*"cheap" in column 2 is not a number'):
        LinearRegressor().fit(tmp_path / "text.csv")


def test_targets_that_32_bits_do_not_tell_apart_need_an_intercept():
    X = np.random.default_rng(0).normal(size=(200, 2))
    y = 1e9 + X[:, 0]
    assert LinearRegressor().fit(X, y).score(X, y) > 0.9
    with pytest.raises(ValueError, match="subtract a constant"):
        LinearRegressor(fit_intercept=False).fit(X, y)
    assert np.isfinite(LinearRegressor(fit_intercept=False).fit(X, 1e3 + X[:, 0]).coef_).all()
