"""The shape of the package: layers, exported names, what an import costs."""

from __future__ import annotations

import ast
import json
import subprocess
import sys
import tomllib
from pathlib import Path

import bigsap

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def fresh(code: str) -> str:
    """stdout of ``code`` in a fresh interpreter that treats warnings as errors."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_layers_are_respected():
    # No cache: it remembers where an import led before a module was added or moved.
    code = "from importlinter.cli import lint_imports_command as run; run(['--no-cache'])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_exported_names_equal_all():
    tree = ast.parse((ROOT / "bigsap" / "__init__.py").read_text())
    imported = {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and node.module != "__future__"
        for alias in node.names
    }
    assert len(bigsap.__all__) == len(set(bigsap.__all__))
    assert {name for name in imported if not name.startswith("_")} == {
        name for name in bigsap.__all__ if not name.startswith("_")
    }
    for name in bigsap.__all__:
        assert hasattr(bigsap, name), name


def test_contract_names_are_exported():
    names = (
        "linear_sum_assignment solve Result Status RowCache CostSource from_function points "
        "lowrank table from_zarr from_npy CertificateError InvalidCostError InfeasibleError"
    )
    assert set(names.split()) <= set(bigsap.__all__)


def test_import_loads_no_extra():
    show = "import sys, json; print(json.dumps(list(sys.modules)))"
    # numba looks at an installed scipy by itself.
    before = set(json.loads(fresh(f"import numba, numpy; {show}")))
    added = set(json.loads(fresh(f"import numba, numpy, bigsap; {show}"))) - before
    extras = {"zarr", "cupy", "scipy", "tqdm", "matplotlib", "httpx", "sklearn", "PIL", "sqlite3"}
    assert "bigsap" in added
    assert not extras & {name.partition(".")[0] for name in added}


def test_import_compiles_nothing():
    # Whatever numba compiles passes through its compiler locks and event log.
    code = """
from numba.core import event
with event.install_recorder("numba:compile") as compiled:
    import bigsap
    import bigsap.cli
print(len(compiled.buffer))
"""
    assert fresh(code).strip() == "0"


def test_every_package_is_listed():
    found = {
        str(file.parent.relative_to(ROOT)).replace("/", ".")
        for file in (ROOT / "bigsap").rglob("__init__.py")
    }
    assert found | {"bigsap_server"} == set(PROJECT["tool"]["setuptools"]["packages"])
    assert (ROOT / PROJECT["tool"]["setuptools"]["package-dir"]["bigsap_server"]).is_dir()


def test_core_needs_only_numpy_and_numba():
    names = [item.split(">")[0] for item in PROJECT["project"]["dependencies"]]
    assert names == ["numpy", "numba"]
