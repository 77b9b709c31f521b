"""Some costs of an expression, computed by numpy if compiling would take too long.

The same operations in the same order; functions may differ from the compiled ones in the last bit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bigsap.sources.expression.syntax_tree import (
    POWERS,
    Binary,
    Call,
    Choice,
    Compare,
    Load,
    Logic,
    Loop,
    Negate,
    Node,
    Not,
    Number,
    Scalar,
    SumOver,
    SyntaxTree,
    Variable,
    chain,
)
from bigsap.types import Array

_Operation = Callable[[Any, Any], Any]


def _power(left: Any, right: Any) -> Any:
    """Return C's pow. For 0.5 numpy takes a square root, which differs for -inf and -0.0."""
    found = np.power(left, right)
    root = np.equal(right, 0.5) & (np.isneginf(left) | np.equal(left, 0.0))
    return np.where(root, np.abs(left), found)


_ARITHMETIC: dict[str, _Operation] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "/": np.divide,
    "//": np.floor_divide,
    "%": np.mod,
    "**": _power,
}
_COMPARISONS: dict[str, _Operation] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "abs": np.abs,
    "sqrt": np.sqrt,
    "exp": np.exp,
    "log": np.log,
    "sin": np.sin,
    "cos": np.cos,
    "floor": np.floor,
    "atan2": np.arctan2,
    "hypot": np.hypot,
}


def sampled(expression: SyntaxTree, arrays: Sequence[Array], i: Array, j: Array) -> Array:
    """Return the costs of the pairs ``i[p], j[p]``, float64 (k,). O(k operations)."""
    with np.errstate(all="ignore"):
        found = _Sampler(expression, arrays, i, j).of(expression.root)
    return np.broadcast_to(np.asarray(found, np.float64), i.shape).copy()


class _Sampler:
    def __init__(self, expression: SyntaxTree, arrays: Sequence[Array], i: Array, j: Array) -> None:
        n, m = expression.shape
        self._sides = {"i": i, "j": j}
        self._letters: dict[str, Any] = {
            "i": i.astype(np.float64),
            "j": j.astype(np.float64),
            "n": float(n),
            "m": float(m),
        }
        self._arrays = arrays
        self._at: dict[Loop, int] = {}

    def of(self, node: Node) -> Any:
        match node:
            case Number(value):
                return np.float64(value)
            case Variable(name):
                return self._letters[name]
            case Loop():
                return np.float64(self._at[node])
            case Scalar(array):
                return np.float64(self._arrays[array])
            case Load(array, side, second):
                values = self._arrays[array][self._sides[side]]
                if second is None:
                    return values
                return values[:, self._at[second] if isinstance(second, Loop) else second]
            case Negate(operand):
                return -self.of(operand)
            case Binary():
                first, operations = chain(node)
                result = self.of(first)
                for operation in operations:
                    match operation:
                        case Binary("**", _, Number(exponent)) if exponent in POWERS:
                            square = result * result
                            other = {2.0: 1.0, 3.0: result, 4.0: square}[exponent]
                            result = square * other
                        case _:
                            right = self.of(operation.right)
                            result = _ARITHMETIC[operation.operator](result, right)
                return result
            case Compare(operators, operands):
                sides = [self.of(operand) for operand in operands]
                pairs = zip(operators, sides, sides[1:], strict=False)
                return _all([_COMPARISONS[o](a, b) for o, a, b in pairs])
            case Not(operand):
                return np.equal(self.of(operand), 0.0) * 1.0
            case Logic(operator, operands):
                truths = [np.not_equal(self.of(operand), 0.0) for operand in operands]
                if operator == "and":
                    return _all(truths)
                return 1.0 - _all([~truth for truth in truths])
            case Choice(test, then, otherwise):
                chosen = np.not_equal(self.of(test), 0.0)
                return np.where(chosen, self.of(then), self.of(otherwise))
            case Call("min" | "max" as name, arguments):
                given = [self.of(argument) for argument in arguments]
                result = given[0]
                for value in given[1:]:
                    # Of equal arguments the first, as 0.0 and -0.0 are; NaN if one is.
                    kept = result <= value if name == "min" else result >= value
                    result = np.where(kept | np.isnan(result), result, value)
                return result
            case Call(function, arguments):
                return _FUNCTIONS[function](*(self.of(argument) for argument in arguments))
            case SumOver(loop, count, body):
                total: Any = np.float64(0.0)
                for self._at[loop] in range(count):
                    total = total + self.of(body)
                return total


def _all(truths: list[Any]) -> Any:
    held = truths[0]
    for truth in truths[1:]:
        held = held & truth
    return held * 1.0
