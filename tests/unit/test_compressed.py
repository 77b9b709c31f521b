"""Compressed rows: the optimum on every input, and few evaluations."""

from __future__ import annotations

import threading
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment as reference

import bigsap
from bigsap import policy
from bigsap.engine.core.precision import choose
from bigsap.engine.core.team import Team
from bigsap.engine.lists import list_engine as engine_compressed
from bigsap.engine.rows.row_engine import Engine
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources import as_source
from bigsap.sources.wrappers import Counted
from bigsap.strategies import lists
from bigsap.strategies.list_run import ListSettings, ListSolve
from bigsap.strategies.lists import solve_compressed
from examples_of import examples
from instances import CLASSES
from pairwise import each


def optimum(cost, maximize=False):
    try:
        rows, columns = reference(cost, maximize)
    except ValueError:
        return None
    return cost[rows, columns].sum(dtype=float)


def by_lists(cost, k, *, epsilon=True, maximize=False, threads=1, source=None):
    """The bare method, without the repair that ``solve`` would add."""
    problem = Problem(source or as_source(cost), maximize)
    solved = ListSolve()
    with Team(threads) as team:
        setting = ListSettings(team, Monitor(), choose(problem), epsilon, 0, k)
        solve_compressed(problem, setting, solved)
    return solved


def check(cost, solved, maximize=False):
    """Complete, allowed, optimal; or infeasible with a set of rows that proves it."""
    best = optimum(cost, maximize)
    found = solved.outcome
    forbidden = -np.inf if maximize else np.inf
    if best is None:
        rows = found.violator
        allowed = (cost[rows] != forbidden).any(axis=0).sum()
        assert len(rows) - allowed > max(cost.shape[0] - cost.shape[1], 0)
        return
    rows = np.flatnonzero(found.column_of_row >= 0)
    columns = found.column_of_row[rows]
    assert len(rows) == min(cost.shape) == len(set(columns.tolist()))
    value = cost[rows, columns].sum(dtype=float)
    assert value == pytest.approx(best, abs=1e-9 * max(1.0, float(np.abs(cost[rows, columns]).max())))


@examples(150)
@given(
    st.integers(1, 14),
    st.integers(1, 14),
    st.integers(1, 6),
    st.integers(0, 2**32 - 1),
    st.sampled_from(["real", "ties", "holes", "integers", "offset"]),
    st.booleans(),
    st.booleans(),
)
def test_small_problems(n, m, k, seed, kind, epsilon, maximize):
    generator = np.random.default_rng(seed)
    cost = generator.random((n, m))
    if kind == "ties":
        cost = generator.integers(0, 3, (n, m)).astype(float)
    elif kind == "holes":
        cost[generator.random((n, m)) < 0.3] = -np.inf if maximize else np.inf
    elif kind == "integers":
        cost = generator.integers(-50, 50, (n, m))
    elif kind == "offset":
        cost = (cost + 1e4).astype(np.float32)
    check(cost, by_lists(cost, k, epsilon=epsilon, maximize=maximize), maximize)


@each(name=sorted(CLASSES), k=[1, 4, 128])
def test_every_class(name, k):
    cost = CLASSES[name](120, seed=2)
    check(cost, by_lists(cost, k))


@pytest.mark.parametrize("name", ["geometric", "int0.1n"])
def test_identical_for_any_number_of_threads(name):
    cost = CLASSES[name](900, seed=1)
    one = bigsap.solve(cost, method="compressed", threads=1)
    for threads in (2, 3):
        many = bigsap.solve(cost, method="compressed", threads=threads)
        assert np.array_equal(one.col4row, many.col4row)
        assert np.array_equal(one.v, many.v)
        assert one.stats["rows_evaluated"] == many.stats["rows_evaluated"]
    assert one.fun == pytest.approx(optimum(cost), rel=1e-12)


def test_rows_through_python_are_those_counted():
    """The counters against a source that counts what it was asked for."""
    cost = CLASSES["disjoint"](800, seed=5)
    source = Counted(as_source(cost))
    res = bigsap.solve(source, method="compressed", threads=1, cache=8 * 800)
    assert res.fun == pytest.approx(optimum(cost), rel=1e-12)
    certificate_rows = res.stats["certificate_pairs"] // 800
    # The proof finds the one row that is kept.
    assert source.rows == res.stats["rows_evaluated"] + certificate_rows - 1
    assert certificate_rows == 800
    # A1015 scans about 28 rows a row here.
    assert res.stats["rows_evaluated"] < 12 * 800


def test_searches_that_wait_for_rows_are_not_begun_again_too_often():
    cost = CLASSES["disjoint"](1000, seed=2)
    res = bigsap.solve(Counted(as_source(cost)), method="compressed", certify=False, cache=8000)
    assert res.stats["rows_scanned"] < 500 * 1000


def test_lists_double_when_ties_exhaust_them():
    """Two columns a row are useless where hundreds tie."""
    generator = np.random.default_rng(0)
    cost = generator.integers(0, 2, (300, 300)).astype(float)
    cost[:, 0] = 0
    solved = by_lists(cost, 2)
    check(cost, solved)


def test_prices_of_1e15():
    generator = np.random.default_rng(1)
    cost = generator.random((60, 60)) * 1e15
    check(cost, by_lists(cost, 3))


def test_duplicate_points():
    x = np.repeat(np.arange(10.0), 40)[:, None]
    cost = (x - np.repeat(np.arange(5.0, 15.0), 40)) ** 2
    check(cost, by_lists(cost, 8, source=bigsap.points(x, x + 5)))


def test_bad_costs_are_named():
    cost = np.random.default_rng(2).random((900, 900))
    cost[700, 33] = np.nan
    with pytest.raises(bigsap.InvalidCostError) as caught:
        bigsap.solve(cost, method="compressed")
    assert (caught.value.row, caught.value.column) == (700, 33)
    cost[700, 33] = -np.inf
    with pytest.raises(bigsap.InvalidCostError):
        bigsap.solve(cost, method="compressed")


def test_large_integers_are_exact_or_refused():
    generator = np.random.default_rng(3)
    cost = generator.integers(0, 1 << 45, (50, 50))
    res = bigsap.solve(cost, method="compressed")
    rows, columns = reference(cost)
    assert res.fun == int(cost[rows, columns].sum())
    with pytest.raises(bigsap.OverflowRiskError):
        bigsap.solve(cost << 17, method="compressed")


@pytest.mark.some(3)
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
@pytest.mark.parametrize("shape", [(120, 120), (90, 120), (120, 90)])
def test_stopped_at_any_tick_the_answer_is_honest(shape, dtype, maximize, monkeypatch):
    """Bound, cost and assignment hold whenever the solve is stopped, and get better."""
    monkeypatch.setattr(engine_compressed, "_SLICE_SECONDS", 0)
    for name in ("_FIRST_ENTRIES", "_FIRST_PAIRS", "_LEAST_WORK"):
        monkeypatch.setattr(engine_compressed, name, 1)
    monkeypatch.setattr(policy, "LIST_SIZE", 8)
    cost = CLASSES["disjoint"](120, seed=1)[: shape[0], : shape[1]]
    cost = np.rint(cost * 1000).astype(dtype) if dtype == "i4" else cost.astype(dtype)
    source = bigsap.from_function(lambda i: cost[i], shape, kind="row", dtype=cost.dtype, compiled=False)
    best, sign = optimum(cost, maximize), -1 if maximize else 1
    gaps = []
    for after in (2, 5, 12, 30, 80, 200, 500, 10**6):
        seen = []

        def stop(state, seen=seen, after=after):
            seen.append((state.lower_bound, state.upper_bound))
            if len(seen) > after:
                raise StopIteration

        res = bigsap.solve(source, maximize=maximize, method="compressed", callback=stop, callback_every=0)
        assert sign * res.fun >= sign * best - 1e-4
        assert len(res.row_ind) == min(shape)
        if res.bound is None:  # not even one pass over the rows
            assert seen[-1][0] is None
            assert seen[-1][1] is None
            continue
        assert sign * res.bound <= sign * best + 1e-4
        res.verify(cost)
        gaps.append(res.gap)
        for low, high in seen:
            assert low is None or low <= best + 1e-4
            assert high is None or high >= best - 1e-4
        if res.status == "optimal":
            break
    assert gaps[-1] <= 1e-9 * abs(best)


def test_stopped_without_a_pass_over_the_costs(clock):
    """Lists alone prove a bound, and know the cost: nothing slow is read at the end."""
    n = 300
    cost = CLASSES["disjoint"](n, seed=1)
    slow, late = threading.Event(), []
    last = bigsap.solve(cost, method="compressed").nit

    def row(i):
        if slow.is_set():
            late.append(i)
            clock.sleep(0.1)
        return cost[i]

    def stop(state):
        if state.phase == last:
            slow.set()
            raise StopIteration

    source = bigsap.from_function(row, (n, n), kind="row", compiled=False)
    res = bigsap.solve(source, method="compressed", callback=stop, callback_every=1000)
    assert len(late) < n / 2  # a pass reads them all
    assert res.status == "cancelled"
    best = optimum(cost)
    assert res.bound <= best <= res.fun
    assert res.fun < 1.1 * best
    slow.clear()
    res.verify(cost)


@pytest.mark.some(2)
@each(share=[3.0, 0.1, 0.003], maximize=[False, True], shape=[(500, 500), (400, 500)])
def test_gap(share, maximize, shape):
    cost = CLASSES["disjoint"](500, seed=2)[: shape[0], : shape[1]].copy()
    best = optimum(cost, maximize)
    full = bigsap.solve(cost, maximize=maximize, method="compressed")
    res = bigsap.solve(cost, maximize=maximize, method="compressed", gap=share * abs(best))
    assert res.success
    assert res.gap <= share * abs(best)
    assert abs(res.fun - best) <= share * abs(best) + 1e-9
    res.verify(cost)
    if share > 1:
        assert res.status == "gap_reached"
        assert res.nit < full.nit
        assert res.stats["rows_evaluated"] < full.stats["rows_evaluated"]
    # One pass over the costs and no more: the lists' own bound says when.
    assert res.stats["certificate_pairs"] == shape[0] * shape[1]


def test_a_source_whose_bounds_are_dropped():
    """Far point sets under a metric whose boxes bound little: the probe's own rows count too."""
    generator = np.random.default_rng(11)
    x, y = generator.random((2500, 2)), generator.random((2500, 2)) + 1
    source = bigsap.points(x, y, "euclidean")
    res = bigsap.solve(source, method="compressed")
    assert res.status == "optimal"
    assert res.fun == pytest.approx(bigsap.solve(source, method="ssp").fun, rel=1e-12)


@pytest.mark.parametrize("really", [False, True])
def test_infeasible_is_proved_or_not_said(really, monkeypatch):
    """A wrong "infeasible" of the lists is found out, and the dense engine solves."""
    cost = np.random.default_rng(0).random((60, 60))
    if really:
        cost[:3, 2:] = np.inf

    def wrong(problem, setting, solved, *rest):
        lists.solve_compressed(problem, setting, solved, *rest)
        solved.outcome = replace(solved.outcome, column_of_row=None, violator=np.array([7]))

    monkeypatch.setattr("bigsap.run.on_lists.solve_compressed", wrong)
    res = bigsap.solve(cost, method="compressed")
    assert res.status == ("infeasible" if really else "optimal")
    if really:
        assert sorted(res.violator) == [0, 1, 2]
    else:
        assert res.fun == pytest.approx(optimum(cost))
    res.verify(cost)


def test_a_row_without_an_allowed_column_warns_of_nothing():
    """Bounds by the lists of such a row are infinite; no arithmetic is done with them."""
    cost = np.random.default_rng(0).random((40, 60))
    cost[3] = np.inf
    assert bigsap.solve(cost, method="compressed").status == "infeasible"
    cost = np.random.default_rng(0).random((60, 40))
    cost[3] = np.inf
    assert bigsap.solve(cost, method="compressed").status == "optimal"


@pytest.mark.parametrize("options", [{}, {"certify": False}, {"gap": 0.5}, {"callback": lambda _: None}])
def test_lists_build_no_engine_for_whole_rows(options, monkeypatch):
    def never(self, problem, *rest):
        raise AssertionError(f"built for {problem.shape}")

    monkeypatch.setattr(Engine, "__init__", never)
    cost = CLASSES["geometric"](90, 0)
    assert bigsap.solve(cost, method="compressed", **options).success
    forbidden = np.where(np.arange(90)[:, None] < 50, np.inf, cost)
    forbidden[:50, :40] = cost[:50, :40]
    if options.get("certify", True):
        assert bigsap.solve(forbidden, method="compressed", **options).status == "infeasible"
    seen = []
    stopped = bigsap.solve(
        cost, method="compressed", callback=lambda p: bool(seen.append(p)) or len(seen) > 3
    )
    assert stopped.status in ("cancelled", "optimal")
    assert (np.sort(stopped.col4row) == np.arange(90)).all()


# -- memory ----------------------------------------------------------------------------


def test_lists_fit_into_the_memory_allowed(monkeypatch):
    widths = []
    make = lists.list_engine_for

    def noted(problem, team, monitor, price, k, seed):
        widths.append(k)
        return make(problem, team, monitor, price, k, seed)

    monkeypatch.setattr(lists, "list_engine_for", noted)
    cost = CLASSES["geometric"](800, 1)
    wanted = bigsap.solve(cost, method="compressed")
    for limit in (800 * 12 * 2 * 40, 800 * 8):  # and a single row
        res = bigsap.solve(cost, method="compressed", memory_limit=limit)
        assert np.array_equal(res.col4row, wanted.col4row)
    assert widths == [64, 40, 16]


@each(maximize=[False, True], dtype=["f8", "f4", "i4"], method=["auto", "compressed"])
def test_tall_matrices_in_memory_are_solved_by_their_columns(dtype, maximize, method):
    cost = (np.random.default_rng(3).random((1300, 1000)) * 1000).astype(dtype)
    if dtype != "i4":
        cost[5, :40] = -np.inf if maximize else np.inf
    res = bigsap.solve(cost, maximize=maximize, method=method)
    taken = "ssp" if method == "auto" else method
    assert (res.stats["method"], res.stats["transposed"]) == (taken, True)
    rows, columns = reference(cost, maximize)
    if dtype != "i4":  # no ties
        np.testing.assert_array_equal(res.col4row[rows], columns)
    assert res.fun == pytest.approx(cost[rows, columns].astype(float).sum(), rel=1e-12)
    res.verify(cost)
    assert res.stats["rows_evaluated"] < 1.6 * 1000


@each(dtype=["f8", "i2", "f2"], method=["ssp", "compressed", "hungarian", "auction"])
def test_a_matrix_in_memory_is_solved_the_same_way_however_it_lies(dtype, method):
    """By the shorter side: others take many times the scans."""
    cost = (np.random.default_rng(3).random((150, 400)) * 1000).astype(dtype)
    by_rows = bigsap.solve(cost, method=method)
    for wide in (np.asfortranarray(cost), np.ascontiguousarray(cost.T).T):
        res = bigsap.solve(wide, method=method)
        assert np.array_equal(res.col4row, by_rows.col4row)
        assert res.stats["rows_scanned"] == by_rows.stats["rows_scanned"]
        assert res.stats["transposed"] is False
        res.verify(cost)
    for tall in (np.ascontiguousarray(cost.T), cost.T):
        res = bigsap.solve(tall, method=method)
        assert np.array_equal(res.row4col, by_rows.col4row)
        assert res.stats["rows_scanned"] == by_rows.stats["rows_scanned"]
        assert res.stats["transposed"] is True


def test_a_wide_matrix_by_columns_keeps_to_the_memory_limit():
    cost = np.random.default_rng(3).random((150, 1000))
    wanted = bigsap.solve(cost)
    for limit in (150 * 1000 * 8, 40_000):
        res = bigsap.solve(np.asfortranarray(cost), memory_limit=limit)
        assert np.array_equal(res.col4row, wanted.col4row)
        assert res.stats["rows_scanned"] < 3 * 150
        assert res.stats["rows_evaluated"] < 3 * 150


def test_tall_matrices_in_files_are_read_by_rows(tmp_path):
    """A column of a mapped file may be a page an item."""
    np.save(tmp_path / "c.npy", np.random.default_rng(3).random((1300, 1000)))
    res = bigsap.solve(bigsap.from_npy(tmp_path / "c.npy"))
    assert (res.stats["method"], res.stats["transposed"]) == ("compressed", False)
    assert res.stats["rows_evaluated"] < 3 * 1300


@each(
    name=["disjoint", "geometric", "random", "rank2", "int0.1n", "int10n"],
    m=[60, 110, 200, 299],
    maximize=[False, True],
)
def test_phases_with_virtual_columns(name, m, maximize):
    """Short lists, many phases, and most rows without a real column or hardly any."""
    cost = CLASSES[name](300, seed=6)[:, :m].copy()
    for k in (4, 30):
        solved = by_lists(cost, k, maximize=maximize, source=Counted(as_source(cost)))
        check(cost, solved, maximize)
        if 4 * m > 300 and name == "disjoint":
            assert len(solved.outcome.phases) > 2
        assert len(solved.outcome.phases) == 1 or 4 * m > 300


@pytest.mark.parametrize("m", [110, 290])
def test_phases_with_virtual_columns_and_forbidden_pairs(m):
    generator = np.random.default_rng(m)
    cost = CLASSES["disjoint"](300, seed=6)[:, :m].copy()
    cost[generator.random(cost.shape) < 0.9] = np.inf
    cost[:: 300 // (300 - m)] = np.inf  # rows without any; too many of them when m is large
    check(cost, by_lists(cost, 5))


def test_phases_with_virtual_columns_spare_work():
    """One phase made 469 scans and 19 evaluations a row."""
    cost = CLASSES["disjoint"](1600, seed=1)[:, :1200].copy()
    solved = by_lists(cost, 128)
    check(cost, solved)
    assert solved.totals().scans <= 100 * 1600
    assert solved.totals().rows <= 8 * 1600


@pytest.mark.parametrize("share", [0.1, 0.001])
def test_gap_with_virtual_columns(share):
    cost = CLASSES["disjoint"](900, seed=2)[:, :700].copy()
    best = optimum(cost)
    res = bigsap.solve(Counted(as_source(cost)), method="compressed", gap=share * abs(best))
    assert best - 1e-9 <= res.fun <= best + share * abs(best)
    assert res.bound <= best + 1e-9
    for when in res.stats["gaps"]:
        assert when["lower_bound"] <= best + 1e-9 <= when["upper_bound"] + 2e-9
