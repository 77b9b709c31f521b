"""Tests of a file run in one process, whatever the versions of pytest and xdist."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]
pytest.importorskip("xdist", reason="extra dev")

TESTS = """
import os, pathlib, pytest

@pytest.fixture(scope="module", autouse=True)
def built():
    with open("built", "a") as file:
        file.write(f"{os.path.basename(__file__)} ")

@pytest.mark.parametrize("k", range(8))
def test_it(k):
    pass
"""


def test_what_a_file_shares_is_built_once(pytester):
    pytester.makepyfile(beside=(Path(__file__).parent / "beside.py").read_text())
    files = ["tests/test_one.py", "tests/test_two.py", "tests/page/test_three.py"]
    for file in (pytester.path / file for file in files):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(TESTS)
    pytester.makeini("[pytest]\npythonpath = .\naddopts = -p beside")
    done = pytester.runpytest_subprocess("-p", "no:cacheprovider", "-n", "2", "--dist", "loadfile")
    done.assert_outcomes(passed=24)
    built = sorted((pytester.path / "built").read_text().split())
    assert built == ["test_one.py", "test_three.py", "test_two.py"]


def test_all_of_the_page_shares_a_process():
    from beside import shared_by

    one, other = (f"tests/page/test_{name}.py::test_it[a::b]" for name in ("list", "look"))
    assert shared_by(one) == shared_by(other)
    assert shared_by("tests/test_a.py::T::test_it") == "tests/test_a.py"
