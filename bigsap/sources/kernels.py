"""Compiled fillers of the computed sources: metrics, low rank, tables.

Each public function here is the body of one ``Fill``, compiled at first use and kept on disk
(``filler``). Costs are summed over the dimensions in order, separately for each column, so a part
of a row has the same bits as the row; columns are processed in tiles that stay in the first-level
cache and vectorise. No fast-math anywhere.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numba.np import numpy_support

from bigsap.compile.decorator import kernel
from bigsap.sources.compiled import (
    address_in,
    call_fill,
    compile_fill,
    pointer_f4,
    pointer_f8,
    pointer_i4,
    pointer_i8,
    pointer_like,
    pointer_u1,
    pointer_u2,
    pointer_u4,
    pointer_u8,
)
from bigsap.types import Array

# numba's annotations describe the inside of its decorators, not their results.
carray: Any = numpy_support.carray

#: Columns in a tile: with a few dimensions, its inputs and costs fit 32 KiB.
_TILE = 512
# What is made of a sum of squares: nothing, its root, half of it.
_PLAIN, _ROOT, _HALF = range(3)


@kernel(nrt=True)
def _points(context: int, row: int) -> Any:
    """Return the data of a metric: x[row] (d,), y (d, m), weights (d,), its parameter.

    Context words: addresses of x (n, d), y, weights; d, m; the parameter's bits.
    """
    words = carray(pointer_i8(context), 6)
    d, m = words[3], words[4]
    x = carray(pointer_f8(words[0] + 8 * d * row), d)
    y = carray(pointer_f8(words[1]), (d, m))
    weights = carray(pointer_f8(words[2]), d)
    return x, y, weights, carray(pointer_f8(context), 6)[5]


@kernel(nrt=True)
def _squares(x: Array, y: Array, weights: Array, first: int, part: Array) -> None:
    """Compute part[t] = sum over k of weights[k] * (x[k] - y[k, first + t])**2.

    x, y: also float32, widened. The direct formula: the expansion into dot products would cancel.
    """
    n, d = part.size, x.size
    if d == 1:
        x0, y0, w0 = np.float64(x[0]), y[0, first : first + n], weights[0]
        for t in range(n):
            a = x0 - y0[t]
            part[t] = w0 * (a * a)
    elif d == 2:
        x0, y0, w0 = np.float64(x[0]), y[0, first : first + n], weights[0]
        x1, y1, w1 = np.float64(x[1]), y[1, first : first + n], weights[1]
        for t in range(n):
            a = x0 - y0[t]
            b = x1 - y1[t]
            part[t] = w0 * (a * a) + w1 * (b * b)
    elif d == 3:
        x0, y0, w0 = np.float64(x[0]), y[0, first : first + n], weights[0]
        x1, y1, w1 = np.float64(x[1]), y[1, first : first + n], weights[1]
        x2, y2, w2 = np.float64(x[2]), y[2, first : first + n], weights[2]
        for t in range(n):
            a = x0 - y0[t]
            b = x1 - y1[t]
            c = x2 - y2[t]
            part[t] = w0 * (a * a) + w1 * (b * b) + w2 * (c * c)
    else:
        part[:] = 0.0
        for k in range(d):
            xk, yk, wk = np.float64(x[k]), y[k, first : first + n], weights[k]
            for t in range(n):
                a = xk - yk[t]
                part[t] += wk * (a * a)


@kernel
def _finish(sums: Array, kind: int) -> None:
    """Make costs of sums of squares, by ``kind``."""
    if kind == _ROOT:
        for t in range(sums.size):
            sums[t] = math.sqrt(sums[t])
    elif kind == _HALF:
        for t in range(sums.size):
            sums[t] *= 0.5


@kernel(nrt=True)
def _square_costs(context: int, row: int, start: int, stop: int, out: int, kind: int) -> None:
    x, y, weights, _ = _points(context, row)
    costs = carray(pointer_f8(out), stop - start)
    for left in range(0, stop - start, _TILE):
        part = costs[left : min(left + _TILE, stop - start)]
        _squares(x, y, weights, start + left, part)
        _finish(part, kind)


def sqeuclidean(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute the sum of weighted squared differences."""
    _square_costs(context, row, start, stop, out, _PLAIN)


def euclidean(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute the root of the sum of weighted squared differences."""
    _square_costs(context, row, start, stop, out, _ROOT)


def cosine(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute half the squared distance of vectors that were scaled to length 1."""
    _square_costs(context, row, start, stop, out, _HALF)


@kernel(nrt=True)
def _single_squares(context: int, row: int, start: int, stop: int, out: int) -> Any:
    """Compute the sums of ``_squares`` of float32 points of many dimensions; return them.

    Context words: addresses of x (n, d), y (m, d), weights; d, m; address of y by dimension (d, m), or 0
    for none, which takes several times as long.
    """
    words = carray(pointer_i8(context), 6)
    d, m = words[3], words[4]
    x, weights = carray(pointer_f4(words[0] + 4 * d * row), d), carray(pointer_f8(words[2]), d)
    costs = carray(pointer_f8(out), stop - start)
    if words[5] == 0:
        points, n = carray(pointer_f4(words[1]), (m, d))[start:stop], stop - start
        for t in range(0, n, 4):
            # Beyond the end, the last point again.
            a, b, c = min(t + 1, n - 1), min(t + 2, n - 1), min(t + 3, n - 1)
            sums = _four_squares(x, points[t], points[a], points[b], points[c], weights)
            costs[t], costs[a], costs[b], costs[c] = sums
        return costs
    y = carray(pointer_f4(words[5]), (d, m))
    for left in range(0, stop - start, _TILE):
        part = costs[left : min(left + _TILE, stop - start)]
        _squares(x, y, weights, start + left, part)
    return costs


def sqeuclidean_single(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute ``sqeuclidean`` of float32 points."""
    _single_squares(context, row, start, stop, out)


def euclidean_single(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute ``euclidean`` of float32 points."""
    _finish(_single_squares(context, row, start, stop, out), _ROOT)


@kernel(nrt=True)
def _four_units(x: Array, here: Array, points: Array, divisors: Array, ids: Any) -> Any:
    """Return half the squared distances of x and four points, once their divisors make them unit vectors."""
    a, b, c, e = ids
    y0, y1, y2, y3 = points[a], points[b], points[c], points[e]
    d0, d1, d2, d3 = divisors[a], divisors[b], divisors[c], divisors[e]
    s0 = s1 = s2 = s3 = 0.0
    for t in range(x.size):
        xt = np.float64(x[t]) / here[0] / here[1]
        a0, a1 = xt - y0[t] / d0[0] / d0[1], xt - y1[t] / d1[0] / d1[1]
        a2, a3 = xt - y2[t] / d2[0] / d2[1], xt - y3[t] / d3[0] / d3[1]
        s0 += a0 * a0
        s1 += a1 * a1
        s2 += a2 * a2
        s3 += a3 * a3
    return 0.5 * s0, 0.5 * s1, 0.5 * s2, 0.5 * s3


def cosine_single(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute ``cosine`` of float32 vectors.

    Context words: as of ``_single_squares``, then the addresses of the vectors' divisors, (n, 2) and (m, 2).
    The copy by dimension is not used.
    """
    words = carray(pointer_i8(context), 8)
    d, m, n = words[3], words[4], stop - start
    x, here = carray(pointer_f4(words[0] + 4 * d * row), d), carray(pointer_f8(words[6] + 16 * row), 2)
    points, divisors = carray(pointer_f4(words[1]), (m, d)), carray(pointer_f8(words[7]), (m, 2))
    costs = carray(pointer_f8(out), n)
    for t in range(0, n, 4):
        # Beyond the end, the last point again.
        a, b, c = min(t + 1, n - 1), min(t + 2, n - 1), min(t + 3, n - 1)
        ids = start + t, start + a, start + b, start + c
        costs[t], costs[a], costs[b], costs[c] = _four_units(x, here, points, divisors, ids)


@kernel(nrt=True)
def _absolutes(context: int, row: int, start: int, stop: int, out: int, largest: bool) -> None:
    """Compute the sum, or the largest, of the weighted absolute differences."""
    x, y, weights, _ = _points(context, row)
    costs = carray(pointer_f8(out), stop - start)
    for left in range(0, stop - start, _TILE):
        part = costs[left : min(left + _TILE, stop - start)]
        n = part.size
        part[:] = 0.0
        for k in range(x.size):
            xk, wk = x[k], weights[k]
            yk = y[k, start + left : start + left + n]
            if largest:
                for t in range(n):
                    a = wk * abs(xk - yk[t])
                    part[t] = a if a > part[t] else part[t]
            else:
                for t in range(n):
                    part[t] += wk * abs(xk - yk[t])


def cityblock(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute the sum of weighted absolute differences."""
    _absolutes(context, row, start, stop, out, False)


def chebyshev(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute the largest weighted absolute difference."""
    _absolutes(context, row, start, stop, out, True)


def minkowski(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute (sum of weighted differences to the power p) to the power 1/p."""
    x, y, weights, p = _points(context, row)
    costs = carray(pointer_f8(out), stop - start)
    for j in range(start, stop):
        total = 0.0
        for k in range(x.size):
            total += weights[k] * math.pow(abs(x[k] - y[k, j]), p)
        costs[j - start] = math.pow(total, 1.0 / p)


def haversine(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute the great-circle distance of (latitude, longitude) in radians on a sphere.

    The third coordinate is the cosine of the latitude.
    """
    x, y, _, radius = _points(context, row)
    costs = carray(pointer_f8(out), stop - start)
    for j in range(start, stop):
        a = math.sin(0.5 * (x[0] - y[0, j]))
        b = math.sin(0.5 * (x[1] - y[1, j]))
        chord = a * a + (x[2] * y[2, j]) * (b * b)
        costs[j - start] = 2.0 * radius * math.asin(math.sqrt(min(1.0, chord)))


def lowrank(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute a[row] @ b + (row term + column term), summed over the rank in order.

    Context words: addresses of a (n, r), b (r, m), row terms, column terms; r, m.
    """
    words = carray(pointer_i8(context), 6)
    rank, m = words[4], words[5]
    a = carray(pointer_f8(words[0] + 8 * rank * row), rank)
    b = carray(pointer_f8(words[1]), (rank, m))
    row_term = carray(pointer_f8(words[2] + 8 * row), 1)[0]
    column_terms = carray(pointer_f8(words[3]), m)
    costs = carray(pointer_f8(out), stop - start)
    for left in range(0, stop - start, _TILE):
        part = costs[left : min(left + _TILE, stop - start)]
        n, first = part.size, start + left
        part[:] = 0.0
        for k in range(rank):
            ak, bk = a[k], b[k, first : first + n]
            for t in range(n):
                part[t] += ak * bk[t]
        terms = column_terms[first : first + n]
        for t in range(n):
            # Bracketed so that the transposed source adds in the same order.
            part[t] += row_term + terms[t]


@kernel(nrt=True)
def _four_products(a: Array, b0: Array, b1: Array, b2: Array, b3: Array) -> Any:
    """Return the inner products of a with four vectors, summed over the rank in order."""
    s0 = s1 = s2 = s3 = 0.0
    for k in range(a.size):
        ak = np.float64(a[k])
        s0 += ak * b0[k]
        s1 += ak * b1[k]
        s2 += ak * b2[k]
        s3 += ak * b3[k]
    return s0, s1, s2, s3


def lowrank_single(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Compute ``lowrank`` of float32 factors.

    Context words: addresses of a (n, r), b (m, r), row terms, column terms; r, m; address of b by rank
    (r, m), or 0 for none, which takes several times as long.
    """
    words = carray(pointer_i8(context), 7)
    rank, m, n = words[4], words[5], stop - start
    a = carray(pointer_f4(words[0] + 4 * rank * row), rank)
    row_term = carray(pointer_f8(words[2] + 8 * row), 1)[0]
    terms, costs = carray(pointer_f8(words[3]), m)[start:stop], carray(pointer_f8(out), n)
    if words[6] == 0:
        b = carray(pointer_f4(words[1]), (m, rank))[start:stop]
        for t in range(0, n, 4):
            # Beyond the end, the last vector again.
            i, j, k = min(t + 1, n - 1), min(t + 2, n - 1), min(t + 3, n - 1)
            costs[t], costs[i], costs[j], costs[k] = _four_products(a, b[t], b[i], b[j], b[k])
    else:
        by_rank = carray(pointer_f4(words[6]), (rank, m))
        for left in range(0, n, _TILE):
            part = costs[left : min(left + _TILE, n)]
            part[:] = 0.0
            for k in range(rank):
                ak, bk = np.float64(a[k]), by_rank[k, start + left : start + left + part.size]
                for t in range(part.size):
                    part[t] += ak * bk[t]
    for t in range(n):
        costs[t] += row_term + terms[t]


@kernel(nrt=True)
def _pick(values: Array, classes: Array, costs: Array) -> None:
    for t in range(costs.size):
        costs[t] = values[classes[t]]


def table(context: int, row: int, start: int, stop: int, out: int) -> None:
    """Copy values[row_class[row], column_class[column]], of items of 1, 2, 4 or 8 bytes.

    Context words: addresses of values (K, L), row classes, column classes; L; itemsize.
    """
    words = carray(pointer_i8(context), 5)
    n, n_classes, size = stop - start, words[3], words[4]
    row_class = carray(pointer_i8(words[1] + 8 * row), 1)[0]
    classes = carray(pointer_i8(words[2] + 8 * start), n)
    values = words[0] + row_class * n_classes * size
    if size == 1:
        _pick(carray(pointer_u1(values), n_classes), classes, carray(pointer_u1(out), n))
    elif size == 2:
        _pick(carray(pointer_u2(values), n_classes), classes, carray(pointer_u2(out), n))
    elif size == 4:
        _pick(carray(pointer_u4(values), n_classes), classes, carray(pointer_u4(out), n))
    else:
        _pick(carray(pointer_u8(values), n_classes), classes, carray(pointer_u8(out), n))


@kernel(nrt=True)
def _four_squares(x: Array, y0: Array, y1: Array, y2: Array, y3: Array, weights: Array) -> Any:
    """Return the sums of ``_squares`` for four points, term by term in the same order.

    Four at a time, since each sum is a chain of additions that wait for each other.
    """
    s0 = s1 = s2 = s3 = 0.0
    for k in range(x.size):
        xk, wk = np.float64(x[k]), weights[k]
        a0, a1, a2, a3 = xk - y0[k], xk - y1[k], xk - y2[k], xk - y3[k]
        s0 += wk * (a0 * a0)
        s1 += wk * (a1 * a1)
        s2 += wk * (a2 * a2)
        s3 += wk * (a3 * a3)
    return s0, s1, s2, s3


@kernel(nrt=True)
def _chosen_squares(context: Any, row: int, ids: int, n: int, out: int) -> Any:
    """Compute the sums of ``_squares`` for chosen points of the context's number type; return them.

    Context words: addresses of x (n, d), y (m, d), weights; d, m.
    """
    words = carray(pointer_i8(address_in(context)), 5)
    d, m, size = words[3], words[4], carray(context, 1).itemsize
    x = carray(pointer_like(context, words[0] + size * d * row), d)
    points = carray(pointer_like(context, words[1]), (m, d))
    weights, some = carray(pointer_f8(words[2]), d), carray(pointer_i4(ids), n)
    sums = carray(pointer_f8(out), n)
    for t in range(0, n, 4):
        # Beyond the end, the last point again.
        a, b, c = min(t + 1, n - 1), min(t + 2, n - 1), min(t + 3, n - 1)
        y0, y1, y2, y3 = points[some[t]], points[some[a]], points[some[b]], points[some[c]]
        sums[t], sums[a], sums[b], sums[c] = _four_squares(x, y0, y1, y2, y3, weights)
    return sums


def chosen_sqeuclidean(context: Any, row: int, ids: int, n: int, out: int) -> None:
    """Compute ``sqeuclidean`` for chosen columns."""
    _chosen_squares(context, row, ids, n, out)


def chosen_euclidean(context: Any, row: int, ids: int, n: int, out: int) -> None:
    """Compute ``euclidean`` for chosen columns."""
    _finish(_chosen_squares(context, row, ids, n, out), _ROOT)


def chosen_cosine(context: Any, row: int, ids: int, n: int, out: int) -> None:
    """Compute ``cosine`` for chosen columns."""
    _finish(_chosen_squares(context, row, ids, n, out), _HALF)


def chosen_cosine_single(context: int, row: int, ids_at: int, n: int, out: int) -> None:
    """Compute ``cosine_single`` for chosen columns.

    Context words: as of ``_chosen_squares``, then the addresses of the vectors' divisors, (n, 2) and (m, 2).
    """
    words = carray(pointer_i8(context), 7)
    d, m = words[3], words[4]
    x, here = carray(pointer_f4(words[0] + 4 * d * row), d), carray(pointer_f8(words[5] + 16 * row), 2)
    points, divisors = carray(pointer_f4(words[1]), (m, d)), carray(pointer_f8(words[6]), (m, 2))
    ids, costs = carray(pointer_i4(ids_at), n), carray(pointer_f8(out), n)
    for t in range(0, n, 4):
        # Beyond the end, the last point again.
        a, b, c = min(t + 1, n - 1), min(t + 2, n - 1), min(t + 3, n - 1)
        some = ids[t], ids[a], ids[b], ids[c]
        costs[t], costs[a], costs[b], costs[c] = _four_units(x, here, points, divisors, some)


def chosen_lowrank(context: int, row: int, ids_at: int, n: int, out: int) -> None:
    """Compute ``lowrank`` for chosen columns.

    Context words: addresses of a (n, r), b (m, r), row terms, column terms; r.
    """
    words = carray(pointer_i8(context), 5)
    rank = words[4]
    a = carray(pointer_f8(words[0] + 8 * rank * row), rank)
    row_term = carray(pointer_f8(words[2] + 8 * row), 1)[0]
    ids, costs = carray(pointer_i4(ids_at), n), carray(pointer_f8(out), n)
    for t in range(n):
        b = carray(pointer_f8(words[1] + 8 * rank * ids[t]), rank)
        total = 0.0
        for k in range(rank):
            total += a[k] * b[k]
        costs[t] = total + (row_term + carray(pointer_f8(words[3] + 8 * ids[t]), 1)[0])


def chosen_lowrank_single(context: int, row: int, ids_at: int, n: int, out: int) -> None:
    """Compute ``lowrank_single`` for chosen columns.

    Context words: as of ``chosen_lowrank``, then m.
    """
    words = carray(pointer_i8(context), 6)
    rank, m = words[4], words[5]
    a = carray(pointer_f4(words[0] + 4 * rank * row), rank)
    row_term = carray(pointer_f8(words[2] + 8 * row), 1)[0]
    b, terms = carray(pointer_f4(words[1]), (m, rank)), carray(pointer_f8(words[3]), m)
    ids, costs = carray(pointer_i4(ids_at), n), carray(pointer_f8(out), n)
    for t in range(0, n, 4):
        # Beyond the end, the last vector again.
        i, j, k = min(t + 1, n - 1), min(t + 2, n - 1), min(t + 3, n - 1)
        sums = _four_products(a, b[ids[t]], b[ids[i]], b[ids[j]], b[ids[k]])
        costs[t], costs[i], costs[j], costs[k] = sums
    for t in range(n):
        costs[t] += row_term + terms[ids[t]]


def chosen_filled(context: int, row: int, ids_at: int, n: int, out: int) -> None:
    """Compute chosen columns by a ``Fill`` of float64. Context words: its address and context."""
    words, ids = carray(pointer_i8(context), 2), carray(pointer_i4(ids_at), n)
    for t in range(n):
        call_fill(words[0], words[1], row, ids[t], ids[t] + 1, out + 8 * t)


def filler(name: str, *, given: Any = None) -> Any:
    """Return the compiled filler of that name, see ``compile_fill``."""
    return compile_fill(globals()[name], given=given)
