"""``Result.verify`` against every false claim."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction

import numpy as np
import pytest

import bigsap
from bigsap.errors import CertificateError, InvalidCostError, ShapeError
from bigsap.proof.certificate import certify
from bigsap.proof.verify import _exceeds
from bigsap.result import Result, Status
from bigsap.sources import as_source
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.wrappers import Counted
from instances import geometric
from oracle import optimal_prices, optimum
from pairwise import each
from solved import cost_of, solved


def swapped(res):
    """The same claims with the columns of two rows exchanged, consistently."""
    col4row = res.col4row.copy()
    a, b = res.row_ind[:2]
    col4row[[a, b]] = col4row[[b, a]]
    row4col = res.row4col.copy()
    row4col[col4row[[a, b]]] = [a, b]
    return {"col4row": col4row, "row4col": row4col, "col_ind": col4row[res.row_ind]}


def nudged(array, where=0, by=1):
    array = array.copy()
    array[where] += by
    return array


FALSE_CLAIMS = {
    "fun": (lambda r: {"fun": r.fun - 1, "gap": abs(r.fun - 1 - r.bound)}, "fun is"),
    "fun, slightly": (lambda r: {"fun": r.fun * (1 + 1e-9)}, "fun is"),
    "no fun": (lambda r: {"fun": None, "gap": None}, "no fun"),
    "bound too strong": (
        lambda r: {"bound": r.bound + (-1 if r.maximize else 1), "gap": 1},
        "is not proved by the duals",
    ),
    "bound too weak": (lambda r: {"bound": r.bound - (-1 if r.maximize else 1), "gap": 1}, "duals sum to"),
    "gap": (lambda r: {"gap": r.gap + 1}, "gap is"),
    "no gap": (lambda r: {"gap": None}, "gap is known exactly when"),
    "u infeasible": (
        lambda r: {"u": nudged(r.u, 0, -1 if r.maximize else 1)},
        r"u\[0\] = .* is no feasible dual",
    ),
    "u low": (lambda r: {"u": nudged(r.u, 0, 1 if r.maximize else -1)}, "duals sum to"),
    "v low": (lambda r: {"v": nudged(r.v, r.col_ind[0], 1 if r.maximize else -1)}, "bound|dual"),
    "u nan": (lambda r: {"u": nudged(r.u, 0, np.nan)}, "NaN"),
    "u short": (lambda r: {"u": r.u[1:]}, "length"),
    "columns exchanged": (swapped, "fun is"),
    "col_ind": (lambda r: {"col_ind": r.col_ind[::-1]}, "disagree with col4row"),
    "row4col": (lambda r: {"row4col": np.roll(r.row4col, 1)}, "row4col disagrees"),
    "row4col range": (
        lambda r: {"row4col": np.where(r.row4col == r.row_ind[0], 99, r.row4col)},
        "row4col disagrees",
    ),
    "status": (lambda r: {"status": Status.TIME_LIMIT}, "success is True"),
    "success": (lambda r: {"success": False}, "success is False"),
    "infeasible": (
        lambda r: {"status": Status.INFEASIBLE, "success": False, "violator": np.array([0])},
        "does not rule out",
    ),
    "infeasible, no proof": (lambda r: {"status": Status.INFEASIBLE, "success": False}, "non-empty"),
}


@each(claim=FALSE_CLAIMS, kind=["real", "integer"], shape=[(6, 6), (4, 7), (7, 4)], maximize=[False, True])
def test_false_claims_are_found(claim, kind, shape, maximize):
    cost = cost_of(kind, shape)
    res = solved(cost, maximize)
    change, message = FALSE_CLAIMS[claim]
    if kind == "integer" and "nan" in claim:
        res = dataclasses.replace(res, u=res.u.astype(float), v=res.v.astype(float))
    with pytest.raises(CertificateError, match=message):
        dataclasses.replace(res, **change(res)).verify(cost)


@pytest.mark.parametrize("name", ["fun", "bound", "gap"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"unassigned_cost": 0.5},
        {"capacity": 2},
        {"capacity": 2, "unassigned_cost": 0.5},
        {"demand": [1, 0, 2, 1, 1, 1]},
        {"objective": "bottleneck"},
    ],
)
def test_numbers_that_are_nan_are_false_claims(options, name):
    cost = cost_of("real")
    res = bigsap.solve(cost, **options)
    with pytest.raises(CertificateError, match=f"{name} is (nan|NaN)"):
        dataclasses.replace(res, **{name: np.nan}).verify(cost)


@pytest.mark.parametrize("options", [{"capacity": 2}, {"demand": [1, 0, 2, 1, 1, 1]}])
def test_columns_of_capacities_are_no_claim_without_these(options):
    cost = cost_of("real")
    res = bigsap.solve(cost, **options)
    for change in ({"capacity": None, "demand": None}, {"capacity": res.demand, "demand": res.capacity}):
        with pytest.raises(CertificateError, match="is missing"):
            dataclasses.replace(res, **change).verify(cost)


def test_an_incomplete_assignment_is_found():
    res = solved(cost_of("real"))
    col4row, row4col = res.col4row.copy(), res.row4col.copy()
    row4col[col4row[0]] = col4row[0] = -1
    bad = dataclasses.replace(
        res, col4row=col4row, row4col=row4col, row_ind=res.row_ind[1:], col_ind=res.col_ind[1:]
    )
    with pytest.raises(CertificateError, match="incomplete: 5 pairs where 6"):
        bad.verify(cost_of("real"))


def test_optimal_is_a_claim_of_its_own():
    """A consistent result with an honest gap may not call itself optimal."""
    cost = cost_of("real")
    res = solved(cost)
    col4row = np.array(swapped(res)["col4row"])
    c = certify(ArraySource(cost), col4row, res.v)
    honest = Result.from_assignment(col4row, res.v, c, shape=(6, 6), status=Status.GAP_REACHED)
    assert honest.gap > 0
    honest.verify(cost)
    with pytest.raises(CertificateError, match="status is optimal, but"):
        dataclasses.replace(honest, status=Status.OPTIMAL).verify(cost)


@pytest.mark.parametrize("maximize", [False, True])
def test_other_costs_do_not_verify(maximize):
    cost = cost_of("real")
    res = solved(cost, maximize)
    other = cost.copy()
    other[res.row_ind[2], res.col_ind[2]] += -0.25 if maximize else 0.25
    with pytest.raises(CertificateError, match="fun is"):
        res.verify(other)
    other = cost.copy()  # a pair that would make the assignment improvable
    other[0, res.col_ind[1]] += 5 if maximize else -5
    with pytest.raises(CertificateError, match=r"u\[0\]"):
        res.verify(other)
    with pytest.raises(CertificateError, match=r"shape \(6, 6\), not \(6, 5\)"):
        res.verify(cost[:, :5])
    other[3, 3] = np.nan
    with pytest.raises(InvalidCostError, match=r"cost\[3, 3\]"):
        res.verify(other)


def test_last_bits_may_differ():
    cost = geometric(60, seed=9)
    res = solved(cost)
    rng = np.random.default_rng(0)
    res.verify(np.nextafter(cost, rng.choice([-1.0, 9.0], cost.shape)))


def test_verify_takes_what_solve_takes():
    cost = cost_of("real", (4, 7))
    res = solved(cost)
    res.verify(cost.tolist())
    res.verify(cost, threads=3)
    res.verify(np.asfortranarray(cost))
    with pytest.raises(ShapeError):
        res.verify(cost, shape=(7, 4))


def test_verify_infeasible():
    cost = np.array([[1, np.inf, np.inf], [2, np.inf, np.inf], [1, 1, 1]])
    res = Result.from_assignment(None, shape=(3, 3), status=Status.INFEASIBLE, violator=[0, 1])
    assert res.verify(cost).bound == np.inf
    with pytest.raises(CertificateError, match="does not rule out"):
        res.verify(np.ones((3, 3)))


@pytest.mark.parametrize("options", [{}, {"unassigned_cost": np.inf}, {"capacity": 1}, {"demand": 1}])
@pytest.mark.parametrize("claim", ["fun", "bound", "gap"])
def test_an_infeasible_problem_has_no_numbers(claim, options):
    cost = np.array([[1, np.inf, np.inf], [2, np.inf, np.inf], [1, 1, 1]])
    res = bigsap.solve(cost, **options)
    assert res.status == Status.INFEASIBLE
    assert res.verify(cost).bound == np.inf
    with pytest.raises(CertificateError, match="gap"):
        dataclasses.replace(res, **{claim: 3.0}).verify(cost)


def test_verify_a_gap_of_denormal_costs():
    cost = cost_of("real") * 2.0**-1060
    col4row = np.array(swapped(solved(cost))["col4row"])
    c = certify(ArraySource(cost), col4row, solved(cost).v)
    res = Result.from_assignment(
        col4row, c.v, shape=(6, 6), status=Status.TIME_LIMIT, u=c.u, fun=c.fun, bound=c.bound
    )
    assert res.gap == math.nextafter(c.gap, math.inf)
    res.verify(cost)


def test_verify_without_certificate():
    """certify=False leaves duals and bound unknown: what is claimed is still checked."""
    cost = cost_of("real")
    known = solved(cost)
    res = Result.from_assignment(known.col4row, known.v, shape=(6, 6), status=Status.OPTIMAL, fun=known.fun)
    assert res.bound is None
    assert res.verify(cost).optimal
    with pytest.raises(CertificateError, match="fun is"):
        dataclasses.replace(res, fun=res.fun + 1e-9).verify(cost)
    with pytest.raises(CertificateError, match="status is optimal"):
        dataclasses.replace(res, v=np.zeros(6)).verify(cost)


def test_verify_a_bound_without_assignment():
    cost = cost_of("real")
    c = certify(ArraySource(cost), None, np.zeros(6))
    res = Result.from_assignment(None, None, c, shape=(6, 6), status=Status.TIME_LIMIT)
    assert res.verify(cost).bound == res.bound
    with pytest.raises(CertificateError, match="not proved"):
        dataclasses.replace(res, bound=res.bound + 1).verify(cost)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shape", [(6, 6), (4, 7)])
def test_an_infinite_bound_is_proved_by_a_row_without_a_column(shape, maximize):
    forbidden = -np.inf if maximize else np.inf
    allowed = cost_of("real", shape)
    cost = allowed.copy()
    cost[2] = forbidden
    c = certify(ArraySource(cost), None, np.zeros(shape[1]), maximize=maximize)
    res = Result.from_assignment(None, None, c, shape=shape, status=Status.TIME_LIMIT, maximize=maximize)
    assert res.bound == forbidden
    assert res.verify(cost).bound == forbidden
    with pytest.raises(CertificateError, match="no feasible dual"):
        res.verify(allowed)
    with pytest.raises(CertificateError, match="duals sum to"):
        dataclasses.replace(res, bound=0.0).verify(cost)
    with pytest.raises(CertificateError, match="no feasible dual"):
        dataclasses.replace(res, u=nudged(res.u, 0, 2 * forbidden)).verify(cost)


@each(
    status=[Status.OPTIMAL, Status.GAP_REACHED], maximize=[False, True], shape=[(20, 20), (20, 12), (12, 20)]
)
def test_a_weak_bound_is_found_where_rows_stay_unassigned(shape, maximize, status):
    cost = np.random.default_rng(0).integers(0, 1000, shape)
    for gate in (500, np.linspace(100, 700, shape[0])):
        res = bigsap.solve(cost, unassigned_cost=gate, maximize=maximize)
        assert res.verify(cost).optimal
        weak = res.bound + (1 if maximize else -1)
        with pytest.raises(CertificateError, match="duals sum to"):
            dataclasses.replace(res, bound=weak, gap=1, status=status).verify(cost)


def test_an_optimal_result_of_integers_claims_no_gap():
    """Prices with fractions: their sum is a fraction below the bound, an integer all the same."""
    cost = cost_of("integer")
    res = solved(cost)
    c = certify(ArraySource(cost), res.col4row, res.v + 0.1 * np.arange(6))
    assert c.optimal
    assert res.fun - 1 < c.u.sum() + c.v.sum() < res.fun - 0.01
    fractions = dataclasses.replace(res, u=c.u, v=c.v, u_low=c.u_low, v_low=c.v_low)
    fractions.verify(cost)
    weak = dataclasses.replace(fractions, bound=res.bound - 1, gap=1)
    with pytest.raises(CertificateError, match="claims a gap of 1"):
        weak.verify(cost)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shift", [-3.0, 5.0])
def test_the_duals_of_a_square_problem_may_be_shifted(shift, maximize):
    cost = cost_of("integer").astype(float)  # so that the shifted duals are exact
    res = solved(cost, maximize)
    dataclasses.replace(res, u=res.u + shift, v=res.v - shift).verify(cost)
    wide = solved(cost[:4], maximize)
    shifted = dataclasses.replace(wide, u=wide.u + shift, v=wide.v - shift)
    raised = (shift < 0) != maximize  # v above 0 (below, when maximising)
    with pytest.raises(CertificateError, match="wrong sign" if raised else "duals sum to|not proved"):
        shifted.verify(cost[:4])


def test_duals_that_are_differences_of_larger_numbers(tmp_path):
    """300 x 280: the duals lie near 0.01, the prices they are differences of reached 0.2. A result
    needs nothing but its duals to prove itself."""
    for seed in range(8):
        costs = np.random.default_rng(seed).random((300, 280))
        result = bigsap.solve(Counted(as_source(costs)), method="ssp")  # which is not turned
        result.save(tmp_path / "result.npz")
        loaded = Result.load(tmp_path / "result.npz")
        assert dataclasses.replace(loaded, stats={}).verify(costs).optimal


def test_low_parts_are_part_of_the_proof(tmp_path):
    """Prices of a huge size: without their low parts they prove far less."""
    costs = np.random.default_rng(3).random((30, 30))
    prices = [p + 10**18 for p in optimal_prices(costs)]
    low = [float(p - Fraction(float(p))) for p in prices]
    _, col4row = optimum(costs)
    c = certify(ArraySource(costs), col4row, [float(p) for p in prices], low)
    assert c.optimal
    assert c.u_low is not None
    status = Status.OPTIMAL
    result = Result.from_assignment(np.array(col4row), None, c, shape=(30, 30), status=status)
    result.save(tmp_path / "result.npz")
    loaded = Result.load(tmp_path / "result.npz")
    for name in ("u_low", "v_low"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(result, name))
    assert loaded.verify(costs).optimal
    with pytest.raises(CertificateError, match=r"not proved|no feasible dual|duals sum to"):
        dataclasses.replace(loaded, v_low=None).verify(costs)


def test_a_forged_magnitude_hides_no_worse_assignment():
    costs = np.random.default_rng(0).random((30, 20))
    result = bigsap.solve(costs)
    worse = swapped(result)
    fun = costs[result.row_ind, worse["col_ind"]].sum()
    for magnitude in (10**400, 1e300, np.inf, np.nan, -1, "1"):
        claim = dataclasses.replace(
            result, **worse, fun=fun, gap=fun - result.bound, stats={"magnitude": magnitude}
        )
        with pytest.raises(CertificateError, match="duals leave a gap"):
            claim.verify(costs)


@pytest.mark.parametrize("sign", [1, -1])
def test_duals_of_two_parts_are_compared_exactly(sign):
    rng = np.random.default_rng(4)
    a, b = rng.random((2, 600))
    a_low, b_low = rng.integers(-3, 4, (2, 600)) * 2.0 ** rng.integers(-170, -53, (2, 600))
    near = slice(0, 400)  # the parts decide, or not even they
    b[near] = a[near] + rng.integers(-1, 2, 400) * 2.0**-55
    b_low[:100] = a_low[:100]
    b_low[100:200] = a_low[100:200] + rng.integers(-1, 2, 100) * 2.0**-200
    # What is rounded off a sum of low parts decides.
    a[0], b[0] = 0.125 + 2.0**-55, 0.125
    a_low[0], b_low[0] = sign * 2.0**-110, sign * 2.0**-55
    for tolerance in (0.0, 2.0**-60):
        found = _exceeds(a, a_low, b, b_low, sign, tolerance)
        exact = [
            Fraction(x) + sign * Fraction(p) > Fraction(y) + sign * Fraction(q) + Fraction(tolerance)
            for x, p, y, q in zip(a.tolist(), a_low.tolist(), b.tolist(), b_low.tolist(), strict=True)
        ]
        assert found.tolist() == exact
