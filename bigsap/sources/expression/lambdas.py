"""Python lambdas within the expression language, read from their source.

Neither the lambda nor anything it names is run: names are looked up in Python's scopes, and only
numbers, float64 arrays and known functions are accepted.
"""

from __future__ import annotations

import ast
import builtins
import linecache
import math
import types
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bigsap.compile.parsing import parsed
from bigsap.errors import ExpressionError
from bigsap.sources.expression.formula import ExpressionSource
from bigsap.sources.expression.integers import EXACT, keeps_pythons_numbers
from bigsap.sources.expression.parser import check
from bigsap.sources.expression.syntax_tree import (
    MAX_ARRAYS,
    MAX_LENGTH,
    Binary,
    Choice,
    Compare,
    Declared,
    Logic,
    Node,
    Not,
    chain,
    children,
)

#: Functions by identity: a global called ``sqrt`` may be any object.
_KNOWN: dict[int, str] = {
    id(f): name
    for name, functions in {
        "abs": (abs, math.fabs, np.abs, np.fabs),
        "sqrt": (math.sqrt, np.sqrt),
        "exp": (math.exp, np.exp),
        "log": (np.log,),
        "sin": (math.sin, np.sin),
        "cos": (math.cos, np.cos),
        "floor": (math.floor, np.floor),
        "atan2": (math.atan2, np.arctan2),
        "hypot": (math.hypot, np.hypot),
        "min": (min, np.minimum),
        "max": (max, np.maximum),
        "where": (np.where,),
        "sum": (sum,),
        "range": (range,),
    }.items()
    for f in functions
} | {id(math.log): "log"}


def lambda_expression(
    function: Callable[..., Any], shape: tuple[int, int], args: tuple[Any, ...] = ()
) -> ExpressionSource | None:
    """Return the costs ``function(i, j, *args)`` as an expression, None if outside the language.

    function: a lambda whose source can be found; several on one line are distinguished. Its other
    names must be numbers, functions of ``math``, ``numpy`` or the language, or float64 arrays in C
    order, which are not copied: a change in place takes effect. Captured numbers are read now.

    The costs are the lambda's up to rounding, with exceptions: costs for which Python raises (a
    division by zero, the root of a negative number) are infinite or NaN, integers beyond 2**53
    round, and NaN in min and max is never dropped. ``checked.checked_fill`` finds those pairs.
    O(size of the source file); nothing is compiled for the CPU yet.
    """
    node = _find(function)
    if node is None:
        return None
    try:
        reader = _Reader(function, node, args)
        body = reader.visit(node.body)
        tree = check(body, shape, reader.declared())
    except (_OutsideError, ExpressionError):
        return None
    if not _same_truth(tree.root, wanted=False) or not keeps_pythons_numbers(tree):
        return None
    return ExpressionSource(tree, tuple(reader.arrays), ast.unparse(body)[:MAX_LENGTH])


class _OutsideError(Exception):
    """Raised for a lambda outside the language."""


# -- finding the source ----------------------------------------------------------------


def _find(function: Any) -> ast.Lambda | None:
    """Return the only lambda in its file that was compiled to exactly this code."""
    if not isinstance(function, types.FunctionType) or function.__name__ != "<lambda>":
        return None
    code = function.__code__
    text = "".join(linecache.getlines(code.co_filename, function.__globals__))
    try:
        module = parsed(text, code.co_filename, "exec")
        # Compiled again, because the file may have changed since it was imported.
        fresh = compile(text, code.co_filename, "exec", dont_inherit=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    places = set(code.co_positions())
    if not any(_traits(other) == _traits(code) for other in _codes(fresh)):
        return None
    found = [node for node in ast.walk(module) if isinstance(node, ast.Lambda) and _holds(node, places)]
    # Of nested lambdas, the innermost: an outer one's code has more than its body's instructions.
    return max(found, key=lambda node: (node.lineno, node.col_offset), default=None)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _traits(code: types.CodeType) -> tuple[Any, ...]:
    constants = [c.co_code if isinstance(c, types.CodeType) else repr(c) for c in code.co_consts]
    names = (code.co_names, code.co_varnames, code.co_freevars)
    return code.co_code, constants, names, list(code.co_positions())


def _holds(node: ast.Lambda, places: set[Any]) -> bool:
    """Return whether all instructions (except those of the start, without width) are of its body."""
    body = node.body
    first, last = (body.lineno, body.col_offset), (body.end_lineno, body.end_col_offset)
    known = [p for p in places if None not in p and p[2:] != (0, 0)]
    # A constant's code may have no position at all (Python 3.12): it could be any lambda's.
    return bool(known) and all(first <= (a, c) and (b, d) <= last for a, b, c, d in known)


# -- rewriting --------------------------------------------------------------------------


class _Reader(ast.NodeTransformer):
    """Rewrites a lambda's body in the language's own names: i, j, a0, k0, sqrt, ..."""

    def __init__(self, function: Any, node: ast.Lambda, args: tuple[Any, ...]) -> None:
        a = node.args
        if a.vararg or a.kwarg or a.kwonlyargs:
            raise _OutsideError
        names = [p.arg for p in (*a.posonlyargs, *a.args)]
        defaults = function.__defaults__ or ()
        missing = len(names) - 2 - len(args)
        if missing < 0 or missing > len(defaults):
            raise _OutsideError
        self.i, self.j = names[:2]
        given = (*args, *defaults[len(defaults) - missing :])
        self.parameters = dict(zip(names[2:], given, strict=True))
        self.function = function
        self.cells = dict(zip(function.__code__.co_freevars, function.__closure__ or (), strict=True))
        self.loops: dict[str, str] = {}
        self.n_loops = 0
        self.arrays: list[Any] = []

    def declared(self) -> list[Declared]:
        return [Declared(f"a{k}", a.shape, None if a.ndim else float(a)) for k, a in enumerate(self.arrays)]

    def lookup(self, name: str) -> Any:
        if name in self.parameters:
            return self.parameters[name]
        if name in self.cells:
            try:
                return self.cells[name].cell_contents
            except ValueError:
                raise _OutsideError from None
        for scope in (self.function.__globals__, vars(builtins)):
            if name in scope:
                return scope[name]
        raise _OutsideError

    def meaning(self, e: ast.expr) -> Any:
        """Return the value of a name, or of a name in a module."""
        if isinstance(e, ast.Name):
            return self.lookup(e.id)
        if isinstance(e, ast.Attribute):
            module = self.meaning(e.value)
            # Only names in the module itself: attributes of others may be computed.
            if isinstance(module, types.ModuleType) and e.attr in vars(module):
                return vars(module)[e.attr]
        raise _OutsideError

    def visit_Name(self, e: ast.Name) -> ast.expr:
        if e.id in self.loops:
            return self.named(e, self.loops[e.id])
        if e.id in (self.i, self.j):
            return self.named(e, "i" if e.id == self.i else "j")
        return self.captured(e, self.lookup(e.id))

    def visit_Attribute(self, e: ast.Attribute) -> ast.expr:
        if e.attr == "shape" and isinstance(e.value, ast.Name):
            return ast.copy_location(ast.Attribute(self.visit(e.value), "shape", e.ctx), e)
        return self.captured(e, self.meaning(e))

    def captured(self, e: ast.expr, value: Any) -> ast.expr:
        if _KNOWN.get(id(value)) is not None:
            return self.named(e, _KNOWN[id(value)])
        if type(value) in (int, np.int64) and abs(value) <= EXACT:
            value = np.array(float(value))
        if type(value) in (float, np.float64) and value == value:
            value = np.array(float(value))
        good = type(value) is np.ndarray and value.dtype == np.float64 and value.dtype.isnative
        if not good or not (value.flags.c_contiguous and value.flags.aligned):
            raise _OutsideError
        place = next((k for k, a in enumerate(self.arrays) if a is value), len(self.arrays))
        if place == len(self.arrays):
            if place == MAX_ARRAYS:
                raise _OutsideError
            self.arrays.append(value)
        return self.named(e, f"a{place}")

    def visit_Call(self, e: ast.Call) -> ast.expr:
        if e.keywords or not isinstance(e.func, (ast.Name, ast.Attribute)):
            raise _OutsideError
        value = self.meaning(e.func)
        name = _KNOWN.get(id(value))
        # Other functions have a different meaning with extra arguments.
        if name is None or (isinstance(value, np.ufunc) and len(e.args) != value.nin):
            raise _OutsideError
        if name == "where" and any(map(_may_raise, e.args)):
            raise _OutsideError  # numpy also computes the operand that is not chosen
        arguments = [self.visit(argument) for argument in e.args]
        return ast.copy_location(ast.Call(self.named(e.func, name), arguments, []), e)

    def visit_GeneratorExp(self, e: ast.GeneratorExp) -> ast.expr:
        clause = e.generators[0]
        plain = len(e.generators) == 1 and not clause.ifs and not clause.is_async
        if not plain or not isinstance(clause.target, ast.Name):
            raise _OutsideError
        # Python evaluates the first iterable outside the generator's scope.
        size = self.visit(clause.iter)
        outer = dict(self.loops)
        self.loops[clause.target.id] = f"k{self.n_loops}"
        self.n_loops += 1
        body = self.visit(e.elt)
        target = self.named(clause.target, self.loops[clause.target.id])
        self.loops = outer
        loop = ast.comprehension(target, size, [], 0)
        return ast.copy_location(ast.GeneratorExp(body, [loop]), e)

    def visit_BinOp(self, e: ast.BinOp) -> ast.expr:
        links = [e]
        while isinstance(e.left, ast.BinOp):
            e = e.left
            links.append(e)
        left = self.visit(e.left)
        for link in reversed(links):
            right = self.visit(link.right)
            left = ast.copy_location(ast.BinOp(left, link.op, right), link)
        return left

    def visit_Lambda(self, e: ast.Lambda) -> ast.expr:
        raise _OutsideError

    def visit_Constant(self, e: ast.Constant) -> ast.expr:
        if isinstance(e.value, int) and abs(e.value) > EXACT:
            raise _OutsideError
        return e

    visit_ListComp = visit_SetComp = visit_DictComp = visit_NamedExpr = visit_Lambda  # type: ignore[assignment]

    @staticmethod
    def named(e: ast.expr, name: str) -> ast.expr:
        return ast.copy_location(ast.Name(name, ast.Load()), e)


def _may_raise(e: ast.expr) -> bool:
    risky = (ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.Call)
    return any(isinstance(below, risky) for below in ast.walk(e))


def _same_truth(node: Node, *, wanted: bool) -> bool:
    """Return whether ``and`` and ``or`` give 0 or 1 in Python too, or only their truth counts.

    wanted: only the node's truth is used.
    """
    match node:
        case Binary():
            first, operations = chain(node)
            parts = [first, *(operation.right for operation in operations)]
            return all(_same_truth(part, wanted=False) for part in parts)
        case Logic(_, operands):
            if not wanted and not all(isinstance(o, (Compare, Not, Logic)) for o in operands):
                return False
            return all(_same_truth(o, wanted=wanted) for o in operands)
        case Not(operand):
            return _same_truth(operand, wanted=True)
        case Choice(test, then, otherwise):
            below = _same_truth(then, wanted=wanted) and _same_truth(otherwise, wanted=wanted)
            return below and _same_truth(test, wanted=True)
    return all(_same_truth(child, wanted=False) for child in children(node))
