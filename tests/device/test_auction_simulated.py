"""The auction on a device (``engine/cuda/bids.py``), run by ``tests/support/simulated``."""

from __future__ import annotations

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.engine.cuda import bids, wait
from oracle import optimum
from whole_numbers import costs_of

pytestmark = pytest.mark.usefixtures("cupy")


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bids, "_SIDE", 32)
    monkeypatch.setattr(wait, "_USUAL_CHIPS", 3)


def sold(cost: np.ndarray, **options: object) -> bigsap.Result:
    """The device's bids; as many as the host's, and the same answer."""
    there = bigsap.solve(cost, method="auction", device="cuda", **options)
    here = bigsap.solve(cost, method="auction", **options)
    assert there.stats["device"] == "cuda:0"
    assert there.stats["auction"] == here.stats["auction"]
    assert there.col4row.tolist() == here.col4row.tolist()
    assert (there.fun, there.status) == (here.fun, here.status)
    return there


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", ["equal", "few cheap", "product", "0.1n", "1000n"])
def test_the_hosts_bids(kind: str) -> None:
    for n, m in ((2, 2), (30, 30), (20, 45)):
        cost = costs_of(kind, n, m, n)
        best = optimum(cost)[0]
        assert sold(cost).fun == best
        assert sold(cost, variant="plain").fun == best
        sold(cost / 7, maximize=True)


def test_any_costs_and_any_launch(monkeypatch: pytest.MonkeyPatch) -> None:
    g = np.random.default_rng(0)
    sold(g.integers(-(2**50), 2**50, (20, 20)))
    cost = g.integers(0, 30, (16, 18)).astype(float)
    cost[g.random(cost.shape) < 0.5] = np.inf
    sold(cost)
    cost[5] = np.inf
    assert sold(cost).status == "infeasible"
    cost = costs_of("10n", 40, 40, 2)
    first = sold(cost)
    for blocks, seconds in ((1, 0.25), (5, 1e-6)):
        monkeypatch.setattr(wait, "_USUAL_CHIPS", blocks)
        monkeypatch.setattr(wait, "_LAUNCH_SECONDS", seconds)
        assert sold(cost).stats["auction"] == first.stats["auction"]
    monkeypatch.setattr(policy, "AUCTION_BIDS", 1)
    assert sold(costs_of("product", 30, 30, 2), variant="plain").stats["auction"]["open"]
    bad = g.random((20, 20))
    bad[3, 7] = np.nan
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[3, 7\]"):
        bigsap.solve(bad, method="auction", device="cuda")
    for large in (2**62, -(2**62)):
        with pytest.raises(bigsap.OverflowRiskError):
            bigsap.solve(np.full((4, 4), large), method="auction", device="cuda")


@pytest.mark.usefixtures("unhurried")
def test_a_stop_while_rows_bid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait, "_LAUNCH_SECONDS", 1e-6)

    def leave(progress: bigsap.Progress) -> None:
        raise StopIteration

    cost = costs_of("1000n", 60, 60, 8)
    result = bigsap.solve(cost, method="auction", device="cuda", callback=leave, callback_every=1e-9)
    best = optimum(cost)[0]
    assert result.status in ("cancelled", "optimal")
    assert result.bound <= best <= result.fun
