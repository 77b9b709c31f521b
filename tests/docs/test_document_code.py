"""The code of README and site runs as printed: each page is one session, in a folder of its own.

A block ``text`` that comes next after a block of Python is what that block prints, and is compared.
Commands of ``bigsap`` between them are run as well. Replaced are only addresses of services. With
``BIGSAP_TEST_PEERS=all`` a block that would be left out fails.
"""

from __future__ import annotations

import ast
import contextlib
import importlib.util
import io
import os
import re
import sys
import types
import warnings
from pathlib import Path

import pytest
from test_docs import PAGES, ROOT, blocks, commands

from bigsap.cli import commands as cli

SERVICE = "http://127.0.0.1:8765"
# Other solvers and formats, which are compared with: blocks that import one are left out without it.
PEERS = {"scipy", "lap", "ot", "ortools", "xarray", "pandas", "zarr", "netCDF4", "PIL", "polars", "torch"}
# Commands that end by themselves, in a second.
SHORT = {"solve", "verify", "rechunk", "info"}


def lacks(code: str) -> str | None:
    """A package that the code imports and that is not installed."""
    for node in ast.walk(ast.parse(code)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [node.module or ""]
        for name in names:
            package = name.partition(".")[0]
            if package in PEERS and importlib.util.find_spec(package) is None:
                return package
    return None


def run(code: str, name: str, names: dict) -> str:
    """What the code prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, name, "exec"), names)
    return printed.getvalue()


def session(page: Path, replaced: dict[str, str], output: list[tuple[int, str]] | None = None) -> int:
    """Run the blocks of a page in their order; the number of blocks of Python that ran.

    output: collects (line of the text block, what was printed) in place of comparing.
    """
    # A module, so that classes and pickles find the names of their page.
    module = types.ModuleType("page_session")
    sys.modules[module.__name__] = module
    names = vars(module)
    ran = 0
    absent: set[str] = set()  # packages that an earlier block could not import
    found = blocks(page)
    for place, (line, language, text) in enumerate(found):
        for old, new in replaced.items():
            text = text.replace(old, new)
        if language == "python":
            package = lacks(text)
            if package is not None:
                assert os.environ.get("BIGSAP_TEST_PEERS") != "all", f"{page.name}:{line} needs {package}"
                absent.add(package)
            used = {node.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name)}
            if package is not None or absent & used:
                continue
            printed = run(text, f"{page.name}:{line}", names)
            ran += 1
            after = found[place + 1] if place + 1 < len(found) else None
            if after is None or after[1] != "text" or "```python" in between(page, line, after[0]):
                continue
            if output is None:
                assert printed.rstrip() == after[2].rstrip(), f"{page.name}:{after[0]}"
            else:
                output.append((after[0], printed.rstrip()))
        elif language == "" and ran and text.startswith("bigsap "):
            for _, *words in commands(text):
                if words[0] in SHORT:
                    with contextlib.redirect_stdout(io.StringIO()):
                        assert cli.main(words) == 0, words
    return ran


def between(page: Path, start: int, end: int) -> str:
    """Lines of a page after the block that begins at ``start``, before ``end``."""
    return "\n".join(page.read_text().splitlines()[start : end - 1])


WITH_CODE = [page for page in PAGES if any(language == "python" for _, language, _ in blocks(page))]


@pytest.mark.some(18)
@pytest.mark.parametrize("page", WITH_CODE, ids=lambda page: str(page.relative_to(ROOT)))
def test_code_of_the_page_runs_as_printed(page, tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)
    replaced = {}
    if any(language == "python" and SERVICE in text for _, language, text in blocks(page)):
        pytest.importorskip("fastapi", reason="extra server")
        replaced[SERVICE] = request.getfixturevalue("live_server").url
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session(page, replaced)


def needed(page: Path) -> set[str]:
    """Packages that the code of a page needs and that BigSAP alone does not bring."""
    code = "\n".join(text for _, language, text in blocks(page) if language == "python")
    found = set(re.findall(r"^\s*(?:import|from) (\w+)", code, re.M)) & PEERS
    implied = {"pandas": ".to_dataframe(", "zarr": "from_zarr(", "http": "from_http(", "server": SERVICE}
    return found | {package for package, sign in implied.items() if sign in code}


def test_pages_say_what_their_code_needs():
    """In a line that speaks of installing; who comes from another solver has that one."""
    for page in WITH_CODE:
        if page.parent.name == "coming_from":
            continue
        text = re.sub(r"```python\n.*?```", "", page.read_text(), flags=re.S)
        said = " ".join(re.findall(r".*(?:[Nn]eeds|install).*\n.*", text))
        for package in needed(page):
            assert package in said, f"{page.name} does not say that it needs {package}"


def test_every_page_for_users_with_results_shows_code():
    folders = {"cookbook", "coming_from", "guide", "start"}
    shown = {page for page in WITH_CODE if page.parent.name in folders}
    silent = {page.stem for page in PAGES if page.parent.name in folders} - {page.stem for page in shown}
    assert silent <= {"index", "examples"}
