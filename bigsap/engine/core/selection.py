"""Approximate selection of the k smallest of many values, by counting.

Bisection on the value, with a vectorised count in each step, is several times faster than
quickselect with its unpredictable branches. Lists need not hold exactly k entries, as long as
the values left out are bounded exactly.
"""

from __future__ import annotations

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.engine.core.atomics import below_bits, lowest_bit, within_bits
from bigsap.engine.core.state import LANES
from bigsap.types import Array

_BISECTIONS = 24


@kernel
def n_within(values: Array, n: int, x: float) -> int:
    """Count the first n values that are at most x."""
    count = 0
    for j in range(n):
        count += 1 if values[j] <= x else 0
    return count


@kernel
def bracket(values: Array, n: int, k: int, low: float, high: float) -> tuple[float, float]:
    """Narrow (low, high] around the k-th smallest (from 1) of the first n values.

    On entry and on return at most k values are <= low or low is below all of them, and at least
    k are <= high.
    """
    for _ in range(_BISECTIONS):
        middle = low + (high - low) / 2
        if not (middle > low and middle < high):
            break
        count = n_within(values, n, middle)
        if count < k:
            low = middle
        else:
            high = middle
            if count <= k + k // 8:
                break
    return low, high


@kernel
def extremes(values: Array, n: int, floor: float, infinity: float, lanes: Array) -> tuple[float, float]:
    """Return the smallest of the first n values above floor, and the largest finite one.

    lanes: P (2 * LANES,). One chain of comparisons each would take ten times as long.
    """
    low, high = lanes[:LANES], lanes[LANES : 2 * LANES]
    for k in range(LANES):
        low[k], high[k] = infinity, -infinity
    full = n // LANES * LANES
    for first in range(0, full, LANES):
        some = values[first : first + LANES]
        for k in range(LANES):
            x, a, z = some[k], low[k], high[k]
            y = x if x > floor else infinity
            low[k] = y if y < a else a
            y = x if x < infinity else -infinity
            high[k] = y if y > z else z
    for j in range(full, n):
        x = values[j]
        y = x if x > floor else infinity
        low[j - full] = min(low[j - full], y)
        y = x if x < infinity else -infinity
        high[j - full] = max(high[j - full], y)
    width = LANES // 2
    while width >= 8:
        for k in range(width):
            a, b = low[k], low[k + width]
            low[k] = b if b < a else a
            y, z = high[k], high[k + width]
            high[k] = y if y > z else z
        width //= 2
    a, z = low[0], high[0]
    for k in range(1, 8):
        a = low[k] if low[k] < a else a
        z = high[k] if high[k] > z else z
    return a, z


@kernel
def gather(
    tau: Array, cap: float, infinity: float, column: int, best_tau: Array, best_id: Array, n: int
) -> int:
    """Append all finite ``tau`` <= cap to n candidates, in order; return the new number.

    tau: of consecutive columns from ``column``. The tests of 64 columns become the bits of a
    word, and only set bits are visited: many times faster than a branch per column. Returns -1
    if there are more candidates than possible: the costs have changed since they were checked.
    """
    for first in range(0, tau.size, 64):
        if first + 64 <= tau.size and cap < infinity:
            word = within_bits(tau, first, cap)
        elif first + 64 <= tau.size:
            word = below_bits(tau, first, infinity)
        else:
            word = np.uint64(0)
            for j in range(first, tau.size):
                if tau[j] <= cap and tau[j] < infinity:
                    word |= np.uint64(1) << np.uint64(j - first)
        while word != 0:
            j = first + lowest_bit(word)
            word &= word - np.uint64(1)
            if n == best_tau.size:
                return -1
            best_tau[n] = tau[j]
            best_id[n] = column + j
            n += 1
    return n


@kernel
def thin(
    tau: Array, cost: Array, ids: Array, n: int, k: int, infinity: float, lanes: Array
) -> tuple[int, float]:
    """Keep about the k smallest of n > k candidates, in front.

    Returns how many were kept, and the smallest ``tau`` left out. Never keeps more than k; keeps
    fewer only where that saves work, and then at least 15/16.
    """
    low, high = extremes(tau, n, -infinity, infinity, lanes)
    # At least 15/16 of k, at most k.
    wanted = k - k // 16
    enough = low
    count = n_within(tau, n, low)
    for _ in range(_BISECTIONS):
        if wanted <= count <= k:
            break
        middle = enough + (high - enough) / 2
        if not (middle > enough and middle < high):
            break
        within = n_within(tau, n, middle)
        if within <= k:
            enough, count = middle, within
        else:
            high = middle
    # Ties at the boundary (more than k nearly equal values): keep the first ones.
    room = k - count if count < wanted else 0
    if count > k:  # even the smallest value occurs too often; subtracting 1 may not change a number
        room = k
    kept = 0
    if room == 0:
        rest = extremes(tau, n, enough, infinity, lanes)[0]
        for j in range(n):  # without an unpredictable branch
            x, y, z = tau[j], cost[j], ids[j]
            tau[kept], cost[kept], ids[kept] = x, y, z
            kept += 1 if x <= enough else 0
        return kept, rest
    rest = infinity
    for j in range(n):
        x = tau[j]
        keep = count <= k and x <= enough
        if not keep and room > 0 and x <= high:
            keep = True
            room -= 1
        if keep:
            tau[kept] = x
            cost[kept] = cost[j]
            ids[kept] = ids[j]
            kept += 1
        else:
            rest = x if x < rest else rest
    return kept, rest


@kernel
def cheapest_blocks(bound: Array, total: int, above: float, count: int, opened: Array) -> tuple[int, float]:
    """Find about ``count`` of the first ``total`` bounds: the lowest ones > above, sorted.

    Returns their number, and a value below which there is no other such bound.
    """
    low, high, n = np.inf, -np.inf, 0
    for j in range(total):
        x = bound[j]
        if x > above:
            low = x if x < low else low
            high = x if x > high else high
            n += 1
    if n > count:
        for _ in range(_BISECTIONS):
            middle = low + (high - low) / 2
            if not (middle > low and middle < high):
                break
            within = 0
            for j in range(total):
                within += 1 if (bound[j] > above) & (bound[j] <= middle) else 0
            if within < count // 2:
                low = middle
            else:
                high = middle
                if within <= count:
                    break
    n = 0
    for j in range(total):
        x = bound[j]
        if x > above and x <= high:
            place = n
            while place > 0 and bound[opened[place - 1]] > x:
                opened[place] = opened[place - 1]
                place -= 1
            opened[place] = j
            n += 1
    return n, high
