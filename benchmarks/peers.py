"""The solvers measured beside each other: how each is loaded, fed and called.

Every one is imported by its own process only (see ``solver_child``). Conversions that a peer
needs are made before its clock starts, in its favour.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.sources.base import Array

#: Given prepared costs: the column of each row, and whatever else is worth a record.
Solve = Callable[[Any], tuple[Array, dict[str, Any]]]

# Float costs are scaled to so many bits for a solver of integers, which multiplies them by
# n twice: more would overflow its 63 bits at n = 16,000.
_BITS = 34


@dataclass(frozen=True)
class Solver:
    """name: as reported. module: is imported to see whether it is installed.

    distribution: whose version is reported. load: threads -> solve. prepare: what the
    solver wants instead of the matrix. rounding: by how much of the largest cost
    ``prepare`` may change a cost. threaded: whether more threads than one change anything.
    knows_forbidden: whether infinite costs are left to it; others get a large cost instead.
    """

    name: str
    module: str
    distribution: str
    load: Callable[[int], Solve]
    prepare: Callable[[Array], Any] = lambda cost: cost
    rounding: float = 0.0
    threaded: bool = False
    knows_forbidden: bool = False

    def prepared(self, cost: Array) -> Any:
        """What it is given for these costs."""
        return self.prepare(cost if self.knows_forbidden else _without_forbidden(cost))

    def installed(self) -> bool:
        """Whether it can be imported; nothing is."""
        return importlib.util.find_spec(self.module) is not None


def own_name(method: str, device: str = "cpu") -> str:
    """What BigSAP's methods are called in the log: ``bigsap auto``, ``bigsap auto cuda``."""
    return f"bigsap {method}" + ("" if device == "cpu" else f" {device}")


def _bigsap(method: str, device: str) -> Solver:
    def load(threads: int) -> Solve:
        import bigsap

        def solve(cost: Array) -> tuple[Array, dict[str, Any]]:
            result = bigsap.solve(cost, method=method, threads=threads, device=device, certify=False)
            kept = ("rows_scanned", "rows_evaluated", "pairs_evaluated", "method")
            return result.col4row, {name: result.stats[name] for name in kept}

        return solve

    return Solver(own_name(method, device), "bigsap", "bigsap", load, threaded=True, knows_forbidden=True)


def _scipy(threads: int) -> Solve:
    from scipy.optimize import linear_sum_assignment

    return lambda cost: (linear_sum_assignment(cost)[1], {})


def _lapjv(threads: int) -> Solve:
    import lap

    return lambda cost: (lap.lapjv(cost, return_cost=False)[0], {})


def _lapjvr(threads: int) -> Solve:
    import lap

    def solve(cost: Array) -> tuple[Array, dict[str, Any]]:
        rows, columns = lap.lapjvr(cost, return_cost=False)
        return columns[np.argsort(rows)], {}

    return solve


def _algorithm_1015(threads: int) -> Solve:
    from py_lap_solver.solvers.lap1015_solver import Lap1015Solver

    # With OpenMP and a single thread it returns garbage.
    solver = Lap1015Solver(use_openmp=threads > 1)
    return lambda cost: (solver.solve_single(cost), {})


def _auction(threads: int) -> Solve:
    import fastlap

    return lambda cost: (np.array(fastlap.solve_lap(cost, algorithm="auction")[1]), {})


def _emd(threads: int) -> Solve:
    import ot

    def solve(cost: Array) -> tuple[Array, dict[str, Any]]:
        plan = ot.emd([], [], cost, numItermax=100_000_000, numThreads=threads)
        return plan.argmax(axis=1), {}

    return solve


def _ortools(threads: int) -> Solve:
    def solve(assignment: Any) -> tuple[Array, dict[str, Any]]:
        status = assignment.solve()
        if status != assignment.OPTIMAL:
            raise RuntimeError(f"ortools: status {status}")
        mates = [assignment.right_mate(i) for i in range(assignment.num_nodes())]
        return np.array(mates), {}

    return solve


def _arcs(cost: Array) -> Any:
    """The problem with all its arcs; costs as integers of at most ``_BITS`` bits."""
    from ortools.graph.python.linear_sum_assignment import SimpleLinearSumAssignment

    n = cost.shape[0]
    if cost.dtype.kind == "f":
        largest = float(np.abs(cost).max()) or 1.0
        cost = np.rint(cost * (2.0**_BITS / largest))
    rows = np.repeat(np.arange(n, dtype=np.int32), n)
    columns = np.tile(np.arange(n, dtype=np.int32), n)
    assignment = SimpleLinearSumAssignment()
    assignment.add_arcs_with_cost(rows, columns, cost.astype(np.int64).ravel())
    return assignment


def _without_forbidden(cost: Array) -> Array:
    """A cost that no optimal assignment has, in place of infinite ones."""
    allowed = np.isfinite(cost)
    if cost.dtype.kind != "f" or allowed.all():
        return cost
    return np.where(allowed, cost, len(cost) * (np.abs(cost[allowed]).max(initial=0) + 1))


def _as_float64(cost: Array) -> Array:
    return np.ascontiguousarray(cost, np.float64)


PEERS = {
    peer.name: peer
    for peer in (
        Solver("scipy", "scipy", "scipy", _scipy, knows_forbidden=True),
        Solver("lapx lapjvr", "lap", "lapx", _lapjvr, _as_float64),
        Solver("lapx lapjv", "lap", "lapx", _lapjv, _as_float64),
        Solver("A1015 C++", "py_lap_solver", "py-lap-solver", _algorithm_1015, _as_float64, threaded=True),
        Solver("fastlap auction", "fastlap", "fastlap", _auction, _as_float64),
        Solver("POT emd", "ot", "POT", _emd, _as_float64),
        Solver("ortools", "ortools", "ortools", _ortools, _arcs, rounding=2.0**-_BITS),
    )
}


def lazy_emd(x: Array, y: Array) -> float:
    """POT's optimum of points (n, d) with squared distances; it stores no matrix either."""
    import ot

    loss, facts = ot.lp.emd2_lazy(
        np.ascontiguousarray(x, np.float64),
        np.ascontiguousarray(y, np.float64),
        metric="sqeuclidean",
        numItermax=100_000_000,
        log=True,
        return_matrix=False,
    )
    if facts.get("warning"):
        raise RuntimeError(f"POT: {facts['warning']}")
    return float(loss) * len(x)


def lapx_batch(costs: Array) -> Any:
    """lapx' function for matrices (count, n, n) of one size."""
    import lap

    return lap.lapjvx_batch(costs, return_cost=False)


def lapx_gated(cost: Array, price: float) -> Any:
    """lapx' way to leave rows unassigned at a price."""
    import lap

    return lap.lapjv(cost, extend_cost=True, cost_limit=price)


def find(name: str) -> Solver:
    """A solver by its name: ``bigsap METHOD [DEVICE]``, one of PEERS, or ``module:attribute``.

    Raises KeyError, naming those there are.
    """
    if name in PEERS:
        return PEERS[name]
    first, *rest = name.split(" ")
    if first == "bigsap" and rest:
        return _bigsap(rest[0], rest[1] if len(rest) > 1 else "cpu")
    module, colon, attribute = name.partition(":")
    if not colon:
        raise KeyError(f"no solver {name!r}; there are {sorted(PEERS)}")
    solver: Solver = getattr(importlib.import_module(module), attribute)
    return solver
