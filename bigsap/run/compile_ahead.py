"""Kernels that a solve will need, requested before its first sweep (see ``compile.ahead``).

The kernels' types follow from the dtypes of costs and prices and from how kernels read the
costs. Arguments of these types come from engines built for a problem of one pair.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.compile import ahead
from bigsap.engine.core.team import Team, available_threads
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.rows.row_engine import Engine
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.proof.minima import kernels_by_bounds
from bigsap.row_cache import RowCache, Rows
from bigsap.sources.base import Array, CostSource, Fill, Resident, Separable
from bigsap.sources.filling import fill_of
from bigsap.strategies import ON_LISTS
from bigsap.strategies.placement import device_name

#: Kinds of solve whose kernels were requested in this process.
_named: set[tuple[object, ...]] = set()


class _Matrix:
    """A matrix of one pair in memory, with the dtype and writability of the costs."""

    shape = (1, 1)

    def __init__(self, like: Array) -> None:
        self._costs = np.zeros((1, 1), like.dtype)
        self._costs.flags.writeable = like.flags.writeable
        self.dtype = like.dtype

    def resident(self) -> Array:
        return self._costs

    def read(self, rows: Any, columns: slice, out: Array) -> None:
        out[:] = self._costs[rows, columns]


class _OneRow:
    """One pair read by Python, or by kernels where the source has ``fill``."""

    shape = (1, 1)

    def __init__(self, dtype: np.dtype[Any]) -> None:
        self.dtype = dtype

    def read(self, rows: Any, columns: slice, out: Array) -> None:
        out[:] = 0


class _Filled(_OneRow):
    def __init__(self, dtype: np.dtype[Any], fill: Fill) -> None:
        super().__init__(dtype)
        self._fill = fill

    def fill(self) -> Fill:
        return self._fill


def compile_ahead(problem: Problem, method: str, price: np.dtype[Any]) -> None:
    """Request compilation of this solve's long kernels by another process.

    Does nothing if the kernels are cached on disk or only one core is available. O(1) after the
    first request of a kind.
    """
    source = problem.source
    if device_name(source) != "cpu":
        return
    levels = isinstance(source, Separable) and min(problem.shape) >= policy.AHEAD_WITH_LEVELS
    bounded = type(source) if levels else None
    kind = _read_as(source), source.dtype, price, method in ON_LISTS, problem.is_square, bounded
    if kind in _named or not ahead.possible() or available_threads() < 2:
        return
    _named.add(kind)
    with Team(1) as team:
        pair = _one_pair(source)
        kernels = list(_kernels(pair, price, team, method, problem.is_square, levels))
    if levels:
        kernels += kernels_by_bounds(source)
    ahead.request(kernels)


def _kernels(
    source: CostSource, price: np.dtype[Any], team: Team, method: str, square: bool, levels: bool
) -> Iterator[tuple[Any, tuple[Any, ...]]]:
    """Yield kernels with their arguments, the slowest to compile first.

    Sweep kernels are needed first and are therefore compiled by the solve itself.
    """
    problem, monitor = Problem(source), Monitor()
    if method in ON_LISTS:
        if method == "compressed":
            lists = ListEngine(problem, team, monitor, price, 1, 0)
            yield lists.search_kernel()
            yield lists.evaluation_kernel()
        if levels:
            dense = Problem(_Matrix(np.zeros((1, 1))))
            rows = Rows.in_place(dense.source.resident())  # type: ignore[attr-defined]
            yield Engine(dense, rows, team, monitor, price).phase_kernel(True)
        return
    matrix = source.resident() if isinstance(source, Resident) else None
    if matrix is None:
        rows = Rows.cached((1, 1), source.dtype, RowCache(), 1 << 20)
    else:
        rows = Rows.in_place(matrix)
    yield Engine(problem, rows, team, monitor, price).phase_kernel(square)


def _read_as(source: CostSource) -> str:
    """Return how kernels read these costs, which with the dtype determines the kernels' types."""
    matrix = source.resident() if isinstance(source, Resident) else None
    if matrix is not None:
        return "writeable matrix" if matrix.flags.writeable else "matrix"
    return "by Python" if fill_of(source) is None else "filled"


def _one_pair(source: CostSource) -> CostSource:
    """Return a source of one pair that is read the same way as these costs."""
    matrix = source.resident() if isinstance(source, Resident) else None
    if matrix is not None:
        return _Matrix(matrix)
    fill = fill_of(source)
    return _OneRow(source.dtype) if fill is None else _Filled(source.dtype, fill)
