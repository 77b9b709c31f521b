"""Small arrays whose rows may stay unassigned: one compiled call, the general way's answers."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap
from bigsap.engine.small import proof as dense_proof
from bigsap.engine.small import search as dense
from bigsap.proof.unassigned import drop_clipped_pairs
from bigsap.sources import as_source
from bigsap.sources.clipped import ClippedCosts
from examples_of import examples
from oracle import optimum, value

KINDS = ["f8", "f4", "i8", "i4", "u1", "?"]


def costs_of(rng, shape, kind, maximize):
    if kind[0] == "f":
        cost = rng.normal(0, 3, shape).astype(kind)
        cost[rng.random(shape) < 0.3] = -np.inf if maximize else np.inf
        return cost
    return rng.integers(0, 2 if kind == "?" else 60, shape).astype(kind)


@examples(150)
@given(
    st.integers(1, 8),
    st.integers(1, 8),
    st.sampled_from(KINDS),
    st.booleans(),
    st.sampled_from(["one", "each", "half", "must"]),
    st.integers(0, 10**6),
)
def test_the_textbook_and_the_general_way(n, m, kind, maximize, prices, seed):
    rng = np.random.default_rng(seed)
    cost = costs_of(rng, (n, m), kind, maximize)
    price = rng.integers(-20, 50, n)
    if prices == "one":
        price = int(price[0])
    elif prices == "half":
        price = price / 2
    elif prices == "must":
        price = price.astype(float)
        price[rng.random(n) < 0.3] = -np.inf if maximize else np.inf
    found = bigsap.solve(cost, unassigned_cost=price, maximize=maximize)
    each = np.broadcast_to(np.asarray(price, float), (n,))
    wide = np.full((n, m + n), -np.inf if maximize else np.inf)
    wide[:, :m] = cost
    wide[np.arange(n), m + np.arange(n)] = each
    best = optimum(wide, maximize)
    gated = ClippedCosts(as_source(cost), price, maximize=maximize)
    general = drop_clipped_pairs(bigsap.solve(gated, maximize=maximize), gated)
    assert found.status == general.status
    if best is None:
        assert found.status == "infeasible"
        # There may be several such sets of rows: each way finds one.
        for result in (found, general):
            assert np.isfinite(wide[result.violator]).any(axis=0).sum() < len(result.violator)
            assert result.message.startswith("The cost matrix is infeasible: ")
        return
    out = found.col4row < 0
    own = value(cost, found.row_ind, found.col_ind)
    total = float(own) + float(each[out].sum())
    assert total == pytest.approx(float(best[0]), rel=1e-12, abs=1e-12)
    assert found.fun == pytest.approx(float(best[0]), rel=1e-12, abs=1e-12)
    assert type(found.fun) is type(general.fun)
    assert found.verify(cost, unassigned_cost=price).optimal
    assert found.stats["unassigned_rows"] == out.sum()
    assert found.stats["source"] == general.stats["source"] == "ClippedCosts"
    assert set(found.stats) == set(general.stats)
    assert found.shape == (n, m)
    assert (found.unassigned_cost == general.unassigned_cost).all()


def test_only_small_arrays():
    rng = np.random.default_rng(0)
    small, large = rng.random((50, 60)), rng.random((400, 400))

    def method(cost, **options):
        return bigsap.solve(cost, unassigned_cost=0.01, **options).stats["method"]

    assert method(small) == "dense"
    assert method(large) != "dense"
    assert method(small.tolist()) == "dense"
    assert method(small, method="ssp") == "ssp"
    assert method(small, time_limit=0) != "dense"
    for options in ({"certify": False}, {"time_limit": 10}, {"cache": "1MiB"}):
        assert method(small, **options) == "dense"
        assert method(large, **options) != "dense"
    assert method(small, warm_start=np.zeros(60)) == "dense"


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_invalid_costs(bad):
    cost = np.ones((5, 4))
    cost[3, 2] = bad
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[3, 2\]"):
        bigsap.solve(cost, unassigned_cost=0.5)


def best_of(cost, caps):
    """The least cost of a partial assignment, by trying all of them."""
    n, m = cost.shape
    best = np.inf
    for columns in itertools.product(range(-1, m), repeat=n):
        used = [j for j in columns if j >= 0]
        if len(set(used)) == len(used):
            best = min(best, sum(caps[i] if j < 0 else cost[i, j] for i, j in enumerate(columns)))
    return best


@examples(150)
@given(st.integers(1, 4), st.integers(0, 4), st.integers(0, 10**6))
def test_the_proof_of_partial_assignments(n, m, seed):
    rng = np.random.default_rng(seed)
    cost, caps = rng.integers(-4, 9, (n, m)).astype(float), rng.integers(-2, 8, n).astype(float)
    caps[rng.random(n) < 0.2] = np.inf
    columns = np.full(n, -1)
    for row in rng.permutation(n)[:m]:
        if rng.random() < 0.7 or np.isinf(caps[row]):
            columns[row] = rng.choice(np.setdiff1d(np.arange(m), columns))
    v = -rng.integers(0, 5, m).astype(float)
    low, rest, matched, prices, facts = (np.empty(size) for size in (n, n, n, m, dense.FACTS))
    proved = dense_proof.prove_dense(
        cost.ctypes.data,
        m,
        n,
        m,
        True,
        dense_proof.Claim(columns, v, caps),
        np.empty(m, np.int64),
        dense_proof.Found(low, rest, matched, prices, facts),
        np.empty(4 * m + 2 * n + dense.SPARE),
    )
    if np.isinf(caps[columns < 0]).any():
        assert proved == dense_proof.WRONG
        return
    best = best_of(cost, caps)
    total = sum(caps[i] if j < 0 else cost[i, j] for i, j in enumerate(columns))
    free = np.setdiff1d(np.arange(m), columns)
    duals = np.minimum(caps, (cost - v).min(axis=1, initial=np.inf))
    assert (facts[3], facts[5], facts[4]) == (total, duals.sum() + v.sum(), total - facts[5])
    assert facts[5] <= best <= total
    assert (proved == dense_proof.PROVED) == (facts[4] == 0)
    assert proved != dense_proof.WRONG
    assert (low + rest == duals).all()
    assert free.size == 0 or proved != dense_proof.PROVED or (v[free] == 0).all()


@pytest.mark.parametrize("columns", [[0, 0], [5, -1], [-2, 0]])
def test_the_proof_refuses_what_is_no_assignment(columns):
    cost, caps, n = np.ones((2, 3)), np.ones(2), 2
    found = dense_proof.Found(*(np.empty(size) for size in (n, n, n, 3, dense.FACTS)))
    claim = dense_proof.Claim(np.array(columns), np.zeros(3), caps)
    room = np.empty(3, np.int64), found, np.empty(4 * 3 + 2 * n + dense.SPARE)
    proved = dense_proof.prove_dense(cost.ctypes.data, 3, n, 3, True, claim, *room)
    assert proved == dense_proof.WRONG
