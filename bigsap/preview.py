"""Checks and prices of a call of ``solve``, without reading costs.

For callers that solve later and elsewhere, such as the service. Seconds are the pairs and scans that
``strategies.work`` expects, and a pass for the certificate, times what each takes: an order of magnitude.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.lists.layout import ENTRY_BYTES
from bigsap.options import Options
from bigsap.problem import Problem
from bigsap.proof.capacities import every_row
from bigsap.proof.certificate import checked_prices, complete_matching
from bigsap.proof.unassigned import partial_matching
from bigsap.row_cache import parse_bytes
from bigsap.run.bottleneck import refuse_options
from bigsap.run.on_capacities import one_side_of, refuse_with_capacities
from bigsap.run.warm_start import parse_warm_start
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource
from bigsap.sources.clipped import refuse_inexact_prices, unassigned_prices
from bigsap.sources.repeated import counts_of
from bigsap.sources.sparse.sparse_costs import SparseCosts
from bigsap.strategies.list_sizes import usual_list_size
from bigsap.strategies.pair_prices import pair_ns
from bigsap.strategies.work import Work, has_bounds, on_lists, on_trees, on_whole_rows
from bigsap.types import Array, Ids

# In a checkpoint: bytes of a list entry, including lists that doubled, and vectors.
_KEPT_BYTES, _KEPT_VECTORS = 14, 6
_VECTORS = 24  # of 8 bytes, per row and column, certificate included
_ROOM = 1 << 30  # bytes for rows where no cache was requested: the solving machine is unknown
_BASE_BYTES = 220 << 20  # interpreter, numpy, numba and the kernels
_START_S = 0.2  # opening, kernels from their cache
_LISTED_S = 1e-6  # to search and to prove a listed pair
_SCAN_S, _SCANNED_PAIR_S = 1e-6, 4e-10  # to scan a list, and a pair of a whole row
#: Bytes a second that a cluster's workers send together, an assumption; bytes of a row sent as a list.
BYTES_A_SECOND, LIST_BYTES = 5e8, 1600
#: Rows of a wave that searches wait for, and its time: two round trips, while half of the workers wait.
WAVE_ROWS, WAVE_SECONDS = 32, 0.01
_ASKED = 2  # evaluations of a row on workers, which keep rows while there is memory


@dataclass(frozen=True)
class Costs:
    """Facts about costs before they are read.

    nbytes: memory without mapped files. pair_ns: time of a cost, nanoseconds on one thread. by_rows:
    Python evaluates whole rows. source: of these costs, perhaps with fewer rows and columns; None
    if it is not open. entries: the listed pairs, of sparse costs.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any] = field(default_factory=lambda: np.dtype(np.float64))
    nbytes: int = 0
    pair_ns: float = 1.0
    by_rows: bool = True
    source: CostSource | None = None
    entries: int | None = None


@dataclass(frozen=True)
class Price:
    """Memory and disk in bytes by part, and seconds; alone: without the workers of a cluster."""

    memory: dict[str, int]
    disk: dict[str, int]
    seconds: float
    alone: float


def costs_of(source: CostSource, shape: tuple[int, int], nbytes: int = 0) -> Costs:
    """Return what is known of costs from a source like theirs, and their true shape."""
    if isinstance(source, SparseCosts):
        listed = source.entries().columns.size
        return Costs(shape, source.dtype, nbytes, by_rows=False, source=source, entries=listed)
    ns = pair_ns(source)
    if ns is None:
        return Costs(shape, source.dtype, nbytes, source=source)
    return Costs(shape, source.dtype, nbytes, ns, by_rows=False, source=source)


def price(
    costs: Costs,
    *,
    method: str = "auto",
    maximize: bool = False,
    threads: int = 1,
    cache: int | str | None = None,
    workers: int = 0,
) -> Price:
    """Return the memory, disk and time of a solve. workers: of a cluster, 0 without one."""
    n, m = sorted(costs.shape)
    pairs = n * m
    dense = method in ("ssp", "auction")
    listed = costs.entries if method == "auto" else None
    entries = 0 if dense or listed is not None else n * min(_list_size(costs, method, maximize), m)
    asked = None if cache is None else parse_bytes(cache)
    memory = {
        "base": _BASE_BYTES,
        "source": costs.nbytes,
        "vectors": _VECTORS * 8 * (n + m),
        "lists": ENTRY_BYTES * entries,
        "cache": 0,
    }
    if not isinstance(costs.source, ArraySource) and (asked is not None or dense):
        memory["cache"] = min(_ROOM if asked is None else asked, pairs * 8)
    disk = {
        # Twice: the next one is complete before it replaces the last.
        "checkpoint": 2 * (_KEPT_VECTORS * 8 * (n + m) + _KEPT_BYTES * entries),
        "result": _result_bytes(n, m),
    }
    in_place = isinstance(costs.source, ArraySource)
    room = _ROOM if asked is None else asked
    kept = 1.0 if in_place else min(1.0, room / (8 * max(1, pairs)))
    work = expected(costs, method, kept)
    proof = 0.0 if costs.by_rows and kept >= 1 else _proof_pairs(costs)
    passes = (work.pairs + proof) / max(1, pairs)
    threads = 1 if costs.by_rows else threads
    effective = max(1.0, 0.7 * threads)
    searching = work.scans * (_SCANNED_PAIR_S * m if dense else _SCAN_S)
    if listed is not None:
        seconds = _START_S + _LISTED_S * listed
        return Price(memory, disk, seconds, seconds)
    seconds = alone = _START_S + (pairs * costs.pair_ns * passes * 1e-9 + searching) / effective
    if workers and costs.by_rows:
        whole = kept >= 1
        answered = n if whole else n * passes
        rows = {"asked": min(answered, _ASKED * n), "answered": answered}
        seconds = _START_S + searching / effective
        seconds += cluster_seconds(n, m, m * costs.pair_ns * 1e-9, workers, **rows, whole=whole)
    return Price(memory, disk, seconds, alone)


def price_of_proof(costs: Costs, threads: int = 1) -> Price:
    """Return the memory, disk and time of one pass that proves an assignment."""
    n, m = costs.shape
    memory = {"base": _BASE_BYTES, "source": costs.nbytes, "vectors": _VECTORS * 8 * (n + m)}
    pairs_s = n * m * costs.pair_ns * 1e-9 / (1 if costs.by_rows else max(1.0, 0.7 * threads))
    seconds = _START_S + (pairs_s if costs.entries is None else _LISTED_S * costs.entries)
    return Price(
        memory | {"lists": 0, "cache": 0}, {"checkpoint": 0, "result": _result_bytes(n, m)}, seconds, seconds
    )


def expected(costs: Costs, method: str = "auto", kept: float = 1.0) -> Work:
    """Return the work of a search. kept: share of the rows that memory holds."""
    n, m = sorted(costs.shape)
    if method == "hungarian":
        return on_trees((n, m))
    if method in ("ssp", "auction"):
        return on_whole_rows((n, m), kept)
    whole = costs.by_rows and kept >= 1
    return on_lists((n, m), bounded=costs.source is not None and has_bounds(costs.source), kept=whole)


def _proof_pairs(costs: Costs) -> float:
    """Return the pairs of a proof: all, or as many as bounds leave to a search."""
    n, m = costs.shape
    bounded = costs.source is not None and has_bounds(costs.source)
    return on_lists((n, m), bounded=True).pairs if bounded else n * m


def _result_bytes(n: int, m: int) -> int:
    return 16 * (n + m) + (64 << 10)


def cluster_seconds(
    n: int, m: int, row_seconds: float, workers: int, *, asked: float, answered: float, whole: bool
) -> float:
    """Return the seconds that the rows of a solve over a cluster take, without its search.

    asked: rows requested from the costs by workers. answered: rows returned by workers, including
    those that they have kept. whole: with whole rows; else with lists. See docs/cluster.md.
    """
    answer = 8 * m if whole else min(8 * m, LIST_BYTES)
    waves = 0 if whole else math.ceil(max(0.0, answered - n) / WAVE_ROWS)
    return asked * row_seconds / workers + answered * answer / BYTES_A_SECOND + WAVE_SECONDS * waves


def _list_size(costs: Costs, method: str, maximize: bool) -> int:
    if method == "hungarian":
        return policy.TREE_LIST_SIZE
    source = _Unread(costs.shape) if costs.source is None else costs.source
    return usual_list_size(Problem(source, maximize), min(costs.shape))


class _Unread:
    """Costs of which nothing but the shape is known."""

    dtype: np.dtype[Any] = np.dtype(np.float64)

    def __init__(self, shape: tuple[int, int]) -> None:
        self.shape = shape

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Raise: these costs cannot be read."""
        raise AssertionError("the costs of a preview are not read")


def check_shape(shape: tuple[int, int]) -> None:
    """Raise ShapeError for more rows or columns than a solve takes."""
    Problem(_Unread(shape))


def check_options(method: str, variant: str, start: str, epsilon: bool) -> None:
    """Raise OptionError for choices that do not go together."""
    _options(method=method, variant=variant, start=start, epsilon=epsilon)


def _options(**given: Any) -> Options:
    rest: Any = dict.fromkeys(("dtype", "cache", "memory_limit", "threads", "checkpoint"))
    more: dict[str, Any] = {"maximize": False, "device": "cpu", "gap": 0.0, "certify": True, "seed": 0}
    plain: dict[str, Any] = {"method": "auto", "epsilon": True}
    return Options(**{**rest, **more, **plain, **given})


def check_objective(asked: dict[str, Any]) -> None:
    """Raise OptionError for options of ``solve`` that do not go with its objective, or with counts.

    asked: objective, device, gap, and where they are given, unassigned_cost, capacity, demand, cluster.
    """
    several = {name: asked[name] for name in ("unassigned_cost", "capacity", "demand", "cluster")}
    options = _options(**{name: asked[name] for name in ("objective", "device", "gap")})
    if several["capacity"] is not None or several["demand"] is not None:
        refuse_with_capacities(several, options)
    if options.objective == "bottleneck":
        refuse_options(several, options)


def check_sides(capacity: Array, demand: Array) -> None:
    """Raise OptionError for rows that take several columns, and columns that take several rows."""
    one_side_of(capacity, demand)


def check_warm_start(value: Any, shape: tuple[int, int]) -> None:
    """Raise OptionError for a start that ``solve`` refuses for costs of this shape."""
    parse_warm_start(value, Problem(_Unread(shape)))


#: Options of ``solve`` that ``certify`` refuses, and what to do.
NOT_CERTIFIED = {
    "certify": "every pair is read with pairs=True",
    "gap": "the gap is measured; a rough bound needs prices v",
    "warm_start": "prices are given as v",
    "objective": "call solve for another objective",
    "demand": "certify the transposed problem",
}


def check_assignment(
    col4row: Any, shape: tuple[int, int], capacity: Array | None = None, *, partial: bool = False
) -> None:
    """Raise CertificateError for columns of rows that ``certify`` refuses without reading costs.

    capacity: (m,) rows that each column may take. partial: rows may stay unassigned.
    """
    if partial:
        partial_matching(col4row, *shape, capacity)
    elif capacity is not None:
        every_row(partial_matching(col4row, *shape, capacity))
    else:
        complete_matching(col4row, *shape)


def check_prices(v: Any, m: int) -> None:
    """Raise CertificateError, or OverflowRiskError, for prices that ``certify`` refuses for any costs."""
    checked_prices(v, m, integer=False)


def check_counts(value: Any, size: int, name: str) -> Array:
    """Return ``capacity`` or ``demand`` as ``solve`` takes it. Raises InputError where it refuses."""
    return counts_of(value, size, name, "column" if name == "capacity" else "row")


def check_unassigned_cost(value: Any, n_rows: int, maximize: bool, costs: Costs | None = None) -> None:
    """Raise InputError for an ``unassigned_cost`` that ``solve`` refuses, for any costs or for these."""
    prices = unassigned_prices(value, n_rows, maximize)
    if costs is not None and costs.entries is None:  # of listed pairs the method decides
        refuse_inexact_prices(prices, costs.dtype)
