"""Functions of the engine, proof, run and strategies are short and have few parameters."""

from __future__ import annotations

import ast
import re
from pathlib import Path

PACKAGE = Path(__file__).parent.parent / "bigsap"
ENGINE = PACKAGE / "engine"
FOLDERS = [PACKAGE / name for name in ("engine", "proof", "run", "strategies")]
LINES, PARAMETERS = 120, 9
# What Python calls with everything that a kernel works on, and the C function that kernels call by
# its address: it takes nothing but numbers.
ENTRIES = ("run_", "solve_dense", "prove_dense", "_reduce_chunk")
ENTRIES += ("descend", "match_again", "raise_prices", "scan_rows")
# The public function, whose options they are, and the state of a solve.
ENTRIES += ("certify", "__init__")
# A formula for each kind of distance.
LONG = ["_sloped"]


def functions() -> list[ast.FunctionDef]:
    trees = [ast.parse(file.read_text()) for folder in FOLDERS for file in folder.rglob("*.py")]
    return [node for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]


def n_parameters(function: ast.FunctionDef) -> int:
    given = function.args
    names = [part.arg for part in (*given.posonlyargs, *given.args, *given.kwonlyargs)]
    return len([name for name in names if name not in ("self", "cls")])


def test_functions_are_short():
    assert [f.name for f in functions() if (f.end_lineno or 0) - f.lineno >= LINES] == LONG


def test_functions_have_few_parameters():
    wide = [f.name for f in functions() if n_parameters(f) > PARAMETERS]
    assert [name for name in wide if not name.startswith(ENTRIES)] == []


def test_numbers_of_a_search_have_names():
    """No ``words[3]`` nor ``words[POSITION]``: see ``core/record.py``."""
    files = [file for file in ENGINE.rglob("*.py") if "cuda" not in file.parts]
    by_place = re.compile(r"\b(words|values|counters|record_id|record_value)\[(\d|[A-Z_]+\b)")
    assert [str(file) for file in files if by_place.search(file.read_text())] == []
