"""From Python's tree to a checked tree: the whitelist of the expression language.

Nothing is ever run: every node of Python's tree is either rebuilt as one of ``syntax_tree`` or
refused with its column.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Iterable
from typing import Any, NoReturn, cast

from bigsap.errors import ExpressionError
from bigsap.sources.expression.source_text import failure, read
from bigsap.sources.expression.syntax_tree import (
    FUNCTIONS,
    MAX_DEPTH,
    MAX_NESTED_TERMS,
    MAX_NODES,
    MAX_SUMS,
    MAX_TERMS,
    RESERVED,
    Binary,
    Call,
    Choice,
    Compare,
    Declared,
    Load,
    Logic,
    Loop,
    Negate,
    Node,
    Not,
    Number,
    Scalar,
    Side,
    SumOver,
    SyntaxTree,
    Variable,
)

_OPERATORS: dict[type[ast.operator], Any] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
}
_COMPARISONS: dict[type[ast.cmpop], str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}

#: Names in messages for syntax of Python that the language lacks.
_FOREIGN: dict[type[ast.AST], str] = {
    ast.Attribute: "attribute access",
    ast.Lambda: "lambda",
    ast.NamedExpr: "assignment",
    ast.ListComp: "a list",
    ast.SetComp: "a set",
    ast.DictComp: "a dictionary",
    ast.List: "a list",
    ast.Set: "a set",
    ast.Dict: "a dictionary",
    ast.Tuple: "a tuple",
    ast.Starred: "a star argument",
    ast.Slice: "a slice",
    ast.Await: "await",
    ast.Yield: "yield",
    ast.YieldFrom: "yield",
    ast.JoinedStr: "a string",
}


def parse(code: str, shape: tuple[int, int], declared: Iterable[Declared]) -> SyntaxTree:
    """Return the checked tree of a text; raise ExpressionError with the offending column."""
    body, line, start = read(code)
    return check(body, shape, declared, line, start)


def check(
    body: ast.expr, shape: tuple[int, int], declared: Iterable[Declared], line: str = "", start: int = 0
) -> SyntaxTree:
    """Return the tree for a Python tree; raise ExpressionError. ``line[start:]`` is its text."""
    names = tuple(declared)
    checker = _Checker(shape, names, line, start)
    root = checker.node(body, 1)
    return SyntaxTree(root, shape, names, checker.operations)


def _chained(e: ast.BinOp, left: ast.BinOp) -> bool:
    """Return whether an operation and its left operand are part of one chain."""
    sums = (ast.Add, ast.Sub)
    if isinstance(e.op, sums):
        return isinstance(left.op, sums)
    return isinstance(e.op, ast.Mult) and isinstance(left.op, ast.Mult)


class _Checker:
    """Rebuilds a Python tree node by node; ``operations`` counts as it goes."""

    def __init__(self, shape: tuple[int, int], declared: tuple[Declared, ...], line: str, start: int) -> None:
        self.shape = shape
        self.declared = {d.name: (k, d) for k, d in enumerate(declared)}
        self.line = line
        self.start = start
        self.nodes = 0
        self.operations = 0
        self.terms = 1
        self.n_loops = 0
        # The loops around the present node: their names, numbers and counts.
        self.loops: dict[str, tuple[Loop, int]] = {}

    def fail(self, at: ast.expr | ast.keyword | int, what: str) -> NoReturn:
        raise self.failure(at, what)

    def failure(self, at: ast.expr | ast.keyword | int, what: str) -> ExpressionError:
        column = at if isinstance(at, int) else at.col_offset
        if isinstance(at, ast.Attribute):
            column = (at.end_col_offset or 0) - len(at.attr)
        return failure(self.line, self.start + column + 1, what)

    def node(self, e: ast.expr, depth: int) -> Node:
        if depth > MAX_DEPTH:
            self.fail(e, f"nested too deeply; at most {MAX_DEPTH} levels are allowed")
        self.count_node(e)
        match e:
            case ast.Constant():
                return self.number(e)
            case ast.Name():
                return self.name(e)
            case ast.Subscript():
                return self.load(e)
            case ast.UnaryOp():
                return self.unary(e, depth)
            case ast.BinOp():
                return self.binary(e, depth)
            case ast.Compare():
                return self.compare(e, depth)
            case ast.BoolOp():
                operator: Any = "and" if isinstance(e.op, ast.And) else "or"
                return Logic(operator, self.each(e.values, depth))
            case ast.IfExp():
                return Choice(*self.each([e.test, e.body, e.orelse], depth))
            case ast.Call():
                return self.call(e, depth)
            case ast.GeneratorExp():
                raise self.failure(e, "a 'for' is allowed only in sum(... for k in range(D))")
        raise self.failure(e, f"{_FOREIGN.get(type(e), type(e).__name__)} is not allowed")

    def count_node(self, e: ast.expr) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            self.fail(e, f"too long; at most {MAX_NODES} numbers, names and operations")
        self.operations += self.terms

    def each(self, parts: Iterable[ast.expr], depth: int) -> tuple[Node, ...]:
        return tuple(self.node(part, depth + 1) for part in parts)

    def number(self, e: ast.Constant) -> Node:
        if type(e.value) not in (int, float):
            self.fail(e, f"{e.value!r} is not a number")
        try:
            return Number(float(cast(float, e.value)))
        except OverflowError:
            self.fail(e, "this integer is too large for float64")

    def name(self, e: ast.Name) -> Node:
        name = e.id
        if name in ("i", "j", "n", "m"):
            return Variable(cast(Any, name))
        if name == "inf":
            return Number(math.inf)
        if name in self.loops:
            return self.loops[name][0]
        if name in FUNCTIONS or name in ("sum", "range"):
            self.fail(e, f"{name} is a function and must be called")
        if name not in self.declared:
            self.fail(e, f"unknown name {name!r}; {self.known()}")
        place, entry = self.declared[name]
        if entry.shape:
            subscripts = "[i]" if len(entry.shape) == 1 else "[i, 0]"
            self.fail(e, f"{name} is an array and must be subscripted, as in {name}{subscripts}")
        return Scalar(place)

    def known(self) -> str:
        names = [*self.loops, *self.declared]
        return "declared are " + ", ".join(names) if names else "no arrays are declared"

    def load(self, e: ast.Subscript) -> Node:
        if not isinstance(e.value, ast.Name):
            if isinstance(e.value, ast.Subscript):
                self.fail(e, "write both subscripts in one pair of brackets, as in x[i, k]")
            if isinstance(e.value, ast.Attribute):
                self.node(e.value, 1)
            self.fail(e.value, "only a declared array can be subscripted")
        name = e.value.id
        if name not in self.declared or not self.declared[name][1].shape:
            what = "is no array" if name in RESERVED | {*self.loops, *self.declared} else ""
            self.fail(e, f"{name} {what}" if what else f"unknown array {name!r}; {self.known()}")
        place, entry = self.declared[name]
        subscripts = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
        if len(subscripts) != len(entry.shape):
            self.fail(e, f"{name} has shape {entry.shape}: it takes {len(entry.shape)} subscript(s)")
        first = subscripts[0]
        if not isinstance(first, ast.Name) or first.id not in ("i", "j"):
            self.fail(first, "the first subscript must be i or j, and nothing else")
        size = self.shape[0 if first.id == "i" else 1]
        if entry.shape[0] != size:
            side = "rows" if first.id == "i" else "columns"
            self.fail(first, f"{first.id} counts {size} {side}, but {name} has {entry.shape[0]} entries")
        second = self.second(subscripts[1], name, entry.shape[1]) if subscripts[1:] else None
        return Load(place, cast(Side, first.id), second)

    def second(self, e: ast.expr, name: str, width: int) -> int | Loop:
        if isinstance(e, ast.Name) and e.id in self.loops:
            loop, count = self.loops[e.id]
            if count > width:
                self.fail(e, f"{e.id} runs up to {count - 1}, but {name} has width {width}")
            return loop
        if isinstance(e, ast.Constant) and type(e.value) is int:
            if e.value >= width:
                self.fail(e, f"out of range: {name} has width {width}")
            return e.value
        what = "the second subscript must be a whole number (0 or more) or the index of a sum"
        raise self.failure(e, what)

    def unary(self, e: ast.UnaryOp, depth: int) -> Node:
        if isinstance(e.op, ast.Invert):
            self.fail(e, "the operator ~ is not allowed")
        operand = self.node(e.operand, depth + 1)
        if isinstance(e.op, ast.UAdd):
            return operand
        return Negate(operand) if isinstance(e.op, ast.USub) else Not(operand)

    def binary(self, e: ast.BinOp, depth: int) -> Node:
        links = [e]
        while isinstance(e.left, ast.BinOp) and _chained(e, e.left):
            e = e.left
            links.append(e)
            self.count_node(e)
        if type(e.op) not in _OPERATORS:
            self.fail(self.between(e.left, e.right), "this operator is not allowed")
        left = self.node(e.left, depth + 1)
        for link in reversed(links):
            left = Binary(_OPERATORS[type(link.op)], left, self.node(link.right, depth + 1))
        return left

    def compare(self, e: ast.Compare, depth: int) -> Node:
        operators = []
        operands = [e.left, *e.comparators]
        for k, op in enumerate(e.ops):
            if type(op) not in _COMPARISONS:
                at = self.between(operands[k], operands[k + 1])
                self.fail(at, "this comparison is not allowed")
            operators.append(_COMPARISONS[type(op)])
        return Compare(tuple(operators), self.each(operands, depth))

    def between(self, left: ast.expr, right: ast.expr) -> int:
        """Return the position of the operator between two operands."""
        at = left.end_col_offset or 0
        while at < right.col_offset and self.line[self.start + at : self.start + at + 1] in " )":
            at += 1
        return at

    def call(self, e: ast.Call, depth: int) -> Node:
        if not isinstance(e.func, ast.Name):
            if isinstance(e.func, ast.Attribute):
                self.fail(e.func, "attribute access is not allowed")
            self.fail(e.func, "only the functions of this language can be called")
        name = e.func.id
        if name == "sum":
            return self.sum(e, depth)
        if name not in FUNCTIONS:
            known = ", ".join([*FUNCTIONS, "sum"])
            self.fail(e, f"{name} is no function of this language; it has {known}")
        self.plain_arguments(e)
        fewest, most = FUNCTIONS[name]
        if not fewest <= len(e.args) <= most:
            wanted = str(fewest) if fewest == most else f"at least {fewest}"
            self.fail(e, f"{name} takes {wanted} argument(s), got {len(e.args)}")
        arguments = self.each(e.args, depth)
        return Choice(*arguments) if name == "where" else Call(name, arguments)

    def plain_arguments(self, e: ast.Call) -> None:
        if e.keywords:
            self.fail(e.keywords[0], "keyword arguments are not allowed")
        for argument in e.args:
            if isinstance(argument, ast.Starred):
                self.fail(argument, "a star argument is not allowed")

    def sum(self, e: ast.Call, depth: int) -> Node:
        self.plain_arguments(e)
        form = "sum must be written sum(... for k in range(D))"
        if len(e.args) != 1 or not isinstance(e.args[0], ast.GeneratorExp):
            self.fail(e, form)
        inner = e.args[0]
        if len(inner.generators) != 1:
            self.fail(inner.generators[1].target, "one 'for' a sum; write a sum within the sum")
        clause = inner.generators[0]
        if clause.is_async:
            self.fail(clause.target, form)
        if clause.ifs:
            self.fail(clause.ifs[0], "no 'if' in a sum; use where(condition, term, 0)")
        target = clause.target
        if not isinstance(target, ast.Name):
            self.fail(target, form)
        name = target.id
        if name in RESERVED or name in self.loops or name in self.declared or name[0] == "_":
            self.fail(
                target,
                f"{name!r} cannot be the index of a sum: it begins with an"
                " underscore or has another meaning here",
            )
        count = self.count(clause.iter, inner.elt, name, form)
        terms = self.terms
        self.terms *= max(1, count)
        if self.terms > MAX_NESTED_TERMS:
            self.fail(e, f"sums within sums have {self.terms} terms; at most {MAX_NESTED_TERMS}")
        if self.n_loops == MAX_SUMS:
            self.fail(e, f"at most {MAX_SUMS} sums are allowed")
        loop = Loop(self.n_loops)
        self.n_loops += 1
        self.loops[name] = loop, count
        body = self.node(inner.elt, depth + 1)
        del self.loops[name]
        self.terms = terms
        return SumOver(loop, count, body)

    def count(self, e: ast.expr, body: ast.expr, loop: str, form: str) -> int:
        """Return the D of ``range(D)``."""
        called = isinstance(e, ast.Call) and isinstance(e.func, ast.Name) and e.func.id == "range"
        if not called:
            self.fail(e, form)
        call = cast(ast.Call, e)
        self.plain_arguments(call)
        if len(call.args) != 1:
            self.fail(call, "range takes 1 argument here, the number of terms")
        size = call.args[0]
        found = self.size(size, body, loop)
        if found is None:
            self.fail(
                size,
                "the number of terms must be a whole number, x.shape[1] of a declared array,"
                " a declared whole number, or D, the width of the arrays in the sum",
            )
        if found > MAX_TERMS:
            self.fail(size, f"at most {MAX_TERMS} terms are allowed, got {found}")
        return found

    def size(self, e: ast.expr, body: ast.expr, loop: str) -> int | None:
        match e:
            case ast.Constant(value=int(value)) if type(value) is int:
                return value
            case ast.Subscript(
                value=ast.Attribute(value=ast.Name(id=name), attr="shape"), slice=ast.Constant(value=1)
            ) if name in self.declared:
                return self.width(name)
            case ast.Name(id=name) if name in self.declared:
                number = self.declared[name][1].value
                whole = number is not None and number >= 0 and number.is_integer()
                return int(cast(float, number)) if whole else None
            case ast.Name(id="D"):
                widths = set(self.widths(body, loop))
                return widths.pop() if len(widths) == 1 else None
        return None

    def width(self, name: str) -> int | None:
        shape = self.declared[name][1].shape
        return shape[1] if len(shape) == 2 else None

    def widths(self, body: ast.expr, loop: str) -> Iterable[int]:
        """Yield the widths of the arrays that the index of a sum subscripts."""
        for e in ast.walk(body):
            match e:
                case ast.Subscript(
                    value=ast.Name(id=name), slice=ast.Tuple(elts=[_, ast.Name(id=second)])
                ) if second == loop and name in self.declared:
                    width = self.width(name)
                    if width is not None:
                        yield width
