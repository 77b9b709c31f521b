"""The proof by matrix products: the row minima of a pass over every pair, bit for bit."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from test_products import ATTACKS, SOURCES, attacked, some_points

import bigsap
from bigsap import policy
from bigsap.proof.minima import minima
from bigsap.proof.multiplied import multiplied
from bigsap.proof.row_minima import Prices
from bigsap.proof.scan import no_minima
from contracts import whole
from pairwise import each


@pytest.fixture(autouse=True)
def _at_any_size(monkeypatch):
    monkeypatch.setattr(policy, "PROOF_PRODUCT_PAIRS", 1)
    monkeypatch.setattr(policy, "PROOF_PRODUCT_SHARE", 1)


def same(source, prices, *, matching=None, maximize=False, threads=1, width=None):
    given = source, matching, prices, maximize, threads
    found, looked = minima(*given, width=width)
    every, _ = minima(*given, every_pair=True, width=width)
    for name in ("high", "mid", "low", "matched"):
        a, b = getattr(found, name), getattr(every, name)
        assert (a is None) == (b is None)
        assert a is None or np.array_equal(a, b)
    assert np.array_equal(found.margins, every.margins)
    if width is not None:
        for one, other in ((found.near, every.near), (every.near, found.near)):
            # Each holds all pairs within the width of the row's least, and some more.
            pairs = set(zip(one.rows.tolist(), one.columns.tolist(), strict=True))
            reduced = other.costs - prices.high[other.columns]
            close = reduced <= found.high[other.rows] + 0.99 * width
            assert pairs >= set(zip(other.rows[close].tolist(), other.columns[close].tolist(), strict=True))
    return looked


@each(kind=list(SOURCES), threads=[1, 3])
def test_minima_are_those_of_the_pass(kind, threads):
    x, y = some_points(300, 2300, 12)
    generator = np.random.default_rng(1)
    source = SOURCES[kind](x, y)
    v = -generator.random(2300)
    matching = generator.permutation(2300)[:300]
    looked = same(source, Prices(v), matching=matching, threads=threads)
    assert looked.by == "bounds"
    assert looked.pairs < 300 * 2300 / 2
    assert same(source, Prices(v, v * 1e-17), threads=threads).by == "bounds"
    assert same(source, Prices(v), matching=matching, width=1e-3).by == "bounds"


@pytest.mark.parametrize("kind", ["sqeuclidean", "cosine", "lowrank"])
def test_minima_of_a_maximum(kind):
    x, y = some_points(200, 900, 9)
    assert same(SOURCES[kind](x, y), Prices(np.zeros(900)), maximize=True).by == "bounds"


@each(name=ATTACKS, kind=["sqeuclidean", "euclidean", "lowrank"])
def test_margins_hold_where_they_are_attacked(name, kind):
    x, y = attacked(name)
    source = SOURCES[kind](x[:40], y)
    same(source, Prices(np.zeros(len(y))), matching=np.arange(40))
    v = -np.abs(whole(source)[3])
    same(source, Prices(v), matching=np.arange(40))
    same(source, Prices(v, v * 2.0**-60))


def test_every_bound_lies_below_its_cost():
    """What the products exclude, rational numbers exclude too."""
    x, y = some_points(6, 64, 8)
    source = bigsap.points(x, y)
    v = np.random.default_rng(4).random(64)
    found = multiplied(source, no_minima(6), Prices(v), False, 1, None, None).minima
    for row in range(6):
        exact = min(
            Fraction(c) - Fraction(p) for c, p in zip(whole(source)[row].tolist(), v.tolist(), strict=True)
        )
        assert exact == sum(Fraction(part[row].item()) for part in found)


def test_products_that_exclude_little_are_abandoned(monkeypatch):
    monkeypatch.setattr(policy, "PROOF_PRODUCT_SHARE", 64)
    x, y = np.random.default_rng(0).integers(0, 2, (2, 3000, 1)) * np.ones(10)
    source = bigsap.points(x[:300], y)
    looked = same(source, Prices(np.zeros(3000)))
    assert looked.by == "pairs"
    assert looked.pairs > 300 * 3000


def test_forbidden_rows_and_huge_prices_are_left_to_the_pass():
    x, y = some_points(50, 400, 10)
    column_terms = np.zeros(400)
    column_terms[3] = np.inf
    same(bigsap.lowrank(x, y, column_terms=column_terms), Prices(np.zeros(400)))
    v = np.zeros(400)
    v[5] = -1e300
    same(bigsap.points(x, y), Prices(v))
    v[6] = 1e200
    same(bigsap.points(x, y), Prices(v))


def test_a_solve_is_proved_by_products():
    x, y = some_points(1500, 1500, 20)
    found = bigsap.solve(bigsap.points(x, y), method="compressed", cache=1 << 20)
    assert found.status == "optimal"
    assert found.stats["proof"] == "bounds"
    assert found.stats["certificate_pairs"] > 1500**2
    again = found.verify(bigsap.points(x, y), pairs=True)
    assert again.fun == found.fun
    assert again.bound == found.bound


@pytest.mark.parametrize("kind", ["sqeuclidean", "lowrank"])
def test_more_rows_than_columns_that_may_stay_unassigned(kind):
    """The additional columns are no vectors."""
    x, y = some_points(60, 300, 40)
    source = SOURCES[kind](y, x)
    result = bigsap.solve(source, unassigned_cost=float(np.median(whole(source))), method="ssp")
    assert result.status == "optimal"
    result.verify(source, pairs=True)
