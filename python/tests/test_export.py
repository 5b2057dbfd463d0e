"""Pipelines of scikit-learn's own classes predict what the models predict that they were made of."""

import io
import pickle
import subprocess
import sys
import warnings

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
pytest.importorskip("sklearn")

from scipy import sparse  # noqa: E402
from sklearn import datasets  # noqa: E402

from pelton import ConfigurationError, LinearClassifier, LinearRegressor, LogisticRegression  # noqa: E402
from pelton.estimators import to_sklearn  # noqa: E402

CLASSIFIERS = [
    LogisticRegression(),
    LogisticRegression(loss="logistic", scale="standard", class_weight="balanced"),
    LogisticRegression(fit_intercept=False, C=0.01),
    LinearClassifier(loss="hinge", scale="max-abs"),
    LinearClassifier(loss="squared_hinge", regularise_intercept=True, intercept_scaling=10.0),
    LinearClassifier(loss="multinomial", scale="standard"),
]
REGRESSORS = [LinearRegressor(loss="squared", scale="standard"), LinearRegressor(loss="epsilon_insensitive"), LinearRegressor(loss="huber")]
REGRESSORS += [LinearRegressor(loss="poisson", scale="standard"), LinearRegressor(loss="squared_epsilon_insensitive", fit_intercept=False)]


def people(rows: int = 400, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    """Numbers, categories and truth values, some of which are missing, and a target."""
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "city": random.choice(["Rome", "Oslo", "Bern, CH", 'said "x"', None], rows),
            "age": random.integers(18, 80, rows).astype(float),
            "income": random.normal(50_000.0, 10_000.0, rows).round(2),
            "member": random.choice(np.array([True, False, None], dtype=object), rows),
            "level": pd.Categorical(random.choice([1, 2, 3], rows)),
            "children": random.integers(0, 4, rows),
        }
    )
    target = (frame["city"] == "Oslo") * 2.0 + (frame["age"] - 50) / 20 + (frame["level"] == 3) + random.normal(0, 0.5, rows)
    frame.loc[random.random(rows) < 0.1, "age"] = np.nan
    return frame, target.to_numpy()


def strangers() -> pd.DataFrame:
    """Others, with values that those do not have, in columns of another order among further ones."""
    frame, _ = people(100, seed=1)
    frame.loc[::3, "city"] = "Paris"
    frame.loc[1::3, ["income", "children"]] = np.nan
    return frame[frame.columns[::-1]].assign(level=1, more="x")


def check(pipeline, model, rows) -> None:
    assert all(type(step).__module__.startswith("sklearn.") for _, step in pipeline.steps)
    for method in ("predict", "decision_function", "predict_proba"):
        assert hasattr(pipeline, method) == hasattr(model, method)
        if hasattr(model, method):
            found, expected = getattr(pipeline, method)(rows), getattr(model, method)(rows)
            assert found.shape == expected.shape
            if found.dtype.kind == "f":
                np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-6)
            else:
                np.testing.assert_array_equal(found, expected)
    if hasattr(model, "classes_"):
        np.testing.assert_array_equal(pipeline.classes_, model.classes_)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "after .* epochs the objective")
        yield


@pytest.mark.parametrize("classes", [["no", "yes"], [False, True], [30, 10, 20], ["c", "a", "d", "b"]], ids=str)
@pytest.mark.parametrize("model", CLASSIFIERS, ids=str)
def test_classifiers_of_frames(model, classes) -> None:
    frame, target = people()
    ranks = np.searchsorted(np.quantile(target, np.arange(1, len(classes)) / len(classes)), target)
    model.fit(frame, np.array(classes)[ranks], missing="flag")
    for rows in (frame, strangers()):
        check(model.to_sklearn(), model, rows)
    assert model.score(frame, np.array(classes)[ranks]) > 0.4


@pytest.mark.parametrize("model", REGRESSORS, ids=str)
def test_regressors_of_frames(model) -> None:
    frame, target = people()
    model.fit(frame, np.exp(target), missing="mean")
    for rows in (frame, strangers()):
        check(model.to_sklearn(), model, rows)
    # Targets far from 0 need an intercept.
    far = 1e6 if model.fit_intercept else 1e3
    frame, target = frame[["age", "income"]].fillna(40.0), target + far
    check(to_sklearn(model.fit(frame, target)), model, frame)


def test_frames_of_polars() -> None:
    polars = pytest.importorskip("polars")
    frame, target = people()
    model = LogisticRegression().fit(frame, target > 0, missing="flag")
    check(model.to_sklearn(), model, polars.from_pandas(frame))


@pytest.mark.parametrize("name", ["iris", "wine", "breast_cancer", "diabetes"])
def test_tables_of_numbers(name, tmp_path) -> None:
    table = getattr(datasets, f"load_{name}")(as_frame=True)
    kind = LinearRegressor if name == "diabetes" else LogisticRegression
    model = kind(scale="standard").fit(table.data, table.target)
    check(model.to_sklearn(), model, table.data)
    model.fit(table.data.to_numpy(), table.target)
    check(model.to_sklearn(), model, table.data.to_numpy())
    model.fit(sparse.csr_array(table.data), table.target)
    check(model.to_sklearn(), model, sparse.csr_array(table.data))
    table.frame.to_parquet(tmp_path / "t.parquet")
    model.fit(tmp_path / "t.parquet", label="target")
    assert np.array_equal(model.to_sklearn().predict(table.frame), model.predict(table.data))


def pelton(*words) -> str:
    done = subprocess.run([sys.executable, "-m", "pelton", *map(str, words)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("classes", [2, 3])
def test_runs_of_the_command(classes, tmp_path) -> None:
    frame, target = people()
    frame["grade"] = np.array(["a", "b", "c"])[np.digitize(target, [0.0, 1.0][: classes - 1])]
    frame.to_csv(tmp_path / "t.csv", index=False)
    threshold = ["--test", tmp_path / "t.csv", "--threshold", "f1"] if classes == 2 else []
    pelton("train", "linear", tmp_path / "t.csv", "--label", "grade", "--out", tmp_path / "run", *threshold)
    for model in (tmp_path / "run", str(tmp_path / "run" / "model.safetensors")):
        pipeline, rows = to_sklearn(model), pd.read_csv(tmp_path / "t.csv")
        expected = pd.read_csv(io.StringIO(pelton("predict", tmp_path / "run", tmp_path / "t.csv", "--probabilities")), sep="\t")
        assert list(pipeline.classes_) == list(expected.columns[1:])
        np.testing.assert_array_equal(pipeline.predict(rows), expected["label"])
        np.testing.assert_allclose(pipeline.predict_proba(rows), expected.iloc[:, 1:], atol=1e-6)
        scores = pd.read_csv(io.StringIO(pelton("predict", tmp_path / "run", tmp_path / "t.csv", "--scores")))
        np.testing.assert_allclose(pipeline.decision_function(rows), scores.iloc[:, 1:].squeeze(), atol=1e-6)
    # Files may have a blank after each comma, which pandas leaves in.
    padded = rows.assign(city=" " + rows["city"])
    np.testing.assert_array_equal(pipeline.predict(padded), expected["label"])
    sign = pipeline.classes_[(pipeline.decision_function(rows) > 0).astype(int)] if classes == 2 else None
    assert classes == 3 or np.any(pipeline.predict(rows) != sign)


def test_runs_of_numbers(tmp_path) -> None:
    table = datasets.load_diabetes(as_frame=True).frame
    table.to_csv(tmp_path / "t.csv", index=False)
    np.save(tmp_path / "t.npy", table.to_numpy())
    datasets.dump_svmlight_file(table.iloc[:, :-1], table["target"], str(tmp_path / "t.libsvm"), zero_based=False)
    for name, loss in [("t.csv", "squared"), ("t.npy", "huber"), ("t.libsvm", "poisson")]:
        label = [] if name == "t.libsvm" else ["--label", "last"]
        pelton("train", "linear", tmp_path / name, "--loss", loss, "--out", tmp_path / "run", "--overwrite", *label)
        expected = np.loadtxt(io.StringIO(pelton("predict", tmp_path / "run", tmp_path / name)))
        rows = table if name == "t.csv" else table.iloc[:, :-1].to_numpy()
        np.testing.assert_allclose(to_sklearn(tmp_path / "run").predict(rows), expected, rtol=1e-6)
        if name == "t.csv":
            # The mean of a column replaces missing values.
            rows = pd.concat([rows, rows.mean().to_frame().T, rows.iloc[:1] * np.nan])
            mean, missing = to_sklearn(tmp_path / "run").predict(rows)[-2:]
            assert missing == pytest.approx(mean, rel=1e-5)


def test_categories_are_matched_by_what_they_spell() -> None:
    random = np.random.default_rng(0)
    numbers = random.choice([0, 1, 2, 10**6], 400)
    y = numbers % 10 == 1
    truth = np.where(numbers < 10**6, numbers, np.nan)
    when = pd.Timestamp("2026-11-01 20:51") + pd.to_timedelta(numbers % 10, "D")
    frame = pd.DataFrame({"number": numbers, "text": numbers.astype(str), "hole": truth, "when": when, "x": random.normal(size=400)})
    columns = dict.fromkeys(["number", "text", "hole", "when"], "category")
    model = LogisticRegression(C=100.0).fit(frame, y, columns=columns)
    pipeline = model.to_sklearn()
    ways = [
        frame,
        frame.assign(number=numbers.astype(float), text=numbers, hole=frame["hole"].astype("Int64")),
        frame.assign(number=numbers.astype(str), text=numbers.astype(np.float32), when=when.astype(str)),
        frame.assign(number=pd.Series(numbers == 1), text=np.where(numbers == 1, "True", "false"), hole=None),
        frame.assign(number=[None, np.nan, pd.NA, "NA"] * 100, text="", hole=frame["hole"].astype("string")),
    ]
    for rows in ways:
        check(pipeline, model, rows)


def test_a_pipeline_needs_no_pelton(tmp_path) -> None:
    frame, target = people()
    models = [LogisticRegression(loss="logistic").fit(frame, np.digitize(target, [0.0, 1.0]), missing="flag")]
    models += [LinearRegressor(loss="poisson").fit(frame, np.exp(target), missing="flag")]
    (tmp_path / "in.pickle").write_bytes(pickle.dumps(([model.to_sklearn() for model in models], frame)))
    program = """if True:
        import pickle, sys
        sys.modules["pelton"] = None
        pipelines, frame = pickle.load(open("in.pickle", "rb"))
        pickle.dump([pipeline.predict(frame) for pipeline in pipelines], open("out.pickle", "wb"))
        try:
            import pelton
        except ImportError:
            print("no pelton")
    """
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True)
    assert done.stdout == "no pelton\n", done.stderr
    for model, found in zip(models, pickle.loads((tmp_path / "out.pickle").read_bytes())):
        np.testing.assert_allclose(found, model.predict(frame), rtol=1e-6)


def test_what_has_no_equal_is_refused(tmp_path) -> None:
    frame, target = people()
    frame["when"] = pd.Timestamp("2026-11-01") + pd.to_timedelta(np.arange(len(frame)) % 40, "D")
    y, data = target > 0, {"missing": "flag", "columns": {"city": "ignore"}}
    with pytest.raises(ValueError, match="column 'when' is a date.*columns={'when': 'ignore'}"):
        LogisticRegression().fit(frame, y, **data).to_sklearn()
    for kind in ("hash:4", "text"):
        data["columns"] = {"when": "ignore", "city": kind}
        with pytest.raises(ValueError, match="column 'city' is .*hashed"):
            LogisticRegression().fit(frame, y, **data).to_sklearn()
    with pytest.raises(ValueError, match="not fitted"):
        LogisticRegression().to_sklearn()
    with pytest.raises(ConfigurationError, match="there is no run folder or model file"):
        to_sklearn(tmp_path / "none")
    # The exported model refuses the same values as Pelton.
    model = LogisticRegression().fit(frame[["income", "children"]], y)
    with pytest.raises(ValueError, match="NaN"):
        model.to_sklearn().predict(strangers())
    with pytest.raises(ValueError, match="income"):
        model.to_sklearn().predict(frame[["children"]])
