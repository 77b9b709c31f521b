"""Sparse costs: the optimum of the listed pairs, in every format, with every kind of bad input named."""

from __future__ import annotations

import math
import threading
import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import bigsap
from bigsap import checkpoint
from bigsap.run.conclude import in_whole_numbers
from bigsap.sources.sparse.by_rows import ByRows
from bigsap.sources.sparse.sparse_costs import SparseCosts, sparse
from bigsap.strategies import sparse as strategy
from contracts import SourceContract
from exact_judge import Truth, judge
from exact_oracle import brute_force, grid
from gate import Counting

FORMATS = ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")


def listed(n: int, m: int, share: float, rng: Any) -> tuple[np.ndarray, np.ndarray]:
    """Some pairs, in any order."""
    rows, columns = np.nonzero(rng.random((n, m)) < share)
    order = rng.permutation(rows.size)
    return rows[order], columns[order]


def numbers(kind: str, size: int, rng: Any) -> np.ndarray:
    if kind == "float":
        return rng.normal(size=size) * 10.0 ** rng.integers(-3, 4)
    if kind == "ties":
        return rng.integers(-2, 3, size).astype(np.float64)
    if kind == "float32":
        return rng.normal(size=size).astype(np.float32)
    if kind == "small":
        return rng.integers(0, 4, size).astype(np.uint8)
    if kind == "int":
        return rng.integers(-(10**6), 10**6, size)
    return 2**62 - rng.integers(0, 2**40, size)


def dense(n: int, m: int, rows: Any, columns: Any, costs: np.ndarray, maximize: bool = False) -> np.ndarray:
    """The same costs as a matrix for the oracle, integers exact."""
    exact = costs.dtype == np.int64 and np.abs(costs).max(initial=0) > 2**53
    matrix = np.full((n, m), -np.inf if maximize else np.inf, object if exact else float)
    for i, j, c in zip(rows.tolist(), columns.tolist(), costs.tolist(), strict=True):
        matrix[i, j] = c
    return matrix


def planted(n: int, k: int, rng: Any) -> tuple[np.ndarray, np.ndarray]:
    """Random pairs and a hidden complete assignment, unsorted, none twice."""
    rows = np.repeat(np.arange(n), k)
    columns = rng.integers(0, n, n * k)
    columns[::k] = rng.permutation(n)
    _, at = np.unique(rows * n + columns, return_index=True)
    at = rng.permutation(at)
    return rows[at], columns[at]


@pytest.mark.some(3)
@pytest.mark.parametrize("kind", ["float", "ties", "float32", "small", "int", "large"])
def test_every_small_problem_has_the_optimum_of_brute_force(kind: str) -> None:
    rng = np.random.default_rng(sum(map(ord, kind)))
    feasible = 0
    for case in range(120):
        n, m = rng.integers(1, 7, 2)
        rows, columns = listed(n, m, rng.choice([0.4, 0.7, 1.0]), rng)
        costs = numbers(kind, rows.size, rng)
        maximize = bool(case % 2)
        price: Any = None
        if case % 3 == 0:
            low, high = (int(costs.min()), int(costs.max())) if costs.size else (0, 1)
            price = (
                rng.integers(low, high + 1) if costs.dtype.kind in "iu" else float(rng.uniform(low, high + 1))
            )
            if case % 2 and kind != "large":
                price = np.full(n, float(price))
                price[rng.random(n) < 0.5] = -np.inf if maximize else np.inf
        truth = Truth(dense(n, m, rows, columns, costs, maximize), maximize, price)
        given = sparse((rows, columns, costs), shape=(n, m))
        found = bigsap.solve(given, maximize=maximize, unassigned_cost=price)
        if truth.cost.dtype == float or not truth.infeasible:
            assert judge(truth, found).faults == []
        assert truth.infeasible == (found.status == "infeasible")
        expected = brute_force(truth.cost, maximize, price)
        if expected is None:
            assert found.violator.size
        else:
            feasible += 1
            assert grid(found.fun) == expected or costs.dtype.kind == "f"
        found.verify(given)
    assert feasible > 40


@pytest.mark.parametrize(
    ("shape", "price"), [((60, 60), None), ((50, 70), None), ((70, 50), None), ((70, 50), 0.3)]
)
def test_the_answer_is_that_of_the_dense_matrix(shape: tuple[int, int], price: float | None) -> None:
    rng = np.random.default_rng(4)
    rows, columns = listed(*shape, 0.3, rng)
    costs = rng.random(rows.size)
    matrix = np.full(shape, np.inf)
    matrix[rows, columns] = costs
    given = sparse((rows, columns, costs), shape=shape)
    for method in ("auto", "ssp"):
        found = bigsap.solve(given, unassigned_cost=price, method=method)
        assert found.stats["method"] == ("sparse" if method == "auto" else method)
        assert found.fun == bigsap.solve(matrix, unassigned_cost=price).fun
        found.verify(matrix)
        found.verify(given)


def test_larger_problems_are_proved_and_agree_with_scipy() -> None:
    rng = np.random.default_rng(5)
    n = 3000
    rows, columns = planted(n, 6, rng)
    costs = rng.integers(1, 10**6, rows.size)
    found = bigsap.solve(sparse((rows, columns, costs), shape=(n, n)))
    assert found.status == "optimal"
    graph = scipy.sparse.csr_array((costs, (rows, columns)), shape=(n, n))
    left, right = scipy.sparse.csgraph.min_weight_full_bipartite_matching(graph)
    assert found.fun == int(graph[left, right].sum())
    assert found.gap == 0
    assert len(found.stats["phases"]) > 2


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("kind", ["array", "matrix"])
def test_every_format_of_scipy_is_taken(form: str, kind: str) -> None:
    rng = np.random.default_rng(7)
    n = 12
    rows, columns = planted(n, 3, rng)
    costs = rng.random(rows.size) + 0.5
    make = getattr(scipy.sparse, f"{form}_{kind}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", scipy.sparse.SparseEfficiencyWarning)
        given = make(scipy.sparse.coo_array((costs, (rows, columns)), shape=(n, n)))
    if form in ("bsr", "dia"):  # these store zeros of their own
        explicit = given.copy()
        explicit.data[explicit.data == 0] = -1.0  # scipy drops zeros of diagonals
        explicit = explicit.tocoo()
        rows, columns, costs = explicit.row, explicit.col, np.maximum(explicit.data, 0.0)
    matrix = np.full((n, n), np.inf)
    matrix[rows, columns] = costs
    expected = bigsap.solve(matrix)
    assert bigsap.solve(given).fun == expected.fun
    row_ind, col_ind = bigsap.linear_sum_assignment(given)
    assert matrix[row_ind, col_ind].sum() == pytest.approx(expected.fun)


def test_explicit_zeros_are_costs_and_index_types_do_not_matter() -> None:
    given = scipy.sparse.csr_array(([0.0, 5.0, 5.0, 0.0], ([0, 0, 1, 1], [0, 1, 0, 1])), shape=(2, 2))
    assert bigsap.solve(given).fun == 0.0
    for kind in (np.int32, np.int64, np.uint16):
        rows, columns = np.array([[0, 0, 1, 1], [0, 1, 0, 1]], kind)
        assert bigsap.solve(sparse((rows, columns, [0, 5, 5, 0]))).fun == 0
    wide = scipy.sparse.csr_array(given)
    wide.indices, wide.indptr = wide.indices.astype(np.int64), wide.indptr.astype(np.int64)
    assert bigsap.solve(wide).fun == 0.0


def test_arrays_of_csr_are_used_in_place() -> None:
    given = scipy.sparse.csr_array(np.arange(1.0, 10.0).reshape(3, 3))
    entries = sparse(given).entries()
    assert np.shares_memory(entries.costs, given.data)
    assert np.shares_memory(entries.columns, given.indices)


@pytest.mark.parametrize(
    ("entries", "shape", "error", "text"),
    [
        (([0, 1, 0], [1, 1, 1], [1, 2, 3]), None, bigsap.InvalidCostError, r"\(0, 1\) is listed twice"),
        (([0, 2], [0, 1], [1, 2]), (2, 2), bigsap.ShapeError, r"\(2, 1\) is outside the shape \(2, 2\)"),
        (([0, -1], [0, 1], [1, 2]), (2, 2), bigsap.ShapeError, r"\(-1, 1\) is outside"),
        (([0, 1], [1, 0], [1.0, np.nan]), None, bigsap.InvalidCostError, r"cost\[1, 0\] is nan"),
        (([0, 1], [1, 0], [1.0]), None, bigsap.ShapeError, r"one for each listed pair"),
        (([0.5, 1], [1, 0], [1.0, 2.0]), None, bigsap.DtypeError, r"indices must be integers"),
        (([0, 1], [1, 0], ["a", "b"]), None, bigsap.DtypeError, r"real numbers"),
        (
            ([0, 1], [1, 0], np.array([1, 2**63], np.uint64)),
            None,
            bigsap.OverflowRiskError,
            r"cost\[1, 0\] = 9223372036854775808 cannot be held by int64; give the costs as floats",
        ),
        (([[0, 1]], [[1, 0]], [1, 2]), None, bigsap.ShapeError, r"two vectors of one length"),
        (np.eye(2), None, bigsap.InputError, r"pass a scipy.sparse array"),
    ],
)
def test_bad_input_is_named(entries: Any, shape: Any, error: type, text: str) -> None:
    with pytest.raises(error, match=text):
        sparse(entries, shape=shape)


def test_damaged_csr_and_csc_arrays_are_named() -> None:
    good = scipy.sparse.csr_array(np.ones((3, 4)))
    for form, pair in (("csr", r"\(0, 9\)"), ("csc", r"\(9, 0\)")):
        given = good.asformat(form, copy=True)  # scipy itself would write beyond its arrays
        given.indices[1] = 9
        with pytest.raises(bigsap.ShapeError, match=pair):
            sparse(given)
    given = good.copy()
    given.indptr = np.array([0, 8, 4, 12], np.int32)
    with pytest.raises(bigsap.InputError, match="row 1"):
        sparse(given)
    twice = good.copy()
    twice.indices[1] = 0
    with pytest.raises(bigsap.InvalidCostError, match=r"\(0, 0\) is listed twice") as caught:
        bigsap.solve(twice)
    assert (caught.value.row, caught.value.column) == (0, 0)
    with pytest.raises(bigsap.ShapeError, match="contradicts"):
        sparse(good, shape=(3, 3))


def test_the_wrong_infinity_is_named_and_the_other_forbids() -> None:
    given = sparse(([0, 0, 1, 1], [0, 1, 0, 1], [1.0, np.inf, 2.0, 3.0]))
    assert bigsap.solve(given).fun == 4.0
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[0, 1\] is inf"):
        bigsap.solve(given, maximize=True)
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[0, 1\] is inf"):
        bigsap.solve(given, maximize=True, method="ssp")
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[0, 1\] is inf"):
        bigsap.certify(given, [0, 1], [0.0, 0.0], maximize=True)


def test_infeasible_problems_name_their_rows() -> None:
    empty = bigsap.solve(sparse(([0, 3], [0, 1], [1, 1]), shape=(4, 4)))
    assert empty.status == "infeasible"
    assert empty.violator.tolist() == [1, 2]
    rows = np.array([0, 0, 1, 1, 2, 2, 3, 3, 3])
    columns = np.array([0, 1, 0, 1, 0, 1, 1, 2, 3])
    for maximize in (False, True):
        found = bigsap.solve(sparse((rows, columns, np.ones(9))), maximize=maximize)
        assert found.violator.tolist() == [0, 1, 2]
        found.verify(sparse((rows, columns, np.ones(9))))
    turned = bigsap.solve(sparse((columns, rows, np.ones(9))))
    assert turned.status == "infeasible"
    turned.verify(sparse((columns, rows, np.ones(9))))
    with pytest.raises(bigsap.InfeasibleError) as caught:
        bigsap.linear_sum_assignment(sparse((rows, columns, np.ones(9))))
    assert caught.value.violator == (0, 1, 2)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (2, 1), (1, 2), (3, 2)])
@pytest.mark.parametrize("capacity", [None, 2])
def test_a_row_of_forbidden_pairs_that_must_be_assigned(
    sign: float, shape: tuple[int, int], capacity: int | None
) -> None:
    """Infinite entries of such a row are no pairs, however little its own price excludes."""
    rows, columns = np.nonzero(np.ones(shape))
    given = sparse((rows, columns, sign * np.where(rows == 0, np.inf, 2.0)), shape=shape)
    price = sign * np.append(np.inf, np.full(shape[0] - 1, 5.0))
    for certify in (False, True):
        options: Any = {"maximize": sign < 0, "unassigned_cost": price, "certify": certify}
        found = bigsap.solve(given, capacity=capacity, **options)
        assert (found.status, found.violator.tolist()) == ("infeasible", [0])
    assert list(bigsap.solve_k_best(given, 2, maximize=sign < 0, unassigned_cost=price)) == []


def test_integers_are_exact_where_float64_is_not() -> None:
    base = 2**62
    given = sparse(([0, 0, 1, 1], [0, 1, 0, 1], [base - 1, base - 3, base - 2, base - 5]))
    found = bigsap.solve(given)
    assert found.fun == 2 * base - 6
    assert bigsap.solve(given, maximize=True).fun == 2 * base - 5
    assert found.gap == 0
    with pytest.raises(bigsap.OverflowRiskError, match="range"):
        bigsap.solve(sparse(([0, 0, 1, 1], [0, 1, 0, 1], [base, -base, 1, 2])))
    with pytest.raises(bigsap.OverflowRiskError, match=r"cost\[0, 0\]"):
        bigsap.solve(given, method="ssp")
    with pytest.raises(bigsap.OverflowRiskError, match=r"cost\[0, 0\]"):
        bigsap.solve(given, unassigned_cost=0.5)
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[1, 0\] = 2.5 cannot be held"):
        bigsap.solve(sparse(([0, 1], [1, 0], [1.0, 2.5])), dtype=np.int64)


@pytest.mark.parametrize("method", ["ssp", "compressed"])
@pytest.mark.parametrize("price", [None, 2**44, 0.5])
@pytest.mark.parametrize("certify", [True, False])
def test_integers_read_as_rows_are_integers(method: str, price: Any, certify: bool) -> None:
    """Their rows are floats; the answer is proved as of integers, or it is not optimal."""
    rng = np.random.default_rng(6)
    for maximize in (False, True):
        costs = rng.integers(1, 2**45, (9, 9))
        rows, columns = np.nonzero(rng.random((9, 9)) < 0.8)
        given = sparse((rows, columns, costs[rows, columns]), shape=(9, 9))
        options: dict[str, Any] = {"maximize": maximize, "unassigned_cost": price}
        expected = bigsap.solve(given, **options)
        found = bigsap.solve(given, method=method, certify=certify, **options)
        assert (type(found.fun), found.fun) == (type(expected.fun), expected.fun)
        assert found.verify(given).optimal
        if certify and price != 0.5:
            assert (found.bound, found.gap) == (found.fun, 0)


@pytest.mark.parametrize("method", ["ssp", "compressed"])
@pytest.mark.parametrize("options", [{}, {"unassigned_cost": 2**52}, {"capacity": 2}, {"demand": 1}])
def test_sums_beyond_floats_of_integers_read_as_rows_are_exact(method: str, options: dict[str, Any]) -> None:
    costs = 2**52 + np.array([[0, 7, 3], [5, 2, 9], [4, 8, 1]])
    rows, columns = np.nonzero(costs)
    given = sparse((rows, columns, costs[rows, columns]))
    for maximize in (False, True):
        found = bigsap.solve(given, method=method, maximize=maximize, **options)
        expected = bigsap.solve(costs, maximize=maximize, **options)
        assert (type(found.fun), found.fun) == (int, expected.fun)
        assert (found.status, found.bound, found.gap) == ("optimal", expected.fun, 0)


def test_bounds_of_integers_that_were_read_as_rows() -> None:
    source = ByRows(sparse(([0, 1], [0, 1], [3, 4])))
    costs = bigsap.solve(source.source, method="ssp")
    for bound, status in ((6.01, "optimal"), (5.99, "imprecise")):
        found = in_whole_numbers(replace(costs, fun=7.0, bound=bound, gap=7 - bound), source)
        assert (found.bound, found.status, found.success) == (math.ceil(bound), status, status == "optimal")
        assert found.gap == found.fun - found.bound
    known = replace(costs, costs=np.array([2.0**53, 1.0]), fun=2.0**53, bound=2.0**53 - 8)
    for gap, status in ((0.99, "optimal"), (2.01, "imprecise"), (9.0, "imprecise")):
        found = in_whole_numbers(replace(known, gap=gap), source)
        assert (found.fun, found.gap, found.status) == (2**53 + 1, math.floor(gap), status)
        assert found.bound == found.fun - found.gap
    large = ByRows(sparse(([0, 1], [0, 1], [2**53, 1])))  # of a stopped solve costs may not be known
    found = in_whole_numbers(replace(known, costs=None, gap=None), large)
    assert (type(found.fun), found.fun) == (int, 2**53 + 1)


def test_huge_and_tiny_costs() -> None:
    for scale in (1e300, 5e-324, 1e-300):
        given = sparse(([0, 0, 1, 1], [0, 1, 0, 1], np.array([1, -1, -1, 1]) * (scale / 2)))
        found = bigsap.solve(given)
        assert found.col4row.tolist() == [1, 0] or scale == 5e-324
        found.verify(given)
    mixed = sparse(([0, 0, 1, 1, 2, 2], [0, 1, 1, 2, 2, 0], [1e18, 0.25, 0.5, 1e18, 0.125, 0.375]))
    assert (
        bigsap.solve(mixed).fun
        == bigsap.solve(np.array([[1e18, 0.25, np.inf], [np.inf, 0.5, 1e18], [0.375, np.inf, 0.125]])).fun
    )


def test_a_solve_that_begins_from_its_answer_searches_little() -> None:
    rng = np.random.default_rng(9)
    n = 2000
    rows, columns = planted(n, 6, rng)
    given = sparse((rows, columns, rng.random(rows.size)), shape=(n, n))
    first = bigsap.solve(given)
    again = bigsap.solve(given, warm_start=first)
    assert again.fun == first.fun
    assert again.stats["rows_scanned"] < first.stats["rows_scanned"] / 2
    assert bigsap.solve(given, warm_start=np.zeros(n)).fun == first.fun


def test_a_stopped_solve_continues_with_the_same_bits(tmp_path: Any) -> None:
    rng = np.random.default_rng(10)
    n = 2000
    rows, columns = planted(n, 8, rng)
    given = sparse((rows, columns, rng.random(rows.size)), shape=(n, n))
    whole = bigsap.solve(given)
    path = tmp_path / "solve.ckpt"
    for phases in (1, 2, 3):
        stop = threading.Event()

        def end(progress: Any, phases: int = phases, stop: Any = stop) -> None:
            if progress.phase > phases:
                stop.set()

        found = bigsap.solve(given, checkpoint=path, callback=end, callback_every=0.0, cancel=stop)
        assert found.status == "cancelled"
        assert found.fun is None or found.fun >= whole.fun
        assert found.bound is None or found.bound <= whole.fun
        resumed = bigsap.resume(path, given)
        assert resumed.fun == whole.fun
        assert np.array_equal(resumed.col4row, whole.col4row)
        assert np.array_equal(resumed.v, whole.v)
    other = sparse((rows, columns, rng.random(rows.size)), shape=(n, n))
    with pytest.raises(bigsap.CheckpointError):
        bigsap.resume(path, other)


def test_limits_gaps_and_reports() -> None:
    rng = np.random.default_rng(11)
    n = 2000
    rows, columns = planted(n, 8, rng)
    given = sparse((rows, columns, rng.random(rows.size)), shape=(n, n))
    best = bigsap.solve(given)
    late = bigsap.solve(given, time_limit=0)
    assert late.status == "time_limit"
    near = bigsap.solve(given, gap=best.fun)
    assert near.status == "gap_reached"
    assert near.fun <= 2 * best.fun
    seen: list[Any] = []
    bigsap.solve(given, callback=seen.append, callback_every=0.0)
    assert seen[-1].stage == "done"
    assert max(p.assigned for p in seen) == n
    assert {p.phase for p in seen} >= {1, 2, 3}
    assert seen[-1].upper_bound == best.fun
    plain = bigsap.solve(given, epsilon=False)
    assert plain.fun == pytest.approx(best.fun, rel=1e-14)
    assert len(plain.stats["phases"]) == 1
    assert bigsap.solve(given, certify=False).fun == pytest.approx(best.fun, rel=1e-14)


def test_certify_proves_any_assignment() -> None:
    given = sparse(([0, 0, 1, 1], [0, 1, 0, 1], [1, 2, 4, 3]))
    proof = bigsap.certify(given, [1, 0], [0, 0])
    assert (proof.fun, proof.bound, proof.gap) == (6, 4, 2)
    with pytest.raises(bigsap.CertificateError, match=r"forbidden pair \(0, 1\)"):
        bigsap.certify(sparse(([0, 1, 1], [0, 0, 1], [1, 4, 3])), [1, 0], [0, 0])
    wrong = bigsap.solve(given)
    with pytest.raises(bigsap.CertificateError):
        wrong.verify(sparse(([0, 0, 1, 1], [0, 1, 0, 1], [1, 1, 1, 3])))


def test_sides_of_size_zero() -> None:
    for shape in ((0, 0), (0, 3), (3, 0)):
        found = bigsap.solve(sparse(([], [], []), shape=shape))
        assert found.fun == 0
        assert found.col4row.tolist() == [-1] * shape[0]


class TestSparseSource(SourceContract):
    def matrix(self) -> np.ndarray:
        matrix = super().matrix()
        matrix[np.random.default_rng(12).random(matrix.shape) < 0.5] = np.inf
        matrix[-1, -1] = 1.0
        return matrix

    def make(self, matrix: np.ndarray) -> SparseCosts:
        rows, columns = np.nonzero(np.isfinite(matrix))
        return sparse((rows, columns, matrix[rows, columns]), shape=matrix.shape)


@pytest.mark.parametrize("moment", range(1, 8))
def test_answers_are_the_same_however_often_kernels_return(
    monkeypatch: pytest.MonkeyPatch, moment: int
) -> None:
    rng = np.random.default_rng(13)
    n = 300
    rows, columns = planted(n, 5, rng)
    given = sparse((rows, columns, rng.random(rows.size)), shape=(n, n))
    whole = bigsap.solve(given)
    monkeypatch.setattr(strategy, "_FIRST_ENTRIES", 7 * moment)
    monkeypatch.setattr(strategy, "_SLICE_SECONDS", 0.0)
    sliced = bigsap.solve(given)
    assert np.array_equal(sliced.col4row, whole.col4row)
    assert np.array_equal(sliced.v, whole.v)


def test_short_limits_lead_to_further_auctions_and_the_same_optimum(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(14)
    n = 1000
    rows, columns = planted(n, 6, rng)
    given = sparse((rows, columns, rng.integers(0, 1000, rows.size)), shape=(n, n))
    whole = bigsap.solve(given)
    monkeypatch.setattr(strategy, "_FIRST_ENTRIES", 50)
    monkeypatch.setattr(strategy, "_SLICE_SECONDS", 0.0)
    monkeypatch.setattr(strategy, "_AUCTIONS", 1)
    for limit in ("_LONG_AUCTION", "_LONG_SEARCH"):
        with monkeypatch.context() as patch:
            patch.setattr(strategy, limit, 1)
            found = bigsap.solve(given)
        assert found.fun == whole.fun
        assert found.gap == 0


def contested(kind: str) -> SparseCosts:
    """Layers of rows that lead on, or near points: auctions take long, and are given up or raised."""
    rng = np.random.default_rng(12)
    n = 1200
    if kind == "layers":  # each row leads on to the next layer, or back to its own column for much
        rows = np.tile(np.arange(n), 4)
        steps = np.repeat([0, 1, 1, 1], n)
        columns = np.where(steps == 0, rows, (rows // 30 + steps) * 30 % n + rng.integers(0, 30, 4 * n))
        costs = np.where(steps == 0, 1000.0, rng.random(4 * n))
    else:
        x, y = rng.random((2, n))
        columns = np.argsort(np.abs(x[:, None] - y), axis=1)[:, :8].ravel()
        rows = np.repeat(np.arange(n), 8)
        rows, columns = np.append(rows, np.argsort(x)), np.append(columns, np.argsort(y))
        costs = np.abs(x[rows] - y[columns])
    keep = np.unique(rows * n + columns, return_index=True)[1]
    return sparse((rows[keep], columns[keep], costs[keep]), (n, n))


def bits(result: bigsap.Result) -> tuple[Any, ...]:
    return result.v.tobytes(), result.col4row.tobytes(), result.stats["rows_scanned"]


@pytest.mark.parametrize("kind", ["layers", "near"])
def test_counts_decide_and_not_the_clock(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever time a slice takes: epsilon is raised, and a search is given up, at the same scans."""
    cost, found = contested(kind), []
    monkeypatch.setattr(strategy, "_SLICE_SECONDS", 1e9)
    for entries in (97, 700, 1 << 40):
        monkeypatch.setattr(strategy, "_FIRST_ENTRIES", entries)
        monkeypatch.setattr(strategy, "_MOST_ENTRIES", entries)
        found.append(bits(bigsap.solve(cost)))
    assert found[0] == found[1] == found[2]


def test_rounds_of_the_reduction_end_by_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    cost, found = contested("layers"), []
    monkeypatch.setattr(strategy.SparseSearch, "_long", lambda self, scans_a_row: 50 * scans_a_row)
    for first in (50, 1 << 40):
        monkeypatch.setattr(strategy, "_FIRST_ENTRIES", first)
        monkeypatch.setattr(strategy, "_MOST_ENTRIES", first)
        found.append(bits(bigsap.solve(cost)))
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["layers", "near"])
def test_a_solve_stopped_anywhere_continues_with_the_same_bits(
    kind: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Before the first auction too, within one, within a round of the reduction, and within a search."""
    monkeypatch.setattr(strategy, "_FIRST_ENTRIES", 200)
    monkeypatch.setattr(strategy, "_MOST_ENTRIES", 200)
    cost, path = contested(kind), tmp_path / "solve.ckpt"
    counted = Counting(1 << 40)
    whole = bigsap.solve(cost, cancel=counted)
    stages = set()
    for asked in {*range(0, counted.asked, counted.asked // 30), *range(counted.asked - 10, counted.asked)}:
        stopped = bigsap.solve(cost, checkpoint=path, cancel=Counting(asked))
        assert stopped.status in ("cancelled", "optimal")  # at the very end
        stages.add(checkpoint.read(path).snapshot.get("sparse_stage"))
        assert bits(bigsap.resume(path, cost)) == bits(whole)
    assert {strategy.BID, strategy.REDUCE, strategy.SEARCH} <= stages


@pytest.mark.parametrize(
    ("shape", "entries", "options"),
    [
        ((10, 10), 60, {"gap": 1e-3}),
        ((9, 12), 1, {}),
        ((12, 8), 1, {}),
        ((12, 8), 1, {"unassigned_cost": np.arange(12) * 9.0 % 40}),
        ((7, 9), 20, {}),  # infeasible
    ],
)
def test_a_small_solve_stopped_at_every_tick_continues_with_the_same_bits(
    shape: tuple[int, int], entries: int, options: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    monkeypatch.setattr(strategy, "_FIRST_ENTRIES", entries)
    monkeypatch.setattr(strategy, "_MOST_ENTRIES", entries)
    rng, path, counted = np.random.default_rng(15), tmp_path / "solve.ckpt", Counting(1 << 40)
    rows, columns = np.nonzero((rng.random(shape) < 0.9) & (np.add.outer(*map(np.arange, shape)) != 6))
    keep = (rows > 3) | (columns < 3) if shape == (7, 9) else slice(None)
    cost = sparse((rows[keep], columns[keep], rng.integers(1, 50, shape)[rows, columns][keep] + 0.0), shape)
    whole = bigsap.solve(cost, cancel=counted, **options)
    assert (whole.status == "infeasible") == (shape == (7, 9))
    for asked in range(counted.asked):
        bigsap.solve(cost, checkpoint=path, cancel=Counting(asked), **options)
        again = bigsap.resume(path, cost, **options)
        assert (again.status, bits(again), again.nit) == (whole.status, bits(whole), whole.nit)


def test_an_infeasible_problem_of_large_integers_names_its_rows() -> None:
    """Prices of rows that share their only column fall by the costs' range with each bid."""
    rows, columns = np.array([0, 1, 2, 2, 2, 3, 3, 3]), np.array([0, 0, 1, 2, 3, 1, 2, 3])
    costs = np.array([0, 0, 0, 1 << 51, 1 << 52, 1 << 51, 1 << 52, 1 << 52])
    result = bigsap.solve(sparse((rows, columns, costs), (4, 4)))
    assert result.stats["price"] == "int64"
    assert (result.status, result.violator.tolist()) == ("infeasible", [0, 1])


@pytest.mark.parametrize("size", [1e14, 1e18])
def test_a_forced_pair_of_huge_cost_hides_no_digits(size: float) -> None:
    rng = np.random.default_rng(16)
    n = 400
    rows, columns = planted(n, 6, rng)
    costs = rng.random(rows.size) * 100
    best = bigsap.solve(sparse((rows, columns, costs)))
    others = np.arange(1, n + 1)
    none = np.zeros(n, np.int64)
    given = sparse(
        (
            np.concatenate((rows + 1, none, others, [0])),
            np.concatenate((columns + 1, others, none, [0])),
            np.concatenate((costs, np.full(2 * n, size), [1.0])),
        )
    )
    found = bigsap.solve(given)
    assert found.status == "optimal"
    assert found.fun == pytest.approx(best.fun + 1.0, rel=1e-14)
    found.verify(given)
