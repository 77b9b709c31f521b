"""From a tree to statements: the common part of all back ends, and C and CUDA C.

Every node becomes one assignment to a name of its own, in the order of the tree, so the back ends
round alike: bit for bit in operations that IEEE 754 defines (+ - * / sqrt, comparisons, floor,
remainders), within the libraries' error of 1 or 2 ulp in the other functions.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

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


class Emitter(ABC):
    """Writes a tree as statements of some language, in which every value is a double."""

    def __init__(self, indent: int) -> None:
        self.lines: list[str] = []
        self.indent = indent
        self.n_names = 0

    def value(self, node: Node) -> str:
        """Write the statements of ``node``; return the name or constant that holds its value."""
        match node:
            case Number(number):
                return self.constant(number)
            case Variable(letter):
                return f"{letter}_value"
            case Loop(k):
                return f"k{k}_value"
            case Scalar(array):
                return f"a{array}"
            case Load():
                return self.let(self.load(node))
            case Negate(operand):
                return self.let(f"-{self.value(operand)}")
            case Binary():
                first, operations = chain(node)
                name = self.value(first)
                for operation in operations:
                    name = self.binary(operation, name)
                return name
            case Compare(operators, operands):
                names = [self.value(operand) for operand in operands]
                pairs = zip(names, operators, names[1:], strict=False)
                return self.let(self.truth([f"{a} {op} {b}" for a, op, b in pairs]))
            case Not(operand):
                return self.let(self.truth([f"{self.value(operand)} == 0.0"]))
            case Logic(operator, operands):
                return self.logic(operator == "and", operands)
            case Choice():
                return self.choice(node)
            case Call(function, arguments):
                names = [self.value(argument) for argument in arguments]
                result = names[0]
                if function not in ("min", "max"):
                    return self.let(self.call(function, names))
                for name in names[1:]:
                    result = self.let(self.call(function, [result, name]))
                return result
            case SumOver():
                return self.sum(node)

    def binary(self, node: Binary, left: str) -> str:
        """Write an operation whose left operand is already written."""
        if node.operator == "**" and isinstance(node.right, Number) and node.right.value in POWERS:
            square = self.let(self.arithmetic("*", left, left))
            if node.right.value == 2.0:
                return square
            other = left if node.right.value == 3.0 else square
            return self.let(self.arithmetic("*", square, other))
        right = self.value(node.right)
        if node.operator in "+-*/" and node.operator != "//":
            return self.let(self.arithmetic(node.operator, left, right))
        names = {"//": "floor_divide", "%": "modulo", "**": "power"}
        return self.let(self.call(names[node.operator], [left, right]))

    def logic(self, all_hold: bool, operands: tuple[Node, ...]) -> str:
        # Consecutive blocks, not nested ones: no language nests hundreds of operands.
        held = self.let("1.0" if all_hold else "0.0")
        for operand in operands:
            self.open_if(f"{held} != 0.0" if all_hold else f"{held} == 0.0")
            name = self.value(operand)
            self.assign(held, self.truth([f"{name} != 0.0"]))
            self.close()
        return held

    def choice(self, node: Choice) -> str:
        test = self.value(node.test)
        chosen = self.let("0.0")
        self.open_if(f"{test} != 0.0")
        self.assign(chosen, self.value(node.then))
        self.open_else()
        self.assign(chosen, self.value(node.otherwise))
        self.close()
        return chosen

    def sum(self, node: SumOver) -> str:
        total = self.let("0.0")
        if node.count:
            self.open_for(f"k{node.loop.number}", node.count)
            term = self.value(node.body)
            self.assign(total, self.arithmetic("+", total, term))
            self.close()
        return total

    def let(self, text: str) -> str:
        """Return a new name for the value of ``text``."""
        name = f"t{self.n_names}"
        self.n_names += 1
        self.declare(name, text)
        return name

    def line(self, text: str) -> None:
        self.lines.append("    " * self.indent + text)

    @abstractmethod
    def constant(self, number: float) -> str: ...

    @abstractmethod
    def load(self, node: Load) -> str: ...

    @abstractmethod
    def arithmetic(self, operator: str, left: str, right: str) -> str:
        """Return the text of one of + - * /, rounded once."""

    @abstractmethod
    def call(self, function: str, names: list[str]) -> str:
        """Return the text of a function of the language, floor_divide, modulo or power."""

    @abstractmethod
    def truth(self, conditions: list[str]) -> str:
        """Return the text of 1.0 if all conditions hold, else 0.0."""

    @abstractmethod
    def declare(self, name: str, text: str) -> None: ...

    @abstractmethod
    def assign(self, name: str, text: str) -> None: ...

    @abstractmethod
    def open_if(self, condition: str) -> None: ...

    @abstractmethod
    def open_else(self) -> None: ...

    @abstractmethod
    def open_for(self, index: str, count: int) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class _C(Emitter):
    """Writes C99, to be compiled without contraction of a*b+c: -ffp-contract=off."""

    infinity = "HUGE_VAL"

    def __init__(self, expression: SyntaxTree) -> None:
        super().__init__(1)
        self.expression = expression

    def constant(self, number: float) -> str:
        return self.infinity if number == math.inf else repr(number)

    def load(self, node: Load) -> str:
        shape = self.expression.declared[node.array].shape
        if node.second is None:
            return f"a{node.array}[{node.side}]"
        second = f"k{node.second.number}" if isinstance(node.second, Loop) else str(node.second)
        return f"a{node.array}[{node.side} * {shape[1]}LL + {second}]"

    def arithmetic(self, operator: str, left: str, right: str) -> str:
        return f"{left} {operator} {right}"

    def call(self, function: str, names: list[str]) -> str:
        own = {"abs": "fabs", "power": "pow"}
        if function in ("min", "max", "floor_divide", "modulo"):
            own[function] = f"bigsap_{function}"
        return f"{own.get(function, function)}({', '.join(names)})"

    def truth(self, conditions: list[str]) -> str:
        return f"({' && '.join(conditions)}) ? 1.0 : 0.0"

    def declare(self, name: str, text: str) -> None:
        self.line(f"double {name} = {text};")

    def assign(self, name: str, text: str) -> None:
        self.line(f"{name} = {text};")

    def open_if(self, condition: str) -> None:
        self.line(f"if ({condition}) {{")
        self.indent += 1

    def open_else(self) -> None:
        self.indent -= 1
        self.line("} else {")
        self.indent += 1

    def open_for(self, index: str, count: int) -> None:
        self.line(f"for (long long {index} = 0; {index} < {count}; {index}++) {{")
        self.indent += 1
        self.line(f"double {index}_value = (double){index};")

    def close(self) -> None:
        self.indent -= 1
        self.line("}")


class _Cuda(_C):
    """Writes CUDA C++. The intrinsics are never contracted, whatever the compiler's flags."""

    infinity = "__longlong_as_double(0x7ff0000000000000LL)"

    def arithmetic(self, operator: str, left: str, right: str) -> str:
        name = {"+": "__dadd_rn", "-": "__dsub_rn", "*": "__dmul_rn", "/": "__ddiv_rn"}[operator]
        return f"{name}({left}, {right})"

    def call(self, function: str, names: list[str]) -> str:
        if function == "sqrt":
            return f"__dsqrt_rn({names[0]})"
        return super().call(function, names)


# As CPython's float_rem and float_floor_div, but division by zero as in numpy: NaN, and a / b.
_HELPERS = """\
@static double bigsap_min(double a, double b) { return (a <= b || a != a) ? a : b; }
@static double bigsap_max(double a, double b) { return (a >= b || a != a) ? a : b; }
@static double bigsap_modulo(double a, double b) {
    double r = fmod(a, b);
    if (r == 0.0) return copysign(0.0, b);
    return ((b < 0.0) != (r < 0.0)) ? r + b : r;
}
@static double bigsap_floor_divide(double a, double b) {
    if (b == 0.0) return a / b;
    double r = fmod(a, b);
    double q = (a - r) / b;
    if (r != 0.0 && (b < 0.0) != (r < 0.0)) q -= 1.0;
    if (q == 0.0) return copysign(0.0, a / b);
    double f = floor(q);
    return (q - f > 0.5) ? f + 1.0 : f;
}
"""


def c_source(expression: SyntaxTree) -> str:
    """Return C99 text with ``double cost(...)``; see ``ExpressionSource.c_source``."""
    return "#include <math.h>\n" + _function(expression, _C(expression), "")


def cuda_source(expression: SyntaxTree) -> str:
    """Return CUDA C++ text with ``__device__ double cost(...)``, no headers needed."""
    return _function(expression, _Cuda(expression), "__device__ ")


def _function(expression: SyntaxTree, emitter: _C, qualifier: str) -> str:
    result = emitter.value(expression.root)
    parameters = ["long long i", "long long j", "long long n", "long long m"]
    for k, declared in enumerate(expression.declared):
        parameters.append(f"const double *a{k}" if declared.shape else f"double a{k}")
    head = _HELPERS.replace("@", qualifier)
    head += f"{qualifier}double cost({', '.join(parameters)}) {{\n"
    head += "".join(f"    double {x}_value = (double){x};\n" for x in "ijnm")
    return head + "\n".join(emitter.lines) + f"\n    return {result};\n}}\n"
