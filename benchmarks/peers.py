"""The solvers measured beside each other: how each is loaded, fed and called.

Every one is imported by its own process only (see ``processes``). Conversions that a peer
needs are made before its clock starts, in its favour.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import bigsap
from bigsap.types import Array

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
        options: dict[str, Any] = {"method": method, "threads": threads, "device": device}

        def solve(cost: Array) -> tuple[Array, dict[str, Any]]:
            result = bigsap.solve(cost, certify=False, **options)
            kept = ("rows_scanned", "rows_evaluated", "pairs_evaluated", "expected", "method")
            return result.col4row, {name: result.stats[name] for name in kept}

        return solve

    name = own_name(method, device)
    return Solver(name, "bigsap", "bigsap", load, threaded=True, knows_forbidden=True)


def _by(module: str, make: Callable[[Any, int], Callable[[Any], Any]]) -> Callable[[int], Solve]:
    """A load that imports the module; ``make`` gives, from it and threads, costs -> columns."""

    def load(threads: int) -> Solve:
        columns = make(importlib.import_module(module), threads)
        return lambda cost: (np.asarray(columns(cost)), {})

    return load


def _sorted(found: tuple[Array, Array]) -> Any:
    """The columns in the order of the rows."""
    return found[1][np.argsort(found[0])]


def _optimal(assignment: Any) -> list[int]:
    status = assignment.solve()
    if status != assignment.OPTIMAL:
        raise RuntimeError(f"ortools: status {status}")
    return [assignment.right_mate(i) for i in range(assignment.num_nodes())]


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


_scipy = _by("scipy.optimize", lambda lib, _: lambda cost: lib.linear_sum_assignment(cost)[1])
_lapjv = _by("lap", lambda lib, _: lambda cost: lib.lapjv(cost, return_cost=False)[0])
_lapjvr = _by("lap", lambda lib, _: lambda cost: _sorted(lib.lapjvr(cost, return_cost=False)))
_auction = _by("fastlap", lambda lib, _: lambda cost: lib.solve_lap(cost, algorithm="auction")[1])
_a1015 = _by(  # with OpenMP and a single thread it returns garbage
    "py_lap_solver.solvers.lap1015_solver",
    lambda lib, threads: lib.Lap1015Solver(use_openmp=threads > 1).solve_single,
)
_emd = _by(
    "ot",
    lambda lib, threads: (
        lambda cost: lib.emd([], [], cost, numItermax=100_000_000, numThreads=threads).argmax(axis=1)
    ),
)
_ortools = _by("ortools", lambda lib, _: _optimal)

_SOLVERS = (
    Solver("scipy", "scipy", "scipy", _scipy, knows_forbidden=True),
    Solver("lapx lapjvr", "lap", "lapx", _lapjvr, _as_float64),
    Solver("lapx lapjv", "lap", "lapx", _lapjv, _as_float64),
    Solver("A1015 C++", "py_lap_solver", "py-lap-solver", _a1015, _as_float64, threaded=True),
    Solver("fastlap auction", "fastlap", "fastlap", _auction, _as_float64),
    Solver("POT emd", "ot", "POT", _emd, _as_float64),
    Solver("ortools", "ortools", "ortools", _ortools, _arcs, rounding=2.0**-_BITS),
)
PEERS = {solver.name: solver for solver in _SOLVERS}


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
