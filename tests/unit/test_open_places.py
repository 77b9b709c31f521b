"""Rows that demand several columns and may leave places open at a price, against every choice."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.errors import CertificateError, OptionError
from exact_oracle import optimum, value
from kinds_of_costs import costs_of

KINDS = ["normal", "ties", "int64", "uint8", "float32", "forbidden", "offset"]
SHAPES = [(1, 1), (1, 4), (2, 3), (3, 5), (4, 4), (6, 3), (6, 5), (2, 6)]


def best(cost, demand, prices, maximize):
    """The least total of columns and open places, as a Fraction in the user's sense; None: infeasible.

    Over all sets of columns that the rows so far may have taken.
    """
    n, m = cost.shape
    sign = -1 if maximize else 1
    found = {0: Fraction(0)}
    for i in range(n):
        numbers = [None if np.isinf(c) else sign * Fraction(c.item()) for c in cost[i]]
        following: dict = {}
        for size in range(min(m, demand[i]) + 1):
            open_places = int(demand[i] - size)
            if open_places and np.isinf(prices[i]):
                continue
            rest = open_places * sign * Fraction(prices[i].item()) if open_places else Fraction(0)
            for columns in itertools.combinations(range(m), size):
                if any(numbers[j] is None for j in columns):
                    continue
                bits = sum(1 << j for j in columns)
                price = sum((numbers[j] for j in columns), rest)
                for taken, total in found.items():
                    key = taken | bits
                    if not taken & bits and total + price < following.get(key, total + price + 1):
                        following[key] = total + price
        found = following
    return sign * min(found.values()) if found else None


def checked(found, cost, demand, prices, maximize, expected):
    """Compare a result with the optimum, and its proof with exact sums of its duals."""
    n, m = cost.shape
    assert found.verify(cost)
    if expected is None:
        assert found.status == "infeasible"
        assert np.isinf(prices[found.violator]).all()
        return
    assert found.status == "optimal"
    assert found.fun == (int if isinstance(found.fun, int) else float)(expected)
    pairs = found.pairs()
    taken = np.bincount(pairs[:, 0], minlength=n)
    assert (taken <= demand).all()
    assert len(set(pairs[:, 1].tolist())) == len(pairs)
    total = sum((Fraction(cost[i, j].item()) for i, j in pairs), Fraction(0))
    total += sum(
        Fraction(prices[i].item()) * int(demand[i] - taken[i]) for i in range(n) if demand[i] > taken[i]
    )
    assert float(total) == float(expected)
    assert found.stats["open_places"] == int((demand - taken).sum())
    sign = -1 if maximize else 1
    duals = []
    for dual, low in ((found.u, found.u_low), (found.v, found.v_low)):
        parts = [Fraction(x) for x in dual.tolist()]
        duals.append(
            parts if low is None else [x + Fraction(y) for x, y in zip(parts, low.tolist(), strict=True)]
        )
    u, v = duals
    for i, j in itertools.product(range(n), range(m)):
        if not np.isinf(cost[i, j]):
            assert sign * (u[i] + v[j]) <= sign * Fraction(cost[i, j].item())
    assert all(np.isinf(p) or sign * x <= sign * Fraction(p.item()) for x, p in zip(u, prices, strict=True))
    assert all(sign * y <= 0 for y in v)
    bound = sum(int(d) * x for d, x in zip(demand, u, strict=True)) + sum(v)
    size = sum(abs(Fraction(cost[i, j].item())) for i, j in pairs)
    size += sum(
        abs(Fraction(prices[i].item())) * int(demand[i] - taken[i]) for i in range(n) if demand[i] > taken[i]
    )
    assert sign * (total - bound) <= Fraction(2) ** -49 * size
    assert sign * Fraction(found.bound) <= sign * total


def prices_of(rng, cost, maximize):
    """Prices within the costs, whole numbers if the costs are; some rows take all they demand."""
    finite = cost[np.isfinite(cost)].astype(float)
    low, high = (finite.min(), finite.max()) if finite.size else (0.0, 1.0)
    prices = rng.uniform(low - 0.1 * (high - low), high, cost.shape[0])
    if cost.dtype.kind in "iu" and rng.random() < 0.7:
        prices = np.rint(prices)
    prices[rng.random(prices.size) < 0.2] = -np.inf if maximize else np.inf
    return prices


@pytest.fixture(params=["repeated", "contracted"])
def way(request, monkeypatch):
    """Both ways to an answer: copies of the rows, and searches from row to row."""
    if request.param == "contracted":
        for name in ("LEAST_CONTRACTED_COSTS", "LEAST_ROWS_A_COLUMN", "ROWS_A_COLUMN_SHARE"):
            monkeypatch.setattr(policy, name, 0)
    return request.param


@pytest.mark.some(12)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("maximize", [False, True])
def test_against_every_choice(kind, maximize, way):
    rng = np.random.default_rng([KINDS.index(kind), maximize, 7])
    ways = set()
    for shape in SHAPES * 4:
        cost = costs_of(rng, kind, shape, maximize)
        demand = rng.integers(0, 4, shape[0])
        prices = prices_of(rng, cost, maximize)
        found = bigsap.solve(cost, demand=demand, unassigned_cost=prices, maximize=maximize)
        checked(found, cost, demand, prices, maximize, best(cost, demand, prices, maximize))
        ways.add(found.stats.get("capacities"))
    assert way in ways


@pytest.mark.parametrize("kind", ["normal", "uint8"])
def test_against_the_oracle(kind, way):
    """Larger: each place is a row of the oracle's."""
    rng = np.random.default_rng([KINDS.index(kind), 8])
    for shape, most in (((4, 60), 25), ((12, 30), 4), ((3, 40), 5)):
        cost = costs_of(rng, kind, shape)
        demand = rng.integers(0, most, shape[0])
        price = int(np.median(cost))
        found = bigsap.solve(cost, demand=demand, unassigned_cost=price)
        exact = optimum(np.repeat(cost, demand, axis=0), False, [price] * int(demand.sum()))
        prices = np.full(shape[0], price)
        checked(found, cost, demand, prices, False, value(exact[0]))


def test_points_and_other_sources(way):
    rng = np.random.default_rng(9)
    x, y = rng.random((5, 2)), rng.random((60, 2))
    source = bigsap.points(x, y)
    cost = np.empty((5, 60))
    source.read(np.arange(5), slice(0, 60), cost)
    demand, price = np.array([20, 3, 0, 30, 15]), 0.1
    first = bigsap.solve(cost, demand=demand, unassigned_cost=price)
    listed = np.nonzero(cost < 0.2)
    kept = np.where(cost < 0.2, cost, np.inf)
    for given, truth in (
        (source, cost),
        (np.asfortranarray(cost), cost),
        (bigsap.sparse((*listed, cost[listed]), cost.shape), kept),
    ):
        found = bigsap.solve(given, demand=demand, unassigned_cost=price)
        checked(found, truth, demand, np.full(5, price), False, best_by_oracle(truth, demand, price))
        assert abs(found.fun - first.fun) < 1e-12
        found.verify(given)
    unproved = bigsap.solve(cost, demand=demand, unassigned_cost=price, certify=False)
    assert (unproved.fun, unproved.pairs().tolist()) == (first.fun, first.pairs().tolist())
    unproved.verify(cost)


def best_by_oracle(cost, demand, price):
    return value(optimum(np.repeat(cost, demand, axis=0), False, [price] * int(demand.sum()))[0])


def test_a_changed_claim_is_refused(way):
    rng = np.random.default_rng(10)
    cost = rng.random((4, 30))
    demand = np.array([5, 9, 9, 2])
    found = bigsap.solve(cost, demand=demand, unassigned_cost=0.3)
    pairs = found.pairs()
    assert 0 < len(pairs) < 25
    fewer = found.row4col.copy()
    fewer[pairs[-1, 1]] = -1
    for change in (
        {"fun": found.fun - 0.1},
        {"fun": found.fun + 0.1},
        {"bound": found.bound + 0.1},
        {"u": found.u + 0.1},
        {"v": found.v + 0.1},
        {"demand": demand + 1},
        {"demand": demand - 1},
        {"unassigned_cost": np.full(4, 0.2)},
        {"row4col": fewer, "row_ind": found.row_ind[:-1], "col_ind": found.col_ind[:-1]},
    ):
        with pytest.raises(CertificateError):
            replace(found, **change).verify(cost, unassigned_cost=0.3)


def test_rows_that_must_take_all():
    cost = np.ones((3, 4))
    cost[1, 2:] = np.inf
    prices = np.array([1.0, np.inf, 1.0])
    found = bigsap.solve(cost, demand=[4, 2, 1], unassigned_cost=prices)
    assert (found.fun, found.stats["open_places"]) == (7.0, 3)
    short = bigsap.solve(cost, demand=[4, 3, 1], unassigned_cost=prices)
    assert (short.status, short.violator.tolist()) == ("infeasible", [1])
    short.verify(cost)
    many = bigsap.solve(cost, demand=[4, 5, 1], unassigned_cost=prices)
    assert "1 rows need 5 places, and all columns together have 4" in many.message
    many.verify(cost)
    with pytest.raises(CertificateError, match="need not be assigned"):
        replace(many, violator=np.array([0, 1])).verify(cost)


def test_places_beyond_the_columns_stay_open():
    cost = np.array([[1.0, 2.0], [3.0, 1.0]])
    found = bigsap.solve(cost, demand=5, unassigned_cost=10)
    assert found.fun == 1.0 + 1.0 + 8 * 10
    assert found.verify(cost).optimal
    with pytest.raises(OptionError, match=r"demand\[0\] is 2000000000, but there are 2 columns"):
        bigsap.solve(cost, demand=2 * 10**9, unassigned_cost=10)


def test_saved_and_resumed(tmp_path, way):
    rng = np.random.default_rng(12)
    cost = rng.random((5, 80))
    options = {"demand": 20, "unassigned_cost": rng.random(5) / 3}
    found = bigsap.solve(cost, checkpoint=tmp_path / "k", **options)
    found.save(tmp_path / "r.npz")
    again = bigsap.Result.load(tmp_path / "r.npz")
    assert again.verify(cost).optimal
    resumed = bigsap.resume(tmp_path / "k", cost, **options)
    assert (resumed.fun, resumed.pairs().tolist()) == (found.fun, found.pairs().tolist())


def test_large_prices_of_whole_numbers_are_exact():
    """Or refused: the way in float64 is left where it cannot hold them."""
    cost = np.random.default_rng(3).integers(0, 9, (3, 400))
    price, left = 2**45 + 1, 3 * 300 - 400
    assert np.bincount(cost.argmin(axis=0)).max() <= 300  # each column has its best row
    for certify in (True, False):
        found = bigsap.solve(cost, demand=300, unassigned_cost=price, certify=certify)
        assert found.status == "optimal"
        assert found.fun == int(cost.min(axis=0).sum()) + left * price
        assert found.stats["open_places"] == left
        assert found.stats["capacities"] == "repeated"
    with pytest.raises(bigsap.OverflowRiskError):
        bigsap.solve(cost, demand=300, unassigned_cost=2**60 + 1)
