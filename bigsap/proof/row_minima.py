"""The one pass of the certificate: row duals and assigned costs from given prices."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bigsap.errors import CertificateError, InvalidCostError, OverflowRiskError
from bigsap.proof.row_pass import Work, gives_parts, stream
from bigsap.sources.base import Array, CostSource, Minimised

# Differences ``c - v`` that are held at a time, by each thread: three rows, but no more
# than its cache holds and no fewer than are worth numpy's calls.
_TILE_ROWS, _LEAST_TILE, _LARGEST_TILE = 3, 1 << 14, 1 << 17


def row_minima(
    source: CostSource,
    matching: Array | None,
    prices: Array,
    maximize: bool,
    threads: int,
    block_bytes: int,
    tick: Callable[[int], None] | None,
    *,
    names: Array | None = None,
) -> tuple[Array, Array]:
    """Read all costs once: the row duals and the costs of the assigned pairs.

    matching: (n,) intp, -1 = unassigned; None when there is no assignment.
    prices: (m,) float64, or int64 (integer costs only), in the minimising sense.
    names: (n,) what errors call the rows; their numbers where None.
    Returns u (n,), ``min_j (c[i, j] - prices[j])`` in the minimising sense and the
    dtype of ``prices``, +inf for a row without allowed pairs; and the assigned costs
    (n,) in the user's sense, float64 or int64, 0 for unassigned rows.
    Raises as ``certify`` does. Memory: a block and at most 1 MiB a thread, or two blocks.
    """
    if isinstance(source, Minimised):
        found = source.row_minima(matching, prices, maximize, tick or (lambda _: None))
        if found is not None:
            return found
    n, m = source.shape
    number = prices.dtype
    u = np.full(n, _worst(number), dtype=number)
    matched = np.zeros(n, dtype=np.int64 if np.dtype(source.dtype).kind in "iu" else np.float64)
    lowest, highest = int(prices.min()), int(prices.max())
    # Rows of which some part had minima too large for ``number``: other parts may have less.
    doubtful: list[int] = []
    # A range takes no memory beside the vectors.
    called: Sequence[int] | Array = range(n) if names is None else names
    size = min(max(_TILE_ROWS * m, _LEAST_TILE), _LARGEST_TILE)
    if gives_parts(source):  # blocks are such tiles
        size = block_bytes // 8

    def prepare() -> Work:
        tile = np.empty(max(1, min(size, block_bytes // 8)), dtype=number)

        def work(start: int, first: int, block: Array) -> None:
            k, m = block.shape
            here = slice(first, first + m)
            if block.dtype.itemsize == 8 and number == np.int64:
                low, high = int(block.min()), int(block.max())
                ends = (
                    (low + lowest, high + highest) if maximize else (low - highest, high - lowest)
                )
                if max(-ends[0], ends[1]) >= 2**63 - 1:
                    best, beyond = _minima_of_wide(block, prices[here], maximize)
                    doubtful.extend((start + beyond).tolist())
                    _lower(start, best)
                    _take_matched(start, first, block)
                    return
            best = np.full(k, _worst(number), dtype=number)
            height, width = max(1, len(tile) // m), min(m, len(tile))
            # Overflow is found below, as an infinite minimum of a row of finite costs.
            with np.errstate(over="ignore"):
                for top in range(0, k, height):
                    lowest_here = best[top : top + height]
                    for left in range(0, m, width):
                        costs = block[top : top + height, left : left + width]
                        part = prices[here][left : left + width]
                        tau = tile[: costs.size].reshape(costs.shape)
                        if maximize:
                            np.add(costs, part, out=tau)
                            np.minimum(lowest_here, -tau.max(axis=1), out=lowest_here)
                        else:
                            np.subtract(costs, part, out=tau)
                            np.minimum(lowest_here, tau.min(axis=1), out=lowest_here)
            if number == np.float64 and not np.isfinite(best).all():
                # NaN and the wrong infinity show in the minima.
                if not (best > -np.inf).all():
                    refuse_invalid(block, np.asarray(called[start : start + k]), maximize, first)
                doubtful.extend((start + _overflown(block, best, called[start:])).tolist())
            _lower(start, best)
            _take_matched(start, first, block)

        return work

    def _lower(start: int, best: Array) -> None:
        mine = u[start : start + len(best)]
        np.minimum(mine, best, out=mine)

    def _take_matched(start: int, first: int, block: Array) -> None:
        if matching is None:
            return
        columns = matching[start : start + len(block)]
        (here,) = np.nonzero((columns >= first) & (columns < first + block.shape[1]))
        costs = block[here, columns[here] - first]
        if costs.dtype.kind == "f" and not np.isfinite(costs).all():
            row = here[np.argmin(np.isfinite(costs))]
            raise CertificateError(
                f"the assignment uses the forbidden pair ({called[start + row]}, {columns[row]})"
            )
        matched[start + here] = costs

    stream(source, prepare, threads=threads, block_bytes=block_bytes, tick=tick)
    for row in sorted(doubtful):
        if u[row] == _worst(number):
            raise _too_far(int(called[row]), number)
    return u, matched


def _worst(number: np.dtype[Any]) -> Any:
    return np.iinfo(np.int64).max if number == np.int64 else np.inf


def _minima_of_wide(block: Array, prices: Array, maximize: bool) -> tuple[Array, Array]:
    """Row minima of int64 costs so large that c - v may leave int64: Python integers.

    And which of the rows have theirs beyond int64; the largest number stands for these.
    """
    best = []
    for row in block:
        costs = row.astype(object)
        best.append(min((-costs if maximize else costs) - prices.astype(object)))
    if min(best) <= -(2**63):
        raise OverflowRiskError("a row dual leaves int64: the integer costs are too large")
    worst = _worst(np.dtype(np.int64))
    beyond = np.array([k for k, b in enumerate(best) if b >= worst], dtype=np.intp)
    return np.array([min(b, worst) for b in best], dtype=np.int64), beyond


def refuse_invalid(block: Array, rows: Array, maximize: bool, first: int) -> None:
    """Raise InvalidCostError for the first NaN or wrong infinity of a block.

    block[k] is rows[k] from column ``first`` on.
    """
    wrong = math.inf if maximize else -math.inf
    bad = np.isnan(block) | (block == wrong)
    if bad.any():
        k, column = (int(i) for i in np.unravel_index(np.argmax(bad), bad.shape))
        allowed = "-inf" if maximize else "+inf"
        raise InvalidCostError(
            f"matrix contains invalid numeric entries: cost[{rows[k]}, {first + column}] is "
            f"{block[k, column]}; only finite costs and {allowed} (forbidden) are allowed",
            int(rows[k]),
            first + column,
        )


def _overflown(block: Array, best: Array, rows: Sequence[int] | Array) -> Array:
    """Rows of a block without a finite minimum that have finite costs. rows: what they are called.

    Raises OverflowRiskError for a minimum of -inf, which no other part can mend.
    """
    beyond = np.flatnonzero(~np.isfinite(best))
    beyond = beyond[np.isfinite(block[beyond]).any(axis=1)]
    for k in beyond[best[beyond] < 0]:
        raise _too_far(int(rows[k]), best.dtype)
    return beyond


def _too_far(row: int, number: np.dtype[Any]) -> OverflowRiskError:
    if number == np.int64:
        return OverflowRiskError(
            f"the dual of row {row} leaves int64: the integer costs are too large", row
        )
    return OverflowRiskError(f"costs and prices of row {row} are too far apart for float64", row)


def reach(a: Array) -> int:
    """Largest magnitude of an integral array, as a Python integer."""
    return max(-int(a.min()), int(a.max())) if a.size else 0
