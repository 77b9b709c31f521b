"""Compilation of every kernel once, so that later processes load it from the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from bigsap.batch import solve_many
from bigsap.engine.core.team import Team
from bigsap.k_best import solve_k_best
from bigsap.problem import Problem
from bigsap.proof.minima import by_bounds
from bigsap.proof.row_minima import Prices
from bigsap.row_cache import RowCache
from bigsap.run.small_arrays import quick_assignment
from bigsap.solve import solve
from bigsap.sources.base import SCANNABLE, CostSource
from bigsap.sources.combined import forbid_above, masked, scaled
from bigsap.sources.expression.formula import expression
from bigsap.sources.lowrank import lowrank, table
from bigsap.sources.metrics import METRICS, points
from bigsap.sources.sparse.sparse_costs import sparse
from bigsap.strategies import METHODS
from bigsap.strategies.capacities import Balance
from bigsap.strategies.capacity_closing import keep_minima, placed

_SIZE = 40
_PROBED = 1600
_BLOCKS = 300
_COORDINATES = 20


def warmup(report: Callable[[str], None] | None = None, *, processes: int = 1) -> int:
    """Run a tiny problem through every combination of kernels that is compiled.

    report: called with the name of each. processes: number of processes that compile at once, about
    0.5 GB each; with more than one the calling script needs ``if __name__ == "__main__":``, as
    everywhere in ``multiprocessing``. Returns the number of combinations. Takes a minute or two on
    a new machine, and seconds if everything is on the disk already.
    """
    return warm(report, processes=processes)


def warm(
    report: Callable[[str], None] | None = None,
    *,
    kinds: str = "",
    processes: int = 1,
    begin: Callable[..., None] | None = None,
    given: tuple[Any, ...] = (),
) -> int:
    """Run the combinations of ``warmup`` whose name contains ``kinds``.

    begin: called with ``given`` in each process that compiles, before it compiles.
    """
    names = [name for name, _ in _combinations() if kinds in name]
    if processes <= 1:
        if begin is not None:
            begin(*given)
        _run(names, report)
    else:
        _run_apart(_groups(names), processes, report, begin, given)
    return len(names)


def _groups(names: list[str]) -> list[list[str]]:
    """Group combinations that share most kernels; the slowest group first.

    Kernels that all costs share are compiled once for each type of prices. The first groups are one
    of each type, so that two processes do not compile the same kernels at once.
    """
    found: dict[str, list[str]] = {}
    for name in names:
        parts = name.split(", ")
        found.setdefault(", ".join(parts[: min(2, len(parts) - 1)]), []).append(name)
    prices = [key.rpartition(", ")[2] for key in found]

    def place(key: str) -> tuple[bool, bool]:
        kind = key.rpartition(", ")[2]
        return not kind.endswith(" prices"), list(found)[prices.index(kind)] != key

    return [found[key] for key in sorted(found, key=place)]


def _run(names: list[str], report: Callable[[str], None] | None = None) -> None:
    for name, run in _combinations():
        if name in names:
            if report is not None:
                report(name)
            run()


def _run_apart(
    groups: list[list[str]],
    processes: int,
    report: Callable[[str], None] | None,
    begin: Callable[..., None] | None,
    given: tuple[Any, ...],
) -> None:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context("spawn")
    workers = min(processes, len(groups))
    with ProcessPoolExecutor(workers, context, begin, given) as pool:
        for names, done in [(names, pool.submit(_run, names)) for names in groups]:
            done.result()
            if report is not None:
                report("; ".join(names))


def _prove(source: CostSource) -> None:
    """Run the kernels of bounds directly: a solve this small would not use them."""
    boxes = by_bounds(source, None, Prices(np.zeros(source.shape[1])), False, at_any_size=True)
    assert boxes is not None


def _balance() -> None:
    """Run the kernels of capacities, those that correct rounding too."""
    generator = np.random.default_rng(2)
    costs = points(generator.random((8 * _SIZE, 2)), generator.random((4, 2)))
    with Team(1) as team:
        balance = Balance(Problem(costs), np.full(4, 2 * _SIZE), None, None, team, lambda: None)
        balance.run()
        balance.exact_prices()
        keep_minima(balance)
        placed(balance, lambda: False)
    solve(costs, capacity=2 * _SIZE)


def _combinations() -> Iterator[tuple[str, Callable[[], object]]]:
    # Hard enough that every sweep and the search are run: low rank plus noise.
    generator = np.random.default_rng(0)
    a = generator.integers(0, 9, (_SIZE, 2))
    small = a @ a.T % 251 + generator.integers(0, 3, (_SIZE, _SIZE))
    # Large enough for a start by tight pairs, with a column that is no row's cheapest.
    ties = np.random.default_rng(1).integers(0, _PROBED // 10, (_PROBED, _PROBED))
    ties[:, 0] += 1
    yield "small arrays", partial(solve, small)
    uneven = small.astype(np.float64)
    uneven[0] += 2.0**60
    yield "small arrays, one huge row", partial(solve, uneven)
    yield "linear_sum_assignment", partial(quick_assignment, small.astype(np.float64))
    yield "batches of small arrays", partial(solve_many, [small])
    yield "capacities", _balance
    for dtype in SCANNABLE:
        for method in METHODS:
            costs = small.astype(dtype)
            yield f"{dtype} costs, float64 prices, {method}", partial(solve, costs, method=method)
        # Square and other problems have different kernels.
        yield f"{dtype} costs, float64 prices, wide", partial(solve, costs[:-1], method="ssp")
        tied = ties.astype(dtype)
        yield f"{dtype} costs, float64 prices, tight pairs", partial(solve, tied)
    for method in METHODS:
        yield f"int64 costs, int64 prices, {method}", partial(solve, small << 40, method=method)
    yield "int64 costs, int64 prices, wide", partial(solve, (small << 40)[:-1], method="ssp")
    yield "int64 costs, int64 prices, tight pairs", partial(solve, ties << 34)
    for dtype in SCANNABLE:
        pairs = *np.nonzero(small > -1), small.ravel().astype(dtype)
        for kind, factor in ("float64", 1), ("int64", 1 << 40):
            if kind == "float64" or dtype == np.int64:
                graph = sparse((pairs[0], pairs[1], pairs[2] * dtype.type(factor)))
                yield f"sparse {dtype} costs, {kind} prices", partial(solve, graph)
    # Large enough for the probe, and of a kind that uses first prices of levels.
    wide = generator.integers(0, 15, (_PROBED, 2))
    yield "first prices of levels", partial(solve, (wide @ wide.T).astype(np.float64))
    start = np.zeros(_SIZE), np.arange(_SIZE)
    for kind, costs in ("float64", small.astype(np.float64)), ("int64", small << 40):
        few = int(np.quantile(costs, 0.2))
        gate = partial(solve, costs, unassigned_cost=few, warm_start=start)
        yield f"rows left unassigned, {kind} prices", gate
    x = generator.random((_SIZE, 3))
    y = generator.random((_SIZE, 3))
    for policy in ("slru", "lfu"):
        cache = RowCache(bytes=4 * _SIZE * 8, policy=policy)
        yield f"row cache, {policy}", partial(solve, points(x, y), cache=cache)
    for metric in METRICS:
        for d in (2,) if metric == "haversine" else (1, 2, 3):
            p = 3.0 if metric == "minkowski" else None
            source = points(x[:, :d], y[:, :d], metric, p=p)
            for method in METHODS:
                yield f"points, {metric}, {d}-D, {method}", partial(solve, source, method=method)
    for method in METHODS:
        yield f"lowrank, {method}", partial(solve, lowrank(x, y), method=method)
    yield "proof by bounds", partial(_prove, points(x, y))
    # Enough columns for blocks with bounds.
    many = points(*generator.random((2, _BLOCKS, 2)))
    yield "points in blocks", partial(solve, many, method="compressed")
    near = points(*generator.random((2, _BLOCKS, 2)), max_distance=0.2)
    yield "points within a distance", partial(solve, near)
    yield "points within a distance, compressed", partial(solve, near, method="compressed")
    none = np.zeros(near.shape, np.uint8)
    yield "rules around points", partial(solve, masked(scaled(many, 0.5), none), method="compressed")
    rows, columns = generator.random((2, _BLOCKS, _COORDINATES))
    for metric in ("sqeuclidean", "euclidean", "cosine"):
        source = points(rows, columns, metric)
        yield f"matrix products, {metric}", partial(solve, source, method="compressed", cache=8 * _BLOCKS)
        yield f"proof by matrix products, {metric}", partial(_prove, source)
    for metric in ("sqeuclidean", "euclidean", "cosine"):
        single = points(rows.astype(np.float32), columns.astype(np.float32), metric)
        lists = partial(solve, single, method="compressed", cache=8 * _BLOCKS)
        yield f"matrix products, float32 points, {metric}", lists
    wrapped = forbid_above(masked(scaled(points(rows, columns), 0.5), none), 1e9)
    yield "rules around matrix products", partial(solve, wrapped, method="compressed")
    low = lowrank(rows, columns)
    yield "matrix products, lowrank", partial(solve, low, method="compressed", cache=8 * _BLOCKS)
    low = lowrank(rows.astype(np.float32), columns.astype(np.float32))
    yield "matrix products, float32 lowrank", partial(solve, low, method="compressed", cache=8 * _BLOCKS)
    formula = expression("sum(x[i, k] * y[j, k] for k in range(D))", low.shape, x=rows, y=columns)
    yield "matrix products, formula", partial(solve, formula, method="compressed", cache=8 * _BLOCKS)
    yield "bottleneck", partial(solve, small.astype(np.float64), objective="bottleneck")
    yield "k best assignments", partial(solve_k_best, small.astype(np.float64), 40)
    yield "table", partial(solve, table(small, np.arange(_SIZE), np.arange(_SIZE)))
