"""Adversarial problems of other kinds than one column a row: sparse costs, capacities, demands,
bottlenecks, rankings.

``draw`` gives the problem ``number`` of a seed, as ``adversarial.draw`` does; the place is
"inputs", on this machine. Every kind is turned into an ordinary problem for the judge: forbidden
pairs are infinite, a column of capacity 3 is three columns, pairs beyond the bottleneck are
forbidden. Bottlenecks and rankings are found anew, in exact arithmetic.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import scipy.sparse

import bigsap
from adversarial import Case, options_of, pick, prices_of, shape_of
from adversarial_costs import FAMILIES, matrix_of
from adversarial_ways import Outcome, Place
from exact_judge import Truth
from exact_oracle import grid, grids, nearest, optimum

PLACE = "inputs"
KINDS = (("sparse", 40), ("capacity", 14), ("demand", 10), ("bottleneck", 16), ("ranked", 20))
SIZES = ((8, 45), (40, 40), (120, 15))
#: Expanded problems of at most so many rows have an exact optimum at hand.
_FEW = 40
_WAYS = (("solve", 40), ("stopped", 25), ("resumed", 20), ("kept", 15))
#: Options of ``solve`` that have no meaning with sparse costs, capacities or a bottleneck.
_DENSE = ("method", "variant", "start", "epsilon", "cache")
_EVERYTHING = 6


def draw(seed: int, number: int, most: int = 2500) -> Case:
    """A problem. most: rows or columns at most."""
    rng = np.random.default_rng((seed, number, 1 << 21))
    kind, way = pick(rng, KINDS), pick(rng, _WAYS)
    maximize = bool(rng.random() < 0.3)
    limit = {"ranked": 12, "sparse": most}.get(kind, _FEW)
    n, m = shape_of(rng, SIZES, min(most, limit))
    if kind == "ranked" and rng.random() < 0.5:
        n, m = min(n, _EVERYTHING), min(m, _EVERYTHING)
    family, matrix = matrix_of(rng, n, m, maximize, FAMILIES)
    thin = kind == "sparse" or rng.random() < 0.3
    if thin or kind == "bottleneck":
        matrix = _narrowed(matrix)
    prices = None
    if kind != "bottleneck" and rng.random() < 0.3:
        prices = prices_of(rng, matrix, maximize)
    given: dict[str, Any] = {}
    if kind == "capacity":
        given["capacity"] = _shares(rng, m, n, prices is not None)
    elif kind == "demand":
        given["demand"] = np.bincount(rng.integers(n, size=rng.integers(m + 1)), minlength=n)
    cost, source = matrix, "array"
    if thin:
        cost, matrix, source = _thinned(rng, matrix, maximize)
    options = options_of(rng, "host", way, matrix, maximize, prices is not None)
    for name in _DENSE:
        options.pop(name, None)
    if kind == "bottleneck":
        given["objective"] = "bottleneck"
        options.pop("gap", None)
    if kind == "ranked":
        way, options = "ranked", {"k": int(rng.choice([1, 2, 7, 30, 200, 10_000]))}
    family = f"{kind} {family}"
    case = Case(
        seed, number, family, PLACE, way, source, cost, matrix, maximize, prices, options | given, rng
    )
    return replace(case, ordinary=ORDINARY[kind](case)) if kind in ORDINARY else case


def _shares(rng: np.random.Generator, m: int, n: int, fewer: bool) -> Any:
    """Capacities of m columns that hold n rows; with ``fewer`` now and then not all of them."""
    least = -(-n // m)
    if rng.random() < 0.4:
        return least + int(rng.integers(0, 3))
    found = rng.integers(0, 2 * least + 1, m)
    lacking = n - int(found.sum())
    if lacking > 0 and not (fewer and rng.random() < 0.5):
        found[rng.integers(m)] += lacking
    return found


def _thinned(rng: np.random.Generator, matrix: np.ndarray, maximize: bool) -> tuple[Any, np.ndarray, str]:
    """Some pairs of a matrix as sparse costs; the same as a matrix."""
    n, m = matrix.shape
    at = rng.random((n, m)) < float(rng.choice([0.05, 0.2, 0.5, 0.9]))
    if rng.random() < 0.25:  # independent parts
        parts = int(rng.integers(1, 5))
        at |= rng.random((n, m)) < 0.5
        at &= rng.integers(parts, size=n)[:, None] == rng.integers(parts, size=m)
    if rng.random() < 0.75:
        k = min(n, m)
        at[rng.permutation(n)[:k], rng.permutation(m)[:k]] = True
    rows, columns = np.nonzero(at)
    kind = str(rng.choice(["csr", "csc", "coo"]))
    made = scipy.sparse.coo_array((matrix[rows, columns], (rows, columns)), shape=(n, m)).asformat(kind)
    whole = np.where(at, matrix.astype(np.float64), -math.inf if maximize else math.inf)
    return made, whole, kind


def _narrowed(matrix: np.ndarray) -> np.ndarray:
    """Integers whose sums doubles hold: the judge needs infinities among them."""
    if matrix.dtype.kind == "f":
        return matrix
    largest = max(abs(int(matrix.min(initial=0))), abs(int(matrix.max(initial=0))))
    return matrix // 2 ** max(0, largest.bit_length() - 40)


# -- as ordinary problems ------------------------------------------------------------------------


def of_capacities(case: Case) -> Any:
    """A column for each of its places."""
    m = case.matrix.shape[1]
    places = np.repeat(np.arange(m), np.broadcast_to(case.options["capacity"], (m,)))
    first = np.searchsorted(places, np.arange(m))
    truth = Truth(case.matrix[:, places], case.maximize, case.unassigned)

    def ordinary(result: Any) -> tuple[Truth, Any, list[str]]:
        if result.fun is None:
            return truth, _changed(result, v=result.v[places], v_low=_at(result.v_low, places)), []
        taken = np.asarray(result.col4row)
        rank = np.zeros(len(taken), np.intp)
        for j in np.unique(taken[taken >= 0]):
            rank[taken == j] = np.arange((taken == j).sum())
        crowded = [j for j in np.unique(taken[taken >= 0]) if (taken == j).sum() > (places == j).sum()]
        if crowded:
            return truth, result, [f"bad assignment: columns {crowded} beyond their capacities"]
        columns = np.where(taken >= 0, first[taken] + rank, -1)
        return truth, _changed(result, columns, v=result.v[places], v_low=_at(result.v_low, places)), []

    return ordinary


def of_demands(case: Case) -> Any:
    """A row for each column that it is to take."""
    n = case.matrix.shape[0]
    demand = np.broadcast_to(case.options["demand"], (n,))
    places = np.repeat(np.arange(n), demand)
    prices = case.unassigned
    if prices is not None:
        prices = np.broadcast_to(np.asarray(prices), (n,))[places]
    truth = Truth(case.matrix[places], case.maximize, prices)

    def ordinary(result: Any) -> tuple[Truth, Any, list[str]]:
        columns = np.full(len(places), -1, np.intp)
        if result.fun is not None:
            pairs = result.pairs()
            for i in range(n):
                own = pairs[pairs[:, 0] == i, 1]
                if len(own) > demand[i]:
                    return truth, result, [f"bad assignment: row {i} has {len(own)} columns"]
                columns[np.flatnonzero(places == i)[: len(own)]] = own
        arrays = {"u": result.u[places], "u_low": _at(result.u_low, places)}
        if result.violator is not None:
            arrays["violator"] = np.flatnonzero(np.isin(places, result.violator))
        return truth, _changed(result, columns, **arrays), []

    return ordinary


def of_bottleneck(case: Case) -> Any:
    """Pairs beyond the bottleneck are forbidden."""
    limit = least_bottleneck(case.matrix, case.maximize)
    whole = Truth(case.matrix, case.maximize)
    if limit is not None:
        allowed = within(case.matrix, limit, case.maximize)
        kept = Truth(np.where(allowed, case.matrix, -math.inf if case.maximize else math.inf), case.maximize)

    def ordinary(result: Any) -> tuple[Truth, Any, list[str]]:
        if result.bottleneck is None:
            ended = str(result.status) not in ("time_limit", "cancelled", "infeasible")
            return whole, result, [f"wrong status: {result.status} without a bottleneck"] * ended
        if limit is None or grid(result.bottleneck) != grid(limit):
            return whole, result, [f"wrong bottleneck: {result.bottleneck!r} in place of {limit!r}"]
        return kept, result, []

    return ordinary


def _changed(result: Any, columns: Any = None, **arrays: Any) -> Any:
    """The result of the ordinary problem: what the judge reads of it."""
    fields = ("status", "fun", "bound", "gap", "u", "v", "u_low", "v_low", "violator")
    found = {name: getattr(result, name) for name in fields} | arrays
    return SimpleNamespace(**found, col4row=columns)


def _at(numbers: Any, places: np.ndarray) -> Any:
    return None if numbers is None else numbers[places]


# -- bottlenecks -------------------------------------------------------------------------------


def least_bottleneck(matrix: np.ndarray, maximize: bool) -> Any:
    """The smallest largest cost (the largest smallest one) of min(n, m) pairs; None if infeasible."""
    allowed = np.isfinite(matrix) if matrix.dtype.kind == "f" else np.ones(matrix.shape, bool)
    costs = np.unique(matrix[allowed])
    costs = costs[::-1] if maximize else costs
    low, high = 0, len(costs)
    while low < high:
        middle = (low + high) // 2
        if _complete(within(matrix, costs[middle], maximize)):
            high = middle
        else:
            low = middle + 1
    return costs[low] if low < len(costs) else None


def within(matrix: np.ndarray, limit: Any, maximize: bool) -> np.ndarray:
    """Which pairs a largest (or smallest) cost allows."""
    allowed = np.isfinite(matrix) if matrix.dtype.kind == "f" else np.ones(matrix.shape, bool)
    return allowed & (matrix >= limit if maximize else matrix <= limit)


def _complete(allowed: np.ndarray) -> bool:
    graph = scipy.sparse.csr_array(allowed.astype(np.int8))
    matched = scipy.sparse.csgraph.maximum_bipartite_matching(graph)
    return int((matched >= 0).sum()) == min(allowed.shape)


# -- rankings ----------------------------------------------------------------------------------


def ranked_costs(matrix: np.ndarray, k: int, maximize: bool, unassigned: Any) -> list[int]:
    """The k least costs of assignments, in units and for minimising: all are tried."""
    n, m = matrix.shape
    sign = -1 if maximize else 1
    numbers = grids(matrix)
    prices = None if unassigned is None else grids(np.broadcast_to(np.asarray(unassigned), (n,)))
    must_stay = max(0, n - m)
    found: list[int] = []

    def extend(row: int, taken: int, left_out: int, cost: int) -> None:
        if row == n:
            found.append(sign * cost)
            return
        for j in range(m):
            if not taken >> j & 1 and numbers[row, j] is not None:
                extend(row + 1, taken | 1 << j, left_out, cost + numbers[row, j])
        if prices is None and left_out < must_stay:
            extend(row + 1, taken, left_out + 1, cost)
        elif prices is not None and prices[row] is not None:
            extend(row + 1, taken, left_out, cost + prices[row])

    extend(0, 0, 0, 0)
    return sorted(found)[:k]


def ranked(case: Case, place: Place, folder: Path, found: Outcome) -> None:
    k = case.options["k"]
    n, m = case.matrix.shape
    everything = max(n, m) <= _EVERYTHING
    k = k if everything else min(k, 200)
    asked: dict[str, Any] = {"maximize": case.maximize}
    if case.unassigned is not None:
        asked["unassigned_cost"] = case.unassigned
    try:
        ranking = bigsap.solve_k_best(case.cost, k, **asked)
    except bigsap.OverflowRiskError as error:
        if not _wide(case):
            raise
        found.refused = type(error).__name__
        return
    found.results += 1
    truth = Truth(case.matrix, case.maximize, case.unassigned)
    exact = []
    for cost, col4row in ranking:
        paid = truth.paid(col4row)
        if isinstance(paid, str):
            found.faults.append(f"bad assignment: {paid}")
            return
        exact.append(truth.sign * paid[0])
        right = grid(cost) == paid[0] if isinstance(cost, int) else float(cost) == nearest(paid[0])
        if not right:
            found.faults.append(f"wrong fun: {cost!r} of pairs that cost {nearest(paid[0])!r}")
    order = [(cost, tuple(columns)) for cost, (_, columns) in zip(exact, ranking, strict=True)]
    if any(a >= b for a, b in itertools.pairwise(order)):
        found.faults.append("wrong order: of costs, or of columns")
    if everything:
        right_costs = ranked_costs(case.matrix, k + 1, case.maximize, case.unassigned)
        if exact != right_costs[:k]:
            found.faults.append("wrong optimum: a cheaper assignment is missing")
        if ranking.complete != (len(right_costs) <= k):
            found.faults.append(f"wrong status: complete={ranking.complete}")
        return
    best = optimum(case.matrix, case.maximize, case.unassigned)
    if (best is None) != (not exact) or (best is not None and truth.sign * best[0] != exact[0]):
        found.faults.append("wrong optimum: the first is not the best")
    _neighbours(case, truth, exact, order, ranking.complete, found)


def _wide(case: Case) -> bool:
    """Whether exact sums, and the duals that order ties, may need more than 120 bits."""
    prices = [] if case.unassigned is None else np.ravel(case.unassigned)
    numbers = [abs(x) for x in (*grids(case.matrix).ravel(), *grids(np.asarray(prices))) if x]
    bits = max(numbers, default=1).bit_length() - min((x & -x for x in numbers), default=1).bit_length()
    return bits + sum(case.matrix.shape).bit_length() + 4 > 110


def _neighbours(
    case: Case, truth: Truth, exact: list[int], order: list[Any], complete: bool, found: Outcome
) -> None:
    """No assignment that differs by two rows' columns from one in the list is cheaper than the last."""
    known = {columns for _, columns in order}
    for _, columns in order[:20]:
        for i, j in itertools.combinations(range(len(columns)), 2):
            other = np.array(columns)
            other[[i, j]] = other[[j, i]]
            paid = truth.paid(other)
            if isinstance(paid, str) or tuple(other) in known:
                continue
            if complete or truth.sign * paid[0] < exact[-1]:
                found.faults.append("wrong optimum: a cheaper assignment is missing")
                return


ORDINARY = {"capacity": of_capacities, "demand": of_demands, "bottleneck": of_bottleneck}
#: Further ways to solve.
WAYS = {"ranked": ranked}
