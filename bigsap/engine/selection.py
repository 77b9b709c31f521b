"""About the k smallest of many values, by counting instead of selecting.

Bisection on the value, with a vectorised count in each step, is several times faster
than quickselect, whose branches no processor foresees; and lists need not be exact about
k, as long as what was left out is bounded exactly.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from bigsap.engine.atomics import lowest_bit
from bigsap.sources.base import Array

_BISECTIONS = 24


@njit(nogil=True, cache=True)
def n_within(values: Array, n: int, x: float) -> int:
    """How many of the first n values are at most x."""
    count = 0
    for j in range(n):
        count += 1 if values[j] <= x else 0
    return count


@njit(nogil=True, cache=True)
def bracket(values: Array, n: int, k: int, low: float, high: float) -> tuple[float, float]:
    """Shrink (low, high] about the k-th smallest (from 1) of the first n values.

    On entry and on return at most k values are <= low or low is below all of them,
    and at least k are <= high. Bisection counts with vector instructions, which is
    several times faster than selecting, and nobody needs the exact value.
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


@njit(nogil=True, cache=True)
def extremes(values: Array, n: int, infinity: float) -> tuple[float, float]:
    """The smallest of the first n values, and the largest finite one."""
    low, high = infinity, -infinity
    for j in range(n):
        x = values[j]
        low = x if x < low else low
        high = x if x > high and x < infinity else high
    return low, high


@njit(nogil=True, cache=True)
def gather(
    tau: Array, cap: float, infinity: float, cost: Array, sign: float, reference: float,
    column: int, marks: Array, best_tau: Array, best_cost: Array, best_id: Array, n: int,
) -> int:  # fmt: skip
    """Append all finite ``tau`` <= cap to n candidates, in order; how many they are then.

    tau, cost: of consecutive columns from ``column``. Marking all with vector
    instructions and walking the marks by their set bits is four times faster than a
    loop with a test per column. marks: uint8, a multiple of 8 places, at least tau's.
    """
    for j in range(tau.size):
        marks[j] = 1 if tau[j] <= cap and tau[j] < infinity else 0
    places = (tau.size + 7) // 8
    for j in range(tau.size, 8 * places):
        marks[j] = 0
    words = marks.view(np.uint64)
    for k in range(places):
        word = words[k]
        while word != 0:
            j = 8 * k + (lowest_bit(word) >> 3)
            word &= word - np.uint64(1)
            best_tau[n] = tau[j]
            best_id[n] = column + j
            best_cost[n] = sign * cost[j] - reference
            n += 1
    return n


@njit(nogil=True, cache=True)
def thin(tau: Array, cost: Array, ids: Array, n: int, k: int, infinity: float) -> tuple[int, float]:
    """Keep about the k smallest of n > k candidates, in front; how many, and the
    smallest ``tau`` of those given up.

    Never more than k; fewer only where that saves work, and then most of them.
    """
    low, high = extremes(tau, n, infinity)
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
    # Ties at the boundary (more than k values within a hair): the first ones fill up.
    room = k - count if count < wanted or count > k else 0
    if count > k:
        enough, room = low - 1, k
    kept = 0
    rest = infinity
    for j in range(n):
        x = tau[j]
        keep = x <= enough
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


@njit(nogil=True, cache=True)
def cheapest_blocks(
    bound: Array, total: int, above: float, count: int, opened: Array
) -> tuple[int, float]:
    """About ``count`` of the first ``total`` places with the lowest bounds > above, sorted;
    how many, and a number below which no other such bound lies."""
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
                within += 1 if bound[j] > above and bound[j] <= middle else 0
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
