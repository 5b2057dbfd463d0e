"""The indices of classes and words, which must be the same in every data set of a program."""

from __future__ import annotations

import json
import os
import reprlib
import warnings
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Union

import numpy as np

from . import _pelton
from ._interface import is_pipeline

if TYPE_CHECKING:
    from ._interface import AnyPipeline

    Classes = Union[Iterable[Union[str, int, float]], str, os.PathLike[str], int, AnyPipeline]
    Words = Union[Iterable[Union[str, bytes]], str, os.PathLike[str], AnyPipeline]

# Lines of a warning about the data.
MOST_NOTES = 5
# Classes that a warning names.
_MOST_NAMED = 5

# Class names and vocabulary digests of the data that this process has opened, with the data's own name.
_named: dict[tuple[str, ...], str] = {}
_vocabularies: dict[tuple[int, int], str] = {}


def class_setting(classes: Classes | None) -> tuple[Any, bool]:
    """`classes` for the native part, and whether labels are indices in it instead of the values in the data."""
    if classes is None:
        return None, False
    if is_pipeline(classes):
        setting = classes._running().source.class_setting
        if setting is None:
            raise _pelton.ConfigurationError("`classes` is a pipeline whose records have no labels; name their classes instead")
        return json.loads(setting), bool(classes._steps.terms.get("by_class"))
    if isinstance(classes, (str, os.PathLike)):
        return os.fspath(classes), True
    if isinstance(classes, (int, np.integer)) and not isinstance(classes, bool):
        return int(classes), True
    given = classes if isinstance(classes, Iterable) and not isinstance(classes, (bytes, Mapping)) else [None]
    listed: list[Any] = [item.item() if isinstance(item, np.generic) else item for item in given]
    if not all(isinstance(item, str) for item in listed) and not all(
        isinstance(item, (int, float)) and not isinstance(item, bool) for item in listed
    ):
        raise _pelton.ConfigurationError(
            "`classes` must be a list of names or numbers, a file with one class a line, a number of classes, or a pipeline"
        )
    return listed, True


def class_names(source: _pelton.Source, by_class: bool) -> list[Any]:
    """The classes in the order of their numbers; none where labels are what the data says."""
    if source.classes or not by_class or source.class_setting is None:
        return source.classes
    setting = json.loads(source.class_setting)
    values = range(setting) if isinstance(setting, int) else setting
    return [int(value) if value == int(value) else value for value in values]


def word_list(words: Iterable[str | bytes]) -> list[bytes]:
    """Words as the native part takes them."""
    listed: list[Any] = list(words) if isinstance(words, Iterable) and not isinstance(words, (bytes, Mapping)) else [None]
    if not all(isinstance(word, (str, bytes)) for word in listed):
        raise _pelton.ConfigurationError(f"`vocabulary` is {reprlib.repr(words)}; give a list of words, a file, or a pipeline that decodes words")
    return [word if isinstance(word, bytes) else word.encode("utf-8", "surrogateescape") for word in listed]


def given_words(vocabulary: list[bytes] | AnyPipeline | None) -> Any:
    """A vocabulary as the native part takes it: a list, or the native part of a pipeline."""
    return vocabulary if vocabulary is None or isinstance(vocabulary, list) else vocabulary._running().native


def warn_of_other_classes(data: dict[str, Any], source: _pelton.Source) -> None:
    """Warns once about data whose class indices differ from those of data opened before, unless `classes` is given."""
    names, name = tuple(source.classes), _called(data)
    if not names or names in _named:
        return
    shared = [(other, path) for other, path in _named.items() if set(other) & set(names)]
    _named[names] = name
    if shared and "classes" not in data:
        other, path = shared[-1]
        warnings.warn(
            f"{name} has the classes {_shown(names)}, and {path} has {_shown(other)}: a class may have different indices in the two "
            "and another in the other; give `classes` of the one, such as the other pipeline, to load",
            stacklevel=6,
        )


def warn_of_other_words(data: dict[str, Any], config: dict[str, Any], native: _pelton.Pipeline, is_given: bool) -> None:
    """Warns once about data whose vocabulary differs from that of data opened before."""
    digest = native.vocabulary_digest
    if config.get("decode") not in ("words", "pairs") or digest is None or digest in _vocabularies:
        return
    others = list(_vocabularies.items())
    _vocabularies[digest] = name = _called(data)
    if others and not is_given and "vocabulary" not in config:
        (_, size), path = others[-1]
        warnings.warn(
            f"{name} has a vocabulary of {digest[1]} words, and {path} another of {size}: a word has different indices in the two; give "
            "`vocabulary`, such as the other pipeline, to decode",
            stacklevel=6,
        )


def _called(data: dict[str, Any]) -> str:
    paths = data["paths"]
    return _pelton.without_secrets(f"{paths[0]} and {len(paths) - 1} more" if len(paths) > 1 else str(paths[0]))


def _shown(names: tuple[str, ...]) -> str:
    more = len(names) - _MOST_NAMED
    return ", ".join(names[:_MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def warn_of(notes: list[str]) -> None:
    """Tells what is left out of the data, or not as one might expect, once for the same data."""
    if notes:
        more = len(notes) - MOST_NOTES
        shown = [*notes[:MOST_NOTES], *([f"and {more} more, see `notes`"] if more > 0 else [])]
        warnings.warn("\n".join(shown), stacklevel=6)
