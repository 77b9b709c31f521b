"""``bigsap.certify``: anybody's assignment, any costs, prices or none."""

from __future__ import annotations

import json
import math
from fractions import Fraction

import numpy as np
import pytest

import bigsap
import exact_oracle as oracle
from bigsap.cli import commands as cli
from bigsap.errors import CertificateError, InfeasibleError, InvalidCostError, OptionError
from oracle import value

RNG = np.random.default_rng(17)
COST = RNG.random((6, 6))
PERMUTATION = np.array([3, 0, 5, 1, 2, 4])


def exact_optimum(cost, maximize=False, unassigned=None) -> Fraction:
    return oracle.value(oracle.optimum(cost, maximize, unassigned)[0])


def total(cost, col4row, unassigned=None) -> Fraction:
    rows = np.flatnonzero(np.asarray(col4row) >= 0)
    found = value(cost, rows, np.asarray(col4row)[rows])
    if unassigned is None:
        return found
    prices = np.broadcast_to(unassigned, (len(cost),))
    left = np.setdiff1d(np.arange(len(cost)), rows)
    return found + sum((Fraction(float(prices[i])) for i in left), Fraction(0))


def some_assignment(rng, shape, most=None):
    n, m = shape
    count = min(n, m) if most is None else rng.integers(0, min(n, m) + 1)
    found = np.full(n, -1)
    found[rng.permutation(n)[:count]] = rng.permutation(m)[:count]
    return found


def check(certificate, cost, col4row, maximize=False, unassigned=None, tight=True):
    """fun, bound and gap against exact arithmetic; tight: the bound is the optimum up to rounding."""
    exact, best = total(cost, col4row, unassigned), exact_optimum(cost, maximize, unassigned)
    sign = -1 if maximize else 1
    assert certificate.fun == (float(exact) if np.asarray(cost).dtype.kind == "f" else int(exact))
    assert sign * Fraction(certificate.bound) <= sign * best
    assert Fraction(certificate.gap) >= sign * (exact - best)
    if tight:
        allowed = Fraction(2) ** -49 * sum(
            abs(Fraction(float(c))) for c in np.ravel(cost) if math.isfinite(c)
        )
        assert sign * (best - Fraction(certificate.bound)) <= allowed
        assert certificate.optimal == (sign * (exact - best) <= Fraction(2) ** -50 * certificate.size)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shape", [(6, 6), (4, 7), (7, 4), (1, 1), (1, 3)])
def test_without_prices_the_bound_is_the_optimum(shape, maximize):
    rng = np.random.default_rng([*shape, maximize])
    for kind in ("real", "ties", "int64", "forbidden"):
        cost = rng.random(shape) if kind != "ties" else rng.integers(0, 3, shape)
        if kind == "int64":
            cost = rng.integers(2**53, 2**53 + 2**10, shape)
        col4row = some_assignment(rng, shape)
        if kind == "forbidden":
            cost[rng.random(shape) < 0.3] = -math.inf if maximize else math.inf
            rows = np.flatnonzero(col4row >= 0)
            cost[rows, col4row[rows]] = 1.0
        certificate = bigsap.certify(cost, col4row, maximize=maximize)
        check(certificate, cost, col4row, maximize)
        best = bigsap.solve(cost, maximize=maximize)
        assert bigsap.certify(cost, best.col4row, maximize=maximize).optimal


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shape", [(5, 5), (3, 6), (6, 3)])
def test_rows_that_may_stay_unassigned(shape, maximize):
    rng = np.random.default_rng([*shape, maximize, 1])
    for price in (0.4, rng.random(shape[0])):
        cost = rng.random(shape)
        for col4row in (some_assignment(rng, shape, "any"), np.full(shape[0], -1)):
            found = bigsap.certify(cost, col4row, maximize=maximize, unassigned_cost=price)
            check(found, cost, col4row, maximize, price)
        best = bigsap.solve(cost, maximize=maximize, unassigned_cost=price)
        found = bigsap.certify(cost, best.col4row, maximize=maximize, unassigned_cost=price)
        assert found.optimal


def test_every_form_of_an_assignment_is_the_same():
    rows = np.array([4, 2, 0, 1, 3, 5])
    plan = np.zeros((6, 6))
    plan[np.arange(6), PERMUTATION] = 1 / 6
    forms = [PERMUTATION, PERMUTATION.tolist(), (rows, PERMUTATION[rows]), (rows.tolist(), PERMUTATION[rows])]
    for form in (*forms, plan, plan.tolist()):
        check(bigsap.certify(COST, form), COST, PERMUTATION)
    two = np.array([[5, 1], [1, 4]])
    result = bigsap.solve(COST)
    assert bigsap.certify(COST, result, result).optimal
    # A tuple of two numbers is the columns of two rows.
    assert bigsap.certify(two, (1, 0)).fun == 2
    assert bigsap.certify(two, ([1, 0], [1, 0])).fun == 9


def test_wrong_assignments_are_named():
    plan = np.eye(6)
    plan[2, 3] = 0.5
    wrong = {
        "row 2 has 2 entries": plan,
        "column 3 has 2 entries": np.eye(6)[[0, 1, 3, 3, 4, 5]],
        "column 0 is assigned to rows 0 and 1": [0, 0, 1, 2, 3, 4],
        "row 1 is assigned twice": ([1, 1, 2, 3, 4, 5], PERMUTATION),
        r"outside 0\.\.5$": [0, 1, 2, 3, 4, 6],
        r"row 9 is assigned, outside 0\.\.5$": ([0, 1, 2, 3, 4, 9], PERMUTATION),
        "is not a column": ([0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, -1]),
        "as many of the one": ([0, 1, 2], [0, 1]),
        "5 pairs where 6": [-1, 0, 1, 2, 3, 4],
        "6 integers": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0],
        "real numbers": np.full((6, 6), np.nan),
    }
    for message, given in wrong.items():
        with pytest.raises(CertificateError, match=message):
            bigsap.certify(COST, given)
    # Not -1, unassigned, where rows may be.
    huge = np.array([0, 1, 2, 3, 4, 2**64 - 1], np.uint64)
    for given in (huge, (np.arange(6), huge)):
        for price in (None, 9.0):
            with pytest.raises(CertificateError, match=r"row 5 is assigned to column \d+, outside 0\.\.5$"):
                bigsap.certify(COST, given, unassigned_cost=price)
    cost = COST.copy()
    cost[2, PERMUTATION[2]] = np.inf
    with pytest.raises(CertificateError, match=rf"forbidden pair \(2, {PERMUTATION[2]}\)"):
        bigsap.certify(cost, PERMUTATION)


def test_a_result_whose_rows_take_several_columns_is_refused():
    """Its col4row is None, which would ask for a bound alone."""
    result = bigsap.solve(COST[:2], demand=2)
    with pytest.raises(OptionError, match="take several columns"):
        bigsap.certify(COST[:2], result)


def test_wrong_assignments_are_found_before_the_solve():
    class Unread:
        shape, dtype = (6, 6), np.dtype("f8")

        def read(self, rows, columns, out):
            raise AssertionError("costs were read")

    with pytest.raises(CertificateError, match="5 pairs"):
        bigsap.certify(Unread(), [-1, 0, 1, 2, 3, 4])
    with pytest.raises(CertificateError, match="to rows 0 and 1"):
        bigsap.certify(Unread(), [0, 0, 1, 2, 3, 4], unassigned_cost=1.0)


@pytest.mark.parametrize("maximize", [False, True])
def test_prices_of_either_sign(maximize):
    best = bigsap.solve(COST, maximize=maximize)
    sign = -1 if maximize else 1
    minimising = bigsap.certify(COST, PERMUTATION, sign * best.v, maximize=maximize)
    check(minimising, COST, PERMUTATION, maximize)
    if maximize:
        as_told = bigsap.certify(COST, PERMUTATION, best.v, maximize=True)
        assert (as_told.bound, as_told.gap) == (minimising.bound, minimising.gap)
        assert as_told.pairs == 2 * COST.size  # an optimal one takes one pass
        assert bigsap.certify(COST, best.col4row, -best.v, maximize=True).pairs == COST.size
    poor = bigsap.certify(COST, PERMUTATION, np.zeros(6), maximize=maximize)
    check(poor, COST, PERMUTATION, maximize, tight=False)


def test_prices_take_one_pass():
    reads = np.zeros(6, int)

    def row(i):
        reads[i] += 1
        return COST[i]

    source = bigsap.from_function(row, (6, 6), kind="row")
    best = bigsap.solve(COST)
    reads[:] = 0
    certificate = bigsap.certify(source, best.col4row, best.v)
    assert certificate.optimal
    assert (reads == 1).all()


def test_points_are_bounded():
    x, y = RNG.random((2, 7500, 2))
    source = bigsap.points(x, y)
    best = bigsap.solve(source, certify=False)
    found = bigsap.certify(source, best.col4row, best.v)
    assert (found.by, found.optimal) == ("bounds", True)
    assert found.pairs < 0.1 * 7500**2


def test_bound_alone_and_infeasible_problems():
    found = bigsap.certify(COST, None)
    assert (found.fun, found.gap) == (None, None)
    assert abs(Fraction(found.bound) - exact_optimum(COST)) <= Fraction(2) ** -50
    cost = COST.copy()
    cost[:3, 2:] = np.inf
    assert bigsap.certify(cost, None).bound == math.inf
    assert bigsap.certify(-cost, None, maximize=True).bound == -math.inf


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("capacity", [None, [1, 1], [0, 5], 0])
def test_infeasible_problems_of_rows_that_must_be_assigned(
    maximize: bool, sparse: bool, capacity: list[int] | int | None
) -> None:
    sign = -1.0 if maximize else 1.0
    cost = sign * np.array([[1, np.inf], [2, np.inf], [3, 4], [5, np.inf]])
    rows, columns = np.nonzero(np.isfinite(cost))
    given = bigsap.sparse((rows, columns, cost[rows, columns]), (4, 2)) if sparse else cost
    prices = sign * np.array([np.inf, np.inf, 1, 1])
    found = bigsap.certify(given, None, maximize=maximize, unassigned_cost=prices, capacity=capacity)
    assert (found.fun, found.bound, found.gap) == (None, sign * math.inf, None)
    assert (found.u.shape, found.v.shape) == ((4,), (2,))


def test_options():
    assert bigsap.certify(COST, PERMUTATION, method="ssp", threads=1).bound == pytest.approx(
        float(exact_optimum(COST))
    )
    for name, given in {"demand": 2, "gap": 0.1, "certify": False, "warm_start": None}.items():
        with pytest.raises(OptionError, match=name):
            bigsap.certify(COST, PERMUTATION, **{name: given})
    with pytest.raises(OptionError, match="v_low"):
        bigsap.certify(COST, PERMUTATION, None, np.zeros(6))
    with pytest.raises(OptionError, match="a result as v, which has its own"):
        bigsap.certify(COST, PERMUTATION, bigsap.solve(COST), np.zeros(6))
    with pytest.raises(TypeError, match="treads"):
        bigsap.certify(COST, PERMUTATION, treads=2)


@pytest.mark.parametrize("options", [{}, {"unassigned_cost": 9}, {"capacity": 1}])
def test_two_whole_numbers_are_the_columns_of_two_rows(options: dict[str, int]) -> None:
    assert bigsap.certify(COST[:2], (4, 1), **options).fun == COST[0, 4] + COST[1, 1]
    assert bigsap.certify(COST[:2], ([0, 1], [4, 1]), **options).fun == COST[0, 4] + COST[1, 1]


@pytest.mark.parametrize("options", [{}, {"unassigned_cost": 9}, {"capacity": 1}])
def test_what_is_no_assignment_is_named(options: dict[str, int]) -> None:
    ranked = bigsap.solve_k_best(COST, 1)[0]
    with pytest.raises(bigsap.ShapeError, match="col4row"):
        bigsap.certify(COST, ranked, **options)
    with pytest.raises(bigsap.CertificateError, match=r"6 integers, got float64 of shape \(5,\)"):
        bigsap.certify(COST, np.zeros(5), **options)


def test_scipys_answer_and_empty_problems():
    optimize = pytest.importorskip("scipy.optimize")
    cost = RNG.random((40, 55))
    assert bigsap.certify(cost, optimize.linear_sum_assignment(cost)).optimal
    assert bigsap.certify(cost.T, optimize.linear_sum_assignment(cost.T)).optimal
    for shape in ((0, 0), (0, 3), (3, 0)):
        found = bigsap.certify(np.empty(shape), np.full(shape[0], -1))
        assert (found.fun, found.bound, found.gap, found.optimal) == (0.0, 0.0, 0.0, True)
    with pytest.raises(InfeasibleError):
        bigsap.linear_sum_assignment(np.full((2, 2), np.inf))


def test_command_line(tmp_path, capsys):
    np.save(tmp_path / "c.npy", COST)
    np.save(tmp_path / "a.npy", PERMUTATION)

    def run(*words):
        code = cli.main([str(word) for word in words])
        return code, json.loads(capsys.readouterr().out)

    cost, given = tmp_path / "c.npy", tmp_path / "a.npy"
    code, found = run("certify", cost, given, "--json")
    expected = bigsap.certify(COST, PERMUTATION)
    assert (code, found["optimal"], found["exit_code"]) == (8, False, 8)
    assert (found["fun"], found["bound"], found["gap"]) == (expected.fun, expected.bound, expected.gap)
    for flags in ((), ("--maximize",)):
        bigsap.solve(COST, maximize=bool(flags)).save(tmp_path / "r.npz")
        code, found = run("certify", cost, tmp_path / "r.npz", *flags, "--json")
        assert (code, found["optimal"]) == (0, True)
        code, found = run(
            "certify", cost, tmp_path / "r.npz", "--prices", tmp_path / "r.npz", *flags, "--json"
        )
        assert (code, found["optimal"], found["pairs"]) == (0, True, 36)
    np.save(tmp_path / "plan.npy", np.eye(6)[PERMUTATION])
    assert run("certify", cost, tmp_path / "plan.npy", "--unassigned-cost", 0.3, "--json")[0] == 8
    np.save(tmp_path / "bad.npy", np.zeros(6, int))
    assert run("certify", cost, tmp_path / "bad.npy", "--json")[0] == 5
    assert cli.main(["certify", str(cost), str(given)]) == 8
    assert "not proved" in capsys.readouterr().out


def test_assignments_of_no_columns_and_masked_ones():
    assert bigsap.certify(np.zeros((2, 0)), np.zeros((2, 0))).fun == 0
    masked = np.ma.masked_array([0, 1, 2], mask=[0, 0, 1])
    for pairs in (([0, 1, 2], masked), (masked, [0, 1, 2])):
        with pytest.raises(InvalidCostError, match=r"_ind\[2\] is missing"):
            bigsap.certify(np.eye(3), pairs)


@pytest.mark.parametrize("maximize", [False, True])
def test_whole_prices_of_rows_that_floats_do_not_hold(maximize):
    """Prices of columns that have fractions must not make those of rows floats."""
    sign = -1 if maximize else 1
    for seed in range(20):
        rng = np.random.default_rng(seed)
        cost, left = 2**53 + rng.integers(0, 50, (5, 3)), 2**53 + rng.integers(0, 50, 5)
        best, col4row = oracle.optimum(cost, maximize, left)
        prices = -sign * (rng.integers(0, 4, 3) + 0.5)
        found = bigsap.certify(cost, np.array(col4row), prices, maximize=maximize, unassigned_cost=left)
        minima = oracle.row_minima(cost, prices, maximize=maximize)
        least = oracle.dual_bound(minima, prices, maximize=maximize, unassigned=left)
        assert found.fun == oracle.value(best)
        assert math.ceil(oracle.value(least)) <= sign * found.bound <= sign * found.fun
