"""A user's cost function as a compiled filler.

The function is compiled with index checks, Python's division and integers that do not wrap
(``whole``), and called from a generated C function. A pair without a valid answer (it raised, or
gave NaN, a row of the wrong length, a number out of range) is computed in Python, by a C callback
that takes the interpreter's lock. So compiled code never raises and never reads outside an array,
and Python's answer or exception counts.

Data are passed in the context block; see ``linking``.
"""

from __future__ import annotations

import ctypes
import types as python_types
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np
from numba.core import errors
from numba.np import numpy_support

from bigsap.sources import compiled
from bigsap.sources.base import Fill, scannable
from bigsap.sources.expression.checked import checked_fill
from bigsap.sources.expression.formula import ExpressionSource
from bigsap.sources.expression.lambdas import lambda_expression
from bigsap.sources.functions.linking import Arguments, Linker, UntranslatableError
from bigsap.sources.functions.python_calls import PythonCalls
from bigsap.types import Array

# numba's annotations describe the inside of its decorators, not their results.
types: Any = numba.types
njit: Any = numba.njit

_RECOVER = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 4)

#: Pairs, rows on which compiled and Python answers are compared.
_SAMPLED_PAIRS = 32
_SAMPLED_ROWS = 4


@dataclass(frozen=True)
class Translation:
    """A compiled function. ``fill`` keeps all objects that its addresses need.

    expression: the formula, if the function is a lambda inside the expression language and was
    compiled from that; None if numba compiled the function itself.
    """

    fill: Fill
    expression: ExpressionSource | None = None


def translate(source: PythonCalls) -> Translation:
    """Compile the function of ``source``, or raise UntranslatableError."""
    function = source.function
    if isinstance(function, numba.core.dispatcher.Dispatcher):
        function = function.py_func
    if not isinstance(function, python_types.FunctionType):
        raise UntranslatableError(f"it is a {type(function).__name__}, no plain function")
    return _as_expression(source, function) or _by_numba(source, function)


def _as_expression(source: PythonCalls, function: Any) -> Translation | None:
    """Compile a lambda as an expression; None if it lies outside that language."""
    if source.kind != "value" or source.dtype != np.float64:
        return None
    shape = source.shape[::-1] if source.swapped else source.shape
    formula = lambda_expression(function, shape, source.args)
    if formula is None:
        return None
    if source.swapped:
        formula = formula.transposed()
    callback = _RECOVER(_recoverer(source))
    address = ctypes.cast(callback, ctypes.c_void_p).value
    fill = checked_fill(formula, address or 0)
    fill = replace(fill, keep=(*fill.keep, callback))
    translation = Translation(fill, formula)
    try:
        _compare(source, translation)
    except UntranslatableError:
        return None
    return translation


def _by_numba(source: PythonCalls, function: Any) -> Translation:
    arguments = Arguments(first_word=2)
    n_ids = 3 if source.kind == "part" else 2 if source.kind in ("value", "block") else 1
    expressions = [arguments.add(a) for a in source.args]
    expressions += [arguments.add(a) for a in _missing(function, n_ids + len(source.args))]
    by_python = [0]
    callback = _RECOVER(_recoverer(source, by_python))
    recover_address = ctypes.cast(callback, ctypes.c_void_p).value
    words = [recover_address or 0, source.shape[1], *arguments.words]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", errors.NumbaWarning)
            linker = Linker()
            dispatcher = linker.link(function)
            kernel = _compile(source, dispatcher, arguments, expressions, len(words), linker.uses_math)
    except UntranslatableError:
        raise
    except Exception as error:  # numba raises many kinds of errors
        raise UntranslatableError(_first_line(error)) from error
    keep = (kernel, callback, dispatcher, *arguments.keep)
    # A user's function of parts may compute the whole row for a part.
    in_parts = source.kind == "value"
    translation = Translation(compiled.make_fill(kernel.address, words, keep, in_parts=in_parts))
    compared = _compare(source, translation)
    if source.dtype.kind == "f" and 2 * by_python[0] > compared:
        raise UntranslatableError("most of its numbers are beyond the integers of compiled code")
    return translation


def _missing(function: Any, n_given: int) -> tuple[Any, ...]:
    """Return defaults of parameters that the call leaves out: passed like any argument."""
    n_missing = function.__code__.co_argcount - n_given
    defaults = function.__defaults__ or ()
    return tuple(defaults[len(defaults) - n_missing :]) if n_missing > 0 else ()


def _first_line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines()]
    useful = [s for s in lines if s and not s.startswith(("Failed in", "During:", "File "))]
    return f"{type(error).__name__}: {useful[0]}" if useful else type(error).__name__


def _recoverer(source: PythonCalls, counted: list[int] | None = None) -> Callable[[int, int, int, int], None]:
    """Return the callback into Python. counted[0]: number of calls that returned numbers."""
    dtype = source.dtype

    def recover(row: int, start: int, stop: int, address: int) -> None:
        buffer = (ctypes.c_char * ((stop - start) * dtype.itemsize)).from_address(address)
        out = np.frombuffer(memoryview(buffer), dtype)
        source.recover(row, start, stop, out)
        if counted is not None:
            counted[0] += bool(np.isfinite(out).all())

    return recover


# -- generated code ---------------------------------------------------------------------

_FILL = """
def fill(context, row, start, stop, out):
    words = carray(pointer_i8(context), {n_words})
    floats = carray(pointer_f8(context), {n_words})
    n_columns = words[1]
    done = start
    while done < stop:
        done = part(n_columns, row, done, stop, out + (done - start) * {size}, {values})
        if done < stop:
            end = done + 1 if {by_pair} else stop
            recover(words[0], row, done, end, out + (done - start) * {size})
            done = end
"""

# Returns the first column without a valid cost, or stop.
_VALUES = """
def part(n_columns, row, start, stop, out, {names}):
    costs = carray(pointer_out(out), stop - start)
    for t in range(stop - start):
        good, cost = attempt(function, ({first}, {second}, {names}))
        if not good or {unfit}:
            return start + t
        costs[t] = cost
    return stop
"""

_ROWS = """
def part(n_columns, row, start, stop, out, {names}):
    costs = carray(pointer_out(out), stop - start)
    {call}
    if not good or given.size != {length}:
        return start
    for t in range(stop - start):
        cost = given[{offset} + t]
        if {unfit}:
            return start
        costs[t] = cost
    return stop
"""

_CALLS = {
    "row": ("good, given = attempt(function, (row, {names}))", "n_columns", "start"),
    "part": ("good, given = attempt(function, (row, start, stop, {names}))", "stop - start", "0"),
    "block": (
        "rows = np.full(1, row, np.int64)\n"
        "    block = np.full((1, n_columns), blank, dtype_out)\n"
        "    good, _ = attempt(function, (rows, block, {names}))\n"
        "    given = block[0]",
        "n_columns",
        "start",
    ),
}


def _compile(
    source: PythonCalls,
    dispatcher: Any,
    arguments: Arguments,
    expressions: list[str],
    n_words: int,
    doubt_infinity: bool,
) -> Any:
    """Return the cfunc that fills parts of rows."""
    out = numpy_support.from_dtype(source.dtype)
    given = _result_type(source, dispatcher, arguments, out)
    names = ", ".join(f"a{k}" for k in range(len(expressions)))
    fields = {
        "names": names,
        "values": ", ".join(expressions),
        "n_words": n_words,
        "size": source.dtype.itemsize,
        "by_pair": source.kind == "value",
        "unfit": _unfit(given, out, doubt_infinity),
    }
    if source.kind == "value":
        first, second = "row", "start + t"
        if source.swapped:
            first, second = second, first
        text = _VALUES.format(first=first, second=second, **fields)
    else:
        call, length, offset = _CALLS[source.kind]
        text = _ROWS.format(call=call.format(**fields), length=length, offset=offset, **fields)
    largest = float(np.finfo(source.dtype).max) if source.dtype.kind == "f" else 0.0
    scope: dict[str, Any] = {
        "np": np,
        "types": types,
        "carray": numpy_support.carray,
        "farray": numpy_support.farray,
        "as_strided": np.lib.stride_tricks.as_strided,
        "pointer_i8": compiled.pointer_i8,
        "pointer_f8": compiled.pointer_f8,
        "pointer_out": compiled.pointer_to(out),
        "recover": compiled.call_recover,
        "attempt": compiled.attempt,
        "function": dispatcher,
        "dtype_out": source.dtype.type,
        "blank": np.nan if source.dtype.kind == "f" else 0,
        "largest": largest,
        **arguments.names,
    }
    exec(compile(text, "<bigsap>", "exec"), scope)
    scope["part"] = njit(nogil=True)(scope["part"])
    exec(compile(_FILL.format(**fields), "<bigsap>", "exec"), scope)
    cfunc: Any = numba.cfunc
    return cfunc(compiled.FILL_SIGNATURE)(scope["fill"])


def _result_type(source: PythonCalls, dispatcher: Any, arguments: Arguments, out: Any) -> Any:
    """Return the type of one cost of the function; refuse types that Python must handle."""
    word = types.int64
    ids = {
        "value": (word, word),
        "row": (word,),
        "part": (word, word, word),
        "block": (types.Array(word, 1, "C"), types.Array(out, 2, "C")),
    }[source.kind]
    signature = (*ids, *arguments.types)
    dispatcher.compile(signature)
    result = dispatcher.overloads[signature].signature.return_type
    if source.kind == "block":
        return out
    if source.kind != "value":
        if not isinstance(result, types.Array) or result.ndim != 1:
            raise UntranslatableError(f"it returns {result}, not a one-dimensional array")
        result = result.dtype
    if not isinstance(result, (types.Float, types.Integer, types.Boolean)):
        raise UntranslatableError(f"it returns {result}, not a real number")
    if isinstance(out, types.Integer):
        if isinstance(result, types.Float) or result == types.uint64:
            raise UntranslatableError(f"it returns {result}, but the costs are {out}")
    elif source.kind != "value" and scannable(numpy_support.as_dtype(result)) is None:
        raise UntranslatableError(f"it returns {result}")
    return result


def _unfit(given: Any, out: Any, doubt_infinity: bool) -> str:
    """Return the condition under which a cost must be computed in Python."""
    if isinstance(out, types.Integer):
        limits = np.iinfo(numpy_support.as_dtype(out))
        if isinstance(given, types.Boolean) or given == out:
            return "False"
        return f"cost < {limits.min} or cost > {limits.max}"
    if not isinstance(given, types.Float):
        return "False"
    conditions = ["cost != cost"]
    if doubt_infinity:
        conditions.append("abs(cost) == np.inf")
    if given.bitwidth > out.bitwidth:
        # It would become infinite, that is, forbidden.
        conditions.append("(abs(cost) > largest and abs(cost) != np.inf)")
    return " or ".join(conditions)


# -- comparison with Python -------------------------------------------------------------


def _compare(source: PythonCalls, translation: Translation) -> int:
    """Refuse compiled code whose answers on sampled pairs differ from Python's.

    Returns the number of samples compared.
    """
    n, m = source.shape
    rng = np.random.default_rng(0)
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_int64] * 5)(translation.fill.address)
    if source.kind == "value":
        rows = rng.integers(0, n, _SAMPLED_PAIRS)
        columns = rng.integers(0, m, _SAMPLED_PAIRS)
        corners = [(0, 0), (0, m - 1), (n - 1, 0), (n - 1, m - 1), (min(n, m) - 1,) * 2]
        parts = [*corners, *zip(rows.tolist(), columns.tolist(), strict=True)]
        samples = [(row, column, column + 1) for row, column in parts]
    else:
        rows = np.unique([0, n - 1, *rng.integers(0, n, _SAMPLED_ROWS - 2)])
        samples = [(int(row), 0, m) for row in rows]
        samples.append((int(rows[-1]), m // 3, m - m // 4))
    tolerance = 1e-4 if _in_single_precision(source) else 1e-9
    for row, start, stop in samples:
        expected = np.empty(stop - start, source.dtype)
        got = np.empty(stop - start, source.dtype)
        source.recover(row, start, stop, expected)
        call(translation.fill.context, row, start, stop, got.ctypes.data)
        if not _alike(got, expected, tolerance):
            k = int(np.argmax(got != expected))
            raise UntranslatableError(
                f"compiled, it gives {got[k]} for row {row}, column {start + k}; Python gives {expected[k]}"
            )
    source.forget()
    return len(samples)


def _in_single_precision(source: PythonCalls) -> bool:
    """Return whether Python rounds to float32, where numba may keep more digits."""
    if source.dtype == np.float32:
        return True
    if source.kind != "value":
        return False
    try:
        return isinstance(source.function(0, 0, *source.args), np.float32)
    except Exception:  # noqa: BLE001  (raised again, and reported, when the pair is read)
        return False


def _alike(got: Array, expected: Array, tolerance: float) -> bool:
    """Return whether arrays are equal up to rounding, with NaN and infinities in the same places."""
    if got.dtype.kind != "f":
        return bool((got == expected).all())
    finite = np.isfinite(expected)
    if not np.array_equal(got[~finite], expected[~finite], equal_nan=True):
        return False
    scale = np.abs(expected[finite]).max(initial=0.0)
    return bool((np.abs(got[finite] - expected[finite]) <= tolerance * scale).all())
