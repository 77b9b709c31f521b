"""Solves with capacities and demands that are stopped and go on to the same bits."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest

import bigsap
from bigsap import checkpoint, policy
from bigsap.cli import commands as cli
from bigsap.errors import CheckpointError
from bigsap.run import on_capacities
from bigsap.strategies import capacities
from gate import Gated, gate  # noqa: F401


def same(a, b):
    """Whether two results have the same bits, and took the same steps."""
    for name in ("row_ind", "col_ind", "u", "v"):
        assert getattr(a, name).tolist() == getattr(b, name).tolist(), name
    assert (a.fun, a.bound, a.gap, a.status) == (b.fun, b.bound, b.gap, b.status)
    steps = [[level | {"pairs": 0} for level in one.stats["levels"]] for one in (a, b)]
    assert steps[0] == steps[1]  # threads round the pairs that they share
    return True


def _points(n=1200, m=12, seed=0):
    rng = np.random.default_rng(seed)
    return bigsap.points(rng.standard_normal((n, 2)), rng.random((m, 2)))


def _whole_numbers(n=1200, m=12):
    return np.random.default_rng(1).integers(0, 1000, (n, m))


PROBLEMS = {
    "tight": lambda: (_points(), {"capacity": 100}),
    "slack": lambda: (_points(), {"capacity": 110, "threads": 2}),
    "whole": lambda: (_whole_numbers(), {"capacity": [40, 160] * 6, "maximize": True}),
    "left out": lambda: (_points(), {"capacity": 70, "unassigned_cost": 1.5}),
    "demand": lambda: (_points(10, 900), {"demand": 80}),
    "open places": lambda: (_points(10, 900), {"demand": 80, "unassigned_cost": 0.9}),
    "warm": lambda: (_points(), {"capacity": 100, "warm_start": np.random.default_rng(3).random(12)}),
}


def stopped_at(count):
    """A callback that ends the solve when it is called for the ``count``-th time."""
    calls = itertools.count(1)

    def stop(_):
        if next(calls) >= count:
            raise StopIteration

    return stop


@pytest.mark.parametrize("name", PROBLEMS)
def test_stopped_again_and_again(name, tmp_path, monkeypatch):
    """Each attempt goes on for three ticks; the searches take many."""
    monkeypatch.setattr(capacities, "_SETTLED_AT_ONCE", 8)
    cost, options = PROBLEMS[name]()
    whole = bigsap.solve(cost, **options)
    assert whole.stats["method"] == "contracted"
    path = tmp_path / "solve.ckpt"
    given = options | {"callback_every": 0}
    found = bigsap.solve(cost, checkpoint=path, callback=stopped_at(2), **given)
    ends = [found.status]
    parts = set()
    while ends[-1] == "cancelled":
        saved = checkpoint.read(path)
        parts.add((saved.snapshot.get("size"), "columns_v" in saved.snapshot))
        kept = {k: v for k, v in given.items() if k != "maximize"}
        more = 4 + len(ends)  # the proof's ticks keep nothing
        found = bigsap.resume(path, cost, callback=stopped_at(more), **kept | {"threads": 1 + len(ends) % 2})
        ends.append(found.status)
    assert len(ends) > 4
    assert found.stats["resumed"] == len(ends) - 1
    assert (None, False) in parts or len(parts) > 2
    assert any(inside for _, inside in parts)
    assert same(found, whole)
    found.verify(cost)


def test_stopped_in_the_proof(tmp_path, monkeypatch):
    """The search's end is in the file: resumed, only the proof is made."""
    cost = _points()
    whole = bigsap.solve(cost, capacity=100)
    path, stopped = tmp_path / "solve.ckpt", []

    def stop(progress):
        if progress.stage == "certificate":
            stopped.append(progress.stage)
            raise StopIteration

    found = bigsap.solve(cost, capacity=100, checkpoint=path, callback=stop, callback_every=0)
    assert stopped  # optimal all the same, where the grace suffices for the proof
    assert found.status in ("cancelled", "optimal")
    searched = []
    settle = capacities.C.settle
    monkeypatch.setattr(capacities.C, "settle", lambda *a: searched.append(1) or settle(*a))
    assert same(bigsap.resume(path, cost, capacity=100), whole)
    assert not searched


@pytest.mark.parametrize(
    ("shape", "options"),
    [((200, 100), {"capacity": 2}), ((100, 200), {"demand": 2}), ((200, 150), {"capacity": [1, 0, 3] * 50})],
)
def test_repeated_columns_go_on_too(shape, options, tmp_path):
    rng = np.random.default_rng(4)
    cost = bigsap.points(rng.random((shape[0], 2)), rng.random((shape[1], 2)) + 1)
    given = options | {"callback_every": 0, "method": "ssp"}
    path = tmp_path / "solve.ckpt"
    whole = bigsap.solve(cost, checkpoint=tmp_path / "other", **given)
    assert whole.stats["capacities"] == "repeated"
    found = bigsap.solve(cost, checkpoint=path, callback=stopped_at(2), **given)
    while found.status == "cancelled":
        again = stopped_at(3 + 2 * found.stats["resumed"])
        found = bigsap.resume(path, cost, callback=again, **options, callback_every=0)
    assert found.stats["resumed"] > 0
    for name in ("row_ind", "col_ind", "u", "v"):
        assert getattr(found, name).tolist() == getattr(whole, name).tolist()
    assert (found.fun, found.bound) == (whole.fun, whole.bound)


def test_a_gate_stops_rows_from_python(gate, tmp_path):  # noqa: F811
    """Rows from Python are read first; cancelled there, the solve begins anew from its file."""
    cost = np.random.default_rng(5).random((300, 6))
    path = tmp_path / "solve.ckpt"
    found = bigsap.solve(Gated(cost, gate, 100), capacity=50, checkpoint=path, time_limit=0.05)
    assert (found.status, found.fun) == ("time_limit", None)
    assert checkpoint.read(path).snapshot == {}
    gate.open()
    found = bigsap.resume(path, Gated(cost, gate), capacity=50)
    assert found.fun == bigsap.solve(cost, capacity=50).fun


def test_functions_keep_their_shape(tmp_path):
    cost = np.random.default_rng(6).random((300, 6))
    path = tmp_path / "solve.ckpt"
    for options in ({"capacity": 50}, {"capacity": 60, "method": "ssp"}):
        found = bigsap.solve(lambda i: cost[i], shape=(300, 6), checkpoint=path, **options)
        again = bigsap.resume(path, lambda i: cost[i], capacity=options["capacity"])
        assert again.fun == found.fun


def test_other_problems_are_refused(tmp_path):
    cost = _points()
    path = tmp_path / "solve.ckpt"
    bigsap.solve(cost, capacity=100, checkpoint=path)
    before = path.read_bytes()
    for options, why in {
        ("capacity", 101): "capacity with the fingerprint",
        ("capacity", None): "capacity with",
        ("seed", 3): "seed = 0, this solve of 3",
        ("unassigned_cost", 3): "unassigned_cost with",
        ("maximize", True): "maximize = False",
    }.items():
        with pytest.raises(CheckpointError, match=why):
            bigsap.resume(path, cost, **{"capacity": 100, **dict([options])})
    with pytest.raises(CheckpointError, match="costs with the fingerprint"):
        bigsap.resume(path, _points(seed=1), capacity=100)
    assert path.read_bytes() == before
    bigsap.solve(cost.y, checkpoint=path)
    with pytest.raises(CheckpointError, match="a cost matrix of shape"):
        bigsap.resume(path, cost)


@pytest.mark.parametrize("forgotten", [{"capacity": 3}, {"unassigned_cost": 300}, {"demand": 2}])
def test_an_option_that_was_forgotten_is_named(forgotten, tmp_path):
    """Not what follows from it: the method, the shape of the costs, which side is searched."""
    cost = np.random.default_rng(8).integers(0, 900, (90, 40))
    name, path = next(iter(forgotten)), tmp_path / "solve.ckpt"
    given = cost.T if name == "demand" else cost
    bigsap.solve(given, checkpoint=path, **forgotten)
    with pytest.raises(
        CheckpointError, match=f"of an? {name} with the fingerprint [0-9a-f]+, this solve of None"
    ):
        bigsap.resume(path, given)


def test_large_integers_begin_anew_with_copies(tmp_path, monkeypatch):
    cost = np.random.default_rng(7).integers(0, 2**45, (600, 20))
    path, given_up = tmp_path / "solve.ckpt", []
    contracted = on_capacities.solve_few_columns
    monkeypatch.setattr(policy, "LEAST_CONTRACTED_COSTS", 0)
    monkeypatch.setattr(
        on_capacities, "solve_few_columns", lambda *a: given_up.append(contracted(*a)) or given_up[-1]
    )
    whole = bigsap.solve(cost, capacity=40)
    assert whole.stats["capacities"] == "repeated"
    found = bigsap.solve(cost, capacity=40, checkpoint=path)
    assert given_up == [None, None]
    assert checkpoint.read(path).facts["method"] != "contracted"
    assert (found.fun, bigsap.resume(path, cost, capacity=40).fun) == (whole.fun, whole.fun)


def test_the_way_is_the_files(tmp_path, monkeypatch):
    """Whatever would be chosen now, a solve goes on as it was begun."""
    cost = _points()
    path, other = tmp_path / "a", tmp_path / "b"
    found = bigsap.solve(cost, capacity=100, checkpoint=path)
    with monkeypatch.context() as patch:
        patch.setattr(policy, "MOST_CONTRACTED", 0)
        bigsap.solve(cost, capacity=100, checkpoint=other, callback=stopped_at(3), callback_every=0)
    again = bigsap.resume(other, cost, capacity=100)
    assert again.stats["capacities"] == "repeated"
    assert abs(again.fun - found.fun) < 1e-9
    assert same(bigsap.resume(path, cost, capacity=100, memory_limit="100 KB"), found)


def test_from_the_command_line(tmp_path, capsys):
    np.save(tmp_path / "c.npy", np.random.default_rng(8).random((600, 6)))
    words = ["solve", str(tmp_path / "c.npy"), "--capacity", "100", "--quiet", "--json"]
    words += ["--checkpoint", str(tmp_path / "k")]
    found = []
    for more in ([], ["--resume"]):
        assert cli.main([*words, *more]) == 0
        found.append(json.loads(capsys.readouterr().out)["fun"])
    assert found[0] == found[1]
    assert checkpoint.read(tmp_path / "k").facts["method"] == "contracted"
    assert cli.main([*words[:3], "101", *words[4:], "--resume"]) != 0
    assert "capacity with the fingerprint" in capsys.readouterr().err
