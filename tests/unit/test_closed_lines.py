"""Columns of capacity 0 and rows of demand 0, and counts that no column or row can fill."""

from __future__ import annotations

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.errors import OptionError, OverflowRiskError


@pytest.mark.parametrize("kind", ["capacity", "demand"])
@pytest.mark.parametrize("size", [5, 2**61])
@pytest.mark.parametrize("maximize", [False, True])
def test_lines_of_sparse_costs_that_take_nothing(kind, size, maximize):
    """Also one without pairs, and integers beyond those that rows of floats hold."""
    rng = np.random.default_rng(11)
    for _ in range(20):
        rows, columns = np.nonzero(rng.random((5, 7)) < 0.6)
        costs = size + rng.integers(0, 40, rows.size)
        keep = (columns != 2) if kind == "capacity" else (rows != 2)
        cost = bigsap.sparse((rows[keep], columns[keep], costs[keep]), shape=(5, 7))
        counts = np.array([1, 0, 0, 2, 3, 1, 0] if kind == "capacity" else [1, 0, 0, 1, 2])
        for price in (None, size + 20):
            found = bigsap.solve(cost, **{kind: counts}, unassigned_cost=price, maximize=maximize)
            assert found.status in ("optimal", "infeasible")
            found.verify(cost)


def test_closed_columns_of_sparse_costs_are_found_in_one_pass(monkeypatch):
    rows, columns = np.repeat(np.arange(40), 2), np.concatenate([np.arange(40)] * 2)
    cost = bigsap.sparse((rows, (columns + rows) % 40, np.arange(80.0)), shape=(40, 40))
    monkeypatch.setattr(type(cost), "read", lambda *_: pytest.fail("a row was read"))
    found = bigsap.solve(cost, capacity=np.arange(40) % 2 * 2, unassigned_cost=50)
    found.verify(cost)


def test_a_dual_of_a_closed_column_that_leaves_int64():
    cost = bigsap.sparse(([0, 0], [0, 1], np.array([2**62, -(2**62)])), shape=(1, 2))
    assert bigsap.solve(cost, capacity=[0, 1]).v[0] <= 2**63
    beyond = bigsap.sparse(([0, 0], [0, 1], np.array([2**62, -(2**63)])), shape=(1, 2))
    with pytest.raises(OverflowRiskError, match="dual of column 1, which takes nothing, leaves int64"):
        bigsap.solve(beyond, capacity=[1, 0])


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("price", [None, 12])
def test_capacities_of_sparse_costs_that_no_column_can_fill(maximize, price, monkeypatch):
    """Copies beyond a column's pairs are not made, where there would be many."""
    rng = np.random.default_rng(13)
    rows, columns = np.nonzero(rng.random((30, 20)) < 0.4)
    cost = bigsap.sparse((rows, columns, rng.integers(0, 40, rows.size)), shape=(30, 20))
    options = {"unassigned_cost": price, "maximize": maximize}
    capacity = np.where(np.arange(20) % 4 == 0, 1, 10**9)
    few = np.minimum(capacity, 30)
    expected = bigsap.solve(cost, capacity=few, **options)
    monkeypatch.setattr(policy, "LISTED_COPIES", 100)
    found = bigsap.solve(cost, capacity=capacity, **options)
    assert (found.status, found.fun, found.bound) == (expected.status, expected.fun, expected.fun)
    found.verify(cost)
    roomy = np.bincount(found.col4row[found.col4row >= 0], minlength=20) < capacity
    assert not found.v[roomy].any()


def test_copies_beyond_memory_are_an_error():
    n = 200_000
    hub = bigsap.sparse((np.arange(n), np.zeros(n, int), np.zeros(n)), shape=(n, n))
    for way in ({"capacity": n}, {"demand": n, "unassigned_cost": 1.0}):
        with pytest.raises(OptionError, match=f"{next(iter(way))} is too large for this way: it makes "):
            bigsap.solve(hub, **way)
    points = bigsap.points(np.zeros((n, 2)), np.zeros((n, 2)))
    with pytest.raises(OptionError, match="it makes 40000000000 copies"):
        bigsap.solve(points, capacity=n)


@pytest.mark.parametrize("method", ["auto", "auction", "hungarian"])
def test_copies_that_cannot_be_used_may_be_fewer_than_rows(method, monkeypatch):
    monkeypatch.setattr(policy, "LISTED_COPIES", -1)
    cost = bigsap.sparse(([0, 1, 2], [0, 0, 0], [1.0, 2.0, 3.0]), shape=(3, 2))
    assert bigsap.solve(cost, capacity=[1, 5], method=method).status == "infeasible"
