"""The page of the API, and that it leaves nothing out."""

from __future__ import annotations

import importlib.util
import inspect
from pathlib import Path
from typing import Any

import pelton
import pytest

SCRIPT = Path(__file__).parents[1] / "api.py"


@pytest.fixture(scope="module")
def api() -> Any:
    spec = importlib.util.spec_from_file_location("api", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_is_what_the_package_says(api: Any) -> None:
    assert api.PAGE.read_text() == api.page(), "run python python/api.py"


def test_every_public_name_is_on_the_page(api: Any) -> None:
    listed = {*api.FUNCTIONS, *api.CLASSES, *api.ERRORS, "__version__"}
    assert listed == set(pelton.__all__)


def test_every_parameter_is_explained(api: Any) -> None:
    things = [(name, getattr(pelton, name)) for name in api.FUNCTIONS]
    for name in api.CLASSES:
        things += [(f"{name}.{member}", value) for member, value in api.members(getattr(pelton, name)) if inspect.isfunction(value)]
    for module, kinds in api.KINDS.items():
        for kind in (getattr(getattr(pelton, module), name) for name in kinds):
            things += [(f"{kind.__name__}.{member}", value) for member, value in api.members(kind) if inspect.isfunction(value) and value.__doc__]
            base = " ".join(filter(None, map(inspect.getdoc, kind.__mro__[:2])))
            for parameter in list(inspect.signature(kind.__init__).parameters)[1:]:
                assert kind.__name__ == "ClassIndex" or parameter in base, f"{kind.__name__} does not explain `{parameter}`"
    for name, function in things:
        text = inspect.getdoc(function)
        assert text, f"{name} has no documentation"
        names = [parameter for parameter in inspect.signature(function).parameters if parameter != "self"]
        # A function with a single argument explains it by its description.
        if len(names) > 1:
            for parameter in names:
                assert parameter in text, f"{name} does not explain `{parameter}`"


def test_public_names_are_looked_up_once() -> None:
    for name in ("load", "Ragged", "Pipeline"):
        assert getattr(pelton, name) is vars(pelton)[name]
