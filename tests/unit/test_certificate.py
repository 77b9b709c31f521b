"""The certificate against exact arithmetic, and everything it must refuse."""

from __future__ import annotations

import ast
import threading
import time
import tracemalloc
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap.proof.certificate
from bigsap.errors import CertificateError, InvalidCostError, OptionError, OverflowRiskError
from bigsap.proof.certificate import certify, certify_infeasible
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.wrappers import Counted
from exactly import check_gap, fractions_of
from examples_of import examples
from gate import HANG_S, until
from instances import CLASSES
from oracle import optimal_prices, optimum, value
from pairwise import each

DTYPES = ["f8", "f4", "i8", "i4", "u2", "u1"]
SHAPES = [(1, 1), (1, 4), (4, 1), (5, 5), (3, 7), (7, 3)]


def costs_of(rng, shape, dtype):
    cost = rng.integers(0, 200, shape) if dtype[0] != "f" else 100 * rng.standard_normal(shape)
    return cost.astype(dtype)


def complete(rng, shape):
    """Any complete assignment."""
    n, m = shape
    col4row = np.full(n, -1)
    rows = rng.permutation(n)[: min(n, m)]
    col4row[rows] = rng.permutation(m)[: min(n, m)]
    return col4row


def prices_of(rng, m, kind):
    return {
        "zero": np.zeros(m),
        "real": 50 * rng.standard_normal(m),
        "integral": rng.integers(-40, 40, m).astype(float),
        "int64": rng.integers(-40, 40, m),
        "far": 1e9 + rng.random(m),
    }[kind]


@examples(150)
@given(
    shape=st.sampled_from(SHAPES),
    dtype=st.sampled_from(DTYPES),
    kind=st.sampled_from(["zero", "real", "integral", "int64", "far"]),
    maximize=st.booleans(),
    threads=st.sampled_from([1, 3]),
    block_bytes=st.sampled_from([1, 64, 1 << 20]),
    seed=st.integers(0, 10_000),
)
def test_any_prices_give_a_true_bound(shape, dtype, kind, maximize, threads, block_bytes, seed):
    rng = np.random.default_rng(seed)
    n, m = shape
    cost = costs_of(rng, shape, dtype)
    col4row = complete(rng, shape)
    source = ArraySource(cost)
    c = certify(
        source, col4row, prices_of(rng, m, kind), maximize=maximize, threads=threads, block_bytes=block_bytes
    )

    best, _ = optimum(cost, maximize)
    sign = -1 if maximize else 1
    fun, size = check_gap(c, cost, col4row, maximize)
    assert sign * Fraction(c.bound) <= sign * best <= fun
    assert c.pairs == n * m
    assert c.u.dtype == c.v.dtype == np.float64
    assert c.size == pytest.approx(float(size), rel=1e-15)
    if dtype[0] == "f":
        assert c.optimal == (Fraction(c.gap) <= size / 2**50)
        assert not c.exact
    else:
        assert isinstance(c.fun, int)
        assert isinstance(c.bound, int)
        assert c.exact == c.optimal == (c.gap == 0)
    u, v = fractions_of(c.u, c.u_low), fractions_of(c.v, c.v_low)
    if n < m:
        assert max(sign * x for x in v) == 0
    if n > m:
        assert max(sign * x for x in u) == 0
    if kind in ("integral", "int64", "zero") and dtype[0] != "f":
        assert c.u_low is c.v_low is None
        assert sum(u) + sum(v) == c.bound


@each(shape=SHAPES, dtype=DTYPES, maximize=[False, True])
def test_optimal_prices_prove_optimality_and_nothing_else_does(shape, dtype, maximize):
    rng = np.random.default_rng(5)
    cost = costs_of(rng, shape, dtype)
    best, col4row = optimum(cost, maximize)
    prices = np.array([float(p) for p in optimal_prices(cost, maximize)])
    c = certify(ArraySource(cost), col4row, prices, maximize=maximize)
    assert c.optimal
    assert c.exact == (dtype[0] != "f")
    _, size = check_gap(c, cost, col4row, maximize)
    assert Fraction(c.gap) <= size / 2**50
    assert c.fun == (best if dtype[0] != "f" else float(best))
    if min(shape) < 3:
        return
    # Exchange the columns of two rows: no longer optimal, unless it costs the same.
    a, b = (i for i in np.flatnonzero(np.array(col4row) >= 0)[:2])
    worse = np.array(col4row)
    worse[[a, b]] = worse[[b, a]]
    c = certify(ArraySource(cost), worse, prices, maximize=maximize)
    assert not c.optimal
    assert not c.exact
    fun, _ = check_gap(c, cost, worse, maximize)
    assert Fraction(c.gap) >= fun - (-1 if maximize else 1) * best
    assert c.gap == pytest.approx(abs(float(c.fun) - float(best)))
    assert c.gap > 0.01
    assert c.worst_row in (a, b)
    assert c.worst_violation > 0


def test_worked_example():
    cost = np.array([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0]])  # optimum 1 + 2
    c = certify(ArraySource(cost), [1, 0], [5.0, 3.0, 6.0])
    assert (c.fun, c.bound, c.gap, c.pairs) == (3.0, 3.0, 0.0, 6)
    np.testing.assert_array_equal(c.u, [3, 2])  # capped at the 2nd smallest price, then shifted
    np.testing.assert_array_equal(c.v, [0, -2, 0])
    c = certify(ArraySource(cost), [2, 1], [5.0, 3.0, 6.0])
    assert (c.fun, c.bound, c.gap) == (3.0, 3.0, 0.0)
    c = certify(ArraySource(cost), [0, 1], [5.0, 3.0, 6.0])
    assert (c.fun, c.bound, c.gap, c.worst_row, c.worst_violation) == (4.0, 3.0, 1.0, 0, 1.0)
    tall = certify(ArraySource(cost.T.copy()), [1, 0, -1], [0.0, 0.0])
    assert (tall.fun, tall.bound, tall.gap) == (3.0, 2.0, 1.0)


def test_integer_data_with_real_prices_is_proved_by_a_gap_below_one():
    cost = np.array([[10, 11], [11, 10]], dtype=np.int32)
    c = certify(ArraySource(cost), [0, 1], [0.25, 0.9])
    assert (c.fun, c.bound, c.gap, c.exact) == (20, 20, 0, True)
    # 22 against the optimum 20: violations of 2 in all, never rounded away.
    c = certify(ArraySource(cost), [1, 0], [0.25, 0.9])
    assert c.fun == 22
    assert c.bound <= 20
    assert not c.exact


def test_rounding_is_not_taken_for_proof():
    """float64 cannot tell these costs apart; real prices prove a bound of theirs all the same."""
    cost = np.array([[2**60 + 1, 2**60], [2**60, 2**60]])
    c = certify(ArraySource(cost), [0, 1], [0.25, 0.5])
    assert (c.fun, c.bound, c.gap) == (2**61 + 1, 2**61, 1)
    assert not c.exact
    assert not c.optimal
    assert certify(ArraySource(cost), [1, 0], [0.25, 0.5]).exact
    assert certify(ArraySource(cost), [1, 0], [0.0, 0.0]).exact


@pytest.mark.parametrize("maximize", [False, True])
def test_integers_near_the_end_of_int64(maximize):
    big = 2**62
    cost = np.array([[big, big - 1, 3], [big - 5, big, 7], [1, 2, big]], dtype=np.int64)
    sign = -1 if maximize else 1
    best, col4row = optimum(cost, maximize)
    prices = [int(p) for p in optimal_prices(cost, maximize)]
    c = certify(ArraySource(cost), col4row, prices, maximize=maximize)
    assert c.fun == c.bound == best
    assert c.exact
    assert sum(int(x) for x in c.u) + sum(int(x) for x in c.v) == best
    assert certify(ArraySource(cost), np.roll(col4row, 1), prices, maximize=maximize).gap > 0
    # Costs and prices so far apart that c - v passes 2**63 in some pairs.
    wide = np.array([[-(2**62), 2**62], [2**62, -(2**62)]], dtype=np.int64) * sign
    c = certify(ArraySource(wide), [0, 1], [0, -(2**62)], maximize=maximize)
    assert c.fun == sign * -(2**63)
    assert c.exact
    with pytest.raises(OverflowRiskError):
        certify(ArraySource(cost), col4row, [-(2**62), 2**62, 0], maximize=maximize)


def test_one_huge_row_does_not_hide_a_wrong_answer():
    cost = CLASSES["geometric"](30, seed=2)
    cost[7] = 1e30
    _, col4row = optimum(cost)
    prices = np.array([float(p) for p in optimal_prices(cost)])
    right = certify(ArraySource(cost), col4row, prices)
    assert right.optimal
    assert right.clear
    others = [i for i in range(30) if i != 7]
    wrong = np.array(col4row)
    wrong[others] = np.roll(wrong[others], 1)
    # A gap of no account beside the huge row is one beside what other rows' pairs win by.
    c = certify(ArraySource(cost), wrong, prices)
    assert not c.clear
    fun, _ = check_gap(c, cost, wrong)
    assert Fraction(c.gap) >= fun - optimum(cost)[0] > 1
    assert c.worst_row in others


@each(maximize=[False, True], **{"n, m": [(0, 0), (0, 3), (3, 0)]}, dtype=["f8", "i4"])
def test_empty(n, m, dtype, maximize):
    c = certify(ArraySource(np.empty((n, m), dtype)), [-1] * n, np.ones(m), maximize=maximize)
    assert (c.fun, c.bound, c.gap, c.pairs, c.optimal) == (0, 0, 0, 0, True)
    assert (c.u.shape, c.v.shape) == ((n,), (m,))


def test_forbidden_pairs():
    cost = np.array([[np.inf, 1.0], [np.inf, np.inf], [2.0, np.inf]])
    c = certify(ArraySource(cost), [1, -1, 0], [2.0, 1.0])  # the second row has no pair
    assert (c.fun, c.gap, c.optimal) == (3.0, 0.0, True)
    assert np.isfinite(c.u).all()
    c = certify(ArraySource(-cost), [1, -1, 0], [2.0, 1.0], maximize=True)
    assert (c.fun, c.gap, c.optimal) == (-3.0, 0.0, True)
    with pytest.raises(CertificateError, match=r"forbidden pair \(1, 0\)"):
        certify(ArraySource(cost), [1, 0, -1], [2.0, 1.0])
    with pytest.raises(CertificateError, match=r"forbidden pair \(1, 0\)"):
        certify(ArraySource(-cost), [1, 0, -1], [2.0, 1.0], maximize=True)
    with pytest.raises(CertificateError, match="forbidden pair"):
        certify(ArraySource(cost[:2]), [1, 0], [2.0, 1.0])


@each(maximize=[False, True], threads=[1, 2, 4], bad=[np.nan, -np.inf], dtype=["f8", "f4"])
def test_first_invalid_cost_is_named(bad, threads, maximize, dtype):
    cost = np.ones((50, 40), dtype=dtype)
    cost[31, 2] = cost[17, 30] = cost[17, 21] = -bad if maximize else bad
    with pytest.raises(InvalidCostError, match=r"cost\[17, 21\] is (nan|-?inf)") as caught:
        certify(ArraySource(cost), None, np.zeros(40), maximize=maximize, threads=threads, block_bytes=700)
    assert (caught.value.row, caught.value.column) == (17, 21)


@pytest.mark.parametrize(
    ("col4row", "message"),
    [
        ([0, 1], r"col4row must be 3 integers"),
        ([0.0, 1.0, 2.0], r"col4row must be 3 integers, got float64"),
        ([0, 1, 3], r"row 2 is assigned to column 3, outside"),
        ([0, -2, 1], r"row 1 is assigned to column -2, outside"),
        ([2, 1, 2], r"column 2 is assigned to rows 0 and 2"),
        ([0, -1, 1], r"incomplete: 2 pairs where 3"),
    ],
)
def test_no_matching_no_certificate(col4row, message):
    with pytest.raises(CertificateError, match=message):
        certify(ArraySource(np.eye(3)), col4row, np.zeros(3))


@pytest.mark.parametrize(
    ("v", "message"),
    [
        ([0, 0], "v must be 3 real numbers"),
        (["a", "b", "c"], "v must be 3 real numbers"),
        ([0, np.nan, 0], r"v\[1\] is nan"),
        ([0, 1, -np.inf], r"v\[2\] is -inf"),
    ],
)
def test_no_prices_no_certificate(v, message):
    with pytest.raises(CertificateError, match=message):
        certify(ArraySource(np.eye(3)), [0, 1, 2], v)


def test_sums_beyond_float64_are_refused():
    cost = np.full((4, 4), 1e308)
    with pytest.raises(OverflowRiskError, match="sum"):
        certify(ArraySource(cost), [0, 1, 2, 3], np.zeros(4))
    with pytest.raises(OverflowRiskError, match="row 0"):
        certify(ArraySource(np.array([[np.inf, 1.5e308], [1, 1]])), [1, 0], [0.0, -1e308])
    with pytest.raises(OverflowRiskError, match="too far apart"):
        certify(ArraySource(cost[:2, :2]), [0, 1], [1.5e308, -1.5e308])


@each(maximize=[False, True], shape=[(4, 4), (3, 6), (6, 3)], dtype=["f8", "i4"])
def test_the_bound_alone(shape, dtype, maximize):
    rng = np.random.default_rng(8)
    cost = costs_of(rng, shape, dtype)
    prices = rng.random(shape[1])
    with_pairs = certify(ArraySource(cost), complete(rng, shape), prices, maximize=maximize)
    alone = certify(ArraySource(cost), None, prices, maximize=maximize)
    assert alone.fun is None
    assert alone.gap is None
    assert not alone.optimal
    assert float(alone.bound) == pytest.approx(float(with_pairs.bound), rel=1e-12)
    np.testing.assert_array_equal(alone.u, with_pairs.u)


def test_the_bound_of_an_infeasible_problem_is_infinite():
    cost = np.array([[np.inf, np.inf], [1.0, 2.0]])
    assert certify(ArraySource(cost), None, [0, 0]).bound == np.inf
    assert certify(ArraySource(-cost), None, [0, 0], maximize=True).bound == -np.inf
    tall = np.array([[np.inf, np.inf], [1.0, 2.0], [np.inf, np.inf]])
    for sign in (1, -1):
        proved = certify(ArraySource(sign * tall), None, [0, 0], maximize=sign < 0)
        assert proved.bound == sign * np.inf
        # Which rows have no column.
        np.testing.assert_array_equal(proved.u, [sign * np.inf, sign, sign * np.inf])


def test_every_row_is_read_once_whatever_the_threads():
    cost = np.random.default_rng(0).random((101, 17))
    expected = certify(ArraySource(cost), None, np.zeros(17))
    for threads in (1, 2, 5):
        for block_bytes in (1, 1000, 1 << 20):
            source = Counted(ArraySource(cost))
            c = certify(source, None, np.zeros(17), threads=threads, block_bytes=block_bytes)
            assert (source.rows, source.pairs) == (101, 101 * 17)
            np.testing.assert_array_equal(c.u, expected.u)
            assert c.bound == expected.bound


def test_a_matrix_in_memory_is_not_copied():
    cost = np.ones((2000, 2000), dtype=np.float32)
    source = ArraySource(cost)
    tracemalloc.start()
    try:
        certify(source, np.arange(2000), np.zeros(2000), block_bytes=1 << 18)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000 < cost.nbytes / 10


class Failing:
    """The first rows fail, the very first one last: once another thread has read."""

    def __init__(self, failing, threads):
        self.failing, self.threads = failing, threads
        self.failed = threading.Event()

    shape = (400, 8)
    dtype = np.dtype("f8")
    reads = 0

    def read(self, rows, columns, out):
        self.reads += 1
        if rows[0] == 0:
            until(lambda: self.reads >= min(2, self.threads))
            self.failed.set()
        if rows[0] < self.failing:
            raise RuntimeError(f"row {rows[0]}")
        assert self.failed.wait(HANG_S)
        time.sleep(0.005)
        out[:] = 0


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_errors_of_the_source_pass_the_first_counts_and_the_rest_is_left(threads):
    for failing in (1, 400):
        source = Failing(failing, threads)
        with pytest.raises(RuntimeError, match="row 0"):
            certify(source, None, np.zeros(8), threads=threads, block_bytes=1)
        assert source.reads < 400


@pytest.mark.parametrize("threads", [1, 2])
def test_tick_sees_progress_and_can_stop(threads):
    seen = []
    source = ArraySource(np.ones((64, 8)))
    certify(source, None, np.zeros(8), threads=threads, block_bytes=64, tick=seen.append)
    assert seen == sorted(seen)
    assert seen[-1] == 64

    def stop(done):
        raise TimeoutError(done)

    with pytest.raises(TimeoutError):
        certify(source, None, np.zeros(8), threads=threads, block_bytes=64, tick=stop)


def test_options():
    with pytest.raises(OptionError, match="threads"):
        certify(ArraySource(np.eye(2)), None, [0, 0], threads=0)
    with pytest.raises(OptionError, match="block_bytes"):
        certify(ArraySource(np.eye(2)), None, [0, 0], block_bytes=0)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_hall_violators(maximize, threads):
    inf = np.inf
    cost = np.array([[1, inf, inf], [inf, 1, 1], [2, inf, inf]])
    cost = -cost if maximize else cost
    options = {"maximize": maximize, "threads": threads, "block_bytes": 1}
    c = certify_infeasible(ArraySource(cost), [2, 0], **options)
    assert c.fun is None
    assert c.bound == (-inf if maximize else inf)
    for no_proof in ([0], [0, 1], [0, 1, 2][:2]):
        with pytest.raises(CertificateError, match="does not rule out"):
            certify_infeasible(ArraySource(cost), no_proof, **options)
    # Each column is allowed in one of the rows of a block, and forbidden in the others.
    whole = np.where(np.eye(3) > 0, 1, -inf if maximize else inf)
    with pytest.raises(CertificateError, match="does not rule out"):
        certify_infeasible(ArraySource(whole), [0, 1, 2], maximize=maximize, threads=threads)
    # Four rows for two columns: two may stay free, so one allowed column is too few only
    # for more than three rows.
    tall = np.array([[1, inf], [1, inf], [2, inf], [3, inf]])
    tall = -tall if maximize else tall
    certify_infeasible(ArraySource(tall), [0, 1, 2, 3], **options)
    with pytest.raises(CertificateError, match="does not rule out"):
        certify_infeasible(ArraySource(tall), [0, 1, 2], **options)
    wide = np.array([[1, inf, inf, inf], [inf, inf, inf, inf]])
    certify_infeasible(ArraySource(-wide if maximize else wide), [1], **options)


@pytest.mark.parametrize("rows", [[], [0, 0], [-1], [3], [0.5], [[0], [1]]])
def test_violators_that_are_no_sets_of_rows(rows):
    with pytest.raises(CertificateError, match="violating set"):
        certify_infeasible(ArraySource(np.full((3, 3), np.inf)), rows)


def test_violator_with_invalid_costs():
    with pytest.raises(InvalidCostError, match=r"cost\[2, 1\] is nan"):
        certify_infeasible(ArraySource(np.array([[np.inf] * 2] * 2 + [[np.inf, np.nan]])), [0, 2])


#: Whose costs bounds know.
KNOWN_SOURCES = ("compiled", "clipped", "expression.formula", "kept_bounds", "lowrank", "metrics")


def test_the_proof_shares_no_code_with_the_engine():
    """numpy, the standard library, the source contract, errors, thresholds, kernels of their own.

    Of bounds also the sources that they know, and their fillers.
    """
    folder = Path(bigsap.proof.certificate.__file__).parent
    # Use proofs, judge what is claimed, and correct what is not proved.
    judged = {"bottleneck", "capacities", "claim", "k_best", "unassigned", "verify", "near_matching"}
    judged |= {"pair_costs"}
    pairs = {"certificate", "conclusion", "tightness", "row_minima", "row_pass", "threads"}
    pairs |= {"exact", "limits", "listed", "refusals", "scan", "tighten", "vectors", "weights"}
    bounds = {"minima", "geometry", "tree", "descending", "descent", "multiplied", "exclusion"}
    assert {file.stem for file in folder.glob("[a-z]*.py")} == judged | pairs | bounds
    allowed = {f"bigsap.proof.{name}" for name in pairs | bounds}
    # Thresholds by which a way is chosen are numbers, no code; and the threads of numpy's products.
    allowed |= {
        "bigsap.blas",
        "bigsap.policy",
        "bigsap.errors",
        "bigsap.types",
        "bigsap.sources.base",
        "bigsap.sources.filling",
    }
    allowed |= {"bigsap.compile.decorator", "numba", "numba.core", "numba.extending"}
    known = {f"bigsap.sources.{name}" for name in KNOWN_SOURCES}
    for name in pairs | bounds:
        here = allowed | known if name in bounds else allowed
        for node in ast.walk(ast.parse((folder / f"{name}.py").read_text())):
            names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                whole = node.module in ("bigsap", "bigsap.proof")  # names are modules of it
                names += [f"{node.module}.{a.name}" for a in node.names] if whole else [node.module]
            for imported in names:
                assert imported in here or imported.split(".")[0] not in ("bigsap", "numba")


@pytest.mark.parametrize("shape", [(40, 40), (30, 40), (40, 30)])
@pytest.mark.parametrize("maximize", [False, True])
def test_a_bound_far_below_the_cost_stays_below_the_optimum(shape, maximize):
    """A dear assignment and good prices: the bound is a tiny difference of large sums."""
    for seed in range(20):
        g = np.random.default_rng(seed)
        cost = g.random(shape) ** 12 * 1e-3
        signed = -cost if maximize else cost
        best = bigsap.solve(signed, maximize=maximize)
        dear = bigsap.solve(signed, maximize=not maximize)
        sign = -1 if maximize else 1
        found = certify(ArraySource(signed), dear.col4row, sign * best.v, maximize=maximize)
        exact = Fraction(sign) * value(signed, best.row_ind, best.col_ind)
        bound = sign * Fraction(found.bound)
        assert bound <= exact
        assert bound >= exact * (1 - Fraction(1, 10**6)) - Fraction(1, 10**30)
        assert found.gap >= value(signed, dear.row_ind, dear.col_ind) * sign - exact
