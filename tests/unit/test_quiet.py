"""Huge costs: the right pairs or a named error, never a warning of numpy (all are errors here)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import warnings
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment as scipys
from scipy.sparse import coo_array

import bigsap
from oracle import brute_force
from pairwise import each

HUGE = [[1.7e308, -1.7e308], [-1.7e308, 1.7e308]]
OPTIONS = [
    {},
    {"method": "ssp"},
    {"method": "compressed"},
    {"method": "hungarian"},
    {"method": "auction"},
    {"epsilon": False},
    {"certify": False},
    {"maximize": True},
    {"unassigned_cost": 1e308},
]


@pytest.fixture(autouse=True)
def _every_warning_is_an_error():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_sums_beyond_float64(options):
    for cost in (HUGE, lambda i, j: HUGE[i][j]):
        with pytest.raises(bigsap.OverflowRiskError, match="leaves float64"):
            bigsap.solve(cost, shape=(2, 2), **options)
    with pytest.raises(bigsap.OverflowRiskError, match="leaves float64"):
        bigsap.solve_many([HUGE], **options)


def test_listed_pairs_near_the_end_of_float64():
    """Residual costs beyond float64 are capped, and a dual beyond it is that error."""
    least = 1e-300
    for cost, prices, fun in (
        ([[least, 1e308], [1.7e308, least], [-1.7e308, 0], [least, 1e308]], None, -1.7e308),
        ([[-1.7e308, np.inf], [0, least]], 5.1e307, -1.7e308),
    ):
        rows, columns = np.nonzero(np.isfinite(cost))
        listed = bigsap.sparse((rows, columns, np.array(cost)[rows, columns]))
        assert bigsap.solve(listed, unassigned_cost=prices).fun == fun
    far = [[np.inf, 1e308, np.inf], [-1.7e308, -1.7e308, least], [0, 0, 0]]
    rows, columns = np.nonzero(np.isfinite(far))
    with pytest.raises(bigsap.OverflowRiskError, match="leaves float64"):
        bigsap.solve(bigsap.sparse((rows, columns, np.array(far)[rows, columns])))


@pytest.mark.parametrize("method", ["auto", "ssp", "compressed"])
def test_integers_beyond_exact_sums_are_one_error_without_another_behind_it(method):
    with pytest.raises(bigsap.OverflowRiskError, match="exact sums") as raised:
        bigsap.solve(np.array([[2**60, 0], [0, -(2**60)]]), method=method)
    assert raised.value.__context__ is None


@pytest.mark.parametrize("maximize", [False, True])
def test_linear_sum_assignment(maximize):
    found = bigsap.linear_sum_assignment(HUGE, maximize)
    np.testing.assert_array_equal(found, scipys(HUGE, maximize))


@pytest.mark.parametrize("maximize", [False, True])
def test_a_signalling_nan_is_an_invalid_cost(maximize):
    cost = np.ones((3, 3))
    cost.view("u8")[2, 1] = 0x7FF0000000000001
    for solve in (bigsap.linear_sum_assignment, bigsap.solve):
        with pytest.raises(bigsap.InvalidCostError) as raised:
            solve(cost, maximize=maximize)
        assert (raised.value.row, raised.value.column) == (2, 1)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_single_precision(options):
    numbers = np.array([[3e38, -3e38], [-3e38, 3e38]], "f4")
    sign = 1 if options.get("maximize") else -1
    for result in (bigsap.solve(numbers, **options), *bigsap.solve_many([numbers] * 3, **options)):
        assert result.fun == sign * 2 * float(np.float32(3e38))


@each(shape=[(40, 40), (20, 40), (40, 20), (300, 300)], options=OPTIONS)
def test_differences_beyond_float64(shape, options):
    cost = (np.random.default_rng(1).random(shape) - 0.5) * (1.7e308 / max(shape))
    cost[3, 5] = 1.5e308
    if options.get("method") == "auction" and shape[0] != shape[1]:
        pytest.skip("its prices leave float64")
    if options.get("method") == "hungarian" and shape[0] > shape[1]:
        cost = cost.T
    try:
        result = bigsap.solve(cost, **options)
    except bigsap.OverflowRiskError:
        return
    scaled = bigsap.solve(np.ldexp(cost, -20), **_scaled(options))
    assert np.ldexp(scaled.fun, 20) == pytest.approx(result.fun, rel=1e-12)
    result.verify(cost)


INF, METHODS = np.inf, ["auto", "ssp", "compressed", "hungarian", "auction"]
#: Differences of costs, or of prices, that leave float64, in problems that have an optimum.
BEYOND = {
    "wide": [[1.0, 1.7e308], [1.0, 0.5]],
    "signs": [[-8.5e307, 8.5e307], [8.5e307, 4.25e307]],
    "tall": [[-1.7e308, 1.7e308], [INF, INF], [1.7e308, INF]],
    "ties": [[1.7e308, 1.7e308], [1.7e308, 1.7e308], [-1.7e308, -1.7e308]],
    "few": [[1.7e308, INF], [1.7e308, -1.7e308]],
    "rows": [[7e307, 8e307, -1.4e308], [-1.2e308, 8.5e307, 7e307], [-1e308, 1.1e308, 1e308]],
    "alone": [
        [6.5e307, -1.1e307, -6.4e307, 1.3e308],
        [INF, 1e308, 4e307, 5e307],
        [INF, INF, INF, 1.4e308],
        [INF, INF, 1.3e308, INF],
    ],
    "prices": [
        [INF, 2.84556044e307, -4.44952929e307],
        [2.08254931e307, -9.0015878e307, INF],
        [INF, INF, 2.02860624e307],
    ],
    "residual": [
        [1.0, 8.5e307, 4.25e307],
        [-8.5e307, 1.0, 8.5e307],
        [1.0, 8.5e307, 8.5e307],
        [8.5e307, -8.5e307, -8.5e307],
        [-8.5e307, 8.5e307, 4.25e307],
    ],
}


def _as_row_function(cost):
    return bigsap.from_function(lambda i: cost[i].copy(), cost.shape, kind="row", compiled=False)


def _as_sparse(cost):
    rows, columns = np.nonzero(np.isfinite(cost))
    return coo_array((cost[rows, columns], (rows, columns)), shape=cost.shape)


def _one_of_many(cost, **options):
    return bigsap.solve_many([cost], **options)[0]


@pytest.mark.parametrize("which", list(BEYOND))
@pytest.mark.parametrize("maximize", [False, True])
def test_what_leaves_float64_is_not_infeasible(which, maximize):
    cost = np.array(BEYOND[which]) * (-1 if maximize else 1)
    tall = cost.shape[0] > cost.shape[1]
    ways = [(np.asarray, method) for method in METHODS]
    ways += [(_as_row_function, method) for method in (METHODS[:3] if tall else METHODS)]
    for (form, method), certify in product([*ways, (_as_sparse, "auto")], [True, False]):
        for solve in (bigsap.solve, _one_of_many):
            try:
                result = solve(form(cost), method=method, maximize=maximize, certify=certify)
            except bigsap.OverflowRiskError:
                continue
            assert result.status == "optimal"
            best = brute_force(cost, maximize)
            found = sum(Fraction(cost[i, j]) for i, j in enumerate(result.col4row) if j >= 0)
            assert abs(found - best) <= abs(best) / 2**48


LEAST = -np.finfo(np.float64).max
#: The optimum is the least float less 1: its sum is rounded to that float, and its bound to minus infinity.
BELOW = {
    "tall": [[0.0, -LEAST], [-1.0, LEAST], [-1.0, -LEAST]],
    "wide": [[0.0, -LEAST, -1.0], [-1.0, LEAST, -LEAST]],
    "square": [[LEAST, 0.0], [0.0, -1.0]],
}


@each(which=list(BELOW), method=METHODS, maximize=[False, True])
def test_bounds_below_the_least_float_are_not_infeasible(which, method, maximize):
    cost = np.array(BELOW[which]) * (-1 if maximize else 1)
    with pytest.raises(bigsap.OverflowRiskError, match="float64"):
        bigsap.solve(cost, method=method, maximize=maximize)
    rows, columns = bigsap.linear_sum_assignment(cost, maximize)
    found = sum(map(Fraction, cost[rows, columns].tolist()))
    assert abs(found - brute_force(cost, maximize)) <= abs(found) / 2**48


def _scaled(options):
    if "unassigned_cost" not in options:
        return options
    return {"unassigned_cost": float(np.ldexp(options["unassigned_cost"], -20))}


def test_numpys_settings_are_left_alone():
    before = np.geterr()
    bigsap.solve(np.eye(3))
    bigsap.linear_sum_assignment(np.eye(3))
    assert np.geterr() == before


def test_without_a_compiler_there_is_a_named_error():
    code = "import bigsap; bigsap.solve([[1.0, 2.0], [3.0, 1.0]])"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "OptionError" in done.stderr
    assert "unset it" in done.stderr


def test_without_a_compiler_the_command_line_says_so_in_one_line(tmp_path):
    np.save(tmp_path / "c.npy", np.eye(3))
    done = subprocess.run(
        [sys.executable, "-m", "bigsap", "solve", str(tmp_path / "c.npy"), "--json"],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("bigsap: error: ")
    assert done.stderr.count("\n") == 1
    said = json.loads(done.stdout)
    assert (said["error"], said["exit_code"]) == ("OptionError", 1)
    assert "unset it" in said["message"]


@pytest.mark.parametrize("scale", [1e-320, 1e-160, 1.0])
@pytest.mark.parametrize("metric", ["sqeuclidean", "euclidean", "cityblock"])
def test_underflow_is_no_error_whatever_numpy_is_told(metric, scale):
    g = np.random.default_rng(3)
    with np.errstate(under="ignore"):
        x, y = scale * g.normal(size=(2, 40, 3))
        cost = scale * g.random((40, 40))
    with np.errstate(all="raise"):
        for given in (cost, bigsap.points(x, y, metric)):
            assert bigsap.solve(given).status == "optimal"
