"""The performance guard: counts of work, exact or tightly bounded, and no clock.

Every count is the same on every machine and for any number of threads. A change that scans,
evaluates, reads or keeps more than it used to fails here; one that needs less fails where the
count is exact, or by leaving the band: then ``python tests/unit/test_counters.py`` writes the new
numbers into ``counters.json``, for a review to see.
"""

from __future__ import annotations

import json
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import bigsap
from bigsap.engine.core.state import ID, allocate
from bigsap.engine.core.team import Team
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources import as_source
from bigsap.sources.wrappers import Counted
from instances import CLASSES, points_of
from pairwise import each

N = 300
FILE = Path(__file__).parents[1] / "support" / "counters.json"
EXPECTED = json.loads(FILE.read_text())
COUNTED = ("rows_scanned", "rows_evaluated", "pairs_evaluated")
POINTS = [("disjoint", 2000), ("geometric", 2000), ("disjoint", 4000), ("geometric", 4000)]
# Sweeps over all rows before the first phase.
SWEEPS = {"sanity": 2, "random": 2, "int1n": 2, "disjoint": 2, "rank1": 5}
# Last bits of sums decide ties between searches: counts of real costs may move a little
# with another numpy.
BAND = 0.03


def counts(method, cls, threads=1):
    stats = bigsap.solve(CLASSES[cls](N, 0), method=method, threads=threads).stats
    return {name: stats[name] for name in COUNTED}, stats


def counts_of_points(cls, n):
    source = bigsap.points(*points_of(cls, n))
    stats = bigsap.solve(source, method="compressed", threads=1).stats
    return {name: stats[name] for name in COUNTED}, stats


def measure():
    """What ``counters.json`` holds."""
    found = {f"{m} {cls}": counts(m, cls)[0] for m in ("ssp", "compressed") for cls in CLASSES}
    return found | {f"points {cls} {n}": counts_of_points(cls, n)[0] for cls, n in POINTS}


def within(count, expected, band=BAND):
    """At most ``band`` above, at most three times as much below."""
    return (1 - 3 * band) * expected <= count <= (1 + band) * expected


def check(found, key):
    for name, expected in EXPECTED[key].items():
        assert within(found[name], expected), f"{key}: {name} {found[name]}, was {expected}"


@each(cls=CLASSES, threads=[1, 2])
def test_ssp_in_memory(cls, threads):
    """Rows of a matrix in memory are evaluated once, whatever is scanned."""
    found, stats = counts("ssp", cls, threads)
    check(found, f"ssp {cls}")
    assert stats["rows_scanned"] == sum(phase["rows_scanned"] for phase in stats["phases"])
    assert stats["rows_evaluated"] == N
    assert stats["pairs_evaluated"] == stats["certificate_pairs"] == N * N
    assert stats["cache_misses"] == stats["cache_bytes"] == 0


@each(cls=CLASSES, threads=[1, 2])
def test_compressed_in_memory(cls, threads):
    found, stats = counts("compressed", cls, threads)
    check(found, f"compressed {cls}")
    # No bounds, no blocks: whole rows, and the pairs of a sample.
    assert 0 <= stats["pairs_evaluated"] - stats["rows_evaluated"] * N < 300
    assert stats["certificate_pairs"] == N * N


@pytest.mark.some(3)
@each(cls=SWEEPS, policy=["lfu", "slru"], share=[1, 4, 16, 0])
def test_rows_asked_out_of_core(cls, policy, share):
    """What the solver says it evaluated is what the source was asked for, row by row."""
    slots = N // share if share else 1
    source = Counted(as_source(CLASSES[cls](N, 0)))
    cache = bigsap.RowCache(bytes=slots * 8 * N, policy=policy)
    stats = bigsap.solve(source, method="ssp", threads=1, cache=cache).stats
    assert stats["cache_slots"] == slots
    assert stats["cache_bytes"] == slots * 8 * N
    # Searches ask row by row; the certificate once more for every row that is not kept, in blocks
    # that a slow source gets smaller.
    assert source.rows == stats["rows_evaluated"] + N - slots
    assert stats["rows_evaluated"] <= source.calls <= stats["rows_evaluated"] + N - slots
    assert source.pairs == stats["pairs_evaluated"] + stats["certificate_pairs"] - slots * N
    assert stats["rows_evaluated"] == stats["cache_misses"]
    # Each scan and each row of a sweep is one look into the cache.
    looks = stats["cache_hits"] + stats["cache_misses"]
    assert looks == stats["rows_scanned"] + SWEEPS[cls] * N
    assert within(stats["rows_scanned"], EXPECTED[f"ssp {cls}"]["rows_scanned"])
    if share == 1:
        assert stats["cache_misses"] == N
        assert source.per_row.max() == 1
    else:
        assert stats["cache_misses"] <= looks
        # Sweeps leave the cache alone, searches hit it; even one row is found again at times.
        expected = {4: 0.06, 16: 0.015, 0: 0.0}[share]
        assert stats["cache_hits"] >= expected * looks
        if share == 0:
            assert stats["cache_hits"] <= 3


def test_hit_rates_of_the_policies():
    """Of the looks into a cache of a quarter: so many hits, in searches of random costs."""
    found = {}
    for policy in ("lfu", "slru"):
        cache = bigsap.RowCache(bytes=N // 4 * 8 * N, policy=policy)
        source = Counted(as_source(CLASSES["random"](N, 0)))
        found[policy] = bigsap.solve(source, method="ssp", threads=1, cache=cache).stats
    assert within(found["lfu"]["cache_misses"], 3120)
    assert within(found["slru"]["cache_misses"], 3269)
    assert found["lfu"]["cache_hits"] > found["slru"]["cache_hits"]


@pytest.mark.parametrize("cls", ["disjoint", "rank1", "int1n", "random"])
def test_rows_asked_by_lists(cls):
    """Rows that Python gives are asked for in few blocks, and counted as they are."""
    source = Counted(as_source(CLASSES[cls](N, 0)))
    stats = bigsap.solve(source, method="compressed", threads=1, cache=8 * N).stats
    # A cache of one row hardly ever finds one.
    assert source.rows <= stats["rows_evaluated"] + N <= source.rows + 1
    assert source.pairs <= stats["pairs_evaluated"] + stats["certificate_pairs"]
    # Blocks of rows: a request brings many, whatever the searches ask one by one.
    assert source.calls <= 30 + (source.rows - 2 * N) / 20
    # Costs of rank 1 in memory are answered without a search; whole rows do not tell.
    usual = 1655 if cls == "rank1" else EXPECTED[f"compressed {cls}"]["rows_evaluated"]
    assert stats["rows_evaluated"] <= 1.5 * usual


@pytest.mark.parametrize("cls", ["disjoint", "rank1", "int1n", "random"])
def test_rows_asked_once_where_all_fit(cls):
    source = Counted(as_source(CLASSES[cls](N, 0)))
    stats = bigsap.solve(source, method="compressed", threads=1).stats
    assert source.rows == stats["rows_evaluated"] == stats["cache_misses"] == N
    assert source.pairs == stats["pairs_evaluated"] == stats["certificate_pairs"] == N * N
    assert source.calls <= 4


@pytest.mark.parametrize(("cls", "n"), POINTS)
def test_bounds_spare_pairs(cls, n):
    """Points, all levels and bounds counted: a row of pairs is opened in part only."""
    found, stats = counts_of_points(cls, n)
    check(found, f"points {cls} {n}")
    assert found["pairs_evaluated"] < found["rows_evaluated"] * n / 1.8
    assert stats["certificate_pairs"] == n * n


def test_zarr_chunks_are_read_once_when_all_fit(tmp_path):
    """Four chunks of 75 rows: four reads for the solve, whatever is scanned."""
    zarr = pytest.importorskip("zarr")
    cost = CLASSES["random"](N, 0)
    store = zarr.create_array(str(tmp_path / "c.zarr"), shape=(N, N), chunks=(75, N), dtype="f8")
    store[:] = cost
    source = bigsap.from_zarr(tmp_path / "c.zarr")
    read, calls = source.read, []

    def counted(rows, columns, out):
        calls.append(len(rows))
        read(rows, columns, out)

    source.read = counted
    bigsap.solve(source, method="ssp", threads=1, cache=8 * N * N, certify=False)
    assert calls == [75] * 4


def held(structure):
    """Bytes of all arrays of a named tuple, views counted once."""
    arrays = {id(a if a.base is None else a.base): a for a in structure}
    return sum((a if a.base is None else a.base).nbytes for a in arrays.values())


@pytest.mark.parametrize("price", [np.float64, np.int64])
@pytest.mark.parametrize("threads", [1, 2])
def test_bytes_of_state(threads, price):
    """Six vectors of prices and labels and four of ids: nothing grows with n times m."""
    small, large = (held(allocate(n, n, np.dtype(price), threads, 0)) for n in (64 * 100, 64 * 200))
    vectors = (large - small) / (8 * 64 * 100)
    assert 5 + 4 * np.dtype(ID).itemsize / 8 <= vectors <= 5.1 + 4 * np.dtype(ID).itemsize / 8
    assert large - vectors * 8 * 64 * 200 < 20_000 * threads


def test_bytes_of_lists():
    """12 k bytes a row as the documentation says; what is only reserved takes no memory."""
    n, k = 1000, 128
    x, y = points_of("disjoint", n)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        with Team(1) as team:
            problem = Problem(as_source(bigsap.points(x, y)))
            engine = ListEngine(problem, team, Monitor(), np.dtype(float), k, 0)
            engine.evaluate(np.arange(n))
            after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    reserved = engine.lists.ids.nbytes + engine.lists.costs.nbytes
    assert engine.list_bytes == 12 * k * n
    assert held(engine.lists) - reserved <= 2 * k * n
    assert after - before - reserved <= 6 * k * n


if __name__ == "__main__":
    FILE.write_text(json.dumps(measure(), indent=1) + "\n")
    sys.exit(0)
