"""Sparse costs that are nearly equal around a huge number."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap.sources.sparse.sparse_costs import sparse
from exact_judge import Truth, judge


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("size", [1e9, 2.2e14, 1e15])
def test_bids_that_would_not_move_a_price_are_not_made(size: float, maximize: bool) -> None:
    """Of nearly equal costs around a huge number, auctions went on without an end."""
    sign = -1 if maximize else 1

    def stop(state: Any) -> None:
        if state.rows_scanned > 20_000:
            raise StopIteration

    for seed in range(7, 11):
        rng = np.random.default_rng(seed)
        cost = size + rng.integers(0, 14, (30, 30)) * np.spacing(size)
        allowed = rng.random(cost.shape) < 0.2
        allowed[np.arange(30), rng.permutation(30)] = True
        cost = np.where(allowed, cost, np.inf)
        given = sparse((*np.nonzero(allowed), sign * cost[allowed]), cost.shape)
        found = bigsap.solve(given, maximize=maximize, callback=stop, callback_rows=1000)
        assert found.status == "optimal"
        assert not judge(Truth(sign * cost, maximize), found).faults


@pytest.mark.parametrize("maximize", [False, True])
def test_a_range_that_is_too_large_is_named_as_it_was_given(maximize: bool) -> None:
    low, high = 2**58, 2**61
    given = sparse(([0, 1, 2, 3], [0, 1, 0, 1], np.array([low, high, low + 1, low + 2])), (4, 2))
    for costs in (given, given.transposed()):
        shape = re.escape(str(tuple(costs.shape)))
        with pytest.raises(bigsap.OverflowRiskError, match=f"from {low} to {high}: .* of shape {shape} need"):
            bigsap.solve(costs, maximize=maximize)
