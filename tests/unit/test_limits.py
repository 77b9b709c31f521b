"""Nothing works for long without a look at clock and wishes: work is counted, not timed.

Slices are made small and of the same size whatever they take; between two calls of a kernel the
monitor must have looked, and no call may do much more than its slice.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from test_hiding import check_thresholds, clusters, solved_by_lists, squared

import bigsap
import bigsap.batch
from bigsap import progress as monitors
from bigsap.engine.core.team import Team
from bigsap.engine.lists import list_engine, ordering, pool
from bigsap.engine.trees import first_pairs
from bigsap.problem import Problem
from bigsap.progress import Monitor, guarded
from bigsap.run.deadline import Deadline
from bigsap.sources import as_source
from bigsap.strategies import levels, optional_rows, tight_pairs, trees
from bigsap.strategies.baselines import auction, classical
from bigsap.strategies.start import samples

ENTRIES, PAIRS = 2000, 8000


def answer(result):
    """What a solve has found, and by how much work."""
    counts = {k: result.stats[k] for k in ("rows_scanned", "rows_evaluated", "pairs_evaluated")}
    return result.status, result.fun, result.col4row.tolist(), result.v.tolist(), counts


class Looks:
    """How often monitors have looked, as their guard."""

    def __init__(self):
        self.count = 0

    def __call__(self):
        self.count += 1


@pytest.fixture
def looks():
    found = Looks()
    with guarded(found):
        yield found


# -- searches on lists ------------------------------------------------------------------


class Slices:
    """``run_searches``: what each call does, and whether somebody looked before the next."""

    def __init__(self, looks):
        self.looks, self.seen = looks, -1
        self.n_calls = self.n_amidst = 0
        self.entries = self.pairs = 0
        self.usual = list_engine.run_searches

    def __call__(self, *args):
        _, _, frontier, lists, _, rules = args
        assert self.looks.count > self.seen, "called again, and nobody has looked"
        before = int(lists.counts.pairs)
        status = self.usual(*args)
        self.seen = self.looks.count
        self.n_calls += 1
        self.n_amidst += int(frontier.search.underway)
        if rules.most_entries == ENTRIES:
            self.entries = max(self.entries, int(frontier.search.entries))
            self.pairs = max(self.pairs, int(lists.counts.pairs) - before)
        return status


def small_slices(patch):
    patch.setattr(list_engine, "_FIRST_ENTRIES", ENTRIES)
    patch.setattr(list_engine, "_FIRST_PAIRS", PAIRS)
    patch.setattr(list_engine.ListEngine, "_pace", lambda *_: None)


def repeated(generator, n, k, m=None):
    """n points against k others, each of them often."""
    m = m or n
    return generator.random((n, 2)), np.repeat(generator.random((k, 2)), m // k, axis=0)


def equal_columns(generator):
    return bigsap.points(*repeated(generator, 1200, 12))


def equal_columns_apart(generator):
    x, y = repeated(generator, 1200, 12)
    return bigsap.points(x, y[generator.permutation(1200)], metric="euclidean")


def equal_rows(generator):
    y, x = repeated(generator, 1200, 12)
    return bigsap.points(x, y)


def equal_both(generator):
    a, b = generator.random((2, 12, 2))
    return bigsap.points(np.repeat(a, 100, axis=0), np.repeat(b, 100, axis=0))


def wide(generator):
    return bigsap.points(*repeated(generator, 150, 10, 6000))


def tall(generator):
    y, x = repeated(generator, 150, 10, 3000)
    return bigsap.points(x, y)


def one_group(generator):
    """A few rows more than columns, of a matrix that is not turned."""
    cost = np.repeat(generator.random((420, 20)), 20, axis=1)
    return bigsap.from_function(lambda i, j, c: c[i, j], cost.shape, args=(cost,), kind="value")


def two_clusters(generator):
    return bigsap.points(*clusters(900, 900, 3, 9.0, generator, dimensions=3))


def table(generator):
    return np.repeat(generator.random((600, 12)), 50, axis=1)


def small_numbers(generator):
    return generator.integers(0, 3, (600, 600)) * generator.integers(0, 2, (600, 1))


KINDS = {
    make.__name__: make
    for make in (
        equal_columns,
        equal_columns_apart,
        equal_rows,
        equal_both,
        wide,
        tall,
        one_group,
        two_clusters,
        table,
        small_numbers,
    )
}


@pytest.mark.some(3)
@pytest.mark.parametrize("kind", KINDS)
def test_searches_on_lists(kind, looks, monkeypatch):
    """Lists that are doubled again and again, rows that are evaluated in mid-search, searches that
    go through all rows: a slice ends in their midst, and changes nothing."""
    source = KINDS[kind](np.random.default_rng(5))
    options: dict[str, Any] = {"method": "compressed", "threads": 1}
    usual = answer(bigsap.solve(source, **options))
    slices = Slices(looks)
    small_slices(monkeypatch)
    monkeypatch.setattr(list_engine, "run_searches", slices)
    assert answer(bigsap.solve(source, **options)) == usual
    n, m = as_source(source).shape
    most = 2 * max(n, m)
    assert slices.entries < ENTRIES + 2 * most
    assert slices.pairs < PAIRS + most
    if kind in ("equal_columns", "equal_both", "two_clusters"):
        assert slices.n_amidst > 3


@pytest.mark.parametrize("seed", range(2))
def test_searches_that_are_given_up_change_nothing(monkeypatch, seed):
    """Every third that is under way is stopped, and begins again."""
    generator = np.random.default_rng(seed)
    x, y = clusters(700, 700, 2, 12.0, generator, dimensions=3)
    cost, given_up = squared(x, y), []
    usual = list_engine.run_searches

    def disturbed(*args):
        frontier = args[2]
        status = usual(*args)
        if frontier.search.underway and len(given_up) < 40:
            given_up.append(0)
            if len(given_up) % 3 == 0:
                frontier.at.stop = 1
                status = usual(*args)
                frontier.at.stop = 0
                assert not frontier.search.underway
        return status

    small_slices(monkeypatch)
    monkeypatch.setattr(list_engine, "run_searches", disturbed)
    found = solved_by_lists(bigsap.points(x, y), 24)
    assert len(given_up) > 6
    best = bigsap.solve(cost, method="ssp").fun
    chosen = found.outcome.column_of_row
    assert cost[np.arange(700), chosen].sum() == pytest.approx(best, rel=1e-12)
    rows = found.rows[np.arange(700)]
    check_thresholds(found.engine, cost[np.ix_(rows, found.columns)])


@pytest.mark.some(3)
@pytest.mark.parametrize("raised", [KeyboardInterrupt, "limit"])
@pytest.mark.parametrize("after", [1, 4, 20])
def test_a_stop_in_the_midst_of_a_search(raised, after, tmp_path, monkeypatch):
    """Ctrl-C or a limit: the search is given up, the checkpoint is whole, and a resumed solve
    ends as well."""
    x, y = clusters(900, 900, 3, 9.0, np.random.default_rng(1), dimensions=3)
    source = bigsap.points(x, y)
    best = bigsap.solve(source, method="compressed")
    engines, under_way = [], []
    usual = list_engine.run_searches

    def noted(*args):
        status = usual(*args)
        if args[2].search.underway:
            under_way.append(args[2])
        return status

    def guard():
        if len(under_way) >= after and not engines:
            engines.append(under_way[-1])
            raise (KeyboardInterrupt if raised is KeyboardInterrupt else monitors.Stopped("time_limit"))

    small_slices(monkeypatch)
    monkeypatch.setattr(list_engine, "run_searches", noted)
    options = {"method": "compressed", "checkpoint": tmp_path / "half.ckpt", "threads": 1}
    with guarded(guard):
        if raised is KeyboardInterrupt:
            with pytest.raises(KeyboardInterrupt):
                bigsap.solve(source, **options)
        else:
            stopped = bigsap.solve(source, **options)
            assert stopped.status == "time_limit"
            assert stopped.bound <= best.fun <= stopped.fun
            stopped.verify(source)
    (frontier,) = engines
    assert not frontier.search.underway
    assert frontier.at.n_hidden == 0
    assert np.isinf(frontier.dist).all()
    resumed = bigsap.resume(tmp_path / "half.ckpt", source)
    assert resumed.status == "optimal"
    assert resumed.fun == pytest.approx(best.fun, rel=1e-12)


def test_a_search_under_way_is_no_moment_for_a_checkpoint(monkeypatch):
    from bigsap.engine.lists.snapshot import kept

    seen = []
    usual = list_engine.ListEngine._slice

    def noted(self, args):
        status = usual(self, args)
        if self.frontier.search.underway:
            seen.append(kept(self))
        return status

    small_slices(monkeypatch)
    monkeypatch.setattr(list_engine.ListEngine, "_slice", noted)
    x, y = clusters(500, 500, 2, 9.0, np.random.default_rng(1), dimensions=3)
    solved_by_lists(bigsap.points(x, y), 24)
    assert seen
    assert not any(seen)


# -- other kernels: a slice of one piece changes nothing, and each is looked at ------------


def chain(n):
    """Each row may have two columns, of which the last row has but one: stars come one by one."""
    cost = np.full((n, n), 9)
    cost[np.arange(n), np.arange(n)] = cost[np.arange(n - 1), np.arange(1, n)] = 0
    return cost


def zeros(n):
    """Half of the rows have nothing but zeros, all others a few columns."""
    cost = np.random.default_rng(3).integers(1, 9, (n, n))
    cost[: n // 2] = 0
    cost[n // 2 :, : n // 8] = 0
    return cost


@pytest.mark.parametrize("variant", ["tree", "classical"])
@pytest.mark.parametrize("make", [chain, zeros], ids=lambda make: make.__name__)
def test_stars_and_trees(variant, make, looks, monkeypatch):
    cost = make(240)
    options = {"method": "hungarian", "variant": variant, "threads": 1}
    usual = bigsap.solve(cost, **options)
    looks.count = 0
    bigsap.solve(cost, **options)
    few = looks.count
    for module, name in ((first_pairs, "_SLICE"), (classical, "_ZEROS")):
        monkeypatch.setattr(module, name, 1)
    for name in ("_FIRST_WORK", "_LEAST_WORK"):
        monkeypatch.setattr(trees, name, 1)
    monkeypatch.setattr(trees, "_SLICE_SECONDS", 0.0)
    looks.count = 0
    found = bigsap.solve(cost, **options)
    assert looks.count > few + 100
    assert answer(found) == answer(usual)
    assert found.stats["trees"] == usual.stats["trees"]


def test_tight_pairs(looks, monkeypatch):
    cost = np.random.default_rng(2).integers(0, 2, (1600, 1600))
    usual = bigsap.solve(cost, threads=1)
    assert usual.stats["first_prices"] == "tight"
    few = looks.count
    monkeypatch.setattr(tight_pairs, "_WALKED", 1)
    assert answer(bigsap.solve(cost, threads=1)) == answer(usual)
    assert looks.count > few + 1600


@pytest.mark.usefixtures("unhurried")
def test_rows_that_may_stay_unassigned(looks, monkeypatch):
    """The search of ``sparse_gate`` is left in its midst, with a matching and a bound."""
    cost = np.repeat(np.random.default_rng(6).random((300, 150)), 2, axis=1)
    best = bigsap.solve(cost, unassigned_cost=0.02, method="compressed")
    monkeypatch.setattr(optional_rows, "_FIRST_ENTRIES", 1)
    monkeypatch.setattr(optional_rows, "_SLICE_SECONDS", 0.0)
    few = looks.count
    again = bigsap.solve(cost, unassigned_cost=0.02, method="compressed")
    assert answer(again)[:3] == answer(best)[:3]
    assert looks.count > few + 300
    calls = []
    usual = optional_rows.search

    def noted(*args):
        status = usual(*args)
        calls.append(int(args[1].at.underway))
        return status

    def guard():
        if sum(calls) == 40:
            raise monitors.Stopped("time_limit")

    monkeypatch.setattr(optional_rows, "search", noted)
    with guarded(guard):
        stopped = bigsap.solve(cost, unassigned_cost=0.02, method="compressed")
    assert stopped.status == "time_limit"
    assert calls[-1] == 1
    assert stopped.bound <= best.fun <= stopped.fun


def test_warm_pairs_of_rows_that_may_stay_unassigned(looks, monkeypatch):
    cost = np.random.default_rng(7).random((300, 300))
    best = bigsap.solve(cost, unassigned_cost=0.02, method="compressed")
    rounds = []
    usual = optional_rows.free_loose
    monkeypatch.setattr(optional_rows, "free_loose", lambda *args: rounds.append(looks.count) or usual(*args))
    bigsap.solve(cost * 1.01, unassigned_cost=0.02, method="compressed", warm_start=best)
    assert len(rounds) > 1
    assert (np.diff(rounds) > 0).all()


@pytest.mark.parametrize("d", [1, 3])
def test_orders(d, monkeypatch):
    points = np.repeat(np.random.default_rng(8).random((500, d)), 3, axis=0)
    usual = ordering.compact_order(points)
    seen = []
    monkeypatch.setattr(ordering, "_SLICE", 1)
    assert ordering.compact_order(points, lambda: seen.append(1)).tolist() == usual.tolist()
    assert len(seen) > 300
    assert ordering.compact_order(points).tolist() == usual.tolist()

    def leave():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ordering.compact_order(points, leave)


def test_a_pool_that_moves(monkeypatch):
    """Lists stay where they are when the copying is left."""
    monkeypatch.setattr(pool, "COPIED", 10)
    cost = np.random.default_rng(9).random((40, 60))
    with Team(1) as team:
        engine = list_engine.ListEngine(Problem(as_source(cost)), team, Monitor(), np.dtype(float), 8, 0)
        engine.evaluate(np.arange(40))
        before = engine.lists
        ids = before.ids[: 40 * 8].copy()
        seen = []

        def leave():
            seen.append(1)
            if len(seen) == 3:
                raise KeyboardInterrupt

        engine.monitor.guards.append(leave)
        size = int(before.counts.pool_size) + 100
        with pytest.raises(KeyboardInterrupt):
            engine.move_pool(size, 320)
        assert engine.lists is before
        assert before.counts.pool_size == size - 100
        engine.move_pool(size, 320)
        assert len(seen) == 3 + 32
        assert (engine.lists.ids[:320] == ids).all()
        assert engine.lists.counts.pool_size == size


def test_levels_and_samples_of_a_matrix(looks, monkeypatch):
    x, y = np.random.default_rng(10).random((2, 2600, 2))
    cost = squared(x, y)
    options = {"method": "compressed", "start": "levels", "threads": 1}
    usual = answer(bigsap.solve(cost, **options))
    few, looks.count = looks.count, 0
    monkeypatch.setattr(levels, "_AT_ONCE", 1)
    monkeypatch.setattr(samples, "_GATHERED", 1)
    assert answer(bigsap.solve(cost, **options)) == usual
    assert looks.count > few + 650 + 2600


def test_the_range_of_an_auctions_costs(looks, monkeypatch):
    monkeypatch.setattr(auction, "_LOOKED", 1)
    bigsap.solve(np.random.default_rng(11).random((30, 50)), method="auction")
    assert looks.count > 30


# -- stops from elsewhere ---------------------------------------------------------------


@pytest.mark.parametrize("method", ["ssp", "compressed", "hungarian", "auction"])
def test_cancelled_by_another_thread_within_a_row(method, monkeypatch):
    """The source asks for the cancel and goes on when it has come: no other row is read but those
    that were asked for together."""
    monkeypatch.setattr(monitors, "_LEAST_GRACE", -1.0)  # nothing is read for the answer
    cancel, asked, come = threading.Event(), threading.Event(), threading.Event()
    n, read = 400, []
    costs = np.repeat(np.random.default_rng(12).random((n, n // 4)), 4, axis=1)

    def row(i):
        read.append(i)
        if len(read) == 25:
            asked.set()
            assert come.wait(200)
        return costs[i]

    def other():
        asked.wait(200)
        cancel.set()
        come.set()

    thread = threading.Thread(target=other)
    thread.start()
    source = bigsap.from_function(row, (n, n), kind="row", compiled=False)
    result = bigsap.solve(source, cancel=cancel, method=method, threads=1)
    thread.join()
    assert result.status == "cancelled"
    assert len(read) < n


def test_a_batch_does_not_wait_for_those_nobody_will_see(monkeypatch):
    """The first problem's error ends the second, which is under way."""
    armed, begun, over = threading.Event(), threading.Event(), threading.Event()
    n, read = 300, []

    class Left(threading.Event):
        def set(self):
            super().set()
            over.set()

    class Threading:
        Event = Left

    def bad(i):
        if armed.is_set():
            assert begun.wait(200)
            raise ZeroDivisionError
        return np.arange(n) * 1.0

    def long(i):
        if armed.is_set():
            read.append(i)
            begun.set()
            if len(read) > 1:
                assert over.wait(200)
        return np.arange(n) * 1.0

    monkeypatch.setattr(bigsap.batch, "threading", Threading)
    sources = [bigsap.from_function(row, (n, n), kind="row", compiled=False) for row in (bad, long)]
    armed.set()
    with pytest.raises(Exception, match="problem 0") as caught:
        bigsap.solve_many(sources, threads=2, memory_limit="1GiB")
    assert isinstance(caught.value.__cause__, Exception)
    assert len(read) < n


@pytest.mark.parametrize("shape", [(20, 3000), (3000, 20)])
def test_few_pairs_are_priced_when_the_grace_is_over(shape, monkeypatch):
    """Free columns in order, where there was no time to look for better ones."""
    monkeypatch.setattr(monitors, "_LEAST_GRACE", -1.0)
    monkeypatch.setattr(monitors, "_GRACE_SHARE", -1.0)
    cost = np.random.default_rng(13).random(shape)
    stopped = bigsap.solve(cost, method="compressed", time_limit=0)
    assert stopped.status == "time_limit"
    assert len(stopped.row_ind) == 20
    assert stopped.fun == pytest.approx(cost[stopped.row_ind, stopped.col_ind].sum())


@pytest.mark.parametrize("kind", ["in time", "hopeless", "too long", "cancelled"])
def test_a_proof_that_the_time_limit_meets_goes_on_for_the_grace_period(kind, monkeypatch):
    """No second pass begins: one that is as long would not end either."""
    n, late, asked = 600, threading.Event(), []

    def over(monitor):
        if not late.is_set():
            return None
        return "cancelled" if monitor.cancelled else "time_limit"

    def cancelled(monitor):
        if late.is_set():
            asked.append(1)
        return kind == "cancelled" and len(asked) > 2  # when the grace period has begun

    def at_proof(progress):
        if progress.stage == "certificate":
            late.set()

    monkeypatch.setattr(Monitor, "grace", lambda _: 0.0 if kind == "hopeless" else 60.0)
    if kind == "too long":
        monkeypatch.setattr(Deadline, "left", property(lambda _: 0.0))
    monkeypatch.setattr(Monitor, "over", property(over))
    monkeypatch.setattr(Monitor, "cancelled", property(cancelled))
    monkeypatch.setattr("bigsap.run.run.BLOCK_BYTES", 8 * n * 20)
    cost = np.random.default_rng(3).random((n, n))
    least = bigsap.solve(cost, method="ssp").fun
    options = {"callback": at_proof, "callback_every": 0.0, "threads": 1, "method": "compressed"}
    result = bigsap.solve(cost, certify="pairs", **options)
    assert late.is_set()
    if kind == "in time":
        assert (result.status, result.stats["certificate_pairs"]) == ("optimal", n * n)
        return
    assert result.status == ("cancelled" if kind == "cancelled" else "time_limit")
    assert 0 < result.stats["certificate_pairs"] < n * n
    assert result.fun == pytest.approx(least)
    assert result.bound <= result.fun
