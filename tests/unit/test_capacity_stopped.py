"""Solves of few columns that are stopped at any moment, against exact optima."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.checkpoint import read
from bigsap.progress import Monitor, Stopped
from bigsap.run import few_columns
from bigsap.strategies import capacities
from exact_oracle import optimum, value
from gate import Gated, gate  # noqa: F401

RNG = np.random.default_rng
PROBLEMS = {
    "tight": ({}, (110, 3), {"capacity": [50, 40, 20]}),
    "slack": ({}, (110, 3), {"capacity": [60, 40, 20], "maximize": True}),
    "wide": ({}, (50, 3), {"capacity": [70, 5, 9]}),
    "whole": ({"whole": 1000}, (110, 3), {"capacity": [50, 40, 20]}),
    "bytes": ({"whole": 256, "dtype": np.uint8}, (110, 3), {"capacity": [50, 40, 20], "maximize": True}),
    "left out": ({}, (110, 3), {"capacity": [50, 30, 20], "unassigned_cost": 0.7}),
    "left out, whole": ({"whole": 99}, (110, 3), {"capacity": 30, "unassigned_cost": 40}),
    "forbidden": ({"forbidden": 0.3}, (110, 3), {"capacity": [70, 50, 40]}),
    "demand": ({}, (3, 110), {"demand": [40, 20, 30]}),
    "demand all": ({}, (3, 110), {"demand": [40, 40, 30], "maximize": True}),
    "demand, whole": ({"whole": 1000}, (3, 110), {"demand": [40, 20, 30]}),
    "open": ({}, (3, 110), {"demand": [60, 50, 30], "unassigned_cost": 4.0}),
    "open, whole": ({"whole": 99}, (3, 110), {"demand": [60, 50, 30], "unassigned_cost": 40}),
    "open, nothing": ({"zero": True}, (3, 110), {"demand": [60, 50, 30], "unassigned_cost": 0.0}),
    "points": ({"points": True}, (110, 3), {"capacity": [50, 40, 20]}),
}


def problem(kind, shape):
    """Source and matrix of such costs."""
    rng = RNG([shape[0], len(kind)])
    x, y = rng.standard_normal((shape[0], 2)), rng.random((shape[1], 2)) + 1
    source = bigsap.points(x, y)
    cost = np.empty(shape)
    source.read(np.arange(shape[0]), slice(0, shape[1]), cost)
    if "points" in kind:
        return source, cost
    if "zero" in kind:
        cost[:] = 0
    if "whole" in kind:
        cost = (cost / cost.max() * (kind["whole"] - 1)).astype(kind.get("dtype", np.int64))
    if "forbidden" in kind:
        cost = np.where(rng.random(shape) < kind["forbidden"], np.inf, cost)
        cost[:, 0] = 9.0
    return cost, cost


def exact(cost, options):
    """The optimum, as a Fraction in the user's sense."""
    capacity, demand = options.get("capacity"), options.get("demand")
    if capacity is not None:
        copies = np.repeat(cost, np.minimum(np.broadcast_to(capacity, cost.shape[1]), len(cost)), axis=1)
    else:
        copies = np.repeat(cost, demand, axis=0)
    price = options.get("unassigned_cost")
    prices = None if price is None else [price] * len(copies)
    found = optimum(copies, options.get("maximize", False), prices)
    assert found is not None
    return value(found[0])


@pytest.fixture
def often(monkeypatch):
    """Small problems take this way, and tick often."""
    monkeypatch.setattr(policy, "LEAST_CONTRACTED_COSTS", 0)
    monkeypatch.setattr(capacities, "_SETTLED_AT_ONCE", 4)
    monkeypatch.setattr(capacities, "_READ_AT_ONCE", 60)


def judged(found, source, cost, options, best):
    """Check one answer: its bound, its cost, its places; return whether it has an assignment."""
    sign = -1 if options.get("maximize") else 1
    if found.bound is not None:
        assert sign * Fraction(found.bound) <= sign * best
        assert isinstance(found.bound, int) == (cost.dtype.kind in "iu")
    if found.fun is None:
        assert not len(found.row_ind)
        return False
    pairs = found.pairs()
    total = sum((Fraction(cost[i, j].item()) for i, j in pairs), Fraction(0))
    if "unassigned_cost" in options:
        places = sum(options["demand"]) if "demand" in options else len(cost)
        total += (places - len(pairs)) * Fraction(options["unassigned_cost"])
    assert found.fun == (int(total) if isinstance(found.fun, int) else float(total))
    assert sign * total >= sign * best
    rows, columns = (
        np.bincount(pairs[:, 0], minlength=cost.shape[0]),
        np.bincount(pairs[:, 1], minlength=cost.shape[1]),
    )
    if "demand" in options:
        assert (rows <= options["demand"]).all()
        assert rows.tolist() == options["demand"] or "unassigned_cost" in options
        assert columns.max() <= 1
    else:
        assert (columns <= options["capacity"]).all()
        assert rows.max() <= 1
        assert rows.all() or "unassigned_cost" in options
    found.verify(source)
    return True


@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.usefixtures("unhurried", "often")
def test_what_attempts_before_have_found_is_kept(name, tmp_path):
    """The second and the third are stopped at once; the last one ends as if nothing were known."""
    kind, shape, options = PROBLEMS[name]
    source, cost = problem(kind, shape)
    best, path = exact(cost, options), tmp_path / "c"
    sign = -1 if options.get("maximize") else 1
    given = {name: part for name, part in options.items() if name != "maximize"}
    calls, reported = itertools.count(1), []

    def stop(state, limit=6):
        reported.append((state.lower_bound, state.upper_bound))
        if next(calls) >= limit:
            raise StopIteration

    first = bigsap.solve(
        source, checkpoint=path, checkpoint_every=1e9, callback=stop, callback_every=0, **options
    )
    assert judged(first, source, cost, options, best)
    for _ in range(2):
        again = bigsap.resume(path, source, callback=lambda state: stop(state, 1), callback_every=0, **given)
        assert judged(again, source, cost, options, best)
        assert again.status in ("cancelled", "optimal")
        assert sign * again.fun <= sign * first.fun
        assert sign * again.bound >= sign * first.bound
        assert reported[-1] == ((first.fun, first.bound) if sign < 0 else (first.bound, first.fun))
    # Without certificates no bound is claimed, and none is forgotten.
    unproved = bigsap.resume(
        path, source, callback=lambda state: stop(state, 1), callback_every=0, certify=False, **given
    )
    assert judged(unproved, source, cost, options, best)
    assert (unproved.fun, unproved.bound, unproved.gap) == (again.fun, None, None)
    assert read(path).best["bound"] == again.bound or again.status == "optimal"
    whole, last = bigsap.solve(source, **options), bigsap.resume(path, source, **given)
    assert (last.fun, last.bound, last.u.tolist()) == (whole.fun, whole.bound, whole.u.tolist())


@pytest.mark.usefixtures("unhurried", "often")
def test_checkpoints_of_a_search_that_is_killed_have_what_attempts_before_have_found(tmp_path):
    source, _ = problem(*PROBLEMS["tight"][:2])
    options, path, calls = PROBLEMS["tight"][2], tmp_path / "c", itertools.count(1)

    def stop(_):
        if next(calls) >= 6:
            raise StopIteration

    first = bigsap.solve(source, checkpoint=path, callback=stop, callback_every=0, **options)
    before = read(path)

    def kill(_):
        if read(path).facts["resumed"] > 0 and next(calls) >= 20:
            raise RuntimeError("killed")

    with pytest.raises(RuntimeError, match="killed"):
        bigsap.resume(path, source, callback=kill, callback_every=0, checkpoint_every=0, **options)
    after = read(path)
    assert after.facts["resumed"] == 1
    assert after.snapshot
    assert (after.best["fun"], after.best["bound"]) == (first.fun, first.bound)
    assert after.best["chosen"].tolist() == before.best["chosen"].tolist()


@pytest.mark.usefixtures("unhurried", "often")
def test_what_is_known_of_other_costs_is_not_of_costs_without_a_fingerprint(tmp_path):
    """They may be smaller than those that attempts before have read."""

    class Nameless:
        dtype, shape = np.dtype(np.float64), (110, 3)

        def read(self, rows, columns, out):
            out[:] = cost[rows, columns] - 5

    cost, options, path = 5 + RNG(0).random((110, 3)), {"capacity": [50, 40, 20]}, tmp_path / "c"
    calls = itertools.count(1)

    def stop(state, limit):
        if next(calls) >= limit:
            raise StopIteration

    def stopped(run, *given, limit, **more):
        return run(*given, callback=lambda state: stop(state, limit), callback_every=0, **options, **more)

    assert stopped(bigsap.solve, cost, limit=6, checkpoint=path).bound > 500
    again = stopped(bigsap.resume, path, Nameless(), limit=1)
    assert again.status == "cancelled"
    judged(again, Nameless(), cost - 5, options, exact(cost - 5, options))


@pytest.mark.some(14)
@pytest.mark.parametrize("name", PROBLEMS)
@pytest.mark.parametrize("grace", [None, 0])
@pytest.mark.usefixtures("often")
def test_stopped_at_every_tick(name, grace, monkeypatch):
    """With time for a proof and without: always an assignment, always a true bound."""
    kind, shape, options = PROBLEMS[name]
    source, cost = problem(kind, shape)
    best = exact(cost, options)
    if grace is not None:
        monkeypatch.setattr(Monitor, "grace", lambda _: -1.0)
    known, bounds = [], []
    for limit in itertools.count(1):
        calls = itertools.count(1)

        def stop(_, calls=calls, limit=limit):
            if next(calls) >= limit:
                raise StopIteration

        found = bigsap.solve(source, callback=stop, callback_every=0, **options)
        assert found.stats["method"] == "contracted"
        known.append(judged(found, source, cost, options, best))
        bounds.append(found.bound is not None)
        if next(calls) < limit:
            break
    assert len(known) > 8
    assert found.status == "optimal"
    assert all(known[2:]) or name == "forbidden"
    # Before the first pass over all rows only the range of the costs tells, where it is known.
    assert all(bounds[-6:])
    assert all(bounds) or name not in ("points", "bytes")


@pytest.mark.usefixtures("often")
def test_bounds_are_reported():
    """A callback sees the bound of the last pass over all rows, and it is true."""
    source, cost = problem({}, (110, 3))
    best = exact(cost, {"capacity": [60, 40, 20], "maximize": True})
    seen = []

    def look(progress):
        if progress.stage == "start":
            seen.append(progress.upper_bound)

    bigsap.solve(
        source, capacity=[60, 40, 20], maximize=True, callback=look, callback_every=0, callback_rows=1
    )
    told = [bound for bound in seen if bound is not None]
    assert told
    assert all(Fraction(bound) >= best for bound in told)


def test_without_a_proof():
    """certify=False: pairs and their cost, with demands too; no bound."""
    rng = RNG(5)
    cost = rng.random((4, 400))
    proved, plain = (bigsap.solve(cost, demand=60, certify=certify) for certify in (True, False))
    assert plain.fun == proved.fun
    assert plain.pairs().tolist() == proved.pairs().tolist()
    assert (plain.bound, plain.gap) == (None, None)
    assert plain.costs.tolist() == [cost[i, j] for i, j in plain.pairs()]
    plain.verify(cost)


def test_cancelled_while_rows_are_read(gate):  # noqa: F811
    """Nothing is known but the range of the costs, if that is."""
    cost = RNG(6).integers(0, 200, (300, 6)).astype(np.uint8)
    found = bigsap.solve(Gated(cost, gate, 100), capacity=60, time_limit=0.05)
    assert (found.status, found.fun, found.bound) == ("time_limit", None, 0)
    found.verify(cost)


@pytest.mark.usefixtures("often")
def test_a_refined_proof_that_is_stopped(monkeypatch):
    """The first proof is kept when there is no time for the exact one."""
    source, cost = problem({}, (110, 3))
    best = exact(cost, {"capacity": [60, 40, 20]})

    def late(self):
        raise Stopped("time_limit")

    certify = few_columns.certify_capacities
    monkeypatch.setattr(capacities.Balance, "exact_prices", late)
    monkeypatch.setattr(
        few_columns, "certify_capacities", lambda *a, **k: replace(certify(*a, **k), optimal=False, gap=1.0)
    )
    found = bigsap.solve(source, capacity=[60, 40, 20])
    assert (found.status, found.fun) == ("time_limit", float(best))
    assert Fraction(found.bound) <= best


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("last", [1, 2])
def test_whole_bounds_of_one_price_a_column_are_those_of_the_duals(last, maximize):
    """Copies of a column had prices with fractions; the best of them proves more than they did."""
    for seed in range(5):
        rng = RNG(seed)
        cost, most = rng.integers(0, 2**31, (13, 7)), rng.integers(2, 4, 7)
        calls = itertools.count()

        def stop(_, calls=calls):
            if next(calls) >= last:
                raise StopIteration

        options = {"callback": stop, "callback_every": 1e9, "callback_rows": 7, "method": "ssp"}
        start = np.full(7, -1e12)
        found = bigsap.solve(cost, capacity=most, maximize=maximize, warm_start=start, **options)
        found.verify(cost)
        sign = -1 if maximize else 1
        assert sign * found.bound <= sign * exact(cost, {"capacity": most, "maximize": maximize})
