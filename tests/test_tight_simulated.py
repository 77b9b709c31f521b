"""Tight pairs found by a device (``engine/cuda/tight_pass.py``), run by ``tests/simulated``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.engine.core import state as S
from bigsap.engine.core.precision import choose
from bigsap.engine.core.team import Team
from bigsap.engine.cuda.tight_pass import DevicePass
from bigsap.engine.lists import tight as T
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources import as_source
from bigsap.sources.cuda.placed import place
from bigsap.strategies import tight_pairs as tight
from oracle import optimum
from test_tight import KINDS, check, costs_of, found

pytestmark = pytest.mark.usefixtures("cupy")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Problems of any size are tried."""
    monkeypatch.setattr(policy, "TIGHT_PAIRS_ROWS", 1)


def on_device(cost: np.ndarray, maximize: bool = False) -> Problem:
    return Problem(place(as_source(cost), 0, None), maximize)


def passes(cost: np.ndarray, v: np.ndarray, maximize: bool) -> tuple[T.Tight, T.Tight]:
    """What the device and the host find of all rows under prices v."""
    rows = np.arange(cost.shape[0], dtype=S.ID)
    there, here = on_device(cost, maximize), Problem(as_source(cost), maximize)
    price = choose(here).price
    made = []
    with Team(1) as team:
        matrix = here.source.resident()
        for one in (DevicePass(there, price), tight.HostPass(here, matrix, team, price)):
            pairs = T.tight_pairs(*cost.shape, price, 1)
            one.sweep(rows, v.astype(price), pairs, lambda count: None)
            made.append(pairs)
    return made[0], made[1]


@pytest.mark.parametrize(
    ("dtype", "n", "maximize"), [("f8", 37, False), ("i4", 64, True), ("u1", 1100, False)]
)
@pytest.mark.parametrize("kind", KINDS)
def test_lows_pairs_and_bounds(kind: str, dtype: str, n: int, maximize: bool) -> None:
    cost = costs_of(kind, n, 3).astype(dtype)
    v = np.random.default_rng(5).integers(-3, 1, n)
    device, host = passes(cost, v, maximize)
    np.testing.assert_array_equal(device.low, host.low)
    reduced = (-1.0 if maximize else 1.0) * cost - v
    for i, row in enumerate(reduced):
        ids = device.ids[i, : device.size[i]]
        all_of_them = np.flatnonzero(row == device.low[i])
        assert len(set(ids.tolist())) == ids.size
        assert set(ids.tolist()) <= set(all_of_them.tolist())
        others = np.delete(row, ids)
        assert device.above[i] <= others.min(initial=np.inf)
        if ids.size == all_of_them.size:
            assert device.above[i] == others.min(initial=np.inf)
            continue
        # Some left out: only where there are more than are kept of a block, or of a row.
        assert ids.size == T.ROOM or np.bincount(all_of_them // S.BLOCK).max() > T.PER_BLOCK
        if i in all_of_them:
            assert ids[0] == i


@pytest.mark.parametrize("ties", [T.ROOM - 1, T.ROOM, T.ROOM + 1, 2600])
def test_full_lists(ties: int) -> None:
    """Of as many columns as there is room for, spread over six blocks, in any order."""
    cost = np.full((30, 2600), 5)
    g = np.random.default_rng(ties)
    for row in cost:
        row[np.arange(ties) * (2600 // ties) + g.integers(2600 // ties)] = 2
    device, host = passes(cost, np.zeros(2600), False)
    np.testing.assert_array_equal(device.low, host.low)
    np.testing.assert_array_equal(device.size, min(ties, T.ROOM))
    np.testing.assert_array_equal(device.above, 5 if ties <= T.ROOM else 2)
    for row, ids in zip(cost, device.ids, strict=True):
        kept = ids[: min(ties, T.ROOM)]
        assert len(set(kept.tolist())) == kept.size
        assert (row[kept] == 2).all()


def test_bounds_are_the_next_value_where_nothing_is_left_out() -> None:
    cost = np.random.default_rng(1).random((50, 50))
    device, _ = passes(cost, np.zeros(50), False)
    np.testing.assert_array_equal(device.size, 1)
    np.testing.assert_array_equal(device.above, np.sort(cost, axis=1)[:, 1])


@pytest.mark.parametrize("bad", [np.nan, -np.inf])
def test_rows_with_an_invalid_cost_are_marked(bad: float) -> None:
    cost = np.ones((40, 40))
    cost[7, 33], cost[9] = bad, np.inf
    device, _ = passes(cost, np.zeros(40), False)
    assert device.size[7] == -1
    assert device.size[9] == 0
    assert device.low[9] == np.inf
    assert (np.delete(device.size, [7, 9]) == T.PER_BLOCK + 1).all()


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "i8", "u2"])
@pytest.mark.parametrize("kind", KINDS)
def test_the_optimum_whatever_the_ties(kind: str, dtype: str, maximize: bool) -> None:
    cost = costs_of(kind, 48, 8).astype(dtype)
    res = bigsap.solve(cost, device="cuda", method="compressed", maximize=maximize)
    assert res.status == "optimal"
    assert res.fun == optimum(cost, maximize)[0]
    res.verify(cost)


def test_the_start_is_what_it_promises(monkeypatch: pytest.MonkeyPatch) -> None:
    """With columns that no row likes, whose prices are raised, and rows handed over."""
    monkeypatch.setattr(policy, "TIGHT_FEW", 48)
    monkeypatch.setattr(policy, "TIGHT_LONELY", 1)
    cost = costs_of("lonely", 48, 2)
    problem = on_device(cost)
    with Team(1) as team:
        start = tight.tight_start(problem, team, Monitor(), choose(problem), 0, tight.Counts())
    assert start is not None
    assert start.v.any()
    check(start, cost)
    assert (found(cost)[0].v == start.v).all()
    res = bigsap.solve(cost, device="cuda", method="compressed")
    assert res.stats["first_prices"] == "tight"
    assert res.stats["rows_evaluated"] >= 48
    assert res.fun == optimum(cost)[0]


def test_whoever_has_the_matrix_goes_through_it() -> None:
    """Computed costs have better first prices; rows that are streamed lie on the host."""
    x = np.random.default_rng(0).random((40, 2))
    there = Problem(place(bigsap.points(x, x), 0, None))
    assert tight._pass_for(there, None, np.dtype("f8")) is None
    streamed = Problem(place(as_source(np.ones((40, 40))), 0, 8 * 40 * 20))
    assert isinstance(tight._pass_for(streamed, None, np.dtype("f8")), tight.HostPass)


def call_count(monkeypatch: pytest.MonkeyPatch, pairs: int) -> list[int]:
    from bigsap.engine.cuda import tight_pass as gpu_tight

    monkeypatch.setattr(gpu_tight, "_PAIRS", pairs)
    reached: list[int] = []
    cost = np.random.default_rng(2).integers(0, 9, (50, 50))
    problem = on_device(cost)
    price = choose(problem).price
    pair = T.tight_pairs(50, 50, price, 1)
    rows = np.arange(50, dtype=S.ID)
    DevicePass(problem, price).sweep(rows, np.zeros(50, price), pair, reached.append)
    np.testing.assert_array_equal(pair.low, cost.min(axis=1))
    return reached


def test_long_passes_are_several_launches(monkeypatch: Any) -> None:
    assert call_count(monkeypatch, 1 << 20) == [50]
    assert call_count(monkeypatch, 20 * 50) == [20, 20, 10]
