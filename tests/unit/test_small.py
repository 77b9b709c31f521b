"""Small problems: the dense kernel, its proof, batches, and results that are built later."""

from __future__ import annotations

import copy
import dataclasses
import math
import pickle
import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap
from bigsap import policy
from bigsap.engine.small import proof as dense_proof
from bigsap.engine.small import search as dense
from bigsap.engine.small import sums as dense_sums
from bigsap.result import Result
from bigsap.run import small_arrays as small
from bigsap.run import small_batches, small_search
from exactly import bound_of, cost_of_pairs, down, fractions_of, row_minima, up
from examples_of import examples
from instances import CLASSES, integers
from oracle import optimal_prices, optimum, value

FIELDS = [field.name for field in dataclasses.fields(Result) if field.name != "stats"]


def same(a, b):
    """Bit for bit, and of the same types."""
    for name in FIELDS:
        x, y = a[name], b[name]
        if isinstance(x, np.ndarray):
            np.testing.assert_array_equal(x, y, strict=True)
        else:
            assert (x, type(x)) == (y, type(y)), name
    times = ("seconds", "phases", "gaps", "peak_bytes")
    assert a.stats.keys() == b.stats.keys()
    assert {k: v for k, v in a.stats.items() if k not in times} == {
        k: v for k, v in b.stats.items() if k not in times
    }


def right(cost, maximize=False):
    """The result of ``solve``, which is right, proved, and of the dense kernel."""
    result = bigsap.solve(cost, maximize=maximize)
    assert result.stats["method"] == "dense"
    found = optimum(cost, maximize)
    if found is None:
        assert result.status == "infeasible"
        result.verify(cost)
        return result
    best = found[0]
    assert result.status == "optimal"
    exact = value(cost, result.row_ind, result.col_ind)
    if np.asarray(cost).dtype.kind == "f":
        assert abs(exact - best) <= abs(best) / 10**13
        assert result.fun == float(exact)  # rounded once
    else:
        assert result.fun == exact == best
        assert type(result.fun) is int
        assert result.gap == 0
    assert result.verify(cost).optimal
    return result


@examples(150)
@given(
    shape=st.tuples(st.integers(1, 9), st.integers(1, 9)),
    dtype=st.sampled_from(["f8", "f4", "f2", "i8", "i4", "i1", "u8", "u2", "?", ">f8", ">i4"]),
    values=st.sampled_from([2, 5, 60]),
    forbidden=st.sampled_from([0.0, 0.2, 0.6]),
    maximize=st.booleans(),
    seed=st.integers(0, 10**6),
)
def test_true_optimum(shape, dtype, values, forbidden, maximize, seed):
    rng = np.random.default_rng(seed)
    cost = rng.integers(0, values, shape).astype(dtype)
    if cost.dtype.kind == "f":
        cost = (cost - 1 + rng.integers(0, 2) * rng.random(shape)).astype(dtype)
        cost[rng.random(shape) < forbidden] = -np.inf if maximize else np.inf
    right(cost, maximize)


def test_every_width_of_a_row():
    """Vectors, their tails, and more columns than rows."""
    rng = np.random.default_rng(3)
    for m in range(1, 75):
        right(rng.random((min(m, 5), m)))
        right(rng.integers(0, 4, (m, min(m, 4))), maximize=True)
    for m in (31, 32, 33, 40, 47):
        right(rng.random((m, m)))
        right(rng.integers(0, 9, (m, m)))


@pytest.mark.parametrize("name", CLASSES)
def test_as_the_general_method(name):
    cost = CLASSES[name](80, seed=2)
    for part in (cost, cost[:50], cost[:, :50]):
        for maximize in (False, True):
            found = bigsap.solve(part, maximize=maximize)
            other = bigsap.solve(part, maximize=maximize, method="ssp")
            assert (found.stats["method"], other.stats["method"]) == ("dense", "ssp")
            assert found.fun == pytest.approx(other.fun, rel=1e-14, abs=0)
            assert type(found.fun) is type(other.fun)
            assert found.verify(part).optimal
            # The duals say the same, whoever found them.
            for duals in (found, other):
                sign = -1 if maximize else 1
                reduced = sign * (part - duals.u[:, None] - duals.v[None, :])
                scale = np.abs(part).max() + np.abs(duals.u).max() + np.abs(duals.v).max()
                assert reduced.min() >= -1e-14 * scale
                assert np.abs(reduced[duals.row_ind, duals.col_ind]).max() <= 1e-12 * scale
            assert {*other.stats} - {*found.stats} == set()


def test_numbers_of_all_sizes():
    """Optimal and certified, by whichever method is sure of it."""
    rng = np.random.default_rng(5)
    for spread in (5, 15, 30, 150):
        for _ in range(10):
            cost = rng.random((12, 12)) * 10.0 ** rng.integers(-spread, spread, (12, 12))
            result = bigsap.solve(cost)
            assert result.verify(cost).optimal
            best, _ = optimum(cost)
            assert value(cost, result.row_ind, result.col_ind) <= best * (1 + 2**-40)


def test_beyond_float64():
    """Where float64 does not hold the integers, or sums, the general method solves."""
    cost = 2**49 + integers(12, seed=3, factor=0.5)
    assert bigsap.solve(cost).fun == optimum(cost)[0]
    most = 2**53 // (4 * 14)
    edge = np.where(np.eye(12, dtype=bool), most - 1, -most + 2)
    assert right(edge).fun == 12 * (2 - most)
    assert bigsap.solve(edge * 2).stats["method"] == "ssp"
    assert bigsap.solve(edge * 2).fun == 24 * (2 - most)
    huge = np.array([[1e308, 1e307], [1e308, 1e308]])
    rows, columns = bigsap.linear_sum_assignment(huge)
    np.testing.assert_array_equal((rows, columns), [[0, 1], [1, 0]])


def test_the_identity_where_it_is_optimal():
    rng = np.random.default_rng(6)
    for n, m in ((6, 6), (5, 9), (9, 5), (40, 40)):
        k = np.arange(min(n, m))
        for cost in (rng.integers(0, 3, (n, m)), rng.integers(0, 3, (n, m)) / 10 + 1e6):
            best = cost.copy()
            best[k, k] = cost.min()
            np.testing.assert_array_equal(right(best).col_ind, k)
            np.testing.assert_array_equal(right(-best, maximize=True).col_ind, k)
            worse = best.copy()
            worse[:] = np.nextafter(best.min(), np.inf) if best.dtype.kind == "f" else 1
            worse[k, k] = best.min()
            worse[0, 1] = worse[1, 0] = worse.min() - worse.min() / 8 - 1
            assert right(worse).col_ind[0] == 1


# -- arrays as they lie in memory ------------------------------------------------------


def layouts(cost):
    """The same costs: in other orders, with other strides, and not to be written to."""
    n, m = cost.shape
    wide = np.full((2 * n, 3 * m + 1), np.nan)
    wide[::2, 1::3] = cost
    left = np.full((n, m + 5), np.nan)
    left[:, :m] = cost
    locked = cost.copy()
    locked.setflags(write=False)
    raw = np.zeros(cost.nbytes + 1, np.uint8)
    odd = raw[1:].view(np.float64).reshape(n, m)
    odd[:] = cost
    return {
        "fortran": np.asfortranarray(cost),
        "strided": wide[::2, 1::3],
        "left part": left[:, :m],
        "read-only": locked,
        "reversed": np.ascontiguousarray(cost[::-1, ::-1])[::-1, ::-1],
        "unaligned": odd,
        "byte order": cost.astype(">f8"),
        "list": cost.tolist(),
    }


@pytest.mark.parametrize("shape", [(7, 7), (5, 9), (9, 5), (1, 4), (4, 1), (1, 1)])
def test_layouts(shape):
    cost = np.random.default_rng(7).random(shape)
    for maximize in (False, True):
        plain = right(cost, maximize)
        for name, other in layouts(cost).items():
            before = np.array(other)
            same(bigsap.solve(other, maximize=maximize), plain)
            if name == "list":
                continue
            np.testing.assert_array_equal(other, before)
            rows, columns = bigsap.linear_sum_assignment(other, maximize)
            np.testing.assert_array_equal(rows, plain.row_ind)
            np.testing.assert_array_equal(columns, plain.col_ind)
    same(bigsap.solve(np.repeat(cost[:1], 3, axis=0)), bigsap.solve(np.broadcast_to(cost[:1], (3, shape[1]))))


def test_neither_threads_nor_seed_show():
    cost = integers(40, seed=1, factor=0.1)
    plain = bigsap.solve(cost)
    for options in ({"threads": 1}, {"threads": 3}, {"seed": 5}, {"shape": (40, 40)}):
        same(bigsap.solve(cost, **options), plain)


@pytest.mark.parametrize(
    "options",
    [
        {"method": "ssp"},
        {"epsilon": False},
        {"dtype": "f4"},
        {"memory_limit": 1000},
        {"start": "none"},
        {"checkpoint": "saved"},
        {"progress": True},
    ],
    ids=lambda options: next(iter(options)),
)
def test_options_that_ask_for_something_else(options, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    cost = np.random.default_rng(8).random((9, 9))
    other = bigsap.solve(cost, **options)
    assert other.stats["method"] == "ssp"
    assert other.fun == pytest.approx(bigsap.solve(cost).fun, rel=1e-6)


@pytest.mark.parametrize("cluster", [5, "x"])
def test_a_cluster_that_is_none_is_refused_for_small_arrays_too(cluster):
    wrong = (bigsap.OptionError, bigsap.ClusterError)
    with pytest.raises(wrong, match=r"cluster|no scheduler"):
        bigsap.solve(np.random.default_rng(8).random((9, 9)), cluster=cluster)


def test_what_is_no_small_array(tmp_path):
    cost = np.random.default_rng(9).random((9, 9))
    np.save(tmp_path / "c.npy", cost)
    for other in (np.load(tmp_path / "c.npy", mmap_mode="r"), tmp_path / "c.npy"):
        assert bigsap.solve(other).stats["method"] == "ssp"
    assert not small.suits(np.broadcast_to(0.0, (2**10, 2**10 + 1)))
    assert small.suits(np.broadcast_to(0.0, (2**10, 2**10)))


def test_hard_for_its_size():
    cost = CLASSES["rank1"](1000, seed=0)
    result = bigsap.solve(cost)
    assert (result.stats["method"], result.status) == ("ssp", "optimal")
    assert result.stats["why"] == "a small matrix that is hard for its size"


# -- bad costs -------------------------------------------------------------------------


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shape", [(5, 5), (4, 6), (6, 4)])
def test_bad_costs_are_told_as_by_the_general_method(shape, maximize):
    wrong = np.inf if maximize else -np.inf
    for bad in (np.nan, wrong):
        for dtype in ("f8", "f4"):
            cost = np.ones(shape, dtype)
            cost[2, 1] = bad
            found = []
            for options in ({}, {"method": "ssp"}):
                with pytest.raises(bigsap.InvalidCostError) as caught:
                    bigsap.solve(cost, maximize=maximize, **options)
                found.append((str(caught.value), caught.value.row, caught.value.column))
            assert found[0] == found[1]
            assert found[0][1:] == (2, 1)
    cost = np.full((40, 40), -wrong)  # forbidden everywhere
    cost[39, 38] = np.nan
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[39, 38\] is nan"):
        bigsap.solve(cost, maximize=maximize)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shape", [(6, 6), (4, 7), (7, 4)])
def test_infeasible(shape, maximize):
    cost = np.random.default_rng(10).random(shape)
    barred = -np.inf if maximize else np.inf
    n, m = shape
    if n > m:
        cost[3:, 1:3] = barred  # four rows for the first column; three of them may be left
        cost[:3, 1:] = barred
    else:
        cost[1:4, 2:] = barred  # three rows, two columns
    result = bigsap.solve(cost, maximize=maximize)
    other = bigsap.solve(cost, maximize=maximize, method="ssp")
    assert (result.status, result.success) == ("infeasible", False)
    assert result.message.startswith("The cost matrix is infeasible: together, the ")
    assert (result.fun, result.bound, result.gap) == (other.fun, other.bound, other.gap)
    assert result.row_ind.size == result.col_ind.size == 0
    assert np.isnan(result.u).all()
    assert result.verify(cost) is not None
    if n <= m:
        np.testing.assert_array_equal(result.violator, [1, 2, 3])
    with pytest.raises(bigsap.InfeasibleError) as caught:
        bigsap.linear_sum_assignment(cost, maximize)
    np.testing.assert_array_equal(caught.value.violator, result.violator)


# -- the proof -------------------------------------------------------------------------


def proof(cost, column_of_row, v, whole=False):
    """What the proof returns, the facts it tells, and row duals in two parts and prices."""
    n, m = cost.shape
    facts, low, rest, prices = np.zeros(dense.FACTS), np.empty(n), np.empty(n), np.empty(m)
    proved = dense_proof.prove_dense(
        cost.ctypes.data,
        m,
        n,
        m,
        whole,
        dense_proof.Claim(np.array(column_of_row), v, np.empty(0)),
        np.empty(m, np.int64),
        dense_proof.Found(low, rest, np.empty(n), prices, facts),
        np.empty(4 * m + 2 * n + dense.SPARE),
    )
    return proved, facts, (low, rest), prices


def check_proof(cost, column_of_row, v, whole=False):
    """What the proof returns, once all that it tells of complete assignments is exactly right."""
    proved, facts, u, prices = proof(cost, column_of_row, v, whole)
    assert proved != dense_proof.WRONG
    prices = fractions_of(prices)
    assert fractions_of(*u) == row_minima(cost, prices)
    assert max(prices) <= 0
    bound = bound_of(cost, prices)
    fun, size = cost_of_pairs(cost, column_of_row)
    assert facts[3:].tolist() == [float(fun), up(fun - bound), down(bound)]
    if proved == dense_proof.PROVED:
        assert fun - bound <= (0 if whole else size / 2**50)
    return proved


@pytest.mark.parametrize("shape", [(20, 20), (12, 20)])
@pytest.mark.parametrize("kind", ["real", "integer"])
def test_the_proof_refuses_what_is_wrong(shape, kind):
    WRONG, LOOSE, PROVED = range(3)
    assert dense_proof.PROVED == PROVED
    cost = np.random.default_rng(11).random(shape)
    whole = kind == "integer"
    if whole:
        cost = np.floor(50 * cost)
    result = bigsap.solve(cost)
    good, v = result.col4row, result.v
    assert check_proof(cost, good, v, whole) == PROVED
    # A price that is wrong, by much or by just more than the next column of its row allows.
    much = 25.0 if whole else 0.5
    for j in good:
        for change in (much, -much):
            assert check_proof(cost, good, v + change * np.eye(len(v))[j], whole) == LOOSE
    reduced = np.sort(cost - result.u[:, None] - v, axis=1)[:, 1]
    i = int(reduced.argmax())
    little = 1.0 if whole else 1e-12
    one = np.eye(len(v))[good[i]]
    assert check_proof(cost, good, v - (reduced[i] - little) * one, whole) == PROVED
    assert check_proof(cost, good, v - (reduced[i] + little) * one, whole) == LOOSE
    for j in good.tolist():
        wrong = v.copy()
        wrong[j] = np.nan
        assert proof(cost, good, wrong, whole)[0] == WRONG
        wrong[j] = -1e300
        assert proof(cost, good, wrong, whole)[0] == WRONG
    # Another assignment, one that is none, and a forbidden pair.
    other = good.copy()
    other[[0, 1]] = good[[1, 0]]
    assert check_proof(cost, other, v, whole) == LOOSE
    for wrong in (good[1], -1, shape[1]):
        other = good.copy()
        other[0] = wrong
        assert proof(cost, other, v, whole)[0] == WRONG
    barred = cost.copy()
    barred[3, good[3]] = np.inf
    assert proof(barred, good, v, whole)[0] == WRONG


def test_the_proof_looks_at_free_columns():
    cost = np.array([[1.0, 0.0, 0.0]])
    assert check_proof(cost, [1], np.zeros(3)) == dense_proof.PROVED
    assert check_proof(cost, [0], np.array([0.0, -1.0, -1.0])) == dense_proof.LOOSE


@examples(200)
@given(
    shape=st.sampled_from([(1, 1), (1, 5), (6, 6), (5, 9), (9, 9)]),
    spread=st.sampled_from([0, 1, 8, 60, 280]),
    offset=st.sampled_from([0.0, 1.0, 1e9, -1e15]),
    ties=st.booleans(),
    barred=st.booleans(),
    noise=st.sampled_from([0.0, 1e-16, 1e-9, 1.0]),
    seed=st.integers(0, 10**6),
)
def test_what_the_proof_tells_is_exact(shape, spread, offset, ties, barred, noise, seed):
    """Of any prices and assignment, good ones or not, costs far apart, tied, around an offset."""
    rng = np.random.default_rng(seed)
    n, m = shape
    cost = rng.standard_normal(shape) * 10.0 ** rng.uniform(-spread, spread, shape) + offset
    if ties:
        cost = rng.choice(cost.ravel()[: n + 1], shape)
    column_of_row = rng.permutation(m)[:n]
    if barred:
        holes = rng.random(shape) < 0.3
        holes[np.arange(n), column_of_row] = False
        cost[holes] = np.inf
    v = np.array([float(p) for p in optimal_prices(cost)]) * (1 + noise * rng.standard_normal(m))
    if rng.random() < 0.7:
        column_of_row = np.array(optimum(cost)[1])
    if np.ptp(v) >= 1e290:
        return
    check_proof(cost, column_of_row, v)


@pytest.mark.parametrize(
    ("rows", "proved"), [([0, 1], True), ([0, 1, 2], False), ([0], False), ([1, 0], False)]
)
def test_the_proof_of_infeasibility(rows, proved):
    cost = np.array([[1, np.inf, np.inf], [2, np.inf, np.inf], [1, 1, 1]])
    allowed = np.empty(3, np.int64)
    for caps, possible in (((), True), ((np.inf, np.inf, 5.0), True), ((np.inf, 5.0, np.inf), len(rows) < 2)):
        given = np.array(rows), len(rows), allowed, np.array(caps, float)
        found = dense_proof.prove_infeasible(cost.ctypes.data, 3, 3, *given)
        assert found == (proved and possible)


def test_what_the_kernel_is_not_sure_of_is_solved_by_another_method(monkeypatch):
    cost = np.random.default_rng(12).random((6, 6))
    plain = bigsap.solve(cost)
    monkeypatch.setattr(small_search, "solve_dense", lambda *given: dense.UNSURE)
    result = bigsap.solve(cost)
    assert (result.stats["method"], result.fun) == ("ssp", plain.fun)
    np.testing.assert_array_equal(bigsap.linear_sum_assignment(cost)[1], plain.col_ind)


@examples(200)
@given(st.lists(st.floats(-1e300, 1e300), max_size=12))
def test_sums_are_rounded_once(numbers):
    room, count = np.empty(13), 0
    for number in [*numbers, 1e16, 1.0, -1e16]:
        room = np.resize(room, count + 2)
        count = dense_sums.add(room, count, number)
    expected = math.fsum([*numbers, 1e16, 1.0, -1e16])
    assert dense_sums.rounded(room, count) == expected


@pytest.mark.parametrize(
    "numbers", [[], [1, 2**-53], [1, 2**-53, 2**-120], [1, 2**-53, -(2**-120)], [1e16, 1, 1e-16]]
)
def test_halves_are_rounded_as_by_fsum(numbers):
    for signed in (numbers, [-x for x in numbers]):
        room, count = np.empty(8), 0
        for number in signed:
            count = dense_sums.add(room, count, float(number))
        assert dense_sums.rounded(room, count) == math.fsum(signed)


# -- batches ---------------------------------------------------------------------------


def test_costs_that_are_converted_are_taken_in_parts(monkeypatch):
    cube = (9 * np.random.default_rng(13).random((30, 6, 8))).astype("i2")
    plain = bigsap.solve_many(cube)
    calls = []
    readable = small_batches._readable
    monkeypatch.setattr(policy, "BATCH_COSTS_AT_ONCE", 5 * cube[0].size)
    monkeypatch.setattr(small_batches, "_readable", lambda part: calls.append(part.size) or readable(part))
    for costs in (cube, list(cube)):
        for a, b in zip(plain, bigsap.solve_many(costs), strict=True):
            same(a, b)
    assert sum(calls) == 2 * cube.size
    assert max(calls) == 5 * cube[0].size


# -- results that are put together later --------------------------------------------------


def fresh():
    return bigsap.solve(np.random.default_rng(14).random((7, 9)))


def test_a_result_is_whole_for_whoever_looks():
    plain = fresh()
    assert "_later" in plain.__dict__
    assert plain.fun is plain["fun"] is plain.fun
    assert "_later" not in plain.__dict__
    for other in (
        pickle.loads(pickle.dumps(fresh())),
        copy.copy(fresh()),
        copy.deepcopy(fresh()),
        dataclasses.replace(fresh()),
        Result(**dict(fresh())),
    ):
        assert "_later" not in other.__dict__
        same(other, plain)
    assert fresh().stats["rows_scanned"] > 0
    assert repr(fresh()) == repr(plain)
    assert fresh().shape == (7, 9)
    for name in ("nothing", "_nothing", "__array__"):
        assert not hasattr(fresh(), name)
    with pytest.raises(dataclasses.FrozenInstanceError):
        fresh().fun = 1.0


def test_a_result_is_saved_and_drawn(tmp_path):
    result = fresh()
    result.save(tmp_path / "r.npz")
    same(Result.load(tmp_path / "r.npz"), result)
    assert fresh().plot() is not None


def test_a_result_does_not_change_with_the_costs():
    cost = np.random.default_rng(15).random((5, 5))
    kept = cost.copy()
    results = [bigsap.solve(cost), bigsap.solve_many([cost])[0]]
    cost[:] = 7.0
    for result in results:
        assert result.verify(kept).optimal


def test_two_threads_look_at_once():
    results = bigsap.solve_many(np.random.default_rng(16).random((200, 3, 3)))
    seen = [[], []]

    def look(k):
        seen[k] = [(r.fun, r.u) for r in results]

    lookers = [threading.Thread(target=look, args=(k,)) for k in range(2)]
    for looker in lookers:
        looker.start()
    for looker in lookers:
        looker.join()
    assert all(a[1] is b[1] for a, b in zip(*seen, strict=True))
