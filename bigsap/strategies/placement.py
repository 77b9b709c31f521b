"""Choice of the device for a solve, transfer of the costs, and choice of the engine."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.engine.core.team import Team
from bigsap.engine.cuda.bids import DeviceBids
from bigsap.engine.cuda.device_classical import DeviceClassical
from bigsap.engine.cuda.device_engine import DeviceEngine
from bigsap.engine.cuda.device_forest import DeviceForest
from bigsap.engine.cuda.device_lists import DeviceListEngine, device_transform
from bigsap.engine.cuda.row_cache import DeviceRows
from bigsap.engine.cuda.small_batch import DeviceBatch, fits, solve_on
from bigsap.engine.lists.bounds import blocks_of
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.rows.row_engine import Engine
from bigsap.errors import DeviceMemoryError, OptionError, one_of
from bigsap.problem import Problem
from bigsap.progress import Monitor, Stopped
from bigsap.row_cache import RowCache, Rows, parse_bytes
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.cuda.device_kernels import load_cupy, require
from bigsap.sources.cuda.placed import (
    OnDevice,
    Placeable,
    StreamedToDevice,
    device_numbers,
    needed_bytes,
    place,
)
from bigsap.sources.cuda.row_blocks import RowsOnDevices, is_matrix
from bigsap.sources.cuda.slabs import SlabsOnDevices
from bigsap.strategies.sparse_pairs import sparse_part
from bigsap.types import Array

TREES = "a small range of costs, rows without a pattern: trees find many paths at a time"
FEW_VALUES = "very few different costs: trees, or lists where most of these do not end"
ON_TRIAL = "lists, unless some end long before others"


def place_costs(
    source: CostSource,
    device: str | Sequence[str],
    memory_limit: int | str | None,
    monitor: Monitor,
    cache: RowCache | int | str | None = None,
    *,
    by_rows: bool = False,
) -> CostSource:
    """Return the costs on the requested device, or in slabs on several devices.

    Slabs are of columns, or of a matrix's rows if requested. ``"cpu"`` leaves costs in place, and
    refuses costs that only a device has. ``"auto"`` takes the first device for large problems, if there
    is one, unless rows may stay unassigned. memory_limit: of the device. cache: for rows kept on the
    device when not all of them fit.

    A limit or cancel during the copy leaves the costs where they were: the monitor has ended then, and
    the host's solve returns its answer at its first tick.
    """
    if device == "cpu":
        if isinstance(source, (OnDevice, Placeable)):
            raise OptionError(
                f'{source!r} needs device="cuda" (or "auto"): its costs are in device memory, or'
                " computed there"
            )
        return source
    if not leaves_host(source, device):
        require_devices(device)
        return source
    if device == "auto":
        numbers: tuple[int, ...] = (source.device if isinstance(source, OnDevice) else 0,)
    else:
        numbers = device_numbers(device)
    limit = None if memory_limit is None else parse_bytes(memory_limit, "memory_limit")
    if cache is not None and not isinstance(cache, RowCache):
        cache = RowCache(parse_bytes(cache, "cache"))
    monitor.progress.n_rows, monitor.progress.n_columns = source.shape
    if len(numbers) > 1 and by_rows and is_matrix(source):
        return RowsOnDevices(source, numbers, limit, monitor.tick)
    if len(numbers) > 1:
        return SlabsOnDevices(source, numbers, limit, monitor.tick)
    try:
        return place(source, numbers[0], limit, monitor.tick, cache)
    except Stopped as stop:
        monitor.end(stop.reason)
        return source


def leaves_host(source: CostSource, device: str | Sequence[str]) -> bool:
    """Return whether ``place_costs`` takes costs to a device, or leaves them on theirs.

    Not sparse costs: on a device the pairs that are not listed would be costs like all others.
    """
    if one_of(device, ("cpu",)) or sparse_part(source) is not None:
        return False
    there = isinstance(source, (OnDevice, Placeable))
    if not one_of(device, ("auto",)):
        return True
    # Usually few pairs of clipped costs are ever read: see ``sparse_gate``.
    given = source.given if isinstance(source, ClippedCosts) else source
    gated = given is not source and not isinstance(given, (OnDevice, Placeable))
    return not gated and (there or (min(source.shape) >= policy.DEVICE_ROWS and has_device()))


def require_devices(device: str | Sequence[str]) -> None:
    """Raise OptionError if a device is named that is not there, whether it will be used or not."""
    if not one_of(device, ("cpu", "auto")):
        for number in device_numbers(device):
            require(number)


def has_device() -> bool:
    """Return whether CuPy is installed and finds a device."""
    if importlib.util.find_spec("cupy") is None:
        return False
    try:
        cupy = load_cupy()
        return int(cupy.cuda.runtime.getDeviceCount()) > 0
    except (OptionError, RuntimeError):
        return False


def device_method(source: Any, sign: int = 1, *, trees: bool = False) -> tuple[str, str] | None:
    """Return the method and reason of ``method="auto"`` for costs on a device; None for the CPU.

    Whole rows are scanned by the device alone, lists are searched by the host. Lists pay for many
    rows, where the source's bounds let the host evaluate a row by itself, and where searches hardly
    need evaluations (tests/bench/GPU.md).
    """
    if isinstance(source, StreamedToDevice):
        return "compressed", "the costs do not fit the device"
    if isinstance(source, SlabsOnDevices):
        return "ssp", "devices scan whole rows together"
    if not isinstance(source, OnDevice):
        return None
    if min(source.shape) >= policy.MANY_ROWS and blocks_of(source).offset.size:
        return "compressed", "many rows, and bounds that need no look at the costs"
    if source.code().product is not None and min(source.shape) >= policy.FEW_ROWS:
        return "compressed", "inner products bound the costs of many rows at once"
    return _method_of_rows(source, sign, trees=trees)


def is_short_for(source: CostSource, device: str | Sequence[str]) -> bool:
    """Return whether a matrix in the host's memory is so small that a named device would not be faster."""
    if one_of(device, ("cpu", "auto")) or not isinstance(source, ArraySource) or source.mapped:
        return False
    return all(side < most for side, most in zip(sorted(source.shape), policy.DEVICE_SHORT, strict=True))


def _method_of_rows(source: Any, sign: int, *, trees: bool) -> tuple[str, str]:
    """Return the method and reason for costs without useful bounds."""
    n, m = source.shape
    integers = source.dtype.kind in "iu"
    # With somewhat more columns than rows, whole rows are scanned on the CPU too.
    short = n < policy.UNRELATED_ROWS and not policy.SOMEWHAT_WIDE[0] * n < m < policy.SOMEWHAT_WIDE[1] * n
    if min(n, m) >= policy.FEW_ROWS and (integers or short):
        grown = n == m and trees and source.code().lookup
        if grown and integers:
            # A small sample, which takes a fifth of the time of whole rows: small trees take little more.
            costs = _sample(source, policy.METHOD_GLANCE_COLUMNS)
            if very_few_values(costs, m):
                return "hungarian", FEW_VALUES
            # Before ties, which require sorting.
            if short_range(costs, m):
                return "hungarian", TREES
        costs = _sample(source)
        if grown and many_ties(sign, costs):
            return "hungarian", TREES
        if integers and few_values(costs, m):
            return "compressed", "few different costs: searches end in short lists"
        if short and unrelated(costs):
            return "compressed", "rows without a pattern: searches end in short lists"
    if lists_on_trial(source):
        return "compressed", ON_TRIAL
    return "ssp", "the device scans whole rows"


def lists_on_trial(source: Any) -> bool:
    """Return whether lists of costs on a device are tried, and judged after their evaluation.

    This is so for square matrices, where an evaluation takes little time. Searches on lists are faster
    than a device's scans of whole rows unless costs are denser in some regions, as in clusters: there,
    searches need evaluations all the time (docs/decisions/2026-11-26-lists-on-trial.md).
    """
    n, m = source.shape
    return isinstance(source, OnDevice) and source.code().lookup and n == m and n >= policy.TRIED_ROWS


def ties_in_memory(problem: Problem, matrix: Array) -> bool:
    """Return ``many_ties`` of a matrix in the host's memory."""
    n, m = problem.shape
    rows = np.unique(np.linspace(0, n - 1, policy.METHOD_SAMPLE).astype(np.intp))
    return many_ties(problem.sign, matrix[rows, : min(m, policy.METHOD_SAMPLE_COLUMNS)])


def _sample(source: Any, most: int | None = None) -> Array:
    """Return some rows of the costs, with at most ``most`` columns."""
    n, m = source.shape
    rows = np.unique(np.linspace(0, n - 1, policy.METHOD_SAMPLE).astype(np.intp))
    most = policy.METHOD_SAMPLE_COLUMNS if most is None else most
    costs = np.empty((rows.size, min(m, most)), source.dtype)
    source.read(rows, slice(0, costs.shape[1]), costs)
    return costs


def many_ties(sign: int, costs: Array) -> bool:
    """Return whether, by a sample of whole rows, trees from all free rows find many paths at a time.

    Two conditions: in most rows some of the smallest costs are equal: of i.i.d. whole numbers up to
    R = n/2, n, 2n, 10n there are 14, 20, 25, 30 different ones among 32. And rows are unrelated:
    rounded distances have ties and yet deep trees.
    """
    m = costs.shape[1]
    if m < policy.SMALLEST_COSTS:
        return False
    few = costs[::2]  # only as many rows as needed: a small problem is solved in the time of a full sample
    # In the costs' own dtype, which sorts faster than float64.
    if sign > 0:
        least = np.partition(few, policy.SMALLEST_COSTS - 1, axis=1)[:, : policy.SMALLEST_COSTS]
    else:
        least = np.partition(few, m - policy.SMALLEST_COSTS, axis=1)[:, m - policy.SMALLEST_COSTS :]
    least.sort(axis=1)
    different = 1 + (least[:, 1:] > least[:, :-1]).sum(axis=1)
    return bool(np.median(different) <= policy.DIFFERENT_COSTS) and unrelated(few)


def short_range(costs: Array, n_columns: int) -> bool:
    """Return whether, by a sample, trees on a device are faster than searches on lists.

    For i.i.d. whole numbers up to 100 n trees were 2.4 times as fast, n = 4,096 and 8,192 on an H100,
    though there are hardly any ties; at 1,000 n 1.3 times at 4,096; at 10,000 n not faster.
    """
    narrow = int(costs.max()) - int(costs.min()) <= policy.SHORT_RANGE_PER_COLUMN * n_columns
    return narrow and unrelated(costs[::2])


def very_few_values(costs: Array, n_columns: int) -> bool:
    """Return whether, by a sample, trees on a device are worth a trial whatever the costs are.

    Squared distances in the plane of 200 different values, n = 2,048 to 8,192 on an H100: trees 3.3
    to 4.7 ms, lists 6.6 to 20. Where rows or lists end before most trees do, as for products of the
    same values, little time is lost.
    """
    return bool(policy.COLUMNS_PER_VALUE * (int(costs.max()) - int(costs.min())) <= n_columns)


def few_values(costs: Array, n_columns: int) -> bool:
    """Return whether, by a sample, integer costs have a small range for this number of columns.

    With many ties a search over whole rows settles far more of them than one over lists
    (tests/bench/GPU.md).
    """
    return bool(int(costs.max()) - int(costs.min()) <= policy.VALUES_PER_COLUMN * n_columns)


def unrelated(costs: Array) -> bool:
    """Return whether the rows of a sample (k, m) are uncorrelated.

    Distances and products are correlated: searches on their lists need so many evaluations, and so
    much time until lists are abandoned, that scanning whole rows is faster.
    """
    if not np.isfinite(costs).all():
        return False
    centred = costs.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        centred -= centred.mean(axis=1, keepdims=True)
        size = np.sqrt((centred**2).sum(axis=1))
    if not (np.isfinite(size) & (size > 0)).all():
        return False
    centred /= size[:, None]
    correlation = np.abs(centred @ centred.T)[np.triu_indices(len(costs), 1)]
    return bool(correlation.mean() * np.sqrt(costs.shape[1]) < policy.UNRELATED_CORRELATION)


def unrelated_there(source: Any) -> bool:
    """Return whether costs are on a device and some of their rows are ``unrelated``."""
    return isinstance(source, OnDevice) and unrelated(_sample(source))


def engine_for(problem: Problem, rows: Rows, team: Team, monitor: Monitor, price: np.dtype[Any]) -> Engine:
    """Return the engine that scans whole rows: of the devices that hold the costs, else the CPU's."""
    there = isinstance(problem.source, (OnDevice, SlabsOnDevices))
    if there and problem.shape[0] <= problem.shape[1]:
        return DeviceEngine(problem, rows, team, monitor, price)
    return Engine(problem, rows, team, monitor, price)


def list_engine_for(
    problem: Problem, team: Team, monitor: Monitor, price: np.dtype[Any], k: int, seed: int
) -> ListEngine:
    """Return the engine for compressed rows of the device that holds the costs, else the CPU's."""
    there = isinstance(problem.source, (OnDevice, StreamedToDevice))
    kind = DeviceListEngine if there else ListEngine
    return kind(problem, team, monitor, price, k, seed)


def device_forest(problem: Problem) -> DeviceForest | None:
    """Return trees of the Hungarian method on the matrix's device or devices; else None."""
    source = problem.source
    if isinstance(source, RowsOnDevices):
        return DeviceForest(problem) if source.blocks()[0][0].code().lookup else None
    if not isinstance(source, OnDevice) or not source.code().lookup:
        return None
    return DeviceForest(problem)


def device_classical(problem: Problem, price: np.dtype[Any], ends: tuple[Any, Any]) -> DeviceClassical | None:
    """Return the classical method on the device that holds the costs, if any."""
    there = isinstance(problem.source, OnDevice)
    return DeviceClassical(problem, price, ends) if there else None


def device_bids(problem: Problem, price: np.dtype[Any], look: Callable[[], None]) -> DeviceBids | None:
    """Return an auction's bids on the device that holds the costs, if any."""
    return DeviceBids(problem, price, look) if isinstance(problem.source, OnDevice) else None


def batch_device(device: Any) -> int | None:
    """Return the device that solves a batch in one launch; None for several, "auto", or without CuPy.

    ``solve`` then chooses, or raises the error.
    """
    try:
        load_cupy()
        numbers = () if one_of(device, ("auto",)) else device_numbers(device)
    except OptionError:
        return None
    return numbers[0] if len(numbers) == 1 else None


def fits_device(few: Array, many: Array, device: int) -> Array:
    """Return which small problems of a batch, of so many rows and columns, the device solves."""
    return (few * many <= policy.MOST_SMALL_COSTS) & fits(few, many, device)


def batch_on_device(device: int, dtype: np.dtype[Any], *given: Any) -> DeviceBatch:
    """Return what ``engine.cuda.small_batch.solve_on`` finds."""
    return solve_on(device, dtype, *given)


def prices_on_device(problem: Problem, rows: Array, u: Array, price: np.dtype[Any]) -> Array | None:
    """Return ``v[j] = min over rows of (c[i, j] - u[i])`` from the device that holds the costs, if any."""
    if not isinstance(problem.source, OnDevice):
        return None
    return device_transform(problem, rows, u, price)


def device_rows(engine: ListEngine | None) -> DeviceRows | None:
    """Return the row cache in device memory, for costs that do not fit the device."""
    return engine.cache if isinstance(engine, DeviceListEngine) else None


def engine_where(
    problem: Problem, rows: Rows, team: Team, monitor: Monitor, price: np.dtype[Any]
) -> tuple[Problem, Engine]:
    """Return the engine where the costs are, and the problem that it solves.

    Slabs of costs are copied to their devices first. After a limit or cancel during the copy the
    host's engine and problem are returned, as in ``place_costs``.
    """
    try:
        return problem, engine_for(problem, rows, team, monitor, price)
    except Stopped as stop:
        if not isinstance(problem.source, SlabsOnDevices):
            raise
        monitor.end(stop.reason)
        problem = replace(problem, source=problem.source.whole)
        return problem, engine_for(problem, rows, team, monitor, price)


def refuse_slabs(source: Any) -> None:
    """Raise for slabs of costs: lists are evaluated on one device."""
    if isinstance(source, SlabsOnDevices):
        raise OptionError("method 'compressed' runs on one device; several share the columns of method 'ssp'")


def refuse_streaming(source: Any) -> None:
    """Raise for costs that do not fit the device: the dense method scans rows in random order."""
    if isinstance(source, StreamedToDevice):
        nbytes = needed_bytes(source)
        raise DeviceMemoryError(
            f"method 'ssp' needs the whole matrix on the device: {nbytes} bytes, more than is free"
            " or memory_limit allows; method 'compressed' (or 'auto') copies rows there as they are"
            ' needed, and device="cuda:0,1" shares a matrix out among several devices',
            nbytes,
        )


def device_name(source: Any) -> str:
    """Return ``stats["device"]``: the location of a problem's costs."""
    if isinstance(source, (OnDevice, StreamedToDevice)):
        return f"cuda:{source.device}"
    if isinstance(source, (RowsOnDevices, SlabsOnDevices)):
        return "cuda:" + ",".join(map(str, source.devices))
    return "cpu"
