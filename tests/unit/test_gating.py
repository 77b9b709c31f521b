"""Rows left unassigned at a price: the optimum, its proof, and bad prices."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import linear_sum_assignment

import bigsap
from bigsap.errors import (
    CertificateError,
    CheckpointError,
    DtypeError,
    InputError,
    InvalidCostError,
    OverflowRiskError,
    ShapeError,
    StoreError,
)
from bigsap.proof.unassigned import _better_bound, certify_gated, drop_clipped_pairs, extend_warm_start
from bigsap.result import Result
from bigsap.sources import Counted, as_source
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.compiled import read_by_fill
from contracts import whole
from examples_of import examples
from oracle import brute_force, optimum, value
from pairwise import each


def solve(cost, price, *, maximize=False, dtype=None, **options):
    """What ``solve(..., unassigned_cost=price)`` does."""
    gated = ClippedCosts(as_source(cost, dtype=dtype), price, maximize=maximize)
    return drop_clipped_pairs(bigsap.solve(gated, maximize=maximize, **options), gated)


def textbook(cost, price, maximize=False):
    """The problem with a private column per row, (n, m + n) float64."""
    n, m = cost.shape
    wide = np.full((n, m + n), -np.inf if maximize else np.inf)
    wide[:, :m] = cost
    wide[np.arange(n), m + np.arange(n)] = price
    return wide


def check(cost, price, result, maximize=False):
    """Everything that a gated result promises, against the textbook model."""
    n = len(cost)
    prices = np.broadcast_to(np.asarray(price, float), (n,))
    best = optimum(textbook(cost, prices, maximize), maximize) if n else (Fraction(0), [])
    proof = result.verify(cost, unassigned_cost=price)
    if best is None:
        assert result.status == "infeasible"
        return
    assert result.status == "optimal"
    assert proof.optimal
    out = result.col4row < 0
    exact = value(cost, result.row_ind, result.col_ind) + sum(
        (Fraction(p.item()) for p in prices[out]), Fraction(0)
    )
    assert abs(exact - best[0]) <= 1e-12 * (1 + abs(best[0]))
    assert result.fun == pytest.approx(float(best[0]), rel=1e-13, abs=1e-13)
    assert result.stats["unassigned_rows"] == out.sum()
    # Only real pairs, and all views of them agree.
    assert (result.row_ind == np.flatnonzero(~out)).all()
    assert (result.row4col[result.col_ind] == result.row_ind).all()
    assert (result.row4col >= 0).sum() == len(result.row_ind)
    assert np.isfinite(cost[result.row_ind, result.col_ind].astype(float)).all()
    # The duals of the gated problem.
    sign = -1 if maximize else 1
    scale = 1e-12 * (1 + np.abs(result.u).max(initial=0) + np.abs(result.v).max(initial=0))
    assert (sign * result.u <= sign * prices + scale).all()
    assert (sign * result.v <= 0).all()
    assert (sign * (result.u[:, None] + result.v) <= sign * cost.astype(float) + scale).all()
    np.testing.assert_allclose(result.u[out], prices[out], atol=scale)
    assert abs(result.v[result.row4col < 0]).max(initial=0) <= scale
    assert result.u.sum() + result.v.sum() == pytest.approx(result.bound, rel=1e-12, abs=1e-12)


@st.composite
def instances(draw):
    n, m = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    maximize = draw(st.booleans())
    kind = draw(st.sampled_from(["f8", "f4", "i8", "i4", "u1", "u2"]))
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    low = 0 if kind[0] == "u" else -6
    if kind[0] == "f":
        cost = (rng.integers(-12, 25, (n, m)) / draw(st.sampled_from([1, 10]))).astype(kind)
        cost[rng.random((n, m)) < draw(st.sampled_from([0, 0.4]))] = -np.inf if maximize else np.inf
    else:
        cost = rng.integers(low, 13, (n, m)).astype(kind)
    price = draw(
        st.sampled_from(
            [
                rng.integers(-8, 16, n),
                rng.integers(0, 10, n).astype("u2"),
                rng.integers(-8, 16, n) / 4,
                rng.random(n) * 8,
                3,
                2.5,
                -1.1,
            ]
        )
    )
    if draw(st.booleans()):
        price = np.array(np.broadcast_to(price, (n,)), float)
        price[rng.random(n) < 0.4] = -np.inf if maximize else np.inf
    return cost, price, maximize


@examples(300)
@given(instances(), st.sampled_from(["ssp", "compressed"]), st.booleans())
def test_equals_the_textbook_model(instance, method, epsilon):
    """Also against trying everything, which shares nothing with any solver."""
    cost, price, maximize = instance
    options = {"maximize": maximize, "method": method, "epsilon": epsilon}
    result = bigsap.solve(cost, unassigned_cost=price, **options)
    check(cost, price, result, maximize)
    if len(cost) <= 4:
        best = brute_force(textbook(cost, price, maximize), maximize) if len(cost) else None
        if best is not None:
            assert result.fun == pytest.approx(float(best), rel=1e-13, abs=1e-13)


@each(kind=["array", "rows", "lambda"], maximize=[False, True], shape=[(70, 70), (50, 70), (70, 50)])
def test_stopped_and_continued(shape, maximize, kind, tmp_path):
    x, y = points_of(*shape)
    cost = ((x[:, None] - y) ** 2).sum(axis=2)
    price = np.linspace(0.001, 0.2, shape[0])
    given = {
        "array": cost,
        "rows": bigsap.from_function(lambda i: cost[i], shape, kind="row", compiled=False),
        "lambda": lambda i, j: cost[i, j],
    }[kind]
    options = {"unassigned_cost": price, "maximize": maximize, "method": "ssp"}
    form = {"shape": shape} if kind == "lambda" else {}
    whole = bigsap.solve(given, **form, **options)
    check(cost, price, whole, maximize)
    path = tmp_path / "c"
    for ticks in (0, 1, 5, 40):
        count = iter(range(10**9))

        def stop(_state, count=count, ticks=ticks):
            if next(count) >= ticks:
                raise StopIteration

        bigsap.solve(given, **form, **options, checkpoint=path, callback=stop, callback_every=0)
        before = path.read_bytes()
        # The shape is the user's, as the checkpoint remembers it; the prices are not in it.
        again = bigsap.resume(path, given, unassigned_cost=price)
        np.testing.assert_array_equal(again.col4row, whole.col4row)
        np.testing.assert_array_equal(again.u, whole.u)
        np.testing.assert_array_equal(again.v, whole.v)
        assert again.fun == whole.fun
        assert again.stats["resumed"] == 1
        check(cost, price, again, maximize)
        path.write_bytes(before)
        for other in (None, price * 2):
            with pytest.raises(CheckpointError, match="the checkpoint is of"):
                bigsap.resume(path, given, unassigned_cost=other)
        assert path.read_bytes() == before


def test_a_pair_that_costs_just_its_price_stays():
    for maximize in (False, True):
        assert len(solve(np.full((3, 3), 4), 4, maximize=maximize).row_ind) == 3
    assert solve(np.full((3, 3), 4.0), np.nextafter(4, 0)).col4row.tolist() == [-1, -1, -1]


def test_an_infeasible_problem_becomes_feasible():
    cost = np.array([[1.0, np.inf], [2.0, np.inf]])
    assert bigsap.solve(cost).status == "infeasible"
    assert solve(cost, 10).col4row.tolist() == [0, -1]
    assert solve(cost, [10, np.inf]).col4row.tolist() == [-1, 0]
    both = solve(cost, np.inf)
    assert both.status == "infeasible"
    assert both.violator.tolist() == [0, 1]
    both.verify(cost, unassigned_cost=np.inf)
    with pytest.raises(CertificateError):
        replace(both, unassigned_cost=None).verify(cost, unassigned_cost=[10, np.inf])


def test_more_rows_than_columns_that_must_be_assigned():
    cost = np.array([[3], [5], [4]])
    result = solve(cost, [1, np.inf, 2])
    assert result.col4row.tolist() == [-1, 0, -1]
    assert result.fun == 8.0
    assert solve(cost, [1, np.inf, np.inf]).status == "infeasible"


@pytest.mark.parametrize("shape", [(0, 0), (0, 3), (3, 0)])
@pytest.mark.parametrize("dtype", ["f8", "i8"])
def test_empty(shape, dtype):
    cost = np.zeros(shape, dtype)
    result = solve(cost, 2)
    assert (result.fun, result.bound) == (2 * shape[0], 2 * shape[0])
    assert result.col4row.tolist() == [-1] * shape[0]
    result.verify(cost)


# --- larger problems, options -------------------------------------------------------


def points_of(n, m, seed=2):
    rng = np.random.default_rng(seed)
    return rng.random((n, 2)), rng.random((m, 2))


@each(shape=[(120, 120), (90, 130), (130, 90)], price=[0.002, 0.02, 0.7])
def test_source_kinds_threads_and_caches_agree(shape, price):
    source = bigsap.points(*points_of(*shape))
    cost = whole(source)
    results = [
        solve(source, price),
        solve(source, price, threads=2, cache=64 * 8 * max(shape)),
        solve(cost, price),
        solve(np.asfortranarray(cost), price, epsilon=False),
        solve(bigsap.from_function(lambda i: cost[i], shape, kind="row"), price),
    ]
    check(cost, price, results[0])
    for other in results[1:]:
        assert other.fun == pytest.approx(results[0].fun, rel=1e-12)
        other.verify(source)
    np.testing.assert_array_equal(results[0].col4row, results[1].col4row)
    np.testing.assert_array_equal(results[0].col4row, results[2].col4row)


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("certify", [False, True])
def test_a_solve_that_ends_early(certify):
    x, y = points_of(150, 100)
    cost = ((x[:, None] - y) ** 2).sum(axis=2)

    def stop(progress):
        if progress.phase >= 1 and progress.assigned:
            raise StopIteration

    # A gap can only be asked for with a certificate.
    for loose in ({"gap": 2.0 if certify else 0.0}, {"callback": stop}, {"time_limit": 0}):
        result = solve(cost, 0.02, certify=certify, **loose)
        best = solve(cost, 0.02).fun
        assert result.fun >= best - 1e-12
        if certify:
            assert result.bound <= best + 1e-12
            assert result.gap == pytest.approx(result.fun - result.bound)
            result.verify(cost, unassigned_cost=0.02)


@pytest.mark.parametrize("shape", [(60, 80), (80, 60)])
def test_warm_start(shape):
    source = bigsap.points(*points_of(*shape))
    cold = solve(source, 0.03)
    gated = ClippedCosts(source, 0.03)
    for start in (cold, cold.v, (cold.v, cold.col4row)):
        warm = drop_clipped_pairs(bigsap.solve(gated, warm_start=extend_warm_start(start, gated)), gated)
        assert warm.fun == pytest.approx(cold.fun, rel=1e-13)
        assert warm.stats["rows_scanned"] < cold.stats["rows_scanned"]
        check(whole(source), 0.03, warm)
    assert extend_warm_start(None, gated) is None
    other = solve(bigsap.points(*points_of(5, 4)), 0.03)
    for wrong in (np.zeros(3), other):
        with pytest.raises(InputError, match="warm_start"):
            bigsap.solve(gated, warm_start=extend_warm_start(wrong, gated))


def test_few_costs_are_read_to_tell_what_was_clipped():
    x, y = points_of(80, 90)
    counted = Counted(as_source(((x[:, None] - y) ** 2).sum(axis=2)))
    gated = ClippedCosts(counted, 0.004)
    wide = bigsap.solve(gated)
    counted.reset()
    result = drop_clipped_pairs(wide, gated)
    assert 0 < result.stats["unassigned_rows"] < 80
    assert counted.pairs <= result.stats["unassigned_rows"] + 3


# --- proof, file ----------------------------------------------------------------------


def solved(seed=6, **more):
    cost = np.random.default_rng(seed).random((9, 8))
    return cost, solve(cost, np.linspace(0.02, 0.5, 9), **more)


def test_save_and_load(tmp_path):
    cost, result = solved()
    result.save(tmp_path / "r.npz")
    again = Result.load(tmp_path / "r.npz")
    assert again.keys() == result.keys()
    np.testing.assert_array_equal(again.unassigned_cost, np.linspace(0.02, 0.5, 9))
    np.testing.assert_array_equal(again.col4row, result.col4row)
    again.verify(cost)
    replace(result, unassigned_cost=np.zeros(3)).save(tmp_path / "bad.npz")
    with pytest.raises(StoreError, match="unassigned_cost"):
        Result.load(tmp_path / "bad.npz")
    bigsap.solve(cost).save(tmp_path / "plain.npz")
    assert Result.load(tmp_path / "plain.npz").unassigned_cost is None


def test_verify_refuses_other_prices():
    cost, result = solved()
    with pytest.raises(CertificateError, match=r"other prices: .* for row 0, not 0\.03"):
        result.verify(cost, unassigned_cost=np.linspace(0.03, 0.5, 9))
    # Without its record, the proof itself has to tell.
    bare = replace(result, unassigned_cost=None)
    bare.verify(cost, unassigned_cost=result.unassigned_cost)
    with pytest.raises(CertificateError):
        bare.verify(cost, unassigned_cost=np.linspace(0.02, 0.4, 9))
    with pytest.raises(CertificateError, match="incomplete"):
        bare.verify(cost)


def test_a_plain_result_is_judged_as_a_gated_one_when_asked():
    cost = np.array([[1.0, 9.0], [9.0, 1.0]])
    plain = bigsap.solve(cost, method="ssp")  # of all optimal duals those that the gate allows
    plain.verify(cost, unassigned_cost=5.0)
    with pytest.raises(CertificateError):
        plain.verify(cost, unassigned_cost=0.5)


def _drop(r):
    """One pair less, with every view of it consistent."""
    row, column = r.row_ind[0], r.col_ind[0]
    col4row, row4col = r.col4row.copy(), r.row4col.copy()
    col4row[row] = row4col[column] = -1
    return {"col4row": col4row, "row4col": row4col, "row_ind": r.row_ind[1:], "col_ind": r.col_ind[1:]}


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize(
    "forge",
    [
        _drop,
        lambda r: {"fun": r.fun - 0.01},
        lambda r: {"fun": r.fun - 0.01, "bound": r.bound - 0.01},
        lambda r: {"bound": r.bound * 1.01, "gap": abs(r.fun - r.bound * 1.01)},
        lambda r: {"gap": 0.5},
        lambda r: {"u": r.u + (1e-6 if not r.maximize else -1e-6)},
        lambda r: {"v": -r.v + (0.1 if not r.maximize else -0.1)},
        lambda r: {"shape": (9, 9)},
        lambda r: {"unassigned_cost": r.unassigned_cost[:-1]},
    ],
)
def test_verify_finds_forgeries(forge, maximize):
    cost = np.random.default_rng(6).random((9, 8))
    prices = np.linspace(0.5, 0.98, 9) if maximize else np.linspace(0.02, 0.5, 9)
    result = solve(cost, prices, maximize=maximize)
    assert 0 < len(result.row_ind) < 8
    result.verify(cost, unassigned_cost=prices)
    with pytest.raises(CertificateError):
        replace(result, **forge(result)).verify(cost, unassigned_cost=prices)


def test_the_proof_of_a_worse_assignment_gives_its_gap():
    cost = np.array([[1.0, 3.0], [2.0, 2.5]])
    gated = ClippedCosts(as_source(cost), 4.0)
    found = certify_gated(gated, [-1, 0], [0.0, 0.0])
    assert (found.fun, found.bound, found.optimal) == (6.0, 3.0, False)
    assert found.u.tolist() == [1.0, 2.0]
    assert certify_gated(gated, None, [-1.0, 0.0]).bound == 3.5
    for wrong in ([0, 0], [0, 2], [0.0, 1.0], [0]):
        with pytest.raises(CertificateError):
            certify_gated(gated, wrong, [0.0, 0.0])
    with pytest.raises(CertificateError, match="row 1 must be assigned"):
        certify_gated(ClippedCosts(as_source(cost), [1, np.inf]), [0, -1], [0.0, 0.0])


def test_a_clipped_cost_may_not_be_invalid():
    cost = np.ones((3, 3))
    for bad, maximize in ((np.nan, False), (-np.inf, False), (np.nan, True), (np.inf, True)):
        cost[2, 1] = bad
        with pytest.raises(InvalidCostError, match=r"\[2, 1\]"):
            solve(cost, 0.5, maximize=maximize)
        x = np.where(np.arange(9).reshape(3, 3) == 7, bad, 1.0)
        with pytest.raises(InvalidCostError, match=r"\[2, 1\]"):
            solve(bigsap.table(x, np.arange(3), np.arange(3)), 0.5, maximize=maximize)


# --- the source -------------------------------------------------------------------------


@pytest.mark.some(16)
@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shape", [(5, 9), (9, 5)])
@pytest.mark.parametrize(
    ("own", "price", "dtype"),
    [
        ("f8", 0.3, "f8"),
        ("f4", 4.0, "f4"),
        ("f4", 4.1, "f8"),
        ("i8", 4, "i8"),
        ("i4", 4.0, "i4"),
        ("i4", 2**40, "i8"),
        ("i4", 4.5, "f8"),
        ("u1", 4, "u1"),
        ("u1", -4, "i8"),
        ("u1", 4.5, "f8"),
        ("u2", 400, "u2"),
        ("u2", 70000, "i8"),
        ("u2", 0.5, "f8"),
    ],
)
def test_the_compiled_filler_equals_reading(own, price, dtype, shape, maximize):
    n, m = shape
    values = np.random.default_rng(1).integers(0, 9, (4, 6)).astype(own)
    if own[0] == "f":
        values[1, 2] = np.nan
    rng = np.random.default_rng(2)
    source = bigsap.table(values, rng.integers(0, 4, n), rng.integers(0, 6, m))
    gated = ClippedCosts(source, price, maximize=maximize)
    assert (gated.shape, gated.dtype) == ((n, max(n, m)), np.dtype(dtype))
    cost = whole(source)
    expected = np.full(gated.shape, price, dtype)
    expected[:, :m] = (np.maximum if maximize else np.minimum)(cost.astype(dtype), price)
    fill = gated.fill()
    for start, stop in ((0, gated.shape[1]), (2, 4), (4, gated.shape[1]), (6, 8), (3, 3)):
        rows = np.array([n - 1, 0, 2, 2])
        for read in (gated.read, lambda r, c, out: read_by_fill(fill, gated.shape, r, c, out)):
            guard = np.full((4, stop - start + 2), 77, dtype)
            read(rows, slice(start, stop), guard[:, 1:-1])
            np.testing.assert_array_equal(guard[:, 1:-1], expected[rows, start:stop])
            assert (guard[:, [0, -1]] == 77).all()


def test_abilities_follow_the_source(tmp_path):
    zarr = pytest.importorskip("zarr")
    stored = zarr.create_array(str(tmp_path / "a.zarr"), shape=(6, 8), chunks=(3, 8), dtype="f8")
    stored[:] = np.random.default_rng(0).random((6, 8))
    source = as_source(stored)
    gated = ClippedCosts(source, 0.25)
    assert [gated.rows_together(k) for k in (0, 5)] == [source.rows_together(k) for k in (0, 5)]
    gated.prefetch(1)
    assert gated.fill() is None
    check(stored[:], 0.25, solve(stored, 0.25))
    assert not hasattr(ClippedCosts(as_source(np.eye(2)), 1), "rows_together")


def test_fingerprints_differ_with_costs_prices_and_sense():
    cost = np.random.default_rng(0).random((4, 4))
    variants = [(cost, 1), (cost + 1, 1), (cost, 2), (cost, 1.0), (cost, [1, 1, 1, 2])]
    prints = [ClippedCosts(as_source(c), p).fingerprint() for c, p in variants]
    prints.append(ClippedCosts(as_source(cost), 1, maximize=True).fingerprint())
    assert len(set(prints)) == len(prints)
    assert prints[0] == ClippedCosts(as_source(cost.copy()), [1, 1, 1, 1]).fingerprint()


def test_integers_that_float64_cannot_hold():
    cost = np.array([[2**53 + 1, 1], [0, 3]])
    with pytest.raises(OverflowRiskError, match=r"cost\[0, 0\]"):
        solve(cost, 0.5)
    assert solve(cost, 1).fun == 1
    with pytest.raises(OverflowRiskError, match=r"cost\[0, 0\] .* of at least 2\*\*62"):
        solve(cost, 2.0**62)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("price", [2**62 - 5, 2**60 + 1, 2**53 + 1])
def test_whole_prices_that_float64_does_not_hold(price, maximize):
    sign = -1 if maximize else 1
    none = np.array([], int)
    empty, one = (
        bigsap.sparse((none, none, none), shape=(3, 2)),
        bigsap.sparse(([0], [0], [sign * (price - 2)])),
    )
    found = [bigsap.solve(c, unassigned_cost=sign * price, maximize=maximize) for c in (empty, one)]
    assert [f.fun for f in found] == [f.bound for f in found] == [sign * 3 * price, sign * (price - 2)]
    assert found[0].verify(empty, unassigned_cost=sign * price).optimal
    low, high = ClippedCosts(as_source(one), [sign * price], maximize=maximize).cost_range()
    assert int(low) <= sign * price <= int(high)
    large = np.zeros((1, 0), int), np.array([[sign * (price + 1)]])
    for cost in large if price < 2**60 else ():
        assert bigsap.solve(cost, unassigned_cost=sign * price, maximize=maximize).fun == sign * price
    for cost in large if price >= 2**60 else ():
        with pytest.raises(OverflowRiskError, match="exact sums"):
            bigsap.solve(cost, unassigned_cost=sign * price, maximize=maximize)
    for cost, method in ((empty, "ssp"), (np.ones((3, 2)), "auto"), (np.ones((3, 2), "f4"), "compressed")):
        prices = [0, sign * price, sign * price]
        with pytest.raises(OverflowRiskError, match=f"unassigned_cost of row 1 is {sign * price}"):
            bigsap.solve(cost, unassigned_cost=prices, maximize=maximize, method=method)
    assert bigsap.solve(empty, unassigned_cost=2**60, method="ssp").fun == 3 * 2**60


# --- bad prices ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("price", "maximize", "error", "match"),
    [
        (np.nan, False, InvalidCostError, "row 0 is nan"),
        ([1, np.nan, 2], False, InvalidCostError, "row 1 is nan"),
        (-np.inf, False, InvalidCostError, "inf for a row that must be assigned"),
        ([1, 2, np.inf], True, InvalidCostError, "row 2 is inf; .* -inf for a row"),
        ([1, 2], False, ShapeError, "3 numbers"),
        ([[1, 2, 3]], False, ShapeError, r"\(1, 3\)"),
        ([[1], [2, 3]], False, ShapeError, "a number"),
        ("5", False, DtypeError, "real numbers"),
        (None, False, InvalidCostError, "row 0 is missing"),
        (1j, False, DtypeError, "real numbers"),
        (2**70 + 1, False, InvalidCostError, "float64 would round"),
        (np.array(["1", "1e4000", "2"], "g"), False, InvalidCostError, "row 1 is (1e\\+4000, which|inf)"),
        (2**63, False, OverflowRiskError, "int64"),
        (-(2**63), True, OverflowRiskError, "int64"),
    ],
)
def test_bad_prices(price, maximize, error, match):
    with pytest.raises(error, match=match) as caught:
        ClippedCosts(as_source(np.ones((3, 4))), price, maximize=maximize)
    assert isinstance(caught.value, ValueError)


@each(method=["auction", "ssp", "compressed"], maximize=[False, True], shape=[(33, 21), (20, 7), (30, 40)])
def test_stopped_anywhere_the_bound_is_one(method, maximize, shape):
    """More rows than columns: prices of a stopped solve need not end at 0, and once were taken as
    if they did."""
    n, m = shape
    sign = -1 if maximize else 1
    for seed in range(12):
        g = np.random.default_rng(seed)
        cost, price = g.random((n, m)), sign * g.random(n) * 0.3
        wide = np.full((n, m + n), np.inf)
        wide[:, :m] = sign * cost
        wide[np.arange(n), m + np.arange(n)] = sign * price
        best = sign * wide[np.arange(n), linear_sum_assignment(wide)[1]].sum()
        calls = itertools.count()

        def stop(progress, calls=calls, last=seed):
            if next(calls) >= last:
                raise StopIteration

        found = bigsap.solve(
            cost,
            unassigned_cost=price,
            maximize=maximize,
            method=method,
            threads=1,
            callback=stop,
            callback_rows=5,
        )
        if found.bound is not None:
            assert sign * (found.bound - best) <= 1e-12
            assert found.fun is None or sign * (found.fun - best) <= found.gap + 1e-12
            assert (sign * found.v <= 0).all()


@pytest.mark.parametrize("maximize", [False, True])
def test_a_bound_that_lost_digits_to_a_far_price_is_as_close_as_the_gap(maximize):
    """The clipped problem's bound is near -5e8, where doubles are 6e-8 apart; its gap is exact."""
    sign = -1 if maximize else 1
    clipped = SimpleNamespace(
        fun=sign * 661742.391039406,
        bound=sign * -521773793.4018267,
        gap=522435535.79286605,
        u=np.array([np.nan]),
        u_low=None,
        v=sign * np.array([0.0, -522435535.79286605]),
        v_low=None,
        maximize=maximize,
    )
    bound, gap = _better_bound(clipped, 1)
    assert gap == 0.0
    assert 0 < sign * (clipped.fun - bound) <= 2 * math.ulp(clipped.fun)
    bound, gap = _better_bound(SimpleNamespace(**{**vars(clipped), "fun": None, "gap": None}), 1)
    assert gap is None
    assert 1e-8 < sign * (clipped.fun - bound) < 1e-7


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize("maximize", [False, True])
def test_a_stopped_solve_from_huge_prices_has_the_bound_of_its_duals(maximize):
    """The additional columns' prices of 1e300 are dropped; they must not leave their rounding in the gap."""
    rng = np.random.default_rng(5)
    sign = -1 if maximize else 1
    cost = sign * np.rint(9 * rng.random((14, 10)))
    prices = sign * np.rint(9 * rng.random(14))

    def stop(_):
        raise StopIteration

    found = bigsap.solve(
        cost,
        unassigned_cost=prices,
        maximize=maximize,
        warm_start=np.full(10, sign * 1e300),
        method="ssp",
        callback=stop,
    )
    assert found.status == "cancelled"
    assert found.bound == found.u.sum() + found.v.sum()
    assert found.gap == pytest.approx(abs(found.fun - found.bound), rel=1e-14)
