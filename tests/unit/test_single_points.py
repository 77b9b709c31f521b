"""float32 points of many dimensions are kept as they are; costs and answers are those of float64 copies."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.engine.core.incumbent import row_floors
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.proof.minima import Looked, by_bounds
from bigsap.proof.row_minima import Prices
from bigsap.strategies.outlying import outlying
from bigsap.strategies.start.samples import Counts
from bigsap.strategies.start.strata import strata_of

D = policy.BOX_COORDINATES + 5
METRICS = ("sqeuclidean", "euclidean", "cosine")


@pytest.fixture(autouse=True)
def any_number(monkeypatch: pytest.MonkeyPatch) -> None:
    """Vectors under cosine are kept as float32 in any number."""
    monkeypatch.setattr(policy, "UNIT_VECTORS", 0)


def sides(n: int, m: int, d: int = D, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    g = np.random.default_rng(seed)
    return tuple((1e3 * g.normal(size=(k, d)) + 1e4).astype(np.float32) for k in (n, m))


def both(x: np.ndarray, y: np.ndarray, *given: Any, **options: Any) -> tuple[Any, Any]:
    """The source of float32 points, and that of their float64 copies."""
    return tuple(bigsap.points(x.astype(k), y.astype(k), *given, **options) for k in (np.float32, np.float64))


def both_low(n: int, m: int, terms: bool, seed: int = 0) -> tuple[Any, Any]:
    """The same of factors."""
    a, b = sides(n, m, seed=seed)
    g = np.random.default_rng(7)
    more = {"row_terms": 1e7 * g.normal(size=n), "column_terms": 1e7 * g.normal(size=m)} if terms else {}
    return tuple(bigsap.lowrank(a.astype(k), b.astype(k), **more) for k in (np.float32, np.float64))


def costs_of(source: Any, rows: np.ndarray, columns: slice) -> np.ndarray:
    out = np.empty((rows.size, columns.stop - columns.start))
    source.read(rows, columns, out)
    return out


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("m", [1, 3, 301])
def test_costs_have_the_bits_of_float64(
    monkeypatch: pytest.MonkeyPatch, metric: str, weighted: bool, copied: bool, m: int
) -> None:
    if not copied:
        monkeypatch.setattr(policy, "PRODUCT_COPY_BYTES", 0)
    x, y = sides(37, m)
    g = np.random.default_rng(1)
    weighted = weighted and metric != "cosine"
    single, double = both(x, y, metric, w=0.1 + g.random(D) if weighted else None)
    assert single.x.dtype == single.y.dtype == np.float32
    every = np.arange(37)
    for rows, columns in (
        (every, slice(0, m)),
        (every[5:6], slice(m // 3, m)),
        (g.permutation(37)[:9], slice(0, 1)),
    ):
        assert np.array_equal(costs_of(single, rows, columns), costs_of(double, rows, columns))
    parts = [k.transposed().select(np.arange(m), np.array([4, 1])) for k in (single, double)]
    assert parts[0].x.dtype == np.float32
    assert np.array_equal(*(costs_of(k, np.arange(m), slice(0, 2)) for k in parts))


def test_many_coordinates_are_widened_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from bigsap.sources import sums_of_rows

    monkeypatch.setattr(sums_of_rows, "_WIDENED", 1)
    single, double = both(*sides(150, 200))
    rows = np.random.default_rng(2).permutation(150)
    assert np.array_equal(*(costs_of(k, rows, slice(3, 190)) for k in (single, double)))


def test_a_row_may_be_asked_for_more_often_than_there_are_rows() -> None:
    single, double = both(*sides(1, 3))
    assert np.array_equal(*(costs_of(k, np.zeros(500, np.intp), slice(0, 3)) for k in (single, double)))


@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_nothing_is_copied_to_float64(kind: Any) -> None:
    x, y = np.random.default_rng(3).normal(size=(2, 50, D)).astype(kind)
    source = bigsap.points(x, y)
    assert source.x.dtype == source.y.dtype == np.float32
    assert source.y.flags.c_contiguous
    unit = bigsap.points(x, y, "cosine").product()
    assert unit.x.vectors.dtype == unit.y.vectors.dtype == np.float32
    product = source.product()
    for one, other in ((product.x, source.x), (product.y, source.y), (source.separable().x, source.x)):
        assert one.dtype == np.float32
        assert np.shares_memory(one, other)


def test_read_only_points_stay_in_place() -> None:
    """In the transpose too."""
    x, y = sides(9, 8)
    expected = costs_of(bigsap.points(x, y), np.arange(9), slice(0, 8))
    for side in (x, y):
        side.flags.writeable = False
    for source in (bigsap.points(x, y), bigsap.points(y, x).transposed()):
        assert np.shares_memory(source.x, x)
        assert np.shares_memory(source.y, y)
        assert np.array_equal(costs_of(source, np.arange(9), slice(0, 8)), expected)
    low = bigsap.lowrank(x, y)
    assert np.shares_memory(low.a, x)
    assert np.shares_memory(low.transposed().b, x)


def test_points_that_may_change_are_copied(tmp_path: Any) -> None:
    """Whoever may write to them, and files, which may shrink."""
    x, y = sides(9, 8)
    np.save(tmp_path / "x.npy", x)
    view, other = x.view(), x.copy()
    view.flags.writeable = False
    given = [x, view, np.lib.stride_tricks.as_strided(x, writeable=False)]
    given += [np.asarray(memoryview(x).toreadonly()), np.load(tmp_path / "x.npy", mmap_mode="r")]
    for change in (np.asfortranarray, lambda a: a.astype(np.float16), lambda a: a.astype(">f4")):
        given.append(change(other))
        given[-1].flags.writeable = False
    for one in given:
        assert not np.shares_memory(bigsap.points(one, y).x, one)


def test_coordinates_that_are_no_numbers_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wherever they are: points are looked at some at a time."""
    monkeypatch.setattr("bigsap.sources.metrics._NUMBERS", 2 * D)
    x, y = sides(9, 8)
    for row in range(9):
        wrong = x.copy()
        wrong[row, D - 1] = np.nan
        with pytest.raises(bigsap.InvalidCostError, match=rf"x\[{row}, {D - 1}\] is nan"):
            bigsap.points(wrong, y)


def test_what_stays_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few dimensions, other metrics, mixed and wider points, and dimensions without weight."""
    x, y = sides(9, 9)
    assert bigsap.points(x, y, "cosine", w=np.ones(D)).x.dtype == np.float64
    monkeypatch.setattr(policy, "UNIT_VECTORS", 9 * D)  # few enough to keep unit vectors
    assert bigsap.points(x, y, "cosine").x.dtype == np.float64
    for metric in ("cityblock", "chebyshev", "minkowski"):
        assert bigsap.points(x, y, metric).x.dtype == np.float64
    for a, b, w in (
        (x[:, : policy.BOX_COORDINATES], y[:, : policy.BOX_COORDINATES], None),
        (x.astype(np.float64), y, None),
        (x, y.astype(np.int8), None),
        (x, y, np.arange(D)),
    ):
        assert bigsap.points(a, b, w=w).x.dtype == np.float64


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"method": "compressed"},
        {"method": "compressed", "cache": "64KiB"},
        {"method": "ssp", "memory_limit": "32MiB"},
        {"maximize": True},
        {"unassigned_cost": 0.005},
    ],
    ids=str,
)
def test_solves_are_those_of_float64(metric: str, options: dict[str, Any]) -> None:
    x, y = sides(280, 300)
    single, double = (bigsap.solve(k, **options) for k in both(x, y, metric))
    assert (single.status, single.fun, single.bound) == (double.status, double.fun, double.bound)
    assert np.array_equal(single.col4row, double.col4row)
    assert np.array_equal(single.v, double.v)
    for count in ("method", "rows_scanned", "rows_evaluated", "pairs_evaluated"):
        assert single.stats.get(count) == double.stats.get(count)
    single.verify(bigsap.points(x, y, metric))


def test_levels_and_outliers_are_those_of_float64() -> None:
    x, y = sides(400, 400)
    x[7, 3] = 1e9
    found = []
    for source in both(x, y):
        problem = Problem(source)
        strata = strata_of(problem, Monitor(), 0, Counts())
        far = outlying(problem, strata)
        assert far is not None
        assert far.rows.tolist() == [7]
        found.append((strata.rows, strata.columns, row_floors(problem)))
    for one, other in zip(*found, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("maximize", [False, True])
def test_bounds_of_rows_hold(maximize: bool) -> None:
    """One column is its own box, so the bound is the cost: differences in float32 would exceed it."""
    g = np.random.default_rng(4)
    source = bigsap.points(*(g.normal(size=(k, D)).astype(np.float32) for k in (40, 1)))
    sign = -1.0 if maximize else 1.0
    costs = sign * costs_of(source, np.arange(40), slice(0, 1))[:, 0]
    floors = row_floors(Problem(source, maximize))
    assert (floors <= costs).all()
    assert floors == pytest.approx(costs)


@pytest.mark.parametrize(
    ("metric", "maximize"),
    [("sqeuclidean", False), ("sqeuclidean", True), ("euclidean", False), ("cosine", False)],
)
def test_proofs_by_products_are_those_of_float64(metric: str, maximize: bool) -> None:
    x, y = sides(300, 300)
    prices = Prices(np.random.default_rng(5).random(300))
    found = []
    for source in both(x, y, metric):
        made = by_bounds(source, None, prices, maximize, at_any_size=True)
        assert made is not None
        assert not isinstance(made, Looked)
        found.append(made)
    (one, looked), (other, as_well) = found
    assert looked == as_well
    assert np.array_equal(one.high, other.high)


def test_a_pickled_source_and_its_fingerprint_stay() -> None:
    source = bigsap.points(*sides(30, 40))
    copy = pickle.loads(pickle.dumps(source))
    assert copy.x.dtype == np.float32
    assert copy.fingerprint() == source.fingerprint()
    x, y = sides(30, 40)
    y[39, D - 1] += 1
    assert bigsap.points(x, y).fingerprint() != source.fingerprint()


@pytest.mark.parametrize("first", [0, 4100])
def test_a_zero_vector_is_named(first: int) -> None:
    x, y = sides(5, 4200)
    y[first] = 0
    with pytest.raises(bigsap.InvalidCostError, match=rf"y\[{first}\] is a zero vector"):
        bigsap.points(x, y, "cosine")


def test_directions_of_vectors_of_any_length() -> None:
    """The shortest and the longest vectors of float32; equal directions cost nothing."""
    g = np.random.default_rng(6)
    x = g.integers(1, 9, (6, D)).astype(np.float32)
    y = x * np.float32(2.0) ** np.array([-140, -60, 0, 1, 60, 120], np.float32)[:, None]
    single, double = both(x, y, "cosine")
    assert np.array_equal(np.diag(costs_of(single, np.arange(6), slice(0, 6))), np.zeros(6))
    assert np.array_equal(*(costs_of(k, np.arange(6), slice(0, 6)) for k in (single, double)))
    assert bigsap.solve(single).fun == 0.0


def test_bad_coordinates_are_named() -> None:
    x, y = sides(5, 5)
    y[3, 20] = np.nan
    with pytest.raises(bigsap.InvalidCostError, match=r"y\[3, 20\]"):
        bigsap.points(x, y)
    huge = np.full((4, D), 3e38, np.float32)
    assert bigsap.solve(bigsap.points(huge, -huge)).status == "optimal"  # squares are within float64


@pytest.mark.parametrize("terms", [False, True])
@pytest.mark.parametrize("copied", [True, False])
@pytest.mark.parametrize("m", [1, 3, 301])
def test_products_of_factors_have_the_bits_of_float64(
    monkeypatch: pytest.MonkeyPatch, terms: bool, copied: bool, m: int
) -> None:
    if not copied:
        monkeypatch.setattr(policy, "PRODUCT_COPY_BYTES", 0)
    single, double = both_low(37, m, terms)
    assert single.a.dtype == single.b.dtype == np.float32
    every, g = np.arange(37), np.random.default_rng(1)
    asked = (every, slice(0, m)), (every[5:6], slice(m // 3, m)), (g.permutation(37)[:9], slice(0, 1))
    for rows, columns in asked:
        assert np.array_equal(costs_of(single, rows, columns), costs_of(double, rows, columns))
    parts = [k.transposed().select(np.arange(m), np.array([4, 1])) for k in (single, double)]
    assert parts[0].a.dtype == np.float32
    assert np.array_equal(*(costs_of(k, np.arange(m), slice(0, 2)) for k in parts))
    assert pickle.loads(pickle.dumps(single)).fingerprint() == single.fingerprint()


@pytest.mark.parametrize("terms", [False, True])
@pytest.mark.parametrize("factor", [None, 0.3])
@pytest.mark.parametrize(
    "options",
    [{}, {"method": "compressed"}, {"method": "compressed", "cache": "64KiB"}, {"maximize": True}],
    ids=str,
)
def test_solves_of_factors_are_those_of_float64(
    terms: bool, factor: float | None, options: dict[str, Any]
) -> None:
    made = both_low(280, 300, terms)
    if factor is not None:
        made = tuple(bigsap.scaled(k, factor) for k in made)
    single, double = (bigsap.solve(k, **options) for k in made)
    assert (single.status, single.fun, single.bound) == (double.status, double.fun, double.bound)
    assert np.array_equal(single.col4row, double.col4row)
    for count in ("method", "rows_scanned", "rows_evaluated", "pairs_evaluated"):
        assert single.stats.get(count) == double.stats.get(count)
    prices = Prices(np.random.default_rng(5).random(300))
    proofs = [by_bounds(k, None, prices, False, at_any_size=True) for k in made]
    assert np.array_equal(proofs[0][0].high, proofs[1][0].high)
    assert np.array_equal(*(k.product().x for k in made))


def test_factors_beyond_float32_but_within_float64() -> None:
    a = np.full((3, D), 3e38, np.float32)
    assert bigsap.solve(bigsap.lowrank(a, a)).fun == pytest.approx(3 * D * 9e76)


def test_costs_under_cosine_are_those_of_the_transpose() -> None:
    """To the bit, also of float64: sums of squares add in one order for both sides."""
    x, y = np.random.default_rng(8).normal(size=(2, 40, 50))
    source = bigsap.points(x, y, "cosine")
    there = costs_of(source.transposed(), np.arange(40), slice(0, 40))
    assert np.array_equal(costs_of(source, np.arange(40), slice(0, 40)), there.T)


def test_multiples_of_whole_numbers_have_one_direction() -> None:
    c = np.random.default_rng(9).integers(1, 9, (200, D)).astype(np.float32)
    for factor in (3, 5, 7):
        source = bigsap.points(c, np.float32(factor) * c, "cosine")
        assert bigsap.solve(source).fun == 0.0
