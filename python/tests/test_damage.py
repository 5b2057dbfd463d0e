"""A part of the data that is empty, damaged or missing does not refuse the rest."""

import io
import json
import tarfile
import warnings
from pathlib import Path

import numpy as np
import pytest

import pelton


def told_by(make):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        made = make()
    return made, " ".join(str(warning.message) for warning in caught)


def fields_of(pipeline, name: str) -> list:
    return [value for batch in pipeline for value in np.asarray(batch[name]).tolist()]


def test_damage_follows_the_policy(tmp_path: Path) -> None:
    path = tmp_path / "bad.jsonl"
    path.write_text('{"x": 1}\n{"x": 2,\n{"x": 3}\n{"x": NaN}\n')
    for _ in range(2):
        with pytest.raises(pelton.DataError, match=r"bad\.jsonl: line 2: column 8: the line ends before its JSON does"):
            fields_of(pelton.load(path).batch(4), "x")
        pipeline = pelton.load(path).on_bad_record("skip").batch(4)
        assert fields_of(pipeline, "x") == [1, 3]
        bad = pipeline.meters()["bad_examples"]
        assert len(bad) == 2 and "line 2" in bad[0] and "JSON has no NaN" in bad[1]
    with pytest.raises(pelton.DataError, match="line"):
        fields_of(pelton.load(path).on_bad_record("skip:1").batch(4), "x")


def test_an_archive_that_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / "cut.tar"
    with tarfile.open(path, "w") as archive:
        for i in range(5):
            member = tarfile.TarInfo(f"{i}.txt")
            member.size = 600
            archive.addfile(member, io.BytesIO(bytes([48 + i]) * 600))
    path.write_bytes(path.read_bytes()[: 3 * 1536 + 700])
    with pytest.raises(pelton.DataError, match=r"cut\.tar: record 3 at byte 4608: .*cut off"):
        next(iter(pelton.load(path).batch(9)))
    pipeline = pelton.load(path).on_bad_record("skip").batch(9)
    (batch,) = pipeline
    assert np.asarray(batch.ids).tolist() == [0, 1, 2]
    assert len(pipeline.meters()["bad_examples"]) == 1


def test_files_without_records_are_told_of(tmp_path: Path) -> None:
    (tmp_path / "part-0.csv").write_text("a,b,label\n1,true,0\n2,False,1\n")
    (tmp_path / "part-1.csv").write_text("")
    (tmp_path / "part-2.csv").write_text("a,b,label\n")
    (tmp_path / "_SUCCESS").write_text("")
    (tmp_path / ".part-0.csv.crc").write_text("crc")
    found, told = told_by(lambda: fields_of(pelton.load(f"{tmp_path}/*").batch(4), "features"))
    assert found == [[1.0, 1.0], [2.0, 0.0]]
    for part in ("part-1.csv: holds no records", "part-2.csv: holds no records", "_SUCCESS: their names are not those of data"):
        assert part in told
    with pytest.raises(pelton.DataError, match=r"part-1\.csv: holds no records"):
        next(iter(pelton.load([tmp_path / "part-1.csv", tmp_path / "part-2.csv"]).batch(4)))


def test_null_is_a_missing_value(tmp_path: Path) -> None:
    path = tmp_path / "null.jsonl"
    records = [{"x": 1, "s": "a", "t": ["p"]}, {"x": None, "s": None, "t": []}, {"x": 3, "s": "b", "t": [1]}]
    path.write_text("\n".join(json.dumps(record) for record in records))
    with pytest.raises(pelton.DataError, match='line 2: "s" is null, a missing value; `missing` zero fills'):
        fields_of(pelton.load(path).batch(3), "x")
    assert fields_of(pelton.load(path).on_bad_record("skip").batch(3), "x") == [1, 3]
    (batch,) = pelton.load(path, missing="zero").batch(3)
    assert np.asarray(batch["x"]).tolist() == [1, 0, 3]
    assert [bytes(text) for text in batch["s"]] == [b"a", b"", b"b"]
    assert [json.loads(bytes(text)) for text in batch["t"]] == [["p"], [], [1]]
    (batch,) = pelton.load(path, format="jsonl:t").batch(3)
    assert "s" not in batch and len(batch["t"]) == 3
    with pytest.raises(pelton.DataError, match="`missing` mean is for features"):
        next(iter(pelton.load(path, missing="mean").batch(3)))


def test_null_in_parquet(tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    path = tmp_path / "null.parquet"
    table = pyarrow.table({"x": [1.0, None, 3.0], "b": [True, False, None], "y": ["u", None, "v"]})
    parquet.write_table(table, path)
    with pytest.raises(pelton.DataError, match="record 1 .*column x holds no value"):
        fields_of(pelton.load(path, label="y").batch(3), "x")
    filled = pelton.load(path, label="y", missing="zero").on_bad_record("skip").batch(3)
    assert fields_of(filled, "x") == [1.0, 3.0]
    assert fields_of(filled, "b") == [1, 0]
    empty = tmp_path / "empty.parquet"
    parquet.write_table(table.slice(0, 0), empty)
    both = pelton.load([empty, path], label="y").on_bad_record("skip").batch(3)
    found, told = told_by(lambda: fields_of(both, "x"))
    assert found == [1.0]
    assert "empty.parquet: holds no records" in told


def test_tables_of_polars(tmp_path: Path) -> None:
    polars = pytest.importorskip("polars")
    path = tmp_path / "table.arrow"
    polars.DataFrame({"x": [1.5, 2.5, 3.5], "word": ["a", "b" * 20, ""]}).write_ipc(path)
    (batch,) = pelton.load(path).batch(3)
    assert np.asarray(batch["x"]).tolist() == [1.5, 2.5, 3.5]
    assert [bytes(text) for text in batch["word"]] == [b"a", b"b" * 20, b""]
