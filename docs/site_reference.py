"""Pages of the site that are made from the code: commands, options, REST, cost specs, errors."""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import inspect
import json
import re
import tempfile
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, cached_property
from typing import Any

import bigsap
from bigsap import client, errors, option_table
from bigsap.sources import cost_specs

MAKERS: dict[str, Callable[[], Iterable[str]]] = {}


def maker(function: Callable[[], Iterable[str]]) -> Callable[[], Iterable[str]]:
    """Name a function whose lines a page may ask for."""
    MAKERS[function.__name__] = function
    return function


def made(name: str) -> str:
    """The text made under this name."""
    return "\n".join(MAKERS[name]())


# -- docstrings -----------------------------------------------------------------------

ITEM = re.compile(r"(\w+(?:, \w+)*): (.*)")


def fields_of(thing: Any) -> set[str]:
    """Names that a docstring may explain as ``name: what it is``."""
    names: set[str] = set()
    if dataclasses.is_dataclass(thing):
        names |= {field.name for field in dataclasses.fields(thing)}
    if isinstance(thing, type) and issubclass(thing, str):
        names |= {member.lower() for member in getattr(thing, "__members__", ())}
    elif isinstance(thing, type):
        names |= {name for name, of in vars(thing).items() if isinstance(of, (property, cached_property))}
    with contextlib.suppress(TypeError, ValueError):
        names |= set(inspect.signature(thing).parameters)
    return names


def with_fields(lines: Sequence[str], names: set[str], role: str) -> list[str]:
    """The lines with each ``name: what it is``, and what is indented under it, as a field of reST."""
    found: list[str] = []
    inside = False
    for line in with_raises(lines):
        # Several may share a line: "shape: ... args: ..." after a full stop.
        parts = _parts(line, names) if line[:1].strip() else [line]
        for part in parts:
            item = ITEM.match(part)
            if item and set(item[1].split(", ")) <= names:
                if not inside:
                    found.append("")
                found.append(f":{role} {item[1]}: {escaped(item[2])}")
                inside = True
            elif inside and (not part.strip() or part.startswith(" ")):
                found.append(part if not part.strip() else "    " + escaped(part))
            elif inside and found[-1].strip():
                found.append("    " + escaped(part))
            else:
                inside = False
                found.append(escaped(part))
    return [*found, ""]


def with_raises(lines: Sequence[str]) -> Iterator[str]:
    """The lines with what follows ``Raises:`` as a list."""
    listed = False
    for line in lines:
        if line == "Raises:":
            listed = True
            yield from (line, "")
        elif listed and re.match(r"    [A-Z]\w+(Error)?\b.*: ", line):
            yield f"* {line.strip()}"
        elif listed and line.startswith("     "):
            yield f"  {line.strip()}"
        else:
            listed = False
            yield line


def _parts(line: str, names: set[str]) -> list[str]:
    places = [0]
    for item in re.finditer(r"(?<=\. )(\w+(?:, \w+)*): ", line):
        if set(item[1].split(", ")) <= names:
            places.append(item.start())
    return [line[a:b].rstrip() for a, b in zip(places, [*places[1:], None], strict=True)]


def escaped(line: str) -> str:
    """Powers as they are: reST takes ``**`` for bold."""
    if re.match(r"\s*=+ =+", line):
        return line
    pieces = re.split(r"(``.*?``)", line)
    return "".join(
        piece if piece.startswith("``") else piece.replace("**", r"\*\*").replace("|", r"\|")
        for piece in pieces
    )


# -- the command line -----------------------------------------------------------------


def cell(text: Any) -> str:
    """A cell of a Markdown table."""
    return str(text).replace("|", "\\|").replace("\n", " ")


def rows(head: Sequence[str], lines: Iterable[Sequence[Any]]) -> Iterator[str]:
    """A Markdown table."""
    yield f"| {' | '.join(head)} |"
    yield f"| {' | '.join('---' for _ in head)} |"
    for line in lines:
        yield f"| {' | '.join(cell(value) for value in line)} |"
    yield ""


@maker
def commands() -> Iterator[str]:
    """Each command: usage, arguments, options."""
    from bigsap.cli.commands import build_parser

    parser = build_parser()
    (action,) = (found for found in parser._actions if isinstance(found, argparse._SubParsersAction))
    for name, sub in action.choices.items():
        yield from (f"## bigsap {name}", "", f"{sub.description}", "", "```text")
        usage = argparse.HelpFormatter(prog=f"bigsap {name}", width=72)
        usage.add_usage(None, sub._actions, sub._mutually_exclusive_groups, prefix="")
        yield from (usage.format_help().rstrip(), "```", "")
        shown = [found for found in sub._actions if found.help is not argparse.SUPPRESS]
        lines = []
        for found in shown:
            if isinstance(found, argparse._HelpAction):
                continue
            words = [f"`{flag}`" for flag in found.option_strings] or [f"`{found.metavar or found.dest}`"]
            value = ""
            if found.choices:
                value = "one of " + ", ".join(f"`{choice}`" for choice in found.choices)
            elif found.option_strings and found.nargs != 0:
                value = f"`{found.metavar or found.dest.upper()}`"
            text = (found.help or "").replace("%(default)s", str(found.default))
            lines.append((", ".join(words), value, text))
        if lines:
            yield from rows(("argument", "value", "meaning"), lines)


@maker
def options() -> Iterator[str]:
    """The options of a solve: in Python, on the command line, in a job request."""
    lines = []
    for option in option_table.OPTIONS:
        values = ", ".join(f"`{choice}`" for choice in option.choices) or option.kind
        lines.append((f"`{option.name}`", f"`{option.flag}`", f"`{option.remote}`", values, option.help))
    yield from rows(("Python", "command line", "job request", "values", "meaning"), lines)


# -- errors ---------------------------------------------------------------------------


def error_types() -> list[type[BaseException]]:
    """All public exceptions, of the library and of the client."""
    found = [getattr(bigsap, name) for name in bigsap.__all__]
    found += [getattr(client, name) for name in client.__all__]
    return [thing for thing in found if isinstance(thing, type) and issubclass(thing, BaseException)]


@maker
def error_tree() -> Iterator[str]:
    """The tree in the docstring of ``bigsap.errors``."""
    text = inspect.cleandoc(errors.__doc__ or "")
    tree = text[text.index("::") + 2 : text.index("Outcomes")]
    yield from ("```text", textwrap.dedent(tree).strip("\n"), "```", "")


@maker
def error_list() -> Iterator[str]:
    """Each exception with what it is and which others it is."""
    for kind in error_types():
        if kind is bigsap.BigsapError:
            place = "bigsap"
        else:
            place = "bigsap" if hasattr(bigsap, kind.__name__) else "bigsap.client"
        yield from (f"## {kind.__name__}", "")
        others = [base.__name__ for base in kind.__mro__[1:] if base not in (object, BaseException)]
        yield from (f"`{place}.{kind.__name__}`, also {', '.join(others)}.", "")
        yield from (markdown(inspect.getdoc(kind) or ""), "")


def markdown(text: str) -> str:
    """Text of a docstring as Markdown."""
    return re.sub(r"``(.+?)``", r"`\1`", text).replace("**", r"\*\*")


@maker
def problems() -> Iterator[str]:
    """The problem documents of the service."""
    from bigsap_server.problems import PROBLEMS

    lines = [(f"`{slug}`", status, title) for slug, (status, title) in PROBLEMS.items()]
    yield from rows(("type", "status", "title"), lines)


# -- cost specs and REST --------------------------------------------------------------


@cache
def openapi() -> dict[str, Any]:
    """The OpenAPI document of a service with default settings."""
    from bigsap_server.api.app import create_app
    from bigsap_server.settings import Settings

    with tempfile.TemporaryDirectory() as folder:
        app = create_app(Settings(data=folder, executor="inline", workers=1))
        return app.app.openapi()


def type_of(schema: dict[str, Any]) -> str:
    """A schema in a few words, with links to the schemas that it names."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    for key in ("anyOf", "oneOf"):
        if key in schema:
            some = dict.fromkeys(type_of(one) for one in schema[key])
            return "any cost" if len(some) > 6 else " or ".join(some)
    if "allOf" in schema:
        return " and ".join(type_of(one) for one in schema["allOf"])
    if "const" in schema:
        return f"`{json.dumps(schema['const'])}`"
    if "enum" in schema:
        return ", ".join(f"`{json.dumps(value)}`" for value in schema["enum"])
    kind = schema.get("type", "any value")
    if kind == "array":
        return "list" if not schema.get("items") else f"list of {type_of(schema['items'])}"
    return kind


def range_of(schema: dict[str, Any]) -> str:
    """The limits that a schema sets."""
    some = [schema, *schema.get("anyOf", ())]
    words = {
        "minimum": "at least",
        "exclusiveMinimum": "above",
        "maximum": "at most",
        "exclusiveMaximum": "below",
        "maxLength": "length at most",
    }
    found = [f"{word} {one[key]:g}" for one in some for key, word in words.items() if key in one]
    return ", ".join(dict.fromkeys(found))


def properties(schema: dict[str, Any]) -> Iterator[str]:
    """The fields of an object as a table."""
    required = set(schema.get("required", ()))
    lines = []
    for name, field in schema.get("properties", {}).items():
        default = field.get("default")
        needed = "required" if name in required else "-" if default is None else f"`{json.dumps(default)}`"
        text = markdown(field.get("description", ""))
        limits = range_of(field)
        lines.append(
            (f"`{name}`", type_of(field), needed, "; ".join(part for part in (text, limits) if part))
        )
    if lines:
        yield from rows(("field", "type", "default", "meaning"), lines)


def schema_text(name: str) -> Iterator[str]:
    """One schema: what it is, its fields, an example."""
    schema = openapi()["components"]["schemas"][name]
    yield from (f"### {name}", "", markdown(inspect.cleandoc(schema.get("description", ""))), "")
    yield from properties(schema)
    for example in schema.get("examples", ())[:1]:
        yield from ("```json", json.dumps(example), "```", "")


@maker
def rest() -> Iterator[str]:
    """Every call of the service, by tag."""
    document = openapi()
    tags: dict[str, list[tuple[str, str, dict[str, Any]]]] = {}
    for path, calls in document["paths"].items():
        for method, call in calls.items():
            tags.setdefault(call["tags"][0], []).append((method.upper(), path, call))
    for tag, calls_of_tag in tags.items():
        yield from (f"## {tag.capitalize()}", "")
        for method, path, call in calls_of_tag:
            yield from call_text(method, path, call)


def call_text(method: str, path: str, call: dict[str, Any]) -> Iterator[str]:
    """One call: what it does, parameters, body, answers."""
    yield from (f"### {method} {path}", "", f"{call['summary']}.", "")
    yield from (markdown(inspect.cleandoc(call.get("description", ""))), "")
    lines = []
    for parameter in call.get("parameters", ()):
        text = "; ".join(
            part
            for part in (markdown(parameter.get("description", "")), range_of(parameter["schema"]))
            if part
        )
        lines.append((f"`{parameter['name']}`", parameter["in"], type_of(parameter["schema"]), text))
    if lines:
        yield from rows(("parameter", "in", "type", "meaning"), lines)
    for kind, content in call.get("requestBody", {}).get("content", {}).items():
        yield from (f"Body: `{kind}`, {type_of(content.get('schema', {}))}.", "")
    answers = []
    for status, answer in sorted(call["responses"].items()):
        if status >= "4":
            continue
        kinds = [
            f"`{kind}`: {type_of(one.get('schema', {}))}" for kind, one in answer.get("content", {}).items()
        ]
        answers.append((status, answer["description"], "; ".join(kinds)))
    yield from rows(("answer", "meaning", "body"), answers)
    refused = ", ".join(status for status in sorted(call["responses"]) if status >= "4")
    if refused:
        yield from (f"Refused with {refused}: a [problem document](#problemdocument).", "")


@maker
def schemas() -> Iterator[str]:
    """The documents that calls take and give, but for costs."""
    for name in openapi()["components"]["schemas"]:
        yield from schema_text(name)


@maker
def file_specs() -> Iterator[str]:
    """The types of cost spec that the command line reads."""
    lines = []
    for name, kind in cost_specs.KINDS.items():
        fields = ", ".join(
            f"`{field}`" if field in kind.required else f"[`{field}`]" for field in kind.fields
        )
        types = "; ".join(f"{field}: {type_}" for field, type_ in kind.fields.items())
        lines.append((f"`{name}`", fields, types))
    yield from rows(("type", "fields, [optional]", "what they are"), lines)


@maker
def service_specs() -> Iterator[str]:
    """The types of cost spec that the service reads."""
    names = openapi()["components"]["schemas"]
    for schema in names.values():
        kind = schema.get("properties", {}).get("type", {}).get("const")
        if kind is None:
            continue
        yield from (f"### {kind}", "", markdown(inspect.cleandoc(schema.get("description", ""))), "")
        lines = list(properties(schema))
        yield from (re.sub(r"\[(\w+)\]\(#\w+\)", r"\1", line) for line in lines)
        for example in schema.get("examples", ())[:1]:
            yield from ("```json", json.dumps(example), "```", "")
