"""Computed sources: metrics on points, low rank, tables; and calling their fillers."""

from __future__ import annotations

import math
import subprocess
import sys
import textwrap
from decimal import Decimal
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest

import bigsap
from bigsap.errors import DtypeError, InvalidCostError, OptionError, OverflowRiskError, ShapeError
from bigsap.sources.expression.formula import expression
from bigsap.sources.functions.callbacks import from_function
from bigsap.sources.kernels import _TILE
from bigsap.sources.lowrank import lowrank, table
from bigsap.sources.metrics import METRICS, check_finite, points
from contracts import N_COLUMNS, N_ROWS, SourceContract, one_class_each, whole

distance = pytest.importorskip("scipy.spatial.distance")

CDIST = tuple(m for m in METRICS if m != "haversine")


def sphere(rng, n):
    return np.column_stack([rng.uniform(-1.5, 1.5, n), rng.uniform(-3, 3, n)])


class PointsContract(SourceContract):
    rtol = 1e-13
    metric = "sqeuclidean"
    d = 2
    options: ClassVar[dict] = {}

    def sets(self):
        rng = np.random.default_rng(9)
        return rng.normal(size=(N_ROWS, self.d)), rng.normal(size=(N_COLUMNS, self.d))

    def matrix(self):
        x, y = self.sets()
        return distance.cdist(x, y, self.metric, **self.options)

    def make(self, matrix):
        return points(*self.sets(), self.metric, **self.options)

    def changed(self, matrix):
        x, y = self.sets()
        y[-1, 0] += 1
        return points(x, y, self.metric, **self.options)


globals().update(
    one_class_each(
        PointsContract,
        Sqeuclidean={"d": 3},
        EuclideanWeighted={"metric": "euclidean", "d": 5, "options": {"w": np.array([1, 0.5, 0, 3, 2])}},
        Cityblock={"metric": "cityblock"},
        Chebyshev={"metric": "chebyshev"},
        Minkowski={"metric": "minkowski", "options": {"p": 2.5}},
        Cosine={"metric": "cosine", "d": 7},
    )
)


class TestHaversine(PointsContract):
    metric = "haversine"
    options: ClassVar[dict] = {"radius": 6371.0}
    rtol = 1e-12

    def sets(self):
        rng = np.random.default_rng(4)
        return sphere(rng, N_ROWS), sphere(rng, N_COLUMNS)

    def matrix(self):
        x, y = self.sets()
        lat1, lat2 = x[:, :1], y[:, 0]
        # Another formula: the angle between the unit vectors.
        cosine = np.sin(lat1) * np.sin(lat2)
        cosine += np.cos(lat1) * np.cos(lat2) * np.cos(x[:, 1:] - y[:, 1])
        return 6371.0 * np.arccos(cosine)


class TestLowRank(SourceContract):
    rtol = 1e-13

    def parts(self):
        rng = np.random.default_rng(8)
        return [rng.normal(size=s) for s in ((N_ROWS, 3), (N_COLUMNS, 3), N_ROWS, N_COLUMNS)]

    def matrix(self):
        a, b, r, c = self.parts()
        return a @ b.T + r[:, None] + c

    def make(self, matrix):
        a, b, r, c = self.parts()
        return lowrank(a, b, row_terms=r, column_terms=c)

    def changed(self, matrix):
        a, b, r, c = self.parts()
        c[-1] += 1
        return lowrank(a, b, row_terms=r, column_terms=c)


class TableContract(SourceContract):
    dtype = "f8"

    def parts(self):
        rng = np.random.default_rng(2)
        values = rng.integers(0, 200, (4, 3)).astype(self.dtype)
        return values, rng.integers(0, 4, N_ROWS), rng.integers(0, 3, N_COLUMNS)

    def matrix(self):
        values, rows, columns = self.parts()
        return values[np.ix_(rows, columns)]

    def make(self, matrix):
        return table(*self.parts())

    def changed(self, matrix):
        values, rows, columns = self.parts()
        columns[-1] = (columns[-1] + 1) % 3
        return table(values, rows, columns)


globals().update(
    one_class_each(TableContract, **{f"Table{kind}": {"dtype": kind} for kind in ("f8", "f4", "u2", "u1")})
)


@pytest.mark.parametrize("metric", CDIST)
@pytest.mark.parametrize("d", [1, 2, 3, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_metrics_are_those_of_scipy(metric, d, weighted):
    rng = np.random.default_rng(d)
    # More columns than a tile, not a multiple of a vector.
    x, y = rng.normal(size=(3, d)), rng.normal(size=(_TILE + 101, d))
    options: ClassVar[dict] = {"w": rng.uniform(0.1, 3, d) * (np.arange(d) != 1)} if weighted else {}
    if metric == "minkowski":
        options["p"] = 3.5
    got = whole(points(x, y, metric, **options))
    np.testing.assert_allclose(got, distance.cdist(x, y, metric, **options), rtol=1e-13, atol=4e-16)


@pytest.mark.parametrize("p", [1, 2])
def test_minkowski_of_one_and_two_need_no_powers(p):
    rng = np.random.default_rng(1)
    x, y = rng.normal(size=(4, 3)), rng.normal(size=(5, 3))
    other = {1: "cityblock", 2: "euclidean"}[p]
    np.testing.assert_array_equal(whole(points(x, y, "minkowski", p=p)), whole(points(x, y, other)))
    np.testing.assert_array_equal(whole(points(x, y, "minkowski")), whole(points(x, y, "euclidean")))


def test_cosine_of_equal_and_tiny_and_huge_vectors():
    x = np.array([[3.0, 4.0], [1e-200, 0.0], [0.0, -1e200]])
    got = whole(points(x, x, "cosine", w=[1e10, 1e10]))
    np.testing.assert_array_equal(np.diag(got), 0)
    np.testing.assert_allclose(got[1:, 1:], [[0, 1], [1, 0]], rtol=1e-15)
    np.testing.assert_allclose(got[0, 1:], [0.4, 1.8], rtol=1e-15)


def test_cosine_close_vectors_do_not_cancel():
    angle = 1e-9
    got = whole(points([[1.0, 0.0]], [[math.cos(angle), math.sin(angle)]], "cosine"))
    np.testing.assert_allclose(got, angle**2 / 2, rtol=1e-6)


def test_haversine_known_distances():
    paris, berlin = np.radians([[48.8566, 2.3522], [52.52, 13.405]])
    got = whole(points([paris], [berlin], "haversine", radius=6371.0))
    assert abs(got[0, 0] - 877.46) < 0.05
    antipodes = whole(points([[0.3, 0.1]], [[-0.3, 0.1 - math.pi]], "haversine"))
    np.testing.assert_allclose(antipodes, math.pi, rtol=1e-7)


@pytest.mark.parametrize("kind", ["f4", "f2", "i2", "i8", "u1", ">f8", "?"])
def test_coordinates_of_any_real_dtype_count_in_float64(kind):
    rng = np.random.default_rng(3)
    x = rng.integers(0, 2, (4, 2)).astype(kind)
    y = rng.integers(0, 2, (5, 2)).astype(kind)
    source = points(x, y)
    assert source.dtype == np.float64
    expected = distance.cdist(x.astype("f8"), y.astype("f8"), "sqeuclidean")
    np.testing.assert_array_equal(whole(source), expected)


def test_float32_coordinates_are_subtracted_in_float64():
    x, y = np.array([1e8], "f4"), np.array([0.3], "f4")
    assert whole(points(x, y, "cityblock"))[0, 0] == 1e8 - float(np.float32(0.3))


def test_points_keep_a_copy():
    x, y = np.zeros((2, 2)), np.ones((3, 2))
    source = points(x, y)
    x[:] = 5
    y[:] = np.nan
    assert (whole(source) == 2).all()
    assert (source.x == 0).all()
    assert (source.y == 1).all()
    assert source.metric == "sqeuclidean"
    with pytest.raises(ValueError, match="read-only"):
        source.x[0, 0] = 1


def test_no_points():
    for n, m in ((0, 3), (3, 0), (0, 0)):
        for metric in METRICS:
            source = points(np.zeros((n, 2)), np.zeros((m, 2)) + 0.1, metric) if n == 0 else None
            source = source or points(np.ones((n, 2)), np.ones((m, 2)), metric)
            assert source.shape == (n, m)
            assert whole(source).shape == (n, m)
            assert source.fingerprint()


BAD_POINTS = [
    (ShapeError, r"x has 2 coordinates a point, y has 3", {"y": np.ones((4, 3))}),
    (ShapeError, r"y has 3 dimensions", {"y": np.ones((4, 2, 1))}),
    (ShapeError, r"x has no coordinates", {"x": np.ones((4, 0))}),
    (ShapeError, r"x is no rectangular array", {"x": [[1.0, 2.0], [3.0]]}),
    (DtypeError, r"x has dtype complex128", {"x": np.ones((4, 2), complex)}),
    (DtypeError, r"y has dtype <U1", {"y": [["a", "b"]]}),
    (InvalidCostError, r"x\[1, 0\] is missing", {"x": np.ma.masked_less([[3, 3], [1, 3]], 2)}),
    (InvalidCostError, r"x\[1, 0\] is nan", {"x": [[0, 0], [np.nan, 0]]}),
    (InvalidCostError, r"y\[0, 1\] is inf", {"y": [[0, np.inf]]}),
    (InvalidCostError, r"x\[1\] is a zero vector", {"x": [[1, 0], [0, 0]], "metric": "cosine"}),
    (InvalidCostError, r"exceed float64", {"x": [[1e200, 0]]}),
    (InvalidCostError, r"latitudes are in radians", {"x": [[48.8, 2]], "metric": "haversine"}),
    (ShapeError, r"haversine needs", {"x": [1.0], "y": [1.0], "metric": "haversine"}),
    (OptionError, r"haversine takes no weights", {"metric": "haversine", "w": [1, 1]}),
    (OptionError, r"metric='manhattan' is unknown; choose", {"metric": "manhattan"}),
    (OptionError, r"p must lie in \[1, inf\), got 0.5", {"metric": "minkowski", "p": 0.5}),
    (OptionError, r"chebyshev", {"metric": "minkowski", "p": np.inf}),
    (OptionError, r"p must be a number", {"metric": "minkowski", "p": "3"}),
    (OptionError, r"p belongs to", {"p": 2}),
    (OptionError, r"radius must be positive", {"metric": "haversine", "radius": -1}),
    (InvalidCostError, r"exceed float64", {"metric": "haversine", "radius": 1e308}),
    (OptionError, r"w\[1\] is -1.0; weights must be finite and >= 0", {"w": [1, -1]}),
    (ShapeError, r"w has shape \(3,\)", {"w": [1, 1, 1]}),
]


@pytest.mark.parametrize(("error", "match", "change"), BAD_POINTS)
def test_bad_points(error, match, change):
    good = {"x": np.ones((4, 2)), "y": np.ones((5, 2))}
    with pytest.raises(error, match=match):
        points(**(good | change))


def test_long_doubles_beyond_float64_are_named_and_forbid_nothing():
    largest = np.finfo(np.longdouble).max
    # Where long doubles are doubles, another number.
    huge = [1, Decimal("1e400") if largest == np.finfo(np.float64).max else largest]
    with pytest.raises(InvalidCostError, match=r"x.*float64 cannot"):
        points(huge, [1.0])
    with pytest.raises(InvalidCostError, match=r"row_terms.*float64 cannot"):
        lowrank([1.0, 2.0], [3.0], row_terms=huge)
    with pytest.raises(InvalidCostError, match=r"size.*float64 cannot"):
        expression("size[i]", (2, 2), size=huge)


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "int4"])
def test_numbers_of_other_packages_types(kind):
    """A matrix of them is read as costs; so are points, factors and what functions return."""
    given = np.random.default_rng(4).integers(-4, 4, (5, 20)).astype(getattr(ml_dtypes, kind))
    plain = given.astype("f8")
    for make in (points, lowrank):
        np.testing.assert_array_equal(whole(make(given, given)), whole(make(plain, plain)))
    formula = expression("size[i, 0] + j", (5, 20), size=given)
    np.testing.assert_array_equal(whole(formula), plain[:, :1] + np.arange(20))
    np.testing.assert_array_equal(whole(from_function(lambda i: given[i], (5, 20))), plain)


def test_overflow_in_a_dimension_of_no_weight_is_harmless():
    got = whole(points([[1e300, 1.0]], [[-1e300, 3.0]], w=[0, 1]))
    assert got.tolist() == [[4.0]]
    assert whole(points([[1e300]], [[-1e300]], w=[0])).tolist() == [[0.0]]


def test_lowrank_forbidding_terms_and_shapes():
    source = lowrank([1.0, 2.0], [3.0, 4.0, 5.0], row_terms=[0, np.inf])
    assert whole(source).tolist() == [[3, 4, 5], [np.inf] * 3]
    assert whole(lowrank(np.ones((2, 0)), np.ones((3, 0)))).tolist() == [[0] * 3] * 2


@pytest.mark.parametrize(
    ("error", "match", "arguments"),
    [
        (ShapeError, "a has rank 2, b has rank 1", {"b": np.ones((3, 1))}),
        (ShapeError, r"row_terms has shape \(3,\); needs \(4,\)", {"row_terms": np.ones(3)}),
        (ShapeError, r"b has 3 dimensions", {"b": np.ones((3, 2, 2))}),
        (DtypeError, "a has dtype complex128", {"a": np.ones((4, 2), complex)}),
        (InvalidCostError, r"a\[0, 1\] is inf", {"a": [[0, np.inf]]}),
        (InvalidCostError, r"column_terms\[2\] is nan", {"column_terms": [0, 1, np.nan]}),
        (InvalidCostError, "beyond float64", {"a": np.full((4, 2), 1e200), "b": [[1e200, 0]]}),
        (InvalidCostError, "both", {"row_terms": [np.inf, 0, 0, 0], "column_terms": [-np.inf, 0, 0]}),
    ],
)
def test_bad_lowrank(error, match, arguments):
    with pytest.raises(error, match=match):
        lowrank(**({"a": np.ones((4, 2)), "b": np.ones((3, 2))} | arguments))


@pytest.mark.parametrize("number", [2**62 + 1, -(2**53) - 1, 2**64 - 1])
def test_integers_that_float64_would_round_are_refused(number):
    big = np.array([[0], [number]], np.uint64 if number > 2**63 else np.int64)
    for make in (
        lambda: points(big, [0.0]),
        lambda: points([0.0], big),
        lambda: points([0.0], [[number]]),
        lambda: points([[0.0, 0.0]], [(number, 0.5)]),
        lambda: lowrank(big, [1.0]),
        lambda: lowrank([1.0, 1.0], [1.0], row_terms=big[:, 0]),
        lambda: expression("x[i, 0]", (2, 1), x=big),
    ):
        with pytest.raises(InvalidCostError, match=f"{number}.*float64 would round"):
            make()
    held = np.array([[0], [2**62 + 2**12]])
    assert whole(points(held, [0.0], "cityblock")).tolist() == [[0.0], [2.0**62 + 2**12]]


@pytest.mark.parametrize(
    ("given", "offered"), [("?", "u1"), ("i2", "i4"), ("u8", "i8"), ("f2", "f4"), (">f8", "f8")]
)
def test_table_dtypes(given, offered):
    source = table(np.array([[0, 1]]).astype(given), [0], [1, 0, 1])
    assert source.dtype == np.dtype(offered)
    assert whole(source).tolist() == [[1, 0, 1]]


@pytest.mark.parametrize(
    ("error", "match", "arguments"),
    [
        (InvalidCostError, r"row_class\[1\] is 2; values has 2 row classes", ([0, 2], [0])),
        (InvalidCostError, r"column_class\[0\] is -1", ([0], [-1])),
        (InvalidCostError, r"row_class\[0\] is 18446744073709551615", (np.array([2**64 - 1]), [0])),
        (DtypeError, r"row_class has dtype float64", ([0.0], [0])),
        (ShapeError, r"row_class has shape \(1, 1\)", ([[0]], [0])),
    ],
)
def test_bad_classes(error, match, arguments):
    with pytest.raises(error, match=match):
        table(np.ones((2, 3)), *arguments)


def test_bad_table_values():
    with pytest.raises(ShapeError, match="needs"):
        table(np.ones(3), [0], [0])
    with pytest.raises(DtypeError, match="complex"):
        table(np.ones((1, 1), complex), [0], [0])
    with pytest.raises(OverflowRiskError, match=r"values\[0, 1\] = 18446744073709551615"):
        table(np.array([[0, 2**64 - 1]], np.uint64), [0], [0])


@pytest.mark.slow
def test_a_kernel_that_calls_a_filler_is_cached_across_processes(tmp_path):
    """The address is an ordinary number, so the second process compiles nothing."""
    (tmp_path / "user.py").write_text(
        textwrap.dedent("""
        import numpy as np
        from numba import njit
        from bigsap.sources.compiled import call_fill
        from bigsap.sources.lowrank import lowrank

        @njit(cache=True, nogil=True)
        def total(address, context, n, out):
            s = 0.0
            for row in range(n):
                call_fill(address, context, row, 0, out.size, np.int64(out.ctypes.data))
                s += out.sum()
            return s

        source = lowrank([1.0, 2.0, 3.0], [10.0, 100.0])
        fill = source.fill()
        print(total(fill.address, fill.context, 3, np.empty(2)))
        print(sum(total.stats.cache_hits.values()))
        """)
    )
    answers = []
    for _ in range(2):
        run = subprocess.run(
            [sys.executable, "user.py"],
            cwd=tmp_path,
            env={"PYTHONPATH": ":".join(sys.path), "NUMBA_CACHE_DIR": ""},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.returncode == 0, run.stderr
        answers.append(run.stdout.split())
    assert answers == [["660.0", "0"], ["660.0", "1"]]


@pytest.mark.parametrize("d", [1, 2, 3, 6])
def test_no_contraction_and_no_expansion(d):
    """Bit for bit the plain formula, summed over the dimensions in order."""
    rng = np.random.default_rng(d)
    x, y = rng.normal(1e6, 1, (4, d)), rng.normal(1e6, 1, (1500, d))
    squares = np.zeros((4, 1500))
    for k in range(d):
        squares += (x[:, k, None] - y[:, k]) ** 2
    np.testing.assert_array_equal(whole(points(x, y)), squares)
    np.testing.assert_array_equal(whole(points(x, y, "euclidean")), np.sqrt(squares))


def test_rows_without_entries_are_not_walked():
    class Untouched(np.ndarray):
        def __getitem__(self, part):
            raise AssertionError(part)

    check_finite(np.empty((2**50, 0)).view(Untouched), "a[{}, {}]", "finite numbers")


def test_two_point_sets_given_to_solve_are_asked_for() -> None:
    x = np.zeros((3, 2))
    with pytest.raises(TypeError, match=r"^solve\(\) takes 1 positional .* bigsap\.points\(x, y\)"):
        bigsap.solve(x, x)
    with pytest.raises(TypeError, match=r"^solve\(\) missing 1 required positional argument: 'cost'$"):
        bigsap.solve()  # type: ignore[call-arg]
