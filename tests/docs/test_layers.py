"""The shape of the package: layers, exported names, what an import costs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

import bigsap

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def fresh(code: str) -> str:
    """stdout of ``code`` in a fresh interpreter that treats warnings as errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_exported_names_equal_all():
    # What type checkers see, and what is imported when it is asked for.
    tree = ast.parse((ROOT / "bigsap" / "__init__.py").read_text())
    (checked,) = (node for node in tree.body if isinstance(node, ast.If))
    imported = {
        alias.asname or alias.name: node.module
        for node in checked.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert imported == bigsap._HOME
    assert len(bigsap.__all__) == len(set(bigsap.__all__))
    assert {name for name in imported if not name.startswith("_")} == {
        name for name in bigsap.__all__ if not name.startswith("_")
    }
    for name in bigsap.__all__:
        assert hasattr(bigsap, name), name
        assert name in dir(bigsap)


def test_a_module_does_not_hide_the_function_of_its_name():
    code = """
import bigsap.scipy_compat, bigsap.solve, bigsap.warmup
from bigsap.solve import resume
import bigsap
assert callable(bigsap.solve) and callable(bigsap.warmup) and bigsap.resume is resume
assert bigsap.errors.OptionError is bigsap.OptionError
assert not hasattr(bigsap, "nothing") and not hasattr(bigsap, "_nothing")
import bigsap.cli
assert bigsap.cli.main
from bigsap import *
print(solve(lambda i, j: abs(i - j), shape=(3, 3)).fun)
"""
    assert fresh(code) == "0.0\n"


def test_import_loads_next_to_nothing():
    show = "print('numba' in sys.modules, 'bigsap.result' in sys.modules)"
    code = f"import sys, numpy, bigsap; bigsap.__version__; {show}; bigsap.Result; {show}"
    assert fresh(code) == "False False\nFalse True\n"


def test_help_of_the_command_line_loads_no_compiler():
    show = "print('numba' in sys.modules, 'bigsap.sources' in sys.modules)"
    assert fresh(f"import sys; from bigsap.cli.commands import build_parser; build_parser(); {show}") == (
        "False False\n"
    )
    code = "import bigsap.client as c; assert c.Client.submit and 'Job' in dir(c); hasattr(c, 'nothing')"
    assert fresh(f"{code}; from bigsap.client import *; print(Job.wait)").startswith("<function Job.wait")


def test_import_loads_no_extra_and_compiles_nothing():
    # numba looks at an installed scipy by itself. What it compiles passes through its event log.
    code = """
import json, sys
import numba, numpy
from numba.core import event
before = set(sys.modules)
with event.install_recorder("numba:compile") as compiled:
    import bigsap
    import bigsap.cli
print(json.dumps([len(compiled.buffer), sorted(set(sys.modules) - before)]))
"""
    compiled, added = json.loads(fresh(code))
    extras = {"zarr", "cupy", "scipy", "tqdm", "matplotlib", "httpx", "sklearn", "PIL", "sqlite3"}
    assert compiled == 0
    assert "bigsap" in added
    assert not extras & {name.partition(".")[0] for name in added}


def test_what_is_packaged_is_what_is_imported():
    from setuptools import find_packages

    where = PROJECT["tool"]["setuptools"]["packages"]["find"]
    found = {
        name for folder in where["where"] for name in find_packages(ROOT / folder, include=where["include"])
    }
    assert found == {
        ".".join(file.parent.relative_to(ROOT / folder).parts)
        for folder, name in ((".", "bigsap"), ("server", "bigsap_server"))
        for file in (ROOT / folder / name).rglob("__init__.py")
    }


def test_core_needs_little():
    """On Linux; elsewhere psutil tells memory and cores."""
    needed = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
    core = ["numpy", "numba", "threadpoolctl"]
    for system, names in {"linux": core, "darwin": [*core, "psutil"], "win32": [*core, "psutil"]}.items():
        where = {"sys_platform": system}
        assert [r.name for r in needed if r.marker is None or r.marker.evaluate(where)] == names
