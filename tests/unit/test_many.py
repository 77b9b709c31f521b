"""solve_many: order, laziness, errors; and solves side by side."""

from __future__ import annotations

import importlib
import os
import threading
import time

import numpy as np
import pytest

import bigsap
from bigsap.batch import solve_many
from bigsap.errors import InputError, InvalidCostError, OptionError
from gate import HANG_S, until
from pairwise import each

RNG_SEED = 5


def problems(count=40, seed=RNG_SEED):
    """Matrices of many shapes and dtypes; about one in five is infeasible."""
    rng = np.random.default_rng(seed)
    made = []
    for k in range(count):
        n, m = rng.integers(1, 12, 2)
        cost = rng.integers(0, 9, (n, m))
        if k % 5 == 4:
            cost = np.where(rng.random((n, m)) < 0.85, np.inf, cost)
        made.append(cost.astype(np.float32) if k % 5 == 2 else cost)
    return made


def same(a, b):
    assert (a.fun, a.bound, a.status, a.shape) == (b.fun, b.bound, b.status, b.shape)
    for name in ("col4row", "row4col", "u", "v", "violator"):
        np.testing.assert_array_equal(a[name], b[name])


def test_small_batches_ask_the_system_nothing(monkeypatch):
    """How many threads there are, and their memory, take longer than a small problem."""
    one = np.random.default_rng(1).random((1, 5, 5))
    ways = [
        (costs, given) for costs in (one, list(one), [*one] * 3) for given in ({}, {"unassigned_cost": 0.5})
    ]
    expected = [solve_many(costs, **given)[0].fun for costs, given in ways]
    opened, real = [], os.open
    monkeypatch.setattr(
        os, "open", lambda path, *rest, **more: opened.append(path) or real(path, *rest, **more)
    )
    found = [solve_many(costs, **given) for costs, given in ways]
    assert not opened
    assert [batch[0].fun for batch in found] == expected


@each(threads=[1, 3, None], maximize=[False, True])
def test_equals_one_by_one(threads, maximize):
    costs = [np.where(np.isinf(c), -c, c) if maximize and c.dtype == float else c for c in problems()]
    found = solve_many(costs, threads=threads, maximize=maximize, seed=3)
    assert {"optimal", "infeasible"} == {r.status.value for r in found}
    for cost, result in zip(costs, found, strict=True):
        same(result, bigsap.solve(cost, maximize=maximize, threads=1, seed=3))
        assert result.stats["threads"] == 1


def test_an_array_of_matrices_and_an_empty_batch():
    costs = np.random.default_rng(1).random((6, 4, 5))
    assert [r.fun for r in solve_many(costs)] == [bigsap.solve(c).fun for c in costs]
    assert solve_many([]) == []
    assert solve_many(iter(())) == []


def test_order_is_kept_when_early_problems_are_slow():
    first_waits = threading.Event()

    class Given:
        shape, dtype = (3, 3), np.dtype(float)

        def __init__(self, value, act):
            self.value, self.act = value, act

        def read(self, rows, columns, out):
            self.act()
            out[:] = self.value

    # Only reading the last problem lets the first one go on.
    first = Given(5.0, lambda: first_waits.wait(HANG_S))
    found = solve_many([first, np.eye(3), Given(7.0, first_waits.set)], threads=2)
    assert first_waits.is_set()
    assert [r.fun for r in found] == [15.0, 0.0, 21.0]


def test_a_generator_is_read_in_bounded_look_ahead():
    made, seen = [], []

    class First:
        """Holds the batch up until the generator was left alone for a while."""

        shape, dtype = (2, 2), np.dtype(float)

        def read(self, rows, columns, out):
            while not seen:
                before = until(lambda: len(made) >= 2 and len(made))
                time.sleep(0.1)
                if len(made) == before:
                    seen.append(before)
            out[:] = 1.0

    def generate():
        for k in range(100):
            made.append(k)
            yield First() if k == 0 else np.eye(2)

    found = solve_many(generate(), threads=2)
    assert [r.fun for r in found] == [2.0] + 99 * [0.0]
    assert 2 <= seen[0] <= 8


def test_a_generator_stops_being_read_at_an_error():
    made = 0

    def generate():
        nonlocal made
        for k in range(1000):
            made += 1
            yield np.full((2, 2), np.nan if k == 3 else 1.0)

    with pytest.raises(InputError, match="problem 3"):
        solve_many(generate(), threads=2)
    assert made <= 3 + 8


def test_errors_name_the_problem():
    bad = np.ones((3, 3))
    bad[1, 2] = np.nan
    with pytest.raises(InvalidCostError, match=r"^problem 1: .*cost\[1, 2\] is nan") as caught:
        solve_many([np.eye(3), bad, np.ones(3)])
    assert (caught.value.row, caught.value.column) == (1, 2)
    assert isinstance(caught.value.__cause__, InvalidCostError)
    assert not str(caught.value.__cause__).startswith("problem")
    assert (caught.value.__cause__.row, caught.value.__cause__.column) == (1, 2)


def test_other_errors_come_as_they_are_with_a_note():
    def refuse(progress):
        raise ZeroDivisionError("no")

    with pytest.raises(ZeroDivisionError) as caught:
        solve_many([np.random.default_rng(0).random((30, 30))], callback=refuse)
    assert caught.value.__notes__ == ["in problem 0 of solve_many"]


def test_a_generators_own_error_comes_through():
    def generate():
        yield np.eye(2)
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        solve_many(generate(), errors="return")


def test_errors_returned():
    found = solve_many([np.eye(2), np.ones(3), np.eye(3)], errors="return")
    assert [type(r).__name__ for r in found] == ["Result", "ShapeError", "Result"]
    assert [found[0].fun, found[2].fun] == [0.0, 0.0]


@pytest.mark.parametrize(
    ("costs", "options", "error"),
    [
        ([np.eye(2)], {"errors": "ignore"}, OptionError),
        ([np.eye(2)], {"threads": 0}, OptionError),
        ([np.eye(2)], {"progress": True}, OptionError),
        ([np.eye(2)], {"checkpoint": "x"}, OptionError),
        ("costs.npy", {}, OptionError),
        (7, {}, OptionError),
        ({"a": np.eye(2)}, {}, OptionError),
        ([np.eye(2)], {"epsilom": False, "errors": "return"}, TypeError),
    ],
)
def test_bad_calls(costs, options, error):
    with pytest.raises(error):
        solve_many(costs, **options)


def test_two_solves_from_different_threads_at_once():
    rng = np.random.default_rng(8)
    x, y = rng.random((2, 300, 2)), rng.random((2, 300, 2))
    costs = [bigsap.points(x[0], y[0]), bigsap.points(x[1], y[1], "cityblock")]
    alone = [bigsap.solve(c, threads=2) for c in costs]
    meet = threading.Barrier(2, timeout=HANG_S)
    inside, found = [0, 0], [None, None]

    def work(k):
        waited = []

        def callback(progress):
            # The first report of each waits for the other: both solves are under way.
            if not waited:
                waited.append(meet.wait())
                inside[k] += 1

        found[k] = bigsap.solve(costs[k], threads=2, callback=callback)

    users = [threading.Thread(target=work, args=(k,)) for k in range(2)]
    for user in users:
        user.start()
    for user in users:
        user.join(HANG_S)
    assert inside == [1, 1]
    for a, b in zip(alone, found, strict=True):
        same(a, b)


@pytest.mark.parametrize("library", ["pandas", "polars", "pyarrow"])
def test_a_frame_is_one_problem(library):
    """The columns of a frame, whose iterator gives their names or values, are no problems."""
    frames = importlib.import_module(library)
    make = frames.table if library == "pyarrow" else frames.DataFrame
    frame = make({"a": [4.0, 2.0], "b": [1.0, 3.0]})
    with pytest.raises(bigsap.OptionError, match="for one problem call solve"):
        bigsap.solve_many(frame)
    assert bigsap.solve_many([frame]).fun.tolist() == [3.0]
