"""A lambda's tree as a filler that computes in Python whenever its answer could differ.

The language computes in float64 and never raises; Python does. So beside every cost a *doubt* is
computed: whether on the way Python would have raised, left the real numbers, or held an integer
that float64 cannot. A doubtful cost, and one that is NaN, is computed again by Python, whose answer
or exception counts.

Doubtful are: a divisor 0 (``/ // %``) and infinite operands of ``// %``; a power or a function (but
``abs min max``) whose result is not finite; ``min`` and ``max`` with NaN; a possible integer beyond
2**53; a possible integer to a negative power. Operands that a condition skips are not doubted.
Rounding is not doubted either: the last digits of ``** exp log sin cos atan2 hypot`` and of ``sum``
may differ from Python's.
"""

from __future__ import annotations

from typing import Any

from bigsap.sources.base import Fill
from bigsap.sources.compiled import make_fill
from bigsap.sources.expression.formula import ExpressionSource
from bigsap.sources.expression.integers import EXACT, Integers
from bigsap.sources.expression.numba_code import NumbaEmitter, compile_text, fill_text, has_sum
from bigsap.sources.expression.syntax_tree import Binary, Call, Choice, Node, Number, SumOver, SyntaxTree


def checked_fill(source: ExpressionSource, recover: int) -> Fill:
    """Return the filler of a lambda's tree.

    recover: address of ``void (row, start, stop, out)``, which computes a part of a row in Python;
    keep it alive. Ids are those of ``source``, transposed or not.
    """
    expression = source.expression
    place = 2 + len(expression.declared)
    tail = [line.replace("@", str(place)) for line in _TAIL]
    emitter = _Checked(expression)
    text = fill_text(expression, emitter, swapped=source.swapped, n_words=1, tail=tail)
    kernel = compile_text(text)
    words = [a if a.ndim else float(a) for a in source.arrays]
    return make_fill(kernel.address, [*expression.shape, *words, recover], (kernel,), in_parts=True)


# Neighbours in one call, because every call waits for the interpreter's lock.
_TAIL = """\
t = 0
while t < size:
    if costs[t] == costs[t]:
        t += 1
    else:
        first = t
        while t < size and costs[t] != costs[t]:
            t += 1
        recover(words[@], row, start + first, start + t, out + 8 * first)
""".splitlines()


class _Checked(NumbaEmitter):
    """Writes doubts beside values.

    ``doubts`` has the names of those of the values written so far within the innermost branch.
    """

    def __init__(self, expression: SyntaxTree) -> None:
        super().__init__()
        self.facts = Integers(expression)
        self.doubts: list[str] = []

    def cost(self, root: Node) -> str:
        result = self.value(root)
        return f"f_choose(f_number({self.any()}), nan, {result})" if self.doubts else result

    def any(self) -> str:
        return " | ".join(self.doubts) or "False"

    def doubt(self, condition: str) -> None:
        self.doubts.append(self.let(condition))

    def value_and_doubt(self, node: Node) -> tuple[str, str]:
        """Return a value, and its doubts as one, kept out of ``doubts``."""
        outer, self.doubts = self.doubts, []
        name = self.value(node)
        doubt = self.any() if len(self.doubts) <= 1 else self.let(self.any())
        self.doubts = outer
        return name, doubt

    def value(self, node: Any) -> str:
        name = super().value(node)
        match node:
            case Call("min" | "max"):
                self.doubt(f"{name} != {name}")
            case Call(function) if function != "abs":
                self.doubt(f"not (f_abs({name}) < inf)")
        if isinstance(node, Call):
            self._doubt_size(node, name)
        return name

    def _doubt_size(self, node: Node, name: str) -> None:
        if self.facts.may_round(node):
            self.doubt(f"not (f_abs({name}) < {EXACT!r})")

    def arithmetic(self, operator: str, left: str, right: str) -> str:
        if operator == "/":
            self.doubt(f"{right} == 0.0")
        return super().arithmetic(operator, left, right)

    def call(self, function: str, names: list[str]) -> str:
        if function in ("floor_divide", "modulo"):
            left, right = names
            far = f"(f_abs({left}) == inf) | (f_abs({right}) == inf)"
            self.doubt(f"({right} == 0.0) | {far}")
        return super().call(function, names)

    def binary(self, node: Binary, left: str) -> str:
        name = self._operation(node, left)
        if node.operator == "**":
            self.doubt(f"not (f_abs({name}) < inf)")
        self._doubt_size(node, name)
        return name

    def _operation(self, node: Binary, left: str) -> str:
        integers = self.facts.possible(node.left) and self.facts.possible(node.right)
        plain = isinstance(node.right, Number)  # constants are not negative
        if node.operator != "**" or not integers or plain:
            return super().binary(node, left)
        names = [left, self.value(node.right)]
        self.doubt(f"{names[1]} < 0.0")
        return self.let(self.call("power", names))

    def logic(self, all_hold: bool, operands: tuple[Node, ...]) -> str:
        if has_sum(operands):
            return self._logic_by_branches(all_hold, operands)
        result, reached = "", ""
        for operand in operands:
            name, doubt = self.value_and_doubt(operand)
            if doubt != "False":
                self.doubts.append(self.let(f"{reached} & {doubt}") if reached else doubt)
            going_on = self.let(f"{name} {'!=' if all_hold else '=='} 0.0")
            reached = self.let(f"{reached} & {going_on}") if reached else going_on
            result = reached
        return self.let(f"f_number({result if all_hold else f'not {result}'})")

    def _logic_by_branches(self, all_hold: bool, operands: tuple[Node, ...]) -> str:
        held, doubtful = self.let("1.0" if all_hold else "0.0"), self.let("False")
        for operand in operands:
            self.open_if(f"{held} != 0.0" if all_hold else f"{held} == 0.0")
            name, doubt = self.value_and_doubt(operand)
            self.assign(held, self.truth([f"{name} != 0.0"]))
            self.assign(doubtful, f"{doubtful} | {doubt}")
            self.close()
        self.doubts.append(doubtful)
        return held

    def choice(self, node: Choice) -> str:
        if has_sum((node.then, node.otherwise)):
            return self._choice_by_branches(node)
        test = self.value(node.test)
        then, first = self.value_and_doubt(node.then)
        otherwise, second = self.value_and_doubt(node.otherwise)
        if (first, second) != ("False", "False"):
            self.doubt(self.call("either", [test, first, second]))
        return self.let(self.call("choose", [test, then, otherwise]))

    def _choice_by_branches(self, node: Choice) -> str:
        test = self.value(node.test)
        chosen, doubtful = self.let("0.0"), self.let("False")
        self.open_if(f"{test} != 0.0")
        for part in (node.then, node.otherwise):
            name, doubt = self.value_and_doubt(part)
            self.assign(chosen, name)
            self.assign(doubtful, doubt)
            if part is node.then:
                self.open_else()
        self.close()
        self.doubts.append(doubtful)
        return chosen

    def sum(self, node: SumOver) -> str:
        total, doubtful = self.let("0.0"), self.let("False")
        if node.count:
            self.facts.enter(node)
            self.open_for(f"k{node.loop.number}", node.count)
            term, doubt = self.value_and_doubt(node.body)
            self.assign(total, f"{total} + {term}")
            if self.facts.may_round(node):
                doubt = f"{doubt} | (not (f_abs({total}) < {EXACT!r}))"
            self.assign(doubtful, f"{doubtful} | {doubt}")
            self.close()
            self.doubts.append(doubtful)
        return total
