"""Where costs come from: ``as_source`` turns what users pass into a ``CostSource``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigsap.errors import DtypeError, InputError, OptionError, OverflowRiskError, ShapeError
from bigsap.sources.arrays.matrix import ArraySource, SliceableSource, from_npy
from bigsap.sources.base import SCANNABLE, Array, CostSource, scannable
from bigsap.sources.convert import cost_shape
from bigsap.sources.wrappers import Counted, converted
from bigsap.sources.zarr.zarr_store import from_zarr

__all__ = [
    "SCANNABLE",
    "ArraySource",
    "CostSource",
    "Counted",
    "SliceableSource",
    "as_source",
    "converted",
    "from_npy",
    "from_zarr",
    "scannable",
]

#: Dask arrays up to this size are computed at once; larger ones cost a graph a row.
DASK_LIMIT_BYTES = 64 << 20

_CPU_DEVICE = 1  # kDLCPU of DLPack
_NPY_MAGIC = b"\x93NUMPY"


def as_source(
    cost: Any,
    shape: Sequence[int] | None = None,
    args: Sequence[Any] = (),
    dtype: Any = None,
) -> CostSource:
    """Whatever a user calls a cost matrix, as a ``CostSource``.

    cost: array, memmap, matrix or nested list; zarr array; path of a ``.npy`` file or
        zarr store; xarray (its ``.data``); small dask array; DLPack array in host or
        device memory, CuPy array; anything with ``shape``, ``dtype`` and ``__getitem__``; a
        callable (with ``shape``); a ready ``CostSource``.
    shape: needed by a callable, otherwise checked against the object's own.
    args: further arguments of a callable.
    dtype: read the costs as this dtype (one of ``SCANNABLE``); a cost that it cannot
        hold is an error when it is read.
    Raises ``ShapeError``, ``DtypeError``, ``StoreError``, ``OptionError`` or plain
    ``InputError``, each saying what was given. O(1) in time and memory, nested lists
    and small dask arrays apart.
    """
    args = _as_args(args)
    if _is_callable_cost(cost):
        if shape is None:
            raise OptionError("a callable needs shape=(n_rows, n_columns)")
        from bigsap.sources.functions.callbacks import from_function

        called: CostSource = from_function(cost, cost_shape(shape, "shape="), args, dtype=dtype)
        return called
    if args:
        raise OptionError(f"args= is for callables; the costs are {_name(cost)}")
    source = _recognise(cost)
    if shape is not None:
        asked = cost_shape(shape, "shape=")
        if asked != source.shape:
            raise ShapeError(f"shape={asked} contradicts the costs, which have {source.shape}")
    return source if dtype is None else converted(source, dtype)


def _as_args(args: Any) -> tuple[Any, ...]:
    if isinstance(args, (tuple, list)):
        return tuple(args)
    raise OptionError(f"args must be a tuple of arguments, got {_name(args)}; write args=(x,)")


def _name(cost: Any) -> str:
    kind = type(cost)
    return (
        kind.__qualname__
        if kind.__module__ == "builtins"
        else (f"{kind.__module__}.{kind.__qualname__}")
    )


def _is_source(cost: Any) -> bool:
    return all(hasattr(cost, name) for name in ("shape", "dtype")) and callable(
        getattr(cost, "read", None)
    )


def _is_sliceable(cost: Any) -> bool:
    return all(hasattr(cost, name) for name in ("shape", "dtype", "__getitem__"))


def _is_callable_cost(cost: Any) -> bool:
    """Callable, and not one of the array-likes, some of which are callable as well."""
    return callable(cost) and (
        isinstance(cost, type) or not (_is_source(cost) or _is_sliceable(cost))
    )


def _recognise(cost: Any) -> CostSource:
    """The source for anything but a callable."""
    if isinstance(cost, np.ndarray):
        return ArraySource(cost)
    if isinstance(cost, (str, os.PathLike)):
        return _from_path(Path(cost) if isinstance(cost, os.PathLike) else cost)
    root, _, rest = type(cost).__module__.partition(".")
    if root == "zarr":
        return from_zarr(cost)
    if root == "sparse" or (root == "scipy" and rest.startswith("sparse")):
        raise InputError(
            f"{_name(cost)}: sparse costs are not supported, because an absent entry may mean "
            "0 or forbidden; pass a dense array with numpy.inf for forbidden pairs"
        )
    if root == "dask":
        return _from_dask(cost)
    if root == "xarray" and hasattr(cost, "data"):
        return _recognise(cost.data)
    if hasattr(cost, "__cuda_array_interface__"):
        from bigsap.sources.device.placed import device_array

        return device_array(cost)
    if _is_source(cost):
        return _checked_source(cost)
    if hasattr(cost, "__dlpack__") and hasattr(cost, "__dlpack_device__"):
        return _from_dlpack(cost)
    if _is_sliceable(cost) and _numpy_dtype(cost.dtype) is not None:
        return SliceableSource(cost)
    return ArraySource(_as_array(cost))


def _numpy_dtype(dtype: Any) -> np.dtype[Any] | None:
    try:
        known: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        return None
    return known


def _checked_source(cost: Any) -> CostSource:
    """A user's own source, its promises about shape and dtype checked."""
    shape = cost_shape(cost.shape, _name(cost))
    dtype = _numpy_dtype(cost.dtype)
    if dtype is None or dtype not in SCANNABLE:
        names = ", ".join(str(d) for d in SCANNABLE)
        raise DtypeError(f"{_name(cost)} has dtype {cost.dtype}; a CostSource has one of {names}")
    if type(cost.shape) is tuple and shape == cost.shape and isinstance(cost.dtype, np.dtype):
        source: CostSource = cost
        return source
    raise ShapeError(
        f"{_name(cost)}: shape must be a tuple of two ints and dtype a numpy.dtype, got "
        f"{cost.shape!r} and {cost.dtype!r}"
    )


def _from_path(path: Path | str) -> CostSource:
    """A ``.npy`` file, recognised by name or first bytes; everything else is zarr's."""
    file = Path(path)
    if file.suffix == ".npy" and not file.is_dir():
        return from_npy(file)
    if file.is_file():
        with file.open("rb") as f:
            if f.read(len(_NPY_MAGIC)) == _NPY_MAGIC:
                return from_npy(file)
    return from_zarr(path)


def _from_dask(cost: Any) -> CostSource:
    if not hasattr(cost, "nbytes"):
        return ArraySource(_as_array(cost))
    if not cost.nbytes <= DASK_LIMIT_BYTES:  # NaN when the shape is unknown
        raise InputError(
            f"{_name(cost)} of shape {cost.shape} is too large to compute at once, and computing "
            "it row by row would run its graph once a row: write to zarr first, "
            "cost.to_zarr(path), and pass the path"
        )
    return ArraySource(np.asarray(cost))


def _from_dlpack(cost: Any) -> CostSource:
    """Arrays of other libraries in host memory, without a copy."""
    if int(cost.__dlpack_device__()[0]) != _CPU_DEVICE:
        from bigsap.sources.device.placed import device_array

        return device_array(cost)
    try:
        return ArraySource(np.from_dlpack(cost))
    except (BufferError, RuntimeError, TypeError) as error:
        raise DtypeError(f"{_name(cost)} cannot be seen as a numpy array: {error}") from error


def _as_array(cost: Any) -> Array:
    """Nested lists and whatever numpy understands."""
    try:
        array = np.asarray(cost)
    except ValueError as error:
        raise ShapeError(
            f"{_name(cost)} is no matrix; are its rows equally long? {error}"
        ) from error
    except TypeError as error:
        raise DtypeError(f"{_name(cost)} cannot be seen as a numpy array: {error}") from error
    if array.dtype == np.object_:
        _refuse_objects(array, cost)
    return array


def _refuse_objects(array: Array, cost: Any) -> None:
    """Say what is wrong with an object array made from a user's list."""
    for where, value in np.ndenumerate(array):
        if isinstance(value, int) and array.ndim == 2:
            if not -(2**63) <= value < 2**63:
                row, column = where
                raise OverflowRiskError(
                    f"cost[{row}, {column}] = {value} does not fit int64", row, column
                )
        else:
            if not where:
                what = "None" if value is None else f"an object of {_name(value)}"
                raise DtypeError(f"the costs are {what}; they must be a matrix of real numbers")
            what = "None" if value is None else f"a {_name(value)}"
            raise DtypeError(
                f"{_name(cost)} holds {what} at {list(where)}; costs must be real numbers"
            )
