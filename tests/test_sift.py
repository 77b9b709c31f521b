"""Sifting a row against relaxing all of it: the same wherever it matters, to the bit."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.optimize

import bigsap
from bigsap.engine.scan import hear_next, locate, relax_root, relax_row, smallest, tell_next
from bigsap.engine.sift import (
    open_sifted,
    prepare_sieve,
    relax_sifted,
    rounded_up,
    settle_in_group,
    survey_free,
    survey_root,
)
from bigsap.engine.state import BLOCK, ID, LANES, RECORD

MARGIN = 2.0**-46


def costs_of(kind, n, m, generator):
    if kind == "ties":
        return generator.integers(0, 6, (n, m)).astype(np.float64)
    costs = generator.random((n, m)) - 1e3 * (kind == "large")
    if kind == "forbidden":
        costs[generator.random((n, m)) < 0.5] = np.inf
        costs[:, 0] = 1
    return costs


class Slab:
    """Labels of one search, as one of the two ways of scanning leaves them."""

    def __init__(self, m, v, row_of_column):
        self.m, self.v, self.row_of_column = m, v.copy(), row_of_column
        self.dist, self.pred = np.empty(m), np.empty(m, ID)
        self.lanes = np.empty(3 * LANES)
        self.minima = np.empty(m // LANES + 2)
        self.sieve = np.empty(m, np.float32)

    def settle(self, column):
        self.v[column], self.dist[column] = -np.inf, np.inf

    def located(self, best, size):
        return locate(
            best, self.dist, self.v, self.row_of_column, np.inf, 0, self.m, size, self.minima
        )


@pytest.mark.parametrize("m", [64, 200, 1000])
@pytest.mark.parametrize("kind", ["random", "large", "ties", "forbidden"])
def test_same_choices_as_relaxing_everything(kind, m):
    generator = np.random.default_rng(m)
    n = m // 2
    costs = costs_of(kind, n, m, generator)
    v = -generator.integers(0, 3, m) * (1.0 if kind == "ties" else 0.13)
    # The free columns are expensive, so that the search is long.
    row_of_column = np.arange(m, dtype=ID)
    free_columns = np.flatnonzero(generator.random(m) < 0.1)
    row_of_column[free_columns] = -1
    costs[:, free_columns] += 3
    unit, margin = (1.0, 0.0) if kind == "ties" else (0.0, MARGIN)
    whole, sifted = Slab(m, v, row_of_column), Slab(m, v, row_of_column)
    best = relax_root(
        costs[0], 1.0, 0, 0.0, whole.v, whole.dist, whole.pred, 0, m, whole.lanes,
        whole.minima, np.inf,
    )  # fmt: skip
    # The root is surveyed first: enough to end a search, no more.
    sifted.dist[:], sifted.pred[:] = np.nan, -7
    low, free = survey_root(
        costs[0], 1.0, 0, 0.0, sifted.v, sifted.dist, sifted.pred, row_of_column, 0, m,
        sifted.lanes, sifted.minima, np.inf, 0,
    )  # fmt: skip
    assert low == best
    assert free == whole.dist[free_columns].min()
    column, is_free = whole.located(best, BLOCK)
    assert sifted.located(low, BLOCK) == (column, is_free)
    assert sifted.pred[column] == 0
    reach = open_sifted(
        costs[0], 1.0, 0, 0.0, free + unit, sifted.v, sifted.dist, sifted.pred, sifted.sieve, 0,
        m, sifted.lanes, sifted.minima, np.inf, 0.0,
    )  # fmt: skip
    np.testing.assert_array_equal(sifted.dist, whole.dist)
    np.testing.assert_array_equal(sifted.pred, whole.pred)
    # A search that continues after a pause prepares the same from its labels.
    survey = survey_free(
        whole.v, whole.dist, row_of_column, 0, m, whole.lanes, np.inf, -np.inf, 0.0
    )
    assert survey == (free, reach) == (free, abs(v).max())
    later = Slab(m, v, row_of_column)
    prepare_sieve(
        free + unit, whole.v, whole.dist, later.sieve, 0, m, later.lanes, later.minima, np.inf
    )
    n_groups = (m + LANES - 1) // LANES
    exact = whole.v + np.minimum(whole.dist, free + unit)
    assert (later.sieve >= exact).all()
    np.testing.assert_allclose(later.sieve, exact, rtol=1e-6, atol=1e-43)
    np.testing.assert_array_equal(later.sieve, sifted.sieve)
    np.testing.assert_array_equal(later.minima[:n_groups], sifted.minima[:n_groups])
    hint_value, hint_row = np.zeros(RECORD), np.full(RECORD, -1)
    slot_of_row = np.arange(n)
    reach += abs(free)
    label, skipped = -np.inf, 0
    for row in range(1, n):
        assert sifted.located(best, LANES) == (column, is_free)
        if is_free:
            break
        label, price = max(label, best), whole.v[column]
        whole.settle(column)
        sifted.settle(column)
        sifted.sieve[column] = -np.inf
        settle_in_group(column, sifted.dist, 0, m, sifted.lanes, sifted.minima, np.inf)
        cost, entry = costs[row], costs[row, column] if np.isfinite(costs[row, column]) else 2.0
        best = relax_row(
            cost, 1.0, row, entry, price, label, whole.v, whole.dist, whole.pred, 0, m,
            whole.lanes, whole.minima, np.inf,
        )  # fmt: skip
        wide = margin * (reach + abs(entry) + abs(price) + abs(label)) + margin**2
        low = smallest(n_groups, sifted.minima, sifted.lanes, np.inf)
        assert low == sifted.dist.min()
        tell_next(
            0, low, 0, sifted.dist, row_of_column % n, 0, m, sifted.minima, hint_value, hint_row,
            np.inf,
        )  # fmt: skip
        if low < np.inf:
            following = np.flatnonzero(sifted.dist == low) % n
            assert hear_next(1, hint_value, hint_row) in following
        low, free = relax_sifted(
            cost, 1.0, row, entry, price, label, wide, low, free, unit, sifted.v, sifted.dist,
            sifted.pred, sifted.sieve, row_of_column, 0, m, sifted.lanes, sifted.minima, np.inf,
            1, hint_value, hint_row, costs, slot_of_row,
        )  # fmt: skip
        assert low == best
        assert free == whole.dist[free_columns].min()
        matters = whole.dist <= free
        np.testing.assert_array_equal(sifted.dist[matters], whole.dist[matters])
        np.testing.assert_array_equal(
            sifted.pred[matters & (whole.dist < np.inf)],
            whole.pred[matters & (whole.dist < np.inf)],
        )
        skipped += int((sifted.dist != whole.dist).sum())
        column, is_free = whole.located(best, BLOCK)
    assert row > 5
    assert skipped or kind == "ties" or m == 64


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
    m, roots = 2 * LANES + 20, 99
    dist = np.arange(m, dtype=np.float64)
    row_of_column = np.arange(m, dtype=ID) + 200
    row_of_column[5] = -1
    minima = np.empty(m // LANES + 2)
    lanes, values, rows = np.empty(3 * LANES), np.zeros(2 * RECORD), np.full(2 * RECORD, -1)

    def told():
        for thread, (start, stop) in enumerate([(0, LANES), (LANES, m)]):
            prepare_sieve(
                0.0, dist, dist, np.empty(m, np.float32), start, stop, lanes, minima, np.inf
            )
            low = smallest((stop - start + LANES - 1) // LANES, minima, lanes, np.inf)
            assert low == dist[start:stop].min()
            tell_next(
                thread, low, roots, dist, row_of_column, start, stop, minima, values, rows,
                np.inf,
            )  # fmt: skip
        return hear_next(2, values, rows)

    assert told() == 200
    dist[m - 1] = -1  # in the columns that fill no group
    assert told() == 200 + m - 1
    dist[5] = -2  # free: the search would end
    assert told() == roots
    dist[:] = np.inf
    assert told() == -1
