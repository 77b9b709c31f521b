"""The pool of lists: growing without a copy, and exact answers where it may not grow."""

from __future__ import annotations

import sys
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment as reference

import bigsap
from bigsap import policy
from bigsap.engine.core.team import Team
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.lists.pool import NO_GROWTH, NO_ROOM, WIDENED, widen
from bigsap.engine.lists.snapshot import continued, kept
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources import as_source
from bigsap.sources.wrappers import Counted
from bigsap.strategies import lists
from contracts import whole
from examples_of import examples
from instances import CLASSES
from pairwise import each


def engine_of(n, m, k, share=None):
    with Team(1) as team:
        problem = Problem(bigsap.points(np.zeros((n, 1)), np.zeros((m, 1))))
        engine = ListEngine(problem, team, Monitor(), np.dtype(float), k, 0)
        if share is not None:
            engine.limit_memory(share)
        return engine


def fill(lists, row):
    at, size = lists.start[row], lists.width[row]
    lists.ids[at : at + size] = row
    lists.costs[at : at + size] = -1.0 - row
    lists.size[row] = size


@examples(200)
@given(
    st.integers(1, 9),
    st.integers(1, 40),
    st.integers(1, 7),
    st.lists(st.integers(0, 8)),
    st.integers(0, 300) | st.none(),
)
def test_places_never_overlap(n, m, k, rows, spare):
    k = min(k, m)
    share = None if spare is None else 12 * (n * k + m + spare)
    engine = engine_of(n, m, k, share)
    for row in range(n):
        fill(engine.lists, row)
    limit = engine.lists.counts.pool_size
    refused = 0
    for row in rows:
        lists = engine.lists
        width = int(lists.width[row % n])
        if width == m:
            continue  # nothing is left outside such a list
        done = widen(row % n, m, engine.longest, lists)
        while done == NO_ROOM:
            assert lists.width[row % n] == width
            engine._grow()
            lists = engine.lists
            done = widen(row % n, m, engine.longest, lists)
        refused += done == NO_GROWTH
        if done == WIDENED:
            assert lists.width[row % n] == min(2 * width, m)
            assert lists.size[row % n] == width
            fill(lists, row % n)
    lists = engine.lists
    assert lists.counts.refused == refused
    assert spare is not None or refused == 0
    if share is not None:
        assert engine.list_bytes <= share
        assert lists.counts.pool_size == limit
        assert np.array_equal(lists.ids[lists.ids.size - m :], np.arange(m))
    ends = []
    for row in range(n):
        at, size = int(lists.start[row]), int(lists.size[row])
        assert (lists.ids[at : at + size] == row).all()
        assert (lists.costs[at : at + size] == -1.0 - row).all()
        ends.append((at, at + int(lists.width[row])))
    ends.sort()
    assert all(a[1] <= b[0] for a, b in pairwise(ends))
    assert ends[-1][1] <= lists.counts.pool_used <= lists.counts.pool_size


def test_places_that_rows_left_are_taken_again():
    """Six rows of three entries, all doubled twice: what is left serves the next."""
    engine = engine_of(6, 100, 3)
    for _ in range(2):
        for row in range(6):
            assert widen(row, 100, 100, engine.lists) == WIDENED
    # First places of rows 0 and 1 serve row 2, and those of rows 2 and 3 row 4.
    assert engine.lists.counts.pool_used == 6 * 3 + 4 * 6 + 6 * 12
    assert widen(5, 10, 100, engine_of(6, 10, 3).lists) == WIDENED


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="asks /proc")
def test_what_is_reserved_takes_no_memory():
    def resident():
        resource = pytest.importorskip("resource")
        return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

    n, k = 20_000, 100
    before = resident()
    engine = engine_of(n, 10_000, k)
    assert engine.lists.costs.nbytes > 200 << 20
    assert resident() - before < 12 << 20
    engine.lists.costs[: n * k] = 1.0
    assert resident() - before < (12 << 20) + 9 * n * k


def test_a_checkpoint_holds_no_foreign_memory():
    """The pool is not cleared: entries that rows own but do not use are, before they are saved."""
    engine = engine_of(4, 100, 5)
    engine.lists.ids[:] = engine.lists.costs[:] = 77
    engine.lists.counts.evaluations = 1
    fill(engine.lists, 0)
    fill(engine.lists, 2)
    engine.lists.size[2] = 3
    saved = kept(engine)
    assert saved["costs"].tolist() == 5 * [-1.0] + 5 * [0.0] + 3 * [-3.0] + 7 * [0.0]
    assert saved["ids"].tolist() == 10 * [0] + 3 * [2] + 7 * [0]


def test_a_restored_engine_leaves_its_first_pool_alone():
    """Places of the saved lists may lie far beyond it: nothing is written there before it has moved."""
    grown = engine_of(4, 100, 5)
    grown.lists.counts.evaluations = 1
    for row in range(4):
        fill(grown.lists, row)
        for _ in range(3):
            while widen(row, 100, 100, grown.lists) == NO_ROOM:
                grown._grow()
    used = int(grown.lists.counts.pool_used)
    saved = {name: np.copy(part) for name, part in kept(grown).items()}
    saved["longest"] = np.array(100)
    room = np.full(used, 77.0)
    engine = engine_of(4, 100, 5)
    engine.lists = engine.lists._replace(costs=room[:20])
    continued(engine, saved)
    assert used > 100
    assert (room[20:] == 77.0).all()
    np.testing.assert_array_equal(engine.lists.costs[:used], grown.lists.costs[:used])


def test_a_machine_that_reserves_little(monkeypatch):
    """Then what is there is copied, once it is full."""
    empty, refused = np.empty, []

    def scarce(shape, dtype=float):
        asked = sys._getframe(1).f_code.co_name
        if asked == "reserve" and shape > 6000 and len(refused) < 2:
            refused.append(shape)
            raise MemoryError
        return empty(shape, dtype)

    cost = np.random.default_rng(0).integers(0, 3, (400, 400)).astype(float)
    rows, columns = reference(cost)
    monkeypatch.setattr(np, "empty", scarce)
    monkeypatch.setattr(policy, "MATRIX_LIST_SIZE", 2)
    res = bigsap.solve(cost, method="compressed", threads=1, epsilon=False, certify=False)
    assert len(refused) == 2
    assert res.stats["list_bytes"] > 12 * 6000
    assert cost[np.arange(400), res.col4row].sum() == cost[rows, columns].sum()


def grid_points():
    """Many columns as far from a row as others: a source that kernels compute, with bounds."""
    grid = np.stack(np.meshgrid(np.arange(24.0), np.arange(25.0)), -1).reshape(-1, 2)
    generator = np.random.default_rng(1)
    rows = grid[generator.integers(0, 600, 600)]
    return bigsap.points(rows, grid, metric="cityblock")


def ties(shape, dtype="f8", most=4):
    return np.random.default_rng(0).integers(0, most, shape).astype(dtype)


def forbidden():
    cost = ties((300, 300))
    cost[np.random.default_rng(2).random(cost.shape) < 0.5] = np.inf
    return cost


COSTS = {
    "square": lambda: ties((300, 300)),
    "wide": lambda: ties((280, 300)),
    "skinny": lambda: ties((90, 300)),
    "forbidden": forbidden,
    "exact": lambda: ties((200, 200), "i8") << 46,
    "float32": lambda: ties((300, 300), "f4"),
    "points": grid_points,
    "rows": lambda: Counted(as_source(ties((300, 300)))),
    "tall rows": lambda: Counted(as_source(ties((310, 300)))),
    "two values": lambda: ties((300, 300), most=2),
}


@each(kind=COSTS, epsilon=[True, False], maximize=[False, True])
def test_lists_that_may_not_grow(kind, epsilon, maximize, monkeypatch):
    """The optimum, within the memory allowed, and said how often it was not enough."""
    monkeypatch.setattr(policy, "LEAST_LIST_SIZE", 3)
    monkeypatch.setattr(lists, "tight_start", lambda *_: None)
    source = as_source(COSTS[kind]())
    n, m = source.shape
    cost = whole(source)
    if maximize and kind == "forbidden":
        source = as_source(cost := -cost)
    k = 4
    limit = max(24 * k * n, m * cost.itemsize)
    rows, columns = reference(cost, maximize)
    counted = source.rows if kind.endswith("rows") else 0
    res = bigsap.solve(source, method="compressed", memory_limit=limit, epsilon=epsilon, maximize=maximize)
    assert res.status == "optimal"
    assert res.fun == cost[rows, columns].sum()
    res.verify(source)
    stats = res.stats
    assert stats["list_bytes"] <= max(limit * 5 // 8, 12 * (n * k + m))
    assert stats["list_growth_refused"] > 0
    if kind.endswith("rows"):
        # Then whole rows were scanned, through the row cache.
        certificate = stats["certificate_pairs"] // m
        spared = stats["rows_evaluated"] + certificate - (source.rows - counted - n)
        assert 0 <= spared <= stats["cache_slots"]  # the proof looks at what is kept
    free = bigsap.solve(source, method="compressed", epsilon=epsilon, maximize=maximize)
    assert free.stats["list_growth_refused"] == 0
    assert free.fun == res.fun


def test_any_threads_the_same_under_a_limit():
    cost = ties((800, 800), most=6)
    found = [
        bigsap.solve(cost, method="compressed", memory_limit=24 * 16 * 800, threads=t) for t in (1, 2, 3)
    ]
    for res in found[1:]:
        assert np.array_equal(res.col4row, found[0].col4row)
        for name in ("rows_evaluated", "rows_scanned", "list_growth_refused", "list_bytes"):
            assert res.stats[name] == found[0].stats[name]


def test_minima_count_as_lists(monkeypatch):
    """They are kept where the share has room for them, and taken out of it."""
    monkeypatch.setattr(policy, "PROBE_ROWS", 200)
    monkeypatch.setattr(policy, "NEIGHBOURS_SHARE", 1.0)
    cost = np.ascontiguousarray(CLASSES["geometric"](600, seed=1))
    n, k = 600, 16
    for limit in (24 * k * n, 240 * k * n):
        res = bigsap.solve(cost, method="compressed", memory_limit=limit)
        assert res.stats["list_bytes"] <= limit * 5 // 8
    engine = engine_of(n, n, k, 12 * (n * k + n) + 4 * n * 5)
    assert engine.affords(4 * n * 5)
    assert not engine.affords(4 * n * 5 + 12)
    engine.keep_minima(np.empty(0, np.int32))
    assert engine.list_bytes <= 12 * (n * k + n) + 4 * n * 5
    assert not engine.affords(12)
    assert widen(0, n, 100, engine.lists) == NO_GROWTH
