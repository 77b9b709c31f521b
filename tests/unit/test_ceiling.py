"""Costs of which most equal the largest."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import bigsap
from bigsap import policy
from bigsap.errors import InvalidCostError

WHY = "most pairs cost as much as the dearest"


def ceiling(n: int, m: int, dtype: Any = float, seed: int = 1) -> np.ndarray:
    rng = np.random.default_rng(seed)
    x, y = rng.random((n, 2)), rng.random((m, 2))
    costs = np.minimum(np.sqrt(((x[:, None] - y[None]) ** 2).sum(axis=2)), 0.05)
    return costs.astype(dtype) if np.dtype(dtype).kind == "f" else np.round(costs * 4000).astype(dtype)


@pytest.mark.some(4)
@pytest.mark.parametrize(
    ("dtype", "shape", "maximize"),
    [
        ("f8", (1050, 1050), False),
        ("f8", (1050, 1050), True),
        ("f4", (1000, 1100), True),
        ("i8", (1050, 1050), True),
        ("i4", (1100, 1000), False),
        ("u1", (1000, 1100), False),
        ("u2", (1050, 1050), True),
    ],
)
def test_the_optimum(dtype: str, shape: tuple[int, int], maximize: bool) -> None:
    costs = ceiling(*shape, dtype)
    if maximize:
        costs = costs.max() - costs
    found = bigsap.solve(costs, maximize=maximize)
    rows, columns = linear_sum_assignment(costs.astype(np.int64 if dtype[0] in "iu" else "f8"), maximize)
    expected = costs[rows, columns].sum(dtype=np.int64 if dtype[0] in "iu" else np.float64)
    assert found.fun == pytest.approx(expected, rel=1e-12)
    assert found.status == "optimal"
    found.verify(costs)
    assert shape[0] > shape[1] or found.stats["why"] == WHY
    assert all(phase["prices_moved"] > 0 for phase in found.stats["phases"])


def test_one_cost_above_the_ceiling_declines() -> None:
    costs = ceiling(1050, 1050)
    for value in (0.06, np.inf):
        other = costs.copy()
        other[700, 3] = value
        found = bigsap.solve(other)
        assert found.stats["why"] != WHY
        assert found.fun == pytest.approx(bigsap.solve(costs).fun, rel=1e-12)
    other[700, 3] = np.nan
    with pytest.raises(InvalidCostError, match=r"cost\[700, 3\]"):
        bigsap.solve(other)
    other[700, 3] = -np.inf
    with pytest.raises(InvalidCostError, match=r"cost\[700, 3\]"):
        bigsap.solve(other)


def test_many_pairs_below_it_decline() -> None:
    rng = np.random.default_rng(2)
    costs = np.minimum(rng.random((1100, 1100)), 0.4)
    found = bigsap.solve(costs)
    assert found.stats["why"] != WHY
    few = bigsap.solve(ceiling(1100, 1100))
    assert few.stats["why"] == WHY
    assert few.stats["pairs_evaluated"] < 1.2 * 1100 * 1100


def test_other_requests_take_their_own_way() -> None:
    costs = ceiling(1050, 1050)
    best = bigsap.solve(costs)
    for more in ({"method": "ssp"}, {"method": "compressed"}, {"start": "none"}, {"epsilon": False}):
        found = bigsap.solve(costs, **more)
        assert found.stats["why"] != WHY
        assert found.fun == best.fun
    warm = bigsap.solve(costs, warm_start=best)
    assert (warm.stats["why"], warm.fun) == (WHY, best.fun)
    stopped = bigsap.solve(costs, time_limit=0.0)
    assert stopped.status == "time_limit"
    assert stopped.bound is None or stopped.bound <= best.fun
    equal = bigsap.solve(np.full((1100, 1100), 7))
    assert (equal.fun, equal.status) == (7700, "optimal")


def test_small_matrices_have_no_such_way() -> None:
    """Without the dense rung that takes them, for the sake of the row limit."""
    costs = ceiling(policy.CEILING_ROWS - 1, 300)
    assert bigsap.solve(costs, seed=1, progress=True).stats["why"] != WHY


FORMULA = "hypot(x[i, 0] - y[j, 0], x[i, 1] - y[j, 1])"


@pytest.mark.parametrize("shape", [(400, 400), (400, 500), (500, 400)])
@pytest.mark.parametrize("maximize", [False, True])
def test_a_formula_with_a_ceiling(shape: tuple[int, int], maximize: bool) -> None:
    """Its range tells that no cost is above; few pairs are read twice."""
    rng = np.random.default_rng(2)
    given: dict[str, Any] = {"x": rng.random((shape[0], 2)), "y": rng.random((shape[1], 2))}
    code = f"max(-{FORMULA}, -0.05)" if maximize else f"min({FORMULA}, 0.05)"
    source = bigsap.expression(code, shape, **given)
    matrix = np.empty(shape)
    source.read(np.arange(shape[0]), slice(0, shape[1]), matrix)
    chosen = linear_sum_assignment(matrix, maximize=maximize)
    for certify in (True, False):
        found = bigsap.solve(source, maximize=maximize, certify=certify)
        assert found.fun == pytest.approx(matrix[chosen].sum(), rel=1e-12)
        assert found.stats["why"] == WHY
        assert found.stats["pairs_evaluated"] < 1.3 * matrix.size


@pytest.mark.parametrize(
    "code", [FORMULA, f"min({FORMULA}, 0.5)", f"where(i == j, inf, min({FORMULA}, .05))"]
)
def test_formulas_without_a_ceiling(code: str) -> None:
    """None, one that few pairs have, and forbidden pairs beyond it."""
    rng = np.random.default_rng(2)
    source = bigsap.expression(code, (400, 400), x=rng.random((400, 2)), y=rng.random((400, 2)))
    matrix = np.empty((400, 400))
    source.read(np.arange(400), slice(0, 400), matrix)
    found = bigsap.solve(source)
    assert found.stats["why"] != WHY
    assert found.fun == pytest.approx(matrix[linear_sum_assignment(matrix)].sum(), rel=1e-12)
