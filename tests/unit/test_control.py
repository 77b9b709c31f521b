"""Stopped at any moment, the answer is honest; and what is told till then."""

from __future__ import annotations

import itertools
import threading
from fractions import Fraction

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.engine.core.incumbent import Incumbent, _row_floors, row_floors
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.run.interrupted import complete, sum_of_duals
from bigsap.sources import as_source
from bigsap.sources.base import Separation
from instances import CLASSES, points_of
from oracle import optimum
from pairwise import each

# The time limit is not for the kernels' compilation before the first.
pytestmark = [pytest.mark.timeout(600, func_only=True), pytest.mark.usefixtures("unhurried")]


@each(
    maximize=[False, True],
    dtype=["f8", "i4"],
    shape=[(60, 60), (40, 60), (60, 40)],
    after=[0, 1, 30, 70, 150, 400, 800],
)
def test_stopped_anywhere_the_answer_is_honest(shape, dtype, maximize, after):
    """Stopped after some rows, with slow costs: nothing beyond the sweeps is affordable."""
    n, m = shape
    cost = CLASSES["disjoint"](60, seed=1)[:n, :m].copy()
    if dtype == "i4":
        cost = np.rint(cost * 1000).astype(np.int32)
    ticks = []

    def stop(state):
        ticks.append((state.lower_bound, state.upper_bound))
        if len(ticks) > after:
            raise StopIteration

    source = bigsap.from_function(lambda i: cost[i], shape, kind="row", dtype=cost.dtype, compiled=False)
    for certify in (True, False):
        ticks.clear()
        res = bigsap.solve(
            source, maximize=maximize, callback=stop, callback_every=0, cache=5 * m * 8, certify=certify
        )
        best = float(optimum(cost, maximize)[0])
        sign = -1 if maximize else 1
        assert res.fun is not None
        assert sign * res.fun >= sign * best - 1e-9
        assert len(res.row_ind) == min(shape)
        assert (res.bound is None) == (not certify)
        if certify:
            assert sign * res.bound <= sign * best + 1e-9
            assert res.gap == pytest.approx(abs(res.fun - res.bound), rel=1e-12, abs=1e-12)
        if certify or res.status != "optimal":
            res.verify(cost)
        for low, high in ticks:
            assert low is None or low <= best + 1e-9
            assert high is None or high >= best - 1e-9
        if len(ticks) > 2 * n:
            assert ticks[-1][0] is not None
            assert ticks[-1][1] is not None


@each(
    maximize=[False, True],
    method=["auto", "ssp", "compressed"],
    shape=[(20, 20), (12, 20), (20, 12), "by rows", "gated"],
)
def test_a_stopped_solve_that_finds_a_row_without_a_column_says_infeasible(shape, method, maximize):
    forbidden = -np.inf if maximize else np.inf
    n, m = shape if isinstance(shape, tuple) else (20, 12)
    cost = np.random.default_rng(0).random((n, m))
    more, given = {}, cost
    if n <= m or shape == "gated":
        cost[4] = forbidden
    elif shape == "by rows":
        cost[3:] = forbidden
        more, given = {"shape": (n, m)}, lambda i: cost[i]
    else:
        cost[:, 4] = forbidden
    if shape == "gated":
        more = {"unassigned_cost": forbidden}
    result = bigsap.solve(given, method=method, time_limit=0, maximize=maximize, **more)
    assert (result.status, result.fun, result.bound) == ("infeasible", None, None)
    assert "infeasible" in result.message
    if n <= m or shape == "gated":
        assert result.violator.tolist() == [4]
    result.verify(cost)


def test_forbidden_pairs_are_completed_by_allowed_ones():
    n = 40
    rng = np.random.default_rng(3)
    cost = np.where(rng.random((n, n)) < 0.12, rng.random((n, n)), np.inf)
    cost[np.arange(n), rng.permutation(n)] = 1.0
    problem = Problem(as_source(cost))
    none = np.full(n, -1, np.intp)
    whole = complete(problem, none, lambda: None)
    assert np.isfinite(cost[np.arange(n), whole]).all()
    assert sorted(whole) == list(range(n))
    half = whole.copy()
    half[::2] = -1
    again = complete(problem, half, lambda: None)
    assert np.isfinite(cost[np.arange(n), again]).all()
    res = bigsap.solve(cost, time_limit=0)
    assert res.fun is not None
    assert np.isfinite(res.fun)
    res.verify(cost)
    impossible = cost.copy()
    impossible[:, 0] = np.inf
    res = bigsap.solve(impossible, time_limit=0)
    assert res.fun is None
    assert res.status in ("time_limit", "infeasible")


@pytest.mark.some(2)
@pytest.mark.parametrize("share", [1.0, 0.3, 0.03])
@pytest.mark.parametrize("maximize", [False, True])
def test_gap(share, maximize):
    cost = CLASSES["disjoint"](200, seed=2)
    best = float(optimum(cost, maximize)[0])
    full = bigsap.solve(cost, maximize=maximize, method="ssp")
    res = bigsap.solve(cost, maximize=maximize, gap=share * best, method="ssp")
    assert res.success
    assert res.gap <= share * best
    assert abs(res.fun - best) <= share * best + 1e-9
    res.verify(cost)
    assert res.stats["rows_scanned"] <= full.stats["rows_scanned"]
    if share == 1.0:
        assert res.nit < full.nit
    # Passes that hold no promise are not made.
    assert res.stats["certificate_pairs"] <= res.nit * 200 * 200


@pytest.mark.parametrize("every", [0, 0.05, 1000])
def test_callback_every(every):
    seen = []
    cost = CLASSES["disjoint"](60, seed=1)
    source = bigsap.from_function(lambda i: cost[i], cost.shape, kind="row", compiled=False)
    res = bigsap.solve(source, callback=lambda s: seen.append(s.phase), callback_every=every, cache=5 * 480)
    assert set(range(1, res.nit + 1)) <= set(seen)
    if every == 0:
        assert len(seen) > 200
    if every == 1000:
        assert len(seen) == res.nit + 1  # and once at the end


@pytest.mark.some(4)
@pytest.mark.parametrize("method", ["ssp", "compressed"])
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("kind", ["array", "integers", "points", "rows", "tall"])
def test_gaps_are_recorded_as_they_shrink(kind, maximize, method, tmp_path, monkeypatch):
    # At every occasion, however long the last asking took.
    monkeypatch.setattr("bigsap.progress._ASKING_SHARE", 0)
    x, y = points_of("disjoint", 150, seed=1)
    cost = CLASSES["disjoint"](150, seed=1)
    source = cost
    if kind == "integers":
        source = cost = np.rint(cost * 1000).astype(np.int64)
    elif kind == "points":
        source = bigsap.points(x, y)
    elif kind == "rows":
        source = bigsap.from_function(lambda i: cost[i], cost.shape, kind="row", compiled=False)
    elif kind == "tall":
        source = cost = cost[:, :90]
    res = bigsap.solve(source, maximize=maximize, method=method, seed=1)
    best = float(optimum(cost, maximize)[0])
    gaps = res.stats["gaps"]
    for earlier, later in itertools.pairwise(gaps):
        assert later["gap"] < earlier["gap"]
        assert later["seconds"] >= earlier["seconds"]
    for record in gaps:
        assert set(record) == {"seconds", "gap", "lower_bound", "upper_bound"}
        assert record["gap"] == pytest.approx(record["upper_bound"] - record["lower_bound"])
        assert record["lower_bound"] <= best + 1e-9 <= record["upper_bound"] + 2e-9
    assert 0 <= gaps[-1]["gap"] <= 1e-9 * abs(best)
    assert gaps[-1]["seconds"] <= res.stats["seconds"]["total"]
    if method == "compressed":
        # At each phase, by the lists.
        assert len(gaps) >= res.nit - 1
        assert gaps[0]["gap"] > 1e-6 * abs(best) or res.nit == 1
    else:
        # The sweeps; and phases, whose matchings are priced where that costs nothing.
        # A tall array is turned, and its 90 rows are matched in one phase.
        least = {"tall": 2, "rows": 3}.get(kind, 6)
        assert len(gaps) >= least
        assert gaps[0]["gap"] > 0.05 * abs(best)
    res.save(tmp_path / "r.npz")
    assert bigsap.Result.load(tmp_path / "r.npz").stats["gaps"] == gaps


def test_bounds_of_a_part_are_not_taken_for_the_whole(monkeypatch):
    """First prices from a quarter of the rows: its own bounds enclose another optimum."""
    monkeypatch.setattr("bigsap.policy.COARSEST_LEVEL", 10**9)
    cost = CLASSES["rank2"](1600, seed=1)
    seen = []
    res = bigsap.solve(
        cost,
        method="compressed",
        callback_every=0,
        callback=lambda s: seen.append((s.lower_bound, s.upper_bound)),
    )
    assert res.stats["first_prices"] == "levels"
    for low, high in seen:
        assert low is None or low <= res.fun + 1e-9
        assert high is None or high >= res.fun - 1e-9


def kept(reports):
    """Each report as plain numbers, right or not at the time it was handed out."""
    return [vars(report) for report in reports]


@pytest.mark.some(2)
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("kind", ["points", "matrix", "rows"])
def test_progress_of_compressed_rows(kind, maximize, monkeypatch):
    """Through two levels: nothing falls, bounds from the start, complete at the end."""
    monkeypatch.setattr("bigsap.policy.COARSEST_LEVEL", 450)
    # At every report, however long one took: which were left out would depend on the load.
    monkeypatch.setattr("bigsap.progress._ASKING_SHARE", 0)
    n = 4000
    x, y = points_of("disjoint", n, seed=1)
    source = bigsap.points(x, y)
    if kind == "matrix":
        source = ((x[:, None, :] - y) ** 2).sum(axis=2)
    elif kind == "rows":
        source = bigsap.from_function(
            lambda i: ((x[i] - y) ** 2).sum(axis=1), (n, n), kind="row", compiled=False
        )
    reports = []
    res = bigsap.solve(
        source,
        method="compressed",
        maximize=maximize,
        start="levels",
        callback=reports.append,
        callback_every=0,
    )
    seen = kept(reports)
    assert res.status == "optimal"
    assert res.stats["first_prices"] == "levels"
    # A copy each time.
    assert len({id(report) for report in reports}) == len(reports)
    for name in ("seconds", "rows_scanned", "rows_evaluated", "phase"):
        values = [state[name] for state in seen]
        assert values == sorted(values), name
    assert {state["n_rows"] for state in seen} == {n}
    levels = [state for state in seen if state["stage"] == "levels"]
    assert {state["level"] for state in levels} == {1, 2}
    for state in levels:
        assert (state["phase"], state["assigned"]) == (0, 0)
        assert state["level_rows"] == n // 4 ** state["level"]
        assert 0 <= state["level_assigned"] <= state["level_rows"]
    assert all(state["level"] == 0 for state in seen if state["stage"] != "levels")
    lows = [state["lower_bound"] for state in seen]
    highs = [state["upper_bound"] for state in seen]
    for known in (lows, highs):
        first = next(k for k, value in enumerate(known) if value is not None)
        assert None not in known[first:]
    # At once, where costs are cheap and have a floor.
    proved, priced = (highs, lows) if maximize else (lows, highs)
    assert kind == "rows" or priced[0] is not None
    assert kind != "points" or proved[0] is not None
    assert all(low is None or low <= res.fun + 1e-9 for low in lows)
    assert all(high is None or high >= res.fun - 1e-9 for high in highs)
    searching = [state for state in seen if state["stage"] == "search" and state["phase"] == 1]
    assert searching[-1]["lower_bound" if not maximize else "upper_bound"] is not None
    last = seen[-1]
    assert (last["stage"], last["assigned"]) == ("done", n)
    assert last["rows_evaluated"] >= res.stats["rows_evaluated"]
    assert sorted((last["lower_bound"], last["upper_bound"])) == sorted((res.bound, res.fun))


def test_the_last_report():
    reports = []
    cost = CLASSES["disjoint"](60, seed=1)[:, :40]
    res = bigsap.solve(cost, callback=reports.append)
    last = kept(reports)[-1]
    assert (last["stage"], last["assigned"]) == ("done", 40)
    assert (last["lower_bound"], last["upper_bound"]) == (res.bound, res.fun)
    # Whoever asked for the end is not asked again.
    asked = []

    def refuse(state):
        asked.append(state)
        raise StopIteration

    bigsap.solve(cost, callback=refuse)
    assert len(asked) == 1

    # Another's stop before the search is reported as well.
    cancel = threading.Event()
    reports.clear()
    bigsap.solve(cost, callback=lambda s: (reports.append(s), cancel.set()), cancel=cancel)
    assert [state.stage for state in reports] == ["search", "done"]

    # It cannot be ended any more.
    def late(state):
        if state.stage == "done":
            raise StopIteration

    assert bigsap.solve(cost, callback=late).status == "optimal"


@pytest.mark.parametrize("rows", [1, 100, 10**9])
def test_callback_rows(rows):
    seen = []
    cost = CLASSES["disjoint"](60, seed=1)
    source = bigsap.from_function(lambda i: cost[i], cost.shape, kind="row", compiled=False)
    res = bigsap.solve(
        source,
        callback=lambda s: seen.append((s.phase, s.rows_scanned, s.rows_evaluated)),
        callback_every=1000,
        callback_rows=rows,
        cache=5 * 480,
        method="ssp",
    )
    # Every row comes through Python, so each of them is an occasion.
    total = max(res.stats["rows_scanned"], res.stats["rows_evaluated"])
    if rows == 10**9:
        assert len(seen) == res.nit + 1  # and once at the end
    else:
        assert len(seen) >= total / rows * 0.5
        steps = [max(b[1] - a[1], b[2] - a[2]) for a, b in itertools.pairwise(seen)]
        assert max(steps) <= rows + 20


WHOLE = {"callback_rows": 100, "threads": 2, "seed": 4, "memory_limit": 60_000, "cache": 60_000}
REAL = {"gap": 1, "time_limit": 100, "callback_every": 1, "checkpoint_every": 1}


@pytest.mark.parametrize("name", [*WHOLE, *REAL])
def test_numbers_of_numpy_are_numbers(name, tmp_path):
    cost = CLASSES["disjoint"](60, seed=1)
    for kind in (np.int64, np.uint16, np.float64, np.float32, np.float16):
        if name in REAL or issubclass(kind, np.integer):
            option = {name: kind((WHOLE | REAL)[name])}
            res = bigsap.solve(cost, **option, checkpoint=tmp_path / "saved", method="ssp")
            assert res.success
            assert all(type(field) is float for field in (res.fun, res.bound, res.gap))
    for wrong in (np.bool_(True), np.array([1, 2]), np.complex128(1), np.float64(-1), np.nan):
        with pytest.raises(bigsap.OptionError, match=name):
            bigsap.solve(cost, **{name: wrong}, method="ssp")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cancel": True}, "cancel"),
        ({"callback_rows": 0}, "callback_rows"),
        ({"callback_rows": 1.5}, "callback_rows"),
        ({"callback_rows": True}, "callback_rows"),
        ({"callback_every": -1}, "callback_every"),
        ({"callback_every": "often"}, "callback_every"),
        ({"checkpoint_every": None}, "checkpoint_every"),
        ({"checkpoint": 3}, "checkpoint"),
        ({"time_limit": float("nan")}, "time_limit"),
        ({"seed": -1}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"gap": 1.0, "certify": False}, "gap"),
    ],
)
def test_wrong_options(options, words):
    with pytest.raises(bigsap.OptionError, match=words):
        bigsap.solve(np.eye(3), **options)


@pytest.mark.some(4)
@each(
    maximize=[False, True],
    method=["ssp", "compressed"],
    metric=["sqeuclidean", "euclidean", "cityblock", "chebyshev", "lowrank"],
    **{"n, m": [(700, 700), (500, 700), (700, 500)]},
)
def test_a_stop_at_any_moment_leaves_an_assignment_and_a_bound(method, metric, n, m, maximize):
    """Even before a single row was seen: the costs' own limits give a bound then."""
    rng = np.random.default_rng(n + m)
    x, y = rng.random((n, 3)) - 0.5, rng.random((m, 3)) - 0.3
    source = bigsap.lowrank(x, y) if metric == "lowrank" else bigsap.points(x, y, metric=metric)
    best = bigsap.solve(source, maximize=maximize).fun
    for limit in (0, 1e-4, 3e-3):
        res = bigsap.solve(source, maximize=maximize, method=method, time_limit=limit)
        assert len(res.col_ind) == min(n, m)
        low, high = (res.fun, res.bound) if maximize else (res.bound, res.fun)
        assert low <= best + 1e-9
        assert best <= high + 1e-9
        assert res.gap == pytest.approx(high - low)
        res.verify(source)


def test_the_best_bound_is_kept_with_its_duals():
    """Prices that prove less, seen before or after, change nothing."""
    cost = np.array([[3.0, 5.0], [4.0, 9.0]])
    good, poor = np.array([0.0, 1.0]), np.array([0.0, -20.0])
    for order in ([poor, good], [good, poor]):
        known = Incumbent(Problem(as_source(cost)), np.inf, active=True)
        for v in order:
            known.add_duals((cost - v).min(axis=1), v)
        assert known.bound == pytest.approx(8.0)
        assert known.v.tolist() == (good - good.max()).tolist()


@pytest.mark.parametrize("shape", [(5, 5), (4, 6), (6, 4)])
def test_a_bound_is_the_sum_of_the_duals_that_prove_it(shape):
    """Rounded down, however much larger than it the prices are."""
    rng = np.random.default_rng(3)
    cost, v = rng.random(shape), 1e6 * rng.random(shape[1])
    known = Incumbent(Problem(as_source(cost)), np.inf, active=True)
    known.add_duals((cost - v).min(axis=1), v)
    u, v = ([Fraction(x) for x in dual.tolist()] for dual in (known.u, known.v))
    for (i, j), c in np.ndenumerate(cost):
        assert u[i] + v[j] <= Fraction(c)
    bound = sum_of_duals(known, integer=False)
    assert Fraction(bound) <= sum(u + v) < Fraction(np.nextafter(bound, np.inf))


@each(maximize=[False, True], method=["ssp", "compressed"], kind=["row", "part"])
def test_a_stopped_bound_of_large_integers_is_not_rounded(maximize, method, kind):
    cost, stop = np.array([[2**61], [2**60 + 200], [2**62 + 100]]), threading.Event()
    stop.set()
    rows = {"row": lambda i: cost[i], "part": lambda i, start, stop: cost[i, start:stop]}[kind]
    found = bigsap.solve(
        bigsap.from_function(rows, cost.shape, kind=kind), maximize=maximize, method=method, cancel=stop
    )
    best = int(cost.max() if maximize else cost.min())
    assert found.bound >= best if maximize else found.bound <= best
    assert found.gap == abs(found.fun - found.bound) >= abs(found.fun - best)


@pytest.mark.parametrize("maximize", [False, True])
def test_a_stopped_bound_of_large_integers_is_the_sum_of_its_duals(maximize, monkeypatch):
    """It is not rounded to a float before it is to a whole number."""
    monkeypatch.setattr(Monitor, "grace", lambda _: -1.0)  # no time for a certificate
    cost = (1 if maximize else -1) * (10**16 + 15 + np.arange(30).reshape(5, 6))
    rows, columns = np.nonzero(cost)
    listed, stop = bigsap.sparse((rows, columns, cost[rows, columns])), threading.Event()
    stop.set()
    found = bigsap.solve(listed, maximize=maximize, cancel=stop)
    assert found.status == "cancelled"
    assert found.bound == sum(Fraction(x) for x in [*found.u.tolist(), *found.v.tolist()])
    found.verify(listed)


@pytest.mark.parametrize("price", [None, 200])
@pytest.mark.parametrize("maximize", [False, True])
def test_a_stopped_bound_of_integers_that_are_read_as_floats_is_the_sum_of_its_duals(maximize, price):
    """Beyond 2^53 floats are not all integers; the sum of duals is one."""
    rng, stop = np.random.default_rng(0), threading.Event()
    stop.set()
    cost = rng.integers(0, 256, (26, 26))
    rows, columns = np.nonzero(cost + 1)
    listed = bigsap.sparse((rows, columns, cost[rows, columns]))
    for _ in range(4):
        start = rng.choice([0, 1, 10**15], 26) + rng.integers(0, 5, 26).astype(np.float64)
        start = -start if maximize else start
        options = {"maximize": maximize, "unassigned_cost": price, "warm_start": start}
        found = bigsap.solve(listed, method="ssp", cancel=stop, **options)
        assert found.status == "cancelled"
        assert abs(found.bound) > 2**53
        assert found.bound == sum(map(int, [*found.u.tolist(), *found.v.tolist()]))
        assert found.gap == abs(found.fun - found.bound)
        found.verify(listed)


@pytest.mark.parametrize("options", [{}, {"unassigned_cost": 2**52 + 9}, {"capacity": 2}, {"demand": 1}])
@pytest.mark.parametrize("maximize", [False, True])
def test_the_cost_of_a_stopped_solve_of_integers_that_are_read_as_floats_is_exact(maximize, options):
    """Sums beyond 2^53 are no floats: a rounded one may be less than the optimum."""
    stop = threading.Event()
    stop.set()
    for seed in range(4):
        cost = 2**52 + np.random.default_rng(seed).integers(0, 256, (9, 12))
        rows, columns = np.nonzero(cost)
        listed = bigsap.sparse((rows, columns, cost[rows, columns]))
        found = bigsap.solve(listed, method="ssp", maximize=maximize, cancel=stop, certify=False, **options)
        pairs = found.pairs()
        total = sum(map(int, cost[pairs[:, 0], pairs[:, 1]]))
        total += (9 - len(pairs)) * options.get("unassigned_cost", 0)
        assert found.status == "cancelled"
        assert (type(found.fun), found.fun) == (int, total)
        found.verify(listed)


def floors_of(terms, maximize):
    return _row_floors(terms, terms.y.min(axis=1), terms.y.max(axis=1), maximize)


@each(maximize=[False, True], metric=["sqeuclidean", "cityblock", "chebyshev", "products"])
def test_boxes_of_many_coordinates_lie_below_every_cost(metric, maximize, monkeypatch):
    """One for all rows, reached where each side is one point."""
    monkeypatch.setattr(policy, "FLOOR_COLUMNS", 0)
    rng = np.random.default_rng(6)
    x, y = rng.normal(size=(30, 20)), rng.normal(size=(40, 20)) + 3.0
    for n, m in ((30, 40), (1, 1)):
        a, b = x[:n], y[:m]
        source = bigsap.lowrank(a, b) if metric == "products" else bigsap.points(a, b, metric)
        cost = np.empty((n, m))
        source.read(np.arange(n), slice(0, m), cost)
        signed = -cost if maximize else cost
        floors = row_floors(Problem(source, maximize))
        assert np.unique(floors).size == 1
        assert np.isfinite(floors[0])
        assert floors[0] <= signed.min()
        if n == 1:
            assert floors[0] == pytest.approx(signed[0, 0])


@each(maximize=[False, True], kind=["square", "absolute", "root", "largest", "product"])
def test_row_floors_lie_below_every_cost(kind, maximize):
    rng = np.random.default_rng(5)
    x, y, w = rng.normal(size=(30, 3)), rng.normal(size=(3, 40)), np.array([1.0, 0.3, 2.0])
    pairs = x[:, :, None] * y if kind == "product" else np.abs(x[:, :, None] - y)
    pairs = (w[:, None] * (pairs**2 if kind in ("square", "root") else pairs)).transpose(1, 0, 2)
    cost = pairs.max(0) if kind == "largest" else pairs.sum(0)
    cost = np.sqrt(cost) if kind == "root" else cost
    signed = -cost if maximize else cost
    floors = floors_of(Separation(x, y, w, kind), maximize)
    assert (floors <= signed.min(axis=1)).all()
    # Sums over thousands of coordinates, of equal terms whose rounding goes one way.
    if kind == "absolute":
        term, total = 1 + 0.9 * 2.0**-40, 0.0
        for _ in range(12_000):
            total += term  # from 8,192 on each sum is rounded down
        far = np.full((1, 12_000), term)
        ends = floors_of(Separation(far, np.zeros((12_000, 1)), np.ones(12_000), kind), maximize)
        assert ends[0] <= (-total if maximize else total)
    # The box of all columns bounds a single column exactly.
    one = floors_of(Separation(x, y[:, :1].copy(), w, kind), maximize)
    np.testing.assert_allclose(one, signed[:, 0], rtol=1e-9, atol=1e-9)
