"""Columns of tables go by their names, and what a table may mean either way is asked about."""

import warnings

import numpy as np
import pytest

import pelton

pd = pytest.importorskip("pandas")
pytest.importorskip("sklearn")

from pelton import LogisticRegression

ERRORS = (pelton.DataError, pelton.ConfigurationError, pelton.StateError)


def rows(source):
    data = source.dataset()
    return [np.asarray(data[i]["features"]).tolist() for i in range(len(data))], [data[i]["label"] for i in range(len(data))]


@pytest.fixture
def frame():
    random = np.random.default_rng(0)
    frame = pd.DataFrame(random.normal(size=(200, 3)).astype("f4").astype("f8"), columns=list("abc"))
    return frame.assign(y=(frame.a > frame.b).astype(int))


def write(path, text):
    path.write_text(text)
    return path


@pytest.mark.parametrize("label", [None, "y", "last"])
def test_columns_of_further_files_go_by_name(tmp_path, label):
    a = write(tmp_path / "a.csv", "a,b,y\n1,2,0\n5,6,1\n")
    b = write(tmp_path / "b.csv", "y,b,a\n1,4,3\n0,8,7\n")
    features, labels = rows(pelton.load([a, b], label=label))
    assert features == [[1, 2], [5, 6], [3, 4], [7, 8]]
    assert labels == [0, 1, 1, 0]


def test_other_columns_are_errors_that_name_them(tmp_path):
    a = write(tmp_path / "a.csv", "a,b,y\n1,2,0\n")
    for text, parts in [("a,c,y\n1,2,0\n", ['"b"', '"c"']), ("a,y\n1,0\n", ['lacks "b"']), ("a,b,z,y\n1,2,3,0\n", ['also has "z"'])]:
        b = write(tmp_path / "b.csv", text)
        with pytest.raises(ERRORS) as error:
            len(pelton.load([a, b]).dataset())
        assert all(part in str(error.value) for part in [*parts, "b.csv", "a.csv"]), error.value


def test_files_without_names_are_taken_in_order_with_a_note(tmp_path):
    a = write(tmp_path / "a.csv", "a,b,y\n1,2,0\n")
    b = write(tmp_path / "b.csv", "3,4,1\n")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        source = pelton.load([a, b])
        assert rows(source)[0] == [[1, 2], [3, 4]]
        assert any("b.csv: its first line names no columns" in note for note in source.notes)


@pytest.mark.parametrize(
    "text, found",
    [
        ("1,5;2;0\n3,5;4;1\n", "decimal commas"),
        ("a b y\n7.4 3.51 5\n", "blanks"),
        ("text\ngood film\n", "one column"),
    ],
)
def test_other_delimiters_are_refused(tmp_path, text, found):
    path = write(tmp_path / "x.csv", text)
    for use in (lambda: len(pelton.load(path).dataset()), lambda: LogisticRegression().fit(path)):
        with pytest.raises(ERRORS, match=found):
            use()


def test_a_line_that_may_be_names_is_asked_about(tmp_path):
    path = tmp_path / "n.csv"
    pd.DataFrame(np.array([[1.0, 2, 0], [3, 4, 1]])).to_csv(path, index=False)
    for header in ("auto", None):
        settings = {} if header is None else {"header": header}
        with pytest.raises(ERRORS, match="set `header` to yes or no"):
            len(pelton.load(path, **settings).dataset())
    with pytest.raises(ERRORS, match="`header`"):
        LogisticRegression().fit(path)
    assert len(pelton.load(path, header=True).dataset()) == 2
    assert len(pelton.load(path, header="no").dataset()) == 3
    model = LogisticRegression().fit(path, header="yes")
    assert model.classes_.tolist() == [0, 1]
    assert model.feature_names_in_.tolist() == ["0", "1"]


def test_prose_is_text(tmp_path):
    source = pelton.load(write(tmp_path / "p.txt", "Hello, world\n42, said he\n"))
    assert len(source.dataset()) == 2
    assert len(source.classes) == 0


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_models_of_files_know_their_columns(tmp_path, frame, kind):
    path = tmp_path / f"x.{kind}"
    frame.to_csv(path, index=False) if kind == "csv" else frame.to_parquet(path)
    model = LogisticRegression(random_state=0).fit(path, label="y")
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    X = frame[["a", "b", "c"]]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert model.score(X, frame.y) > 0.95
    with pytest.raises(ValueError, match="same order"):
        model.predict(X[["c", "b", "a"]])
    with pytest.raises(ValueError, match="Feature names"):
        model.predict(X.rename(columns={"c": "d"}))
    # Fitted again on an array, it has no names.
    assert not hasattr(model.fit(X.to_numpy(), frame.y), "feature_names_in_")


def test_tables_of_several_formats_go_by_name(tmp_path, frame):
    frame.to_csv(tmp_path / "a.csv", index=False)
    frame[["y", "c", "a", "b"]].to_parquet(tmp_path / "b.parquet")
    frame[["c", "b", "y", "a"]].to_parquet(tmp_path / "c.parquet")
    whole = LogisticRegression(random_state=0).fit([tmp_path / "a.csv"] * 2, label="y")
    for second in ("b.parquet", "c.parquet"):
        mixed = LogisticRegression(random_state=0).fit([tmp_path / "a.csv", tmp_path / second], label="y")
        assert np.array_equal(mixed.coef_, whole.coef_)
    fields = pelton.load([tmp_path / "b.parquet", tmp_path / "c.parquet"], label="y").dataset()
    assert len(fields) == 400
    for i in (0, 7, 399):
        for name in "abc":
            assert float(fields[i][name]) == frame[name][i % 200], (i, name)
        assert fields[i]["label"] == frame.y[i % 200]
    frame[["a", "b", "y"]].to_parquet(tmp_path / "d.parquet")
    with pytest.raises(ERRORS, match='lacks "c"'):
        LogisticRegression().fit([tmp_path / "a.csv", tmp_path / "d.parquet"], label="y")


def test_arrays_of_npz_go_by_name(tmp_path):
    np.savez(tmp_path / "a.npz", a=np.array([1, 2]), b=np.array([1.5, 2.5]))
    np.savez(tmp_path / "b.npz", b=np.array([3.5]), a=np.array([3]))
    data = pelton.load([tmp_path / "a.npz", tmp_path / "b.npz"]).dataset()
    assert [(int(data[i]["a"]), float(data[i]["b"])) for i in range(3)] == [(1, 1.5), (2, 2.5), (3, 3.5)]


def test_a_place_in_data_with_other_columns_is_refused(tmp_path):
    path = write(tmp_path / "x.csv", "a,b,y\n" + "1,2,0\n3,4,1\n" * 20)
    pipeline = pelton.load(path).shuffle(seed=0).batch(4)
    next(iter(pipeline))
    state = pipeline.state_dict()
    pipeline.close()
    write(path, "b,a,y\n" + "1,2,0\n3,4,1\n" * 20)
    other = pelton.load(path).shuffle(seed=0).batch(4)
    with pytest.raises(ERRORS):
        other.load_state_dict(state)
        next(iter(other))
