"""A warm start out of core: the rows that are evaluated again are a fraction of a cold solve's."""

from __future__ import annotations

import numpy as np
import pytest

import bigsap
from bigsap.sources.wrappers import Counted
from instances import points_of


@pytest.mark.some(1)
@pytest.mark.parametrize("name", ["geometric", "disjoint"])
def test_one_percent_of_the_rows_changed_behind_a_small_cache(name):
    """Counted by the source as well, which both methods' figures must agree with."""
    n = 1000
    x, y = points_of(name, n, seed=1)
    rng = np.random.default_rng(2)
    moved = x.copy()
    rows = rng.permutation(n)[: n // 100]
    moved[rows] = x[rng.permutation(rows)] + 0.1 * rng.random((rows.size, 2))
    options = {"method": "ssp", "cache": 8 * n * n // 20, "threads": 1}
    before = bigsap.solve(bigsap.points(x, y), **options)
    evaluated = {}
    for kind, start in (("cold", None), ("warm", before)):
        source = Counted(bigsap.points(moved, y))
        res = bigsap.solve(source, warm_start=start, certify=False, **options)
        assert res.stats["rows_evaluated"] == pytest.approx(source.rows, abs=n)
        evaluated[kind] = res.stats["rows_evaluated"]
        if start is None:
            best = res.fun
        assert res.fun == pytest.approx(best, rel=1e-12)
        assert res.stats["warm_started"] == (start is not None)
    print(f"{name}: {evaluated['warm'] / n:.1f} n of {evaluated['cold'] / n:.1f} n")
    # One sweep, and what the searches of the few rows need.
    assert n <= evaluated["warm"] <= evaluated["cold"] / 5
