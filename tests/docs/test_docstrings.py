"""Every public docstring is valid reStructuredText, as the site shows it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import bigsap
from bigsap import client

DOCS = Path(__file__).parents[2] / "docs"


def documented() -> Iterator[tuple[str, Any]]:
    """Public functions and classes, and what is public of the classes."""
    for home in (bigsap, client):
        for name in home.__all__:
            thing = getattr(home, name)
            if callable(thing):
                yield name, thing
            if isinstance(thing, type):
                public = (part for part in vars(thing) if not part.startswith("_"))
                yield from ((f"{name}.{part}", getattr(thing, part)) for part in public)


def test_docstrings_are_read_without_a_warning(monkeypatch, capsys):
    core = import_module("docutils.core")
    monkeypatch.syspath_prepend(DOCS)
    reference = import_module("site_reference")
    read = 0
    for name, thing in documented():
        text = inspect.getdoc(thing) or ""
        lines = reference.with_fields(text.splitlines(), reference.fields_of(thing), "param")
        core.publish_doctree("\n".join(lines), source_path=name)
        read += bool(text)
    assert capsys.readouterr().err == ""
    assert read > 100


# Methods for BigSAP's own modules.
OURS = {"Certificate.measured", "Result.from_assignment", "Result.later", "RowCache.budget"}


def test_every_parameter_of_a_function_is_named_in_its_docstring():
    seen = 0
    for name, thing in documented():
        if isinstance(thing, (type, property)) or not callable(thing) or name in OURS:
            continue
        text = inspect.getdoc(thing) or ""
        given = inspect.signature(thing).parameters.keys() - {"self", "cls"}
        seen += len(given)
        unnamed = {word for word in given if not re.search(rf"\b{word}\b", text)}
        assert not unnamed, f"{name}: {sorted(unnamed)}"
    assert seen > 150
