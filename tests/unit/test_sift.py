"""Sifting a row against relaxing all of it: the same wherever it matters, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize
from numba import njit

import bigsap
from bigsap.engine.core.record import record, records
from bigsap.engine.core.scan import NOWHERE
from bigsap.engine.core.state import ID, LANES, RUNS, CodeScale, Front, Hint
from bigsap.engine.core.vectors import root_minima, sifted
from bigsap.engine.rows.queue import (
    OUTSIDE,
    SETTLED,
    Slab,
    forget,
    hear_next,
    pop,
    reach,
    rise,
    rounded_up,
    set_sieve,
    tell_next,
)
from bigsap.engine.rows.sieve import free_at_root, open_root, relax_all, relax_sifted, survey_root
from bigsap.engine.rows.stretches import note_lows

MARGIN = 2.0**-46


def costs_of(kind, n, m, generator):
    if kind == "ties":
        return generator.integers(0, 6, (n, m)).astype(np.float64)
    costs = generator.random((n, m)) - 1e3 * (kind == "large")
    if kind == "forbidden":
        costs[generator.random((n, m)) < 0.5] = np.inf
        costs[:, 0] = 1
    return costs


def new_slab(v, row_of_column, start, stop):
    """The front of one search in the columns from ``start`` to ``stop``."""
    m, price = v.size, v.dtype
    own = record(Front, price)
    own.free_label = own.known_free = own.sieve_base = np.inf
    own.free_column, own.next_root = NOWHERE, -1
    return Slab(
        own,
        record(CodeScale, price),
        v,
        np.full(m, np.inf),
        np.full(m, -7, ID),
        row_of_column,
        np.array([rounded_up(x) for x in v], np.float32),
        np.full(m, OUTSIDE, ID),
        np.empty(m, ID),
        np.empty(m, ID),
        np.empty(2 * (m // LANES + 1), np.int64),
        np.empty(m // LANES + 1),
        np.zeros((m, 4), np.uint8),
        np.empty(RUNS, np.int64),
        start,
        stop,
        max(1, -(-((stop - start) // LANES) // 8)),
        0,
        1,
        np.inf,
    )


def note(slab, row, cost, v):
    """As the survey of a root does, at prices that are not below those of the search."""
    survey_root(slab._replace(v=v), cost, 1.0, cost.min(), 0)
    full = (slab.stop - slab.start) // LANES
    note_lows(row, slab.group_min, full, slab.width, slab.lows, slab.scale)


def survey(slab, cost):
    return survey_root(slab, cost, 1.0, 0.0, 0)


def begin(slab, cost, free, unit):
    slab.own.row, slab.own.known_free, slab.own.sieve_base = 0, free, free + unit
    open_root(slab, cost, 1.0, 0.0)


def relax(slab, cost, row, entry, price, label, margin, unit, costs):
    own = slab.own
    own.row, own.entry_cost, own.entry_price, own.label = row, entry, price, label
    if own.known_free == np.inf:
        relax_all(slab, cost, 1.0)
        return
    if own.known_free + unit < own.sieve_base:
        set_sieve(slab, own.known_free + unit)
    wide = margin * (
        abs(slab.v).max() + own.sieve_base + abs(entry) + abs(price) + abs(label) + abs(cost.min())
    )
    relax_sifted(
        slab,
        cost,
        1.0,
        cost.min(),
        wide + margin**2,
        records(Hint, slab.v.dtype, 1),
        costs,
        np.arange(slab.v.size) % len(costs),
    )


def settle(slab, column):
    slab.own.queued = pop(slab.heap, slab.place, slab.dist, slab.start, slab.own.queued)
    slab.place[column], slab.sieve[column] = SETTLED, -3e38


def firsts_of(slab):
    """(label, column) of the first of the queue, and of the best free column."""
    own, column = slab.own, slab.heap[slab.start]
    first = (slab.dist[column], int(column)) if own.queued else (np.inf, NOWHERE)
    return first, (own.free_label, int(own.free_column))


@pytest.mark.some(6)
@pytest.mark.parametrize("m", [40, 64, 200, 1000, 3000])
@pytest.mark.parametrize("kind", ["random", "large", "ties", "forbidden"])
def test_same_choices_as_relaxing_everything(kind, m):
    generator = np.random.default_rng(m)
    n = min(m // 2, 600)
    costs = costs_of(kind, n, m, generator)
    v = -generator.integers(0, 3, m) * (1.0 if kind == "ties" else 0.13)
    # The free columns are expensive, so that the search is long.
    row_of_column = np.arange(m, dtype=ID)
    free_columns = np.flatnonzero(generator.random(m) < 0.1)
    row_of_column[free_columns] = -1
    costs[:, free_columns] += 3
    if m >= 1000:
        # Most rows have stretches that cannot matter.
        dear = np.arange(m) // 200 % 3 > 0
        costs[np.ix_(generator.random(n) < 0.9, dear)] += 10
    if kind == "forbidden":
        costs[:9, free_columns] = np.inf  # none is known to begin with
    is_free = row_of_column < 0
    unit, margin = (1.0, 0.0) if kind == "ties" else (0.0, MARGIN)
    cut = m // 2 // LANES * LANES
    slabs = [new_slab(v, row_of_column, 0, cut), new_slab(v, row_of_column, cut, m)]

    dist, pred = costs[0] - 0.0 - v, np.zeros(m, int)
    for slab in slabs:
        own = slice(slab.start, slab.stop)
        low, free = survey(slab, costs[0])
        assert low == dist[own].min(initial=np.inf)
        assert free == dist[own][is_free[own]].min(initial=np.inf)
        for best in np.unique(dist[own])[:50]:
            slab.group_min[:] = best
            found = free_at_root(slab, best, costs[0], 1.0, 0.0)
            right = np.flatnonzero((dist == best) & is_free & (np.arange(m) >= slab.start))
            right = right[right < slab.stop]
            assert found == (right[0] if right.size else NOWHERE)
        # Some rows have been roots before, when prices were higher.
        for row in np.flatnonzero(generator.random(n) < 0.8):
            note(slab, row, costs[row], v + generator.integers(0, 2, m) * 0.25)
        survey(slab, costs[0])
    for slab in slabs:
        begin(slab, costs[0], dist[is_free].min(), unit)
    label, left = -np.inf, np.ones(m, bool)
    for row in range(1, n):
        # All labels of what is not settled: free columns first, then the lowest column.
        reached = np.where(left, dist, np.inf)
        best = reached.min()
        candidates = np.flatnonzero(reached == best)
        free = candidates[is_free[candidates]]
        column = int(free[0] if free.size else candidates[0])
        firsts, frees = zip(*[firsts_of(slab) for slab in slabs], strict=True)
        first, spare = min(firsts), min(frees)
        for slab in slabs:
            slab.own.known_free = min(slab.own.known_free, spare[0])
        if is_free[column]:
            assert spare == (best, column)
            assert first[0] >= best
            break
        assert first == (best, column)
        assert spare[0] > best
        assert [slab.pred[column] for slab in slabs if slab.start <= column < slab.stop] == [pred[column]]
        label, price, left[column] = max(label, best), v[column], False
        settle(slabs[column >= cut], column)
        cost, entry = costs[row], costs[row, column] if np.isfinite(costs[row, column]) else 2.0
        labels = (cost - entry) - (v - price) + label
        better = (labels < dist) & left
        dist[better], pred[better] = labels[better], row
        for slab in slabs:
            relax(slab, cost, row, entry, price, label, margin, unit, costs)
            known = slab.own.known_free
            own = np.arange(slab.start, slab.stop)
            own = own[left[own] & (dist[own] < known)]
            np.testing.assert_array_equal(slab.dist[own], dist[own])
            np.testing.assert_array_equal(slab.pred[own], pred[own])
    assert row > 5
    assert m < 1000 or sum(int(slab.own.skipped) for slab in slabs) > row
    n_touched = sum(int(slab.own.touched) for slab in slabs)
    assert n_touched < m or kind in ("ties", "forbidden") or m == 64
    for slab in slabs:
        forget(slab)
        assert slab.own.top_price <= abs(v).max()
        fresh = new_slab(v, row_of_column, slab.start, slab.stop)
        for name in ("dist", "sieve", "place"):
            np.testing.assert_array_equal(getattr(slab, name), getattr(fresh, name))


def test_queue_gives_columns_by_label_and_then_by_column():
    generator = np.random.default_rng(3)
    start, m = 70, 400
    dist, place = np.full(m, np.inf), np.full(m, OUTSIDE, ID)
    heap, size = np.empty(m, ID), 0
    for _ in range(3000):
        waiting = np.flatnonzero(place >= 0)
        if size and generator.random() < 0.3:
            first = min((dist[j], j) for j in waiting)
            assert (dist[heap[start]], heap[start]) == first
            size = pop(heap, place, dist, start, size)
            place[first[1]] = OUTSIDE
        else:
            j = int(generator.integers(start, m))
            label = float(generator.integers(0, 60))
            if place[j] == OUTSIDE:
                dist[j] = label
                rise(heap, place, dist, start, size, j)
                size += 1
            elif label < dist[j]:
                dist[j] = label
                rise(heap, place, dist, start, place[j], j)
        waiting = np.flatnonzero(place >= 0)
        assert waiting.size == size
        np.testing.assert_array_equal(heap[start + place[waiting]], waiting)
    assert size > 50


def test_what_a_column_is_reached_at_counts_only_below_the_best_free_one():
    row_of_column = np.array([0, -1, -1, 7], ID)
    slab = new_slab(np.array([0.5, 0.25, 0.125, 0.75]), row_of_column, 0, 4)
    own, dist, pred, sieve = slab.own, slab.dist, slab.pred, slab.sieve
    own.sieve_base = base = 4.0
    pred[:] = -1

    def at(j, label, row):
        """Whether it was noted."""
        before = dist[j], pred[j], sieve[j]
        reach(slab, j, label, row)
        if (dist[j], pred[j]) == (label, row):
            assert sieve[j] == rounded_up(slab.v[j] + min(label - base, 0))
            return True
        assert (dist[j], pred[j], sieve[j]) == before
        return False

    assert not at(0, np.nan, 1)
    assert not at(0, np.inf, 1)
    assert at(0, 5.0, 1)
    assert at(2, 3.0, 2)
    assert (own.free_label, own.known_free, own.free_column) == (3, 3, 2)
    assert not at(3, 3.0, 3)  # matched, at the label of a free one
    assert at(1, 3.0, 4)  # free, at the same label, and before
    assert not at(2, 3.0, 5)
    assert own.free_column == 1
    assert at(3, 2.0, 6)
    assert not at(3, 2.0, 7)  # the first to reach it stays
    assert (slab.heap[:2].tolist(), pred.tolist()) == ([3, 0], [1, 4, 2, 6])
    slab.place[0] = SETTLED
    assert not at(0, 1.0, 8)
    assert own.touched == 4
    assert slab.touched.tolist() == [0, 2, 1, 3]


@njit
def _root_minima(cost, v, row_of_column, first, sign, reference, infinity):
    return root_minima(cost, v, row_of_column, first, sign, reference, infinity)


@njit
def _sifted(cost, sieve, first, sign, limit):
    return sifted(cost, sieve, first, sign, limit)


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4", "u1", "u2"])
def test_vectors_are_what_numpy_says(dtype):
    generator = np.random.default_rng(4)
    m = LANES + 40
    for trial in range(20):
        cost = (generator.random(m) * 250).astype(dtype)
        row_of_column = generator.integers(-1, 2 if trial else 1, m).astype(ID)
        first = int(generator.integers(0, 40))
        own = slice(first, first + LANES)
        sieve = (generator.random(m) * 250).astype(np.float32)
        for sign in (1.0, -1.0):
            v = generator.random(m)
            labels = (sign * cost[own].astype(float) - 0.3) - v[own]
            free = labels[row_of_column[own] < 0].min(initial=np.inf)
            assert _root_minima(cost, v, row_of_column, first, sign, 0.3, np.inf) == (labels.min(), free)
            hits = sign * cost[own].astype(float) - sieve[own] < 7.0
            bits = _sifted(cost, sieve, first, sign, 7.0)
            assert [bool(bits >> k & 1) for k in range(LANES)] == hits.tolist()
    if dtype == "i8":
        cost = generator.integers(-(1 << 58), 1 << 58, m)
        v = generator.integers(-(1 << 58), 1 << 58, m)
        labels = (-cost[:LANES] - 3) - v[:LANES]
        free = labels[row_of_column[:LANES] < 0].min()
        signs = np.int64(-1), np.int64(3), np.int64(1 << 60)
        assert _root_minima(cost, v, row_of_column, 0, *signs) == (labels.min(), free)


def test_sieves_are_rounded_up_whatever_their_size():
    generator = np.random.default_rng(2)
    size = generator.random(2000) * 10.0 ** generator.integers(-50, 60, 2000)
    for x in [*size, *-size, 0.0, 1.0, -1.0, 3.4e38, -3.4e38, 2.0**-149, -(2.0**-149)]:
        assert np.float64(rounded_up(x)) >= x
        if 1e-30 < abs(x) < 3e38:
            assert rounded_up(x) == pytest.approx(x, rel=1e-6)
    for whole in generator.integers(-(1 << 59), 1 << 59, 500):
        assert int(rounded_up(whole)) >= whole
    # The price of a settled column still keeps it from being relaxed.
    assert rounded_up(-np.inf) == np.float32(-3e38)


KINDS = {
    "real": {"dtype": np.float64},
    "maximize": {"dtype": np.float64, "maximize": True},
    "float32": {"dtype": np.float32},
    "forbidden": {"dtype": np.float64},
    "integers": {"dtype": np.int32},
    "ties": {"dtype": np.int32},
    "int64 prices": {"dtype": np.int64},
}


@pytest.mark.some(3)
@pytest.mark.parametrize("kind", KINDS)
def test_long_searches_are_optimal_with_any_number_of_threads(kind):
    generator = np.random.default_rng(5)
    n = 700
    x, y = generator.random((n, 2)), generator.random((n, 2)) + np.array([0.7, 0])
    cost = ((x[:, None] - y[None]) ** 2).sum(2)
    scale = {"integers": 1e6, "ties": 40, "int64 prices": 1e13}.get(kind, 1)
    cost = (cost * scale).astype(KINDS[kind]["dtype"])
    if kind == "forbidden":
        cost[generator.random((n, n)) < 0.8] = np.inf
        np.fill_diagonal(cost, 3)
    if kind == "maximize":
        cost = -cost
    maximize = KINDS[kind].get("maximize", False)
    one = bigsap.solve(cost, method="ssp", threads=1, maximize=maximize)
    assert one.status == "optimal"
    columns = scipy.optimize.linear_sum_assignment(cost, maximize)[1]
    exact = cost[np.arange(n), columns].sum(dtype=np.float64)
    assert one.fun == pytest.approx(exact, rel=1e-12)
    for threads in (2, 3):
        res = bigsap.solve(cost, method="ssp", threads=threads, maximize=maximize)
        np.testing.assert_array_equal(res.col4row, one.col4row)
        np.testing.assert_array_equal(res.v, one.v)
        assert res.stats["rows_scanned"] == one.stats["rows_scanned"]


def test_row_told_to_come_next_is_that_of_the_smallest_label_of_all_slabs():
    hints = records(Hint, np.dtype(np.float64), 2)
    hints["label"], hints["row"], hints["column"] = np.inf, -1, -1
    assert hear_next(hints) == (-1, -1)
    m, cut, root = 100, 64, 999
    row_of_column = np.arange(m, dtype=ID) + 200
    slabs = [new_slab(np.zeros(m), row_of_column, *own) for own in ((0, cut), (cut, m))]
    for slab in slabs:
        slab.own.next_root = root

    def told(thread, label, column):
        if column is not None:
            reach(slabs[thread], column, label, 0)
        tell_next(slabs[thread], hints[thread])
        return hear_next(hints)

    told(1, None, None)
    assert told(0, 5.0, 9) == (209, 9)
    assert told(1, 4.0, 80) == (280, 80)
    assert told(1, 6.0, 70) == (280, 80)
    assert told(0, 3.0, 7) == (207, 7)
    row_of_column[90] = -1  # free: the search would end
    assert told(1, 2.0, 90) == (root, -1)
    assert told(0, 1.0, 8) == (208, 8)
