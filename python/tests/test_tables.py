"""Estimators over data frames and files whose columns are text, categories and dates."""

import pickle
import warnings

import numpy as np
import pytest

pd = pytest.importorskip("pandas")
pytest.importorskip("pyarrow")
sklearn = pytest.importorskip("sklearn")

from pelton import LinearClassifier, LogisticRegression  # noqa: E402


def people(rows: int = 400, seed: int = 0) -> tuple[pd.DataFrame, np.ndarray]:
    random = np.random.default_rng(seed)
    frame = pd.DataFrame(
        {
            "city": random.choice(["Rome", "Oslo", "Bern, CH", 'said "x"'], rows),
            "age": random.integers(18, 80, rows),
            "level": pd.Categorical(random.choice(["1", "2", "3"], rows)),
            "when": pd.Timestamp("2026-11-01") + pd.to_timedelta(random.integers(0, 40, rows), "D"),
        }
    )
    score = (frame["city"] == "Oslo") * 2.0 + (frame["age"] - 50) / 20 + (frame["level"] == "3") - 1
    return frame, np.where(score + random.normal(0, 0.5, rows) > 0, "yes", "no")


def test_a_frame_equals_its_codes() -> None:
    frame, y = people()
    model = LogisticRegression(C=0.5, tol=1e-6).fit(frame, y)
    assert list(model.feature_names_in_) == ["city", "age", "level", "when"]
    assert model.n_features_in_ == 4
    names = list(model.get_feature_names_out())
    assert names[:5] == ["city=Bern, CH", "city=Oslo", "city=Rome", 'city=said "x"', "age"]
    assert names[5:8] == ["level=1", "level=2", "level=3"]
    assert names[8] == "when years" and names[9] == "when Mon"
    # The same by hand.
    days = (frame["when"] - pd.Timestamp("1970-01-01")).dt.days
    coded = pd.concat(
        [
            pd.get_dummies(frame["city"]),
            frame["age"],
            pd.get_dummies(frame["level"]),
            days / 365.2425,
            pd.get_dummies(frame["when"].dt.day_of_week),
        ],
        axis=1,
    ).to_numpy(dtype=np.float64)
    by_hand = LogisticRegression(C=0.5, tol=1e-6).fit(coded, y)
    used = np.flatnonzero(model.coef_[0] != 0)
    np.testing.assert_allclose(model.coef_[0][: coded.shape[1]], by_hand.coef_[0], atol=2e-3)
    assert len(used) <= coded.shape[1]
    assert model.score(frame, y) == by_hand.score(coded, y) > 0.8
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(frame), model.predict_proba(frame))


def test_frames_of_other_libraries_and_files_give_the_same(tmp_path) -> None:
    polars = pytest.importorskip("polars")
    pa = pytest.importorskip("pyarrow")
    frame, y = people()
    model = LinearClassifier(tol=1e-6, random_state=0).fit(frame, y)
    values = model.decision_function(frame)
    shuffled = frame[["when", "level", "age", "city"]].assign(more=1)
    np.testing.assert_array_equal(model.decision_function(shuffled), values)
    np.testing.assert_array_equal(model.decision_function(pa.Table.from_pandas(frame)), values)
    by_polars = polars.from_pandas(frame)
    np.testing.assert_array_equal(model.decision_function(by_polars), values)
    np.testing.assert_array_equal(LinearClassifier(tol=1e-6, random_state=0).fit(by_polars, y).decision_function(frame), values)
    file = tmp_path / "people.csv"
    frame.assign(y=y).to_csv(file, index=False)
    np.testing.assert_allclose(model.decision_function(file), values, atol=1e-6)
    of_file = LinearClassifier(tol=1e-6, random_state=0).fit(file, label="y", columns={"level": "category"})
    assert list(of_file.classes_) == ["no", "yes"]
    np.testing.assert_allclose(of_file.decision_function(frame), values, atol=0.02)
    assert (of_file.predict(file) == y).mean() > 0.8


def test_what_does_not_fit_is_said() -> None:
    frame, y = people()
    model = LogisticRegression().fit(frame, y)
    with pytest.raises(ValueError, match="trained on the columns city, age, level, when"):
        model.predict(np.zeros((3, 4)))
    with pytest.raises(Exception, match="lacks the columns city"):
        model.predict(frame.drop(columns="city"))
    with pytest.raises(ValueError, match="y has 399 entries, and X 400 rows"):
        LogisticRegression().fit(frame, y[1:])
    holed = frame.assign(age=frame["age"].where(frame["age"] > 20))
    with pytest.raises(Exception, match="column age is empty"):
        LogisticRegression().fit(holed, y)
    filled = LogisticRegression().fit(holed, y, missing="flag")
    assert "age missing" in filled.get_feature_names_out()
    with pytest.raises(TypeError, match="applies to files and data frames"):
        LogisticRegression().fit(np.zeros((4, 2)), [0, 1, 0, 1], columns={"a": "number"})


def test_numbers_alone_go_as_before() -> None:
    random = np.random.default_rng(1)
    frame = pd.DataFrame(random.normal(size=(100, 3)), columns=list("abc"))
    y = random.integers(0, 2, 100)
    model = LogisticRegression(random_state=0).fit(frame, y)
    by_array = LogisticRegression(random_state=0).fit(frame.to_numpy(), y)
    np.testing.assert_array_equal(model.coef_, by_array.coef_)
    assert list(model.get_feature_names_out()) == ["a", "b", "c"]
    weighted = LogisticRegression(class_weight={0: 2.0, 1: 1.0}).fit(frame.assign(d="x y".split() * 50), y)
    assert list(weighted.get_feature_names_out()) == ["a", "b", "c", "d=x", "d=y"]


def test_errors_name_the_row_of_a_frame() -> None:
    frame, y = people()
    holed = frame.assign(age=frame["age"].where(frame.index != 7))
    with pytest.raises(Exception, match="row 7 of the data frame") as found:
        LogisticRegression().fit(holed, y)
    assert ".arrow" not in str(found.value)


def test_zones_are_utc_in_frames_and_files(tmp_path) -> None:
    random = np.random.default_rng(0)
    when = pd.Series(pd.date_range("2020-01-01", periods=400, freq="97min", tz="UTC").tz_convert("America/New_York"))
    y = (when.dt.hour >= 12).astype(int)
    frame = pd.DataFrame({"t": when, "z": random.normal(size=400)})
    frame.assign(y=y).to_parquet(tmp_path / "zones.parquet")
    frame.assign(y=y).to_csv(tmp_path / "zones.csv", index=False)
    model = LogisticRegression(tol=1e-6, random_state=0).fit(frame, y)
    values = model.decision_function(frame)
    for name in ("zones.parquet", "zones.csv"):
        np.testing.assert_allclose(model.decision_function(tmp_path / name), values, atol=1e-5)


def test_columns_that_are_left_out_are_said() -> None:
    frame, y = people()
    odd = frame.assign(id=np.arange(len(frame)), same="s", none=None, year=np.arange(len(frame)) + 1900)
    with pytest.warns(UserWarning, match="the data frame: columns are left out: id: numbers the records, same: the same") as said:
        model = LogisticRegression().fit(odd, y)
    assert "none: no value in any record" in str(said[0].message) and ".arrow" not in str(said[0].message)
    names = list(model.get_feature_names_out())
    assert "year" in names and "id" not in names
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        LogisticRegression().fit(odd, y, columns={name: "ignore" for name in ("id", "same", "none")})


def test_rows_without_a_value_are_predicted() -> None:
    frame, y = people()
    frame["city"] = frame["city"].where(frame["city"] != "Oslo", None)
    model = LogisticRegression().fit(frame, y)
    row = frame[frame["city"].isna()].iloc[:1]
    assert model.decision_function(row)[0] == model.decision_function(frame)[row.index[0]]
    numbers = pd.DataFrame(np.random.default_rng(0).normal(size=(100, 2)), columns=["a", "b"])
    numbers.loc[3, "b"] = np.nan
    for missing in ("zero", "mean", "flag"):
        of_numbers = LogisticRegression().fit(numbers, numbers["a"] > 0, missing=missing)
        assert of_numbers.score(numbers, numbers["a"] > 0) > 0.9


def test_text_of_people_is_numbers() -> None:
    random = np.random.default_rng(0)
    price = np.exp(random.normal(8, 1, 300)).round(2)
    frame = pd.DataFrame({"price": [f"${value:,.2f}" for value in price], "z": random.normal(size=300)})
    y = price > np.median(price)
    model = LogisticRegression(scale="standard").fit(frame, y)
    assert list(model.get_feature_names_out()) == ["price", "z"]
    np.testing.assert_allclose(model.decision_function(frame.assign(price=price)), model.decision_function(frame), rtol=1e-5)
