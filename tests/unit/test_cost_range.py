"""What is known of costs without reading them encloses every cost, and bounds a stopped solve."""

from __future__ import annotations

import math

import numpy as np
import pytest

import bigsap
from bigsap.sources.base import range_of
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.combined import forbid_above, masked, scaled, sum_of
from bigsap.sources.metrics import METRICS
from bigsap.sources.wrappers import converted
from contracts import whole
from oracle import optimum

N, M = 23, 31
RNG = np.random.default_rng(5)
X, Y = RNG.normal(size=(N, 3)) * 3, RNG.normal(size=(M, 3)) * 3
FORMULAS = [
    "x[i, 0] + y[j, 1] - 2.5",
    "-x[i, 0] * y[j, 1]",
    "(x[i, 0] - y[j, 0]) * (x[i, 0] - y[j, 0])",
    "(x[i, 0] - y[j, 0])**2 - 3",
    "(x[i, 0] - y[j, 0])**3",
    "(x[i, 0] * y[j, 0])**4",
    "abs(x[i, 0] - y[j, 0])**1.5",
    "abs(x[i, 0])**y[j, 1]",
    "x[i, 0] / (2 + abs(y[j, 0]))",
    "x[i, 0] / (abs(y[j, 0]) - 100)",
    "x[i, 0] % 2.5 + x[i, 1] % -1.5",
    "floor(x[i, 0] * 4) - floor(y[j, 1])",
    "sqrt(abs(x[i, 2])) + log(1 + y[j, 0]**2) + exp(-abs(x[i, 0]))",
    "sin(x[i, 0]) * cos(y[j, 0]) + atan2(x[i, 0], y[j, 1])",
    "hypot(x[i, 0] - y[j, 0], x[i, 1] - y[j, 1])",
    "min(x[i, 0], y[j, 0], 1.5) - max(x[i, 1], y[j, 1])",
    "sum(abs(x[i, k] - y[j, k]) * (k + 1) for k in range(D))",
    "where(x[i, 0] > y[j, 0], x[i, 0], -y[j, 2]) + (i < j) + (i == 3 or j == 4)",
    "s * abs(i - j) + n - m",
    "inf if i == j else abs(x[i, 0])",
]


@pytest.mark.some(5)
@pytest.mark.parametrize("code", FORMULAS)
def test_formulas(code):
    source = bigsap.expression(code, (N, M), **_used(code))
    cost = source.sample(*(at.ravel() for at in np.indices((N, M))))
    low, high = range_of(source)
    assert low <= cost.min()
    assert cost.max() <= high
    # Not merely everything: numbers at one end at least, and of the right size.
    size = np.abs(cost[np.isfinite(cost)]).max()
    assert min(abs(low), abs(high)) <= 30 * size + 100
    turned = source.transposed()
    assert range_of(turned) == (low, high)


@pytest.mark.some(4)
@pytest.mark.parametrize("values", [(-math.inf, 2.0), (-0.0, 2.0), (0.5, 2.0), (-2.0, -0.0)])
@pytest.mark.parametrize("power", ["0.5", "(-1)", "(-3)", "inf", "(-inf)", "2.5", "5", "v[j]"])
def test_powers_of_what_is_odd(values, power):
    """C's pow of -inf, of -0.0 and with infinite exponents."""
    given = {"w": values, "v": [-1.0, -0.5, 0.5]}
    source = bigsap.expression(f"w[i] ** {power}", (2, 3), **given)
    cost = source.sample(*(at.ravel() for at in np.indices((2, 3))))
    low, high = range_of(source)
    assert not math.isnan(low + high) or low < high
    known = cost[~np.isnan(cost)]
    assert (low <= known).all()
    assert (known <= high).all()
    compiled = whole(source)
    np.testing.assert_allclose(cost, compiled.ravel(), rtol=1e-14)
    np.testing.assert_array_equal(
        np.signbit(cost[cost == 0]), np.signbit(compiled.ravel()[compiled.ravel() == 0])
    )


def _used(code):
    given = {"x": X, "y": Y, "s": 0.3}
    return {name: value for name, value in given.items() if name + "[" in code or name + " " in code}


@pytest.mark.parametrize(
    "code", ["x[i, 0] / y[j, 0]", "inf - abs(x[i, 0]) * 1e308 * 1e308", "x[i, 0] // y[j, 0]"]
)
def test_nothing_is_known(code):
    source = bigsap.expression(code, (N, M), **_used(code))
    assert range_of(source) == (-math.inf, math.inf)


@pytest.mark.parametrize("metric", METRICS)
def test_metrics(metric):
    options = {"minkowski": {"p": 3}, "haversine": {"radius": 10.0}}.get(metric, {})
    d = 2 if metric == "haversine" else 3
    source = bigsap.points(X[:, :d] / 10, Y[:, :d] / 10, metric, **options)
    low, high = range_of(source)
    cost = whole(source)
    assert 0 <= low <= cost.min()
    assert cost.max() <= high


def test_of_other_sources():
    base = bigsap.expression("abs(x[i, 0] - y[j, 0]) - 1", (N, M), x=X, y=Y)
    forbidden = (np.arange(N)[:, None] == np.arange(M)).astype(np.uint8)
    for source in (
        sum_of([base, scaled(base, -2.0)]),
        scaled(base, 0),
        masked(base, forbidden),
        forbid_above(base, 2.0),
        converted(base, np.float32),
        ClippedCosts(base, np.where(np.arange(N) == 2, np.inf, -7.5)),
        ClippedCosts(base, np.full(N, 3.0), maximize=True),
    ):
        cost = whole(source)
        low, high = range_of(source)
        assert low <= cost[np.isfinite(cost)].min()
        assert cost[np.isfinite(cost)].max() <= high
        assert -100 < low <= high < 100
    assert range_of(bigsap.as_source(forbidden)) == (0, 255)
    assert range_of(bigsap.as_source(X)) is None


def stopped_at_once(source, **options):
    def stop(state):
        raise StopIteration

    return bigsap.solve(source, callback=stop, callback_every=0, **options)


@pytest.mark.some(2)
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("method", ["ssp", "compressed"])
def test_a_stopped_solve_has_a_bound(method, maximize):
    """Costs so slow that nothing but the floor is affordable."""
    code = "sum(abs(x[i, 0] - y[j, 0]) % (k + 1) for k in range(4096)) + 2"
    n = 500
    rng = np.random.default_rng(1)
    source = bigsap.expression(code, (n, n), x=rng.random((n, 1)), y=rng.random((n, 1)))
    res = stopped_at_once(source, method=method, maximize=maximize, time_limit=0.05)
    assert res.status in ("cancelled", "time_limit")
    assert res.fun is not None
    assert res.bound is not None
    assert res.gap >= 0


@pytest.mark.some(1)
@pytest.mark.parametrize("metric", ["minkowski", "cosine", "haversine"])
def test_stopped_metrics(metric):
    rng = np.random.default_rng(1)
    options = {"minkowski": {"p": 2.5}, "haversine": {"radius": 3.0}}.get(metric, {})
    x, y = rng.random((400, 2)), rng.random((400, 2))
    source = bigsap.points(x, y, metric, **options)
    res = stopped_at_once(source)
    best = float(optimum(whole(source))[0])
    assert res.fun >= best - 1e-9
    assert 0 <= res.bound <= best + 1e-9
