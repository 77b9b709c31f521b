"""Checked integer arithmetic of compiled cost functions.

Python's integers are unbounded, numpy's small ones wrap at their own width; numba computes all of
them in 64 bits, and wraps. Functions compiled with ``Checked`` raise OverflowError if the answers
may differ, and the pair is computed in Python. A function with operations that cannot be checked is
refused, and computed in Python alone.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterator
from typing import Any

import numba
import numpy as np
from llvmlite import ir as llvm
from numba.core import compiler, compiler_machinery, errors, ir, lowering, typed_passes
from numba.np import numpy_support

types: Any = numba.types
_Builder: Any = compiler.DefaultPassBuilder
_Compiler: Any = compiler.CompilerBase
_Lower: Any = lowering.Lower
_Lowering: Any = typed_passes.NativeLowering

_I64 = llvm.IntType(64)
_LEAST, _MOST = -(2**63), 2**63 - 1

#: LLVM instructions that report an overflow.
_TOLD = {
    operator.add: "sadd_with_overflow",
    operator.sub: "ssub_with_overflow",
    operator.mul: "smul_with_overflow",
}
_CHECKED = (
    *_TOLD,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.lshift,
    operator.rshift,
    operator.and_,
    operator.or_,
    operator.xor,
)
#: Functions whose loops numba supplies, which add and multiply unchecked.
_UNCHECKED = (sum, pow, functools.reduce, map, filter)


class Checked(_Compiler):  # type: ignore[misc]
    """numba's compiler, with integer arithmetic that raises where it could differ from Python's."""

    def define_pipelines(self) -> list[Any]:
        """Return numba's own passes with the last one replaced."""
        passes = _Builder.define_nopython_pipeline(self.state)
        at = next(k for k, (p, _) in enumerate(passes.passes) if p is typed_passes.NativeLowering)
        passes.passes[at] = (_CheckedLowering, "checked lowering")
        passes.finalize()
        return [passes]


@compiler_machinery.register_pass(mutates_CFG=True, analysis_only=False)
class _CheckedLowering(_Lowering):  # type: ignore[misc]
    _name = "checked_lowering"

    @property
    def lowering_class(self) -> Any:
        return _CheckedLower


def _integer(kind: Any) -> bool:
    return isinstance(kind, (types.Integer, types.Boolean))


def _mixed(left: Any, right: Any) -> bool:
    """Return whether one is unsigned, of 64 bits, and the other signed: numpy has floats or wraps."""
    kinds = [types.unliteral(kind) for kind in (left, right)]
    wide = any(isinstance(k, types.Integer) and not k.signed and k.bitwidth == 64 for k in kinds)
    return wide and any(isinstance(k, types.Integer) and k.signed for k in kinds)


def _width_of(kind: Any) -> np.dtype[Any] | None:
    """Return the dtype of a number with which numpy computes in less than 64 bits."""
    kind = types.unliteral(kind)
    if isinstance(kind, types.Integer) and kind.bitwidth < 64:
        return np.dtype(numpy_support.as_dtype(kind))
    return None


def _together(widths: list[np.dtype[Any] | None]) -> np.dtype[Any] | None:
    """Return the width in which numpy may combine numbers of these; a Python integer has none."""
    known = [width for width in widths if width is not None]
    if not known:
        return None
    found = np.result_type(*known)
    return found if found.kind in "iu" and found.itemsize < 8 else None


class _CheckedLower(_Lower):  # type: ignore[misc]
    def lower(self) -> None:
        """Lower a function as numba does, with the widths of all variables known."""
        self._widths = self._find_widths()
        for assign in self._assignments():
            # For a variable with both unsigned and signed values, numba takes floats.
            if isinstance(assign.value, ir.Var) and isinstance(self.typeof(assign.target.name), types.Float):
                kind = types.unliteral(self.typeof(assign.value.name))
                if isinstance(kind, types.Integer) and not kind.signed:
                    raise errors.UnsupportedError(f"a variable of {kind} and others")
        super().lower()

    def _assignments(self) -> Iterator[Any]:
        for block in self.func_ir.blocks.values():
            yield from block.find_insts(ir.Assign)

    def _find_widths(self) -> dict[str, np.dtype[Any]]:
        """Return the variables that are small numbers in Python, but 64 bits in numba."""
        found = {}
        for name, kind in self.fndesc.typemap.items():
            width = _width_of(kind)
            if width is not None:
                found[name] = width
        before = -1
        while len(found) != before:
            before = len(found)
            for assign in self._assignments():
                name = assign.target.name
                if name not in found and _integer(self.typeof(name)):
                    width = _together([found.get(v.name) for v in _operands(assign.value)])
                    if width is not None:
                        found[name] = width
        return found

    def lower_binop(self, resty: Any, expr: Any, op: Any) -> Any:
        """Lower integer operations with checks, or check numba's result."""
        left, right = self.typeof(expr.lhs.name), self.typeof(expr.rhs.name)
        self._refuse_arrays((left, right))
        if op not in _CHECKED or not (_integer(left) and _integer(right)):
            return super().lower_binop(resty, expr, op)
        if isinstance(left, types.Boolean) and isinstance(right, types.Boolean):
            if op is operator.add:  # 2 in Python, True in numpy
                both = self.builder.and_(self._wide(expr.lhs), self._wide(expr.rhs))
                self._give_up_if(self.builder.icmp_signed("!=", both, _I64(0)))
            return super().lower_binop(resty, expr, op)
        if not isinstance(resty, types.Integer) or _mixed(left, right):
            raise errors.UnsupportedError(f"{left} and {right} together")
        width = _together([self._widths.get(v.name) for v in (expr.lhs, expr.rhs)])
        a, b = self._wide(expr.lhs), self._wide(expr.rhs)
        if resty.signed and op in _TOLD:
            pair = getattr(self.builder, _TOLD[op])(a, b)
            self._give_up_if(self.builder.extract_value(pair, 1))
            found = self.context.cast(self.builder, self.builder.extract_value(pair, 0), types.int64, resty)
        elif op is operator.pow:
            call = types.int64(types.int64, types.int64) if resty.signed else None
            if call is None:
                raise errors.UnsupportedError("powers of unsigned numbers")
            found = self.context.compile_internal(self.builder, _power, call, (a, b))
            found = self.context.cast(self.builder, found, types.int64, resty)
        else:
            self._before(op, a, b, signed=resty.signed)
            found = super().lower_binop(resty, expr, op)
        self._must_fit(found, resty, width)
        return found

    def _before(self, op: Any, a: Any, b: Any, *, signed: bool) -> None:
        build = self.builder
        if op in (operator.floordiv, operator.mod) and signed:
            least = build.icmp_signed("==", a, _I64(_LEAST))
            self._give_up_if(build.and_(least, build.icmp_signed("==", b, _I64(-1))))
        if op in (operator.lshift, operator.rshift):
            self._give_up_if(build.icmp_unsigned(">=", b, _I64(64)))
        if op is operator.lshift and signed:
            back = build.ashr(build.shl(a, b), b)
            self._give_up_if(build.icmp_signed("!=", back, a))

    def lower_expr(self, resty: Any, expr: Any) -> Any:
        """Lower as numba does, except for signs and arithmetic of small integers."""
        if expr.op == "arrayexpr":
            self._refuse_arrays(self.typeof(v.name) for v in expr.list_vars())
        if expr.op != "unary" or not isinstance(self.typeof(expr.value.name), types.Integer):
            return super().lower_expr(resty, expr)
        if expr.fn is operator.neg and isinstance(resty, types.Integer) and resty.signed:
            least = self.builder.icmp_signed("==", self._wide(expr.value), _I64(_LEAST))
            self._give_up_if(least)
        found = super().lower_expr(resty, expr)
        self._must_fit(found, resty, self._widths.get(expr.value.name))
        return found

    def lower_call(self, resty: Any, expr: Any) -> Any:
        """Lower as numba does, except for calls that make integers."""
        function = self.typeof(expr.func.name)
        key = getattr(function, "typing_key", None)
        given = [self.typeof(v.name) for v in expr.args]
        for kind in (function, *given):
            if isinstance(kind, types.Dispatcher) and not _is_checked(kind.dispatcher):
                raise errors.UnsupportedError("a function that was compiled without checks")
        if any(key is unchecked for unchecked in _UNCHECKED) and not isinstance(resty, types.Float):
            raise errors.UnsupportedError(f"{key} of integers")
        makes = isinstance(function, (types.NumberClass, types.Function))
        if len(given) != 1 or not makes or not isinstance(resty, types.Integer):
            return super().lower_call(resty, expr)
        if isinstance(given[0], types.Float):
            self._must_be_whole(expr.args[0], given[0], resty)
        elif key is abs and isinstance(given[0], types.Integer) and given[0].signed:
            least = self.builder.icmp_signed("==", self._wide(expr.args[0]), _I64(_LEAST))
            self._give_up_if(least)
        elif isinstance(function, types.NumberClass) and isinstance(given[0], types.Integer):
            self._must_fit(self.loadvar(expr.args[0].name), given[0], _range_of(resty, given[0]))
        found = super().lower_call(resty, expr)
        if key is abs:
            self._must_fit(found, resty, self._widths.get(expr.args[0].name))
        return found

    def lower_setitem(self, target: Any, index: Any, value: Any, signature: Any) -> Any:
        """Lower as numba does, except for numbers that an array of integers cannot hold."""
        array, kind = self.typeof(target.name), self.typeof(value.name)
        if isinstance(array, types.Array) and isinstance(array.dtype, types.Integer):
            if isinstance(kind, types.Float):
                self._must_be_whole(value, kind, array.dtype)
            elif isinstance(kind, types.Integer):
                width = _range_of(array.dtype, kind)
                self._must_fit(self.loadvar(value.name), kind, width)
        return super().lower_setitem(target, index, value, signature)

    # -- helpers -------------------------------------------------------------------------

    def _wide(self, variable: Any) -> Any:
        value = self.loadvar(variable.name)
        kind = types.unliteral(self.typeof(variable.name))
        return self.context.cast(self.builder, value, kind, types.int64)

    def _give_up_if(self, condition: Any) -> None:
        with self.builder.if_then(condition, likely=False):
            self.call_conv.return_user_exc(
                self.builder,
                OverflowError,
                ("beyond the integers of compiled code",),
                loc=self.loc,
                func_name=self.func_ir.func_id.func_name,
            )

    def _must_fit(self, value: Any, kind: Any, width: np.dtype[Any] | None) -> None:
        kind = types.unliteral(kind)
        if width is None or not isinstance(kind, types.Integer):
            return
        limits, build = np.iinfo(width), self.builder
        wide = self.context.cast(build, value, kind, types.int64)
        compare = build.icmp_signed if kind.signed else build.icmp_unsigned
        outside = compare(">", wide, _I64(int(limits.max)))
        if kind.signed:
            outside = build.or_(outside, compare("<", wide, _I64(int(limits.min))))
        self._give_up_if(outside)

    def _must_be_whole(self, variable: Any, kind: Any, target: Any) -> None:
        """Check that a float that becomes an integer lies in its range."""
        target = types.unliteral(target)
        limits, build = np.iinfo(numpy_support.as_dtype(target)), self.builder
        value = self.context.cast(build, self.loadvar(variable.name), kind, types.float64)
        double = llvm.DoubleType()
        low = build.fcmp_ordered(">=", value, double(float(limits.min)))
        high = build.fcmp_ordered("<", value, double(float(int(limits.max) + 1)))
        self._give_up_if(build.not_(build.and_(low, high)))

    def _refuse_arrays(self, kinds: Any) -> None:
        for kind in kinds:
            if not isinstance(kind, types.Array) or not isinstance(kind.dtype, types.Integer):
                continue
            if kind.dtype.bitwidth < 64 or not kind.dtype.signed:
                raise errors.UnsupportedError(f"arithmetic of whole arrays of {kind.dtype}")


def _range_of(target: Any, given: Any) -> np.dtype[Any] | None:
    """Return the range that an integer must keep to be converted; None if it always does."""
    goal = np.dtype(numpy_support.as_dtype(types.unliteral(target)))
    source = np.dtype(numpy_support.as_dtype(types.unliteral(given)))
    if np.can_cast(source, goal):
        return None
    if source.kind != goal.kind and goal.itemsize == 8:
        return np.dtype(np.uint64) if source.kind == "i" else np.dtype(np.int64)
    return goal


def _operands(value: Any) -> list[Any]:
    """Return the variables that determine a value's width."""
    if isinstance(value, ir.Var):
        return [value]
    if not isinstance(value, ir.Expr):
        return []
    if value.op in ("binop", "inplace_binop"):
        return [value.lhs, value.rhs]
    if value.op in ("unary", "cast"):
        return [value.value]
    if value.op == "phi":
        return [v for v in value.incoming_values if isinstance(v, ir.Var)]
    return []


def _is_checked(dispatcher: Any) -> bool:
    module = getattr(dispatcher.py_func, "__module__", None) or ""
    if module.partition(".")[0] in ("numba", "numpy"):
        return True
    return getattr(getattr(dispatcher, "_compiler", None), "pipeline_class", None) is Checked


def _power(base: int, exponent: int) -> int:
    """Return a power of integers, by checked multiplications."""
    if exponent < 0:
        raise OverflowError("a fraction")
    found = 1
    while exponent:
        if exponent & 1:
            found = _product(found, base)
        exponent >>= 1
        if exponent:
            base = _product(base, base)
    return found


@numba.njit(pipeline_class=Checked)
def _product(a: int, b: int) -> int:
    return a * b
