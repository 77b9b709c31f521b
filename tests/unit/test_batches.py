"""``Batch``: answers as arrays; padded problems; a price for each problem or row."""

from __future__ import annotations

import copy
import itertools
import pickle

import numpy as np
import pytest

import bigsap
from bigsap import policy
from pairwise import each

FIELDS = ("col4row", "row4col", "row_ind", "col_ind", "u", "v", "violator", "costs", "unassigned_cost")


def same(found, expected):
    """Check that results are equal, bit for bit."""
    for name in ("fun", "bound", "gap", "status", "success", "message", "shape", "maximize"):
        assert repr(found[name]) == repr(expected[name]), name
    for name in FIELDS:
        assert (found[name] is None) == (expected[name] is None), name
        if expected[name] is not None:
            assert found[name].dtype == expected[name].dtype, name
            assert found[name].tobytes() == expected[name].tobytes(), name
    assert (found.stats["method"], found.stats["proof"]) == (
        expected.stats["method"],
        expected.stats["proof"],
    )


def agree(batch):
    """Check that the arrays of a batch say what its results say."""
    n, m = batch.col4row.shape[1], batch.row4col.shape[1]
    for p, result in enumerate(batch):
        expected = np.full(n, -1), np.full(m, -1)
        for name, line in zip(("col4row", "row4col"), expected, strict=True):
            line[: len(result[name])] = result[name]
            assert batch[p] is result
            np.testing.assert_array_equal(getattr(batch, name)[p], line)
        for name in ("fun", "bound", "gap"):
            value = getattr(batch, name)[p]
            assert np.isnan(value) if result[name] is None else value == result[name]
        assert batch.status[p] == result.status
        assert batch.success[p] == result.success
        assert tuple(batch.shapes[p]) == result.shape
    assert batch.col4row.dtype == batch.row4col.dtype == np.intp
    pairs = [(p, *pair) for p, result in enumerate(batch) for pair in result.pairs().tolist()]
    assert batch.pairs().tolist() == [list(pair) for pair in pairs]


def kinds():
    rng = np.random.default_rng(3)
    cube = rng.random((12, 4, 6))
    holes = np.where(rng.random(cube.shape) < 0.6, np.inf, cube)
    return {
        "cube": cube,
        "tall": np.ascontiguousarray(cube.swapaxes(1, 2)),
        "square": cube[:, :, :4],
        "float32": cube.astype("f4"),
        "float16": cube.astype("f2"),
        "integers": (9 * cube).astype(int),
        "bools": cube > 0.5,
        "every second": cube[::2, :, 1:6],
        "fortran": np.asfortranarray(cube),
        "read-only": np.broadcast_to(cube[0], (5, 4, 6)),
        "holes": holes,
        "tall holes": holes.swapaxes(1, 2),
        "ragged": [rng.random(rng.integers(1, 9, 2)) for _ in range(20)],
        "mixed": [(9 * c).astype(d) for c, d in zip(cube, itertools.cycle("fdilB"))],
        "nested": cube.tolist(),
        "with a source": [cube[0], bigsap.points(rng.random((3, 2)), rng.random((5, 2)))],
        "large": [rng.random((1030, 1031)), cube[1]],
        "large integers": [2**54 + k + 3 * np.eye(3, dtype=int) for k in range(3)],
    }


@each(certify=[True, False], maximize=[False, True], name=list(kinds()))
def test_arrays_say_what_the_results_say(name, maximize, certify):
    costs = kinds()[name]
    if maximize and "holes" in name:
        costs = -costs
    batch = bigsap.solve_many(costs, maximize=maximize, certify=certify)
    agree(batch)
    for cost, result in zip(costs, batch, strict=True):
        same(result, bigsap.solve(cost, maximize=maximize, certify=certify, threads=1))
    whole = name in ("integers", "bools", "large integers")
    assert batch.fun.dtype == (np.int64 if whole else np.float64)


def padded(dtype="f8", seed=5):
    """Problems with garbage outside their true sizes."""
    rng = np.random.default_rng(seed)
    costs = rng.integers(-9, 99, (25, 5, 7)).astype(dtype)
    rows, columns = rng.integers(0, 6, 25), rng.integers(0, 8, 25)
    rows[:3], columns[:3] = (5, 1, 5), (7, 1, 0)
    for cost, n, m in zip(costs, rows, columns, strict=True):
        garbage = np.nan if cost.dtype.kind == "f" else np.iinfo(cost.dtype).min
        cost[n:], cost[:, m:] = garbage, garbage
    return costs, rows, columns


@pytest.mark.parametrize("dtype", ["f8", "f4", "f2", "i8", "i2"])
@pytest.mark.parametrize("maximize", [False, True])
def test_padding_is_never_read(dtype, maximize):
    costs, rows, columns = padded(dtype)
    turned = costs[::-1], rows[::-1], columns[::-1]
    for given, n, m in ((costs, rows, columns), (list(costs), rows, columns.tolist()), turned):
        batch = bigsap.solve_many(given, rows=n, columns=m, maximize=maximize)
        agree(batch)
        assert batch.col4row.shape == (25, 5)
        assert batch.success.all()
        for p, result in enumerate(batch):
            same(result, bigsap.solve(given[p][: n[p], : m[p]], maximize=maximize, threads=1))


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"rows": [3, 3]}, bigsap.ShapeError, "rows is not valid: it has shape"),
        ({"rows": 3}, bigsap.ShapeError, "rows is not valid: it has shape"),
        ({"rows": [1, 2, 5]}, bigsap.ShapeError, "rows of problem 2 is 5, but its matrix has 4 rows"),
        ({"columns": [1, 2, 7]}, bigsap.ShapeError, "columns of problem 2 is 7"),
        ({"columns": [1, -1, 2]}, bigsap.ShapeError, "columns of problem 1 is -1"),
        ({"columns": [1, 2.0, 2]}, bigsap.DtypeError, "columns is not valid: it holds float64"),
        ({"rows": [True, False, True]}, bigsap.DtypeError, "it holds bool"),
        ({"rows": [1, None, 2]}, bigsap.DtypeError, "rows is not valid: it holds missing values"),
        ({"rows": ["1", "1", "2"]}, bigsap.DtypeError, "rows is not valid"),
        ({"unassigned_cost": [1.0, 2.0]}, bigsap.ShapeError, "unassigned_cost is not valid"),
        ({"unassigned_cost": np.ones((2, 4))}, bigsap.ShapeError, "unassigned_cost is not valid"),
        ({"unassigned_cost": np.ones((3, 4, 1))}, bigsap.ShapeError, "unassigned_cost is not valid"),
        ({"unassigned_cost": np.ones((3, 5))}, bigsap.ShapeError, "problem 0: unassigned_cost"),
        (
            {"unassigned_cost": [1.0, np.nan, 1.0]},
            bigsap.InvalidCostError,
            "problem 1: unassigned_cost of row 0",
        ),
    ],
)
def test_sizes_and_prices_that_do_not_fit(options, error, text):
    with pytest.raises(error, match=text):
        bigsap.solve_many(np.ones((3, 4, 6)), **options)


def test_only_matrices_are_cut():
    for cost in (bigsap.points(np.ones((3, 2)), np.ones((3, 2))), np.ones(3), "x"):
        with pytest.raises(bigsap.OptionError, match="problem 1 is no matrix in memory"):
            bigsap.solve_many([np.eye(3), cost], rows=[3, 3])
    with pytest.raises(bigsap.ShapeError, match="rows is for costs"):
        bigsap.solve_many(np.eye(3), rows=[1, 1, 1])


def test_empty_batches_and_empty_problems():
    for costs in (np.empty((0, 3, 4)), []):
        batch = bigsap.solve_many(costs)
        assert (len(batch), list(batch), batch == []) == (0, [], True)
        assert batch.fun.shape == batch.status.shape == (0,)
        assert batch.col4row.shape == (0, 3 if len(np.shape(costs)) == 3 else 0)
    for shape in ((3, 0, 4), (3, 4, 0), (3, 0, 0)):
        batch = bigsap.solve_many(np.empty(shape))
        agree(batch)
        assert (batch.fun == 0).all()
        assert batch.col4row.shape == shape[:2]
        assert (batch.col4row == -1).all()


def test_empty_problems_among_others_without_a_certificate():
    batch = bigsap.solve_many([np.empty((0, 4)), np.eye(2), np.empty((3, 0))], certify=False)
    agree(batch)
    assert np.isnan(batch.bound).tolist() == np.isnan(batch.gap).tolist() == [False, True, False]


def test_a_bad_cost_in_the_used_part_is_named():
    costs, rows, columns = padded()
    costs[0, 4, 6] = np.nan
    with pytest.raises(bigsap.InvalidCostError, match=r"^problem 0: .*cost\[4, 6\] is nan"):
        bigsap.solve_many(costs, rows=rows, columns=columns)
    batch = bigsap.solve_many(costs, rows=rows, columns=columns, errors="return")
    assert isinstance(batch[0], bigsap.InvalidCostError)
    assert batch.status[0] == "error"
    assert not batch.success[0]
    assert (batch.col4row[0] == -1).all()
    assert np.isnan(batch.fun[0])
    assert batch.success[1:].all()


def test_a_batch_is_a_sequence():
    batch = bigsap.solve_many(np.random.default_rng(1).random((5, 3, 3)))
    assert batch[-1] is batch[4]
    assert batch[1:3] == [batch[1], batch[2]]
    assert list(reversed(batch)) == [batch[p] for p in (4, 3, 2, 1, 0)]
    assert batch == list(batch)
    assert batch[2] in batch
    assert "5 optimal" in repr(batch)
    with pytest.raises(IndexError, match="no problem"):
        batch[5]
    for other in (pickle.loads(pickle.dumps(batch)), copy.deepcopy(batch)):
        agree(other)
        np.testing.assert_array_equal(other.col4row, batch.col4row)


@pytest.mark.parametrize("wrong", [np.nan, -np.inf])
@pytest.mark.parametrize("columns", [35, 41])
def test_a_wrong_cost_behind_an_infeasible_row_is_named(wrong, columns):
    costs = np.random.default_rng(2).random((35, columns))
    costs[3] = np.inf
    assert bigsap.solve(costs).status == "infeasible"
    for column in (0, 31, 33, 34, columns - 1):
        broken = costs.copy()
        broken[34, column] = wrong
        with pytest.raises(bigsap.InvalidCostError) as caught:
            bigsap.solve(broken)
        assert (caught.value.row, caught.value.column) == (34, column)


# -- prices --------------------------------------------------------------------------------


def least(cost, prices):
    """Return the least cost of a partial assignment, by trying all: rows left out pay their price."""
    n, m = cost.shape
    best = None
    for columns in itertools.product(range(-1, m), repeat=n):
        used = [j for j in columns if j >= 0]
        if len(set(used)) == len(used):
            total = sum(prices[i] if j < 0 else cost[i, j] for i, j in enumerate(columns))
            best = total if best is None else min(best, total)
    return best


@pytest.mark.parametrize("dtype", ["f8", "f4", "i8", "i4"])
def test_prices_against_all_partial_assignments(dtype):
    rng = np.random.default_rng(7)
    costs = rng.integers(-5, 20, (60, 3, 4)).astype(dtype)
    rows, columns = rng.integers(0, 4, 60), rng.integers(0, 5, 60)
    prices = rng.integers(-3, 12, (60, 3))
    batch = bigsap.solve_many(costs, rows=rows, columns=columns, unassigned_cost=prices)
    agree(batch)
    for p, (n, m) in enumerate(zip(rows, columns, strict=True)):
        assert batch.fun[p] == batch.bound[p] == least(costs[p, :n, :m], prices[p])


def priced():
    rng = np.random.default_rng(8)
    cube = rng.random((15, 5, 6)).round(2)
    ragged = [rng.random(rng.integers(1, 9, 2)).round(1) for _ in range(15)]
    row_prices = rng.random((15, 5)).round(2)
    must = np.where(rng.random((15, 5)) < 0.3, np.inf, row_prices)
    whole = (100 * cube).astype(int)
    return {
        "one": (cube, 0.3),
        "a problem": (cube, rng.random(15)),
        "a row": (cube, row_prices),
        "a row, list": (cube, [list(line) for line in row_prices]),
        "ties": (cube, np.float64(cube[0, 0, 0])),
        "must": (cube, must),
        "must, tall": (cube.swapaxes(1, 2), np.where(rng.random((15, 6)) < 0.3, np.inf, 0.4)),
        "holes": (np.where(cube < 0.5, np.inf, cube), must),
        "ragged": (ragged, 0.4),
        "ragged rows": (ragged, [rng.random(len(c)) for c in ragged]),
        "ragged mixed": (ragged, [0.5 if p % 2 else rng.random(len(c)) for p, c in enumerate(ragged)]),
        "float32": (cube.astype("f4"), 0.3),
        "float32 prices": (cube, row_prices.astype("f4")),
        "whole": (whole, 30),
        "whole, tall": (whole.swapaxes(1, 2), 30),
        "whole, must": (whole, np.where(np.isinf(must), np.inf, 30)),
        "whole, tall, must": (whole.swapaxes(1, 2), np.where(rng.random((15, 6)) < 0.1, np.inf, 30)),
        "whole, halves": (whole, 30.5),
        "whole as floats": (whole, 30.0),
        "bools": (cube > 0.5, 0.5),
        "negative": (cube - 0.5, -0.1),
        "strided": (cube[:, ::2, ::-1], 0.3),
        "large whole": ([np.array([[2**54, 1], [2, 2**53 + 1]])], 3),
        "large whole, halves": ([np.array([[1, 2], [3, 4]])], 2.5),
    }


@each(maximize=[False, True], name=list(priced()))
def test_prices_equal_one_by_one(name, maximize):
    costs, prices = priced()[name]
    if maximize:
        costs = [-c.astype(float) if name in ("holes", "must") else c for c in costs]
        turn = name in ("holes", "must", "must, tall", "whole, must", "whole, tall, must")
        prices = -np.asarray(prices) if turn else prices
    batch = bigsap.solve_many(costs, unassigned_cost=prices, maximize=maximize)
    agree(batch)
    for p, cost in enumerate(costs):
        price = prices[p] if isinstance(prices, list) or np.ndim(prices) else prices
        expected = bigsap.solve(cost, unassigned_cost=price, maximize=maximize, threads=1)
        same(batch[p], expected)
        assert batch[p].stats["source"] == expected.stats["source"]
        batch[p].verify(cost)
    unproved = bigsap.solve_many(costs, unassigned_cost=prices, maximize=maximize, certify=False)
    agree(unproved)
    np.testing.assert_array_equal(unproved.col4row, batch.col4row)
    assert np.isnan(unproved.gap.astype(float)).all()


@pytest.mark.parametrize("price", [2**53 + 1, 2**62, np.uint64(2**63)])
def test_prices_that_floats_do_not_hold(price):
    with pytest.raises(bigsap.OverflowRiskError, match=f"problem 0: unassigned_cost .*{price}"):
        bigsap.solve_many(np.ones((2, 2, 3)), unassigned_cost=price)
    whole = bigsap.solve_many(np.ones((2, 2, 3), int), unassigned_cost=[2**62 - 5, -(2**53) - 1])
    assert whole.fun.tolist() == whole.bound.tolist() == [2, -2 * (2**53 + 1)]


def test_prices_of_padded_problems():
    costs, rows, columns = padded()
    prices = np.random.default_rng(9).integers(-9, 60, (25, 5)).astype(float)
    for p, n in enumerate(rows):
        prices[p, n:] = np.nan
    batch = bigsap.solve_many(costs, rows=rows, columns=columns, unassigned_cost=prices)
    agree(batch)
    for p, (n, m) in enumerate(zip(rows, columns, strict=True)):
        same(batch[p], bigsap.solve(costs[p, :n, :m], unassigned_cost=prices[p, :n], threads=1))


def test_the_compiled_batch_is_used(monkeypatch):
    """Padding, prices, and no certificate are no reason to solve one by one."""
    called = []
    monkeypatch.setattr(bigsap.batch, "solve", lambda *costs, **options: called.append(options))
    costs = np.random.default_rng(1).random((6, 4, 5))
    sizes = {"rows": [4, 3, 2, 0, 1, 4], "columns": [5, 0, 2, 1, 1, 4]}
    for options in ({}, {"certify": False}, {"unassigned_cost": 0.5}, sizes):
        for given in (costs, costs.astype("f4"), list(costs), (9 * costs).astype(int)):
            for maximize in (False, True):
                batch = bigsap.solve_many(given, maximize=maximize, **options)
                assert batch.success.all()
    assert not called


def test_threads_do_not_change_the_answers(monkeypatch):
    monkeypatch.setattr(policy, "BATCH_COSTS_PER_CALL", 50)
    costs, rows, columns = padded()
    options = {"rows": rows, "columns": columns, "unassigned_cost": 20.0}
    alone, shared = (bigsap.solve_many(costs, threads=threads, **options) for threads in (1, 3))
    for one, other in zip(alone, shared, strict=True):
        same(one, other)
    np.testing.assert_array_equal(alone.col4row, shared.col4row)


def raised(call):
    """Return the type and the text of the error of a call, without the problem's number."""
    with pytest.raises(bigsap.InputError) as caught:
        call()
    return type(caught.value), str(caught.value).removeprefix("problem 0: ")


LARGE = {
    "ends of a price's range": ([[2**53 + 1, 2**53]], "u8", 1e300, False),
    "2**60": ([[2**60 + 100, 2**60]], "u8", [1e300], False),
    "maximised": ([[2**63 - 10, 2**63 - 400]], "u8", -0.5, True),
    "beyond int64": ([[2**64 - 1, 2**64 - 2]], "u8", 0.5, False),
    "other byte order": ([[2**53 + 1, 2**53]], ">u8", 1e300, False),
    "signed": ([[2**53 + 1, 2**53]], "i8", 1e300, False),
}


@each(name=list(LARGE), stacked=[False, True])
def test_large_integers_next_to_real_prices_are_an_error(name, stacked):
    """A float64 would round them, and prove the wrong pair."""
    cost, dtype, price, maximize = LARGE[name]
    cost = np.array(cost, dtype)
    expected = raised(lambda: bigsap.solve(cost, unassigned_cost=price, maximize=maximize))
    assert expected[0] is bigsap.OverflowRiskError
    costs, prices = (cost[None], np.array(price)[None]) if stacked else ([cost], [price])
    found = raised(lambda: bigsap.solve_many(costs, unassigned_cost=prices, maximize=maximize))
    assert found == expected


@pytest.mark.parametrize("dtype", ["u8", ">u8"])
def test_small_unsigned_integers_next_to_real_prices(dtype):
    cost = np.random.default_rng(4).integers(0, 99, (7, 4, 6)).astype(dtype)[:, ::2, ::-1]
    for costs in (cost, list(cost)):
        batch = bigsap.solve_many(costs, unassigned_cost=30.5)
        for one, result in zip(cost, batch, strict=True):
            same(result, bigsap.solve(one, unassigned_cost=30.5, threads=1))


REFUSED_PRICES = {
    "masked": np.ma.array([-100.0, 1.0], mask=[True, False]),
    "missing": [1, None],
    "ragged": [1, [2, 3]],
    "too long": [1, 2, 3, 4],
    "text": ["a", "b"],
    "too large": np.array([2**62, 0]),
    "too small": np.array([-(2**62) - 1, 0]),
    "unsigned, too large": np.array([2**63 + 5, 1], "u8"),
    "a large number": 2**62,
    "beyond 64 bits, rounded": [2**70 + 1, 1],
    "beyond float64": np.array(["1e4000", "1"], np.longdouble),
}


def prices_of_one_problem():
    packed = pytest.importorskip("xarray").DataArray(np.array([1, 2], "i2"), attrs={"scale_factor": 0.1})
    return {
        "masked, nothing": np.ma.array([1, 2]),
        "packed": packed,
        "packed variable": packed.variable,
        "integers": np.array([1, 2]),
        "integers that floats round": np.array([2**53 + 1, 1]),
        "unsigned": np.array([1, 2], "u8"),
        "small integers": [1, 2],
        "bools": np.array([True, False]),
        "float16": np.array([1.5, 2], "f2"),
        "a number": 2,
        "must": [np.inf, 1],
        "none": None,
        "largest": np.array([2**62 - 1, 0]),
        "beyond 64 bits": [2**70, 1],
    }


OTHERS = {"floats": np.array([0.5, 1.0]), "integers": np.array([1, 2]), "unsigned": np.array([1, 2], "u8")}


def two_problems(dtype, price, other, padded):
    """A matrix, and the arguments of a batch of it twice, at two prices."""
    cost = np.array([[1, 2], [3, 4]], dtype)
    options = {"costs": [cost, cost], "unassigned_cost": [price, OTHERS[other]]}
    if padded:
        options["costs"] = [np.pad(cost, (0, 1), constant_values=-9)] * 2
        options |= {"rows": [2, 2], "columns": [2, 2]}
    return cost, options


@each(name=list(prices_of_one_problem()), other=list(OTHERS), dtype=["f8", "i8"], padded=[False, True])
def test_prices_in_a_list_mean_what_they_mean_to_solve(name, other, dtype, padded):
    price = prices_of_one_problem()[name]
    cost, options = two_problems(dtype, price, other, padded)
    if dtype == "f8" and name in ("integers that floats round", "largest"):
        expected = raised(lambda: bigsap.solve(cost, unassigned_cost=price))
        assert expected[0] is bigsap.OverflowRiskError
        assert raised(lambda: bigsap.solve_many(**options)) == expected
        return
    batch = bigsap.solve_many(**options)
    for result, own in zip(batch, (price, OTHERS[other]), strict=True):
        same(result, bigsap.solve(cost, unassigned_cost=own, threads=1))


@each(name=list(REFUSED_PRICES), other=list(OTHERS), dtype=["f8", "i8"], padded=[False, True])
def test_prices_in_a_list_are_refused_as_by_solve(name, other, dtype, padded):
    price = REFUSED_PRICES[name]
    cost, options = two_problems(dtype, price, other, padded)
    expected = raised(lambda: bigsap.solve(cost, unassigned_cost=price))
    assert raised(lambda: bigsap.solve_many(**options)) == expected


@each(
    price=[-(2**62) - 1, 2**62, np.uint64(2**63 + 5)], kind=["one", "a problem", "a row"], dtype=["f8", "i8"]
)
def test_integer_prices_beyond_sums_in_int64_are_an_error(price, kind, dtype):
    cost = np.array([[1, 2], [3, 4]], dtype)
    shape = {"one": (), "a problem": (1,), "a row": (1, 2)}[kind]
    expected = raised(lambda: bigsap.solve(cost, unassigned_cost=price))
    assert expected[0] is bigsap.OverflowRiskError
    assert raised(lambda: bigsap.solve_many([cost], unassigned_cost=np.full(shape, price))) == expected


@pytest.mark.parametrize("prices", [[0.25, 2.0], [[0.25, 0.5], 2.0], np.array([[0.25, 0.5], [2, 1.0]]), 0.5])
def test_a_generator_with_prices(prices):
    costs = [np.eye(2) + k for k in range(2)]
    expected = bigsap.solve_many(costs, unassigned_cost=prices)
    batch = bigsap.solve_many(iter(costs), unassigned_cost=prices)
    for one, other in zip(batch, expected, strict=True):
        same(one, other)


@each(prices=[[0.25, 2.0], [[0.25, 0.5], 2.0]], count=[0, 1, 3])
def test_a_generator_of_too_many_or_few_problems(prices, count):
    with pytest.raises(bigsap.ShapeError, match=f"for {'more than 2' if count > 2 else count} problems"):
        bigsap.solve_many((np.eye(2) for _ in range(count)), unassigned_cost=prices)


def frames(matrix):
    """The same matrix in what libraries of tables and labels keep it in."""
    xarray, pandas, polars = map(pytest.importorskip, ("xarray", "pandas", "polars"))
    labelled = xarray.DataArray(matrix, dims=("p", "q"), coords={"p": list("abc")})
    return [labelled, labelled.variable, pandas.DataFrame(matrix), polars.DataFrame(matrix), matrix.tolist()]


def test_tables_and_labelled_arrays_are_cut():
    matrix = np.array([[1.0, 2, 9], [5, 3, 9], [9, 9, 9]])
    costs = frames(matrix)
    batch = bigsap.solve_many(costs, rows=[2] * len(costs), columns=[2] * len(costs))
    agree(batch)
    for result in batch:
        np.testing.assert_array_equal(result.col4row, [0, 1])
        assert (result.fun, result.shape) == (4.0, (2, 2))
    assert batch[0].labels["p"].tolist() == ["a", "b"]


def test_missing_values_of_a_table_count_where_they_are_used():
    holes = [[1.0, 2, 9], [5, 3, None]]
    assert bigsap.solve_many([holes], columns=[2])[0].fun == 4.0
    with pytest.raises(bigsap.InvalidCostError, match=r"^problem 0: cost\[1, 2\] is missing"):
        bigsap.solve_many([holes], columns=[3])


MATRICES = [np.arange(12.0).reshape(3, 4), np.eye(3)]


@pytest.mark.parametrize("demand", [1, 2])
def test_pairs_of_rows_that_take_several_columns(demand):
    costs = [*MATRICES, np.ones(3), np.full((3, 8), np.inf)]
    batch = bigsap.solve_many(costs, demand=demand, errors="return")
    assert batch.col4row is None
    pairs = [(p, *pair) for p in (0, 1, 3) if demand * 3 <= 8 for pair in batch[p].pairs().tolist()]
    assert batch.pairs().tolist() == [list(pair) for pair in pairs]
    assert f"{len(pairs)}</td>" in batch._repr_html_()
    assert batch.pairs().dtype == np.intp
    again = pickle.loads(pickle.dumps(batch))
    assert again.pairs().tolist() == batch.pairs().tolist()


def test_columns_that_take_several_rows():
    batch = bigsap.solve_many(MATRICES, capacity=2)
    assert batch.row4col is None
    np.testing.assert_array_equal(batch.col4row, [result.col4row for result in batch])
    assert len(batch.pairs()) == 6


@pytest.mark.parametrize(("dtype", "expected"), [("f8", "f8"), ("f4", "f8"), ("i4", "i8"), ("?", "i8")])
def test_sums_of_no_problems_have_the_type_of_the_costs(dtype, expected):
    batch = bigsap.solve_many(np.zeros((0, 3, 4), dtype))
    for numbers in (batch.fun, batch.bound, batch.gap, pickle.loads(pickle.dumps(batch)).fun):
        assert numbers.dtype == expected
    assert bigsap.solve_many([]).fun.dtype == float
