"""Warm starts: little is searched again, and any start leads to an optimum."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap
from bigsap.sources import as_source
from bigsap.sources.wrappers import Counted
from instances import CLASSES
from oracle import optimum
from pairwise import each


def changed(cost, rows, seed=5):
    """Other costs of about the same size in these rows."""
    other = cost.copy(order="K")
    rng = np.random.default_rng(seed)
    other[rows] = rng.permuted(cost[rows], axis=1)
    return other


@each(
    method=["ssp", "compressed"],
    shape=[(400, 400), (300, 400), (400, 300)],
    name=["geometric", "disjoint", "random", "rank2", "int10n"],
)
def test_one_percent_of_the_rows_changed(name, shape, method):
    cost = CLASSES[name](400, seed=1)[: shape[0], : shape[1]].copy()
    first = bigsap.solve(cost)
    rows = np.random.default_rng(2).permutation(shape[0])[: shape[0] // 100]
    other = changed(cost, rows)
    source = Counted(as_source(other))
    warm = bigsap.solve(source, warm_start=first, method=method)
    cold = bigsap.solve(other, method=method)
    assert warm.success
    assert warm.fun == pytest.approx(cold.fun, rel=1e-12)
    warm.verify(other)
    # Skinny problems are easy from anywhere.
    if cold.stats["rows_scanned"] > 15 * shape[0]:
        assert warm.stats["rows_scanned"] < cold.stats["rows_scanned"] / 3
    assert warm.nit == 1
    # One sweep, and each row at most once more: nothing is evaluated twice.
    assert warm.stats["rows_evaluated"] <= 2 * shape[0]
    assert warm.stats["warm_started"]


@each(
    method=["ssp", "compressed"],
    shape=[(60, 60), (40, 60), (60, 40), (10, 60), (60, 10)],
    dtype=["f8", "f4", "i4", "wide"],
    order=["C", "F"],
    maximize=[False, True],
)
def test_nothing_changed_nothing_searched(shape, dtype, order, maximize, method):
    cost = CLASSES["disjoint"](60, seed=1)[: shape[0], : shape[1]]
    if dtype == "i4":
        cost = np.rint(cost * 100)
    if dtype == "wide":
        cost = np.rint(cost * 2.0**44)
    cost = np.array(cost, "i8" if dtype == "wide" else dtype, order=order)
    options = {"maximize": maximize, "method": method}
    first = bigsap.solve(cost, **options)
    for start in (first, (first.v, first.col4row)):
        again = bigsap.solve(cost, **options, warm_start=start)
        # Rounded duals may leave a pair a bit loose.
        assert again.stats["rows_scanned"] <= (shape[0] if cost.dtype.kind == "f" else 0)
        assert again.success
        assert again.fun == pytest.approx(first.fun, rel=1e-12)
        again.verify(cost)
    prices = bigsap.solve(cost, **options, warm_start=first.v)
    assert prices.fun == pytest.approx(first.fun, rel=1e-12)
    prices.verify(cost)
    again = bigsap.solve(cost, **options, warm_start=first)
    if cost.dtype.kind != "f":
        assert np.array_equal(again.col4row, first.col4row)


@given(
    shape=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    seed=st.integers(0, 2**32 - 1),
    maximize=st.booleans(),
    whole=st.booleans(),
    pairs=st.booleans(),
    forbidden=st.sampled_from([0.0, 0.3]),
    spread=st.sampled_from([0.0, 1.0, 1e6, 1e30]),
    method=st.sampled_from(["ssp", "compressed"]),
)
def test_any_start_is_good_enough(shape, seed, maximize, whole, pairs, forbidden, spread, method):
    rng = np.random.default_rng(seed)
    cost = rng.integers(-9, 10, shape).astype(np.int64 if whole else np.float64)
    if forbidden and not whole:
        cost[rng.random(shape) < forbidden] = -np.inf if maximize else np.inf
    v = rng.normal(size=shape[1]) * spread
    start = v
    if pairs:
        k = min(shape)
        col4row = np.full(shape[0], -1)
        col4row[rng.permutation(shape[0])[:k]] = rng.permutation(shape[1])[:k]
        start = (v, col4row)
    res = bigsap.solve(cost, maximize=maximize, warm_start=start, method=method)
    plain = bigsap.solve(cost, maximize=maximize)
    assert res.status == plain.status
    if res.success:
        assert res.fun == plain.fun
    res.verify(cost)


@pytest.mark.parametrize(
    ("shape", "given"), [((6, 8), {"capacity": 2}), ((8, 6), {"capacity": 2}), ((6, 8), {"demand": 1})]
)
def test_the_prices_of_a_result_whose_pairs_are_not_one_to_one(shape, given):
    cost = np.random.default_rng(2).random(shape)
    many = bigsap.solve(cost, **given)
    for options in ({}, {"unassigned_cost": 0.1}, {"method": "ssp", "unassigned_cost": 0.1}):
        assert bigsap.solve(cost, warm_start=many, **options).fun == bigsap.solve(cost, **options).fun


def test_from_a_stopped_result():
    cost = CLASSES["disjoint"](150, seed=1)

    def stop(state):
        if state.phase == 3:
            raise StopIteration

    half = bigsap.solve(cost, callback=stop)
    res = bigsap.solve(cost, warm_start=half)
    assert res.success
    assert res.fun == pytest.approx(float(optimum(cost)[0]))


@each(method=["auto", "ssp", "compressed"], certify=[True, False], size=[1.0, 4e306])
def test_prices_near_the_largest_float(size, certify, method):
    """Also those that a solve of such costs returns."""
    rng = np.random.default_rng(6)
    cost = rng.uniform(-size, size, (40, 40))
    cold = bigsap.solve(cost, method=method)
    for start in (cold, cold.v, rng.uniform(-1e307, 1e307, 40)):
        found = bigsap.solve(cost, method=method, certify=certify, warm_start=start)
        assert found.success
        assert found.fun == cold.fun


def _infeasible():
    return bigsap.solve(np.full((3, 4), np.inf))


@pytest.mark.parametrize(
    ("start", "words"),
    [
        (np.zeros(5), "4 prices"),
        (np.zeros((2, 4)), "4 prices"),
        ("zeros", "4 prices"),
        ([0, 1, np.nan, 2], "finite"),
        ([0, 1, np.inf, 2], "finite"),
        ([1e308, -1e308, 0, 0], "finite"),
        ((np.zeros(4), [0, 1]), "columns of 3 rows"),
        ((np.zeros(4), [0.0, 1.0, 2.0]), "integers"),
        ((np.zeros(4), [0, 1, 4]), "outside"),
        ((np.zeros(4), [0, -2, 1]), "outside"),
        ((np.zeros(4), np.array([0, 2**64 - 1, 1], np.uint64)), "outside"),
        ((np.zeros(4), [0, 1, 1]), "twice"),
        (lambda: bigsap.solve(np.eye(4)), "4 x 4 problem"),
        (lambda: bigsap.solve(np.eye(3, 4), maximize=True), "maximised"),
        (_infeasible, "infeasible"),
    ],
)
def test_what_does_not_fit_is_refused(start, words):
    source = Counted(as_source(np.eye(3, 4)))
    with pytest.raises(bigsap.OptionError, match=words):
        bigsap.solve(source, warm_start=start() if callable(start) else start)
    assert source.rows == 0


def test_bad_costs_are_found_in_a_warm_start_too():
    cost = CLASSES["random"](30)
    first = bigsap.solve(cost)
    cost[7, 3] = np.nan
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[7, 3\]"):
        bigsap.solve(cost, warm_start=first)
