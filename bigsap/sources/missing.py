"""Missing values: detection, and refusal as costs.

numpy's masked arrays keep a number under the mask, which every plain conversion exposes. pandas,
polars and pyarrow have NA, None and null. All conversions to arrays use this module.
"""

from __future__ import annotations

import math
import numbers
from decimal import Decimal
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from bigsap.errors import DtypeError, InputError, InvalidCostError, ShapeError
from bigsap.sources.packing import labelled, packing_told
from bigsap.sources.tensors import on_host, speaks_dlpack, widened
from bigsap.sources.whole_numbers import rounded_among

_Array: TypeAlias = npt.NDArray[Any]

#: Values of ``missing=`` of ``as_source``.
CHOICES = ("error", "forbid")

_INT64 = np.iinfo(np.int64)


def is_missing(value: Any) -> bool:
    """Return whether a single value means missing: None, NA, NaT, masked, null."""
    if value is None:
        return True
    mask = mask_of(value)
    if mask is not None:
        return mask.ndim == 0 and bool(mask)
    kind = type(value)
    if kind.__name__ in ("NAType", "NaTType"):
        return kind.__module__.startswith("pandas")
    if isinstance(value, (np.datetime64, np.timedelta64)):
        return bool(np.isnat(value))
    if kind.__module__.startswith("pyarrow") and hasattr(kind, "is_valid"):
        return not value.is_valid
    return False


def parted(values: Any, name: str) -> tuple[_Array, _Array | None]:
    """Return numbers as a plain array, and a mask of missing values.

    values: array, masked array, nested list, frame, anything that numpy understands. Returns the
    array and a bool array of the same shape, None if nothing is missing; the array's values at
    missing places are undefined. An array of objects that are all real numbers becomes int64 or,
    with fractions or integers beyond int64 that float64 holds, float64. Numbers that are packed by
    their attributes (``packing``) are unpacked; types of other packages (bfloat16) become numpy's.
    Raises ShapeError and DtypeError, with ``name`` in the message; and InvalidCostError for integers that
    fractions in the same list or frame make float64, which would round them.
    """
    if isinstance(values, (list, tuple)):
        values = plain_items(values)
    elif type(values).__module__.partition(".")[0] == "dask" and hasattr(values, "compute"):
        values = values.compute()  # its conversion to an array drops masks
    elif labelled(values):
        return _unpacked(values, name)
    elif speaks_dlpack(values):
        return on_host(values), None
    mask = mask_of(values)
    if mask is not None:
        return widened(under_mask(values)), (mask if mask.any() else None)
    try:
        array = np.asarray(values)
    except ValueError as error:
        raise ShapeError(f"{name} is no matrix; are its rows equally long? {error}") from error
    except (MemoryError, OSError):
        raise
    except Exception as error:  # TypeError, or a library's own
        raise DtypeError(f"{name} cannot be seen as a numpy array: {error}") from error
    if array.dtype == np.object_ and not isinstance(values, np.ndarray):
        return _numbers(array, name, values)
    parts = None if isinstance(values, np.ndarray) else _of_own_types(values)
    number = None if parts is None else rounded_among(parts, array)
    if number is not None:
        raise InvalidCostError(f"{name} holds {number}, which float64 would round; give them as floats")
    return widened(array), None


def _of_own_types(values: Any) -> Any:
    """Return the rows of a list or the columns of a data frame, which may differ in their number types."""
    if isinstance(values, list):
        return values
    labels = column_names(values)
    if labels is None:
        return None
    # Names may repeat. The ``columns`` of pyarrow are arrays, those of pandas are found by place.
    if hasattr(type(values), "column_names"):
        return map(np.asarray, values.columns)
    if hasattr(type(values), "iloc"):
        return (np.asarray(values.iloc[:, place]) for place in range(len(labels)))
    return map(np.asarray, map(values.__getitem__, labels))


def column_names(values: Any) -> Any:
    """Return the names of a data frame's columns; None for all else."""
    kind = type(values)
    if hasattr(kind, "column_names"):  # pyarrow
        return values.column_names
    # pandas, polars
    return values.columns if hasattr(kind, "columns") and hasattr(kind, "dtypes") else None


def _unpacked(values: Any, name: str) -> tuple[_Array, _Array | None]:
    """Return the values of an h5py, netCDF4, xarray or zarr array, unpacked by its attributes."""
    packing = packing_told(values, name)
    of_xarray = type(values).__module__.partition(".")[0] == "xarray"
    array, missing = parted(values.data if of_xarray else values[...], name)
    if packing is None:
        return array, missing
    lost = packing.missing(array)
    if missing is not None:
        lost |= missing
    if packing.scaled:
        stored, array = array, np.empty(array.shape, np.float64)
        packing.unpack(stored, array)
    return array, (lost if lost.any() else None)


def shape_of(values: Any) -> tuple[int, ...] | None:
    """Return the shape of an array or a nested list; None if it has none, as a list of unequal rows."""
    try:
        return tuple(values.shape) if hasattr(values, "shape") else parted(values, "values")[0].shape
    except InputError:
        return None


def is_vector(values: Any) -> bool:
    """Return whether values have one dimension; also of those without a shape, which later checks name."""
    shape = shape_of(values)
    return shape is None or len(shape) == 1


def mask_of(values: Any) -> _Array | None:
    """Return the mask of a numpy or astropy array, as bool of its shape; None if it has none."""
    if isinstance(values, np.ma.MaskedArray):
        return np.ma.getmaskarray(values)
    if type(values) is np.ndarray or not isinstance(values, np.ndarray):
        return None
    mask = getattr(values, "mask", None)
    fits = isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == values.shape
    return mask if fits else None


def under_mask(values: Any) -> _Array:
    """Return the plain array under a mask, no copy."""
    values = getattr(values, "unmasked", values)
    return np.asarray(np.ma.getdata(values)).view(np.ndarray)


def refuse(row: int, column: int, why: str) -> NoReturn:
    """Raise InvalidCostError for the missing cost of one pair."""
    raise InvalidCostError(
        f"cost[{row}, {column}] is missing ({why}); fill in what it costs, or forbid missing pairs:"
        ' bigsap.as_source(cost, missing="forbid")',
        row,
        column,
    )


def refuse_in(missing: _Array, row: int, column: int, why: str) -> None:
    """Raise an error for the first missing cost of a block (k, p) that begins at ``row, column``."""
    if missing.any():
        k, p = (int(x) for x in np.argwhere(missing)[0])
        refuse(row + k, column + p, why)


def _pair(where: list[int]) -> tuple[int | None, int | None]:
    return (where[0], where[1]) if len(where) == 2 else (where[0] if where else None, None)


def plain_items(rows: Any) -> Any:
    """Return a nested list with masked rows as one masked array, and masked items as None.

    numpy would read the values under the masks.
    """
    if any(mask_of(row) is not None for row in rows):
        if all(isinstance(row, np.ndarray) for row in rows) and len({r.shape for r in rows}) == 1:
            return np.ma.stack([_as_masked(row) for row in rows])
        rows = [_items(row) for row in rows]
    else:
        rows = [_items(row) if isinstance(row, (list, tuple)) and _has_masked(row) else row for row in rows]
    return rows


def _as_masked(row: Any) -> Any:
    mask = mask_of(row)
    return row if mask is None else np.ma.MaskedArray(under_mask(row), mask)


def _has_masked(row: Any) -> bool:
    kinds = set(map(type, row))
    return any(issubclass(kind, np.ndarray) and hasattr(kind, "mask") for kind in kinds)


def _items(row: Any) -> Any:
    if mask_of(row) is not None:
        return _as_masked(row).tolist()  # None where it is masked
    if isinstance(row, np.ndarray):
        return row.tolist()
    if isinstance(row, (list, tuple)):
        return [_items(item) for item in row]
    return row


def _numbers(objects: _Array, name: str, given: Any) -> tuple[_Array, _Array | None]:
    """Return an array of objects as numbers. Raise an error for anything else.

    given: what the array was made of.
    """
    missing = np.zeros(objects.shape, np.bool_)
    kinds: set[type] = set()
    smallest = largest = 0
    flat = objects.reshape(-1)
    numbers_found: list[Any] = [0] * flat.size
    lost = missing.reshape(-1)
    for k, value in enumerate(flat):
        if isinstance(value, (numbers.Integral, np.bool_)):
            number = int(value)
            smallest, largest = min(smallest, number), max(largest, number)
            numbers_found[k] = number
            kinds.add(int)
        elif isinstance(value, (numbers.Real, Decimal)):
            numbers_found[k] = value
            kinds.add(float)
        elif is_missing(value):
            lost[k] = True
        elif isinstance(value, np.ndarray) and value.ndim == 0 and value.dtype.kind in "biuf":
            numbers_found[k] = value.item()
            kinds.add(int if value.dtype.kind in "biu" else float)
            smallest, largest = _INT64.min - 1, largest  # numpy checks the range
        else:
            _refuse_object(value, np.unravel_index(k, objects.shape), name, given)
    exact = kinds <= {int} and _INT64.min <= smallest and largest <= _INT64.max
    found = np.empty(flat.size, np.int64 if exact else np.float64)
    for k, number in enumerate(numbers_found):
        found[k] = number if exact else _float(number, k, objects, name)
        if not exact and isinstance(number, int) and int(found[k]) != number:
            where = [int(x) for x in np.unravel_index(k, objects.shape)]
            raise InvalidCostError(
                f"{name} holds {number}{_at(where)}, which float64 would round; give them as floats",
                *_pair(where),
            )
    return found.reshape(objects.shape), (missing if missing.any() else None)


def _at(where: list[int]) -> str:
    return f" at {where}" if where else ""


def _float(number: Any, k: int, objects: _Array, name: str) -> float:
    try:
        value = float(number)
    except (OverflowError, ValueError) as error:
        value, reason = math.inf, str(error)
    else:
        reason = f"{number} exceeds float64"
    if math.isinf(value) and not _is_infinite(number):
        where = [int(x) for x in np.unravel_index(k, objects.shape)]
        raise InvalidCostError(
            f"{name} holds a number{_at(where)} that float64 cannot: {reason}", *_pair(where)
        )
    return value


def _is_infinite(number: Any) -> bool:
    if isinstance(number, Decimal):
        return number.is_infinite()
    try:
        return math.isinf(number)
    except OverflowError:
        return False


def _refuse_object(value: Any, where: tuple[Any, ...], name: str, given: Any) -> NoReturn:
    kind = type(value)
    what = kind.__qualname__
    if kind.__module__ != "builtins":
        what = f"{kind.__module__}.{what}"
    if not where:
        raise DtypeError(f"{name} is an object of {what}; it must hold real numbers")
    labels = column_names(given)
    label = None if labels is None else labels[int(where[-1])]
    if isinstance(label, (str, int, tuple)):
        raise DtypeError(f"column {label!r} of {name} holds a {what}; give the columns of real numbers only")
    raise DtypeError(f"{name} holds a {what} at {[int(k) for k in where]}; it must hold real numbers")
