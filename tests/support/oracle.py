"""A naive exact solver to test against. It imports nothing from bigsap.

All arithmetic is on Python integers (every float is an integer times a power of two),
so that the optimum it returns is the true one, not a rounded one.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np

INFINITY = math.inf


def optimum(cost, maximize=False):
    """Optimal value (a Fraction) and col4row (-1: none); None when infeasible.

    cost: (n, m); +inf forbids a pair, -inf when maximising. Hungarian method with
    one shortest path per row, O(min(n, m)^2 max(n, m)).
    """
    found = _solve(cost, maximize)
    return None if found is None else found[:2]


def optimal_prices(cost, maximize=False):
    """Optimal column duals (m Fractions, minimising sense); the problem is feasible."""
    return _solve(cost, maximize)[2]


def _solve(cost, maximize):
    cost = np.asarray(cost)
    n, m = cost.shape
    numbers, unit = _integers(cost, maximize)
    if n > m:
        numbers = [list(column) for column in zip(*numbers, strict=True)] if m else []
    found = _hungarian(numbers, max(n, m))
    if found is None:
        return None
    chosen, height, price = found
    total = sum(numbers[i][j] for i, j in enumerate(chosen)) * unit
    col4row = [-1] * n
    for i, j in enumerate(chosen):
        if n > m:
            col4row[j] = i
        else:
            col4row[i] = j
    prices = [p * unit for p in (height if n > m else price)]
    return (-total if maximize else total), col4row, prices


def brute_force(cost, maximize=False):
    """The optimal value by trying every assignment; None when infeasible. n, m <= 7."""
    cost = np.asarray(cost)
    numbers, unit = _integers(cost, maximize)
    n, m = cost.shape
    best = INFINITY
    if n <= m:
        ways = (zip(range(n), columns, strict=True) for columns in itertools.permutations(range(m), n))
    else:
        ways = (zip(rows, range(m), strict=True) for rows in itertools.permutations(range(n), m))
    for pairs in ways:
        best = min(best, sum(numbers[i][j] for i, j in pairs))
    if best == INFINITY:
        return None
    return (-best if maximize else best) * unit


def value(cost, row_ind, col_ind):
    """The exact cost of an assignment, as a Fraction."""
    cost = np.asarray(cost)
    return sum((Fraction(cost[i, j].item()) for i, j in zip(row_ind, col_ind, strict=True)), Fraction(0))


def _integers(cost, maximize):
    """The costs to minimise, as integers times a common unit; forbidden = infinity."""
    ratios = [[None if math.isinf(c) else c.as_integer_ratio() for c in row] for row in cost.tolist()]
    scale = math.lcm(*{ratio[1] for row in ratios for ratio in row if ratio is not None})
    sign = -1 if maximize else 1
    numbers = [
        [INFINITY if ratio is None else sign * ratio[0] * (scale // ratio[1]) for ratio in row]
        for row in ratios
    ]
    return numbers, Fraction(1, scale)


def _hungarian(numbers, m):
    """Columns and duals of the rows, duals of the columns; m columns, at most m rows."""
    owner = [-1] * m
    price = [0] * m
    height = [0] * len(numbers)
    for root in range(len(numbers)):
        label = [INFINITY] * m
        before = [-1] * m  # the column whose owner gave the label, -1: the root
        done, left = [], list(range(m))
        row, reached, last = root, 0, -1
        while True:
            costs, ahead = numbers[row], reached - height[row]
            for j in left:
                if costs[j] == INFINITY:
                    continue
                distance = ahead + costs[j] - price[j]
                if distance < label[j]:
                    label[j], before[j] = distance, last
            if not left:
                return None
            last = min(left, key=label.__getitem__)
            if label[last] == INFINITY:
                return None
            reached = label[last]
            done.append(last)
            left.remove(last)
            if owner[last] == -1:
                break
            row = owner[last]
        for j in done:
            price[j] += label[j] - reached
            if owner[j] != -1:
                height[owner[j]] += reached - label[j]
        height[root] += reached
        while last != -1:
            previous = before[last]
            owner[last] = root if previous == -1 else owner[previous]
            last = previous
    chosen = [-1] * len(numbers)
    for j, i in enumerate(owner):
        if i != -1:
            chosen[i] = j
    return chosen, height, price
