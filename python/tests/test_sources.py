"""The same data gives the same batch, whatever it is stored in; fields keep their names, types and shapes."""

from __future__ import annotations

import io
import itertools
import json
import re
import struct
import tarfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pelton

Image = pytest.importorskip("PIL.Image")

RECORDS, HEIGHT, WIDTH = 6, 9, 11
MODES = ["1", "L", "LA", "P", "RGB", "RGBA", "CMYK", "I;16", "I", "F"]
# The modes that PNG stores.
STORED = ["1", "L", "LA", "P", "RGB", "RGBA", "I;16"]


def picture(mode: str, seed: int) -> tuple[Any, np.ndarray, np.ndarray]:
    """A picture of PIL, and what it is as a picture and as numbers."""
    rng = np.random.default_rng(seed)
    grey, colour, alpha = (rng.integers(0, 256, (HEIGHT, WIDTH, n), np.uint8) for n in (1, 3, 1))
    if mode == "1":
        return Image.fromarray(grey[..., 0] > 99), (255 * (grey > 99)).astype(np.uint8), (grey > 99).astype(np.uint8)
    if mode == "P":
        made = Image.fromarray(grey[..., 0], "P")
        palette = rng.integers(0, 256, (256, 3), np.uint8)
        made.putpalette(palette.tobytes())
        return made, palette[grey[..., 0]], grey
    if mode in ("L", "LA"):
        made = Image.fromarray(grey[..., 0])
        if mode == "LA":
            made.putalpha(Image.fromarray(alpha[..., 0]))
        return made, grey, grey
    if mode in ("RGB", "RGBA"):
        return Image.fromarray(np.concatenate([colour, alpha], 2) if mode == "RGBA" else colour), colour, colour
    if mode == "CMYK":
        made = Image.fromarray(colour).convert("CMYK")
        return made, np.asarray(made.convert("RGB")), np.asarray(made.convert("RGB"))
    deep = (grey.astype(np.float64) * rng.uniform(0, 257, grey.shape)).astype({"I;16": np.uint16, "I": np.int32, "F": np.float32}[mode])
    return Image.fromarray(deep[..., 0]), deep, deep


def png(made: Any) -> bytes:
    out = io.BytesIO()
    made.save(out, "PNG")
    return out.getvalue()


def sources(folder: Path, columns: dict[str, list[tuple[Any, np.ndarray, np.ndarray]]], are_stored: bool) -> dict[str, Any]:
    """Pipelines over the same fields in all kinds of sources."""
    arrays = {name: np.stack([made[1 if name.startswith("image") else 2] for made in column]) for name, column in columns.items()}
    items = [{name: columns[name][i][0] for name in columns} for i in range(RECORDS)]
    np.savez(folder / "a.npz", **arrays)
    made = {
        "sequence": pelton.from_sequence(items),
        "generator": pelton.from_generator(lambda: iter(items)),
        "arrays": pelton.from_arrays(**arrays),
        "npz": pelton.load(folder / "a.npz"),
    }
    if not are_stored:
        return made
    with tarfile.open(folder / "a.tar", "w") as tar:
        for i, item in enumerate(items):
            for name, value in item.items():
                member, content = tarfile.TarInfo(f"{i:02}.{name}.png"), png(value)
                member.size = len(content)
                tar.addfile(member, io.BytesIO(content))
    made["tar"] = pelton.load(folder / "a.tar").decode(",".join(f"{name}={name}.png" for name in columns))
    for name in columns:
        (folder / name).mkdir()
        for i, item in enumerate(items):
            (folder / name / f"{i:02}.png").write_bytes(png(item[name]))
    files = {name: [str(folder / name / f"{i:02}.png") for i in range(RECORDS)] for name in columns}
    table = pelton.from_manifest(files, files=list(columns))
    made["manifest"] = table.decode(",".join(f"{name}={name}:image" for name in columns))
    try:
        from pyarrow import parquet, table as arrow

        parquet.write_table(arrow({name: [png(item[name]) for item in items] for name in columns}), folder / "a.parquet")
        made["parquet"] = pelton.load(folder / "a.parquet").decode(",".join(f"{name}={name}:image" for name in columns))
    except ImportError:
        pass
    if list(columns) == ["image"]:
        made["files"] = pelton.load(files["image"]).decode("image")
    return made


def first(pipeline: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return next(iter(pipeline))


@pytest.mark.parametrize("name", ["image", "mask", "depth"])
@pytest.mark.parametrize("mode", MODES)
def test_one_rule_types_the_pictures_of_all_sources(tmp_path: Path, mode: str, name: str) -> None:
    column = [picture(mode, i) for i in range(RECORDS)]
    expected = np.stack([made[1 if name == "image" else 2] for made in column])
    for source, pipeline in sources(tmp_path, {name: column}, mode in STORED).items():
        found = first(pipeline.batch(RECORDS, collate="stack"))[name]
        assert found.dtype == expected.dtype, source
        np.testing.assert_array_equal(found, expected, source)


@pytest.mark.parametrize("mode", MODES)
def test_augmentation_treats_all_sources_alike(tmp_path: Path, mode: str) -> None:
    steps = "rrc:7,flip,affine:9:0.1:0.1"
    images = [picture("RGB", i) for i in range(RECORDS)]
    (tmp_path / "with_mask").mkdir()
    # A mask keeps its type, and its values are those at the picture's pixels.
    both = sources(tmp_path / "with_mask", {"image": images, "mask": [picture(mode, 50 + i) for i in range(RECORDS)]}, mode in STORED)
    batches = {source: first(pipeline.augment(steps).batch(RECORDS)) for source, pipeline in both.items()}
    dtype = picture(mode, 0)[2].dtype
    for source, batch in batches.items():
        assert batch["image"].dtype == np.uint8 and batch["mask"].dtype == dtype, source
        for name in ("image", "mask"):
            np.testing.assert_array_equal(batch[name], batches["sequence"][name], source)
    if mode in ("I", "F"):
        with pytest.raises((pelton.BadRecordError, pelton.ConfigurationError), match="uint8 or uint16"):
            first(pelton.from_sequence([{"image": picture(mode, 0)[0]}] * 2).augment(steps).batch(2))
        return
    (tmp_path / "alone").mkdir()
    alone = sources(tmp_path / "alone", {"image": [picture(mode, i) for i in range(RECORDS)]}, mode in STORED)
    batches = {source: first(pipeline.augment(steps).batch(RECORDS)) for source, pipeline in alone.items()}
    for source, batch in batches.items():
        found, expected = batch["image"], batches["sequence"]["image"]
        # Arrays of one channel are known to have no more.
        is_grey = source in ("arrays", "npz") and picture(mode, 0)[1].shape[2] == 1
        assert found.shape[3] == (1 if is_grey else 3), source
        np.testing.assert_array_equal(np.broadcast_to(found, expected.shape), expected, source)


def test_pictures_of_mixed_modes_become_rgb_in_any_order(tmp_path: Path) -> None:
    column = [picture(mode, i) for i, mode in enumerate(["L", "RGB", "P", "RGBA", "1", "I;16"])]
    expected = [np.broadcast_to(made[1] if made[1].dtype == np.uint8 else np.rint(made[1] / 257).astype(np.uint8), (HEIGHT, WIDTH, 3)) for made in column]
    for i in range(RECORDS):
        (tmp_path / f"{i}.png").write_bytes(png(column[i][0]))
    for order in (range(RECORDS), range(RECORDS - 1, -1, -1)):
        files = pelton.load([str(tmp_path / f"{i}.png") for i in order]).decode("image")
        for pipeline in (files, pelton.from_sequence([{"image": column[i][0]} for i in order])):
            with pytest.warns(UserWarning, match="16 bits are scaled to 8"):
                batch = next(iter(pipeline.resize(HEIGHT, WIDTH).batch(RECORDS)))
            np.testing.assert_array_equal(batch["image"], [expected[i] for i in order])


def test_fields_that_would_be_left_behind_by_augmentation_are_refused() -> None:
    image, depth = np.zeros((4, 8, 8, 3), np.uint8), np.zeros((4, 8, 8), np.float32)
    items = [{"image": image[0], "depth": depth[0]}] * 4
    for pipeline in (pelton.from_arrays(image=image, depth=depth), pelton.from_sequence(items)):
        with pytest.raises((pelton.BadRecordError, pelton.ConfigurationError), match="mask_depth"):
            first(pipeline.crop(4).batch(4))
        assert first(pipeline.batch(4))["depth"].shape == (4, 8, 8)


def test_numbers_of_the_first_item_do_not_decide() -> None:
    batch = first(pelton.from_sequence([{"boxes": []}, {"boxes": [[1, 2, 3, 4]]}]).batch(2, collate="ragged"))
    assert batch["boxes"].values.dtype == np.int64 and [row.shape for row in batch["boxes"]] == [(0, 4), (1, 4)]
    with pytest.raises(pelton.BadRecordError, match="make all of one type"):
        first(pelton.from_sequence([{"x": 1}, {"x": 2.5}]).batch(2))


@pytest.mark.parametrize("boxes", [[[], []], [np.zeros((0, 4))] * 2, [[], [[1, 2, 3, 4], [5, 6, 7, 8]]]])
def test_samples_without_boxes_have_none_of_four_numbers(boxes: list[Any]) -> None:
    image = np.zeros((2, 8, 8, 3), np.uint8)
    items = [{"image": image[i], "boxes": boxes[i]} for i in range(2)]
    for pipeline in (pelton.from_arrays(image=image, boxes=boxes), pelton.from_sequence(items)):
        for made in (pipeline, pipeline.flip()):
            batch = first(made.batch(2, collate={"boxes": "ragged"}))
            assert [np.shape(row) for row in batch["boxes"]] == [(len(row), 4) for row in boxes]


def test_files_without_boxes_have_none_of_four_numbers(tmp_path: Path) -> None:
    for some in (0, 4):
        path = tmp_path / f"{some}.jsonl"
        path.write_text("".join(json.dumps({"x": i, "boxes": [[1, 2, 3, 4]] * (i < some)}) + "\n" for i in range(8)))
        for batch in pelton.load(path).batch(4):
            assert [row.shape for row in batch["boxes"]] == [(int(i < some), 4) for i in batch["x"]]


def test_names_of_lengths_are_kept(tmp_path: Path) -> None:
    lengths = np.arange(10, 14)
    np.savez(tmp_path / "a.npz", x=np.arange(4), audio_lengths=lengths)
    records = [{"x": i, "audio_lengths": int(n)} for i, n in enumerate(lengths)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i, record in enumerate(records):
            for name, value in record.items():
                member = tarfile.TarInfo(f"{i}.{name}")
                member.size = 2 if name == "audio_lengths" else 1
                tar.addfile(member, io.BytesIO(str(value).encode()))
    made = [
        pelton.load(tmp_path / "a.npz"),
        pelton.load(tmp_path / "a.jsonl"),
        pelton.load(tmp_path / "a.tar").decode("x=x:i64,audio_lengths=audio_lengths:i64"),
        pelton.from_sequence(records),
        pelton.from_arrays(x=np.arange(4), audio_lengths=lengths),
    ]
    for pipeline in made:
        assert first(pipeline)["audio_lengths"] == 10
        assert first(pipeline.batch(4))["audio_lengths"].tolist() == lengths.tolist()
        assert pipeline.dataset()[1]["audio_lengths"] == 11
        assert pipeline.dataset().__getitems__([0, 3])[1]["audio_lengths"] == 13
        collated = pipeline.batch(4, collate=lambda samples: [sample["audio_lengths"] for sample in samples])
        assert next(iter(collated)) == lengths.tolist()
    items = pelton.from_sequence([{"audio": np.arange(i + 1), "audio_lengths": 7} for i in range(4)])
    # Without padding, a field with this name is an ordinary one.
    rows = next(iter(items.batch(4, collate=lambda samples: [(len(sample["audio"]), sample["audio_lengths"]) for sample in samples])))
    assert rows == [(1, 7), (2, 7), (3, 7), (4, 7)]
    with pytest.raises(pelton.ConfigurationError, match="field `audio_lengths`"):
        first(items.batch(4, collate={"audio": "pad"}))


def test_channels_are_where_they_can_only_be(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    chw = np.arange(4 * 3 * 8 * 6, dtype=np.uint8).reshape(4, 3, 8, 6)
    np.savez(tmp_path / "a.npz", image=chw)
    chw.tofile(tmp_path / "a.raw")
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        for i in range(4):
            out = io.BytesIO()
            np.save(out, chw[i])
            member = tarfile.TarInfo(f"{i}.npy")
            member.size = out.tell()
            out.seek(0)
            tar.addfile(member, out)
    made = [
        pelton.from_arrays(image=chw),
        pelton.from_sequence([{"image": each} for each in chw]),
        pelton.load(tmp_path / "a.npz"),
        pelton.load(tmp_path / "a.raw", format="raw:image:u8[3,8,6]"),
        pelton.load(tmp_path / "a.tar").decode("image=npy:u8[3,8,6]"),
    ]
    for pipeline in made:
        with pytest.warns(UserWarning, match="channels first"):
            batch = next(iter(pipeline.batch(4).torch()))
        assert torch.equal(batch["image"], torch.from_numpy(chw))
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message=".*channels first")
            assert next(iter(pipeline.batch(4).torch(layout="chw")))["image"].shape == (4, 3, 8, 6)
            assert next(iter(pipeline.batch(4).torch(layout={"image": "hwc"})))["image"].shape == (4, 6, 3, 8)
        with pytest.warns(UserWarning, match="channels first"):
            flipped = next(iter(pipeline.flip(1.0).batch(4).torch()))
        assert torch.equal(flipped["image"], torch.from_numpy(chw).flip(3))
    with pytest.raises(pelton.ConfigurationError, match="8 × 6 × 5, and the channels may be first or last"):
        first(pelton.from_arrays(image=np.zeros((4, 8, 6, 5), np.float32)).batch(4).torch())


def tokens(sample: dict[str, Any]) -> dict[str, Any]:
    return {**sample, "tokens": np.ones(len(sample["text"]) // 3, np.int64)}


def texts(folder: Path) -> Path:
    path = folder / "b.jsonl"
    path.write_text("".join(json.dumps({"text": "x y " * (1 + i % 5), "id": i, "meta": "m" * (i * 37 % 90)}) + "\n" for i in range(50)))
    return path


def test_buckets_are_not_made_from_other_lengths(tmp_path: Path) -> None:
    data = pelton.load(texts(tmp_path)).shuffle(seed=0)
    with pytest.raises(pelton.ConfigurationError, match="give it length="):
        first(data.map(tokens, before_augmentation=True).buckets("tokens:64"))
    with pytest.raises(pelton.ConfigurationError, match="`lengths` field:"):
        first(data.buckets("tokens:64"))
    items = pelton.from_sequence([{"tokens": np.ones(1 + i % 7, np.int64), "n": 1 + i % 7} for i in range(50)])
    with pytest.raises(pelton.ConfigurationError, match="give it length="):
        first(items.buckets("tokens:14").batch(4, collate="pad"))
    for name in ("tokens", "n"):
        batches = list(items.buckets("tokens:14", length=name).batch(4, collate="pad"))
        assert sum(batch["tokens"].size for batch in batches) < 1.1 * sum(1 + i % 7 for i in range(50))


def test_packed_rows_carry_other_fields(tmp_path: Path) -> None:
    words = pelton.load(texts(tmp_path)).shuffle(seed=0).decode("words").buckets("pack:32").batch(4)
    made = (
        pelton.load(texts(tmp_path))
        .shuffle(seed=0)
        .map(tokens, before_augmentation=True)
        .buckets("pack:32", length=lambda sample: len(sample["text"]) // 3)
        .batch(4, collate={"tokens": "pad"})
    )
    for pipeline in (words, made):
        seen = []
        for batch in pipeline:
            lengths, rows = batch["tokens_lengths"], batch["tokens_row_samples"]
            assert batch["tokens"].shape == (len(rows), 32) and rows.sum() == len(lengths) == len(batch["id"])
            assert batch["meta"].texts() == ["m" * (int(i) * 37 % 90) for i in batch["id"]]
            # Which row and segment each element belongs to.
            row = np.repeat(np.arange(len(rows)), rows)
            filled = [lengths[row == i].sum() for i in range(len(rows))]
            assert ((batch["tokens"] != 0).sum(1) == filled).all()
            seen += batch["id"].tolist()
        assert sorted(seen) == list(range(50))


def test_what_functions_write_is_theirs() -> None:
    def halved(sample: dict[str, Any]) -> dict[str, Any]:
        sample["x"] *= 0.5
        return sample

    numbers = np.ones((4, 2), np.float32)
    pipeline = pelton.from_arrays(x=numbers).map(halved).batch(4)
    assert [float(batch["x"].max()) for _ in range(3) for batch in pipeline] == [0.5] * 3
    assert (numbers == 1).all()


def test_labels_in_a_table_next_to_a_folder_keep_their_numbers(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for i in range(12):
        Image.new("RGB", (4, 4)).save(tmp_path / "pictures" / f"{i:02}.png")
    for spelled, expected in ((lambda i: str(i), range(12)), (lambda i: f"{i}.5", np.arange(12) + 0.5), (lambda i: f"{i:03}", range(12))):
        table = tmp_path / "labels.csv"
        table.write_text("name,y\n" + "".join(f"{i:02}.png,{spelled(i)}\n" for i in range(12)))
        pipeline = pelton.load(tmp_path / "pictures", label_file=table, label="y").batch(12)
        np.testing.assert_array_equal(next(iter(pipeline))["label"], expected)


def test_what_would_be_taken_in_silence_is_refused(tmp_path: Path) -> None:
    paths = [tmp_path / f"{i}.png" for i in range(2)]
    for path in paths:
        Image.new("RGB", (8, 8)).save(path)
    with pytest.raises(pelton.ConfigurationError, match="2\\^53"):
        pelton.load(paths, labels=[2**60 + 1, 1])
    with pytest.raises(pelton.ConfigurationError, match="`examples` must be above 0"):
        pelton.from_arrays(x=np.ones(4)).sample(weights=np.ones(4), examples=0)
    with pytest.raises(TypeError):
        pelton.from_arrays(x=np.ones(4)).dataset()[1.7]
    pictures = np.zeros((3, 8, 8, 3), np.uint8)
    for name in ("gt_boxes", "keypoints", "Boxes"):
        pipeline = pelton.from_arrays(image=pictures, **{name: np.ones((3, 2, 4), np.float32)}).flip(1.0).batch(3)
        with pytest.raises(pelton.DataError, match=name):
            next(iter(pipeline))
    boxes = np.array([[[np.nan, 0, 10, 5]]] * 3, np.float32)
    with pytest.raises(pelton.DataError, match="not finite"):
        next(iter(pelton.from_arrays(image=pictures, boxes=boxes).flip(1.0).batch(3)))


def test_nulls_are_no_whole_numbers() -> None:
    arrow = pytest.importorskip("pyarrow")
    with pytest.raises(pelton.ConfigurationError, match="1 missing value"):
        pelton.from_arrays(x=arrow.chunked_array([[1, None]]))


@pytest.mark.parametrize("stride", [None, 5])
def test_windows_of_token_ids(tmp_path: Path, stride: int | None) -> None:
    """As nanoGPT's `get_batch` cuts them, but each once an epoch."""
    ids = np.random.default_rng(0).integers(0, 50_257, 1003).astype(np.uint16)
    ids.tofile(tmp_path / "train.bin")
    np.save(tmp_path / "train.npy", ids)
    for name, dtype in (("train.bin", "uint16"), ("train.npy", None)):
        data = pelton.load(tmp_path / name).windows(16, stride=stride, dtype=dtype)
        starts = np.arange(0, len(ids) - 16, stride or 16)
        pipeline = data.shuffle(seed=4).batch(8)
        assert pipeline.records == len(starts)
        seen = []
        for batch in pipeline:
            assert set(batch) == {"input", "target"} and batch["input"].dtype == batch["target"].dtype == np.int64
            for record, given, target in zip(batch.ids, batch["input"], batch["target"], strict=True):
                start = starts[record]
                np.testing.assert_array_equal(given, ids[start : start + 16])
                np.testing.assert_array_equal(target, ids[start + 1 : start + 17])
            seen += batch.ids.tolist()
        assert sorted(seen) == list(range(len(starts)))
        if len(ids) - (used := starts[-1] + 17) > 10:
            assert any(f"its last {len(ids) - used} of 1003 ids fill no window of 17" in note for note in pipeline.notes)
        # One by one, and as stored by functions.
        sample = next(iter(data))
        np.testing.assert_array_equal(sample["target"], ids[1:17])
        mapped = next(iter(data.map(lambda sample: {"sum": sample["tokens"].sum(dtype=np.int64), "n": len(sample["tokens"])}).batch(4)))
        assert mapped["n"].tolist() == [17] * 4 and mapped["sum"][0] == ids[:17].sum(dtype=np.int64)
    alone = next(iter(pelton.load(tmp_path / "train.npy").windows(10, targets=False).batch(3)))
    np.testing.assert_array_equal(alone["tokens"], ids[:30].reshape(3, 10))
    # Several files, and a run that goes on.
    both = pelton.load([tmp_path / "train.bin", tmp_path / "train.bin"]).windows(16, dtype="uint16").shuffle(seed=1).batch(8)
    loop = iter(both)
    first = [next(loop) for _ in range(3)]
    state = loop.state_dict()
    rest = [batch.ids.tolist() for batch in loop]
    both.load_state_dict(state)
    assert [batch.ids.tolist() for batch in both] == rest and len(first) == 3


def test_what_has_no_windows(tmp_path: Path) -> None:
    np.arange(100, dtype=np.uint16).tofile(tmp_path / "a.bin")
    for call, said in [
        (lambda data: data.windows(10).batch(2), "does not tell the type of its ids"),
        (lambda data: data.windows(200, dtype="uint16").batch(2), "it has 100 ids, fewer than a window of 201"),
        (lambda data: data.windows(10, dtype="float32"), "`dtype` is 'float32'; ids are uint8"),
        (lambda data: data.shuffle().windows(10, dtype="uint16"), "call .windows() first"),
        (lambda data: data.windows(0, dtype="uint16"), "`length` is 0"),
    ]:
        with pytest.raises((pelton.ConfigurationError, pelton.DataError), match=re.escape(said)):
            list(call(pelton.load(tmp_path / "a.bin")))


def documents(folder: Path, lengths: list[int]) -> tuple[Path, list[np.ndarray]]:
    """Documents of 16-bit ids as Megatron-LM's builder writes them, one sequence each."""
    rng = np.random.default_rng(0)
    made = [rng.integers(1, 60_000, length, np.uint16) for length in lengths]
    path = folder / "corpus_text_document.bin"
    path.write_bytes(np.concatenate(made).tobytes())
    offsets = 2 * (np.cumsum(lengths) - lengths)
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, len(lengths), len(lengths) + 1)
    index = [np.array(lengths, np.int32), offsets.astype(np.int64), np.arange(len(lengths) + 1, dtype=np.int64)]
    path.with_suffix(".idx").write_bytes(head + b"".join(part.tobytes() for part in index))
    return path, made


def test_documents_of_megatron_are_packed_with_their_bounds(tmp_path: Path) -> None:
    path, made = documents(tmp_path, [5, 17, 1, 30, 64, 9, 12, 3, 40, 2, 100])
    pipeline = pelton.load(path, format="documents").shuffle(seed=1).buckets("pack:64").batch(2)
    seen = []
    for batch in pipeline.include("segment_ids", "position_ids", "cu_seqlens"):
        tokens, segments, positions = batch["tokens"], batch["segment_ids"], batch["position_ids"]
        assert tokens.dtype == np.uint16 and tokens.shape == segments.shape == positions.shape
        pieces, at = [], 0
        for row, count in enumerate(batch["tokens_row_samples"]):
            begin = 0
            for number in range(1, count + 1):
                length = int(batch["tokens_lengths"][at])
                part = slice(begin, begin + length)
                assert (segments[row, part] == number).all() and (positions[row, part] == np.arange(length)).all()
                pieces.append(tokens[row, part])
                begin, at = begin + length, at + 1
            assert (segments[row, begin:] == 0).all()
        # The bounds cut all rows into the samples, and the padding between them.
        bounds = batch["cu_seqlens"]
        assert bounds[0] == 0 and bounds[-1] == tokens.size and (np.diff(bounds) > 0).all()
        flat = [tokens.reshape(-1)[a:b] for a, b in itertools.pairwise(bounds) if segments.reshape(-1)[a]]
        assert len(flat) == len(pieces) and all((a == b).all() for a, b in zip(flat, pieces))
        seen += [piece.tobytes() for piece in pieces]
    whole = [each[start : start + 64].tobytes() for each in made for start in range(0, len(each), 64)]
    assert sorted(seen) == sorted(whole)


def test_what_is_not_packed_has_no_segments(tmp_path: Path) -> None:
    path, made = documents(tmp_path, [5, 7])
    pipeline = pelton.load(path, format="documents").batch(2, collate={"tokens": "pad"}).include("cu_seqlens")
    with pytest.raises(pelton.ConfigurationError, match="only packed rows have segment_ids"):
        next(iter(pipeline))
    batch = next(iter(pelton.load(path, format="documents").batch(2, collate={"tokens": "pad"})))
    assert [row[:length].tolist() for row, length in zip(batch["tokens"], batch["tokens_lengths"])] == [each.tolist() for each in made]
    assert repr(batch).startswith("Batch(epoch 0, step 0, 2 examples: tokens uint16 [2, 7]")
    batch = next(iter(pelton.load(path, format="documents").batch(2, collate={"tokens": "ragged"})))
    assert [row.tolist() for row in batch["tokens"]] == [each.tolist() for each in made]


def test_what_hugging_face_saved(tmp_path: Path) -> None:
    """A folder of ``save_to_disk``, and a column of pictures as its datasets store it: a struct of bytes and path."""
    pa = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    made = []
    for i in range(6):
        buffer = io.BytesIO()
        Image.fromarray(np.full((4, 5, 3), 10 * i, np.uint8)).save(buffer, "PNG")
        made.append({"bytes": buffer.getvalue(), "path": None if i % 2 else f"{i}.png"})
    table = pa.table({"image": made, "label": list(range(6))})
    parquet.write_table(table, tmp_path / "a.parquet")
    folder = tmp_path / "saved"
    folder.mkdir()
    # Not in the order of their names.
    names = ["data-1.arrow", "data-0.arrow"]
    for name, part in zip(names, (table[:4], table[4:])):
        with pa.OSFile(str(folder / name), "wb") as file, pa.ipc.new_stream(file, table.schema) as stream:
            stream.write_table(part)
    (folder / "dataset_info.json").write_text("{}")
    (folder / "state.json").write_text(json.dumps({"_data_files": [{"filename": name} for name in names]}))
    for source in (folder, tmp_path / "a.parquet"):
        pipeline = pelton.load(source).decode("image")
        assert pipeline.records == 6
        batch = next(iter(pipeline.resize((4, 5)).batch(6)))
        assert sorted(batch) == ["image", "label"] and batch["image"].shape == (6, 4, 5, 3)
        assert batch["image"][:, 0, 0, 0].tolist() == [0, 10, 20, 30, 40, 50] and batch["label"].tolist() == list(range(6))
    named = pelton.load(tmp_path / "a.parquet", format="parquet:image.path,label", missing="zero")
    assert next(iter(named.batch(6)))["image.path"].texts() == ["0.png", "", "2.png", "", "4.png", ""]
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["saved"]}')
    with pytest.raises(pelton.ConfigurationError, match="holds several data sets; name one of them: .*/saved"):
        pelton.load(tmp_path).records


def litdata_tokens(folder: Path, documents: list[np.ndarray], chunks: int, code: int) -> None:
    """Chunks as LitData 0.2 writes them for its TokensLoader: a count, the start of each document and the end, the ids."""
    folder.mkdir()
    listed = []
    for number, part in enumerate(np.array_split(np.arange(len(documents)), chunks)):
        rows = [documents[i].tobytes() for i in part]
        starts = 4 + 4 * (len(rows) + 1) + np.cumsum([0, *map(len, rows)])
        data = np.uint32(len(rows)).tobytes() + starts.astype(np.uint32).tobytes() + b"".join(rows)
        (folder / f"chunk-0-{number}.bin").write_bytes(data)
        listed.append({"chunk_bytes": len(data), "chunk_size": len(rows), "dim": sum(len(documents[i]) for i in part), "filename": f"chunk-0-{number}.bin"})
    config = {"compression": None, "data_format": [f"no_header_tensor:{code}"], "encryption": None, "item_loader": "TokensLoader"}
    spec = '[1, {"type": null, "context": null, "children_spec": []}]'
    (folder / "index.json").write_text(json.dumps({"chunks": listed, "config": {**config, "data_spec": spec}}))


def test_tokens_of_litdata_are_documents(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    for name, dtype, code in (("wide", np.int64, 18), ("narrow", np.uint16, 20)):
        documents = [rng.integers(0, 60_000, rng.integers(1, 40)).astype(dtype) for _ in range(90)]
        litdata_tokens(tmp_path / name, documents, 4, code)
        data = pelton.load(tmp_path / name)
        seen = []
        for batch in data.shuffle(seed=1).batch(8, collate="ragged"):
            for row, i in zip(batch["tokens"], batch.ids):
                assert row.dtype == dtype and (row == documents[i]).all()
                seen.append(i)
        assert sorted(seen) == list(range(90))
        packed = list(data.shuffle(seed=1).buckets("pack:64").batch(4))
        assert sum(int(batch["tokens_lengths"].sum()) for batch in packed) == sum(map(len, documents))
    broken = tmp_path / "narrow" / "chunk-0-1.bin"
    broken.write_bytes(broken.read_bytes()[:-3])
    with pytest.raises(pelton.DataError, match="chunk-0-1.bin.*its size does not match its samples"):
        next(iter(pelton.load(tmp_path / "narrow").batch(4, collate="ragged")))
    index = tmp_path / "wide" / "index.json"
    index.write_text(index.read_text().replace("no_header_tensor:18", "jpeg"))
    with pytest.raises(pelton.DataError, match='its chunks of tokens are "jpeg", and not tensors without a head'):
        next(iter(pelton.load(tmp_path / "wide").batch(4, collate="ragged")))


def test_sparse_rows_are_indices_and_values(tmp_path: Path) -> None:
    """As an embedding bag takes them; LIBSVM counts features from 1."""
    rng = np.random.default_rng(0)
    rows = [(np.sort(rng.choice(40_000, rng.integers(0, 9), replace=False)), rng.integers(0, 3)) for _ in range(30)]
    lines = [f"{label} " + " ".join(f"{index + 1}:{index % 7 + 0.5}" for index in indices) for indices, label in rows]
    path = tmp_path / "rows.svm"
    path.write_text("\n".join(lines) + "\n")
    source = pelton.load(str(path))
    assert source.fields == [("indices", "int64", [None]), ("values", "float32", [None])]
    seen = []
    for batch in source.shuffle(seed=1).batch(8, collate="pad"):
        for at, record in enumerate(batch.ids):
            indices, label = rows[record]
            count = batch["indices_lengths"][at]
            assert (batch["indices"][at, :count] == indices).all() and count == len(indices) == batch["values_lengths"][at]
            assert (batch["values"][at, :count] == indices % 7 + 0.5).all() and batch["label"][at] == label
            seen.append(record)
    assert sorted(seen) == list(range(30))
    assert (source.dataset()[7]["indices"] == rows[7][0]).all()
    counted = source.map(lambda sample: {"count": np.int64(len(sample["indices"]))}).batch(30)
    assert (next(iter(counted))["count"] == [len(indices) for indices, _ in rows]).all()
    path.write_text("3,7 1:0.5\n")
    with pytest.raises(pelton.DataError, match=r"several labels, .*3,7.*`records features labels`"):
        next(iter(pelton.load(str(path), format="libsvm").batch(1)))


def test_records_with_several_labels_are_their_fields(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    for _ in range(40):
        indices = np.sort(rng.choice(50, rng.integers(0, 6), replace=False))
        rows.append((np.sort(rng.choice(30, rng.integers(0, 4), replace=False)), indices, rng.integers(1, 9, len(indices)) / 4))
    lines = [",".join(map(str, labels)) + "".join(f" {i}:{value}" for i, value in zip(indices, values)) for labels, indices, values in rows]
    path = tmp_path / "train.txt"
    path.write_text("\n".join(["40 50 30", *lines]) + "\n")
    source = pelton.load(str(path), format="xmc")
    assert source.fields == [("labels", "int64", [None]), ("indices", "int64", [None]), ("values", "float32", [None])]
    seen = []
    for batch in source.shuffle(seed=1).batch(8, collate="pad"):
        for at, record in enumerate(batch.ids):
            for name, expected in zip(("labels", "indices", "values"), rows[record]):
                count = batch[f"{name}_lengths"][at]
                assert count == len(expected) and (batch[name][at, :count] == expected).all()
            seen.append(record)
        assert "label" not in batch
    assert sorted(seen) == list(range(40))
    path.write_text("\n".join(["41 50 30", *lines]) + "\n")
    with pytest.raises(pelton.DataError, match="states 41 records, and 40 lines follow"):
        next(iter(pelton.load(str(path), format="xmc").batch(1)))
