"""``capacity`` and ``demand`` against trying everything, repeated columns, and their proof."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import bigsap
from bigsap.errors import CertificateError, DtypeError, OptionError, ShapeError

KINDS = ["normal", "ties", "equal", "int64", "uint8", "float32", "forbidden", "offset", "outliers"]


def costs_of(rng, kind, shape, maximize=False):
    if kind == "ties":
        return rng.integers(0, 4, shape).astype(float)
    if kind == "equal":
        return np.full(shape, 2.5)
    if kind == "int64":
        return rng.integers(-(2**52), 2**52, shape)
    if kind == "uint8":
        return rng.integers(0, 9, shape).astype(np.uint8)
    if kind == "float32":
        return rng.standard_normal(shape).astype(np.float32)
    cost = rng.standard_normal(shape)
    if kind == "forbidden":
        cost[rng.random(shape) < 0.35] = -np.inf if maximize else np.inf
    if kind == "offset":
        cost += 1e9
    if kind == "outliers":
        cost[rng.random(shape) < 0.1] *= 1e12
    return cost


def best(cost, capacity, prices=None, maximize=False):
    """The best sum of one column a row, as a Fraction in the user's sense; None when infeasible."""
    n, m = cost.shape
    sign = -1 if maximize else 1
    numbers = [[None if np.isinf(c) else sign * Fraction(c.item()) for c in row] for row in cost]
    found = {tuple([0] * m): Fraction(0)}
    for i in range(n):
        following: dict = {}
        for taken, total in found.items():
            choices = [(j, numbers[i][j]) for j in range(m) if taken[j] < capacity[j]]
            if prices is not None:
                choices.append((None, sign * Fraction(float(prices[i]))))
            for j, cost_of_pair in choices:
                if cost_of_pair is None:
                    continue
                key = tuple(t + (k == j) for k, t in enumerate(taken))
                price = total + cost_of_pair
                if key not in following or price < following[key]:
                    following[key] = price
        found = following
    return sign * min(found.values()) if found else None


def checked(result, cost, expected):
    """Compare a result with the optimum, and its proof with exact sums of its duals."""
    if expected is None:
        assert result.status == "infeasible"
        assert not result
        result.verify(cost)
        return
    whole = cost.dtype.kind in "iu" and (result.unassigned_cost is None)
    assert result.status == "optimal"
    assert result.fun == (int if whole else float)(expected)
    assert result.verify(cost).optimal
    sign = -1 if result.maximize else 1
    u = [Fraction(x) for x in result.u.tolist()]
    v = [Fraction(x) for x in result.v.tolist()]
    for dual, low in ((u, result.u_low), (v, result.v_low)):
        if low is not None:
            dual[:] = [x + Fraction(y) for x, y in zip(dual, low.tolist(), strict=True)]
    for i, row in enumerate(cost.tolist()):
        for j, c in enumerate(row):
            assert c in (np.inf, -np.inf) or sign * (u[i] + v[j]) <= sign * Fraction(c)
    counts = (
        [1] * len(u) if result.demand is None else result.demand.tolist(),
        [1] * len(v) if result.capacity is None else result.capacity.tolist(),
    )
    total = sum(k * x for k, x in zip(counts[0], u, strict=True))
    total += sum(k * x for k, x in zip(counts[1], v, strict=True))
    size = sum(abs(Fraction(c)) for c in ([] if result.costs is None else result.costs.tolist()))
    if result.unassigned_cost is None:
        assert sign * (expected - total) <= Fraction(2) ** -49 * size


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("maximize", [False, True])
def test_capacity_against_all_assignments(kind, maximize):
    rng = np.random.default_rng([KINDS.index(kind), maximize])
    for shape in [(0, 2), (1, 1), (3, 1), (4, 2), (5, 3), (7, 3), (3, 4), (6, 2)] * 3:
        cost = costs_of(rng, kind, shape, maximize)
        capacity = rng.integers(0, 5, shape[1])
        found = bigsap.solve(cost, capacity=capacity, maximize=maximize)
        checked(found, cost, best(cost, capacity, maximize=maximize))
        assert found.row4col is None
        loads = np.bincount(found.col4row[found.col4row >= 0], minlength=shape[1])
        assert (loads <= capacity).all()
        for j in range(shape[1]):
            assert found.rows_of(j).tolist() == np.flatnonzero(found.col4row == j).tolist()


@pytest.mark.parametrize("maximize", [False, True])
def test_capacity_with_rows_left_out(maximize):
    rng = np.random.default_rng([11, maximize])
    for shape in [(1, 1), (4, 2), (5, 3), (6, 2), (3, 4)] * 4:
        cost = costs_of(rng, "forbidden", shape, maximize)
        capacity = rng.integers(0, 4, shape[1])
        prices = rng.standard_normal(shape[0])
        found = bigsap.solve(cost, capacity=capacity, unassigned_cost=prices, maximize=maximize)
        assert found.fun == float(best(cost, capacity, prices, maximize))
        assert found.status == "optimal"
        assert found.verify(cost).optimal


@pytest.mark.parametrize("kind", ["normal", "ties", "int64", "forbidden"])
@pytest.mark.parametrize("maximize", [False, True])
def test_demand_against_all_assignments(kind, maximize):
    rng = np.random.default_rng([KINDS.index(kind), maximize, 2])
    for shape in [(1, 1), (1, 3), (2, 4), (3, 5), (2, 7), (3, 6), (3, 2)] * 2:
        cost = costs_of(rng, kind, shape, maximize)
        demand = rng.integers(0, 4, shape[0])
        found = bigsap.solve(cost, demand=demand, maximize=maximize)
        expected = best(np.repeat(cost, demand, axis=0), np.ones(shape[1], int), maximize=maximize)
        checked(found, cost, expected)
        assert found.col4row is None
        if expected is not None:
            pairs = found.pairs()
            assert np.bincount(pairs[:, 0], minlength=shape[0]).tolist() == demand.tolist()
            assert len(set(pairs[:, 1].tolist())) == len(pairs)
            assert found.pairs(costs=True)["cost"].tolist() == [cost[i, j] for i, j in pairs]


@pytest.mark.parametrize("slack", [0, 30])
def test_points_against_repeated_columns(slack):
    rng = np.random.default_rng(3)
    x, y = rng.random((300, 2)), rng.random((6, 2))
    source = bigsap.points(x, y)
    cost = ((x[:, None] - y[None]) ** 2).sum(2)
    capacity = np.array([50, 20 + slack, 80, 100, 10, 40])
    rows, columns = linear_sum_assignment(np.repeat(cost, capacity, axis=1))
    expected = np.repeat(cost, capacity, axis=1)[rows, columns].sum()
    found = bigsap.solve(source, capacity=capacity)
    assert found.status == "optimal"
    assert abs(found.fun - expected) < 1e-9
    assert found.verify(source).optimal


def test_certify_anybodys_assignment():
    rng = np.random.default_rng(4)
    cost = rng.random((40, 4))
    capacity = [10, 20, 5, 5]
    best_one = bigsap.solve(cost, capacity=capacity)
    for given in (best_one.col4row, (best_one.row_ind, best_one.col_ind)):
        assert bigsap.certify(cost, given, capacity=capacity).optimal
    assert bigsap.certify(cost, best_one.col4row, best_one.v, capacity=capacity).optimal
    plan = np.zeros(cost.shape)
    plan[best_one.row_ind, best_one.col_ind] = 1
    assert bigsap.certify(cost, plan, capacity=capacity).optimal
    other = best_one.col4row.copy()
    i, j = np.flatnonzero(other == 0)[0], np.flatnonzero(other == 1)[0]
    other[i], other[j] = other[j], other[i]
    worse = bigsap.certify(cost, other, capacity=capacity)
    assert worse.gap >= cost[np.arange(40), other].sum() - best_one.fun - 1e-12
    assert worse.bound <= best_one.fun
    rough = bigsap.certify(cost, best_one.col4row, rng.random(4), capacity=capacity)
    assert rough.bound <= best_one.fun
    bound_alone = bigsap.certify(cost, None, capacity=capacity)
    assert bound_alone.bound == best_one.bound
    with pytest.raises(CertificateError, match="column 1 is assigned to 21 rows, but takes 20"):
        bigsap.certify(cost, [1] * 21 + [0] * 10 + [2] * 5 + [3] * 4, capacity=capacity)
    with pytest.raises(CertificateError, match="row 39 has no column"):
        bigsap.certify(cost, [1] * 20 + [0] * 10 + [2] * 5 + [3] * 4 + [-1], capacity=capacity)
    assert bigsap.certify(np.full((3, 1), np.inf), None, capacity=3).bound == np.inf


def test_infeasible_problems_name_their_rows():
    cost = np.ones((6, 3))
    few = bigsap.solve(cost, capacity=[1, 2, 2])
    assert few.violator.tolist() == [0, 1, 2, 3, 4, 5]
    assert "6 rows need 6 places, and all columns together have 5" in few.message
    few.verify(cost)
    cost[1:5, 1:] = np.inf
    crowded = bigsap.solve(cost, capacity=[3, 5, 5])
    assert crowded.violator.tolist() == [1, 2, 3, 4]
    crowded.verify(cost)
    with pytest.raises(CertificateError, match="does not rule out"):
        replace(crowded, capacity=np.array([4, 5, 5])).verify(cost)
    wanting = bigsap.solve(np.ones((2, 3)), demand=2)
    assert wanting.violator.tolist() == [0, 1]
    wanting.verify(np.ones((2, 3)))


def test_a_changed_claim_is_refused():
    rng = np.random.default_rng(5)
    cost = rng.random((12, 3))
    found = bigsap.solve(cost, capacity=5)
    swapped = found.col4row.copy()
    i, j = np.flatnonzero(swapped == 0)[0], np.flatnonzero(swapped == 1)[0]
    swapped[i], swapped[j] = 1, 0
    for change in (
        {"col4row": swapped, "col_ind": swapped},
        {"fun": found.fun - 0.1},
        {"bound": found.bound + 0.1},
        {"v": found.v - np.array([0.1, 0.0, 0.0])},
        {"v": found.v + 0.1},
        {"u": found.u + 0.1},
        {"capacity": np.array([5, 5, 4])},
    ):
        with pytest.raises(CertificateError):
            replace(found, **change).verify(cost)


def test_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(6)
    cost = rng.random((8, 20))
    for options in ({"capacity": 2}, {"demand": 2}):
        found = bigsap.solve(cost, **options)
        found.save(tmp_path / "r.npz")
        again = bigsap.Result.load(tmp_path / "r.npz")
        assert again.pairs().tolist() == found.pairs().tolist()
        assert (again.row4col is None) == (found.row4col is None)
        assert (again.col4row is None) == (found.col4row is None)
        assert again.verify(cost).optimal


def test_warm_start_takes_prices():
    rng = np.random.default_rng(7)
    cost = rng.random((60, 5))
    first = bigsap.solve(cost, capacity=13)
    for start in (first, first.v, (first.v, first.col4row)):
        again = bigsap.solve(cost, capacity=13, warm_start=start)
        assert again.fun == first.fun
    with pytest.raises(OptionError, match="another shape"):
        bigsap.solve(cost[:-1], capacity=13, warm_start=first)
    wanting = bigsap.solve(cost.T, demand=9)
    assert bigsap.solve(cost.T, demand=9, warm_start=wanting).fun == wanting.fun


def test_bad_options():
    cost = np.zeros((4, 3))
    for wrong, kind in {
        -1: OptionError,
        1.5: DtypeError,
        (1, 2): ShapeError,
        (1, -2, 3): OptionError,
    }.items():
        with pytest.raises(kind, match="capacity"):
            bigsap.solve(cost, capacity=wrong)
    with pytest.raises(DtypeError, match="capacity"):
        bigsap.solve(cost, capacity=[1, np.nan, 2])
    with pytest.raises(OptionError, match=r"demand\[1\] is -2"):
        bigsap.solve(cost, demand=[1, -2, 3, 4])
    with pytest.raises(OptionError, match="demand is not valid with capacity above 1"):
        bigsap.solve(cost, capacity=2, demand=2)
    for other in ({"checkpoint": "f"}, {"cluster": "local"}, {"objective": "bottleneck"}, {"device": "cuda"}):
        with pytest.raises(OptionError, match="is not valid with capacity"):
            bigsap.solve(cost, capacity=2, **other)
    with pytest.raises(OptionError, match="unassigned_cost is not valid with demand"):
        bigsap.solve(cost, demand=2, unassigned_cost=1)


def test_sources_of_every_kind():
    rng = np.random.default_rng(8)
    cost = rng.integers(0, 50, (30, 4)).astype(float)
    capacity = np.array([0, 12, 9, 15])
    expected = float(best(cost[:8], capacity))
    x, y = rng.random((30, 3)), rng.random((4, 3))

    class Plain:
        shape, dtype = (8, 4), np.dtype(np.float64)

        def read(self, rows, columns, out):
            out[...] = cost[rows][:, columns]

    rows, columns = np.indices((8, 4)).reshape(2, -1)
    for source in (
        cost[:8],
        cost[:8].astype(np.int32),
        np.asfortranarray(cost)[:8],
        Plain(),
        bigsap.sparse((rows, columns, cost[:8].ravel()), (8, 4)),
    ):
        assert bigsap.solve(source, capacity=capacity).fun == expected
    by_function = bigsap.solve(lambda i: cost[i], shape=(8, 4), capacity=capacity)
    assert by_function.fun == expected
    assert bigsap.solve(bigsap.points(x, y), capacity=capacity).verify(bigsap.points(x, y)).optimal
    repeated = itertools.chain.from_iterable([j] * k for j, k in enumerate(capacity.tolist()))
    assert len(list(repeated)) == 36
