"""Optima far smaller than the largest costs, prices far larger than any, or of 0 beside them:
rounding of the large numbers must not stay in the answer."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import bigsap
import exact_oracle
from bigsap.proof.row_minima import margins_of
from contracts import whole
from oracle import optimum
from pairwise import each


def rows_of(cost):
    return {"cost": lambda i, a: a[i], "shape": cost.shape, "args": (cost,)}


@each(method=["auto", "ssp", "compressed"], shape=[(60, 40), (40, 60), (50, 50)], power=[3, 8])
def test_small_optima_among_large_costs(shape, method, power):
    """Prices that have all fallen by much carry its rounding; of tall problems those of the virtual
    columns, too."""
    for seed in range(5):
        cost = np.random.default_rng(seed).random(shape) ** power
        result = bigsap.solve(**rows_of(cost), method=method)
        assert result.fun == pytest.approx(float(optimum(cost)[0]), rel=1e-12)
        result.verify(cost)


@each(scale=[1.0, 1e-3, 1e-9, 1e-150], method=["ssp", "compressed"])
def test_the_unit_of_costs_does_not_matter(method, scale):
    cost = np.random.default_rng(0).random((120, 30))
    best = bigsap.solve(cost, method=method)
    for certify in (True, False):
        found = bigsap.solve(**rows_of(scale * cost), method=method, certify=certify)
        assert found.fun == pytest.approx(scale * best.fun, rel=1e-12)
        assert (found.col4row == best.col4row).all()


@pytest.mark.parametrize(
    ("metric", "factors"), [("sqeuclidean", 0), ("sqeuclidean", 4), ("euclidean", 2), ("cityblock", 4)]
)
def test_scales_too_small_to_divide_by(metric, factors):
    """Weights below normal numbers, and factors whose product is too: boxes do not bound such costs."""
    x, y = np.random.default_rng(0).random((2, 1200, 2)) * 1e150
    source = bigsap.points(x, y, metric, w=[1.0, 1.0] if factors else [1e-310, 1e-310])
    for _ in range(factors):
        source = bigsap.scaled(source, 1e-100)
    best = bigsap.solve(whole(source)).fun
    for certify in (True, False):
        found = bigsap.solve(source, method="compressed", certify=certify)
        assert found.fun == pytest.approx(best, rel=1e-12, abs=0.0)


@pytest.mark.parametrize("kind", ["large", "pareto", "lognormal"])
def test_an_auction_among_costs_of_all_sizes(kind):
    rng = np.random.default_rng(0)
    shape = (60, 60)
    cost = {
        "large": lambda: np.where(rng.random(shape) < 0.3, 1e6, rng.random(shape)),
        "pareto": lambda: rng.pareto(0.5, shape),
        "lognormal": lambda: rng.lognormal(0, 3, shape),
    }[kind]()
    result = bigsap.solve(cost, method="auction")
    assert result.fun == pytest.approx(bigsap.solve(cost).fun, rel=1e-12)


@each(method=["auto", "ssp", "compressed"], size=[5.0, 1e12, 1e15])
def test_first_prices_far_apart(method, size, tmp_path):
    """The optimum with and without a certificate, and when continued."""
    rng = np.random.default_rng(0)
    cost, prices = rng.random((60, 60)), size * rng.normal(size=60)
    best = float(optimum(cost)[0])
    for certify in (True, False):
        result = bigsap.solve(cost, warm_start=prices, method=method, certify=certify)
        assert result.fun == pytest.approx(best, rel=1e-12)
    path = tmp_path / "far.ck"
    whole = bigsap.solve(cost, warm_start=prices, method=method, checkpoint=path)
    again = bigsap.resume(path, cost)
    assert again.fun == pytest.approx(best, rel=1e-12)
    assert (again.col4row == whole.col4row).all()


KINDS = {
    "shifted": lambda rng, shape: rng.random(shape) + 0.1,
    "signed": lambda rng, shape: rng.normal(size=shape) + 2,
    "tiny": lambda rng, shape: rng.random(shape) ** 8,
    "whole": lambda rng, shape: rng.integers(-3, 4, shape),
}


@each(certify=[True, "pairs", False], kind=list(KINDS), shape=[(20, 20), (20, 31), (31, 20)])
def test_no_pair_is_dearer_than_its_row(kind, shape, certify):
    """A price of 0 beside duals that are rounding alone: these do not tell what was clipped."""
    for seed in range(8):
        rng = np.random.default_rng(seed)
        cost = KINDS[kind](rng, shape)
        for price in (0, rng.choice([0.0, 0.5, 1.0], shape[0])):
            result = bigsap.solve(cost, unassigned_cost=price, certify=certify)
            prices = np.broadcast_to(price, shape[:1])
            paid = cost[result.row_ind, result.col_ind]
            assert (paid <= prices[result.row_ind]).all()
            assert paid.sum() + prices[result.col4row < 0].sum() == pytest.approx(result.fun)
            if certify:
                result.verify(cost)


def test_a_gap_of_integers_is_rounded_down():
    """Up to 1 more than it says may be in a pair that was clipped."""
    cost = np.array([[3, 3, 0, 1], [1, 5, 4, 1], [4, 5, 5, 4], [0, 1, 0, 4]])
    prices = np.array([2, 1, 0, 3])
    result = bigsap.solve(cost, unassigned_cost=prices, gap=0.5)
    paid = cost[result.row_ind, result.col_ind].sum() + prices[result.col4row < 0].sum()
    assert paid == result.fun


@pytest.mark.parametrize("method", ["auto", "ssp", "compressed", "hungarian"])
def test_huge_costs_do_not_excuse_a_gap(method):
    """Huge columns, rows of huge gains, and a column spread by a huge factor: all margins are ties, or huge.
    A gap that is small only when compared with these is not called optimal."""
    for seed in (0, 3, 4, 7, 52, 55):
        rng = np.random.default_rng(seed)
        cost = rng.random((40, 40))
        sizes = 10.0 ** rng.uniform(8, 18, 3)
        cost[:, rng.choice(40, 2, replace=False)] += sizes[0]
        cost[rng.choice(40, 2, replace=False)] -= sizes[1]
        cost[:, rng.integers(40)] *= sizes[2]
        result = bigsap.solve(cost, method=method)
        assert result.status == "optimal"
        pairs = zip(result.row_ind.tolist(), result.col_ind.tolist(), strict=True)
        paid = sum((Fraction(float(cost[pair])) for pair in pairs), Fraction(0))
        assert paid == exact_oracle.value(exact_oracle.optimum(cost)[0])


def test_two_rows_of_very_unequal_costs_have_the_better_assignment() -> None:
    """Half of the assigned costs hide what the others differ by, so that the gap looked small."""
    cost = np.array([[1e16, 1e16], [0.7269, 0.7820]])
    for found in (bigsap.solve(cost).col4row, bigsap.linear_sum_assignment(cost)[1]):
        assert found.tolist() == [1, 0]


def test_margins_are_the_least_differences_that_are_no_ties():
    smallest = np.array([[1.0, 1.0, 3.0], [5.0, 5.0, 5.0], [2.0, 6.0, np.inf], [7.0, np.inf, np.inf]])
    assert margins_of(smallest).tolist() == [2.0, 4.0]
