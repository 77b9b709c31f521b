"""The syntax tree of the expression language, and its limits.

The back ends use only the tree: none of the user's text reaches generated code. Every node stands
for a float64. First subscripts are sides, second ones constants or loops below the array's width,
so a tree cannot read outside an array.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

Side: TypeAlias = Literal["i", "j"]

#: Longest text, in characters.
MAX_LENGTH = 4096
#: Most nodes of a tree, and most on a path from its root to a leaf; a chain of sums and
#: differences, or of products, counts as one of them, whatever its length.
MAX_NODES = 500
MAX_DEPTH = 32
#: Most declared arrays and numbers.
MAX_ARRAYS = 8
#: Most terms of one sum, and of sums within sums together.
MAX_TERMS = 4096
MAX_NESTED_TERMS = 1 << 16
#: Most sums: compilers take long over many loops.
MAX_SUMS = 16

#: Function -> (fewest, most) arguments. ``sum`` is not among them: it has a node of its own.
FUNCTIONS: dict[str, tuple[int, int]] = {
    "abs": (1, 1),
    "sqrt": (1, 1),
    "exp": (1, 1),
    "log": (1, 1),
    "sin": (1, 1),
    "cos": (1, 1),
    "floor": (1, 1),
    "atan2": (2, 2),
    "hypot": (2, 2),
    "min": (2, MAX_NODES),
    "max": (2, MAX_NODES),
    "where": (3, 3),
}

#: Those that are calls of the mathematical library, as are powers.
LIBRARY = frozenset({"exp", "log", "sin", "cos", "atan2", "hypot"})
#: Except constant exponents that mean repeated multiplication: x*x, (x*x)*x, (x*x)*(x*x).
POWERS = (2.0, 3.0, 4.0)

#: Reserved names, which no array or loop may take.
RESERVED = frozenset({"i", "j", "n", "m", "inf", "sum", "range", *FUNCTIONS})


@dataclass(frozen=True, slots=True)
class Number:
    """A constant: not negative, not NaN, perhaps infinite."""

    value: float


@dataclass(frozen=True, slots=True)
class Variable:
    """The row ``i``, the column ``j``, or their numbers ``n`` and ``m``."""

    name: Literal["i", "j", "n", "m"]


@dataclass(frozen=True, slots=True)
class Loop:
    """The running index of the enclosing ``SumOver`` with the same number."""

    number: int


@dataclass(frozen=True, slots=True)
class Scalar:
    """A declared number; ``array`` is its place among the declared."""

    array: int


@dataclass(frozen=True, slots=True)
class Load:
    """``x[side]`` (second is None) or ``x[side, second]``; ``array`` as in ``Scalar``."""

    array: int
    side: Side
    second: int | Loop | None


@dataclass(frozen=True, slots=True)
class Negate:
    """``-operand``."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Binary:
    """``left operator right``."""

    operator: Literal["+", "-", "*", "/", "//", "%", "**"]
    left: Node
    right: Node


@dataclass(frozen=True, slots=True)
class Compare:
    """``operands[0] operators[0] operands[1] operators[1] ...``: 1 if all hold, else 0."""

    operators: tuple[str, ...]
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """1 if the operand is 0, else 0."""

    operand: Node


@dataclass(frozen=True, slots=True)
class Logic:
    """1 if all (and) or any (or) operands are other than 0, else 0."""

    operator: Literal["and", "or"]
    operands: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Choice:
    """``then`` if ``test`` is other than 0, else ``otherwise``."""

    test: Node
    then: Node
    otherwise: Node


@dataclass(frozen=True, slots=True)
class Call:
    """A function of ``FUNCTIONS`` except ``where``, which is a ``Choice``."""

    function: str
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class SumOver:
    """0.0 plus ``body`` for the loop's 0, 1, ... ``count`` - 1, added in this order."""

    loop: Loop
    count: int
    body: Node


Node: TypeAlias = (
    Number
    | Variable
    | Loop
    | Scalar
    | Load
    | Negate
    | Binary
    | Compare
    | Not
    | Logic
    | Choice
    | Call
    | SumOver
)


@dataclass(frozen=True, slots=True)
class Declared:
    """A declared name: its shape, () for a number, and the number's value."""

    name: str
    shape: tuple[int, ...]
    value: float | None = None


@dataclass(frozen=True, slots=True)
class SyntaxTree:
    """A checked expression for costs of one shape.

    declared: the names that ``Scalar.array`` and ``Load.array`` index. operations: about the number
    of nodes evaluated a pair.
    """

    root: Node
    shape: tuple[int, int]
    declared: tuple[Declared, ...]
    operations: int

    def library_calls(self) -> int:
        """Return about how many operations a pair call the mathematical library: powers, exp, ..."""
        found, ahead = 0, [(self.root, 1)]
        while ahead:
            node, times = ahead.pop()
            match node:
                case SumOver(_, count, _):
                    times *= count
                case Binary("**", _, right) if not (isinstance(right, Number) and right.value in POWERS):
                    found += times
                case Call(function, _) if function in LIBRARY:
                    found += times
            ahead += [(child, times) for child in children(node)]
        return found


def children(node: Node) -> tuple[Node, ...]:
    """Return the child nodes of a node."""
    match node:
        case Negate(operand) | Not(operand):
            return (operand,)
        case Binary(_, left, right):
            return (left, right)
        case Compare(_, operands) | Logic(_, operands) | Call(_, operands):
            return operands
        case Choice(test, then, otherwise):
            return (test, then, otherwise)
        case SumOver(_, _, body):
            return (body,)
    return ()


def walk(node: Node) -> list[Node]:
    """Return a node and all below it, in reading order."""
    found, ahead = [], [node]
    while ahead:
        found.append(ahead.pop())
        ahead += reversed(children(found[-1]))
    return found


def chain(node: Binary) -> tuple[Node, list[Binary]]:
    """Return the first operand of a chain ``a - b + c``, and its operations, in order.

    Chains may exceed Python's recursion limit, so code must not recurse along them.
    """
    first: Node = node
    operations = []
    while isinstance(first, Binary):
        operations.append(first)
        first = first.left
    return first, operations[::-1]
