"""Writes docs/api.md from the package: `python python/api.py`. A test compares the page with what this makes."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import FunctionType
from typing import Any

import pelton

PAGE = Path(__file__).parents[1] / "docs" / "api.md"
FUNCTIONS = ["load", "from_arrays", "from_sequence", "from_generator", "from_manifest", "concat", "mix", "collate", "partial_cross_entropy"]
#: Of modules: their classes with their constructors.
KINDS = {"choose": ["Sampled", "Knn", "Near"], "heads": ["KnnSoftmax", "ClassIndex"], "optim": ["SGD", "LARS", "AdamW"]}
CLASSES = ["Pipeline", "Batch", "Ragged", "Dataset"]
ERRORS = ["ConfigurationError", "DataError", "BadRecordError", "StateError"]


def text_of(thing: Any) -> str:
    """Its documentation in Markdown."""
    text = inspect.cleandoc(thing.__doc__ or "")
    text = re.sub(r"``(.+?)``", r"`\1`", text)
    text = re.sub(r"(?<!`)`(\w+)`(?!`)", r"`\1`", text)
    return re.sub(r"^:param (\w+): ", r"- `\1`: ", text, flags=re.M).replace("\n    ", "\n  ")


def signature(name: str, function: Any) -> str:
    """The call with its parameters, without types."""
    said = inspect.signature(function)
    parameters = [p.replace(annotation=p.empty) for p in said.parameters.values() if p.name != "self"]
    return f"{name}{said.replace(parameters=parameters, return_annotation=said.empty)}"


def members(kind: type) -> list[tuple[str, Any]]:
    """Public methods and properties in the order of the source."""
    found = [(name, member) for name, member in vars(kind).items() if not name.startswith("_")]
    return [(name, member) for name, member in found if isinstance(member, (FunctionType, property, classmethod))]


def page() -> str:
    """The page."""
    parts = ["# Python API\n\nWritten from the package by `python python/api.py`; [Python](python.md) explains how things go together."]
    for name in FUNCTIONS:
        function = getattr(pelton, name)
        parts.append(f"## `pelton.{signature(name, function)}`\n\n{text_of(function)}")
    for module, names in KINDS.items():
        for name in names:
            kind = getattr(getattr(pelton, module), name)
            made = "" if name == "ClassIndex" else signature(name, kind.__init__)
            parts.append(f"## `pelton.{module}.{made or name}`\n\n{text_of(kind)}")
            for member, value in members(kind):
                # PyTorch wraps `step` of a class when one is made.
                if value.__doc__ and not hasattr(value, "hooked"):
                    heading = member if isinstance(value, property) else signature(member, value)
                    parts.append(f"### `{heading}`\n\n{text_of(value)}")
    for name in CLASSES:
        kind = getattr(pelton, name)
        parts.append(f"## `pelton.{name}`\n\n{text_of(kind)}")
        seen: dict[int, str] = {}
        for member, value in members(kind):
            function = value.__func__ if isinstance(value, classmethod) else value
            if id(function) in seen:
                parts.append(f"### `{member}`\n\nThe same as `{seen[id(function)]}`.")
                continue
            seen[id(function)] = member
            heading = member if isinstance(value, property) else signature(member, function)
            parts.append(f"### `{heading}`\n\n{text_of(value)}")
    parts.append("## Exceptions\n\n" + "\n".join(f"- `pelton.{name}`: {text_of(getattr(pelton, name))}" for name in ERRORS))
    return "\n\n".join(parts) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
