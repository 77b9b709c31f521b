"""Names that a user's function calls, read from its bytecode."""

from __future__ import annotations

import dis
from contextlib import suppress
from types import CodeType, FunctionType
from typing import Any

#: Functions of numpy that a library for matrix products computes.
_PRODUCTS = {"dot", "einsum", "inner", "matmul", "multi_dot", "tensordot", "vdot"}
#: How far helpers are followed.
_DEPTH = 4


def multiplies_matrices(function: Any, depth: int = _DEPTH) -> bool:
    """Return whether a function, or a helper of its module, multiplies arrays as matrices."""
    function = getattr(function, "py_func", function)
    if not isinstance(function, FunctionType):
        return False
    codes = _codes(function.__code__)
    if any(_multiplies(code) for code in codes):
        return True
    known = {**function.__globals__, **_captured(function)}
    names = {name for code in codes for name in code.co_names + code.co_freevars}
    return depth > 0 and any(multiplies_matrices(known.get(name), depth - 1) for name in names)


def _codes(code: CodeType) -> list[CodeType]:
    """Return a function's code and that of functions defined in it."""
    inner = [found for const in code.co_consts if isinstance(const, CodeType) for found in _codes(const)]
    return [code, *inner]


def _multiplies(code: CodeType) -> bool:
    if _PRODUCTS & set(code.co_names):
        return True
    return any(
        step.opname == "BINARY_OP" and step.argrepr in ("@", "@=") for step in dis.get_instructions(code)
    )


def _captured(function: FunctionType) -> dict[str, Any]:
    """Return the captured variables that have values."""
    found = {}
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # not set yet
            found[name] = cell.cell_contents
    return found
