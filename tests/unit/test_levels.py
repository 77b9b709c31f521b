"""First prices from levels: samples, decision, the same optimum, checkpoints within them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import linear_sum_assignment

import bigsap
from bigsap import checkpoint, policy
from bigsap.engine.core.team import Team
from bigsap.engine.lists.ordering import LEAF, compact_order
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources import as_source
from bigsap.strategies import first_prices, levels
from bigsap.strategies.start import strata
from bigsap.strategies.start.samples import Counts, part_of, some_costs
from instances import CLASSES, points_of, squared_distances
from oracle import optimum
from pairwise import each

COUNTERS = ("rows_scanned", "rows_evaluated", "pairs_evaluated", "first_prices")


def rows_of(cost):
    """The same costs, a Python call a row."""
    return bigsap.from_function(lambda i: cost[i], cost.shape, kind="row", compiled=False)


# --- samples --------------------------------------------------------------------------


def k_d(points, ids):
    """The order by its definition: parted along the widest extent, the left part LEAF * 2**k."""
    if len(ids) <= LEAF:
        return [sorted(ids)]
    part = points[ids]
    axis = int(np.argmax(np.ptp(part, axis=0)))
    left = LEAF
    while 2 * left < len(ids):
        left *= 2
    ids = [ids[k] for k in np.argsort(part[:, axis], kind="stable")]
    return k_d(points, ids[:left]) + k_d(points, ids[left:])


@pytest.mark.parametrize("n", [0, 1, 4, 5, 64, 1000, 1023])
@pytest.mark.parametrize("d", [1, 2, 5])
def test_the_order_is_a_k_d_trees(n, d):
    points = np.random.default_rng(n + d).random((n, d))
    order = compact_order(points)
    leaves = k_d(points, list(range(n))) if n else []
    at = 0
    for leaf in leaves:
        assert sorted(order[at : at + len(leaf)].tolist()) == leaf
        at += len(leaf)
    assert at == n


@pytest.mark.parametrize(
    "points",
    [
        np.zeros((700, 2)),
        np.repeat(np.arange(7.0), 100)[:, None],
        np.r_[np.zeros(699), 1e300][:, None],
        np.empty((5, 0)),
    ],
)
def test_orders_of_odd_points(points):
    order = compact_order(points)
    assert np.array_equal(np.sort(order), np.arange(len(points)))


@pytest.mark.parametrize("n", [16, 17, 18, 19, 3, 1, 0])
def test_one_of_each_stretch(n):
    size = 4
    order = np.random.default_rng(1).permutation(n)
    drawn = strata.one_of_each(order, size, np.random.default_rng(2))
    places = np.argsort(order)[drawn] if n else drawn
    assert (places // size).tolist() == list(range(len(drawn)))
    assert len(drawn) == n // size + (2 * (n % size) >= size)


def sources(cost, x, y):
    """Sources of all kinds of the same costs, and how their rows and columns get an order."""
    return {
        "points": (bigsap.points(x, y), "coordinates"),
        "matrix": (cost, "landmarks"),
        "expression": (
            bigsap.expression("(x[i,0]-y[j,0])**2 + (x[i,1]-y[j,1])**2", x=x, y=y, shape=cost.shape),
            "landmarks",
        ),
        "rows": (rows_of(cost), "columns"),
    }


@pytest.mark.parametrize("name", ["points", "matrix", "expression", "rows"])
def test_orders_of_sources(name):
    x, y = points_of("disjoint", 300, seed=1)
    cost = squared_distances(x, y[:200])
    source, kind = sources(cost, x, y[:200])[name]
    problem = Problem(as_source(source))
    counts = Counts()
    found = strata.strata_of(problem, Monitor(), 3, counts)
    again = strata.strata_of(problem, Monitor(), 3, Counts())
    assert found.kind == kind
    assert np.array_equal(found.rows, again.rows)
    assert np.array_equal(found.columns, again.columns)
    assert np.array_equal(np.sort(found.rows), np.arange(300))
    assert np.array_equal(np.sort(found.columns), np.arange(200))
    assert counts.pairs <= 8 * (300 + 200)
    # Neighbours in the order are near.
    near = np.abs(np.diff(y[found.columns], axis=0)).sum(axis=1).mean()
    assert near < 0.6 * np.abs(np.diff(y[:200], axis=0)).sum(axis=1).mean()


@pytest.mark.parametrize("name", ["points", "matrix", "expression", "rows"])
def test_parts_are_the_costs(name):
    x, y = points_of("geometric", 60, seed=1)
    cost = squared_distances(x, y[:50])
    problem = Problem(as_source(sources(cost, x, y[:50])[name][0]))
    rows, columns = np.array([3, 59, 7]), np.array([49, 0, 1, 20])
    counts = Counts()
    some = some_costs(problem, rows, columns, Monitor(), counts)
    assert np.allclose(some, cost[rows][:, columns])
    assert counts.pairs == (3 * 50 if name == "rows" else 12)
    part = part_of(problem, rows, columns, Monitor(), Counts())
    got = np.empty((3, 4))
    part.source.read(np.arange(3), slice(0, 4), got)
    assert np.allclose(got, cost[rows][:, columns])


def test_an_invalid_cost_of_a_part_has_its_own_name():
    cost = CLASSES["disjoint"](1600, seed=1)
    cost[777, 1234] = np.nan
    for method in ("compressed", "ssp"):
        for start in ("auto", "levels"):
            with pytest.raises(bigsap.InvalidCostError, match=r"cost\[777, 1234\] is nan"):
                bigsap.solve(cost, method=method, start=start)
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[777, 1234\] is nan"):
        bigsap.solve(rows_of(cost), start="levels")


# --- the decision ---------------------------------------------------------------------


def clusters(n, seed):
    generator = np.random.default_rng(seed)
    centres = generator.random((12, 5))
    x, y = (
        centres[generator.integers(0, 12, n)] + 0.01 * generator.standard_normal((n, 5)) for _ in range(2)
    )
    return squared_distances(x, y)


def embedded(n, seed):
    generator = np.random.default_rng(seed)
    x, y = generator.standard_normal((n, 64)), generator.standard_normal((n, 64))
    x /= np.linalg.norm(x, axis=1)[:, None]
    y /= np.linalg.norm(y, axis=1)[:, None]
    return 1 - x @ y.T


def lattice(n, seed):
    x, y = np.random.default_rng(seed).integers(0, 40, (2, n, 2)).astype(float)
    return squared_distances(x, y)


DECISIONS = {
    "random": (CLASSES["random"], "none"),
    "int1n": (CLASSES["int1n"], "none"),
    "embedded": (embedded, "none"),
    "lognormal": (lambda n, s: np.random.default_rng(s).lognormal(0, 1, (n, n)), "none"),
    "geometric": (CLASSES["geometric"], "levels"),
    "disjoint": (CLASSES["disjoint"], "levels"),
    "rank2": (CLASSES["rank2"], "levels"),
    "rank8": (CLASSES["rank8"], "levels"),
    "clusters": (clusters, "levels"),
    "duplicates": (lattice, "levels"),
    "noise": (
        lambda n, s: CLASSES["geometric"](n, s) + 0.1 * np.random.default_rng(s).random((n, n)),
        "none",
    ),
    "rank1": (CLASSES["rank1"], "estimate"),
    "sanity": (CLASSES["sanity"], "estimate"),
    "i*j": (lambda n, _: np.outer(np.arange(n), np.arange(n)) * 1.0, "estimate"),
}


@pytest.mark.parametrize("name", DECISIONS)
def test_the_decision(name):
    make, wanted = DECISIONS[name]
    counts = Counts()
    problem = Problem(as_source(make(1700, 0)))
    assert first_prices.choose_first_prices(problem, Monitor(), 0, counts)[0] == wanted
    assert counts.pairs <= 0.15 * 1700**2


@pytest.mark.parametrize(("name", "wanted"), [("geometric", "levels"), ("random", "none")])
def test_the_decision_from_few_rows(name, wanted):
    cost = CLASSES[name](1700, seed=2)
    counts = Counts()
    problem = Problem(as_source(rows_of(cost)))
    assert first_prices.choose_first_prices(problem, Monitor(), 0, counts)[0] == wanted
    assert counts.rows <= 256 + 8


@pytest.mark.parametrize(("noise", "wanted"), [(0.8, "levels"), (None, "none")])
def test_prices_that_spread_decide_for_levels(noise, wanted, monkeypatch):
    """Of a mixture against a noisier one; uniform points gain nothing."""
    n, generator = 20_000, np.random.default_rng(1)
    x, y = generator.random((2, n, 5))
    if noise is not None:
        centres = generator.normal(size=(20, 5))
        x, y = (centres[generator.integers(20, size=n)] + generator.normal(0, 0.5, (n, 5)) for _ in range(2))
        y += generator.normal(0, noise, y.shape)
    problem, counts = Problem(bigsap.points(x, y, "sqeuclidean")), Counts()
    assert first_prices.choose_first_prices(problem, Monitor(), 0, counts)[0] == wanted
    assert counts.pairs <= 40 * n + 2**20
    monkeypatch.setattr(first_prices, "_prices_spread", lambda *given: False)
    assert first_prices.choose_first_prices(problem, Monitor(), 0, counts)[0] == "none"


# --- the same optimum -----------------------------------------------------------------

SHAPES = [(200, 200), (150, 200), (75, 200), (200, 150), (200, 75)]


def kinds(n, seed):
    """Nine kinds of rows and columns: levels leave few rows without a tight pair."""
    generator = np.random.default_rng(seed)
    kinds = generator.integers(0, 9, (2, n))
    return generator.random((9, 9))[np.ix_(*kinds)]


@pytest.mark.some(4)
@each(
    shape=SHAPES,
    make=[kinds, lattice, *(CLASSES[name] for name in ("rank1", "disjoint", "int1n", "random"))],
    method=["compressed", "ssp"],
    maximize=[False, True],
)
def test_levels_end_there_without_a_proof(shape, make, method, maximize, monkeypatch):
    """A proof would repair what is wrong."""
    monkeypatch.setattr(policy, "COARSEST_LEVEL", 30)
    cost = make(200, seed=3)[: shape[0], : shape[1]].copy()
    options = {"method": method, "maximize": maximize, "certify": False}
    res = bigsap.solve(cost, start="levels", **options)
    assert res.stats["first_prices"] == "levels"
    assert res.fun == pytest.approx(float(optimum(cost, maximize)[0]), rel=1e-12)


@each(method=["compressed", "ssp"], name=["points", "matrix", "expression", "rows"])
def test_levels_of_sources(name, method, monkeypatch):
    monkeypatch.setattr(policy, "COARSEST_LEVEL", 60)
    x, y = points_of("disjoint", 500, seed=4)
    cost = squared_distances(x, y)
    res = bigsap.solve(sources(cost, x, y)[name][0], method=method, start="levels")
    assert (res.status, res.stats["first_prices"]) == ("optimal", "levels")
    assert res.fun == pytest.approx(bigsap.solve(cost, start="none").fun, rel=1e-9)


@pytest.mark.parametrize("method", ["compressed", "ssp"])
def test_any_number_of_threads(method, monkeypatch):
    monkeypatch.setattr(policy, "COARSEST_LEVEL", 100)
    source = bigsap.points(*points_of("disjoint", 2000, seed=5))
    one, *others = (bigsap.solve(source, method=method, start="levels", threads=k) for k in (1, 2, 3))
    for other in others:
        assert np.array_equal(one.col4row, other.col4row)
        assert np.array_equal(one.v, other.v)
        assert all(one.stats[name] == other.stats[name] for name in COUNTERS)


ODD = {
    "equal points": bigsap.points(np.ones((300, 2)), np.ones((300, 2))),
    "one far point": bigsap.points(
        np.r_[np.random.default_rng(0).random((299, 2)), [[1e150, 0]]],
        np.random.default_rng(1).random((300, 2)),
    ),
    "constant": np.full((300, 300), 7.0),
    "half forbidden": np.where(
        np.random.default_rng(2).random((300, 300)) < 0.5, np.inf, np.random.default_rng(3).random((300, 300))
    ),
    "integers": np.random.default_rng(4).integers(-5, 5, (300, 300)),
    "large integers": np.random.default_rng(4).integers(0, 2**46, (300, 300)),
    "offset": 1e9 + np.random.default_rng(5).random((300, 300)),
    "float32": np.random.default_rng(6).random((300, 300)).astype(np.float32),
    "few": np.random.default_rng(7).random((9, 11)),
    "one": np.ones((1, 1)),
}


@each(method=["compressed", "ssp"], name=list(ODD))
def test_odd_costs(name, method, monkeypatch):
    monkeypatch.setattr(policy, "COARSEST_LEVEL", 20)
    res = bigsap.solve(ODD[name], method=method, start="levels")
    plain = bigsap.solve(ODD[name], method=method, start="none")
    assert res.status == plain.status == "optimal"
    assert res.fun == pytest.approx(plain.fun, rel=1e-9)


def landmarks_of(monkeypatch):
    """The few rows, and columns, whose costs are asked for to order the others."""
    seen, real = [], strata.some_costs

    def spy(problem, rows, columns, *rest):
        seen.append((rows if rows.size < columns.size else columns).tolist())
        return real(problem, rows, columns, *rest)

    monkeypatch.setattr(strata, "some_costs", spy)
    return seen


@each(method=["compressed", "ssp"], what=["constant", "forbidden", "both"])
def test_landmarks_that_tell_nothing(what, method, monkeypatch):
    """The rows and columns that give the order are all equal, or forbidden but for one pair."""
    monkeypatch.setattr(policy, "COARSEST_LEVEL", 20)
    n = 300
    generator = np.random.default_rng([0, n, n, 5])  # as strata_of draws them with seed 0
    rows = np.sort(generator.permutation(n)[:8])
    columns = np.sort(generator.permutation(n)[:8])
    cost = squared_distances(*np.random.default_rng(8).random((2, n, 2)))
    own = cost[rows, rows].copy()
    if what == "constant":
        cost[rows] = cost[:, columns] = 3.0
    else:
        cost[rows] = cost[:, columns] = np.inf
        cost[rows, rows] = own
        cost[columns, columns] = 1.0
    if what == "both":
        cost[rows[:4]], cost[:, columns[:4]] = 3.0, 3.0
    seen = landmarks_of(monkeypatch)
    res = bigsap.solve(cost, method=method, start="levels")
    assert seen[:1] == [rows.tolist()]
    assert columns.tolist() in seen
    assert res.status == "optimal"
    assert res.fun == pytest.approx(float(optimum(cost)[0]), rel=1e-12)


def test_infeasible_levels_are_no_prices(monkeypatch):
    """Rows without a column in the sample, and a problem that has no solution at all."""
    monkeypatch.setattr(policy, "COARSEST_LEVEL", 20)
    cost = np.full((200, 200), np.inf)
    cost[np.arange(200), np.random.default_rng(1).permutation(200)] = 1.0
    assert bigsap.solve(cost, method="compressed", start="levels").fun == 200
    cost[5] = np.inf
    assert bigsap.solve(cost, method="compressed", start="levels").status == "infeasible"


def test_start_must_be_known():
    with pytest.raises(bigsap.OptionError, match="start must be one of"):
        bigsap.solve(np.ones((3, 3)), start="coarse")


# --- work -----------------------------------------------------------------------------


@pytest.mark.parametrize("d", [2, 3, 5])
def test_columns_begin_at_higher_prices_in_many_dimensions(d):
    """By the fourth smallest ``c - u``, which lies far above the smallest where rows are few."""
    generator = np.random.default_rng(d)
    x, y = generator.random((1200, d)), generator.random((800, d))
    rows, u = np.sort(generator.permutation(1200)[:600]), 0.1 * generator.random(600)
    problem = Problem(bigsap.points(x, y))
    found = levels.bounded_transform(problem, rows, u, Team(1), Monitor(), Counts())
    assert found is not None
    sorted_ = np.sort(squared_distances(x[rows], y) - u[:, None], axis=0)
    np.testing.assert_allclose(found[0], sorted_[0], rtol=0, atol=1e-12)
    np.testing.assert_allclose(found[1], sorted_[0 if d == 2 else 3], rtol=0, atol=1e-12)


def clouds(n, seed):
    """Two normal clouds in four dimensions, one of them smaller and shifted."""
    generator = np.random.default_rng(seed)
    x, y = generator.standard_normal((2, n, 4))
    return bigsap.points(x, 0.7 * y + 0.3)


@pytest.mark.parametrize("method", ["compressed", "ssp"])
def test_a_large_term_in_all_costs_leaves_the_optimum_exact(method):
    """Every sum here is exact in float64. An allowance for rounding in each of the pairs that
    prices of levels, or old ones, leave tight added up to 1,311 units."""
    n = 1500
    generator = np.random.default_rng(5)
    x, y = generator.random((n, 2)), generator.random((n, 2))
    units = np.round(squared_distances(x, y) * 2**19)
    best = linear_sum_assignment(units)
    cost = 2.0**33 + units / 2**19
    result = bigsap.solve(cost, method=method, start="levels")
    assert result.stats["first_prices"] == "levels"
    assert units[result.row_ind, result.col_ind].sum() == units[best].sum()
    assert result.gap <= 2.0**-20  # less than a unit, so that it is optimal
    # ``ssp`` allows a pick one rounding of its cost, which is a unit here.
    again = bigsap.solve(cost, method=method, warm_start=result.v + generator.normal(0, 2e-6, n))
    loss = units[again.row_ind, again.col_ind].sum() - units[best].sum()
    assert 0 <= loss <= (n / 4 if method == "ssp" else 0)
    assert again.gap * 2**19 >= loss


# --- bounds ---------------------------------------------------------------------------


def test_bounds_of_levels_change_nothing(monkeypatch):
    monkeypatch.setattr(policy, "LEVEL_BOUNDS_SHARE", 1e9)
    source = bigsap.points(*points_of("disjoint", 3000, seed=5))
    quiet = bigsap.solve(source, threads=1)
    heard = bigsap.solve(source, threads=1, callback=lambda state: None)
    assert np.array_equal(quiet.v, heard.v)
    assert all(quiet.stats[name] == heard.stats[name] for name in COUNTERS)


# --- checkpoints ----------------------------------------------------------------------


@pytest.mark.some(2)
@pytest.mark.parametrize("method", ["compressed", "ssp"])
@pytest.mark.parametrize("name", ["points", "rows"])
def test_a_solve_continues_at_its_level(name, method, tmp_path, monkeypatch):
    monkeypatch.setattr(policy, "COARSEST_LEVEL", 50)
    n = 2000
    x, y = points_of("disjoint", n, seed=6)
    source = bigsap.points(x, y) if name == "points" else rows_of(squared_distances(x, y))
    options = {"method": method, "start": "levels", "callback_every": 0}
    whole = bigsap.solve(source, **options)
    solved = []
    old = levels.Ladder._solve

    def counted(self, part, level, *rest):
        solved.append(level)
        return old(self, part, level, *rest)

    monkeypatch.setattr(levels.Ladder, "_solve", counted)
    path = tmp_path / "c"

    def stop(state):
        if state.stage == "levels" and state.level == 1 and state.level_assigned > 0:
            raise StopIteration

    res = bigsap.solve(source, checkpoint=path, callback=stop, **options)
    assert res.status == "cancelled"
    assert solved == [3, 2, 1]
    assert checkpoint.read(path).snapshot["ladder_level"] == 2
    res = bigsap.resume(path, source, callback_every=0)
    assert solved == [3, 2, 1, 1]
    assert np.array_equal(res.col4row, whole.col4row)
    assert np.array_equal(res.v, whole.v)
    assert res.stats["first_prices"] == "levels"
    assert [p["drops"] for p in res.stats["phases"]] == [p["drops"] for p in whole.stats["phases"]]
    with pytest.raises(bigsap.CheckpointError, match="start ="):
        bigsap.resume(path, source, start="none")
