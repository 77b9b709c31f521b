"""One call of ``solve`` for a small array, or few points: the options that the dense kernel supports.

The kernel finishes before the clock is checked again, caches no rows, and proves optima, which are
within any gap. So the options decide whether a call is solved here, what listeners are sent before
and after, and where the search begins. Where rows may stay unassigned, clipped costs are solved.
"""

from __future__ import annotations

import numpy as np

from bigsap import policy
from bigsap.errors import one_of
from bigsap.options import Options
from bigsap.problem import Problem
from bigsap.progress import Monitor, Stopped
from bigsap.proof.unassigned import drop_clipped_pairs
from bigsap.result import Result
from bigsap.row_cache import parse_bytes
from bigsap.run.interrupted import in_order
from bigsap.run.small_arrays import solve_priced, solve_small, suits
from bigsap.run.small_search import Start
from bigsap.run.stats import last_report
from bigsap.run.warm_start import GivenStart
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.kept_bounds import Kept
from bigsap.sources.lowrank import LowRankSource
from bigsap.sources.metrics import PointSource
from bigsap.strategies.orientation import orient
from bigsap.types import Array

# Most memory of a solve: clipped and signed costs, computed ones, and vectors (``small_search.sizes``).
_BYTES_PER_COST, _COMPUTED, _BYTES_PER_LINE = 16, 8, 14 * 8


def small_costs(given: CostSource, gated: ClippedCosts | None, options: Options) -> Array | None:
    """Return the array of a call that the dense kernel can solve, else None.

    given: the user's costs. gated: the same where rows may stay unassigned.
    """
    ways = (options.method, options.variant, options.start, options.epsilon)
    if ways != ("auto", "auto", "auto", True) or options.checkpoint is not None:
        return None
    if options.memory_limit is not None and not one_of(options.device, ("cpu", "auto")):
        return None  # a limit on the device's memory
    if isinstance(given, ArraySource):
        if given.mapped or not suits(given.array, easy=not options.maximize):
            return None
    elif not _is_cheap(given) or not 0 < given.shape[0] * given.shape[1] <= policy.MOST_SMALL_COMPUTED:
        return None
    if gated is not None and not 0 < gated.shape[0] * gated.shape[1] <= policy.MOST_SMALL_GATED_COSTS:
        return None
    array = given.array if isinstance(given, ArraySource) else None
    if not _fits(given if gated is None else gated, options, _COMPUTED if array is None else 0):
        return None
    return _computed(given) if array is None else array


def _is_cheap(source: CostSource) -> bool:
    """Return whether all costs take less time than a search that leaves some out: points, low rank."""
    while isinstance(source, Kept):
        source = source.given
    if isinstance(source, PointSource):
        coordinates = source.x.shape[1]
    elif isinstance(source, LowRankSource):
        coordinates = source.a.shape[1]
    else:
        return False
    n, m = source.shape
    return int(n * m * coordinates) <= policy.MOST_SMALL_PRODUCTS


def _computed(source: CostSource) -> Array:
    n, m = source.shape
    costs = np.empty((n, m), source.dtype)
    source.read(np.arange(n), slice(0, m), costs)
    return costs


def _fits(source: CostSource, options: Options, more: int) -> bool:
    """Return whether ``memory_limit`` allows it. Raises OptionError as the general path does.

    more: bytes of a cost that is computed first.
    """
    if options.memory_limit is None:
        options.cache_bytes(0)
        return True
    options.cache_budget(orient(Problem(source, options.maximize)))
    n, m = source.shape
    needed = (_BYTES_PER_COST + more) * n * m + _BYTES_PER_LINE * (n + m)
    return needed <= parse_bytes(options.memory_limit, "memory_limit")


def begins(monitor: Monitor, shape: tuple[int, int]) -> bool:
    """Notify listeners that a search begins; return False if time is up or a listener cancels."""
    if monitor.over is not None:
        return False
    progress = monitor.progress
    progress.n_rows, progress.n_columns = min(shape), max(shape)
    progress.phase, progress.stage = 1, "search"
    try:
        monitor.tick(report=True)
    except Stopped as stop:
        monitor.end(stop.reason)
        return False
    return True


def solve_small_call(
    costs: Array,
    gated: ClippedCosts | None,
    options: Options,
    monitor: Monitor,
    warm: GivenStart | None,
    points: str | None = None,
) -> Result | None:
    """Return the result of ``small_costs``; None for problems that are hard for their size.

    points: the type of points whose costs these are, None for an array. Raises InvalidCostError as ``solve``.
    """
    if gated is not None and warm is None:
        found = solve_priced(costs, gated, bool(options.certify), points)
        if found is not None:
            if monitor.has_listeners:
                last_report(monitor, found)
            return found
    if gated is not None:
        costs = _clipped(costs, gated)
    found = solve_small(
        costs,
        options.maximize,
        gated=gated is not None,
        start=_start(warm, costs, options),
        proved=bool(options.certify),
        points=points,
    )
    if found is None:
        monitor.progress.phase, monitor.progress.stage = 0, "start"
        return None
    if monitor.has_listeners:
        last_report(monitor, found)
    if gated is not None:
        # At once, not on access: the caller may have changed the array by then.
        found = drop_clipped_pairs(found, gated)
        found.stats["source"] = "ClippedCosts"
    return found


def _clipped(costs: Array, gated: ClippedCosts) -> Array:
    n, m = gated.shape
    if costs.shape == (n, m) and costs.dtype == gated.dtype:
        clip = np.maximum if gated.maximize else np.minimum
        return clip(costs, gated.cap[:, None])
    clipped = np.empty((n, m), gated.dtype)
    gated.read(np.arange(n), slice(0, m), clipped)
    return clipped


def _start(warm: GivenStart | None, costs: Array, options: Options) -> Start | None:
    """Return the start of a square problem's search.

    Free columns of other shapes must have the highest price, which given prices seldom satisfy. Such
    problems start from zero, which takes less time than checking.
    """
    n, m = costs.shape
    if warm is None or n != m:
        return None
    pairs = warm.col4row
    if pairs is None:
        pairs = np.full(n, -1)
    elif pairs.min() < 0:
        pairs = in_order(Problem(ArraySource(costs)), pairs)
    return Start(-warm.v if options.maximize else warm.v, pairs)
