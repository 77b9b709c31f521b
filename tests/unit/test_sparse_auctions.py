"""How epsilon grows where an auction of sparse costs takes long."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.spatial

import bigsap
from bigsap.problem import Problem
from bigsap.sources import as_source
from bigsap.strategies import sparse as strategy
from bigsap.strategies.sparse_pairs import arithmetic_of


def two_samples(n: int) -> scipy.sparse.csr_array:
    """Squared distances of points to their eight nearest of another sample, and planted pairs."""
    rng = np.random.default_rng(4)
    x, y = rng.random((2, n, 2))
    near = scipy.spatial.cKDTree(y).query(x, 8)[1]
    planted = np.empty(n, np.intp)
    planted[np.argsort(x[:, 0])] = np.argsort(y[:, 0])
    pairs = np.unique(np.append(np.repeat(np.arange(n), 8) * n + near.ravel(), np.arange(n) * n + planted))
    rows, columns = pairs // n, pairs % n
    return scipy.sparse.csr_array((((x[rows] - y[columns]) ** 2).sum(1), (rows, columns)), (n, n))


def ring(n: int) -> scipy.sparse.csr_array:
    """Each row has its own column and the next three: one row may go round the whole ring."""
    rows = np.repeat(np.arange(n), 4)
    columns = (rows + np.tile(np.arange(4), n)) % n
    costs = np.random.default_rng(0).random(rows.size)
    return scipy.sparse.csr_array((costs, (rows, columns)), (n, n))


def both(cost: Any, monkeypatch: pytest.MonkeyPatch) -> list[bigsap.Result]:
    """The solve as it is, and one that never takes epsilon from the range of costs."""
    found = [bigsap.solve(cost)]
    with monkeypatch.context() as patch:
        patch.setattr(strategy, "_WIDE_SHARE", 0.0)
        found.append(bigsap.solve(cost))
    for result in found:
        assert result.status == "optimal"
    assert found[0].fun == pytest.approx(found[1].fun, rel=1e-12)
    return found


def test_where_many_columns_stay_free_epsilon_follows_the_range_of_costs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cost = two_samples(6000)
    wide, narrow = both(cost, monkeypatch)
    first, second = (phase["epsilon"] for phase in wide.stats["phases"][:2])
    assert first == pytest.approx((cost.data.max() - cost.data.min()) / 32)
    assert first == pytest.approx(3 * second)
    assert 2 * wide.stats["rows_scanned"] < narrow.stats["rows_scanned"]


def test_a_huge_cost_makes_no_epsilon(monkeypatch: pytest.MonkeyPatch) -> None:
    """The range of costs counts up to a million times the epsilon that was too small."""
    cost = two_samples(6000)
    usual = bigsap.solve(cost).stats
    cost.data[100] += 1e7
    found, _ = both(cost, monkeypatch)
    assert found.stats["rows_scanned"] < 2 * usual["rows_scanned"]
    assert len(found.stats["phases"]) <= len(usual["phases"]) + 8


def test_epsilons_of_whole_numbers_lie_on_the_grid_of_prices() -> None:
    """On which float64 adds prices of these costs without rounding."""
    cost = two_samples(6000)
    cost.data = np.rint(cost.data * 1e12).astype(np.int64)
    grid = arithmetic_of(Problem(as_source(cost))).grid
    found = bigsap.solve(cost)
    assert found.gap == 0
    first = found.stats["phases"][0]["epsilon"]
    assert first == (cost.data.max() - cost.data.min()) / 32 // grid * grid
    assert all(phase["epsilon"] % grid == 0 for phase in found.stats["phases"])


def test_one_row_that_goes_round_a_ring_does_not_make_epsilon_as_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found, other = both(ring(20_000), monkeypatch)
    first, second = (phase["epsilon"] for phase in found.stats["phases"][:2])
    assert second > first
    assert found.stats["rows_scanned"] == other.stats["rows_scanned"]
