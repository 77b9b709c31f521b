"""The oracle against brute force and against scipy: three solvers, one answer."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment as scipys

from instances import CLASSES
from oracle import brute_force, optimum, value


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 5), (5, 1), (3, 3), (4, 6), (6, 4), (6, 6)])
def test_oracle_equals_brute_force(n, m, maximize):
    rng = np.random.default_rng(n * 10 + m)
    feasible = 0
    for forbidden in (0.0, 0.3, 0.6):
        for _ in range(5):
            cost = rng.integers(-4, 5, (n, m)) + rng.choice([0.0, 0.1], (n, m))
            cost[rng.random((n, m)) < forbidden] = -np.inf if maximize else np.inf
            found = optimum(cost, maximize)
            expected = brute_force(cost, maximize)
            if expected is None:
                assert found is None
                continue
            feasible += 1
            total, col4row = found
            rows = [i for i in range(n) if col4row[i] >= 0]
            columns = [col4row[i] for i in rows]
            assert len(set(columns)) == len(rows) == min(n, m)
            assert total == expected == value(cost, rows, columns)
    assert feasible >= 5


@pytest.mark.parametrize("name", CLASSES)
def test_oracle_equals_scipy_on_every_class(name):
    cost = CLASSES[name](30, seed=3)
    assert cost.shape == (30, 30)
    np.testing.assert_array_equal(cost, CLASSES[name](30, seed=3))
    found = value(cost, *scipys(cost))
    assert float(optimum(cost)[0]) == pytest.approx(float(found), rel=1e-14)
