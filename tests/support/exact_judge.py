"""Whether what a solve claims is true, decided without any rounding. Nothing of bigsap here.

``Truth`` is a problem with what is known of its optimum; ``judge`` lists the claims of a result
that are wrong. The optimum of small problems is found by ``exact_oracle.optimum``. For larger
ones the result's own prices prove a bound; what is left open is closed by
``exact_oracle.settle``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from exact_oracle import dual_bound, grid, grids, nearest, optimum, row_minima, settle

#: Up to so many rows or columns of the shorter side the optimum is found first.
SMALL = 60
#: An optimal result's cost and gap are within 2**-50 of its costs' sizes from the optimum.
SHARE = 50
#: Without a certificate its cost is within 2**-40.
UNPROVED = 40


@dataclass
class Truth:
    """A problem, and what is known of its optimum, in units and for minimising.

    upper: the cost of the best assignment seen; lower: the best bound proved; ``math.inf`` and None
    where there is none.
    """

    cost: np.ndarray
    maximize: bool = False
    unassigned: np.ndarray | None = None
    small: int = SMALL
    upper: int | None = None
    lower: int | None = None
    infeasible: bool | None = None
    _hint: tuple[Any, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        n, m = self.cost.shape
        if self.unassigned is not None:
            self.unassigned = np.broadcast_to(np.asarray(self.unassigned), (n,))
        if min(n, m) <= self.small and max(n, m) <= 8 * self.small:
            found = optimum(self.cost, self.maximize, self.unassigned)
            self.infeasible = found is None
            if found is not None:
                self.upper = self.lower = self.sign * found[0]

    @property
    def sign(self) -> int:
        return -1 if self.maximize else 1

    def paid(self, col4row: Any) -> tuple[int, int] | str:
        """Cost and sum of sizes of an assignment, in units; or what is wrong with it."""
        n, m = self.cost.shape
        columns = np.asarray(col4row)
        if columns.shape != (n,) or columns.dtype.kind != "i":
            return f"col4row is {columns.dtype} {columns.shape}"
        (rows,) = np.nonzero(columns >= 0)
        taken = columns[rows]
        if columns.min(initial=0) < -1 or columns.max(initial=-1) >= m:
            return "a column that is none"
        if np.unique(taken).size != taken.size:
            return "a column twice"
        units = grids(self.cost[rows, taken])
        if any(x is None for x in units):
            return "a forbidden pair"
        if self.unassigned is not None:
            left = grids(self.unassigned[columns < 0])
            if any(x is None for x in left):
                return "a row left out that must not be"
            units = np.concatenate((units, left))
        elif taken.size != min(n, m):
            return f"{taken.size} pairs of {min(n, m)}"
        return sum(units.tolist()), sum(abs(x) for x in units.tolist())

    def assigned(self, cost: int) -> None:
        """Somebody has an assignment of this cost."""
        cost *= self.sign
        self.upper = cost if self.upper is None else min(cost, self.upper)

    def priced(self, v: Any, v_low: Any = None) -> tuple[list[int | None], int | None]:
        """The rows' minima by some prices, and what they prove, which is kept."""
        minima = row_minima(self.cost, v, v_low, self.maximize)
        usable = self.unassigned is None or (self.sign * np.asarray(v)).max(initial=0) <= 0
        proved = None
        if usable:
            proved = dual_bound(minima, v, v_low, self.maximize, self.unassigned)
        if proved is not None and (self.lower is None or proved > self.lower):
            self.lower, self._hint = proved, (v, v_low)
        return minima, proved

    def settled(self) -> int:
        """The optimum, in units and for minimising."""
        if self.lower is None or self.lower != self.upper:
            if self.unassigned is not None:
                found = optimum(self.cost, self.maximize, self.unassigned)
                assert found is not None
                self.upper = self.lower = self.sign * found[0]
            else:
                v, low = self._hint or (np.zeros(self.cost.shape[1]), None)
                self.upper = self.lower = self.sign * settle(self.cost, v, low, self.maximize)
        return self.upper

    def below_optimum(self, units: int) -> bool:
        """Whether this is no more than the optimum."""
        if self.lower is not None and units <= self.lower:
            return True
        if self.upper is not None and units > self.upper:
            return False
        return units <= self.settled()


@dataclass(frozen=True)
class Verdict:
    """faults: what is wrong, each begun by its kind. imprecise: optimality was not proved.
    exact: whether the assignment is as good as an optimal one nevertheless."""

    faults: list[str]
    imprecise: bool = False
    exact: bool = True


def judge(truth: Truth, found: Any, *, certified: bool = True, gap: float = 0.0) -> Verdict:
    """What a result claims against the truth. certified: it says that it has a certificate.
    gap: as asked for."""
    status = str(found.status)
    if status == "infeasible":
        return Verdict(_infeasible(truth, found))
    faults: list[str] = []
    sign = truth.sign
    if truth.infeasible:
        if found.fun is None and status in ("time_limit", "cancelled"):
            return Verdict([])
        return Verdict([f"wrong status: {status}, but it is infeasible"])
    cost = size = None
    if found.fun is None:
        if status not in ("time_limit", "cancelled"):
            faults.append(f"wrong status: {status} without an assignment")
    else:
        paid = truth.paid(found.col4row)
        if isinstance(paid, str):
            return Verdict([f"bad assignment: {paid}"])
        cost, size = paid
        truth.assigned(cost)
        faults += _fun(truth, found.fun, cost)
        cost *= sign
    proved = _duals(truth, found, faults, certified)
    bound = None
    if found.bound is not None and not math.isinf(found.bound):
        bound = sign * grid(found.bound)
        if not truth.below_optimum(bound):
            faults.append(
                f"false bound: {found.bound!r}, the optimum is"
                f" {sign * nearest(truth.settled())!r} (by {_off(bound - truth.settled())})"
            )
    if found.gap is not None:
        faults += _gap(truth, found, cost, bound)
    if cost is None:
        return Verdict(faults)
    within = size >> SHARE
    if status == "optimal":
        if certified:
            faults += _optimal(found, within)
        else:
            within = size >> UNPROVED
        if not truth.below_optimum(cost - within):
            faults.append(
                f"wrong optimum: {found.fun!r} in place of {sign * nearest(truth.settled())!r}"
                f" (by {_off(cost - truth.settled())}, of {nearest(size)!r})"
            )
        if certified and proved is None:
            faults.append("false dual: optimal, but the duals prove nothing")
    if status == "gap_reached" and not (found.gap is not None and found.gap <= gap):
        faults.append(f"wrong status: gap_reached with gap {found.gap!r} of {gap!r}")
    if status == "imprecise":
        return Verdict(faults, True, truth.below_optimum(cost - within))
    return Verdict(faults)


def _off(units: int) -> str:
    return f"{nearest(units):.3g}"


def _fun(truth: Truth, fun: Any, cost: int) -> list[str]:
    """The cost of the pairs, rounded to nearest; integers are exact."""
    integer = truth.cost.dtype.kind in "iu"
    if truth.unassigned is not None:
        integer = integer and truth.unassigned.dtype.kind in "iub"
    exact = isinstance(fun, int)
    right = grid(fun) == cost if exact else float(fun) == nearest(cost)
    if not right:
        return [f"wrong fun: {fun!r} of pairs that cost {nearest(cost)!r}"]
    if integer and not exact:
        return [f"wrong fun: {fun!r} is no int"]
    return []


def _duals(truth: Truth, found: Any, faults: list[str], certified: bool) -> int | None:
    """What the duals prove; what is wrong with them."""
    sign = truth.sign
    n, m = truth.cost.shape
    u, v = np.asarray(found.u), np.asarray(found.v)
    if u.shape != (n,) or v.shape != (m,):
        faults.append(f"false dual: shapes {u.shape} and {v.shape}")
        return None
    if not np.isfinite(v).all():
        return None
    minima, proved = truth.priced(v, found.v_low)
    if not certified or not np.isfinite(u).all():
        return proved
    rows = [sign * x for x in grids(u)]
    columns = [sign * x for x in grids(v)]
    if found.u_low is not None:
        rows = [a + sign * b for a, b in zip(rows, grids(found.u_low), strict=True)]
    if found.v_low is not None:
        columns = [a + sign * b for a, b in zip(columns, grids(found.v_low), strict=True)]
    for i, (dual, least) in enumerate(zip(rows, minima, strict=True)):
        if least is not None and dual > least:
            faults.append(f"false dual: u[{i}] is too large by {_off(dual - least)}")
            break
    gated = truth.unassigned is not None
    if gated:
        prices = [None if p is None else sign * p for p in grids(truth.unassigned)]
        if any(p is not None and dual > p for dual, p in zip(rows, prices, strict=True)):
            faults.append("false dual: a row's is above its price")
    if (n < m or gated) and max(columns, default=0) > 0:
        faults.append("false dual: a column's is above 0")
    if n > m and not gated and max(rows, default=0) > 0:
        faults.append("false dual: a row's is above 0")
    if str(found.status) == "optimal" and found.bound is not None and found.bound == found.bound:
        total = sum(rows) + sum(columns)
        bound = sign * grid(found.bound)
        sizes = sum(map(abs, rows)) + sum(map(abs, columns))
        slack = (abs(bound) >> 51) + (sizes >> 99)
        slack += grid(1) if isinstance(found.bound, int) else 8
        if abs(total - bound) > slack:
            faults.append(f"false dual: their sum is off the bound by {_off(total - bound)}")
    return proved


def _gap(truth: Truth, found: Any, cost: int | None, bound: int | None) -> list[str]:
    """The exact cost less the exact bound, rounded up; the bound shown is rounded down."""
    if cost is None or bound is None:
        return [f"false gap: {found.gap!r} of nothing"] if math.isfinite(found.gap) else []
    if math.isinf(found.gap):
        return []
    gap = grid(found.gap)
    faults = []
    if gap < 0:
        faults.append(f"false gap: {found.gap!r} is negative")
    if not truth.below_optimum(cost - gap):
        faults.append(
            f"false gap: {found.gap!r}, and the cost is {_off(cost - truth.settled())} above the optimum"
        )
    # Beside what is shown, by the rounding of what is shown.
    shown = cost - bound
    rounding = 0 if isinstance(found.gap, int) else 2 * _last(found.fun) + 2 * _last(found.bound)
    rounding += _last(found.gap) if rounding else 0
    if gap > shown + rounding:
        faults.append(f"false gap: {found.gap!r} exceeds fun - bound, {nearest(shown)!r}")
    if gap < shown - rounding:
        faults.append(f"false gap: {found.gap!r} is below fun - bound, {nearest(shown)!r}")
    return faults


def _last(number: Any) -> int:
    """A unit in the last place of a number, in units."""
    return grid(math.ulp(float(number)))


def _optimal(found: Any, within: int) -> list[str]:
    """What the word optimal says of the gap."""
    if found.gap is None or found.bound is None:
        return ["wrong status: optimal without a gap"]
    if not math.isfinite(found.gap) or grid(found.gap) > within:
        return [f"wrong status: optimal with gap {found.gap!r}, allowed {nearest(within):.3g}"]
    return []


def _infeasible(truth: Truth, found: Any) -> list[str]:
    """Rows with too few allowed columns prove it."""
    if truth.infeasible is False:
        return ["wrong status: infeasible, but it is not"]
    n, m = truth.cost.shape
    rows = np.unique(np.asarray(found.violator))
    if not rows.size or rows.size != len(found.violator):
        return ["wrong violator: none, or rows twice"]
    allowed = np.ones(truth.cost.shape, bool)
    if truth.cost.dtype.kind == "f":
        allowed = np.isfinite(truth.cost)
    spare = max(0, n - m)
    if truth.unassigned is not None:
        spare = 0
        if any(x is not None for x in grids(truth.unassigned[rows])):
            return ["wrong violator: a row of it may be left out"]
    if rows.size - int(allowed[rows].any(axis=0).sum()) <= spare:
        return ["wrong violator: its rows have enough columns"]
    return []
