"""Analysis of a Python expression: where it may hold integers, and their size.

Python's integers are exact at any size, float64's up to 2**53; and numpy's truth values have
different arithmetic.
"""

from __future__ import annotations

import math

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
    walk,
)

#: Integers up to this size are exact in float64.
EXACT = 2.0**53


class Integers:
    """The nodes at which Python may compute with integers, and the size of these."""

    def __init__(self, expression: SyntaxTree) -> None:
        n, m = expression.shape
        self._sizes = {"i": n, "j": m, "n": n, "m": m}
        self._declared = expression.declared
        self._counts: dict[Loop, int] = {}

    def enter(self, node: SumOver) -> None:
        """Enter a sum: the following nodes are within it."""
        self._counts[node.loop] = node.count

    def may_round(self, node: Node) -> bool:
        """Return whether a node may be an integer that float64 cannot hold."""
        return self.possible(node) and not self.size(node) <= EXACT

    def possible(self, node: Node) -> bool:
        """Return whether Python may hold an integer at a node."""
        match node:
            case Number(value):
                return value.is_integer() and value <= EXACT
            case Scalar(array):
                value = self._declared[array].value or 0.0
                return value.is_integer() and abs(value) <= EXACT
            case Negate(operand):
                return self.possible(operand)
            case Binary():
                first, operations = chain(node)
                return self.possible(first) and all(
                    operation.operator != "/" and self.possible(operation.right) for operation in operations
                )
            case Choice(_, then, otherwise):
                return self.possible(then) or self.possible(otherwise)
            case Call("floor"):
                return True
            case Call("abs" | "min" | "max", arguments):
                return any(self.possible(argument) for argument in arguments)
            case SumOver(_, _, body):
                return self.possible(body)
            case Load() | Call():
                return False
        return True

    def may_lose_sign(self, node: Node) -> bool:
        """Return whether a node may be an integer 0 that float64 represents as -0."""
        return self.possible(node) and not isinstance(node, (Variable, Loop, Number))

    def size(self, node: Node) -> float:
        """Return a bound of the size of integers at a node, if those below it are exact."""
        match node:
            case Number(value):
                return value
            case Variable(letter):
                return float(self._sizes[letter])
            case Loop():
                return float(self._counts.get(node, math.inf))
            case Scalar(array):
                return abs(self._declared[array].value or 0.0)
            case Negate(operand):
                return self.size(operand)
            case Binary():
                first, operations = chain(node)
                size = self.size(first)
                for operation in operations:
                    right = operation.right
                    size = self._size_of_binary(operation.operator, size, self.size(right), right)
                return size
            case Compare() | Not() | Logic():
                return 1.0
            case Choice(_, then, otherwise):
                return max(self.size(then), self.size(otherwise))
            case Call("abs" | "floor" | "min" | "max", arguments):
                return max(self.size(argument) for argument in arguments)
            case SumOver(_, count, body):
                self.enter(node)
                return count * self.size(body) if count else 0.0
        return math.inf

    @staticmethod
    def _size_of_binary(operator: str, left: float, right: float, exponent: Node) -> float:
        if operator in "+-":
            return left + right
        if operator == "*":
            return left * right if left and right else 0.0
        if operator == "//":
            return left + 1
        if operator == "%":
            return right
        if operator == "**" and isinstance(exponent, Number):
            try:
                return float(max(1.0, left) ** exponent.value)
            except OverflowError:
                return math.inf
        return math.inf


def keeps_pythons_numbers(expression: SyntaxTree) -> bool:
    """Return whether all nodes have the same meaning in Python, without undetected differences.

    Sums and negatives of two truth values are logic if numpy made them, functions of them have half
    precision; and integers have no -0, for which atan2 turns half a circle.
    """
    facts = Integers(expression)
    for node in walk(expression.root):
        match node:
            case Binary(_, left, right) if _is_truth(left) and _is_truth(right):
                return False
            case Negate(operand) if _is_truth(operand):
                return False
            case Call("atan2", arguments) if any(map(facts.may_lose_sign, arguments)):
                return False
            case Call(function, arguments) if function not in ("abs", "min", "max"):
                if any(map(_is_truth, arguments)):
                    return False
    return True


def _is_truth(node: Node) -> bool:
    match node:
        case Compare() | Not() | Logic():
            return True
        case Choice(_, then, otherwise):
            return _is_truth(then) or _is_truth(otherwise)
        case Call("abs" | "min" | "max", arguments):
            return any(map(_is_truth, arguments))
    return False
