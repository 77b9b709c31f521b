"""Cost sources; ``as_source`` converts users' objects to a ``CostSource``."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bigsap.errors import DtypeError, InputError, OptionError, ShapeError, one_of
from bigsap.sources.arrays.matrix import ArraySource, SliceableSource, from_npy
from bigsap.sources.base import SCANNABLE, CostSource, scannable
from bigsap.sources.convert import convert, cost_dtype, cost_shape
from bigsap.sources.missing import CHOICES, mask_of, parted, refuse
from bigsap.sources.packed import unpacked, without_missing
from bigsap.sources.packing import labelled, packing_told
from bigsap.sources.sparse.sparse_costs import SparseCosts, listed_pairs, looks_sparse
from bigsap.sources.sparse.stored import from_npz, from_zarr_group, is_zarr_group, open_zarr_group
from bigsap.sources.tensors import CUDA, lies_on_host, on_host, place_of, speaks_dlpack, without_gradient
from bigsap.sources.wrappers import Counted, converted
from bigsap.sources.zarr.zarr_store import from_zarr, open_zarr

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

#: Dask arrays up to this size are computed at once; of larger ones each row would cost a graph.
DASK_LIMIT_BYTES = 64 << 20

_NPY_MAGIC = b"\x93NUMPY"


def as_source(
    cost: Any,
    shape: Sequence[int] | None = None,
    args: Sequence[Any] = (),
    dtype: Any = None,
    *,
    missing: str = "error",
    maximize: bool = False,
) -> CostSource:
    """Convert any object that represents a cost matrix to a ``CostSource``.

    cost: array, memmap, matrix or nested list; zarr array; path of a ``.npy`` file or
        zarr store; ``scipy.sparse`` array, its ``.npz`` file, or a zarr group of CSR arrays (only
        listed pairs are allowed); xarray (its ``.data``); small dask array; DLPack array in host or
        device memory, CuPy array; anything with ``shape``, ``dtype`` and ``__getitem__``; a
        callable (with ``shape``); a ready ``CostSource``.
    shape: needed by a callable, otherwise checked against the object's own.
    args: further arguments of a callable.
    dtype: read the costs as this dtype (one of ``SCANNABLE``); a cost that it cannot
        hold is an error when it is read.
    missing: ``"error"``, InvalidCostError with row and column, at once or when it is read;
        ``"forbid"``: pairs whose cost is missing are forbidden (sparse costs then do not list
        them). Missing are masked values, NA, None
        and null, and, with "forbid", NaN; in zarr, HDF5 and netCDF arrays and xarray also
        values that the attributes ``_FillValue``, ``missing_value`` and ``valid_range`` define as
        missing. (Their ``scale_factor`` and ``add_offset`` are applied, in float64.) Not for
        callables and ``CostSource`` objects of integers, which cannot represent inf.
    maximize: the sense of the problem, which decides the infinity that forbids.

    Integers beyond int64 in memory are read as float64 if that rounds none of them, else they are
    an error. Raises ``ShapeError``, ``DtypeError``, ``StoreError``, ``OptionError`` or plain
    ``InputError``, each with the given value. O(1) in time and memory, except for nested lists and
    small dask arrays.
    """
    labelled(cost)  # raises an error for a closed file, which has no shape
    args = _as_args(args)
    if not one_of(missing, CHOICES):
        raise OptionError(f'missing must be "error" or "forbid", got {missing!r}')
    forbid = missing == "forbid"
    if _is_callable_cost(cost):
        if forbid:
            raise OptionError(
                'missing="forbid" is for arrays and stores; a function returns numpy.inf'
                " (-numpy.inf under maximize) for a forbidden pair"
            )
        if shape is None:
            raise OptionError("a callable needs shape=(n_rows, n_columns)")
        from bigsap.sources.functions.callbacks import from_function

        called: CostSource = from_function(cost, cost_shape(shape, "shape="), args, dtype=dtype)
        return called
    if args:
        raise OptionError(f"args= is for callables; the costs are {_name(cost)}")
    source = _recognise(cost, forbid)
    if forbid:
        source = _forbidding(source, maximize)
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
    return kind.__qualname__ if kind.__module__ == "builtins" else (f"{kind.__module__}.{kind.__qualname__}")


def _is_source(cost: Any) -> bool:
    return callable(getattr(cost, "read", None)) and all(hasattr(cost, name) for name in ("shape", "dtype"))


def _is_sliceable(cost: Any) -> bool:
    return all(hasattr(cost, name) for name in ("shape", "dtype", "__getitem__"))


def _is_callable_cost(cost: Any) -> bool:
    """Return whether an object is callable, and not one of the array-likes that are callable as well."""
    return callable(cost) and (isinstance(cost, type) or not (_is_source(cost) or _is_sliceable(cost)))


def _forbidding(source: CostSource, maximize: bool) -> CostSource:
    """Return costs in which NaN means missing, with these pairs forbidden."""
    if isinstance(source, SparseCosts):
        return source  # such pairs are left out already
    if not isinstance(source, ArraySource) or source.mapped:
        return without_missing(source, maximize=maximize)
    array = source.array
    absent = np.isnan(array) if array.dtype.kind == "f" else np.zeros(1, np.bool_)
    if not absent.any():
        return source
    array = array.astype(source.dtype)  # a copy: the user's array stays unchanged
    array[absent] = -np.inf if maximize else np.inf
    return ArraySource(array)


def _in_memory(values: Any, name: str, forbid: bool) -> ArraySource:
    """Return the source of an array, list or frame. forbid: missing values become NaN."""
    array, missing = parted(values, name)
    if missing is None:
        return ArraySource(array)
    if not missing.ndim:
        raise DtypeError(f"the costs are {values!r}; they must be a matrix of real numbers")
    shape = cost_shape(array.shape, name)
    if not forbid:
        row, column = (int(k) for k in np.argwhere(missing)[0])
        value = "masked" if mask_of(values) is not None else "NA, None, null or masked"
        refuse(row, column, value)
    dtype = cost_dtype(array.dtype, name)
    costs = np.empty(shape, dtype if dtype.kind == "f" else np.float64)
    known = np.where(missing, np.zeros((), array.dtype), array)
    convert(known, costs, np.arange(shape[0]), 0)
    costs[missing] = np.nan
    return ArraySource(costs)


def _recognise(cost: Any, forbid: bool) -> CostSource:
    """Return the source of anything but a callable. forbid: missing values become NaN."""
    if isinstance(cost, np.ndarray):
        if mask_of(cost) is not None:
            return _in_memory(cost, "the cost matrix", forbid)
        return ArraySource(cost)
    if isinstance(cost, (str, os.PathLike)):
        return _from_path(Path(cost) if isinstance(cost, os.PathLike) else cost, forbid)
    root = type(cost).__module__.partition(".")[0]
    if root == "zarr" and not hasattr(cost, "shape"):
        return from_zarr_group(cost, f"the {_name(cost)}", forbid=forbid)
    if root == "zarr":
        return open_zarr(cost, forbid=forbid)
    if looks_sparse(cost):
        return listed_pairs(cost, forbid=forbid)
    if root == "sparse":
        raise InputError(
            f"{_name(cost)} of the package sparse is not supported: an absent entry may mean any number;"
            " pass cost.to_scipy_sparse(), where only listed pairs are allowed"
        )
    if root == "dask":
        return _from_dask(cost, forbid)
    if root == "xarray" and hasattr(cost, "data"):
        return _from_xarray(cost, forbid)
    if speaks_dlpack(cost) and not callable(getattr(cost, "read", None)):
        return _from_tensor(cost)
    if hasattr(cost, "__cuda_array_interface__"):
        from bigsap.sources.cuda.placed import device_array

        return device_array(cost)
    if _is_source(cost):
        return _checked_source(cost)
    if _is_sliceable(cost) and _numpy_dtype(cost.dtype) is not None:
        return _from_sliceable(cost, forbid)
    return _in_memory(cost, _name(cost), forbid)


def _numpy_dtype(dtype: Any) -> np.dtype[Any] | None:
    try:
        known: np.dtype[Any] = np.dtype(dtype)
    except TypeError:
        return None
    return known


def _checked_source(cost: Any) -> CostSource:
    """Return a user's own source after checking its shape and dtype."""
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


def _from_xarray(cost: Any, forbid: bool) -> CostSource:
    """Return the source of an xarray, unpacked if it was opened with ``mask_and_scale=False``."""
    inner = _recognise(cost.data, forbid)
    packing = packing_told(cost, f"the {_name(cost)}") if labelled(cost) else None
    return unpacked(inner, packing, forbid=forbid)


def _from_sliceable(cost: Any, forbid: bool) -> CostSource:
    """Return the source of h5py, netCDF4 and similar arrays, unpacked by their attributes."""
    what, given = f"the {_name(cost)}", None
    if callable(getattr(cost, "ncattrs", None)) and 0 not in cost.shape and len(cost.shape) == 2:
        # netCDF4 unpacks and masks by default, and then gives another dtype.
        given = np.ma.getdata(cost[:1, :1]).dtype
    source = SliceableSource(cost, what, given=given, forbid=forbid)
    return unpacked(source, packing_told(cost, what), forbid=forbid)


def _from_path(path: Path | str, forbid: bool) -> CostSource:
    """Return the source of a path: a ``.npy`` file by name or first bytes, else a zarr store."""
    file = Path(path)
    if is_zarr_group(file):
        return open_zarr_group(file, forbid=forbid)
    if file.suffix == ".npz" and not file.is_dir():
        return from_npz(file, forbid=forbid)
    if file.suffix == ".npy" and not file.is_dir():
        return from_npy(file)
    if file.is_file():
        with file.open("rb") as f:
            if f.read(len(_NPY_MAGIC)) == _NPY_MAGIC:
                return from_npy(file)
    return open_zarr(path, forbid=forbid)


def _from_dask(cost: Any, forbid: bool) -> CostSource:
    if not type(cost).__module__.startswith("dask.array"):  # frames refuse to tell their size
        return _in_memory(cost, _name(cost), forbid)
    if cost.nbytes != cost.nbytes:
        raise ShapeError(
            f"{_name(cost)} does not know its shape, {cost.shape}; call cost.compute_chunk_sizes()"
            " first, or pass cost.compute()"
        )
    if not cost.nbytes <= DASK_LIMIT_BYTES:
        raise InputError(
            f"{_name(cost)} of shape {cost.shape} is too large to compute at once, and computing "
            "it row by row would run its graph once a row: write to zarr first, "
            "cost.to_zarr(path), and pass the path"
        )
    computed = cost.compute() if hasattr(cost, "compute") else np.asarray(cost)
    return _recognise(computed, forbid)


def _from_tensor(cost: Any) -> CostSource:
    """Return the source of another library's array: in host memory without a copy, or on its device."""
    cost = without_gradient(cost)  # torch refuses its interfaces with one
    if lies_on_host(cost):
        return ArraySource(on_host(cost))
    if place_of(cost)[0] != CUDA and not hasattr(cost, "__cuda_array_interface__"):
        raise InputError(
            f"the {_name(cost)} lies on a device that BigSAP has no kernels for; pass a copy in host memory"
        )
    from bigsap.sources.cuda.placed import device_array

    return device_array(cost)
