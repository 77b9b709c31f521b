"""``linear_sum_assignment``: scipy's function of that name, answer for answer."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap.errors import InfeasibleError, InvalidCostError, OverflowRiskError, quiet
from bigsap.run.small_arrays import assignment, suits
from bigsap.sources.base import Array
from bigsap.sources.missing import mask_of, parted, under_mask
from bigsap.sources.packing import labelled


@quiet
def linear_sum_assignment(cost_matrix: Any, maximize: bool = False) -> tuple[Array, Array]:
    """Solve the linear sum assignment problem, in place of scipy's function.

    cost_matrix: (n, m) array_like of real numbers; ``inf`` (``-inf`` when maximising)
        forbids a pair. Accepted and refused are the same inputs as by
        ``scipy.optimize.linear_sum_assignment``, with the same texts.
    maximize: whether the sum is to be largest.

    Returns ``(row_ind, col_ind)``, two intp arrays of length min(n, m), ``row_ind``
    sorted: ``cost_matrix[row_ind, col_ind].sum()`` is optimal. Among equally good
    assignments it may choose another one than scipy; the identity, where optimal, is
    always the choice.

    Raises ValueError for anything but two dimensions, for NaN, the wrong infinity and
    missing values, of which scipy takes what lies under a mask or marks them in a file
    (InvalidCostError, whose ``row`` and ``column`` say where; scale and offset of such files
    are applied) and when no assignment avoids the forbidden pairs
    (InfeasibleError, whose ``violator`` says why); TypeError for costs that cannot safely
    become float64.

    Integer costs are solved exactly, in integers, unless their sums could leave
    int64; then, as scipy always does, as float64. Memory: the matrix is used in
    place, the rest is O(n + m). For anything beyond arrays see ``bigsap.solve``.
    """
    maximize = bool(maximize)
    costs = cost_matrix
    if type(costs) is not np.ndarray or costs.dtype != np.float64:
        costs = _as_scipy_reads(cost_matrix)
    if costs.ndim != 2:
        raise ValueError(f"expected a matrix (2-D array), got a {costs.ndim} array")
    if costs.size == 0:
        return np.empty(0, dtype=np.intp), np.empty(0, dtype=np.intp)
    try:
        found = assignment(costs, maximize) if suits(costs) else None
        return _by_solve(costs, maximize) if found is None else found
    except InvalidCostError as error:
        raise InvalidCostError("matrix contains invalid numeric entries", error.row, error.column) from error


def _by_solve(costs: Array, maximize: bool) -> tuple[Array, Array]:
    from bigsap.result import Status
    from bigsap.solve import solve

    try:
        result = solve(costs, maximize=maximize)
    except OverflowRiskError:
        result = solve(_with_room_for_sums(costs), maximize=maximize)
    if result.status == Status.INFEASIBLE:
        raise InfeasibleError("cost matrix is infeasible", result.violator.tolist())
    return result.row_ind, result.col_ind


def _with_room_for_sums(costs: Array) -> Array:
    """Integers as float64; floats times a power of two: only denormals lose digits."""
    exponent = 0 if costs.dtype.kind in "biu" else -64
    return np.ldexp(costs.astype(np.float64), exponent)


def _as_scipy_reads(cost_matrix: Any) -> Array:
    """The array that scipy would read, but integers stay integers.

    scipy converts what is an array already only where that is safe (TypeError
    otherwise); lists and scalars as ``float()`` would.
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
        pass  # ragged: the conversion words the error
    return np.asarray(cost_matrix, dtype=np.float64)


def _as_array(given: Any) -> Array:
    """What is an array already, or makes one of itself, as numbers."""
    if labelled(given):
        given, missing = parted(given, "cost_matrix")
        _refuse_masked(missing)
    elif type(given).__module__.partition(".")[0] == "dask" and hasattr(given, "compute"):
        given = given.compute()  # its conversion to an array drops masks
    mask = mask_of(given)
    if mask is not None:
        _refuse_masked(mask)
        given = under_mask(given)
    costs = np.asarray(given)
    if not np.can_cast(costs.dtype, np.float64, "safe"):
        if isinstance(given, np.ndarray) or not hasattr(type(given), "__array__"):
            costs.astype(np.float64, casting="safe")  # words the error
        # Asked for float64, frames and others convert by themselves.
        asked = np.asarray(given.__array__(np.dtype(np.float64)))
        asked = asked.astype(np.float64, casting="safe")
        costs = _whole_numbers(costs, asked)
    # bfloat16, float8, int4 and the like
    return costs if costs.dtype.kind in "biuf" and costs.dtype.num < 256 else costs.astype(float)


def _whole_numbers(objects: Array, floats: Array) -> Array:
    """Objects that are all integers as int64, which are solved exactly; others as the floats."""
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
    """Whether numpy takes the dtype from the object instead of its items."""
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
