"""Bounds of an expression's costs, by interval arithmetic over its tree.

Rounding to nearest never changes the order of two results, so the ends of an interval, computed by
the same operation as the costs, enclose all results in between. Functions that are not rounded
correctly get a margin. The bounds do not cover NaN: as a cost it is an error.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from bigsap.sources.expression.syntax_tree import (
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

Interval: TypeAlias = tuple[float, float]

_ANY: Interval = (-math.inf, math.inf)
# Relative margin of functions within 2 units in the last place, on the CPU and on GPUs.
_MARGIN = 1e-14
# Functions that never give -0.0, which an interval cannot distinguish from 0.0.
_UNSIGNED = ("abs", "exp", "hypot")


def expression_range(expression: SyntaxTree, arrays: Sequence[Array]) -> Interval:
    """Return bounds of all costs that are numbers; infinite if nothing is known.

    O(size of the arrays) and a few thousand operations.
    """
    with np.errstate(all="ignore"):
        return _Ranges(expression, arrays).of(expression.root)


class _Ranges:
    def __init__(self, expression: SyntaxTree, arrays: Sequence[Array]) -> None:
        n, m = expression.shape
        self._letters = {
            "i": (0.0, float(n - 1)),
            "j": (0.0, float(m - 1)),
            "n": (float(n), float(n)),
            "m": (float(m), float(m)),
        }
        self._arrays = arrays
        self._counts: dict[Loop, int] = {}

    def of(self, node: Node) -> Interval:
        """Return the interval of one node, for the case that nothing in it is NaN."""
        low, high = self._of(node)
        return (low, high) if low <= high else _ANY

    def _of(self, node: Node) -> Interval:
        match node:
            case Number(value):
                return value, value
            case Variable(name):
                return self._letters[name]
            case Loop():
                return 0.0, float(max(0, self._counts[node] - 1))
            case Scalar(array):
                value = float(self._arrays[array])
                return value, value
            case Load(array, _, second):
                values = self._arrays[array]
                if isinstance(second, int):
                    values = values[:, second]
                return (float(values.min()), float(values.max())) if values.size else _ANY
            case Negate(operand):
                low, high = self.of(operand)
                return -high, -low
            case Compare() | Not() | Logic():
                return 0.0, 1.0
            case Choice(_, then, otherwise):
                return _hull(self.of(then), self.of(otherwise))
            case Call(function, arguments):
                return _call(function, [self.of(argument) for argument in arguments])
            case SumOver(loop, count, body):
                self._counts[loop] = count
                return self._sum(count, self.of(body))
            case Binary():
                return self._chain(node)

    def _chain(self, node: Binary) -> Interval:
        first, operations = chain(node)
        result = self.of(first)
        for operation in operations:
            if operation.operator == "*" and operation.left == operation.right:
                low, high = _square(result)
            elif operation.operator == "**":
                unsigned = isinstance(operation.left, Call) and operation.left.function in _UNSIGNED
                low, high = _power(result, self.of(operation.right), unsigned=unsigned)
            else:
                low, high = _BINARY[operation.operator](result, self.of(operation.right))
            result = (low, high) if low <= high else _ANY
        return result

    @staticmethod
    def _sum(count: int, body: Interval) -> Interval:
        low = high = 0.0
        for _ in range(count):  # as the costs are: rounded at each term
            low, high = low + body[0], high + body[1]
        return low, high


def _hull(*intervals: Interval) -> Interval:
    lows, highs = zip(*intervals, strict=True)
    return min(lows), max(highs)


def _ends(values: Sequence[float]) -> Interval:
    """Return the interval of a function that is monotone in each argument, from the corners."""
    return _ANY if any(map(math.isnan, values)) else (min(values), max(values))


def _wider(interval: Interval) -> Interval:
    low, high = interval
    return low - _MARGIN * abs(low), high + _MARGIN * abs(high)


def _square(a: Interval) -> Interval:
    low, high = _ends([a[0] * a[0], a[1] * a[1]])
    return (0.0 if a[0] <= 0 <= a[1] else low), high


def _times(a: Interval, b: Interval) -> Interval:
    return _ends([x * y for x in a for y in b])


def _divided(a: Interval, b: Interval) -> Interval:
    if b[0] <= 0 <= b[1]:
        return _ANY
    return _ends([x / y for x in a for y in b])


def _remainder(a: Interval, b: Interval) -> Interval:
    """Return the interval of a remainder, which has the divisor's sign; division by 0 is NaN."""
    return min(b[0], 0.0), max(b[1], 0.0)


def _power(a: Interval, b: Interval, *, unsigned: bool) -> Interval:
    """Return the interval of a power, with C's special cases.

    pow of -inf is infinite for fractional exponents too, and a negative odd power of -0.0 is -inf.
    unsigned: no zero in ``a`` has a sign.
    """
    exponent = b[0]
    positive = a[0] > 0 or (a[0] == 0 and (unsigned or b[0] >= 0))
    if b[0] != b[1]:
        return (0.0, math.inf) if positive else _ANY
    if math.isinf(exponent):
        return 0.0, math.inf
    if exponent in (2, 4):
        square = _square(a)
        return square if exponent == 2 else _square(square)
    if exponent == 3:
        return _ends([(x * x) * x for x in a])
    whole = exponent == math.floor(exponent)
    if exponent > 0 and not (whole and a[0] < 0):
        # Powers of negative numbers are NaN here.
        low, high = (float(np.float64(max(0.0, x)) ** exponent) for x in a)
        return _wider((low, math.inf if a[0] == -math.inf else high))
    return (0.0, math.inf) if positive or (whole and exponent % 2 == 0) else _ANY


_BINARY: dict[str, Callable[[Interval, Interval], Interval]] = {
    "+": lambda a, b: (a[0] + b[0], a[1] + b[1]),
    "-": lambda a, b: (a[0] - b[1], a[1] - b[0]),
    "*": _times,
    "/": _divided,
    "//": lambda a, b: _ANY,
    "%": _remainder,
}


def _call(function: str, given: list[Interval]) -> Interval:
    low, high = given[0]
    match function:
        case "abs":
            inside = low <= 0 <= high
            return (0.0 if inside else min(abs(low), abs(high))), max(abs(low), abs(high))
        case "sqrt":
            return math.sqrt(max(0.0, low)), math.sqrt(max(0.0, high))
        case "floor":
            return float(np.floor(low)), float(np.floor(high))
        case "exp":
            return _wider((float(np.exp(low)), float(np.exp(high))))
        case "log":
            return _wider((float(np.log(max(0.0, low))), float(np.log(max(0.0, high)))))
        case "sin" | "cos":
            return -1.0, 1.0
        case "atan2":
            return _wider((-math.pi, math.pi))
        case "hypot":
            least, most = zip(*(_call("abs", [side]) for side in given), strict=True)
            return _wider((math.hypot(*least), math.hypot(*most)))
        case "min":
            return min(low for low, _ in given), min(high for _, high in given)
        case "max":
            return max(low for low, _ in given), max(high for _, high in given)
    return _ANY
