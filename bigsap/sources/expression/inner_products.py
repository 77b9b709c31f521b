"""Formulas that are functions of inner products, so that matrix products bound their costs.

Recognised are, for arrays ``x`` (n, d) of rows and ``y`` (m, d) of columns:

* ``sum((x[i, k] - y[j, k])**2 for k in range(d))`` and its ``sqrt``, times one positive constant;
* ``sum(x[i, k] * y[j, k] for k in range(d))`` times one constant; and sums and differences of that with one
  number a row or one constant, and one number a column.

No more than that: each operation rounds, perhaps below the smallest float, and the margins of the bounds
hold for few of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bigsap.sources.expression.syntax_tree import (
    Binary,
    Call,
    Load,
    Loop,
    Negate,
    Node,
    Number,
    Scalar,
    SumOver,
    SyntaxTree,
    chain,
)

if TYPE_CHECKING:
    from bigsap.sources.expression.syntax_tree import Side

#: Constants beyond these sizes could make costs underflow or overflow.
_SMALLEST, _LARGEST = 1e-30, 1e30


@dataclass(frozen=True)
class InnerProducts:
    """A formula's parts: ``kind`` is that of ``products.Product``.

    arrays: places of x and y among the declared; count: of their coordinates, from the first on. factor:
    of the sum, or of its root. terms: of the row and of the column, the sign of a Load without a loop or of
    a constant, and this; None for 0. plain: whether costs are the sum or its root, and nothing is done to
    them.
    """

    kind: str
    arrays: tuple[int, int]
    count: int
    factor: float = 1.0
    terms: tuple[tuple[float, Node] | None, tuple[float, Node] | None] = (None, None)
    plain: bool = True


def recognised(tree: SyntaxTree) -> InnerProducts | None:
    """Return the parts of a formula of the kinds above, None for another."""
    found, terms, parts = None, [], _added(tree.root)
    for sign, node in parts:
        core = _core(node, tree)
        if core is None:
            terms.append((sign, node))
        elif found is not None:
            return None
        else:
            found = replace(core, factor=sign * core.factor, plain=core.plain and len(parts) == 1)
    if found is None or (found.kind != "product" and (terms or found.factor < 0)):
        return None
    for sign, node in terms:
        if not (isinstance(node, Load) or constant(node, tree) is not None):
            return None
        side = int(isinstance(node, Load) and node.side == "j")
        if found.terms[side] is not None:
            return None
        of_row, of_column = found.terms
        terms_now = (of_row, (sign, node)) if side else ((sign, node), of_column)
        found = replace(found, terms=terms_now)
    return found


def constant(node: Node, tree: SyntaxTree) -> float | None:
    """Return the value of a number or a declared number, perhaps negated, None for others."""
    if isinstance(node, Negate):
        value = constant(node.operand, tree)
        return None if value is None else -value
    if isinstance(node, Number):
        return node.value
    return tree.declared[node.array].value if isinstance(node, Scalar) else None


def _added(root: Node) -> list[tuple[float, Node]]:
    """Return the terms of sums and differences with their signs."""
    if not isinstance(root, Binary) or root.operator not in "+-":
        return [(1.0, root)]
    first, operations = chain(root)
    while operations[0].operator not in "+-":
        first, operations = operations[0], operations[1:]
    if any(some.operator not in "+-" for some in operations):
        return [(1.0, root)]  # a product of sums
    return [(1.0, first), *((1.0 if some.operator == "+" else -1.0, some.right) for some in operations)]


def _core(node: Node, tree: SyntaxTree) -> InnerProducts | None:
    """Return the parts of a sum or its root, perhaps times a constant or negated."""
    if isinstance(node, (SumOver, Call)):
        return _sum(node)
    if isinstance(node, Negate):
        return _times(-1.0, node.operand)
    if not isinstance(node, Binary) or node.operator != "*":
        return None
    for given, other in ((node.left, node.right), (node.right, node.left)):
        factor = constant(given, tree)
        if factor is not None:
            return _times(factor, other) if _SMALLEST < abs(factor) < _LARGEST else None
    return None


def _times(factor: float, node: Node) -> InnerProducts | None:
    found = _sum(node) if isinstance(node, (SumOver, Call)) else None
    return replace(found, factor=factor, plain=False) if found else None


def _sum(node: SumOver | Call) -> InnerProducts | None:
    if isinstance(node, Call):
        inner = node.arguments[0]
        if node.function != "sqrt" or not isinstance(inner, SumOver):
            return None
        found = _sum(inner)
        return replace(found, kind="root") if found and found.kind == "square" else None
    body = node.body
    if not isinstance(body, Binary):
        return None
    raised = body.operator == "**" and body.right == Number(2.0)
    squared = raised or (body.operator == "*" and body.left == body.right)
    kind, operator, factors = ("square", "-", body.left) if squared else ("product", "*", body)
    if not isinstance(factors, Binary) or factors.operator != operator:
        return None
    sides = {_side(factors.left, node.loop): factors.left, _side(factors.right, node.loop): factors.right}
    rows, columns = sides.get("i"), sides.get("j")
    if not isinstance(rows, Load) or not isinstance(columns, Load):
        return None
    return InnerProducts(kind, (rows.array, columns.array), node.count)


def _side(node: Node, loop: Loop) -> Side | None:
    """Return the side of an array's coordinate of a loop, None for others."""
    return node.side if isinstance(node, Load) and node.second == loop else None
