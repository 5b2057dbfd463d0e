"""Which number is which class, or word, in several data sets of a program."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pelton
from pelton import _classes


@pytest.fixture(autouse=True)
def first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has opened nothing."""
    monkeypatch.setattr(_classes, "_named", {})
    monkeypatch.setattr(_classes, "_vocabularies", {})


def labelled(folder: Path, name: str, labels: list[Any], count: int = 30) -> Path:
    path = folder / f"{name}.jsonl"
    path.write_text("".join(json.dumps({"x": i, "label": labels[i % len(labels)]}) + "\n" for i in range(count)))
    return path


def labels_of(pipeline: pelton.Pipeline) -> list[Any]:
    return [label for batch in pipeline.batch(8) for label in batch["label"].tolist()]


def test_classes_have_one_number(tmp_path: Path) -> None:
    train = pelton.load(labelled(tmp_path, "train", ["a", "b", "c"])).batch(3)
    path = labelled(tmp_path, "validation", ["b", "c"])
    listing = tmp_path / "classes.txt"
    listing.write_text("a\nb\nc\n")
    assert train.classes == ["a", "b", "c"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for classes in (train, ["a", "b", "c"], listing, np.array(["a", "b", "c"])):
            validation = pelton.load(path, classes=classes).batch(4)
            assert validation.classes == ["a", "b", "c"]
            assert labels_of(validation) == [1, 2] * 15
            assert labels_of(pickle.loads(pickle.dumps(validation))) == [1, 2] * 15
            assert pelton.load(path, classes=validation).classes == ["a", "b", "c"]
    assert labels_of(pelton.load(path, classes=["c", "b"])) == [1, 0] * 15


def test_other_classes_warn_once(tmp_path: Path) -> None:
    train = pelton.load(labelled(tmp_path, "train", ["a", "b", "c"]))
    validation = pelton.load(labelled(tmp_path, "validation", ["b", "c"]))
    assert train.records == 30
    with pytest.warns(UserWarning, match=r"validation\.jsonl has the classes b, c, and .*train\.jsonl has a, b, c: .*`classes`"):
        assert labels_of(validation) == [0, 1] * 15
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert labels_of(validation.batch(7)) == [0, 1] * 15
        assert labels_of(pelton.load(labelled(tmp_path, "same", ["a", "c", "b"]))) == [0, 2, 1] * 10
        # Another task, and numeric classes, which are the same everywhere.
        assert pelton.load(labelled(tmp_path, "other", ["x", "y"])).classes == ["x", "y"]
        assert pelton.load(labelled(tmp_path, "numbers", [4, 7])).classes == []


def test_labels_become_places(tmp_path: Path) -> None:
    path = labelled(tmp_path, "gaps", [50, -3, 7])
    assert labels_of(pelton.load(path)) == [50, -3, 7] * 10
    listed = pelton.load(path, classes=[-3, 7, 50, 8])
    assert listed.classes == [-3, 7, 50, 8]
    assert labels_of(listed.batch(5)) == [2, 0, 1] * 10
    seen = []
    assert labels_of(listed.map(lambda sample: seen.append(sample["label"]) or {"x": sample["x"]})) == [2, 0, 1] * 10
    assert set(seen) == {0, 1, 2}
    # Classes from a pipeline map by value, like its own labels.
    assert labels_of(pelton.load(path, classes=pelton.load(path))) == [50, -3, 7] * 10
    assert labels_of(pelton.load(path, classes=listed)) == [2, 0, 1] * 10
    few = labelled(tmp_path, "few", [0, 3, 1])
    assert pelton.load(few, classes=5).classes == [0, 1, 2, 3, 4]
    assert labels_of(pelton.load(few, classes=5)) == [0, 3, 1] * 10
    with pytest.warns(UserWarning, match="indices of the classes a, b, c, d"):
        assert labels_of(pelton.load(few, classes=["a", "b", "c", "d"])) == [0, 3, 1] * 10


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    path = labelled(tmp_path, "validation", ["b", "d"])
    validation = pelton.load(path, classes=["a", "b"])
    with pytest.raises(pelton.DataError, match=r'validation\.jsonl: line 2: class "d"'):
        next(iter(validation))
    assert labels_of(validation.on_bad_record("skip")) == [1] * 15
    for classes, said in [
        (["a", "a"], "the class a twice"),
        ([], "names no class"),
        (["a", 1], "a list of names or numbers"),
        (tmp_path / "nowhere.txt", "nowhere.txt: cannot be read"),
    ]:
        with pytest.raises(pelton.ConfigurationError, match=said):
            pelton.load(path, classes=classes).classes
    text = tmp_path / "text.txt"
    text.write_text("a b\n")
    with pytest.raises(pelton.ConfigurationError, match="no labels"):
        pelton.load(path, classes=pelton.load(text))


def test_a_state_belongs_to_its_classes(tmp_path: Path) -> None:
    path = labelled(tmp_path, "train", ["a", "b"])
    state = pelton.load(path, classes=["a", "b"]).batch(4).state_dict()
    pelton.load(path, classes=["a", "b"]).batch(4).load_state_dict(state)
    for other in (pelton.load(path, classes=["b", "a"]), pelton.load(path)):
        with pytest.raises(pelton.StateError, match="other data"):
            other.batch(4).load_state_dict(state)


def test_words_have_one_number(tmp_path: Path) -> None:
    for name, lines in (("train", "a b b c c c\nd d d d\n"), ("validation", "e e e\nb e d\n")):
        (tmp_path / f"{name}.txt").write_text(lines)
    train = pelton.load(tmp_path / "train.txt").decode("words").batch(1)
    words = train.vocabulary
    assert words == ["<pad>", "<unk>", "<bos>", "<eos>", "d", "c", "b", "a"]
    expected = [[1, 1, 1, 3], [6, 1, 4, 3]]
    validation = pelton.load(tmp_path / "validation.txt").batch(1)

    def tokens(pipeline: pelton.Pipeline) -> list[list[int]]:
        return [batch["tokens"][0].tolist() for batch in pipeline]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for vocabulary in (train, words, words[4:], np.array(words)):
            made = validation.decode("words", vocabulary=vocabulary)
            assert made.vocabulary == words
            assert tokens(made) == tokens(pickle.loads(pickle.dumps(made))) == expected
    with pytest.warns(UserWarning, match=r"validation\.txt has a vocabulary of 7 words, and .*train\.txt another of 8: .*`vocabulary`"):
        assert tokens(validation.decode("words"))[0] == [4, 4, 4, 3]
    for vocabulary, said in [
        (["a", "a"], "word 1 of the list"),
        (validation, "does not decode words"),
        (pelton.load(tmp_path / "train.txt").decode("bytes"), "is a vocabulary of bytes"),
    ]:
        with pytest.raises(pelton.ConfigurationError, match=said):
            validation.decode("words", vocabulary=vocabulary).vocabulary
    with pytest.raises(pelton.ConfigurationError, match="does nothing with `decode` bytes|is a vocabulary of words"):
        validation.decode("bytes", vocabulary=words).vocabulary


def test_folders_of_parts(tmp_path: Path) -> None:
    image = bytes.fromhex(
        "89504e470d0a1a0a0000000d4948445200000001000000010802000000907753de0000000c49444154789c63f8cfc0000003010100c9fe92ef0000000049454e44ae426082"
    )
    for name in ("train/cat/1.png", "train/dog/2.png", "val/dog/3.png"):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
    train = pelton.load(tmp_path / "data" / "train")
    assert train.classes == ["cat", "dog"]
    validation = pelton.load(tmp_path / "data" / "val", classes=train).decode("png")
    assert labels_of(validation) == [1]
    with pytest.warns(UserWarning, match="train, val are read together"):
        assert pelton.load(tmp_path / "data").classes == ["cat", "dog"]
