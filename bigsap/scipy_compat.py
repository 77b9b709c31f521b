"""``linear_sum_assignment``: a drop-in replacement of scipy's function."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from bigsap.errors import (
    DtypeError,
    InfeasibleError,
    InvalidCostError,
    OverflowRiskError,
    level_of_caller,
    quiet,
)
from bigsap.run.small_arrays import assignment, quick_assignment, suits
from bigsap.sources.base import Entries
from bigsap.sources.missing import mask_of, parted, under_mask
from bigsap.sources.packing import labelled
from bigsap.sources.sparse.sparse_costs import SparseCosts, from_csr, looks_sparse, sparse
from bigsap.sources.tensors import CUDA, like, on_host, place_of, speaks_dlpack
from bigsap.types import Array

_FLOAT64 = np.dtype(np.float64)


def linear_sum_assignment(cost_matrix: Any, maximize: bool = False) -> tuple[Array, Array]:
    """Solve the linear sum assignment problem, in place of scipy's function.

    cost_matrix: (n, m) array_like of real numbers; ``inf`` (``-inf`` when maximising)
        forbids a pair. The same inputs are accepted and refused as by
        ``scipy.optimize.linear_sum_assignment``, with the same messages. Also ``scipy.sparse``
        arrays and ``bigsap.sparse``: only listed pairs are allowed. Arrays of another library
        that speaks DLPack (torch, JAX, CuPy) are used where they lie, without a copy but of number
        types that numpy lacks, such as bfloat16, and of column-major ones on a device; gradients are
        ignored. On a CUDA device its kernels solve them, which needs CuPy.
    maximize: whether the sum is maximised.

    Returns ``(row_ind, col_ind)``, two intp arrays of length min(n, m), ``row_ind`` sorted, of the
    library and on the device of the costs:
    ``cost_matrix[row_ind, col_ind].sum()`` is optimal. Among equally good assignments the choice
    may differ from scipy's; the identity is always chosen if it is optimal.

    Raises:
        ValueError: not two dimensions.
        InvalidCostError (a ValueError; ``row`` and ``column`` name the pair): NaN, the wrong
            infinity, or a missing value. scipy reads the data under a mask, and the markers of
            missing values in a file, as costs. Scale and offset of such files are applied.
        InfeasibleError (a ValueError; ``violator`` is the reason): no assignment avoids the
            forbidden pairs.
        TypeError: costs that cannot safely become float64.

    Integer costs are solved exactly, in integers, unless their sums could leave int64; then, as
    scipy always does, as float64. Of sparse costs no pair that is chosen is rounded: that would be an
    OverflowRiskError. Where costs are so far apart that optimality is not proved
    (``solve`` says ``imprecise``), a UserWarning says to within what the sum is optimal. Memory: the
    matrix is used in place, the rest is O(n + m). For costs other than arrays see ``bigsap.solve``.
    """
    if type(cost_matrix) is np.ndarray and cost_matrix.ndim == 2:
        found = quick_assignment(cost_matrix, maximize)
        if found is not None:
            return found
    return _assignment(cost_matrix, bool(maximize))


@quiet
def _assignment(cost_matrix: Any, maximize: bool) -> tuple[Any, Any]:
    costs = cost_matrix
    if looks_sparse(costs) or isinstance(costs, SparseCosts):
        return _of_listed_pairs(costs, maximize)
    if speaks_dlpack(costs):
        return _of_tensor(costs, maximize)
    if type(costs) is not np.ndarray or costs.dtype != np.float64:
        costs = _as_scipy_reads(cost_matrix)
    if costs.ndim != 2:
        raise ValueError(f"expected a matrix (2-D array), got a {costs.ndim} array")
    if costs.size == 0:
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    try:
        found = None
        if suits(costs, easy=not maximize):
            if costs is not cost_matrix:  # else that was tried
                found = quick_assignment(costs, maximize)
            found = found or assignment(costs, maximize)
        return found or _by_solve(costs, maximize)
    except InvalidCostError as error:
        raise InvalidCostError("matrix contains invalid numeric entries", error.row, error.column) from error


def _of_tensor(given: Any, maximize: bool) -> tuple[Any, Any]:
    """Solve the costs of another library where they lie; return arrays of that library."""
    give = like(given)
    try:
        kind, number = place_of(given)
        costs = given if kind == CUDA else on_host(given)
    except DtypeError as error:
        raise TypeError(str(error)) from error
    if kind == CUDA:
        rows, columns = _by_solve(costs, maximize, device=f"cuda:{number}")
    else:
        rows, columns = linear_sum_assignment(costs, maximize)
    return give(rows), give(columns)


def _of_listed_pairs(given: Any, maximize: bool) -> tuple[Array, Array]:
    """Solve sparse costs: only listed pairs are allowed, and an explicit zero is a cost."""
    costs = given if isinstance(given, SparseCosts) else sparse(given)
    try:
        return _by_solve(costs, maximize)
    except OverflowRiskError:
        if costs.entries().costs.dtype.kind == "f":
            return _by_solve(costs.as_dtype(_FLOAT64), maximize)
    near = _near_zero(costs.entries())
    try:
        return _by_solve(from_csr(*near, costs.shape), maximize)
    except OverflowRiskError:
        return _by_floats(near, costs.shape, maximize)


def _near_zero(entries: Entries) -> Entries:
    """Return int64 costs less their median, which changes no choice, unless a difference leaves int64."""
    whole = entries.costs.astype(np.int64)
    base = int(np.partition(whole, whole.size // 2)[whole.size // 2])
    ends = np.iinfo(np.int64)
    if int(whole.min()) - base >= ends.min and int(whole.max()) - base <= ends.max:
        whole -= base
    return entries._replace(costs=whole)


def _by_floats(entries: Entries, shape: tuple[int, int], maximize: bool) -> tuple[Array, Array]:
    """Solve large integers as float64, none worse than it is: exact if the pairs chosen are.

    Raises OverflowRiskError where one of them was rounded.
    """
    whole = entries.costs
    floats = np.minimum(whole.astype(np.float64), 2.0**63 - 2.0**10)
    back = floats.astype(np.int64)
    worse = back < whole if maximize else back > whole
    better = np.where(worse, np.nextafter(floats, np.inf if maximize else -np.inf), floats)
    row_ind, col_ind = _by_solve(from_csr(entries.start, entries.columns, better, shape), maximize)
    chosen = np.full(shape[0], -1)
    chosen[row_ind] = col_ind
    rounded = np.flatnonzero((chosen[entries.rows()] == entries.columns) & (back != whole))
    if rounded.size:
        k = rounded[0]
        row, column = int(entries.rows()[k]), int(entries.columns[k])
        raise OverflowRiskError(
            f"cost[{row}, {column}] is as far from the others as float64 does not hold exactly, and sums"
            " of such integers leave int64; scale them down, or convert them to float64",
            row,
            column,
        )
    return row_ind, col_ind


def _by_solve(costs: Any, maximize: bool, device: str = "cpu") -> tuple[Array, Array]:
    from bigsap.result import Status
    from bigsap.solve import solve

    scale = 1.0
    try:
        result = solve(costs, maximize=maximize, device=device)
    except OverflowRiskError:
        if not isinstance(costs, np.ndarray):
            raise
        smaller, scale = _with_room_for_sums(costs)
        result = solve(smaller, maximize=maximize)
    if result.status == Status.INFEASIBLE:
        raise InfeasibleError("cost matrix is infeasible", result.violator.tolist())
    if result.status == Status.IMPRECISE:
        warnings.warn(
            "the costs differ by so many orders of magnitude that the assignment is proved only to within"
            f" {(result.gap or 0) / scale} of the optimum, see bigsap.solve",
            UserWarning,
            stacklevel=level_of_caller(),
        )
    return result.row_ind, result.col_ind


def _with_room_for_sums(costs: Array) -> tuple[Array, float]:
    """Return integers as float64, floats times a power of two, and that: only denormals lose digits."""
    scale = 1.0 if costs.dtype.kind in "biu" else 2.0**-64
    return costs.astype(np.float64) * scale, scale


def _as_scipy_reads(cost_matrix: Any) -> Array:
    """Return the array that scipy would read, but keep integers as integers.

    scipy converts an array only if that is safe (TypeError otherwise); lists and scalars as
    ``float()`` would.
    """
    if _is_array(cost_matrix):
        return _as_array(cost_matrix)
    if isinstance(cost_matrix, (list, tuple)) and any(mask_of(row) is not None for row in cost_matrix):
        costs, missing = parted(cost_matrix, "cost_matrix")
        _refuse_masked(missing)
        return costs
    try:
        costs = np.asarray(cost_matrix)
        if costs.dtype.kind in "biu":
            return costs
    except ValueError:
        pass  # ragged: the conversion below raises the error
    return np.asarray(cost_matrix, dtype=np.float64)


def _as_array(given: Any) -> Array:
    """Return an array, or an object that converts itself to one, as numbers."""
    if labelled(given):
        given, missing = parted(given, "cost_matrix")
        _refuse_masked(missing)
    elif type(given).__module__.partition(".")[0] == "dask" and hasattr(given, "compute"):
        given = given.compute()  # its conversion to an array drops masks
    mask = mask_of(given)
    if mask is not None:
        _refuse_masked(mask)
        given = under_mask(given)
    try:
        costs = np.asarray(given)
    except (ValueError, TypeError, MemoryError, OSError):
        raise
    except Exception as error:  # a library's own
        raise DtypeError(f"cost_matrix cannot be seen as a numpy array: {error}") from error
    if not np.can_cast(costs.dtype, np.float64, "safe"):
        if isinstance(given, np.ndarray) or not hasattr(type(given), "__array__"):
            costs.astype(np.float64, casting="safe")  # raises the error
        # Frames and others convert themselves if float64 is requested.
        asked = np.asarray(given.__array__(np.dtype(np.float64)))
        asked = asked.astype(np.float64, casting="safe")
        costs = _whole_numbers(costs, asked)
    # bfloat16, float8, int4 and others
    return costs if costs.dtype.kind in "biuf" and costs.dtype.num < 256 else costs.astype(float)


def _whole_numbers(objects: Array, floats: Array) -> Array:
    """Return objects that are all integers as int64, to be solved exactly; others as floats."""
    if objects.dtype != np.object_ or objects.shape != floats.shape:
        return floats
    kinds = set(map(type, objects.reshape(-1)))
    if not kinds or not all(issubclass(k, (int, np.integer)) for k in kinds):
        return floats
    try:
        return objects.astype(np.int64)
    except OverflowError:
        return floats


def _refuse_masked(mask: Array | None) -> None:
    if mask is not None and mask.ndim == 2 and mask.any():
        row, column = (int(k) for k in np.argwhere(mask)[0])
        raise InvalidCostError("matrix contains invalid numeric entries", row, column)


def _is_array(value: Any) -> bool:
    """Return whether numpy takes the dtype from the object instead of its items."""
    kind = type(value)
    if any(hasattr(kind, n) for n in ("__array__", "__array_interface__", "__array_struct__")):
        return True
    if isinstance(value, (list, tuple, str, bytes)):
        return False
    try:
        memoryview(value)
    except TypeError:
        return False
    return True
