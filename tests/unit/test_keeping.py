"""Costs that are dear: rows are kept, and nothing is asked for twice where there is room."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.row_cache import RowCache, Rows
from bigsap.run.kept_rows import KeptRows
from bigsap.sources import as_source
from bigsap.sources.wrappers import Counted
from instances import CLASSES
from oracle import optimum
from pairwise import each

N = 300


@each(method=["auto", "ssp", "compressed"], threads=[1, 2])
def test_each_pair_once_whatever_the_method(method, threads):
    source = Counted(as_source(CLASSES["disjoint"](N, 0)))
    res = bigsap.solve(source, method=method, threads=threads)
    assert source.per_row.tolist() == [1] * N
    assert source.pairs == N * N == res.stats["pairs_evaluated"]
    assert res.stats["rows_evaluated"] == res.stats["cache_misses"] == N
    same = bigsap.solve(CLASSES["disjoint"](N, 0), method=method)
    assert res.fun == pytest.approx(same.fun, rel=1e-13)
    if method == "compressed":  # as of a matrix in memory
        assert (res.col4row == same.col4row).all()
        assert (res.v == same.v).all()


@each(kind=["value", "row", "part", "block"], shape=[(60, 60), (40, 60), (60, 40)])
def test_functions_of_every_kind(kind, shape):
    cost = np.random.default_rng(3).random(shape)
    calls = {
        "value": lambda i, j: float(cost[i, j]),
        "row": lambda i: cost[i].copy(),
        "part": lambda i, start, stop: cost[i, start:stop].copy(),
        "block": lambda rows, out: out.__setitem__(slice(None), cost[rows]),
    }
    source = bigsap.from_function(calls[kind], shape, kind=kind, compiled=False)
    best, _ = optimum(cost)
    for method, cache in (("ssp", 8 * 60 * 20), ("compressed", None), ("compressed", 8 * 60)):
        res = bigsap.solve(source, method=method, cache=cache)
        res.verify(cost)
        assert res.fun == pytest.approx(float(best), rel=1e-12)
    bigsap.solve(source, method="compressed", maximize=True).verify(cost)


@each(share=[4, 16], policy=["lfu", "slru"], cls=["disjoint", "int1n", "random"])
def test_out_of_core(cls, policy, share):
    """Lists find kept rows again, and so does the proof; every row asked for is counted."""
    slots = N // share
    cost = CLASSES[cls](N, 0)
    cache = RowCache(bytes=slots * cost.itemsize * N, policy=policy)
    source = Counted(as_source(cost))
    res = bigsap.solve(source, method="compressed", threads=1, cache=cache)
    stats = res.stats
    res.verify(cost)
    assert stats["cache_slots"] == slots
    assert source.rows == stats["rows_evaluated"] + N - slots
    bare = Counted(as_source(cost))
    least = cost.itemsize * N
    without = bigsap.solve(bare, method="compressed", threads=1, cache=least).stats
    # The same evaluations, some of them of kept rows.
    assert stats["rows_evaluated"] + stats["cache_hits"] == (
        without["rows_evaluated"] + without["cache_hits"]
    )
    assert source.rows < bare.rows
    assert (res.col4row == bigsap.solve(bare, method="compressed", cache=least).col4row).all()


def pairs_by_method(cls, n):
    """Pairs that each method evaluates of n x n compiled costs, the proof's included."""
    cost = CLASSES[cls](n, 1)
    source = bigsap.from_function(lambda i, j, c: c[i, j], (n, n), args=(cost,))
    found = {}
    for method in ("auto", "ssp", "compressed"):
        stats = bigsap.solve(source, method=method, threads=1).stats
        found[method] = stats["pairs_evaluated"] + stats["certificate_pairs"]
    return found


@pytest.mark.some(3)
@pytest.mark.parametrize("cls", ["disjoint", "random", "sanity", "rank2", "rank8"])
@pytest.mark.parametrize("n", [150, 720, 1600])
def test_few_cheap_compiled_costs_are_computed_once(cls, n):
    """Pairs of the better method, the proof's included, at most twice."""
    found = pairs_by_method(cls, n)
    assert found["auto"] <= 2 * min(found.values())
    assert found["compressed"] == 2 * n * n


POINTS = np.random.default_rng(2).random((2, 720, 7))


distance = lambda i, j, x, y: abs(x[i, 0] - y[j, 0])  # noqa: E731 - a lambda becomes a formula


def looped(i, j):
    total = 0.0
    for k in range(3):
        total += ((i * 7 + j * 13 + k) % 11) * 0.25
    return total


#: Costs of 720 x 720, and whether all are kept, however long the clock says that a pair takes.
PRICED = {
    "Minkowski": (lambda: bigsap.points(*POINTS[:, :, :2], "minkowski", p=1.5), True),
    "limited": (lambda: bigsap.forbid_above(bigsap.points(*POINTS[:, :, :2], "minkowski", p=1.5), 9.0), True),
    "many coordinates": (lambda: bigsap.points(*POINTS, "cityblock"), False),
    "two powers": (lambda: formula("abs(x[i,0]-y[j,0])**1.5 + abs(x[i,1]-y[j,1])**1.5"), True),
    "powers in a sum": (lambda: formula("sum(abs(x[i,k]-y[j,k])**1.5 for k in range(2))"), True),
    "one power": (lambda: formula("abs(x[i,0]-y[j,0])**1.5"), False),
    "squares": (lambda: formula("abs(x[i,0]-y[j,0])**2 + (x[i,1]-y[j,1])**4"), False),
    "lambda": (lambda: bigsap.from_function(distance, (720, 720), args=tuple(POINTS)), False),
    "loop": (lambda: bigsap.from_function(looped, (720, 720), kind="value"), True),
    "table": (lambda: bigsap.table(np.eye(720), np.arange(720), np.arange(720)), False),
}


def formula(text):
    x, y = POINTS
    return bigsap.expression(text, (720, 720), x=x, y=y)


@pytest.mark.parametrize("which", list(PRICED))
def test_compiled_costs_are_kept_by_their_nominal_price(which, clock, monkeypatch):
    """Never by the clock: the bits of prices must not depend on the day."""
    monkeypatch.setattr(policy, "KEPT_BYTES", 0)
    make, kept = PRICED[which]
    for seconds in (1e-9, 1e-6):
        source = make()
        read = type(source).read

        def timed(self, rows, columns, out, *, read=read, seconds=seconds):
            clock.sleep(seconds * out.size)
            read(self, rows, columns, out)

        with monkeypatch.context() as patch:
            patch.setattr(type(source), "read", timed)
            stats = bigsap.solve(source, method="compressed", threads=1).stats
        assert stats["evaluated_by"] != "python"
        assert stats["cache_misses"] == (720 if kept else 0)


def test_an_invalid_cost_is_told_before_all_is_read():
    n = 1200
    cost = np.random.default_rng(0).random((n, n))
    cost[3, 5] = np.nan
    cost[900, 1] = np.nan
    source = Counted(as_source(cost))
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[3, 5\]"):
        bigsap.solve(source, threads=1)
    assert source.rows < n


def test_a_stop_while_rows_are_read(clock):
    n, asked, cancel = 300, [], threading.Event()

    def cost(i):
        asked.append(i)
        if len(asked) == 100:
            cancel.set()
            clock.sleep(0.1)  # for the solve to look up
        return np.random.default_rng(i).random(n)

    source = bigsap.from_function(cost, (n, n), kind="row", compiled=False)
    res = bigsap.solve(source, method="compressed", cancel=cancel, threads=1)
    assert res.status == "cancelled"
    assert 50 <= res.stats["rows_evaluated"] <= 110
    assert len(asked) <= 2.2 * n + 110  # the answer is priced and bounded from what is kept
    assert sorted(res.col_ind.tolist()) == list(range(n))


def test_kept_rows_find_and_keep():
    cost = np.random.default_rng(1).random((40, 30))
    rows = Rows.cached(cost.shape, cost.dtype, RowCache(), 8 * 30 * 10)
    source = Counted(as_source(cost))
    kept = KeptRows(source, rows, keep=True)
    wanted = np.array([3, 7, 3, 39])
    out = np.empty((4, 30))
    kept.read(wanted, slice(0, 30), out)
    assert (out == cost[wanted]).all()
    assert (kept.rows_found, source.rows) == (0, 4)
    kept.read(np.array([7, 8]), slice(0, 30), out[:2])
    assert (out[:2] == cost[[7, 8]]).all()
    assert (kept.rows_found, kept.pairs_found, source.rows) == (1, 30, 5)
    part = np.empty((2, 10))
    kept.looking().read(np.array([39, 20]), slice(5, 15), part)
    assert (part == cost[[39, 20], 5:15]).all()
    assert source.pairs == 5 * 30 + 10
    assert rows.table.slot_of_row[20] == -1  # a part is no row
    everything = np.empty((40, 30))
    kept.read(np.arange(40), slice(0, 30), everything)
    assert (everything == cost).all()
    assert (rows.table.slot_of_row >= 0).sum() == 10
    assert kept.cost_range() is None
    table = rows.table
    for slot, row in enumerate(table.row_of_slot.tolist()):
        assert (table.slots[slot] == cost[row]).all()
