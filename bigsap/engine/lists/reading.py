"""Functions that read costs in their own dtype; the rest of an evaluation uses the price type.

Three C functions are compiled for each dtype and called by address, for hundreds of columns at
a time. So the long kernels of evaluations and searches are compiled once for float64 prices
and once for int64, whatever the dtype of the costs.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numba
import numpy as np

from bigsap.compile.decorator import callback, kernel
from bigsap.engine.core.atomics import prefetch
from bigsap.engine.core.row_access import Terms
from bigsap.engine.core.scan import AHEAD, LINE, fold, n_invalid
from bigsap.engine.core.state import LANES
from bigsap.engine.lists.layout import PRICE_BYTES, Scratch
from bigsap.sources.compiled import address_of, call, pointer_to
from bigsap.types import Array

carray: Any = numba.carray
types: Any = numba.types
_pointer_i4 = pointer_to(types.int32)


class Costs(NamedTuple):
    """Location of the costs, and functions that read them.

    judge, reduce, copy: addresses of ``_judge``, ``_reduce_chunk`` and ``_copy`` for their dtype.
    start: the address of the first row, 0 if rows are computed. stride, item: bytes from one row
    to the next (0 with start) and of a cost. plain: costs are of the type of prices.
    """

    judge: int
    reduce: int
    copy: int
    start: int
    stride: int
    item: int
    plain: bool


def costs_in(slots: Array, price: np.dtype[Any], *, there: bool) -> Costs:
    """Return access to the rows of a matrix, or with ``there`` False to computed rows of its dtype."""
    judge, reduce, copy = _functions(slots.dtype, price)
    start, stride = (slots.ctypes.data, slots.strides[0]) if there else (0, 0)
    plain = bool(slots.dtype == price)
    return Costs(judge, reduce, copy, start, stride, slots.itemsize, plain)


_compiled: dict[tuple[np.dtype[Any], np.dtype[Any]], tuple[Any, ...]] = {}
_compiling = threading.Lock()


def _functions(cost: np.dtype[Any], price: np.dtype[Any]) -> tuple[int, int, int]:
    """Return the addresses of the C functions for a dtype of costs and one of prices."""
    with _compiling:
        found = _compiled.get((cost, price))
        if found is None:
            word, unit = types.int64, numba.from_dtype(price)
            costs, units = types.CPointer(numba.from_dtype(cost)), types.CPointer(unit)
            found = _compiled[cost, price] = (
                callback(word(costs, word, unit, unit, unit, unit, units), _judge),
                callback(word(costs, word, word, *5 * [unit], *5 * [units]), _reduce_chunk),
                callback(word(costs, word, word, units), _copy),
            )
    judge, reduce, copy = found
    return judge.address, reduce.address, copy.address


def _judge(
    cost_at: Any, n: int, sign: float, lowest: float, highest: float, infinity: float, low_at: Any
) -> int:
    """Count the signed costs that are NaN or outside (lowest, highest]; set low[0] to the smallest.

    cost: (n,). low: (LANES,).
    """
    cost, lanes = carray(cost_at, n), carray(low_at, LANES)
    bad = 0
    for k in range(LANES):
        lanes[k] = infinity
    full = n // LANES
    for b in range(full):
        p = b * LANES
        for line in range(cost.itemsize * LANES // LINE):
            prefetch(address_of(cost) + p * cost.itemsize + AHEAD + line * LINE)
        c = cost[p : p + LANES]
        for k in range(LANES):
            x = sign * c[k]
            a = lanes[k]
            lanes[k] = x if x < a else a
            bad += 0 if (x > lowest) & (x <= highest) else 1
    for j in range(full * LANES, n):
        x = sign * cost[j]
        lanes[0] = min(lanes[0], x)
        bad += 0 if (x > lowest) & (x <= highest) else 1
    lanes[0] = fold(lanes, infinity)
    return bad


def _reduce_chunk(
    cost_at: Any,
    width: int,
    judged: int,
    sign: float,
    lowest: float,
    highest: float,
    reference: float,
    infinity: float,
    v_at: Any,
    open_at: Any,
    tau_at: Any,
    low_at: Any,
    free_at: Any,
) -> int:
    """Compute ``tau = (sign * cost - reference) - v`` of consecutive columns, all (width,).

    low: (LANES,) set to the smallest of each group, which is one lane of the chunk.
    free: (LANES,) lowered to the smallest over free columns. judged: return the number of signed
    costs that are NaN or outside (lowest, highest], before anything else if there are any; else 0.
    """
    cost, v, open_price = carray(cost_at, width), carray(v_at, width), carray(open_at, width)
    tau, low, free = carray(tau_at, width), carray(low_at, LANES), carray(free_at, LANES)
    if judged != 0:
        bad = n_invalid(cost, sign, lowest, highest, 0, width)
        if bad != 0:
            return bad
    for k in range(LANES):
        low[k] = infinity
    # Four columns of a lane at a time: a quarter of the loads and stores of the minima.
    step = 4 * LANES
    full = width // step
    for b in range(full):
        p = b * step
        for line in range(cost.itemsize * step // LINE):
            prefetch(address_of(cost) + p * cost.itemsize + AHEAD + line * LINE)
        c, w = cost[p : p + step], v[p : p + step]
        f, t = open_price[p : p + step], tau[p : p + step]
        for k in range(LANES):
            x0, x1 = sign * c[k] - reference, sign * c[k + LANES] - reference
            x2 = sign * c[k + 2 * LANES] - reference
            x3 = sign * c[k + 3 * LANES] - reference
            g0, g1 = x0 - w[k], x1 - w[k + LANES]
            g2, g3 = x2 - w[k + 2 * LANES], x3 - w[k + 3 * LANES]
            t[k], t[k + LANES], t[k + 2 * LANES], t[k + 3 * LANES] = g0, g1, g2, g3
            a = g0 if g0 < g1 else g1
            z = g2 if g2 < g3 else g3
            a = a if a < z else z
            z = low[k]
            low[k] = a if a < z else z
            h0, h1 = x0 - f[k], x1 - f[k + LANES]
            h2, h3 = x2 - f[k + 2 * LANES], x3 - f[k + 3 * LANES]
            a = h0 if h0 < h1 else h1
            z = h2 if h2 < h3 else h3
            a = a if a < z else z
            z = free[k]
            free[k] = a if a < z else z
    done = full * step
    for _ in range((width - done) // LANES):
        end = done + LANES
        c, w, f, t = cost[done:end], v[done:end], open_price[done:end], tau[done:end]
        for k in range(LANES):
            x = sign * c[k] - reference
            g = x - w[k]
            h = x - f[k]
            t[k] = g
            a, z = low[k], free[k]
            low[k] = g if g < a else a
            free[k] = h if h < z else z
        done = end
    for k in range(done, width):
        x = sign * cost[k] - reference
        g = x - v[k]
        tau[k] = g
        low[k % LANES] = min(low[k % LANES], g)
        free[k % LANES] = min(free[k % LANES], x - open_price[k])
    return 0


def _copy(cost_at: Any, places: int, n: int, out_at: Any) -> int:
    """Copy out[k] = cost[places[k]], of n costs; places: an address of ID, or 0 for the first n."""
    out = carray(out_at, n)
    if places == 0:
        first = carray(cost_at, n)
        for k in range(n):
            out[k] = first[k]
    else:
        ids = carray(_pointer_i4(places), n)
        for k in range(n):
            out[k] = cost_at[ids[k]]
    return 0


@kernel
def copied(
    origin: int, first: int, last: int, reference: float, costs: Costs, terms: Terms, scratch: Scratch
) -> bool:
    """Copy the costs of the candidates ``first`` to ``last - 1``, whose columns are known.

    origin: the address of column 0. Returns False if a signed cost is outside (lowest, highest]: a
    row has changed since it was checked.
    """
    if first == last:
        return True
    best_cost, best_id, sign = scratch.best_cost, scratch.best_id, terms.sign
    ids_at, out_at = address_of(best_id), address_of(best_cost)
    call(costs.copy, (origin, ids_at + first * best_id.itemsize, last - first, out_at + first * PRICE_BYTES))
    good = 0
    for j in range(first, last):
        x = sign * best_cost[j]
        good += 1 if (x > terms.lowest) & (x <= terms.highest) else 0
        best_cost[j] = x - reference
    return good == last - first
