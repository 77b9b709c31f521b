"""Inference of a cost function's kind, and checks of its results.

The number of parameters decides most cases; a probe call on row 0 decides the rest.
"""

from __future__ import annotations

import functools
import inspect
import numbers
from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.errors import (
    CallbackError,
    DtypeError,
    InvalidCostError,
    OptionError,
    OverflowRiskError,
    ShapeError,
)
from bigsap.sources.convert import cost_dtype
from bigsap.sources.missing import is_missing, mask_of, parted
from bigsap.sources.tensors import is_tensor
from bigsap.types import Array

_REMEDY = "return numpy.inf (-numpy.inf under maximize) to forbid a pair"

KINDS = ("value", "row", "part", "block")

#: The call of a function of each kind.
CALLS = {
    "value": "f(i, j, *args) -> number",
    "row": "f(i, *args) -> array (n_columns,)",
    "part": "f(i, start, stop, *args) -> array (stop - start,)",
    "block": "f(rows, out, *args), filling out (k, n_columns)",
}

_EXPLANATION = "; ".join(f'kind="{kind}" is {call}' for kind, call in CALLS.items())
_ADVICE = f"call bigsap.from_function(f, shape, kind=...) ({_EXPLANATION})"


def infer_kind(f: Callable[..., Any], args: tuple[Any, ...], shape: tuple[int, int]) -> str:
    """Return the kind of ``f``, from its signature and, for two parameters, a probe call.

    Parameters with defaults count only if ``f`` cannot be called without them. Raises OptionError,
    which asks for ``kind=``, if the kind stays unclear.
    """
    counts = _leading_parameters(f, len(args))
    if len(counts) > 1 and not args and not _takes_any_number(f):
        # ``lambda i, j, x=x: ...`` has its data in defaults.
        counts = counts[:1]
    if len(counts) != 1:
        given = f" beside the {len(args)} in args" if args else ""
        accepted = " or ".join(str(c) for c in counts) if counts else "neither 1, 2 nor 3"
        raise OptionError(
            f"cannot tell how to call {name_of(f)}: it takes {accepted} parameters{given}; {_ADVICE}"
        )
    if counts[0] == 2:
        return "value" if 0 in shape else _value_or_block(f, args, shape)
    return {1: "row", 3: "part"}[counts[0]]


def name_of(f: Any) -> str:
    """Return a function's name for messages, never its arguments."""
    if isinstance(f, functools.partial):
        return f"a partial of {name_of(f.func)}"
    name = getattr(f, "__qualname__", None) or getattr(f, "__name__", None)
    return str(name or f"a {type(f).__qualname__}")


def _leading_parameters(f: Callable[..., Any], n_args: int) -> list[int]:
    """Return which of 1, 2, 3 positional arguments ``f`` accepts before ``args``."""
    try:
        signature = inspect.signature(f)
    except (TypeError, ValueError):
        raise OptionError(f"{name_of(f)} does not tell its parameters; {_ADVICE}") from None
    counts = []
    for count in (1, 2, 3):
        try:
            signature.bind(*[None] * (count + n_args))
        except TypeError:
            continue
        counts.append(count)
    return counts


def _takes_any_number(f: Callable[..., Any]) -> bool:
    parameters = inspect.signature(f).parameters.values()
    return any(p.kind is p.VAR_POSITIONAL for p in parameters)


def _value_or_block(f: Callable[..., Any], args: tuple[Any, ...], shape: tuple[int, int]) -> str:
    """Distinguish f(i, j) from f(rows, out) by calls.

    Numbers are tried first: a block function cannot fill a number, whereas many value functions
    broadcast over the arrays of a block. A block function has written to ``out``, and returns
    nothing or, as numpy's functions with ``out=`` do, that array.
    """
    value_error: Exception | None = None
    try:
        value = f(0, 0, *args)
    except Exception as error:  # noqa: BLE001  (the user's function may raise anything)
        value_error = error
    else:
        # A single object of another type (complex, a string) will be a DtypeError.
        if value is not None and not isinstance(value, (np.ndarray, list, tuple)):
            return "value"
        if is_number(value):
            return "value"
    out = np.full((1, shape[1]), np.nan)
    try:
        returned = f(np.zeros(1, np.int64), out, *_copies(args))
    except Exception:  # noqa: BLE001
        returned = value_error
    filled = not np.isnan(out).all()
    is_out = isinstance(returned, np.ndarray) and np.may_share_memory(returned, out)
    if filled and (returned is None or is_out):
        return "block"
    if value_error is not None:
        raise CallbackError(
            f"{name_of(f)}(0, 0) raised {describe(value_error)} (called for row 0, column 0, and"
            f" it filled no block either; kind= says how to call it: {_EXPLANATION})"
        ) from value_error
    raise OptionError(
        f"cannot tell how to call {name_of(f)}: for row 0, column 0 it returned"
        f" {_summary(value)}, and it filled no block; {_ADVICE}"
    )


def _copies(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return args with arrays copied, so that a probe of the wrong kind cannot change the user's."""
    return tuple(a.copy() if isinstance(a, np.ndarray) else a for a in args)


def describe(error: BaseException) -> str:
    """Return an exception's type and message, on one line."""
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def is_number(value: Any) -> bool:
    """Return whether a value is one real number (numpy's 0-d arrays included)."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.ndim == 0 and value.dtype.kind in "biuf"
    return isinstance(value, numbers.Real)


def _summary(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape}, dtype {value.dtype}"
    return f"a {type(value).__name__}"


def refuse_masked(args: tuple[Any, ...]) -> None:
    """Raise an error for masked values among a function's arguments.

    A comparison with a masked number is neither true nor false, and Python treats it as false:
    masked values would silently become costs.
    """
    for k, value in enumerate(args):
        if isinstance(value, (tuple, list)):
            refuse_masked(tuple(v for v in value if isinstance(v, (np.ndarray, tuple))))
            continue
        mask = mask_of(value)
        if mask is not None and mask.any():
            where = [int(x) for x in np.argwhere(mask)[0]]
            raise InvalidCostError(
                f"args[{k}] is an array with masked values, the first at {where}; pass what they"
                " stand for, args[k].filled(value), or data and mask as two arrays"
            )


def declared_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the ``dtype=`` of a call, which must be scannable without conversion."""
    target = cost_dtype(dtype, "dtype=")
    if target != np.dtype(dtype):
        raise DtypeError(f"dtype={np.dtype(dtype)} cannot be scanned; use {target}")
    return target


def row_dtype(result: Any, kind: str, f: Any, inferred: bool) -> np.dtype[Any]:
    """Return the dtype that a function's first row or part implies.

    An array implies its own; a list implies nothing, like a single value, so that a fraction may
    follow integers.
    """
    single = result is None or (not isinstance(result, (list, tuple)) and np.ndim(result) == 0)
    if inferred and single:
        raise OptionError(
            f'{name_of(f)} was taken as kind="{kind}", {CALLS[kind]}, from its parameters, but'
            f" returned {_summary(result)} for row 0; {_ADVICE}"
        )
    if not isinstance(result, np.ndarray):
        return np.dtype(np.float64)
    return cost_dtype(result.dtype, f"row 0 of {name_of(f)}")


def checked_row(result: Any, row: int, size: int, dtype: np.dtype[Any], f: Any, first: int = 0) -> Array:
    """Return a row or part as an array of ``size`` numbers that ``dtype`` may hold.

    first: its first column.
    """
    try:
        array, missing = parted(result, f"what {name_of(f)} returned for row {row}")
    except ShapeError as error:
        raise ShapeError(f"{name_of(f)} returned a ragged row {row}: {error}") from error
    if missing is not None and missing.shape == (size,):
        column = first + int(missing.argmax())
        raise InvalidCostError(
            f"{name_of(f)} returned a missing value (masked, None or NA) for row {row}, column"
            f" {column}; {_REMEDY}",
            row,
            column,
        )
    if array.shape != (size,):
        got = f"shape {array.shape}" if array.ndim else f"a single {type(result).__name__}"
        raise ShapeError(f"{name_of(f)} returned {got} for row {row}; expected shape ({size},)")
    if array.dtype.kind not in "biuf":
        raise DtypeError(f"{name_of(f)} returned dtype {array.dtype} for row {row}; costs are real numbers")
    if array.dtype.kind == "f" and dtype.kind != "f":
        raise DtypeError(
            f"{name_of(f)} returned {array.dtype} for row {row}, but the costs are {dtype};"
            ' pass dtype="float64" if they may be fractions'
        )
    return array


def checked_value(value: Any, pair: tuple[int, int], dtype: np.dtype[Any], f: Any) -> Any:
    """Return one value as ``dtype``; raise an error naming its row and column."""
    row, column = pair
    place = f"{name_of(f)} returned %s for row {row}, column {column}"
    if isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim):
        raise ShapeError(place % _summary(value) + "; expected one number")
    if value is not None and is_missing(value):
        raise InvalidCostError(place % f"a missing value, {value!r}," + f"; {_REMEDY}", row, column)
    if not is_number(value):
        advice = ": return its item()" if is_tensor(value) else ""
        raise DtypeError(place % repr(value) + f"; costs are real numbers{advice}")
    number = value.item() if isinstance(value, (np.ndarray, np.generic)) else value
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            try:
                cost = dtype.type(float(number))
            except OverflowError:
                cost = dtype.type(np.inf)
        if np.isinf(cost) and abs(number) != np.inf:
            raise InvalidCostError(place % number + f", which {dtype} cannot hold", row, column)
        return cost
    if not isinstance(number, int):
        raise DtypeError(place % repr(number) + f", but the costs are {dtype}")
    limits = np.iinfo(dtype)
    if not limits.min <= number <= limits.max:
        raise OverflowRiskError(place % number + f", which {dtype} cannot hold", row, column)
    return number
