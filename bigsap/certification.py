"""``certify``: cost, bound and gap of an assignment that any program made."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bigsap.engine.core.team import check_threads
from bigsap.errors import CertificateError, OptionError, bound_call, flag, quiet
from bigsap.preview import NOT_CERTIFIED, check_assignment
from bigsap.progress import Monitor, Progress, Stopped
from bigsap.proof import certificate as proof
from bigsap.proof.capacities import certify_capacities
from bigsap.proof.certificate import Certificate
from bigsap.proof.refusals import refuse_masked
from bigsap.proof.unassigned import certify_gated
from bigsap.result import Result
from bigsap.solve import solve
from bigsap.sources import as_source
from bigsap.sources.base import in_sense, intact_throughout
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.missing import is_vector, parted, shape_of
from bigsap.sources.repeated import counts_of
from bigsap.types import Array, Tick


@quiet
def certify(
    cost: Any,
    col4row: Any,
    v: npt.ArrayLike | Result | None = None,
    v_low: npt.ArrayLike | None = None,
    *,
    maximize: bool = False,
    unassigned_cost: npt.ArrayLike | None = None,
    capacity: Any = None,
    shape: Sequence[int] | None = None,
    args: Sequence[Any] = (),
    dtype: npt.DTypeLike | None = None,
    threads: int | None = None,
    pairs: bool = False,
    **options: Any,
) -> Certificate:
    """Return the exact cost of an assignment, a proved bound of the optimum, and their gap.

    cost, shape, args, dtype, maximize, unassigned_cost: the problem, as for ``solve``.
    col4row: the assignment, in one of these forms. (n,) integers, the column of each row, -1 =
        unassigned. A tuple ``(row_ind, col_ind)`` of two vectors, as scipy returns it. A plan, an
        (n, m) array with at most one entry other than 0 in each row and column. A ``Result`` of
        this sense: its ``col4row``. None: prove a bound alone. min(n, m) pairs are assigned; with
        ``unassigned_cost`` as many as you like.
    v: (m,) column prices, any finite numbers: the better they are, the smaller the gap, and no
        prices can make the bound wrong. They are prices of the minimising problem: with
        ``maximize``, of minus the costs. Prices as ``Result.v`` has them there, of the opposite
        sign, are recognised: if the first bound leaves a gap, both are tried, by one more pass.
        A ``Result`` of the problem: its prices and their low parts. None: prices of a solve.
    v_low: (m,) low parts, for prices ``v + v_low``.
    capacity: whole number, or (m,) one a column: how many rows a column may take, as for ``solve``.
        Every row then needs a column, unless ``unassigned_cost`` is given.
    threads: None: the cores available. The certificate does not depend on the number.
    pairs: read every pair. Otherwise pairs that bounds of the costs exclude are not read (``points``
        and ``lowrank``); the numbers are the same.
    options: of ``solve``, for the solve without ``v``: ``time_limit``, ``cache``, ``device``, ...
        A solve that is stopped leaves a weaker bound. With ``v`` three of them count: ``callback``,
        ``callback_every`` and ``cancel``, which ends the pass by a CertificateError.

    Raises CertificateError if ``col4row`` is not an assignment of allowed pairs, InvalidCostError
    for NaN and the infinity that does not mean *forbidden*, OverflowRiskError if numbers leave int64
    or float64. With ``col4row=None``, an infeasible problem has the bound ``inf`` (``-inf`` under
    ``maximize``), if prices or a solve show it.

    Time with ``v``: one pass over the costs, O(n m), or about O((n + m) log m) with bounds. Without
    ``v``, a solve and a pass. Memory: two blocks of costs a thread, and ten vectors.
    """
    _check_options(options)
    maximize, pairs = flag(maximize, "maximize"), flag(pairs, "pairs")
    n_threads = check_threads(threads)
    source = in_sense(as_source(cost, shape=shape, args=args, dtype=dtype), maximize)
    n, m = (int(size) for size in source.shape)
    if isinstance(col4row, Result):
        col4row = columns_of_result(col4row, maximize)
    result = v if isinstance(v, Result) else None
    prices: Any = None if isinstance(v, Result) else v
    if result is not None and (result.shape != (n, m) or result.maximize != maximize):
        raise OptionError("v is not valid: it is a result of another shape or sense")
    pairs_given = zip(("row_ind", "col_ind"), col4row, strict=True) if _is_pairs(col4row) else ()
    for what, numbers in (("col4row", col4row), ("v", prices), ("v_low", v_low), *pairs_given):
        refuse_masked(what, numbers)
        _check_array(what, numbers)
    if prices is None and v_low is not None:
        reason = "without v: give both" if result is None else "with a result as v, which has its own"
        raise OptionError(f"v_low is not valid {reason}")
    counts = None if capacity is None else counts_of(capacity, m, "capacity", "column")
    found = None if col4row is None else columns_of(col4row, n, m, several=counts is not None)
    gated = None
    if unassigned_cost is not None:
        gated = ClippedCosts(source, unassigned_cost, maximize=maximize)

    tick = None if v is None else _ticker(options, n, m)

    def proved(high: Any, low: Any, *, normalise: bool = True) -> Certificate:
        ways: dict[str, Any] = {"threads": n_threads, "pairs": pairs, "tick": tick}
        if gated is not None:
            return certify_gated(gated, found, high, low, capacity=counts, **ways)
        ways |= {"maximize": maximize, "normalise": normalise}
        if counts is not None:
            return certify_capacities(source, counts, found, high, low, **ways)
        return proof.certify(source, found, high, low, **ways)

    with intact_throughout(source):
        if prices is not None:
            return _by_prices(proved, prices, v_low, maximize)
        if result is not None:
            return _by_result(proved, result)
        if found is not None:
            check_assignment(found, (n, m), counts, partial=gated is not None)
        limits: dict[str, Any] = {"unassigned_cost": unassigned_cost, "capacity": counts}
        result = solve(source, maximize=maximize, threads=threads, **limits, **options)
        if result.status == "infeasible" and found is None:
            return result.verify(source, unassigned_cost=unassigned_cost, threads=n_threads)
        return _by_result(proved, result)


def prices_of(result: Result) -> tuple[Array, Array | None]:
    """Return a result's prices, of the minimising problem; zeros if it has none."""
    if np.isnan(result.v).any():
        return np.zeros(result.shape[1]), None
    sign = -1 if result.maximize else 1
    return sign * result.v, None if result.v_low is None else sign * result.v_low


def _ticker(options: dict[str, Any], n: int, m: int) -> Tick:
    """Return what a pass calls now and then: it reports to ``callback`` and looks at ``cancel``."""
    named = {"callback": "callback", "cancel": "cancel", "callback_every": "interval"}
    given = {named[name]: options[name] for name in named if name in options}
    monitor = Monitor(**given, progress=Progress(n_rows=n, n_columns=m, stage="certificate"))

    def tick(_: int) -> None:
        try:
            monitor.tick()
        except Stopped:
            raise CertificateError("cancelled before all costs were read: nothing is proved") from None

    return tick


def _check_options(options: dict[str, Any]) -> None:
    for name, reason in NOT_CERTIFIED.items():
        if name in options:
            raise OptionError(f"certify takes no {name}=: {reason}")
    bound_call("certify", solve, None, **options)


def _check_array(what: str, given: Any) -> None:
    """Raise ShapeError or DtypeError for what numpy cannot convert, such as rows of unequal length."""
    for part in given if what == "col4row" and _is_pairs(given) else (given,):
        if not isinstance(part, np.ndarray):
            parted(part, what)


def columns_of_result(result: Result, maximize: bool) -> Array:
    """Return the column of each row. Raises OptionError where rows take several, or for another sense."""
    if result.maximize != maximize:
        made, asked = ("largest" if sense else "smallest" for sense in (result.maximize, maximize))
        raise OptionError(
            f"the assignment is a result for the {made} total, but the problem asks for the {asked}:"
            " set maximize to the result's"
        )
    if result.col4row is None:
        raise OptionError("rows that take several columns cannot be proved here: exchange rows and columns")
    found: Array = result.col4row
    return found


def columns_of(given: Any, n: int, m: int, *, several: bool) -> Any:
    """Return the column of each row of an assignment in any of its forms.

    several: a column may take several rows.
    """
    if _is_pairs(given):
        return _of_pairs(np.asarray(given[0]), np.asarray(given[1]), n)
    if shape_of(given) == (n, m):
        return _of_plan(np.asarray(given), several=several)
    return given


def _is_pairs(given: Any) -> bool:
    """Check whether an assignment is ``(row_ind, col_ind)``, and not the columns of two rows."""
    return isinstance(given, tuple) and len(given) == 2 and is_vector(given[0])


def _of_pairs(rows: Array, columns: Array, n: int) -> Array:
    if rows.shape != columns.shape or (rows.size and {rows.dtype.kind, columns.dtype.kind} - set("iu")):
        raise CertificateError("row_ind and col_ind must be integers, as many of the one as of the other")
    if rows.size and not 0 <= rows.min() <= rows.max() < n:
        row = rows[(rows < 0) | (rows >= n)][0]
        raise CertificateError(f"row {row} is assigned, outside 0..{n - 1}")
    if np.unique(rows).size != rows.size:
        row = int(np.argmax(np.bincount(rows.astype(np.intp)) > 1))
        raise CertificateError(f"row {row} is assigned twice")
    if columns.size and columns.min() < 0:
        raise CertificateError(f"col_ind holds {columns.min()}, which is not a column")
    if columns.dtype == np.uint64:
        columns = np.minimum(columns, np.iinfo(np.intp).max)
    found = np.full(n, -1, np.intp)
    found[rows.astype(np.intp)] = columns.astype(np.intp)
    return found


def _of_plan(plan: Array, *, several: bool) -> Array:
    """Return the columns of a plan's entries; two of them in a row is an error.

    In a column as well, unless a column may take several rows.
    """
    if plan.dtype.kind not in "biuf" or (plan.dtype.kind == "f" and np.isnan(plan).any()):
        raise CertificateError(f"a plan must hold real numbers, got {plan.dtype} or NaN")
    if not plan.shape[1]:
        return np.full(len(plan), -1)
    held = plan != 0
    sides = [("row", held.sum(axis=1))] + ([] if several else [("column", held.sum(axis=0))])
    for what, counts in sides:
        if counts.size and counts.max() > 1:
            where = int(np.argmax(counts > 1))
            raise CertificateError(
                f"the plan is not an assignment: {what} {where} has {counts[where]} entries"
            )
    return np.where(held.any(axis=1), held.argmax(axis=1), -1)


def _by_result(proved: Any, result: Result) -> Certificate:
    """Return the certificate of a result's prices: as they are, where a shift rounds too much of them."""
    sign = -1 if result.maximize else 1
    first: Certificate = proved(*prices_of(result))
    shifted = result.bound is not None and sign * first.bound < sign * result.bound
    if not shifted or result.unassigned_cost is not None or np.isnan(result.v).any():
        return first
    return _better(first, proved(*prices_of(result), normalise=False), result.maximize)


def _better(first: Certificate, second: Certificate, maximize: bool) -> Certificate:
    """Return the certificate of the better bound, with the work of both."""
    kept = first.bound <= second.bound if maximize else first.bound >= second.bound
    best = first if kept else second
    return replace(best, pairs=first.pairs + second.pairs, bounds=first.bounds + second.bounds)


def _by_prices(proved: Any, v: npt.ArrayLike, v_low: npt.ArrayLike | None, maximize: bool) -> Certificate:
    """Return the certificate of given prices; when maximising, the better one of both signs."""
    first: Certificate = proved(v, v_low)
    if not maximize or first.optimal or not np.any(v):
        return first
    low = None if v_low is None else -np.asarray(v_low)
    second: Certificate = proved(-np.asarray(v), low)
    return _better(first, second, maximize)
