"""That the judge of the adversarial tests is right: brute force, and claims made wrong by hand."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from exact_judge import Truth, judge
from exact_oracle import brute_force, dual_bound, grid, optimum, row_minima, settle


def costs(rng, n, m, kind):
    if kind == "spread":
        cost = 10.0 ** rng.uniform(-300, 290, (n, m)) * rng.choice([-1, 1], (n, m))
    elif kind == "denormal":
        cost = rng.integers(0, 9, (n, m)) * 5e-324
    elif kind == "ties":
        cost = rng.integers(-2, 3, (n, m)).astype(float)
    elif kind == "offset":
        cost = 1e15 + rng.random((n, m))
    elif kind == "large":
        return 2**62 - rng.integers(0, 5, (n, m))
    else:
        cost = rng.random((n, m))
        cost[rng.random((n, m)) < 0.3] = sys.maxsize
    return cost


KINDS = ["spread", "denormal", "ties", "offset", "large", "sentinels"]


@pytest.mark.parametrize("kind", KINDS)
def test_the_oracle_by_trying_everything(kind):
    rng = np.random.default_rng(KINDS.index(kind))
    for trial in range(40):
        n, m = rng.integers(0, 7, 2) if trial % 2 else rng.integers(1, 6, 2)
        maximize = bool(trial & 2)
        cost = costs(rng, n, m, kind)
        if cost.dtype.kind == "f" and trial % 3 == 0:
            cost[rng.random((n, m)) < 0.4] = -math.inf if maximize else math.inf
        prices = None
        if trial % 5 == 0:
            prices = rng.choice([0.0, 0.5, 3.0, 1e15, -math.inf if maximize else math.inf], n)
        found = optimum(cost, maximize, prices)
        best = brute_force(cost, maximize, prices)
        assert best == (None if found is None else found[0])
        if found is not None:
            paid = Truth(cost, maximize, prices).paid(np.array(found[1], np.intp))
            assert paid[0] == best


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("maximize", [False, True])
def test_row_minima_and_bounds_are_exact(kind, maximize):
    rng = np.random.default_rng(7)
    sign = -1 if maximize else 1
    for _ in range(30):
        n, m = rng.integers(1, 30, 2)
        cost = costs(rng, n, m, kind)
        price = float(np.abs(cost.astype(float)).max()) * rng.normal(size=m) * rng.choice([0, 1, 9])
        if kind == "ties":
            price = np.rint(price)
        low = price * rng.normal(size=m) * 2.0**-54 if rng.random() < 0.5 else None
        units = [[grid(x) for x in row] for row in cost.tolist()]
        own = [grid(p) + (0 if low is None else grid(low[j])) for j, p in enumerate(price)]
        right = [min(sign * (c - p) for c, p in zip(row, own, strict=True)) for row in units]
        assert row_minima(cost, price, low, maximize) == right
        best = sign * optimum(cost, maximize)[0]
        assert dual_bound(right, price, low, maximize) <= best
        if low is None:
            assert settle(cost, price, None, maximize) == sign * best


@pytest.mark.parametrize("size", [1e-300, 1.0, 2.0**70, 1e300])
def test_large_problems_of_any_size_are_settled(size):
    cost = size * np.random.default_rng(5).integers(1, 30, (6, 8))
    for prices in (np.zeros(8), -size * np.arange(8.0)):
        assert settle(cost, prices) == optimum(cost)[0]


@dataclass
class Claim:
    status: str
    fun: Any
    bound: Any
    gap: Any
    u: Any
    v: Any
    col4row: Any
    u_low: Any = None
    v_low: Any = None
    violator: Any = ()


COST = np.array([[1.0, 2.0, 9.0], [2.0, 5.0, 9.0], [9.0, 9.0, 3.0]])
RIGHT = Claim(
    "optimal", 7.0, 7.0, 0.0, np.array([1.0, 2.0, 3.0]), np.array([0.0, 1.0, 0.0]), np.array([1, 0, 2])
)


def kinds_of(claim, cost=COST, **given):
    return {fault.split(":")[0] for fault in judge(Truth(cost), claim, **given).faults}


def test_a_right_claim():
    assert kinds_of(RIGHT) == set()
    assert kinds_of(replace(RIGHT, status="time_limit", bound=6.5, gap=0.5)) == set()
    assert judge(Truth(COST), replace(RIGHT, status="imprecise")).imprecise


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [
        ({"col4row": np.array([0, 1, 2])}, "wrong fun"),
        ({"col4row": np.array([0, 1, 2]), "fun": 9.0}, "wrong optimum"),
        ({"col4row": np.array([0, 0, 2])}, "bad assignment"),
        ({"col4row": np.array([1, 0, -1])}, "bad assignment"),
        ({"bound": math.nextafter(7.0, 8.0)}, "false bound"),
        ({"gap": 1e-3, "bound": 7.0 - 1e-3}, "wrong status"),
        ({"gap": 1e-14}, "false gap"),
        ({"gap": -1.0}, "false gap"),
        ({"u": np.array([1.0, 2.0, 3.0 + 2.0**-51])}, "false dual"),
        ({"u": np.array([1.0, 2.0, 3.0]), "u_low": np.array([0.0, 0.0, 1e-300])}, "false dual"),
        ({"u": np.array([0.0, 2.0, 3.0])}, "false dual"),
        ({"fun": math.nextafter(7.0, 0.0)}, "wrong fun"),
        ({"status": "infeasible"}, "wrong status"),
    ],
)
def test_wrong_claims_are_noticed(wrong, kind):
    assert kind in kinds_of(replace(RIGHT, **wrong))


def test_wrong_claims_about_large_problems_are_noticed(monkeypatch):
    """Where the result's own prices are all that is known."""
    wide = Truth(COST, small=0)
    assert judge(wide, RIGHT).faults == []
    worse = replace(RIGHT, col4row=np.array([0, 1, 2]), fun=9.0, gap=2.0, status="imprecise")
    found = judge(Truth(COST, small=0), worse)
    assert (found.faults, found.imprecise, found.exact) == ([], True, False)
    false = replace(RIGHT, u=np.full(3, np.nan), v=np.full(3, np.nan), bound=8.0, gap=0.0)
    assert "false bound" in {f.split(":")[0] for f in judge(Truth(COST, small=0), false).faults}


def test_claims_of_infeasibility():
    cost = np.array([[math.inf, 1.0], [math.inf, 2.0]])
    nan = np.full(2, np.nan)
    claim = Claim("infeasible", None, None, None, nan, nan, np.array([-1, -1]), violator=[0, 1])
    assert kinds_of(claim, cost) == set()
    assert kinds_of(replace(claim, violator=[0]), cost) == {"wrong violator"}
    assert kinds_of(replace(RIGHT, col4row=np.array([1, 0])), cost) == {"wrong status"}
