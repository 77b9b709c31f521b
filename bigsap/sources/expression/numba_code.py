"""A tree as a compiled filler (``base.Fill``).

Context words: n, m, then one a declared name: an array's address or a number's bits.
The code depends on the tree and the arrays' widths only, so it serves all data.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import numba
import numpy as np
from numba.np import numpy_support

from bigsap.sources.compiled import FILL_SIGNATURE, call_recover, pointer_f8, pointer_i8
from bigsap.sources.expression.emit import Emitter
from bigsap.sources.expression.syntax_tree import (
    Choice,
    Load,
    Loop,
    Node,
    SumOver,
    SyntaxTree,
    Variable,
    walk,
)

# numba's annotations describe the inside of its decorators, not their results.
types: Any = numba.types
_inline: Any = numba.njit(error_model="numpy")

# From the C library: numba has no fmod, and its own hypot is less exact.
_BINARY: Any = types.float64(types.float64, types.float64)
_c_hypot: Any = types.ExternalFunction("hypot", _BINARY)
_c_fmod: Any = types.ExternalFunction("fmod", _BINARY)


# Branches, not tests of equality with a copy, keep the first of equal arguments (0.0, -0.0).
@_inline
def _min(a: float, b: float) -> float:
    return a if a <= b or a != a else b


@_inline
def _max(a: float, b: float) -> float:
    return a if a >= b or a != a else b


@_inline
def _number(truth: bool) -> float:
    return 1.0 if truth else 0.0


@_inline
def _either(test: float, then: bool, otherwise: bool) -> bool:
    return then if test != 0.0 else otherwise


@_inline
def _choose(test: float, then: float, otherwise: float) -> float:
    return then if test != 0.0 else otherwise


# As CPython's float_rem and float_floor_div, but division by zero as in numpy: NaN, and a / b.
@_inline
def _modulo(a: float, b: float) -> float:
    r = _c_fmod(a, b)
    if r == 0.0:
        return math.copysign(0.0, b)
    return r + b if (b < 0.0) != (r < 0.0) else r


@_inline
def _floor_divide(a: float, b: float) -> float:
    if b == 0.0:
        return a / b
    r = _c_fmod(a, b)
    q = (a - r) / b
    if r != 0.0 and (b < 0.0) != (r < 0.0):
        q -= 1.0
    if q == 0.0:
        return math.copysign(0.0, a / b)
    f: float = np.floor(q)
    return f + 1.0 if q - f > 0.5 else f


@_inline
def _hypot(a: float, b: float) -> float:
    return _c_hypot(a, b)


@_inline
def _atan2(a: float, b: float) -> float:
    return math.atan2(a, b)


_SCOPE: dict[str, Any] = {
    "carray": numpy_support.carray,
    "pointer_i8": pointer_i8,
    "recover": call_recover,
    "nan": math.nan,
    "pointer_f8": pointer_f8,
    "inf": math.inf,
    "f_abs": abs,
    "f_sqrt": math.sqrt,
    "f_exp": math.exp,
    "f_log": math.log,
    "f_sin": math.sin,
    "f_cos": math.cos,
    "f_floor": np.floor,
    "f_power": math.pow,
    "f_atan2": _atan2,
    "f_hypot": _hypot,
    "f_number": _number,
    "f_choose": _choose,
    "f_either": _either,
    "f_min": _min,
    "f_max": _max,
    "f_modulo": _modulo,
    "f_floor_divide": _floor_divide,
}


def filler(expression: SyntaxTree, *, swapped: bool) -> Any:
    """Return the compiled cfunc that fills parts of rows; keep it while its address is used.

    swapped: rows of the transpose, which run over i at a fixed j.
    """
    return compile_text(fill_text(expression, NumbaEmitter(), swapped=swapped))


@lru_cache(maxsize=256)
def compile_text(text: str) -> Any:
    """Return the cfunc of a text of ``fill_text``; the same for equal texts."""
    scope = dict(_SCOPE)
    exec(compile(text, "<bigsap expression>", "exec"), scope)
    body = numba.njit(nogil=True, error_model="numpy")(scope["fill"])
    scope = {"body": body}
    exec(_ENTRY, scope)
    cfunc: Any = numba.cfunc
    return cfunc(FILL_SIGNATURE)(scope["entry"])


_ENTRY = """
def entry(context, row, start, stop, out):
    body(context, row, start, stop, out)
"""


def fill_text(
    expression: SyntaxTree,
    emitter: NumbaEmitter,
    *,
    swapped: bool,
    n_words: int = 0,
    tail: Sequence[str] = (),
) -> str:
    """Return Python source of the fill function, made from the tree alone.

    n_words: words of the context beyond those of the tree. tail: code after the loop.
    """
    row_side = "j" if swapped else "i"
    column_side = "i" if swapped else "j"
    nodes = walk(expression.root)
    loads = sorted({_key(node) for node in nodes if isinstance(node, Load)}, key=repr)
    result = emitter.cost(expression.root)

    n_words += 2 + len(expression.declared)
    head = [
        "def fill(context, row, start, stop, out):",
        f"    words = carray(pointer_i8(context), {n_words})",
        f"    floats = carray(pointer_f8(context), {n_words})",
        "    n_value = float(words[0])",
        "    m_value = float(words[1])",
        f"    {row_side}_value = float(row)",
        "    size = stop - start",
        "    costs = carray(pointer_f8(out), size)",
    ]
    for k, declared in enumerate(expression.declared):
        if not declared.shape:
            head.append(f"    a{k} = floats[{2 + k}]")
    # Views that begin at the row or the first column have non-negative indices, which numba would
    # otherwise test each time.
    for array, side in sorted({(array, side) for array, side, _ in loads}):
        shape = expression.declared[array].shape
        width = shape[1] if len(shape) == 2 else 1
        first, size = ("row", "1") if side == row_side else ("start", "size")
        head.append(
            f"    {side}{array} = carray(pointer_f8(words[{2 + array}] + {8 * width} * {first}),"
            f" ({size}, {width}))"
        )
    # Load before the branches: branches without loads vectorise.
    ahead: dict[str, list[str]] = {"i": [], "j": []}
    for array, side, second in loads:
        if not isinstance(second, Loop):
            at = "0" if side == row_side else "t"
            ahead[side].append(f"{_loaded(array, side, second)} = {side}{array}[{at}, {second or 0}]")
    head += [f"    {text}" for text in ahead[row_side]]
    head.append("    for t in range(size):")
    if Variable(column_side) in nodes:  # type: ignore[arg-type]
        head.append(f"        {column_side}_value = float(start + t)")
    head += [f"        {text}" for text in ahead[column_side]]
    body = [line.replace("@row", "0" if row_side == "i" else "t") for line in emitter.lines]
    body = [line.replace("@column", "t" if row_side == "i" else "0") for line in body]
    end = [f"        costs[t] = {result}", *(f"    {line}" for line in tail), ""]
    return "\n".join([*head, *body, *end])


def _key(load: Load) -> tuple[int, str, int | Loop | None]:
    return load.array, load.side, load.second


def _loaded(array: int, side: str, second: int | None) -> str:
    return f"{side}{array}_{second or 0}"


def has_sum(nodes: Iterable[Node]) -> bool:
    """Return whether one of them contains a sum, which is worth a branch."""
    return any(isinstance(below, SumOver) for node in nodes for below in walk(node))


class NumbaEmitter(Emitter):
    """Writes the body of the loop over a part of a row."""

    def __init__(self) -> None:
        super().__init__(2)

    def cost(self, root: Node) -> str:
        """Write the statements of a cost; return the text of its value."""
        return self.value(root)

    def constant(self, number: float) -> str:
        return repr(number)

    def value(self, node: Any) -> str:
        if isinstance(node, Load) and not isinstance(node.second, Loop):
            return _loaded(node.array, node.side, node.second)
        return super().value(node)

    def load(self, node: Load) -> str:
        at = "@row" if node.side == "i" else "@column"
        assert isinstance(node.second, Loop)
        return f"{node.side}{node.array}[{at}, k{node.second.number}]"

    def arithmetic(self, operator: str, left: str, right: str) -> str:
        return f"{left} {operator} {right}"

    def call(self, function: str, names: list[str]) -> str:
        return f"f_{function}({', '.join(names)})"

    def truth(self, conditions: list[str]) -> str:
        return f"f_number({' & '.join(f'({condition})' for condition in conditions)})"

    # Branches cost numba's compiler far more than statements (minutes for hundreds of them), and
    # they prevent vectorisation: so they are written only around sums, which are worth skipping.
    def logic(self, all_hold: bool, operands: tuple[Node, ...]) -> str:
        if has_sum(operands):
            return super().logic(all_hold, operands)
        held = [self.let(f"{self.value(operand)} != 0.0") for operand in operands]
        result = held[0]
        for name in held[1:]:
            result = self.let(f"{result} {'&' if all_hold else '|'} {name}")
        return self.let(f"f_number({result})")

    def choice(self, node: Choice) -> str:
        if has_sum((node.then, node.otherwise)):
            return super().choice(node)
        names = [self.value(part) for part in (node.test, node.then, node.otherwise)]
        return self.let(self.call("choose", names))

    def declare(self, name: str, text: str) -> None:
        self.line(f"{name} = {text}")

    def assign(self, name: str, text: str) -> None:
        self.line(f"{name} = {text}")

    def open_if(self, condition: str) -> None:
        self.line(f"if {condition}:")
        self.indent += 1

    def open_else(self) -> None:
        self.indent -= 1
        self.line("else:")
        self.indent += 1

    def open_for(self, index: str, count: int) -> None:
        self.line(f"for {index} in range({count}):")
        self.indent += 1
        self.line(f"{index}_value = float({index})")

    def close(self) -> None:
        self.indent -= 1
