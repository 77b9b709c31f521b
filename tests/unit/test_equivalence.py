"""Sources, threads, caches and policies must not show in the answer.

Every solve here is compared twice: with the true optimum (``oracle``), and bit for bit
with the solve of the plain array on one thread.
"""

from __future__ import annotations

import warnings
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap
from bigsap import RowCache
from bigsap.sources import Counted, as_source
from contracts import whole
from examples_of import examples
from instances import CLASSES, integers, points_of, squared_distances
from oracle import optimum, value
from pairwise import each


def solve(cost, **options):
    """By the engine that all sources share: small arrays alone have a method of their own."""
    return bigsap.solve(cost, **{"method": "ssp", **options})


class Sliced:
    """No more than ``shape``, ``dtype`` and ``__getitem__``."""

    def __init__(self, cost):
        self.shape, self.dtype, self._cost = cost.shape, cost.dtype, cost

    def __getitem__(self, key):
        return self._cost[key]


def looked_up(i, j, c):
    """One function, compiled once for each type of ``c``."""
    return c[i, j]


def by_value(cost):
    return {"cost": looked_up, "shape": cost.shape, "args": (cost,), "dtype": cost.dtype}


def by_row(cost):
    return {"cost": bigsap.from_function(lambda i: cost[i].copy(), cost.shape, kind="row")}


def by_part(cost):
    def part(i, start, stop):
        return cost[i, start:stop].copy()

    return {"cost": bigsap.from_function(part, cost.shape, kind="part")}


def by_block(cost):
    def block(rows, out):
        out[:] = cost[rows]

    return {"cost": bigsap.from_function(block, cost.shape, kind="block", dtype=cost.dtype)}


#: How the same numbers may be presented; each gives the keywords of ``solve``.
SOURCES = {
    "array": lambda cost: {"cost": cost},
    "list": lambda cost: {"cost": cost.tolist(), "dtype": cost.dtype},
    "strided": lambda cost: {"cost": np.repeat(np.repeat(cost, 2, axis=0), 2, axis=1)[::2, ::2]},
    "big-endian": lambda cost: {"cost": cost.astype(cost.dtype.newbyteorder(">"))},
    "read by rows": lambda cost: {"cost": Counted(as_source(cost))},
    "sliced": lambda cost: {"cost": Sliced(cost)},
    "value": by_value,
    "row": by_row,
    "part": by_part,
    "block": by_block,
}
#: These are read from a cache; the others lie in memory.
CACHED = ["read by rows", "sliced", "value", "row", "part", "block"]


def answer(cost, keywords, **more):
    with warnings.catch_warnings():
        # A function that is not compiled says so, which is not the matter here.
        warnings.simplefilter("ignore")
        return solve(**keywords, **more)


def assert_identical(found, expected):
    for name in ("col4row", "row4col", "row_ind", "col_ind", "u", "v"):
        np.testing.assert_array_equal(found[name], expected[name], strict=True)
    for name in ("fun", "bound", "gap", "status", "nit", "shape"):
        assert found[name] == expected[name]
    assert found.stats["rows_scanned"] == expected.stats["rows_scanned"]


def assert_optimal(res, cost, maximize=False):
    assert res.status == "optimal", res.message
    assert len(res.row_ind) == min(cost.shape)
    best, _ = optimum(cost, maximize)
    exact = value(cost, res.row_ind, res.col_ind)
    room = 0 if cost.dtype.kind in "iu" else Fraction(1e-12) * (1 + abs(best))
    assert abs(exact - best) <= room
    assert abs(Fraction(res.fun) - exact) <= room
    res.verify(cost)


def assert_same_answer(found, expected):
    """Same assignment and values; duals and effort may differ."""
    np.testing.assert_array_equal(found.col4row, expected.col4row, strict=True)
    assert (found.fun, found.status) == (expected.fun, expected.status)


@st.composite
def problems(draw, largest=11):
    """A matrix, the sense, and whether it is feasible."""
    n, m = draw(st.integers(1, largest)), draw(st.integers(1, largest))
    if draw(st.booleans()):
        m = n
    dtype = draw(st.sampled_from(["f8", "f4", "u2", "u1"]))
    # From a constant matrix over massive ties to hardly any.
    values = draw(st.sampled_from([1, 2, 3, 10, 1000]))
    maximize = draw(st.booleans())
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    cost = rng.integers(0, min(values, 256), (n, m)).astype(dtype)
    if dtype in ("f8", "f4"):
        cost = (cost * 0.37 - 1).astype(dtype)
        if draw(st.booleans()):
            cost = (cost + rng.random((n, m))).astype(dtype)
        share = draw(st.sampled_from([0.0, 0.0, 0.15, 0.4]))
        cost[rng.random((n, m)) < share] = -np.inf if maximize else np.inf
    return cost, maximize


@examples(60)
@given(
    problem=problems(),
    name=st.sampled_from(list(SOURCES)),
    threads=st.sampled_from([1, 2, 3]),
    rows=st.sampled_from([1, 2, 3, "n/4", "all"]),
    policy=st.sampled_from(["slru", "lfu", "auto"]),
    epsilon=st.booleans(),
)
def test_sources_threads_caches_and_policies_agree(problem, name, threads, rows, policy, epsilon):
    cost, maximize = problem
    n, m = cost.shape
    options = {"maximize": maximize, "epsilon": epsilon}
    # A tall array is turned, a source that gives rows is not: another way to an optimum.
    turned = n > m and name not in CACHED
    first = cost if n <= m or turned else Counted(as_source(cost))
    expected = solve(first, threads=1, **options)
    slots = {"n/4": max(1, n // 4), "all": n}.get(rows, rows)
    cache = RowCache(bytes=slots * (n if turned else m) * cost.itemsize, policy=policy)
    found = answer(cost, SOURCES[name](cost), threads=threads, cache=cache, **options)
    if optimum(cost, maximize) is None:
        assert expected.status == found.status == "infeasible"
        np.testing.assert_array_equal(found.violator, expected.violator)
        expected.verify(cost)
        return
    assert_optimal(expected, cost, maximize)
    assert_identical(found, expected)


@each(policy=["slru", "lfu", "auto"], rows=[1, 2, 3, 8, 32], name=CACHED)
def test_caches_of_every_size(name, rows, policy):
    n = 32
    for cost in (CLASSES["disjoint"](n, seed=2), integers(n, seed=2, factor=0.1, dtype=np.int32)):
        expected = solve(cost, threads=1)
        cache = RowCache(bytes=rows * n * cost.itemsize, policy=policy)
        found = answer(cost, SOURCES[name](cost), cache=cache, threads=2)
        assert_identical(found, expected)
        if rows == n:
            assert found.stats["rows_evaluated"] == n
        assert found.stats["cache_misses"] >= n


@each(epsilon=[True, False], name=CLASSES)
def test_threads_agree_on_every_class(name, epsilon):
    cost = CLASSES[name](90, seed=7)
    expected = solve(cost, threads=1, epsilon=epsilon)
    assert_optimal(expected, cost)
    for threads in (2, 3):
        assert_identical(solve(cost, threads=threads, epsilon=epsilon), expected)


@each(maximize=[False, True], shape=[(20, 20), (12, 20), (20, 12)], name=["random", "int0.1n"])
def test_stored_by_columns(name, shape, maximize):
    """Solved by its columns: among ties another choice is allowed, another cost is not."""
    cost = np.ascontiguousarray(CLASSES[name](20, seed=5)[: shape[0], : shape[1]])
    expected = solve(cost, maximize=maximize)
    found = solve(np.asfortranarray(cost), maximize=maximize)
    assert_optimal(found, cost, maximize)
    if name == "random":
        np.testing.assert_array_equal(found.col4row, expected.col4row)
    expected = solve(np.asfortranarray(cost), maximize=maximize, threads=1)
    assert_identical(solve(np.asfortranarray(cost), maximize=maximize, threads=3), expected)


@pytest.mark.parametrize("kind", ["path", "memmap", "from_npy"])
def test_files(kind, tmp_path):
    for k, cost in enumerate((CLASSES["geometric"](33, seed=1)[:29], integers(33, factor=0.1))):
        expected = solve(cost, threads=1)
        path = tmp_path / f"{k}.npy"
        np.save(path, cost)
        given = {
            "path": lambda p: str(p),
            "memmap": lambda p: np.load(p, mmap_mode="r"),
            "from_npy": bigsap.from_npy,
        }[kind](path)
        for threads, rows in ((1, 33), (2, 3), (3, 1)):
            assert_identical(solve(given, threads=threads, cache=rows * cost[0].nbytes), expected)


@pytest.mark.some(1)
@pytest.mark.parametrize("kind", ["raw", "one chunk", "compressed", "sharded"])
def test_stores(kind, tmp_path):
    """Rows of a store are visited chunk by chunk: duals and ties may fall otherwise than
    in memory, but not otherwise for another number of threads or another cache."""
    zarr = pytest.importorskip("zarr")
    options = {
        "raw": {"chunks": (4, 33), "compressors": None},
        "one chunk": {"chunks": (33, 33), "compressors": None},
        "compressed": {"chunks": (4, 33)},
        "sharded": {"chunks": (4, 33), "shards": (12, 33)},
    }[kind]
    small = integers(33, factor=0.1, dtype=np.int32)
    for k, cost in enumerate((CLASSES["geometric"](33, seed=1)[:29], small)):
        store = zarr.create_array(tmp_path / f"{k}", shape=cost.shape, dtype=cost.dtype, **options)
        store[:] = cost
        first = solve(store, threads=1)
        assert_optimal(first, cost)
        if k == 0:
            assert_same_answer(first, solve(cost))
        # A cache of one row or of all has no choice.
        for threads, rows, policy in (1, 33, "lfu"), (2, 9, "slru"), (2, 9, "lfu"), (3, 1, "slru"):
            cache = RowCache(bytes=rows * cost[0].nbytes, policy=policy)
            given = bigsap.from_zarr(tmp_path / f"{k}")
            assert_identical(solve(given, threads=threads, cache=cache), first)


@each(dtype=[np.int32, np.int64], factor=[0.1, 1, 1000])
def test_wide_integers_from_a_cache(factor, dtype):
    cost = integers(40, seed=5, factor=factor)[:25].astype(dtype)
    first = None
    for name in CACHED:
        for rows in (3, 25):
            found = answer(cost, SOURCES[name](cost), threads=2, cache=rows * cost[0].nbytes)
            first = first or found
            assert_identical(found, first)
    assert_optimal(first, cost)
    assert first.fun == solve(cost).fun


def test_computed_costs_equal_the_matrix_of_the_same_numbers():
    x, y = points_of("disjoint", 60, seed=3)
    cost = squared_distances(x, y)
    source = bigsap.points(x, y)
    matrix = whole(source)
    np.testing.assert_allclose(matrix, cost, rtol=1e-15)
    expected = solve(matrix, threads=1)
    assert_optimal(expected, matrix)
    for threads in (1, 2, 3):
        for rows in (1, 15, 60):
            found = solve(bigsap.points(x, y), threads=threads, cache=rows * matrix[0].nbytes)
            assert_identical(found, expected)

    def square(i, j, x, y):
        return (x[i, 0] - y[j, 0]) ** 2 + (x[i, 1] - y[j, 1]) ** 2

    found = solve(square, shape=(60, 60), args=(x, y), cache=5 * matrix[0].nbytes, threads=2)
    assert_optimal(found, cost)


@pytest.mark.parametrize("name", ["disjoint", "int0.1n"])
def test_the_same_seed_gives_the_same_answer_any_seed_the_same_cost(name):
    cost = CLASSES[name](50, seed=8)
    first = solve(cost, seed=1)
    assert_identical(solve(cost, seed=1), first)
    for seed in (0, 2, 12345):
        assert_optimal(solve(cost, seed=seed), cost)


@pytest.mark.parametrize("maximize", [False, True])
def test_maximising_is_minimising_the_negative(maximize):
    for cost in (CLASSES["rank2"](40, seed=2)[:30], integers(40, seed=2, factor=0.3)[:, :30]):
        a = solve(cost, maximize=maximize)
        b = solve(-cost, maximize=not maximize)
        np.testing.assert_array_equal(a.col4row, b.col4row)
        np.testing.assert_array_equal(a.u, -b.u)
        np.testing.assert_array_equal(a.v, -b.v)
        assert (a.fun, a.bound, a.gap) == (-b.fun, -b.bound, b.gap)
