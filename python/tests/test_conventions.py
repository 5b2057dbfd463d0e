"""What users of other libraries expect: data in memory, lists of files, tables of files, choices, and own collation."""

from __future__ import annotations

import csv
import http.server
import io
import json
import pickle
import tarfile
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pelton
import pytest

RECORDS = 60


@pytest.fixture(scope="module")
def arrays() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(0, 255, (RECORDS, 16, 12, 3), dtype=np.uint8), np.arange(RECORDS) % 7


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[str], list[str]]:
    """Image files in no order, photo ``i`` with brightness ``4 * i``, and their classes."""
    image = pytest.importorskip("PIL.Image", reason="SKIPPED: Pillow is not installed")
    folder = tmp_path_factory.mktemp("photos")
    names = []
    for i in range(30):
        (folder / f"d{i % 4}").mkdir(exist_ok=True)
        path = folder / f"d{i % 4}" / f"im {i}.png"
        image.fromarray(np.full((40 + i, 50, 3), 4 * i, np.uint8)).save(path)
        names.append(str(path))
    order = np.random.default_rng(1).permutation(30)
    return [names[i] for i in order], [f"{'dog' if i % 3 else 'cat'}" for i in order]


def brightness(path: str) -> int:
    return 4 * int(path.rsplit(" ", 1)[1].split(".")[0])


def test_arrays_in_memory_are_data(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = arrays
    names = [f"n{i}" for i in range(RECORDS)]
    batches = pelton.from_arrays(image=images, label=labels, name=names).shuffle(seed=1).batch(16)
    seen: list[int] = []
    for batch in batches:
        assert (batch["image"] == images[batch.ids]).all() and (batch["label"] == labels[batch.ids]).all()
        assert batch["name"].texts() == [names[i] for i in batch.ids]
        seen += batch.ids.tolist()
    assert sorted(seen) == list(range(RECORDS)) and seen != sorted(seen)
    with pytest.raises(pelton.ConfigurationError, match="`label` has 3 rows"):
        pelton.from_arrays(image=images, label=[1, 2, 3])
    with pytest.raises(pelton.ConfigurationError, match="from_arrays"):
        pelton.load(images)  # type: ignore[arg-type]


def test_a_data_frame_is_data() -> None:
    pandas = pytest.importorskip("pandas", reason="SKIPPED: pandas is not installed")
    frame = pandas.DataFrame({"x": [1.5, 2.5, 3.5], "word": ["a", "bb", ""], "label": [2, 1, 0]})
    (batch,) = pelton.from_arrays(frame).batch(3)
    assert batch["x"].tolist() == [1.5, 2.5, 3.5] and batch["word"].texts() == ["a", "bb", ""] and batch["label"].tolist() == [2, 1, 0]


def test_a_sequence_is_data_with_augmentation_functions_and_exact_resume(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = arrays
    items = [(image, int(label)) for image, label in zip(images, labels)]
    plain = pelton.from_sequence(items).shuffle(seed=1)
    for batch in plain.batch(16):
        assert (batch["image"] == images[batch.ids]).all() and (batch["label"] == labels[batch.ids]).all()

    def doubled(sample: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
        return {"image": sample["image"], "twice": 2 * sample["label"], "drawn": rng.random()}

    def made() -> Any:
        return plain.random_resized_crop(8).flip(p=0.5).map(doubled).batch(16)

    batches = made()
    expected = list(batches)
    assert all((batch["twice"] == 2 * labels[batch.ids]).all() and batch["image"].shape[1:] == (8, 8, 3) for batch in expected)
    assert all((batch["label"] == labels[batch.ids]).all() for batch in expected)
    first = made()
    loop = iter(first)
    next(loop)
    rest = made().threads(1)
    rest.load_state_dict(first.state_dict())
    for batch, known in zip(rest, expected[1:], strict=True):
        assert all((batch[name] == known[name]).all() for name in known)
    with pytest.raises(pelton.StateError):
        pelton.from_sequence(items[:-1]).shuffle(seed=1).batch(16).load_state_dict(first.state_dict())


def test_items_that_are_no_records_are_told(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.raises(pelton.ConfigurationError, match="no items"):
        pelton.from_sequence([])
    with pytest.raises(pelton.ConfigurationError, match="from_generator"):
        pelton.from_sequence(iter([1]))  # type: ignore[arg-type]
    with pytest.raises(pelton.ConfigurationError, match="from_arrays"):
        pelton.from_sequence({"x": [1, 2]})  # type: ignore[arg-type]
    with pytest.raises(pelton.ConfigurationError, match="iterator itself"):
        pelton.from_generator(iter([1]))
    with pytest.raises(pelton.BadRecordError, match="None") as error:
        list(pelton.from_sequence([{"x": 1}, {"x": None}, {"x": 3}]).batch(2))
    assert isinstance(error.value.__cause__, TypeError) and error.value.record == 1
    with pytest.raises(pelton.ConfigurationError, match="weights"):
        list(pelton.from_sequence([1, 2]).sample(balanced=True).batch(2))
    with pytest.raises(TypeError, match="names"):
        pelton.from_sequence([(1, 2, 3)]).records  # noqa: B018


def test_a_generator_is_drawn_once() -> None:
    drawn: list[int] = []

    def make() -> Iterator[dict[str, Any]]:
        for i in range(100):
            drawn.append(i)
            yield {"x": np.arange(i % 5), "label": i}

    batches = pelton.from_generator(make, limit=40).shuffle(seed=0).batch(8, collate={"x": "pad"}, pad={"x": -100}, multiple=4)
    for _ in range(2):
        seen = []
        for batch in batches:
            assert batch["x"].shape[1] % 4 == 0
            for row, length, label in zip(batch["x"], batch["x_lengths"], batch["label"]):
                assert length == label % 5 and row.tolist() == [*range(length)] + [-100] * (len(row) - length)
            seen += batch["label"].tolist()
        assert sorted(seen) == list(range(40))
    assert len(drawn) == 41
    assert [batch["data"].tolist() for batch in pelton.from_generator([1, 2, 3]).batch(2)] == [[1, 2], [3]]


def test_files_by_name_have_the_labels_that_are_given(photos: tuple[list[str], list[str]]) -> None:
    paths, labels = photos
    pipeline = pelton.load(paths, labels=labels).shuffle(seed=0).decode("png").resize((32, 32)).include("path", "ids", "epoch")
    assert pipeline.classes == ["cat", "dog"]
    seen: list[int] = []
    for batch in pipeline.batch(8):
        seen += batch["ids"].tolist()
        assert (batch["epoch"] == 0).all()
        for k, i in enumerate(batch.ids):
            assert batch["path"].text(k) == paths[i] and batch["image"][k, 0, 0, 0] == brightness(paths[i])
            assert pipeline.classes[batch["label"][k]] == labels[i]
    assert sorted(seen) == list(range(30))
    numbers = pelton.load(paths, labels=[5, 9, 7] * 10).decode("png").resize(8).crop(8).batch(30)
    assert next(iter(numbers))["label"].tolist() == [5, 9, 7] * 10
    assert pelton.load(str(Path(paths[0]).parent.parent / "*" / "*.png")).records == 30
    with pytest.raises(pelton.DataError, match="3 entries for 30 files"):
        len(pelton.load(paths, labels=labels[:3]))
    with pytest.raises(FileNotFoundError, match="gone.png"):
        len(pelton.load([*paths, "gone.png"]))


def test_a_table_names_files_and_its_columns_are_fields(photos: tuple[list[str], list[str]], tmp_path: Path) -> None:
    paths, labels = photos
    with open(tmp_path / "table.csv", "w", newline="") as text:
        rows = csv.writer(text)
        rows.writerow(["file", "class", "age", "caption"])
        rows.writerows((path, label, k, f"{label}, number {k}") for k, (path, label) in enumerate(zip(paths, labels)))
    table = pelton.from_manifest(tmp_path / "table.csv", files="file", label="class").shuffle(seed=4).decode("image").resize((8, 8))
    for batch in table.batch(10):
        assert (batch["age"] == batch.ids).all() and batch["caption"].text(0) == f"{labels[batch.ids[0]]}, number {batch.ids[0]}"
        assert batch["image"][:, 0, 0, 0].tolist() == [brightness(paths[i]) for i in batch.ids]
    older = table.map(lambda sample: {**sample, "age": sample["age"] + 100}).batch(10)
    batch = next(iter(older))
    assert (batch["age"] == batch.ids + 100).all()
    with pytest.raises(pelton.ConfigurationError, match="no column `name`; it has file, class"):
        pelton.from_manifest(tmp_path / "table.csv", files="name")
    # As data frames are saved, with row numbers.
    (tmp_path / "saved.csv").write_text(",file,age\n" + "".join(f"{k},{path},7\n" for k, path in enumerate(paths)))
    (tmp_path / "list.json").write_text(json.dumps([{"file": path, "age": 7} for path in paths], indent=1))
    for name in ("saved.csv", "list.json"):
        batch = next(iter(pelton.from_manifest(tmp_path / name, files="file").decode("image").resize((8, 8)).batch(30)))
        assert sorted(batch) == ["age", "image"] and batch["age"].tolist() == [7] * 30
    for name in ("latin.csv", "latin.jsonl"):
        (tmp_path / name).write_bytes(b'{"file": "caf\xe9"}\n')
        with pytest.raises(pelton.ConfigurationError, match="not UTF-8"):
            pelton.from_manifest(tmp_path / name, files="file")
    with pytest.raises(pelton.DataError, match=r"picture.*load pictures without other files"):
        len(pelton.load([*paths, tmp_path / "saved.csv"]))


def test_a_table_may_name_files_of_any_kind(tmp_path: Path) -> None:
    for k in range(3):
        (tmp_path / f"{k}.txt").write_text(f"line one of {k}\nline two\n")
        (tmp_path / f"{k}.wav").write_bytes(b"RIFF" + bytes([k] * k))
    (tmp_path / "table.csv").write_text("text,sound,code,weight,class\n0.txt,0.wav,007,1.5,a\n1.txt,1.wav,12,,b\n2.txt,2.wav,13,2,a\n")
    texts = pelton.from_manifest(tmp_path / "table.csv", files="text", label="class")
    batch = next(iter(texts.batch(3)))
    assert batch["text"].texts() == [f"line one of {k}\nline two\n" for k in range(3)] and batch["label"].tolist() == [0, 1, 0]
    assert batch["code"].texts() == ["007", "12", "13"] and np.isnan(batch["weight"][1]) and batch["weight"][2] == 2
    assert next(iter(texts.decode("words").batch(3)))["tokens"].shape[0] == 3
    sounds = pelton.from_manifest(tmp_path / "table.csv", files="sound").map(lambda sample: {"length": len(sample["bytes"])})
    assert next(iter(sounds.batch(3)))["length"].tolist() == [4, 5, 6]
    assert pelton.load([tmp_path / "1.txt", tmp_path / "table.csv"], format="folder").records == 2


def test_columns_do_not_replace_fields(photos: tuple[list[str], list[str]]) -> None:
    pictures = pelton.from_manifest({"file": photos[0], "image": range(30)}, files="file").decode("png").resize((8, 8))
    for use in (lambda: next(iter(pictures.batch(4))), lambda: pictures.dataset()[0]):
        with pytest.raises(pelton.ConfigurationError, match="rename the column"):
            use()
    with pytest.raises(pelton.BadRecordError, match="rename the column"):
        next(iter(pictures.map(dict).batch(4)))
    with pytest.raises(pelton.ConfigurationError, match="another named `label`"):
        pelton.from_manifest({"file": photos[0], "class": photos[1], "label": photos[1]}, files="file", label="class")


def test_a_folder_may_have_pictures_of_other_kinds(tmp_path: Path) -> None:
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
    for name in ["a/0.ppm", "a/1.PPM", "b/2.ppm"]:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"P6\n3 2\n255\n" + pixels.tobytes())
    (batch,) = pelton.load(tmp_path).decode("image").resize((2, 3)).batch(4)
    np.testing.assert_array_equal(batch["image"], [pixels] * 3)
    assert batch["label"].tolist() == [0, 0, 1]


def test_pictures_without_a_size_keep_their_shape(photos: tuple[list[str], list[str]]) -> None:
    paths, _ = photos
    batch = next(iter(pelton.load(paths).decode("png").batch(4)))
    assert [row.shape for row in batch["image"]] == [(40 + brightness(path) // 4, 50, 3) for path in paths[:4]]
    sample = next(iter(pelton.load(paths).decode("png")))
    assert sample["image"].shape == batch["image"][0].shape
    again = pickle.loads(pickle.dumps(batch))
    assert again.ids.tolist() == batch.ids.tolist() and again["image"][3].shape == batch["image"][3].shape


def test_other_pictures_of_a_sample_are_augmented_alike(arrays: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    images, _ = arrays
    masks = np.ascontiguousarray(images[..., 0])
    np.savez(tmp_path / "pairs.npz", left=images, right=images, mask=masks)
    items = [{"image": image, "image_right": image, "mask": mask, "image_name": "x"} for image, mask in zip(images, masks)]
    for data in [
        pelton.from_arrays(image=images, image_right=images, mask=masks),
        pelton.from_sequence(items),
        pelton.load(tmp_path / "pairs.npz").decode("image=left,image_right=right,mask=mask"),
    ]:
        for batch in data.random_crop(7).flip().shuffle(seed=1).batch(16):
            np.testing.assert_array_equal(batch["image"], batch["image_right"])
            np.testing.assert_array_equal(batch["image"][..., :1], batch["mask"])
        pictures = next(iter(data.normalise().batch(16)))
        assert pictures["image_right"].dtype == np.float32 and pictures["mask"].dtype == np.uint8
    for data in [pelton.from_arrays(image=images, right=images), pelton.from_sequence([{"image": images[0], "right": images[0]}])]:
        with pytest.raises(pelton.ConfigurationError, match="call it image_right, or mask_right"):
            next(iter(data.flip().batch(2)))


def test_boxes_move_with_their_picture_by_every_way(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 255, (12, 20, 30, 3), dtype=np.uint8)
    boxes = [[[n, 2, n + 9.5, 12] for n in range(i % 3)] for i in range(12)]
    names = [f"{i}.ppm" for i in range(12)]
    with tarfile.open(tmp_path / "boxes.tar", "w") as tar:
        for i, name in enumerate(names):
            picture = b"P6\n30 20\n255\n" + images[i].tobytes()
            (tmp_path / name).write_bytes(picture)
            for part, data in ((f"{i:02}.ppm", picture), (f"{i:02}.json", json.dumps({"boxes": boxes[i]}).encode())):
                member = tarfile.TarInfo(part)
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    rows = [{"file": name, "boxes": each} for name, each in zip(names, boxes)]
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arrays = [np.array(each, np.float32).reshape(-1, 4) for each in boxes]

    def found(pipeline: Any, **batch: Any) -> dict[int, np.ndarray]:
        batches = pipeline.augment("rrc:16,flip").shuffle(seed=3).batch(4, **batch)
        return {int(i): row for batch in batches for i, row in zip(batch.ids, batch["boxes"])}

    expected = found(pelton.from_arrays(image=images, boxes=arrays))
    assert all(len(expected[i]) == len(boxes[i]) for i in range(12)) and any((expected[i] != arrays[i]).any() for i in range(12))
    for pipeline, batch in [
        (pelton.load(tmp_path / "boxes.tar").decode("image=ppm,boxes=json:boxes:f32[,4]"), {}),
        (pelton.from_manifest(tmp_path / "rows.jsonl", files="file").decode("image"), {}),
        (pelton.from_manifest({"file": names, "boxes": boxes}, files="file", folder=tmp_path).decode("image").map(dict, before_augmentation=True), {}),
        (pelton.from_sequence([{"image": a, "boxes": b} for a, b in zip(images, arrays)]), {"collate": {"boxes": "ragged"}}),
    ]:
        made = found(pipeline, **batch)
        for i in range(12):
            np.testing.assert_allclose(made[i], expected[i], atol=1e-5)
    data = pelton.from_manifest({"file": names, "boxes": boxes}, files="file", folder=tmp_path).decode("image")
    np.testing.assert_array_equal(data.resize((40, 60)).dataset()[2]["boxes"], 2 * arrays[2])
    assert next(iter(data.resize((40, 60)).map(dict).batch(3)))["boxes"][2].tolist() == (2 * arrays[2]).tolist()
    # Unchanged if nothing moves.
    np.testing.assert_array_equal(next(iter(data.batch(4, collate="ragged")))["boxes"][2], arrays[2])
    with pytest.raises(pelton.DataError, match="its `bbox` has 4 and would stay as it is while its picture is cropped"):
        next(iter(pelton.from_arrays(image=images, bbox=np.ones((12, 4))).flip().batch(4)))


def test_a_row_of_a_table_may_name_several_files(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    pixels = rng.integers(0, 255, (10, 8, 9, 3), dtype=np.uint8)
    for i, picture in enumerate(pixels):
        (tmp_path / f"{i}.ppm").write_bytes(b"P6\n9 8\n255\n" + picture.tobytes())
        (tmp_path / f"{i}.pgm").write_bytes(b"P5\n9 8\n255\n" + picture[..., 0].tobytes())
    table = {"image": [f"{i}.ppm" for i in range(10)], "mask": [f"{i}.pgm" for i in range(10)], "y": list(range(10)), "weight": [0.5] * 10}
    data = pelton.from_manifest(table, files=["image", "mask"], label="y", folder=tmp_path).decode("image=image,mask=mask:image")
    for batch in data.random_crop(6).flip().shuffle(seed=1).batch(5):
        np.testing.assert_array_equal(batch["image"][..., :1], batch["mask"])
        assert batch["label"].tolist() == batch.ids.tolist() and batch["weight"].tolist() == [0.5] * 5
    with pytest.raises(pelton.ConfigurationError, match="column `mask` names .*gone.pgm in row 2, which is no file"):
        pelton.from_manifest({"image": table["image"][:2], "mask": ["0.pgm", "gone.pgm"]}, files=["image", "mask"], folder=tmp_path)
    with pytest.raises(pelton.ConfigurationError, match="names no column"):
        pelton.from_manifest(table, files=[])
    with pytest.raises(pelton.ConfigurationError, match="labels next to several files are numbers"):
        pelton.from_manifest({**table, "y": ["a"] * 10}, files=["image", "mask"], label="y", folder=tmp_path)
    (tmp_path / "3.pgm").unlink()
    with pytest.raises(pelton.DataError, match="item 3.*No such file.*3.pgm"):
        next(iter(data.sample(ids=[3]).batch(1)))


def test_lists_of_lists_in_parquet(tmp_path: Path) -> None:
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rng = np.random.default_rng(1)
    rows = [rng.integers(0, 99, (rng.integers(0, 4), 4)).tolist() for _ in range(300)]
    numbers = pa.float32()
    for kind in [pa.list_(pa.list_(numbers)), pa.large_list(pa.large_list(numbers)), pa.list_(pa.list_(numbers, 4))]:
        objects = [{"boxes": row, "labels": [len(row)]} for row in rows]
        table = pa.table({"i": np.arange(300), "objects": pa.array(objects, pa.struct([("boxes", kind), ("labels", pa.list_(pa.int64()))]))})
        parquet.write_table(table, tmp_path / "t.parquet", row_group_size=70, data_page_size=500)
        seen = []
        for batch in pelton.load(tmp_path / "t.parquet").shuffle(seed=2).batch(16):
            for i, boxes, labels in zip(batch["i"], batch["objects.boxes"], batch["objects.labels"]):
                assert boxes.tolist() == rows[i] and labels.tolist() == [len(rows[i])] and boxes.dtype == np.float32
                seen.append(i)
        assert sorted(seen) == list(range(300))
    wrong = pa.table({"i": np.arange(4), "x": pa.array([[[1.0], [2.0]], [[1.0], [2.0, 3.0]], None, [[None], [1.0]]])})
    parquet.write_table(wrong, tmp_path / "wrong.parquet")
    with pytest.raises(pelton.DataError, match="column x holds a list of lists that differ in length"):
        next(iter(pelton.load(tmp_path / "wrong.parquet").sample(ids=[0, 1]).batch(2)))
    for i in (2, 3):
        with pytest.raises(pelton.DataError, match=r"column x holds no value \(null\)"):
            next(iter(pelton.load(tmp_path / "wrong.parquet").sample(ids=[i]).batch(2)))
    feather = pytest.importorskip("pyarrow.feather")
    for compression in ("uncompressed", "lz4", "zstd"):
        feather.write_feather(table, tmp_path / "t.arrow", compression=compression, chunksize=70)
        for batch in pelton.load(tmp_path / "t.arrow").shuffle(seed=2).batch(16):
            assert all(boxes.tolist() == rows[i] for i, boxes in zip(batch["i"], batch["objects.boxes"]))
    with pytest.warns(UserWarning, match="the columns x hold nothing that a record can hold and are left out"):
        table = pa.table({"i": np.arange(4), "x": pa.array([[b"1"]] * 4)})
        parquet.write_table(table, tmp_path / "bytes.parquet")
        (batch,) = pelton.load(tmp_path / "bytes.parquet").batch(4)
    assert list(batch) == ["i"]


def test_nested_values_are_the_text_that_json_lines_have(tmp_path: Path) -> None:
    pa, parquet, feather = map(pytest.importorskip, ("pyarrow", "pyarrow.parquet", "pyarrow.feather"))
    rng = np.random.default_rng(0)
    words = ["", "a", "\"quoted\" \\ \n", "Grüße 🎉", "\x01"]

    def chat() -> Any:
        turns = [{"role": "user", "content": words[rng.integers(5)], "score": float(rng.normal())} for _ in range(rng.integers(4))]
        turns += [{"role": None, "content": "x", "score": None}] * int(rng.integers(2))
        return turns if rng.random() < 0.9 else None

    rows = [{"i": i, "chat": chat(), "tags": [words[k] for k in rng.integers(0, 5, rng.integers(3))]} for i in range(500)]
    for row in rows:
        row["of"] = {"deep": [[{"x": [1, 2]}], []]}
    table = pa.Table.from_pylist(rows)
    parquet.write_table(table, tmp_path / "t.parquet", row_group_size=90)
    parquet.write_table(table.cast(pa.schema([
        table.schema.field("i"), ("chat", pa.large_list(table.schema.field("chat").type.value_type)), ("tags", pa.large_list(pa.large_string())),
        table.schema.field("of"),
    ])), tmp_path / "large.parquet")
    feather.write_feather(table, tmp_path / "plain.arrow", compression="uncompressed", chunksize=64)
    feather.write_feather(table, tmp_path / "packed.arrow", compression="lz4", chunksize=64)
    with open(tmp_path / "t.jsonl", "w") as file:
        for row in rows:
            file.write(json.dumps({"i": row["i"], "chat": row["chat"], "tags": row["tags"], "of.deep": row["of"]["deep"]}) + "\n")
    for name in ("t.parquet", "large.parquet", "plain.arrow", "packed.arrow", "t.jsonl"):
        seen = []
        for batch in pelton.load(tmp_path / name).shuffle(seed=1).batch(32):
            texts = {field: batch[field].texts() for field in ("chat", "tags", "of.deep")}
            for k, i in enumerate(batch["i"]):
                seen.append(i)
                assert json.loads(texts["chat"][k]) == rows[i]["chat"], name
                assert json.loads(texts["tags"][k]) == rows[i]["tags"]
                assert json.loads(texts["of.deep"][k]) == rows[i]["of"]["deep"]
        assert sorted(seen) == list(range(500)), name
    (sample, *_) = pelton.load(tmp_path / "t.parquet").map(lambda sample: {"turns": len(json.loads(sample["chat"]) or [])})
    assert sample["turns"] == len(rows[0]["chat"] or [])
    others = {"a": pa.array([{"k": 1}, {}, None], pa.map_(pa.string(), pa.int64())), "b": pa.array([[1, None], [], [2**64 - 1]], pa.list_(pa.uint64()))}
    parquet.write_table(pa.table(others), tmp_path / "maps.parquet")
    (batch,) = pelton.load(tmp_path / "maps.parquet").batch(3)
    assert batch["a"].texts() == ['{"k":1}', "{}", "null"] and batch["b"].texts() == ["[1,null]", "[]", "[18446744073709551615]"]


def test_rows_of_a_column_have_any_lengths() -> None:
    (batch,) = pelton.from_arrays(x=[[1, 2], [], [3]], y=[1, 2, 3], z=[[], [], []]).batch(3)
    assert [row.tolist() for row in batch["x"]] == [[1, 2], [], [3]] and batch["x"].values.dtype == np.int64
    assert [row.tolist() for row in batch["z"]] == [[], [], []]
    for wrong in ([[1], "x"], [[[1], [1, 2]]], [[1], [[2]]], [[1], 2], [["a"], ["b", "c"]]):
        with pytest.raises(pelton.ConfigurationError, match="column `x`"):
            pelton.from_arrays(x=wrong)


def test_records_are_chosen(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = arrays
    data = pelton.from_arrays(image=images, label=labels)

    def ids(pipeline: Any) -> list[int]:
        return sorted(i for batch in pipeline.shuffle(seed=3).batch(7) for i in batch.ids.tolist())

    assert ids(data.take(10)) == list(range(10)) and ids(data.skip(50).take(3)) == [50, 51, 52]
    assert ids(data.filter(lambda sample: sample["label"] == 3)) == np.flatnonzero(labels == 3).tolist()
    train, valid = data.split(0.75)
    assert sorted(ids(train) + ids(valid)) == list(range(RECORDS)) and 30 < len(ids(train)) < 55
    assert ids(data.split(0.75, seed=1)[0]) != ids(train)
    # With more records, the old ones keep their side of the split.
    more = pelton.from_arrays(image=np.concatenate([images, images]), label=np.tile(labels, 2))
    assert [i for i in ids(more.split(0.75)[0]) if i < RECORDS] == ids(train)
    with pytest.raises(pelton.ConfigurationError, match="leaves none"):
        ids(data.skip(RECORDS))


def test_columns_of_other_kinds() -> None:
    big_endian = np.arange(4, dtype=">i4")
    assert next(iter(pelton.from_arrays(x=big_endian).batch(4)))["x"].dtype == np.dtype("i4")
    # Items without a label get none, even though functions receive the fields.
    for data in [pelton.from_arrays(x=[1, 2]), pelton.from_sequence([{"x": 1}, {"x": 2}])]:
        assert list(next(iter(data.map(lambda sample: {**sample, "y": "label" in sample}).batch(2)))) == ["x", "y"]
    halves = pelton.from_sequence([1.0, 2.0]), pelton.from_sequence([3.0])
    assert [batch["data"].tolist() for batch in pelton.concat(list(halves)).batch(3)] == [[1, 2, 3]]


@pytest.mark.parametrize(
    "call",
    [
        lambda data: data.shuffle(seed=0).take(3),
        lambda data: data.sample(ids=[3, 7]).take(3),
        lambda data: data.batch(4).skip(1),
        lambda data: data.map(dict).filter(bool),
        lambda data: data.tuples("label").filter(bool),
        lambda data: data.batch(4).map(dict),
        lambda data: data.map(dict).decode("jpg"),
        lambda data: data.map(dict).resize(8),
        lambda data: data.tuples("label").dataset(),
        lambda data: data.map_batches(dict).dataset(),
        lambda data: data.include("step").dataset(),
        lambda data: data.echo("read:2").dataset(),
        lambda data: pelton.concat(data.shuffle(seed=0), data),
    ],
)
def test_calls_in_an_order_that_means_something_else_are_refused(call: Any, arrays: tuple[np.ndarray, np.ndarray]) -> None:
    with pytest.raises(pelton.ConfigurationError, match="before|leave|by index"):
        call(pelton.from_arrays(image=arrays[0], label=arrays[1]))


def test_a_loader_in_order_over_a_shuffled_pipeline_is_told() -> None:
    dataset = pelton.from_sequence(range(20)).shuffle(seed=0).dataset()
    with pytest.warns(UserWarning, match="shuffle=True"):
        dataset.__getitems__(range(8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset.__getitems__([3, 1, 2, 0, 5, 4, 6, 7])
        pelton.from_sequence(range(20)).dataset().__getitems__(range(8))


def test_samples_by_index_have_what_is_included(photos: tuple[list[str], list[str]]) -> None:
    dataset = pelton.load(photos[0]).decode("png").resize((8, 8)).include("ids", "path", "epoch").dataset(epoch=3)
    for sample in (dataset[4], dataset.__getitems__([4])[0]):
        assert sample["ids"] == 4 and bytes(sample["path"]).decode() == photos[0][4] and sample["epoch"] == 3


def test_different_pipelines_are_one(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = arrays
    first = pelton.from_arrays(image=images, label=labels).resize((8, 8))
    second = pelton.from_sequence([{"image": image[:8, :8], "label": 100} for image in images[:20]])
    joined = pelton.concat(first, second).shuffle(seed=1)
    seen: list[int] = []
    for batch in joined.batch(16):
        assert ((batch["label"] == 100) == (batch.ids >= RECORDS)).all()
        seen += batch.ids.tolist()
    assert sorted(seen) == list(range(RECORDS + 20))
    mixed = np.concatenate([batch.ids for batch in pelton.mix([first, second], [0.5, 0.5]).shuffle(seed=1).batch(10)])
    assert abs((mixed < RECORDS).sum() - (mixed >= RECORDS).sum()) <= 1
    with pytest.raises(pelton.ConfigurationError, match="sample by sample"):
        pelton.concat(first.batch(4), second)


def test_a_function_collates(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = arrays
    data = pelton.from_arrays(image=images, label=labels)
    batch = next(iter(data.batch(8, collate=lambda samples: {"n": len(samples), "first": samples[0]["image"]})))
    assert batch["n"] == 8 and (batch["first"] == images[0]).all() and batch.ids.tolist() == list(range(8))
    assert next(iter(data.batch(8, collate=len))) == 8


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (lambda data: data.batch(4.7), "`examples` is 4.7"),
        (lambda data: data.batch("4"), "`examples` is '4'"),
        (lambda data: data.batch(True), "`examples` is True"),
        (lambda data: data.threads(0), "`threads` is 0"),
        (lambda data: data.shuffle(10_000), "seed=10000"),
        (lambda data: data.shuffle(seed=1.5), "`seed` is 1.5"),
        (lambda data: data.normalise(123, 1), "`mean` is 123"),
        (lambda data: data.normalize(0.5), "both"),
        (lambda data: data.flip(p=2), "`p` is 2"),
        (lambda data: data.resize((1, 2, 3)), "height, width"),
        (lambda data: data.random_resized_crop(8, ratio=(-1, 1)), "`ratio`"),
        (lambda data: data.crop((8, 9, 10)), "one side, or"),
        (lambda data: data.split(1.0), "between 0 and 1"),
        (lambda data: data.take(0), "`records` is 0"),
        (lambda data: data.include("key"), "ids, epoch, step, path"),
        (lambda data: data.tuples(), "name the fields"),
        (lambda data: list(data.batch(4).tuples("nix")), "batches have"),
        (lambda data: list(data.batch(4, collate="padded")), "auto, stack, pad or ragged"),
        (lambda data: list(data.batch(4, collate={"nix": "pad"})), "no such field"),
        (lambda data: data.batch(4, collate=len, multiple=8), "leave `pad`"),
        (lambda data: pelton.mix([data], [1]), "at least two"),
        (lambda data: pelton.load("ftp2://x/y.csv"), "fsspec"),
        (lambda data: pelton.load("file://host/y.csv"), "file:///PATH"),
    ],
)
def test_wrong_arguments_are_refused_at_the_call(
    arrays: tuple[np.ndarray, np.ndarray], wrong: Callable[[Any], Any], told: str
) -> None:
    with pytest.raises((pelton.ConfigurationError, ImportError), match=told):
        wrong(pelton.from_arrays(image=arrays[0], label=arrays[1]))


def test_file_addresses_are_files(tmp_path: Path) -> None:
    (tmp_path / "a b.txt").write_text("one\ntwo\n")
    assert pelton.load(f"file://{tmp_path}/a%20b.txt").records == 2


def test_secrets_of_addresses_are_not_shown() -> None:
    class Absent(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, *arguments: object) -> None:
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Absent) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        secret = f"joe:hunter2@127.0.0.1:{server.server_port}/a.csv?sig=topsecret"
        said = []
        for load in (lambda: pelton.load(f"http://{secret}").records, lambda: pelton.load(f"ftp2://{secret}")):
            with pytest.raises((pelton.DataError, pelton.ConfigurationError, ImportError)) as raised:
                load()
            said.append(repr(raised.value))
        assert "404" in said[0], said
        said.append(repr(pelton.load("a.csv", label_file=f"http://{secret}")))
        server.shutdown()
    assert not any(part in text for part in ("joe", "hunter2", "topsecret") for text in said), said


def test_other_file_systems_are_copied_once(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="SKIPPED: fsspec is not installed")
    with fsspec.open("memory://folder/lines.txt", "w") as text:
        text.write("one\ntwo\nthree\n")
    with pytest.warns(UserWarning, match="copied"):
        pipeline = pelton.load("memory://folder/lines.txt", cache_dir=tmp_path)
    assert pipeline.records == 3


def test_tensors_are_as_nets_take_them(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    torch = pytest.importorskip("torch", reason="SKIPPED: PyTorch is not installed")
    images, labels = arrays
    data = pelton.from_arrays(image=images, label=labels)
    items = pelton.from_sequence([(image, int(label)) for image, label in zip(images, labels)])
    for pipeline in (data, items, items.map(lambda sample: sample), items.flip(0.0)):
        batch = next(iter(pipeline.batch(8).torch()))
        assert batch["image"].shape == (8, 3, 16, 12) and batch["image"].is_contiguous(memory_format=torch.channels_last)
        assert batch["label"].dtype == torch.int64
        assert (batch["image"].permute(0, 2, 3, 1).numpy() == images[:8]).all()
        assert next(iter(pipeline.batch(8).torch().torch()))["image"].shape == (8, 3, 16, 12)
    assert next(iter(items.flip().planar().batch(8).torch()))["image"].shape == (8, 3, 16, 12)
    with pytest.raises(pelton.ConfigurationError, match="planar"):
        next(iter(items.planar().batch(8)))
    assert next(iter(items.batch(8).torch(channels_first=False)))["image"].shape == (8, 16, 12, 3)
    for pictures, classes in items.normalise().batch(8).torch().tuples("image", "label"):
        assert pictures.dtype == torch.float32 and classes.shape == (len(pictures),)
    with pytest.raises(pelton.ConfigurationError, match="before .tuples"):
        next(iter(items.batch(8).tuples("image").torch()))


def test_padding_is_with_the_number_that_is_given() -> None:
    items = pelton.from_sequence([{"tokens": np.arange(1 + i % 3), "labels": np.arange(1 + i % 2)} for i in range(8)])
    batch = next(iter(items.batch(8, collate={"tokens": "ragged"}, pad={"labels": -100})))
    assert batch["labels"].tolist()[:2] == [[0, -100], [0, 1]] and batch["labels_lengths"].tolist()[:2] == [1, 2]
    lengths = [1 + i % 3 for i in range(8)]
    packed = items.map(lambda sample: {"tokens": sample["tokens"]}).buckets("pack:5", length=lengths)
    for batch in packed.batch(4, collate="pad", pad=-1):
        assert (batch["tokens"] == -1).sum() == batch["tokens"].size - batch["tokens_lengths"].sum()
    with pytest.raises(pelton.ConfigurationError, match="packed"):
        list(packed.batch(4, collate="pad", multiple=8))


def test_own_tokens_in_buckets_are_padded(tmp_path: Path) -> None:
    """A tokenizer of the program, whose lengths it also states."""
    lines = [" ".join("ab"[: 1 + i % 2] * (1 + i % 9) for _ in range(1 + i % 13)) for i in range(200)]
    (tmp_path / "lines.txt").write_text("\n".join(lines) + "\n")

    def tokens(text: bytes) -> np.ndarray:
        return np.frombuffer(text, np.uint8).astype(np.int64) + 1

    data = pelton.load(tmp_path / "lines.txt").shuffle(seed=0).map(lambda sample: {"tokens": tokens(sample["text"])})
    batches = data.buckets("auto", length=lambda sample: len(sample["text"])).batch(16)
    seen = 0
    for batch in batches:
        for row, length, i in zip(batch["tokens"], batch["tokens_lengths"], batch.ids):
            assert row[:length].tolist() == tokens(lines[i].encode()).tolist() and not row[length:].any()
            seen += 1
    assert seen == 200


def test_what_is_chosen_is_chosen_by_index_too(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    images, labels = arrays
    data = pelton.from_arrays(image=images, label=labels)
    threes = data.filter(lambda sample: sample["label"] == 3)
    assert threes.records == len(threes.dataset()) == (labels == 3).sum()
    assert all(sample["label"] == 3 for sample in (threes.dataset()[i] for i in range(threes.records)))
    assert threes.peek(0)["label"] == labels[0]
    for other in (data.sample(ids=[1, 2]), data.sample(weights=np.ones(RECORDS)), data.keep(lengths=(1, None))):
        with pytest.raises(pelton.ConfigurationError, match="by index"):
            other.dataset()


def test_a_state_is_of_its_arrays_and_choice(arrays: tuple[np.ndarray, np.ndarray]) -> None:
    _, labels = arrays
    rows = np.arange(RECORDS, dtype=np.float32)

    def made(rows: np.ndarray, label: int) -> Any:
        return pelton.from_arrays(x=rows, label=labels).shuffle(seed=0).filter(lambda sample: sample["label"] == label).batch(4)

    batches = made(rows, 3)
    next(iter(batches))
    made(rows, 3).load_state_dict(batches.state_dict())
    for other in (made(rows + 1, 3), made(rows, 4)):
        with pytest.raises(pelton.StateError):
            other.load_state_dict(batches.state_dict())
