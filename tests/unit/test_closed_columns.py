"""Duals of columns of capacity 0 and rows of demand 0: feasible, and of costs that are read once."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import bigsap
from bigsap.run import closed_columns


def _kinds(cost, tmp_path):
    """The costs as a matrix, as sparse costs, and as a function of a row."""
    rows, columns = np.nonzero(np.isfinite(cost.astype(float)))
    entries = rows, columns, cost[rows, columns]
    np.save(tmp_path / "costs.npy", cost)
    return cost, bigsap.sparse(entries, cost.shape), bigsap.from_npy(tmp_path / "costs.npy")


def _exact(high, low):
    low = [0.0] * len(high) if low is None else low.tolist()
    return [Fraction(x) + Fraction(y) for x, y in zip(high.tolist(), low, strict=True)]


def _feasible(result, cost):
    u, v = _exact(result.u, result.u_low), _exact(result.v, result.v_low)
    for (i, j), c in np.ndenumerate(cost):
        if np.isfinite(float(c)):
            slack = Fraction(c.item()) - u[i] - v[j]
            assert slack <= 0 if result.maximize else slack >= 0


@pytest.mark.parametrize("block", [None, 7])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("kind", ["floats", "forbidden", "whole", "large"])
def test_duals_of_closed_lines_are_feasible(kind, maximize, block, tmp_path, monkeypatch):
    if block is not None:
        monkeypatch.setattr(closed_columns, "_BLOCK", block)
    rng = np.random.default_rng(3)
    cost = rng.random((8, 6))
    if kind == "forbidden":
        cost[rng.random(cost.shape) < 0.3] = -np.inf if maximize else np.inf
    elif kind != "floats":
        cost = rng.integers(0, 9, (8, 6)) + (2**53 if kind == "large" else 0)
    for source in _kinds(cost, tmp_path):
        for options in ({"capacity": [0, 4, 0, 2, 4, 0]}, {"demand": [0, 1, 0, 2, 0, 0, 1, 0]}):
            found = bigsap.solve(source, maximize=maximize, **options)
            assert found.status == "optimal"
            assert found.verify(source).optimal
            _feasible(found, cost)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_price_of_a_closed_row_is_not_exceeded_by_a_rounded_dual(sign):
    cost = -sign * np.array([[2**53], [2**54 + 3]])
    prices = -sign * np.array([2**55 + 1, 2**53])
    found = bigsap.solve(cost, demand=[0, 0], unassigned_cost=prices, maximize=sign < 0)
    assert found.verify(cost).optimal
    assert all(sign * Fraction(u) <= sign * price for u, price in zip(found.u, prices.tolist(), strict=True))


def test_an_empty_list_is_the_number_of_each_of_no_lines():
    assert bigsap.solve(np.empty((0, 0)), capacity=[]).status == "optimal"
    assert bigsap.solve(np.empty((0, 3)), demand=[]).status == "optimal"
    assert bigsap.solve(np.empty((3, 0)), capacity=[]).status == "infeasible"


def test_sparse_costs_with_closed_lines_are_read_as_entries(monkeypatch):
    cost = np.random.default_rng(4).random((40, 30))
    rows, columns = np.nonzero(cost < 0.4)
    source = bigsap.sparse((rows, columns, cost[rows, columns]), cost.shape)

    def refuse(self, rows, columns, out):
        raise AssertionError("sparse costs were read as rows")

    monkeypatch.setattr(type(source), "read", refuse)
    found = bigsap.solve(source, capacity=[0, 4] * 15)
    assert found.status == "optimal"
    # One price is the most that the column's listed pairs allow.
    closed = np.array([(cost[i, 0] - found.u[i]) for i in rows[columns == 0]]).min(initial=0)
    assert found.v[0] == pytest.approx(min(closed, 0), abs=1e-15)
    assert bigsap.solve(source, demand=[0, 1] * 20, unassigned_cost=1.0).status == "optimal"


def test_rows_of_a_function_are_read_once_for_all_closed_columns():
    cost = np.random.default_rng(5).random((50, 40))
    calls = 0

    def row(i):
        nonlocal calls
        calls += 1
        return cost[i]

    open_only = bigsap.from_function(row, cost.shape, kind="row")
    assert bigsap.solve(open_only, capacity=2).status == "optimal"
    plain, calls = calls, 0
    assert bigsap.solve(open_only, capacity=[0, 4] * 20).status == "optimal"
    assert calls <= 2 * plain


def test_columns_far_apart_are_read_apart(monkeypatch):
    """Two closed columns at the ends of many: the columns between them are not read again."""
    x, y = np.random.default_rng(4).random((2, 1500, 2))
    source = bigsap.points(x[:300], y)
    capacity = np.ones(1500, np.int64)
    capacity[[0, 1, 700, 1499]] = 0
    widths = []
    real = closed_columns.read_rows

    def noted(source, rows, columns, out):
        widths.append(columns.stop - columns.start)
        real(source, rows, columns, out)

    monkeypatch.setattr(closed_columns, "read_rows", noted)
    found = bigsap.solve(source, capacity=capacity)
    assert sum(widths) == 4
    assert np.array_equal(found.v[[0, 1, 700, 1499]] <= 0, [True] * 4)
    found.verify(source)
