"""Matrices of which a few rows and columns are far from all others: searched without their sizes."""

from __future__ import annotations

import importlib
import shutil
import threading
import weakref
from fractions import Fraction
from functools import partial

import numpy as np
import pytest

import bigsap
from bigsap.problem import Problem
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.strategies import far_lines
from bigsap.strategies.far_lines import near_costs
from gate import Counting

N = 1100
FAMILIES = {
    "uniform": lambda rng, n: rng.random((n, n)),
    "lognormal": lambda rng, n: rng.lognormal(size=(n, n)),
    "whole": lambda rng, n: rng.integers(0, 1000, (n, n)).astype(float),
    "around": lambda rng, n: rng.normal(size=(n, n)) - 1e6,
}


def with_lines(cost, rows, columns, size, sign=1.0):
    """Add a number to rows and columns, to their common pairs both."""
    cost = cost.copy()
    cost[rows] += size
    cost[:, columns] += sign * size
    return cost


def difference(cost, i, k, j, other):
    """Of the two assignments of two rows to two columns, exactly."""
    a, b, c, d = (Fraction(float(cost[pair])) for pair in ((i, j), (i, other), (k, j), (k, other)))
    return a - b - c + d


def near(cost, maximize=False):
    return near_costs(Problem(ArraySource(cost), maximize))


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(
    ("family", "dtype"), [*((family, float) for family in FAMILIES), ("uniform", np.float32)]
)
def test_nothing_is_rounded(family, dtype, maximize):
    """Differences of two rows and two columns stay what they are, to the last bit."""
    rng = np.random.default_rng(5)
    for size, sign, rows, columns in (
        (1e9, 1.0, [3], [7]),
        (1e13, -1.0, [3, 9], [0, 200]),
        (-1e18, 1.0, [], [1]),
        (2.0**60, 1.0, [], range(40, 52)),
    ):
        cost = with_lines(FAMILIES[family](rng, 210), list(rows), list(columns), size, sign).astype(dtype)
        found = near(cost, maximize)
        assert found is not None
        less = found.problem.source.array
        assert np.ptp(less) < 1e-3 * abs(size)
        assert np.flatnonzero(found.of_columns).tolist() == list(columns)
        for i, k in ((3, 5), (9, 11), (100, 3)):
            for j, other in ((7, 200), (1, 40), (50, 7), (30, 31)):
                assert difference(cost, i, k, j, other) == difference(less, i, k, j, other)


def test_where_no_number_can_be_subtracted():
    rng = np.random.default_rng(6)
    cost = rng.random((210, 210))
    far = with_lines(cost, [], [7], 1e9)
    assert near(far) is not None
    assert near(cost) is None
    assert near(with_lines(cost, [5], [], 1e9)) is None  # rows alone need no help
    assert near(far[:19, :19]) is None
    assert near(far[:-1]) is None
    for value in (np.inf, np.nan, 1e300, 1e-9):
        other = far.copy()
        other[100, 7] = value
        assert near(other) is None
    spread = cost.copy()
    spread[:, 7] *= 1e9
    assert near(spread) is None
    # The pair of the row and the column would still be far from all others.
    crossed = with_lines(cost, [3], [7], 1e9)
    crossed[3, 7] = 1.0
    assert near(crossed) is None
    assert near(with_lines(cost, [], range(100), 1e9)) is None


def searched_near(result):
    return "far from all others" in result.stats["why"]


@pytest.mark.some(1)
@pytest.mark.parametrize("maximize", [False, True])
def test_options(maximize):
    cost = with_lines(FAMILIES["uniform"](np.random.default_rng(8), N), [5], [7, 8], 1e12)
    cost = -cost if maximize else cost
    best = bigsap.solve(cost, maximize=maximize)
    for options in (
        {"certify": False},
        {"certify": "pairs"},
        {"seed": 3},
        {"threads": 2},
        {"callback": lambda _: None},
        {"time_limit": 3600.0},
        {"cancel": threading.Event()},
        {"method": "ssp"},
        {"method": "compressed"},
        {"method": "hungarian"},
        {"epsilon": False},
        {"start": "none"},
        {"warm_start": best},
        {"warm_start": best.v},
        {"warm_start": (best.v, best.col4row)},
        {"warm_start": bigsap.solve(cost, maximize=maximize, memory_limit="1 GiB")},
    ):
        result = bigsap.solve(cost, maximize=maximize, **options)
        assert searched_near(result), options
        assert (result.fun, result.stats["refined"]) == (best.fun, 0)
        result.verify(cost)
    # A copy fits no limit, and bids take the costs as they are.
    for options in ({"memory_limit": "1 GiB"}, {"method": "auction"}):
        result = bigsap.solve(cost, maximize=maximize, **options)
        assert not searched_near(result), options
        assert result.fun == best.fun
        result.verify(cost)


def test_views_that_are_searched_as_they_lie():
    """Whatever the order of their memory: the copy is of rows, and its answer is the user's."""
    cost = with_lines(FAMILIES["uniform"](np.random.default_rng(11), N) + 10, [], [7], 1e3)
    best = bigsap.solve(cost, method="ssp").fun
    apart = np.zeros((2 * N, 2 * N), order="F")
    apart[::2, ::2] = cost
    turned = np.asfortranarray(cost[::-1])[::-1]
    for view in (apart[::2, ::2], np.asfortranarray(cost), turned):
        for certify in (True, False):
            result = bigsap.solve(view, certify=certify)
            assert (result.fun, result.stats["refined"]) == (best, 0)
    assert near(apart[::2, ::2]).problem.source.array.flags.c_contiguous


def test_gaps_and_stops_are_those_of_the_given_costs():
    cost = with_lines(FAMILIES["uniform"](np.random.default_rng(12), 2500), [5], [7], 1e4)
    best, near_enough = bigsap.solve(cost), bigsap.solve(cost, gap=10.0)
    assert near_enough.status == "gap_reached"
    assert near_enough.stats["rows_scanned"] < best.stats["rows_scanned"]
    assert best.fun <= near_enough.fun <= best.fun + 10


def stop_at(stage, phase, seen):
    """A callback that ends the solve at the first report of a stage and phase."""

    def look(progress):
        seen.append((progress.lower_bound, progress.upper_bound))
        if (progress.stage, progress.phase) == (stage, phase):
            raise StopIteration

    return look


@pytest.mark.some(2)
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("family", ["uniform", "lognormal"])
def test_reports_and_stopped_answers_are_those_of_the_given_costs(family, maximize, tmp_path):
    """At each phase: bounds enclose the optimum, and a resumed solve ends as if it had not been stopped."""
    rng = np.random.default_rng(9)
    cost = with_lines(FAMILIES[family](rng, 1700), [5, 11], [7, 8], 1e11, sign=-0.5)
    cost = -cost if maximize else cost
    plain = bigsap.solve(cost, maximize=maximize)
    phases = plain.nit
    assert searched_near(plain)
    assert phases >= 3
    for stage, phase in [("search", k + 1) for k in range(phases)]:
        seen, path = [], tmp_path / f"{stage}{phase}"
        options = {"maximize": maximize, "checkpoint": path, "callback_every": 0}
        stopped = bigsap.solve(cost, callback=stop_at(stage, phase, seen), **options)
        assert stopped.status == "cancelled"
        low, high = sorted((stopped.bound, stopped.fun))
        for lower, upper in [*seen, (low, high)]:
            assert lower is None or lower <= plain.fun
            assert upper is None or plain.fun <= upper
        stopped.verify(cost)
        seen.clear()
        again = bigsap.resume(path, cost, callback=stop_at("none", 0, seen))
        assert (again.fun, again.bound, again.status) == (plain.fun, plain.bound, "optimal")
        assert np.array_equal(again.col_ind, plain.col_ind)
        assert np.array_equal(again.v, plain.v)
        assert again.stats["rows_scanned"] == plain.stats["rows_scanned"]
        # What the stopped solve proved is still known.
        assert seen[0][0] >= low
        assert seen[0][1] <= high
    with pytest.raises(bigsap.CheckpointError, match="without far lines"):
        bigsap.resume(path, cost, memory_limit="1 GiB")


def test_the_copy_is_released_before_the_proof(monkeypatch):
    cost = with_lines(FAMILIES["uniform"](np.random.default_rng(15), N), [5], [7], 1e12)
    made = []

    def noticed(problem, over):
        found = near_costs(problem, over)
        made.append(weakref.ref(found.problem.source.array))
        return found

    monkeypatch.setattr(importlib.import_module("bigsap.solve"), "near_costs", noticed)
    alive = []

    def look(progress):
        alive.append((progress.stage, made[0]() is not None))

    bigsap.solve(cost, callback=look, callback_every=0, certify="pairs")
    assert ("search", True) in alive
    assert ("certificate", False) in alive
    assert ("certificate", True) not in alive


@pytest.mark.parametrize("blocks", [0, 1, 3])
def test_a_cancel_ends_the_copy(blocks, monkeypatch, tmp_path):
    """The checkpoint of a resumed solve stays as it was."""
    monkeypatch.setattr(far_lines, "_AT_ONCE", 300 * N)
    cost = with_lines(FAMILIES["uniform"](np.random.default_rng(16), N), [], [7], 1e12)
    path, seen = tmp_path / "checkpoint", []
    bigsap.solve(cost, checkpoint=path, callback=stop_at("search", 2, seen), callback_every=0)
    before = path.read_bytes()

    for again in (partial(bigsap.solve, cost), partial(bigsap.resume, path, cost)):
        stopped = again(cancel=Counting(1 + blocks))
        assert stopped.status == "cancelled"
        assert not searched_near(stopped)
        assert path.read_bytes() == before
    assert bigsap.resume(path, cost).fun == bigsap.solve(cost).fun


@pytest.mark.parametrize("blocks", [0, 2])
def test_a_first_solve_that_ends_within_the_copy_is_resumed_as_if_it_had_not(blocks, monkeypatch, tmp_path):
    monkeypatch.setattr(far_lines, "_AT_ONCE", 300 * N)
    cost = with_lines(FAMILIES["uniform"](np.random.default_rng(20), N), [], [7], 1e12)
    path, whole = tmp_path / "checkpoint", bigsap.solve(cost)
    stopped = bigsap.solve(cost, checkpoint=path, cancel=Counting(1 + blocks))
    assert stopped.status == "cancelled"
    again = bigsap.resume(path, cost)
    assert searched_near(again)
    assert np.array_equal(again.v, whole.v)
    assert again.stats["rows_scanned"] == whole.stats["rows_scanned"]


def test_a_resume_that_ends_within_the_copy_knows_what_was_proved(monkeypatch, tmp_path):
    monkeypatch.setattr(far_lines, "_AT_ONCE", 300 * N)
    cost = with_lines(FAMILIES["uniform"](np.random.default_rng(21), N), [], [7], 1e12)
    path = tmp_path / "checkpoint"
    first = bigsap.solve(cost, checkpoint=path, callback=stop_at("search", 3, []), callback_every=0)
    before = path.read_bytes()
    again = bigsap.resume(path, cost, cancel=Counting(2))
    assert again.bound >= first.bound
    assert again.fun <= first.fun
    assert again.stats["resumed"] == 1
    with pytest.raises(bigsap.CheckpointError, match="fingerprint"):
        bigsap.resume(path, cost + 1, cancel=Counting(2))
    assert path.read_bytes() == before


@pytest.mark.some(1)
@pytest.mark.parametrize("seed", range(3))
def test_reported_costs_are_not_below_the_optimum_where_sums_cancel(seed):
    base = 1000 + np.random.default_rng(seed).random((N, N))
    cost = base.copy()
    cost[:, 7] -= round(bigsap.solve(base).fun)
    seen = []

    def look(progress):
        seen.append((progress.lower_bound, progress.upper_bound))

    result = bigsap.solve(cost, callback=look, callback_every=0)
    assert searched_near(result)
    best = sum(Fraction(float(x)) for x in cost[result.row_ind, result.col_ind])
    for lower, upper in seen[:-1]:
        assert lower is None or lower <= best
        assert upper is None or upper >= best
    assert seen[-1][0] <= seen[-1][1] == result.fun


def test_a_stopped_solve_is_not_optimal_because_one_cost_is_huge():
    """The gap is small relative to the sum, and large relative to all other costs."""
    cost = np.random.default_rng(17).random((N, N))
    best = bigsap.solve(cost).fun
    cost[:, 3] += 1e18
    stopped = bigsap.solve(cost, callback=stop_at("search", 1, []), callback_every=0)
    assert stopped.gap > best
    assert (stopped.status, stopped.success) == ("cancelled", False)
    close = bigsap.solve(cost, gap=1.0)
    assert close.status == ("gap_reached" if close.gap > 1e-9 else "optimal")


def test_a_cache_too_small_is_refused_before_the_search():
    cost = with_lines(FAMILIES["uniform"](np.random.default_rng(18), N), [], [7], 1e12).astype(">f8")
    seen = []
    with pytest.raises(bigsap.OptionError, match="does not hold one row"):
        bigsap.solve(cost, cache=1000, callback=stop_at("none", 0, seen))
    assert not seen


def test_prices_given_for_a_resumed_solve_are_those_of_the_given_costs(tmp_path):
    cost = with_lines(FAMILIES["uniform"](np.random.default_rng(19), N), [5], [7], 1e12)
    best, path = bigsap.solve(cost), tmp_path / "checkpoint"
    bigsap.solve(cost, checkpoint=path, callback=stop_at("start", 0, []), callback_every=0)
    again = bigsap.resume(path, cost, warm_start=best)
    assert (again.fun, again.stats["refined"]) == (best.fun, 0)


@pytest.mark.some(1)
@pytest.mark.parametrize("maximize", [False, True])
def test_what_a_killed_solve_has_stored_is_of_the_given_costs(maximize, tmp_path):
    cost = with_lines(FAMILIES["uniform"](np.random.default_rng(22), 1700), [5], [7], 1e10)
    cost = -cost if maximize else cost
    path, left, seen = tmp_path / "c", tmp_path / "left", []

    def copied(progress):
        if progress.phase == 3 and not left.exists():
            shutil.copy(path, left)

    best = bigsap.solve(cost, maximize=maximize, checkpoint=path, callback=copied, callback_every=0).fun
    options = {"checkpoint": tmp_path / "d", "callback_every": 0}
    found = bigsap.resume(left, cost, callback=stop_at("start", 0, seen), **options)
    low, high = seen[0]
    assert low <= best <= high
    assert high - low < 1.0
    assert min(found.fun, found.bound) <= best <= max(found.fun, found.bound)
    found.verify(cost)


@pytest.mark.usefixtures("unhurried")
def test_a_stop_within_the_proof_knows_the_assignment():
    cost = with_lines(FAMILIES["uniform"](np.random.default_rng(13), N), [5], [7], 1e12)
    best, event = bigsap.solve(cost, certify="pairs"), threading.Event()

    def look(progress):
        if progress.stage == "certificate":
            event.set()

    stopped = bigsap.solve(cost, cancel=event, callback=look, callback_every=0, certify="pairs")
    assert stopped.fun == best.fun
    assert stopped.bound <= best.fun
    assert stopped.gap <= 1e-3
    stopped.verify(cost)


def test_a_mapped_file(tmp_path):
    cost = with_lines(FAMILIES["uniform"](np.random.default_rng(14), N), [5], [7], 1e12)
    np.save(tmp_path / "cost.npy", cost)
    mapped = bigsap.solve(np.load(tmp_path / "cost.npy", mmap_mode="r"))
    assert searched_near(mapped)
    assert (mapped.fun, mapped.stats["refined"]) == (bigsap.solve(cost).fun, 0)
    mapped.verify(cost)


def test_infeasible_and_invalid_costs_are_the_users():
    cost = with_lines(FAMILIES["uniform"](np.random.default_rng(10), N), [], [7], 1e9)
    cost[100, np.arange(N) != 7] = np.inf
    cost[200, np.arange(N) != 7] = np.inf
    result = bigsap.solve(cost)
    assert result.status == "infeasible"
    assert sorted(result.violator) == [100, 200]
    cost[300, 9] = np.nan
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[300, 9\] is nan"):
        bigsap.solve(cost)


def spread(n, size):
    """A column whose costs also differ by its size, in which nothing can be subtracted."""
    cost = 100 * np.random.default_rng(n).random((n, n))
    cost[:, n // 2] *= size
    return cost


@pytest.mark.some(1)
@pytest.mark.parametrize("n", [1100, 1700])
def test_a_far_column_is_solved_as_a_row(n, tmp_path):
    """In a transposed copy: results, warm starts and checkpoints are the user's."""
    cost = spread(n, 1e13)
    first = bigsap.solve(cost)
    assert first.stats["transposed"]
    first.verify(cost)
    for sign in (1, -1):
        other = sign * cost
        old = bigsap.solve(other, maximize=sign < 0)
        assert old.fun == sign * first.fun
        other[3, first.col_ind[3]] += sign * 50.0
        best = bigsap.solve(other, maximize=sign < 0, method="ssp", start="none").fun
        for options in ({}, {"certify": False}, {"warm_start": old}, {"memory_limit": "1 GiB"}):
            found = bigsap.solve(other, maximize=sign < 0, **options)
            assert found.stats["transposed"] == ("memory_limit" not in options)
            found.verify(other)
            assert found.fun == best
    assert not bigsap.solve(spread(n, 1e13).T.copy()).stats["transposed"]
    saved, event = tmp_path / "saved", threading.Event()

    def look(progress):
        if progress.phase:
            event.set()

    stopped = bigsap.solve(cost, checkpoint=saved, cancel=event, callback=look)
    assert stopped.status == "cancelled"
    resumed = bigsap.resume(saved, cost)
    assert (resumed.fun, resumed.col_ind.tolist()) == (first.fun, first.col_ind.tolist())


@pytest.mark.parametrize("cost", [spread(N, 1e13), with_lines(spread(N, 1.0), [], [7], 1e13)])
def test_a_far_column_of_a_view(cost):
    """What surrounds the view is no cost: rows may be parts of longer ones."""
    best = bigsap.solve(cost).fun
    for other in (np.nan, -5.0, 1e20):
        wide = np.full((N, N + 12), other)
        wide[:, :N] = cost
        apart = np.full((2 * N, N), other)
        apart[::2] = cost
        shifted = np.full((N, N + 1), other)
        shifted[:, 1:] = cost
        for view in (wide[:, :N], apart[::2], shifted[:, 1:]):
            result = bigsap.solve(view)
            assert (result.fun, result.v.shape) == (best, (N,))
            result.verify(view)


def test_empty_problems_have_no_far_columns():
    for shape in ((0, 0), (1, 1), (3, 3)):
        assert bigsap.solve(np.ones(shape), method="ssp").status == "optimal"


@pytest.mark.parametrize("method", ["auto", "ssp", "compressed"])
def test_starts_and_methods_take_what_they_would_without(method):
    base = FAMILIES["uniform"](np.random.default_rng(22), N)
    cost = with_lines(base, [5], [7, 8], 2.0**40)  # which rounds the far rows, and thus the optimum, a little
    cold, far = bigsap.solve(base, method=method), bigsap.solve(cost, method=method)
    assert far.stats["refined"] == 0
    assert far.stats["rows_scanned"] <= 2 * cold.stats["rows_scanned"] + N
    cost[100, 200] = base[100, 200] = 0.0
    for start in (far, cold):  # prices with the far columns' sizes, and without
        warm = bigsap.solve(cost, method=method, warm_start=start)
        assert warm.stats["refined"] == 0
        assert warm.stats["rows_scanned"] <= 4 * N
        assert warm.fun == bigsap.solve(cost, memory_limit="1 GiB").fun
        warm.verify(cost)
