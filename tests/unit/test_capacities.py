"""``capacity`` and ``demand`` against trying everything, repeated columns, and their proof."""

from __future__ import annotations

import itertools
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import bigsap
from bigsap import policy
from bigsap.cli import commands as cli
from bigsap.engine.core.team import Team
from bigsap.errors import CertificateError, DtypeError, InvalidCostError, OptionError, ShapeError
from bigsap.problem import Problem
from bigsap.proof.capacities import certify_capacities
from bigsap.strategies.capacities import Balance
from contracts import whole
from kinds_of_costs import costs_of
from pairwise import each

KINDS = ["normal", "ties", "equal", "int64", "uint8", "float32", "forbidden", "offset", "outliers"]


def best(cost, capacity, prices=None, maximize=False):
    """The best sum of one column a row, as a Fraction in the user's sense; None when infeasible."""
    n, m = cost.shape
    sign = -1 if maximize else 1
    numbers = [[None if np.isinf(c) else sign * Fraction(c.item()) for c in row] for row in cost]
    found = {tuple([0] * m): Fraction(0)}
    for i in range(n):
        following: dict = {}
        for taken, total in found.items():
            choices = [(j, numbers[i][j]) for j in range(m) if taken[j] < capacity[j]]
            if prices is not None:
                choices.append((None, sign * Fraction(float(prices[i]))))
            for j, cost_of_pair in choices:
                if cost_of_pair is None:
                    continue
                key = tuple(t + (k == j) for k, t in enumerate(taken))
                price = total + cost_of_pair
                if key not in following or price < following[key]:
                    following[key] = price
        found = following
    return sign * min(found.values()) if found else None


def checked(result, cost, expected):
    """Compare a result with the optimum, and its proof with exact sums of its duals."""
    if expected is None:
        assert result.status == "infeasible"
        assert not result
        result.verify(cost)
        return
    whole = cost.dtype.kind in "iu" and (result.unassigned_cost is None)
    assert result.status == "optimal"
    assert result.fun == (int if whole else float)(expected)
    assert result.verify(cost).optimal
    sign = -1 if result.maximize else 1
    u = [Fraction(x) for x in result.u.tolist()]
    v = [Fraction(x) for x in result.v.tolist()]
    for dual, low in ((u, result.u_low), (v, result.v_low)):
        if low is not None:
            dual[:] = [x + Fraction(y) for x, y in zip(dual, low.tolist(), strict=True)]
    for i, row in enumerate(cost.tolist()):
        for j, c in enumerate(row):
            assert c in (np.inf, -np.inf) or sign * (u[i] + v[j]) <= sign * Fraction(c)
    counts = (
        [1] * len(u) if result.demand is None else result.demand.tolist(),
        [1] * len(v) if result.capacity is None else result.capacity.tolist(),
    )
    total = sum(k * x for k, x in zip(counts[0], u, strict=True))
    total += sum(k * x for k, x in zip(counts[1], v, strict=True))
    size = sum(abs(Fraction(c)) for c in ([] if result.costs is None else result.costs.tolist()))
    if result.unassigned_cost is None:
        assert sign * (expected - total) <= Fraction(2) ** -49 * size


@each(kind=KINDS, maximize=[False, True])
def test_capacity_against_all_assignments(kind, maximize):
    rng = np.random.default_rng([KINDS.index(kind), maximize])
    for shape in [(0, 2), (1, 1), (3, 1), (4, 2), (5, 3), (7, 3), (3, 4), (6, 2)] * 3:
        cost = costs_of(rng, kind, shape, maximize)
        capacity = rng.integers(0, 5, shape[1])
        found = bigsap.solve(cost, capacity=capacity, maximize=maximize)
        checked(found, cost, best(cost, capacity, maximize=maximize))
        assert found.row4col is None
        loads = np.bincount(found.col4row[found.col4row >= 0], minlength=shape[1])
        assert (loads <= capacity).all()
        for j in range(shape[1]):
            assert found.rows_of(j).tolist() == np.flatnonzero(found.col4row == j).tolist()


@pytest.mark.parametrize("maximize", [False, True])
def test_capacity_with_rows_left_out(maximize):
    rng = np.random.default_rng([11, maximize])
    for shape in [(1, 1), (4, 2), (5, 3), (6, 2), (3, 4)] * 4:
        cost = costs_of(rng, "forbidden", shape, maximize)
        capacity = rng.integers(0, 4, shape[1])
        prices = rng.standard_normal(shape[0])
        found = bigsap.solve(cost, capacity=capacity, unassigned_cost=prices, maximize=maximize)
        assert found.fun == float(best(cost, capacity, prices, maximize))
        assert found.status == "optimal"
        assert found.verify(cost).optimal


@each(kind=["normal", "ties", "int64", "forbidden"], maximize=[False, True])
def test_demand_against_all_assignments(kind, maximize):
    rng = np.random.default_rng([KINDS.index(kind), maximize, 2])
    for shape in [(1, 1), (1, 3), (2, 4), (3, 5), (2, 7), (3, 6), (3, 2)] * 2:
        cost = costs_of(rng, kind, shape, maximize)
        demand = rng.integers(0, 4, shape[0])
        found = bigsap.solve(cost, demand=demand, maximize=maximize)
        expected = best(np.repeat(cost, demand, axis=0), np.ones(shape[1], int), maximize=maximize)
        checked(found, cost, expected)
        assert found.col4row is None
        if expected is not None:
            pairs = found.pairs()
            assert np.bincount(pairs[:, 0], minlength=shape[0]).tolist() == demand.tolist()
            assert len(set(pairs[:, 1].tolist())) == len(pairs)
            assert found.pairs(costs=True)["cost"].tolist() == [cost[i, j] for i, j in pairs]


@pytest.mark.parametrize("slack", [0, 30])
def test_points_against_repeated_columns(slack):
    rng = np.random.default_rng(3)
    x, y = rng.random((300, 2)), rng.random((6, 2))
    source = bigsap.points(x, y)
    cost = ((x[:, None] - y[None]) ** 2).sum(2)
    capacity = np.array([50, 20 + slack, 80, 100, 10, 40])
    rows, columns = linear_sum_assignment(np.repeat(cost, capacity, axis=1))
    expected = np.repeat(cost, capacity, axis=1)[rows, columns].sum()
    found = bigsap.solve(source, capacity=capacity)
    assert found.status == "optimal"
    assert abs(found.fun - expected) < 1e-9
    assert found.verify(source).optimal


def test_certify_anybodys_assignment():
    rng = np.random.default_rng(4)
    cost = rng.random((40, 4))
    capacity = [10, 20, 5, 5]
    best_one = bigsap.solve(cost, capacity=capacity)
    for given in (best_one.col4row, (best_one.row_ind, best_one.col_ind)):
        assert bigsap.certify(cost, given, capacity=capacity).optimal
    assert bigsap.certify(cost, best_one.col4row, best_one.v, capacity=capacity).optimal
    plan = np.zeros(cost.shape)
    plan[best_one.row_ind, best_one.col_ind] = 1
    assert bigsap.certify(cost, plan, capacity=capacity).optimal
    other = best_one.col4row.copy()
    i, j = np.flatnonzero(other == 0)[0], np.flatnonzero(other == 1)[0]
    other[i], other[j] = other[j], other[i]
    worse = bigsap.certify(cost, other, capacity=capacity)
    assert worse.gap >= cost[np.arange(40), other].sum() - best_one.fun - 1e-12
    assert worse.bound <= best_one.fun
    rough = bigsap.certify(cost, best_one.col4row, rng.random(4), capacity=capacity)
    assert rough.bound <= best_one.fun
    bound_alone = bigsap.certify(cost, None, capacity=capacity)
    assert bound_alone.bound == best_one.bound
    with pytest.raises(CertificateError, match="column 1 is assigned to 21 rows, but takes 20"):
        bigsap.certify(cost, [1] * 21 + [0] * 10 + [2] * 5 + [3] * 4, capacity=capacity)
    with pytest.raises(CertificateError, match="row 39 has no column"):
        bigsap.certify(cost, [1] * 20 + [0] * 10 + [2] * 5 + [3] * 4 + [-1], capacity=capacity)
    assert bigsap.certify(np.full((3, 1), np.inf), None, capacity=3).bound == np.inf


def test_infeasible_problems_name_their_rows():
    cost = np.ones((6, 3))
    few = bigsap.solve(cost, capacity=[1, 2, 2])
    assert few.violator.tolist() == [0, 1, 2, 3, 4, 5]
    assert "6 rows need 6 places, and all columns together have 5" in few.message
    few.verify(cost)
    cost[1:5, 1:] = np.inf
    crowded = bigsap.solve(cost, capacity=[3, 5, 5])
    assert crowded.violator.tolist() == [1, 2, 3, 4]
    crowded.verify(cost)
    with pytest.raises(CertificateError, match="does not rule out"):
        replace(crowded, capacity=np.array([4, 5, 5])).verify(cost)
    wanting = bigsap.solve(np.ones((2, 3)), demand=2)
    assert wanting.violator.tolist() == [0, 1]
    wanting.verify(np.ones((2, 3)))


def test_a_changed_claim_is_refused():
    rng = np.random.default_rng(5)
    cost = rng.random((12, 3))
    found = bigsap.solve(cost, capacity=5)
    swapped = found.col4row.copy()
    i, j = np.flatnonzero(swapped == 0)[0], np.flatnonzero(swapped == 1)[0]
    swapped[i], swapped[j] = 1, 0
    for change in (
        {"col4row": swapped, "col_ind": swapped},
        {"fun": found.fun - 0.1},
        {"bound": found.bound + 0.1},
        {"v": found.v - np.array([0.1, 0.0, 0.0])},
        {"v": found.v + 0.1},
        {"u": found.u + 0.1},
        {"capacity": np.array([5, 5, 4])},
    ):
        with pytest.raises(CertificateError):
            replace(found, **change).verify(cost)


def test_saved_and_loaded(tmp_path):
    rng = np.random.default_rng(6)
    cost = rng.random((8, 20))
    for options in ({"capacity": 2}, {"demand": 2}):
        found = bigsap.solve(cost, **options)
        found.save(tmp_path / "r.npz")
        again = bigsap.Result.load(tmp_path / "r.npz")
        assert again.pairs().tolist() == found.pairs().tolist()
        assert (again.row4col is None) == (found.row4col is None)
        assert (again.col4row is None) == (found.col4row is None)
        assert again.verify(cost).optimal


def test_warm_start_takes_prices():
    rng = np.random.default_rng(7)
    cost = rng.random((60, 5))
    first = bigsap.solve(cost, capacity=13)
    for start in (first, first.v, (first.v, first.col4row)):
        again = bigsap.solve(cost, capacity=13, warm_start=start)
        assert again.fun == first.fun
    wanting = bigsap.solve(cost.T, demand=9)
    assert bigsap.solve(cost.T, demand=9, warm_start=wanting).fun == wanting.fun


@pytest.mark.parametrize("method", ["auto", "ssp"])
@pytest.mark.parametrize("side", ["capacity", "demand"])
def test_a_warm_start_that_does_not_fit_is_refused(side, method):
    cost, v = np.random.default_rng(8).random((4, 5)), np.zeros(5)
    options = {side: 2 if side == "capacity" else 1, "method": method}
    other, turned = bigsap.solve(cost[:3], **options), bigsap.solve(-cost, maximize=True, **options)
    pairs = ((v, p) for p in ([0, 1], [0.5] * 4, [5] * 4, None))
    for wrong in (v[1:], v + np.nan, "v", other, turned, *pairs):
        with pytest.raises(OptionError, match="warm_start"):
            bigsap.solve(cost, warm_start=wrong, **options)


def test_bad_options():
    cost = np.zeros((4, 3))
    for wrong, kind in {
        -1: OptionError,
        1.5: DtypeError,
        (1, 2): ShapeError,
        (1, -2, 3): OptionError,
    }.items():
        with pytest.raises(kind, match="capacity"):
            bigsap.solve(cost, capacity=wrong)
    with pytest.raises(DtypeError, match="capacity"):
        bigsap.solve(cost, capacity=[1, np.nan, 2])
    with pytest.raises(OptionError, match=f"capacity is {-(10**25) - 1}: a column"):
        bigsap.solve(cost, capacity=-(10**25) - 1)
    with pytest.raises(OptionError, match=r"demand\[1\] is -2"):
        bigsap.solve(cost, demand=[1, -2, 3, 4])
    with pytest.raises(OptionError, match="demand is not valid with capacity above 1"):
        bigsap.solve(cost, capacity=2, demand=2)
    for other in ({"cluster": "local"}, {"objective": "bottleneck"}, {"device": "cuda"}):
        with pytest.raises(OptionError, match="is not valid with capacity"):
            bigsap.solve(cost, capacity=2, **other)


@pytest.mark.parametrize("most", [2**31 - 1, 2**63, 10**20 - 1, 10**400])
def test_a_capacity_of_any_size_is_all_there_are(most):
    cost = np.random.default_rng(3).integers(0, 50, (6, 3))
    expected = cost.min(axis=1).sum()
    for capacity in (most, [most] * 3, (most, 9, most)):
        assert bigsap.solve(cost, capacity=capacity).fun == expected


@pytest.mark.parametrize("price", [10**400, 10**20 - 1])
def test_a_number_that_is_refused_is_at_no_empty_place(price):
    with pytest.raises(InvalidCostError) as found:
        bigsap.solve(np.ones((2, 2)), unassigned_cost=price)
    assert "[]" not in str(found.value)


@pytest.mark.parametrize("name", ["maximize", "epsilon"])
def test_text_is_no_flag(name):
    with pytest.raises(OptionError, match=f"{name} must be True or False, got 'false'"):
        bigsap.solve(np.ones((2, 2)), **{name: "false"})


def test_sources_of_every_kind():
    rng = np.random.default_rng(8)
    cost = rng.integers(0, 50, (30, 4)).astype(float)
    capacity = np.array([0, 12, 9, 15])
    expected = float(best(cost[:8], capacity))
    x, y = rng.random((30, 3)), rng.random((4, 3))

    class Plain:
        shape, dtype = (8, 4), np.dtype(np.float64)

        def read(self, rows, columns, out):
            out[...] = cost[rows][:, columns]

    rows, columns = np.indices((8, 4)).reshape(2, -1)
    for source in (
        cost[:8],
        cost[:8].astype(np.int32),
        np.asfortranarray(cost)[:8],
        Plain(),
        bigsap.sparse((rows, columns, cost[:8].ravel()), (8, 4)),
    ):
        assert bigsap.solve(source, capacity=capacity).fun == expected
    by_function = bigsap.solve(lambda i: cost[i], shape=(8, 4), capacity=capacity)
    assert by_function.fun == expected
    assert bigsap.solve(bigsap.points(x, y), capacity=capacity).verify(bigsap.points(x, y)).optimal
    repeated = itertools.chain.from_iterable([j] * k for j, k in enumerate(capacity.tolist()))
    assert len(list(repeated)) == 36


# -- few columns: searches from column to column -----------------------------------------------------


@pytest.fixture
def contracted(monkeypatch):
    """Let searches lead from column to column however small the problem is."""
    monkeypatch.setattr(policy, "LEAST_CONTRACTED_COSTS", 0)
    monkeypatch.setattr(policy, "LEAST_ROWS_A_COLUMN", 0)
    monkeypatch.setattr(policy, "ROWS_A_COLUMN_SHARE", 0)


@each(kind=KINDS, maximize=[False, True])
@pytest.mark.usefixtures("contracted")
def test_contracted_against_all_assignments(kind, maximize):
    rng = np.random.default_rng([KINDS.index(kind), maximize, 3])
    for shape in [(1, 1), (3, 1), (4, 2), (5, 3), (7, 3), (3, 4), (6, 2)] * 4:
        cost = costs_of(rng, kind, shape, maximize)
        capacity = rng.integers(0, 5, shape[1])
        found = bigsap.solve(cost, capacity=capacity, maximize=maximize)
        checked(found, cost, best(cost, capacity, maximize=maximize))
        prices = rng.standard_normal(shape[0])
        if cost.dtype.kind == "f":
            found = bigsap.solve(cost, capacity=capacity, unassigned_cost=prices, maximize=maximize)
            assert found.fun == float(best(cost, capacity, prices, maximize))
            assert found.verify(cost).optimal


@pytest.mark.parametrize("kind", ["normal", "ties", "int64", "forbidden"])
@pytest.mark.usefixtures("contracted")
def test_contracted_demand_against_all_assignments(kind):
    rng = np.random.default_rng([KINDS.index(kind), 4])
    for shape in [(1, 1), (1, 3), (2, 4), (3, 5), (2, 7), (3, 6), (3, 2)] * 3:
        cost = costs_of(rng, kind, shape)
        demand = rng.integers(0, 4, shape[0])
        found = bigsap.solve(cost, demand=demand)
        checked(found, cost, best(np.repeat(cost, demand, axis=0), np.ones(shape[1], int)))


def scenes():
    """Problems of some hundred rows, by name: the costs and capacities."""
    rng = np.random.default_rng(9)
    x, y = rng.random((600, 2)), rng.random((12, 2))
    points = ((x[:, None] - y[None]) ** 2).sum(2)
    same = points[rng.integers(0, 9, 600)]
    open_to = np.where(rng.random((600, 12)) < 0.7, np.inf, points)
    open_to[:, 0] = points[:, 0]
    return {
        "tight": (points, np.full(12, 50)),
        "slack": (points, np.full(12, 61)),
        "far": (points + 100 * x[:, :1], np.full(12, 50)),
        "uneven": (points, np.array([300, 200, 50, 30, 20, 5, 4, 3, 2, 1, 0, 0])),
        "same rows": (same, np.full(12, 50)),
        "whole": (rng.integers(0, 6, (600, 12)), np.full(12, 51)),
        "one huge": (points, np.full(12, 10**15)),
        "offset": (points + 1e9, np.full(12, 50)),
        "outliers": (np.where(rng.random((600, 12)) < 0.02, 1e9, points), np.full(12, 50)),
        "forbidden": (open_to, np.r_[600, np.full(11, 40)]),
        "float32": (points.astype(np.float32), np.full(12, 50)),
    }


@pytest.mark.parametrize("name", list(scenes()))
@pytest.mark.parametrize("maximize", [False, True])
def test_contracted_equals_repeated_columns(name, maximize):
    cost, capacity = scenes()[name]
    if maximize:
        cost = -cost
    found = bigsap.solve(cost, capacity=capacity, maximize=maximize)
    assert found.stats["method"] == "contracted"
    assert found.status == "optimal"
    assert found.verify(cost).optimal
    copies = np.repeat(cost, np.minimum(capacity, 600), axis=1)
    plain = bigsap.solve(copies, maximize=maximize)
    assert abs(found.fun - plain.fun) <= 1e-12 * abs(plain.fun)
    assert (np.bincount(found.col4row, minlength=12) <= capacity).all()


def test_contracted_sources_and_threads_agree():
    rng = np.random.default_rng(10)
    x, y = rng.random((3000, 3)), rng.random((20, 3))
    source = bigsap.points(x, y)
    first = bigsap.solve(source, capacity=160, threads=1)
    assert first.stats["method"] == "contracted"
    matrix = whole(source)

    class Plain:
        shape, dtype = (3000, 20), np.dtype(np.float64)

        def read(self, rows, columns, out):
            out[...] = matrix[rows][:, columns]

    for costs, threads in ((source, 3), (matrix, 1), (np.asfortranarray(matrix), 2), (Plain(), 1)):
        again = bigsap.solve(costs, capacity=160, threads=threads)
        assert again.col4row.tolist() == first.col4row.tolist()
        assert (again.fun, again.bound) == (first.fun, first.bound)
        assert again.v.tolist() == first.v.tolist()
    warm = bigsap.solve(source, capacity=160, warm_start=first)
    assert warm.fun == first.fun
    assert sum(level["searches"] for level in warm.stats["levels"]) < 5
    unproved = bigsap.solve(source, capacity=160, certify=False)
    assert unproved.fun == first.fun
    assert (unproved.bound, unproved.gap) == (None, None)
    unproved.verify(source)


@pytest.mark.parametrize("slack", [0, 20])
def test_exact_prices_find_a_better_assignment(slack):
    """A row is put into a wrong column behind the search's back; exact rises lead it back."""
    rng = np.random.default_rng(16)
    source = bigsap.points(rng.random((300, 2)), rng.random((6, 2)))
    capacity = np.full(6, 50 + slack)
    with Team(1) as team:
        search = Balance(Problem(source), capacity, None, None, team, lambda: None)
        best_one = search.run().column.copy()
        c = search.c
        for a, b in ((0, 1), (1, 2), (2, 0)):  # exchange two rows of these columns
            at, other = c.begin[a] + 3, c.begin[b] + 5
            rows = int(c.member[at]), int(c.member[other])
            c.member[at], c.member[other] = rows[::-1]
            for row, column, place in ((rows[1], a, at), (rows[0], b, other)):
                c.column[row], c.place[row] = column, place - c.begin[column]
                c.own[place] = ((source.x[row] - source.y[column]) ** 2).sum()
        assert (c.column != best_one).any()
        v, low = search.exact_prices()
        found = certify_capacities(source, capacity, c.column, v, low)
        assert found.optimal
        assert (c.column == best_one).all()


def test_a_warm_start_from_afar_is_as_good_as_none():
    rng = np.random.default_rng(17)
    source = bigsap.points(rng.random((4000, 2)), rng.random((10, 2)))
    plain = bigsap.solve(source, capacity=400)
    again = bigsap.solve(source, capacity=400, warm_start=rng.random(10))
    assert again.fun == plain.fun
    searches = [sum(level["searches"] for level in r.stats["levels"]) for r in (plain, again)]
    assert searches[1] < 2 * searches[0]


def test_contracted_names_rows_that_cannot_be_assigned():
    cost = np.random.default_rng(13).random((400, 5))
    cost[50:90, 1:] = np.inf
    found = bigsap.solve(cost, capacity=[39, 100, 200, 100, 100])
    assert found.stats["method"] == "contracted"
    assert found.status == "infeasible"
    assert set(range(50, 90)) >= set(found.violator.tolist())
    assert found.violator.size == 40
    found.verify(cost)
    cost[7] = np.inf
    alone = bigsap.solve(cost, capacity=200)
    assert alone.violator.tolist() == [7]
    assert "row 7 has no column" in alone.message
    alone.verify(cost)
    cost[7, 2] = np.nan
    with pytest.raises(bigsap.errors.InvalidCostError, match=r"cost\[7, 2\] is nan"):
        bigsap.solve(cost, capacity=200)


def test_contracted_stops_at_every_tick():
    """At any moment the answer is an assignment within the capacities, and its bound is true."""
    rng = np.random.default_rng(14)
    x, y = rng.standard_normal((1500, 2)), rng.random((15, 2))
    source = bigsap.points(x, y)
    optimum = bigsap.solve(source, capacity=100).fun
    seen = []
    for limit in range(12):
        calls = itertools.count()

        def stop(_, calls=calls, limit=limit):
            if next(calls) >= limit:
                raise StopIteration

        found = bigsap.solve(source, capacity=100, callback=stop, callback_every=0)
        seen.append(found.fun is not None)
        assert found.bound is None or found.bound <= optimum * (1 + 1e-12)
        if found.fun is not None:
            assert found.fun >= optimum * (1 - 1e-12)
            assert np.bincount(found.col4row, minlength=15).max() == 100
            if found.v is not None and not np.isnan(found.v).any():
                found.verify(source)
    assert any(seen)
    ended = bigsap.solve(source, capacity=100, time_limit=0.0)
    assert ended.status in ("time_limit", "optimal")


def test_command_line(tmp_path, capsys):
    cost = np.random.default_rng(15).random((60, 4))
    np.save(tmp_path / "c.npy", cost)
    np.save(tmp_path / "k.npy", np.array([20, 10, 20, 15]))
    words = ["solve", str(tmp_path / "c.npy"), "--capacity", str(tmp_path / "k.npy"), "--json"]
    out = tmp_path / "r.npz"
    assert cli.main([*words, "-o", str(out)]) == 0
    capsys.readouterr()
    found = bigsap.Result.load(out)
    assert found.fun == bigsap.solve(cost, capacity=[20, 10, 20, 15]).fun
    assert cli.main(["verify", str(tmp_path / "c.npy"), str(out)]) == 0
    assert (
        cli.main(["certify", str(tmp_path / "c.npy"), str(out), "--capacity", str(tmp_path / "k.npy")]) == 0
    )
    assert cli.main(["solve", str(tmp_path / "c.npy"), "--capacity", "1"]) == 3
    capsys.readouterr()


def test_a_gap_that_a_huge_column_excuses_is_searched():
    """Half of the rows take the huge column: which ones, rounding must not decide."""
    for power in range(50, 70):
        cost = np.random.default_rng(power).random((12, 2))
        cost[:, 0], cost[0, 1] = -(2.0**power), -(2.0 ** (power - 2))
        found = bigsap.solve(cost, capacity=[6, 6])
        assert sorted(cost[found.col4row == 1, 1]) == sorted(cost[:, 1])[:6]


@pytest.mark.parametrize("kind", ["u1", "i1", "i2", "u2", "u4", "u8"])
def test_counts_of_any_whole_type(kind):
    cost = np.random.default_rng(2).random((4, 3))
    expected = bigsap.solve(cost, capacity=2).fun
    assert bigsap.solve(cost, capacity=np.full(3, 2, kind)).fun == expected
    assert bigsap.solve(cost, capacity=np.dtype(kind).type(2)).fun == expected
    assert bigsap.solve(cost.T, demand=np.ones(3, kind)).fun == bigsap.solve(cost.T).fun
    if kind == "u8":
        assert bigsap.solve(cost, capacity=np.full(3, 2**63 + 5, kind)).fun == cost.min(axis=1).sum()


@pytest.mark.some(3)
@pytest.mark.parametrize("kind", ["function", "reversed", "scaled", "i1", "f2", ">f8", "u4"])
def test_demand_of_sources_that_have_no_transpose(kind):
    """With the bits of a plain matrix: the costs are copied for the search."""
    given = np.random.default_rng(0).random((5, 300)) * 9
    cost = given if kind in ("function", "reversed", "scaled") else given.astype(kind)
    plain = np.ascontiguousarray(cost, np.int64 if cost.dtype.kind in "iu" else np.float64)
    expected = bigsap.solve(plain, demand=20)
    source = {
        "function": lambda: bigsap.from_function(lambda i: cost[i], cost.shape, kind="row"),
        "reversed": lambda: np.asfortranarray(cost[:, ::-1])[:, ::-1],
        "scaled": lambda: bigsap.scaled(cost, 1.0),
    }.get(kind, lambda: cost)()
    found = bigsap.solve(source, demand=20)
    assert found.fun == expected.fun
    found.verify(source)


@pytest.mark.parametrize("kind", ["f8", "i8"])
@pytest.mark.parametrize("capacity", [2, 2**62])
def test_one_row_leaves_room(kind, capacity):
    """So the prices are 0, and prove the bound."""
    cost = np.array([[1, 5, 9]], kind)
    found = bigsap.solve(cost, capacity=capacity, unassigned_cost=9)
    assert (found.fun, found.v.tolist()) == (1, [0, 0, 0])
    found.verify(cost)
    again = bigsap.certify(cost, found.col4row, found, capacity=capacity, unassigned_cost=9)
    assert again.optimal


def test_pairs_of_large_integers_are_verified():
    """Rows of sparse costs are floats, which do not hold them."""
    large = bigsap.sparse(([0, 0, 1], [1, 0, 2], np.array([2**53 + 3, 2**53 + 1, 7])), shape=(2, 3))
    found = bigsap.solve(large, demand=1)
    assert found.fun == 2**53 + 8
    found.verify(large)
    none = bigsap.sparse((np.array([], int),) * 3, shape=(1, 0))
    for maximize in (False, True):
        price = np.array([2**53 + 1])
        bigsap.solve(none, demand=[1], unassigned_cost=price, maximize=maximize).verify(none)


def test_duals_whose_sizes_sum_beyond_float64():
    most = np.finfo(float).max
    cost = bigsap.sparse(([0, 1], [0, 0], np.array([most, most])), shape=(2, 1))
    bigsap.solve(cost, demand=[1, 0]).verify(cost)
