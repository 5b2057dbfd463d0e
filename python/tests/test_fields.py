"""Every field of the data is in the batches, and every number has its digits; else a warning or an error says so."""

from __future__ import annotations

import io
import csv
import json
import tarfile
import warnings
from pathlib import Path

import numpy as np
import pytest

import pelton


def lines(path: Path, records: list[dict]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    return path


def first_batch(path, **how):
    """The first batch, and what was warned of."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        batch = next(iter(pelton.load(path, **how).batch(10)))
    return batch, "\n".join(str(warning.message) for warning in told)


def test_labels_that_are_all_equal(tmp_path):
    (tmp_path / "c.csv").write_text("a,y\n1,5\n2,5\n")
    lines(tmp_path / "j.jsonl", [{"x": 1, "label": 5}] * 2)
    np.savez(tmp_path / "n.npz", x=np.arange(2), label=np.array([5, 5]))
    with tarfile.open(tmp_path / "t.tar", "w") as tar:
        for name, content in [("a.txt", b"x"), ("a.cls", b"5"), ("b.txt", b"x"), ("b.cls", b"5")]:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    names = ["c.csv", "j.jsonl", "n.npz", "t.tar"]
    try:
        from pyarrow import parquet, table

        parquet.write_table(table({"x": [1, 2], "label": [5, 5]}), tmp_path / "p.parquet")
        names.append("p.parquet")
    except ImportError:
        pass
    for name in names:
        for _ in range(2):
            batch, told = first_batch(tmp_path / name)
            assert batch["label"].dtype == np.int64, name
            np.testing.assert_array_equal(batch["label"], [5, 5], name)
            assert not told, told


def test_targets_keep_their_digits(tmp_path):
    batch, _ = first_batch(lines(tmp_path / "a.jsonl", [{"x": 1, "label": 0.5}] * 3))
    np.testing.assert_array_equal(batch["label"], [0.5, 0.5, 0.5])
    batch, _ = first_batch(lines(tmp_path / "b.jsonl", [{"x": 1, "label": 1}, {"x": 2, "label": 16777217.5}]))
    assert batch["label"].dtype == np.float64
    np.testing.assert_array_equal(batch["label"], [1.0, 16777217.5])
    batch, _ = first_batch(lines(tmp_path / "c.jsonl", [{"x": 1, "label": 16777217}] * 2))
    np.testing.assert_array_equal(batch["label"], [16777217, 16777217])


def test_records_without_labels_have_none(tmp_path):
    batch, told = first_batch(lines(tmp_path / "a.jsonl", [{"x": 1}, {"x": 2}]))
    assert list(batch) == ["x"] and not told


@pytest.mark.parametrize(
    "records, why",
    [
        ([{"a": 1}, {"a": 2, "input": "x"}], "line 1 does not have it"),
        ([{"a": 1, "input": "x"}, {"a": 2}], "line 2 does not have it"),
        ([{"a": 1, "input": "x"}] * 999 + [{"a": 2}], "line 1000 does not have it"),
        ([{"a": 1, "input": "x"}] * 999 + [{"a": 2, "input": 7}], "line 1000 has a number, but lines before it have a string"),
        ([{"a": 1, "input": None}] * 3, "every line has null"),
        ([{"a": 1, "input": 2**64 - 1}], "line 1 mixes fractions with whole numbers beyond"),
    ],
)
def test_keys_that_are_left_out_are_told_of(tmp_path, records, why):
    path = lines(tmp_path / "k.jsonl", records)
    for _ in range(2):
        batch, told = first_batch(path)
        assert "input" not in batch and "a" in batch
        assert f'k.jsonl: the key "input" is left out: {why}' in told


def test_a_field_called_label_gives_way_with_a_word(tmp_path):
    batch, told = first_batch(lines(tmp_path / "l.jsonl", [{"y": 1, "label": 7, "x": 2}]), label="y")
    np.testing.assert_array_equal(batch["label"], [1])
    assert 'the field "label" is left out, because "label" is' in told


def test_whole_numbers_keep_their_digits(tmp_path):
    path = tmp_path / "i.csv"
    path.write_text("user,y\n16777217,0\n123456789,1\n")
    with pytest.raises(pelton.DataError, match="line 2: column 1 holds 16777217, which features of 32 bits round"):
        first_batch(path)
    batch, _ = first_batch(path, dtype="float64")
    assert batch["features"].dtype == np.float64
    np.testing.assert_array_equal(batch["features"], [[16777217], [123456789]])
    np.testing.assert_array_equal(batch["label"], [0, 1])
    assert pelton.load(path, dtype=np.dtype("float64")).fields == [("features", "float64", [1])]
    batch, _ = first_batch(path, dtype="float32")
    assert batch["features"].dtype == np.float32
    np.testing.assert_array_equal(batch["features"], np.float32([[16777217], [123456789]]))
    np.save(tmp_path / "m.npy", np.array([[16777217, 3]]))
    with pytest.raises(pelton.DataError, match="column 1 holds 16777217"):
        first_batch(tmp_path / "m.npy", label="last")
    batch, _ = first_batch(tmp_path / "m.npy")
    np.testing.assert_array_equal(batch["data"], [[16777217, 3]])


def test_functions_return_no_numbers_that_are_rounded(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.arange(2))
    small = pelton.load(tmp_path / "x.npz").map(lambda sample: {"id": np.uint64(2**63 - 1)}).batch(2)
    np.testing.assert_array_equal(next(iter(small))["id"], [2**63 - 1] * 2)
    large = pelton.load(tmp_path / "x.npz").map(lambda sample: {"id": np.uint64(2**63)}).batch(2)
    with pytest.raises(pelton.BadRecordError, match="contains 9223372036854775808, which does not fit int64"):
        next(iter(large))


def test_tables_of_classes_are_for_folders(tmp_path):
    np.savez(tmp_path / "x.npz", x=np.arange(2))
    with pytest.raises(pelton.DataError, match="x.npz: `label_file` does not apply to npz files, only to folders of images"):
        first_batch(tmp_path / "x.npz", label_file=tmp_path / "y.npy")


def test_columns_of_text_are_as_they_were_written(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    parts = ["a", " b ", '"', ",", "\n", "ü", "", "1,5", "NA", "\t"]
    rows = [["".join(parts[k] for k in rng.integers(0, len(parts), rng.integers(6))), str(i), "no yes".split()[i % 2]] for i in range(300)]
    for name, delimiter in (("t.csv", ","), ("t.tsv", "\t")):
        with open(tmp_path / name, "w", newline="") as file:
            writer = csv.writer(file, delimiter=delimiter, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
            writer.writerow(["body", "id", "label"])
            writer.writerows(rows)
        kind = name[-3:]
        data = pelton.load(tmp_path / name, format=f"{kind}:id,body")
        assert data.classes == ["no", "yes"]
        seen = []
        for batch in data.shuffle(seed=1).batch(16):
            for number, body, label, i in zip(batch["id"].texts(), batch["body"].texts(), batch["label"], batch.ids):
                assert [body, number, data.classes[label]] == rows[i]
                seen.append(i)
        assert sorted(seen) == list(range(300))
    (tmp_path / "plain.csv").write_text("a,b\nx y, z \n,\"q \"\"r\"\"\"\n")
    (batch,) = pelton.load(tmp_path / "plain.csv", format="csv:b").batch(2)
    assert batch["b"].texts() == [" z ", 'q "r"'] and "label" not in batch
    with pytest.raises(pelton.DataError, match=r"plain.csv.*no column body.*a, b"):
        next(iter(pelton.load(tmp_path / "plain.csv", format="csv:body").batch(2)))
    (tmp_path / "twice.csv").write_text("a,b,a\nx,y,z\n")
    with pytest.raises(pelton.DataError, match='columns 1 and 3 are both named "a"'):
        next(iter(pelton.load(tmp_path / "twice.csv", format="csv:a").batch(2)))
    (tmp_path / "short.csv").write_text("a,b\nx,y\nz\n")
    with pytest.raises(pelton.DataError, match="line 3: 1 columns, but the first row has 2"):
        next(iter(pelton.load(tmp_path / "short.csv", format="csv:b").batch(2)))
    with pytest.raises(pelton.DataError, match="name columns of text with `format`, as in csv:NAME,NAME"):
        next(iter(pelton.load(tmp_path / "t.csv").batch(2)))
