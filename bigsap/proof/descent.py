"""Each row's least ``c - v`` by descending a tree of boxes, with proofs of the bounds.

Below, u is 2^-53, fl() a rounded operation, ``c`` the cost that the source computes, or its
negative when maximising, as in the pass over all pairs. A row's minimum is the exact least
``c - v``, and costs come from the source's own filler. So the result is the pass's minimum
bit for bit, if no excluded box holds a smaller one. A box is excluded if a real number B with
``B <= c - v[j]`` for all its columns is at least the best ``c - v`` so far. If near pairs are
recorded, or prices have low parts, B must exceed it by the width sought. There are two such numbers.

*Without slopes* (``_plain``). Let y' be the point of the box nearest the row, farthest when
maximising. ``fl(x - y)`` is monotone in y, and so are products with a positive scale, squares,
sums in one order and the root. The source's own operations on y' therefore give a number
``c' <= c`` for every column of the box, without a margin. Hence ``c' - top <= c - v[j]``, exactly
as two floats, including ties: of many equal points one leaf is opened. For other sources
(``Geometry.slip`` > 0), whose order of operations is unknown, and for powers, c' is lowered by
slip times the sum of its terms' magnitudes.

*With slopes* (``_sloped``). ``v[j] <= offset + g . (y - z)``, z the box's centre, and

* a convex cost lies above its tangent at any point: for a sum of squares we take the
  minimiser of ``c - g . y`` in the box, coordinate by coordinate; for the norms and the
  distance on a sphere (a convex increasing function of the chord) we take z;
* sums of ``abs(x - y)`` and products are piecewise linear: least at an end or at x;
* the negatives of sums are least at corners, coordinate by coordinate; the negative of a
  root (of a power) lies above ``-(r + s / r) / 2``, whatever r > 0, linear in the sum s.

All are sums of at most 3 d + 3 terms, each of at most eight roundings (a power counts 64,
and multiplies the error of its argument; that is ``_POWER`` a unit of the exponent). Their
magnitudes together are at most M = 8 C + 8 G + abs(offset) plus the additions below, with C the
cost of the farthest corner and G the sum of ``abs(g) max(width, abs(end - z))``. The source's cost
itself has an error of at most (d + 8) u C. So the error of the sum is less than (4 d + 40) u M; the
margin is (16 d + 64) u M, which also covers its own rounding and that of M. Products that
underflow lose less than 1e-300 each, times a scale: ``_TINY`` of it is added. If a divisor
or a factor might be too small, or a number overflows, there is no bound (infinite margins
exclude nothing, nor does NaN).
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.proof.geometry import ABSOLUTE, CHORD, LARGEST, POWER, PRODUCT, ROOT, SQUARE
from bigsap.proof.scan import Minima, Near, exact_difference, is_less, margin_of, note, two_sum
from bigsap.proof.tree import LEAF, Tree
from bigsap.sources.compiled import call_fill
from bigsap.types import Array

# numba's annotations describe the inside of its decorators, not their results.

_UNIT = 2.0**-53
_TINY = 1e-290
_POWER = 64
#: Smallest usable divisor.
_LEAST_ROOT = 1e-100
#: Deeper than any tree: each level pushes two nodes.
_STACK = 128
#: Time of a bound in pairs; a pair read here takes twice as long as in the pass.
BOUND_PAIRS = 20


class PointCosts(NamedTuple):
    """Rows' points x (n, d), and the rest of ``Geometry`` as numbers; sign: -1 to maximise.

    limit: signed costs above it are forbidden, and boxes of such are not opened.

    address, context: of the filler, for rows and columns in the tree's order.
    """

    x: Array
    scale: Array
    kind: int
    sign: int
    factor: float
    power: float
    slip: float
    blur: float
    limit: float
    address: int
    context: int


@kernel(nrt=True, forceinline=True)
def _larger(a: float, b: float) -> float:
    """Return the larger number, without the test for NaN that ``max`` makes first.

    A NaN lost here comes from an overflow, which makes the margin infinite or NaN as well.
    """
    return a if a > b else b


@kernel(nrt=True, forceinline=True)
def _smaller(a: float, b: float) -> float:
    return a if a < b else b


@kernel(nrt=True, forceinline=True)
def _plain(c: PointCosts, t: Tree, row: int, node: int) -> float:
    """Return a lower bound of the row's signed costs in the node's box."""
    kind, d = c.kind, c.scale.size
    total = 0.0
    size = 0.0
    far = c.sign < 0
    for k in range(d):
        x, low, high, w = c.x[row, k], t.low[node, k], t.high[node, k], c.scale[k]
        if kind == PRODUCT:
            p, q = x * low, x * high
            size += _larger(abs(p), abs(q))
            total += _larger(p, q) if far else _smaller(p, q)
            continue
        if far:
            a = _larger(abs(x - low), abs(x - high))
        elif x < low:
            a = low - x
        elif x > high:
            a = x - high
        else:
            a = 0.0
        if kind == ABSOLUTE:
            total += w * a
        elif kind == LARGEST:
            total = _larger(total, w * a)
        elif kind == POWER:
            total += w * math.pow(a, c.power)
        else:
            total += w * (a * a)
    if kind == SQUARE:
        total *= c.factor
    elif kind == ROOT:
        total = math.sqrt(total)
    elif kind == POWER:
        if total < _TINY:
            # Underflow may have hidden a smaller sum.
            total = 2.0 * _TINY if far else 0.0
        total = math.pow(total, 1.0 / c.power)
    elif kind == CHORD:
        half = 0.5 * math.sqrt(total)
        half = half + 16.0 * _UNIT if far else _larger(0.0, half - 16.0 * _UNIT)
        total = 2.0 * c.power * math.asin(_smaller(1.0, half))
    if kind != PRODUCT:
        size = total
    total = -total if far else total
    if c.slip > 0.0:
        total -= c.slip * size
    if c.blur > 0.0:
        total -= c.blur
    return total


@kernel(nrt=True, forceinline=True)
def _sloped(c: PointCosts, t: Tree, row: int, node: int) -> float:
    """Return a lower bound of the row's signed costs minus their columns' prices, in the node's box."""
    kind, d, far = c.kind, c.scale.size, c.sign < 0
    none = -np.inf
    reach = parts = scales = 0.0  # C before its root, G, and for _TINY
    total = 0.0
    extra = 0.0
    # First the parts of the tangent, or of the root's majorant.
    root = 0.0
    at_root = 0.0
    best = 0
    if kind in (ROOT, CHORD):
        for k in range(d):
            a = c.x[row, k] - t.centre[node, k]
            root += c.scale[k] * (a * a)
        root = math.sqrt(root)
    elif kind == POWER:
        for k in range(d):
            root += c.scale[k] * math.pow(abs(c.x[row, k] - t.centre[node, k]), c.power)
        if root < _TINY:
            return none
        root = math.pow(root, 1.0 / c.power)
    elif kind == LARGEST:
        for k in range(d):
            a = c.scale[k] * abs(c.x[row, k] - t.centre[node, k])
            if a >= root:
                root, best = a, k
    if (kind in (ROOT, POWER, CHORD)) and not (root > _LEAST_ROOT):
        return none
    if kind == CHORD:
        if far or root < 1e-5 or root > 1.9:
            return none
        at_root = c.power / (root * math.sqrt(1.0 - 0.25 * root * root))
    rise = 0.0
    for k in range(d):
        x, low, high, w = c.x[row, k], t.low[node, k], t.high[node, k], c.scale[k]
        g, z = t.slope[node, k], t.centre[node, k]
        p, q = low - z, high - z
        width = high - low
        parts += abs(g) * _larger(width, _larger(abs(p), abs(q)))
        scales += w
        a, b = x - low, x - high
        most = _larger(abs(a), abs(b))
        if kind == SQUARE:
            f = w * c.factor
            reach += f * (most * most)
            if far:
                total += _smaller(-f * (a * a) - g * p, -f * (b * b) - g * q)
            else:
                y = x + g / (2.0 * f)
                y = low if not (y > low) else y
                y = high if y > high else y
                e = x - y
                incline = -2.0 * f * e - g
                total += f * (e * e) - g * (y - z)
                total += _smaller(incline * (low - y), incline * (high - y))
        elif kind == ABSOLUTE:
            reach += w * most
            if far:
                total += _smaller(-w * abs(a) - g * p, -w * abs(b) - g * q)
            else:
                y = low if x < low else x
                y = high if y > high else y
                here = _smaller(w * abs(a) - g * p, w * abs(b) - g * q)
                total += _smaller(here, w * abs(x - y) - g * (y - z))
        elif kind == PRODUCT:
            reach += _larger(abs(x * low), abs(x * high))
            if far:
                total += _smaller(-(x * low) - g * p, -(x * high) - g * q)
            else:
                total += _smaller(x * low - g * p, x * high - g * q)
        elif kind == LARGEST:
            reach = _larger(reach, w * most)
            slide = _smaller(-g * p, -g * q)
            total += slide
            if far:
                # The largest coordinate is at one of its ends; the others contribute their slopes.
                here = _smaller(-w * abs(a) - g * p, -w * abs(b) - g * q) - slide
                rise = _smaller(rise, here)
            elif k == best:
                incline = (w if z > x else -w) - g
                total += _smaller(incline * p, incline * q) - slide
        elif far:  # ROOT, POWER
            if kind == ROOT:
                f = 0.5 * w / root
                left, right = f * (a * a), f * (b * b)
                reach += w * (most * most)
            else:
                f = w / c.power * math.pow(root, 1.0 - c.power)
                left, right = f * math.pow(abs(a), c.power), f * math.pow(abs(b), c.power)
                reach += w * math.pow(most, c.power)
            if not (f > _TINY):
                return none
            extra += left + right
            total += _smaller(-left - g * p, -right - g * q)
        else:
            e = z - x
            if kind == POWER:
                incline = w * math.pow(abs(e) / root, c.power - 1.0)
                incline = incline if e > 0.0 else -incline
                reach += w * math.pow(most, c.power)
            elif kind == ROOT:
                incline = w * e / root
                reach += w * (most * most)
            else:
                incline = at_root * e
                reach += most * most
            extra += abs(incline) * width
            incline -= g
            total += _smaller(incline * p, incline * q)
    if kind == ROOT:
        reach = math.sqrt(reach)
        total += -0.5 * root if far else root
    elif kind == POWER:
        reach = math.pow(reach, 1.0 / c.power)
        total += root / c.power - root if far else root
    elif kind == LARGEST:
        total += rise if far else root
    elif kind == CHORD:
        reach = 3.2 * c.power
        total += 2.0 * c.power * math.asin(0.5 * root)
    offset = t.offset[node]
    size = 8.0 * (reach + parts + extra + root) + abs(offset)
    units = 64.0 + 16.0 * d
    if kind == POWER:
        units += _POWER * (1.0 + c.power)
    elif kind == CHORD:
        units += 512.0
    return total - offset - (units * _UNIT * size + _TINY * (1.0 + scales)) - c.blur


@kernel(nrt=True)
def count_within(
    c: PointCosts, t: Tree, limit: float, start: int, stop: int, found: Array, counts: Array
) -> int:
    """Count the signed costs of at most ``limit`` of rows start to stop in ``found`` (n,).

    counts: as for ``descend``. Returns the first row with NaN or -inf, or -1.
    """
    stack = np.empty(_STACK, np.int64)
    costs = np.empty(LEAF)
    inner = t.leaves - 1
    for row in range(start, stop):
        stack[0], depth, total = 0, 1, 0
        while depth > 0:
            depth -= 1
            node = stack[depth]
            if node < inner:
                for child in range(2 * node + 1, 2 * node + 3):
                    counts[1] += 1
                    if not _plain(c, t, row, child) > limit:
                        stack[depth] = child
                        depth += 1
                continue
            first, last = t.first[node], t.last[node]
            counts[0] += last - first
            call_fill(c.address, c.context, row, first, last, costs.ctypes.data)
            for k in range(last - first):
                cost = costs[k] if c.sign > 0 else -costs[k]
                if not cost > -np.inf:
                    return row
                if cost <= limit and cost < np.inf:
                    total += 1
        found[row] = total
    return -1


@kernel(nrt=True)
def descend(
    c: PointCosts,
    t: Tree,
    v: Array,
    below: Array,
    rows: Array,
    start: int,
    stop: int,
    limit: int,
    width: float,
    found: Minima,
    near: Near,
    columns: Array,
    counts: Array,
) -> int:
    """Lower the minima of ``rows[start:stop]`` to the rows' least ``c - v``, exactly.

    v (m,), below (m,) or (0,): prices and their low parts, in the tree's order. width: record pairs
    within this distance of the least (``scan.Near``), with their column in ``columns`` (m,); none if
    below 0, and no more once one has not fitted. found: of all rows, any of their differences, or
    inf, in/out. counts: int64 (2,), pairs read and bounds computed, in/out. Returns the position of
    the first row not begun, because the work of ``limit`` pairs was done.
    """
    stack = np.empty(_STACK, np.int64)
    floor = np.empty(_STACK)
    rest = np.empty(_STACK)
    costs = np.empty(LEAF)
    inner = t.leaves - 1
    work = 0
    paired = below.size > 0
    reach = 0.0
    for j in range(below.size):
        reach = max(reach, abs(below[j]))
    for position in range(start, stop):
        if work > limit:
            return position
        if near.counts[1] > 0:
            width = -1.0
        row = rows[position]
        best, mid, low = found.high[row], found.mid[row], found.low[row]
        least = best
        pairs = bounds = 0
        stack[0], floor[0], rest[0] = 0, -np.inf, 0.0
        depth = 1
        while depth > 0:
            depth -= 1
            node = stack[depth]
            margin = margin_of(least, max(width, 0.0), reach)
            strict = margin > 0.0 or width >= 0.0
            edge = least + margin
            if floor[depth] > edge or (floor[depth] == edge and not strict and rest[depth] >= mid):
                continue
            if node < inner:
                child = 2 * node + 1
                first_found = depth
                for k in range(2):
                    bounds += 1
                    under = _plain(c, t, row, child + k)
                    if under > c.limit:
                        continue
                    plain, error = two_sum(under, -t.top[child + k])
                    if plain > edge or (plain == edge and not strict and error >= mid):
                        continue
                    other = _sloped(c, t, row, child + k)
                    if other > edge or (other == edge and not strict and mid <= 0.0):
                        continue
                    stack[depth] = child + k
                    floor[depth], rest[depth] = plain, error
                    if other > plain:
                        floor[depth], rest[depth] = other, 0.0
                    depth += 1
                # The more promising one on top.
                if depth == first_found + 2 and floor[first_found] < floor[first_found + 1]:
                    stack[first_found], stack[depth - 1] = stack[depth - 1], stack[first_found]
                    floor[first_found], floor[depth - 1] = floor[depth - 1], floor[first_found]
                    rest[first_found], rest[depth - 1] = rest[depth - 1], rest[first_found]
                continue
            first, last = t.first[node], t.last[node]
            call_fill(c.address, c.context, row, first, last, costs.ctypes.data)
            for k in range(last - first):
                cost = costs[k] if c.sign > 0 else -costs[k]
                low_part = below[first + k] if paired else 0.0
                tau = (cost - v[first + k]) - low_part
                if not (tau <= edge):
                    continue
                least = tau if tau < least else least
                a, b, d = exact_difference(cost, v[first + k], low_part)
                if is_less(a, b, d, best, mid, low):
                    best, mid, low = a, b, d
                if width >= 0.0:
                    note(near, row, columns[first + k], cost)
            pairs += last - first
        found.high[row], found.mid[row], found.low[row] = best, mid, low
        counts[0] += pairs
        counts[1] += bounds
        work += pairs + BOUND_PAIRS * bounds
    return stop
