"""The proof by bounds: what the pass over every pair finds, bit for bit, from fewer pairs."""

from __future__ import annotations

import math
import threading
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap
from bigsap import policy
from bigsap.errors import CertificateError, InvalidCostError, OptionError, OverflowRiskError
from bigsap.proof import descending
from bigsap.proof import descent as descents
from bigsap.proof import minima as proof
from bigsap.proof import tree as trees
from bigsap.proof.certificate import certify
from bigsap.proof.descent import PointCosts, _plain, _sloped, descend
from bigsap.proof.geometry import geometry
from bigsap.proof.row_minima import Prices, row_minima, whole
from bigsap.proof.unassigned import certify_gated
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.wrappers import Counted
from examples_of import examples
from pairwise import each

METRICS = ("sqeuclidean", "euclidean", "cityblock", "chebyshev", "minkowski", "cosine", "haversine")
FAMILIES = ("uniform", "apart", "clusters", "lattice", "equal", "huge", "tails", "far", "tiny")
SHAPES = ((150, 150), (41, 300), (210, 90), (70, 1), (1, 70))


@pytest.fixture(autouse=True)
def at_any_size(monkeypatch):
    """Bounds for small problems too, and never given up unless a test says so."""
    monkeypatch.setattr(policy, "PROOF_BOUNDS_ROWS", 1)
    monkeypatch.setattr(policy, "PROOF_BOUNDS_PAIRS", 1)
    monkeypatch.setattr(policy, "PROOF_BOUNDS_SHARE", 1e-9)


def cloud(rng, family, n, d):
    """n points of d coordinates."""
    if family == "clusters":
        return rng.integers(0, 3, (n, 1)) * 5.0 + 1e-3 * rng.standard_normal((n, d))
    if family == "lattice":
        return rng.integers(0, 4, (n, d)).astype(float)
    if family == "equal":
        return np.full((n, d), 0.3)
    if family == "tails":
        return np.exp(6 * rng.standard_normal((n, d)))
    x = rng.random((n, d))
    if family == "huge":
        x[0, 0] = 1e9
    elif family == "far":
        x = 1e7 + 1e-6 * x
    elif family == "tiny":
        x *= 1e-160
    return x


def problem(rng, metric, family, shape, d, weighted=False):
    n, m = shape
    if metric == "haversine":
        scale = {"far": 1e-7, "tiny": 1e-160, "equal": 0.0}.get(family, 1.0)
        x, y = (np.column_stack((rng.uniform(-1.5, 1.5, k), rng.uniform(-7, 7, k))) * scale for k in shape)
        return bigsap.points(x, y, metric, radius=6371.0)
    x, y = cloud(rng, family, n, d), cloud(rng, family, m, d)
    if family == "apart":
        y = y + 2.0
    if metric == "cosine" and family in ("lattice", "equal", "tiny"):
        x, y = x + 1.0, y + 1.0  # no zero vectors
    if metric == "lowrank":
        terms = (x[:, 0] - x.max(), y.sum(axis=1)) if weighted else (None, None)
        return bigsap.lowrank(x - x.mean(), y, row_terms=terms[0], column_terms=terms[1])
    w = rng.integers(0, 4, d) + 0.5 if weighted else None
    p = float(rng.choice([1.5, 3.0, 7.0])) if metric == "minkowski" else None
    return bigsap.points(x, y, metric, p=p, w=w)


def dense(source):
    n, m = source.shape
    out = np.empty((n, m), source.dtype)
    source.read(np.arange(n), slice(0, m), out)
    return out


def prices(rng, source, maximize, kind):
    """Prices in the minimising sense: good ones as a search has them, with noise or without."""
    cost = (-1 if maximize else 1) * dense(source)
    n, m = cost.shape
    spread = np.ptp(cost) or 1.0
    if kind == "random":
        return spread * rng.standard_normal(m)
    if kind == "zero":
        return np.zeros(m)
    u = np.zeros(n)
    for _ in range(3):
        v = (cost - u[:, None]).min(axis=0)
        u = (cost - v).min(axis=1)
        u += 0.1 * spread * rng.random(n) ** 4
    v = (cost - u[:, None]).min(axis=0)
    return v + (1e-13 * spread * rng.standard_normal(m) if kind == "noisy" else 0.0)


def test_one_machine_code_for_all():
    """Whatever the metric: a warm-up that runs one of them has compiled all."""
    rng = np.random.default_rng(0)
    for metric in (*METRICS, "lowrank"):
        for d in (1, 2):
            source = problem(rng, metric, "apart", (50, 50), d, weighted=True)
            assert proof.by_bounds(source, None, Prices(np.zeros(50)), d == 1)[1].by == "bounds"
    kernels = (descend, trees._split, trees._fit)
    assert [len(kernel.signatures) for kernel in kernels] == [1, 1, 1]


def test_costs_that_are_not_what_is_said_of_them():
    """A source whose points are not those of its costs: a sample of rows tells, and all is
    looked at."""

    class Wrong(bigsap.sources.metrics.PointSource):
        def select(self, rows, columns):
            return Wrong(self.x[rows], self.y[columns], self.metric, p=None, w=None, radius=None)

        def prepared(self):
            kernel, x, y, *rest = super().prepared()
            return kernel, x, 3.0 - y, *rest

    x = np.random.default_rng(0).random((2, 500, 2))
    right = bigsap.points(*x)
    wrong = Wrong(*x, "sqeuclidean", p=None, w=None, radius=None)
    v = prices(np.random.default_rng(1), right, False, "good")
    found = proof.minima(wrong, None, Prices(v), False)
    assert found[1].by == "pairs"
    same(found[0], proof.minima(right, None, Prices(v), False)[0])


def some_matching(rng, n, m, full=True):
    k = min(n, m) if full else min(n, m) // 2
    matching = np.full(n, -1)
    matching[rng.permutation(n)[:k]] = rng.permutation(m)[:k]
    return matching


def same(one, other):
    for mine, theirs in zip((*whole(one), one.matched), (*whole(other), other.matched), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def needed_pairs(source, prices, maximize, found, width):
    """Pairs that lie clearly within ``width`` of their row's minimum."""
    cost = (-1 if maximize else 1) * dense(source)
    low = 0.0 if prices.low is None else prices.low
    excess = (cost - prices.high - low) - found.high[:, None]
    size = np.abs(cost) + np.abs(prices.high) + np.abs(found.high[:, None])
    return set(zip(*(x.tolist() for x in np.nonzero(excess + 1e-15 * size <= width)), strict=True))


@examples(300)
@given(
    metric=st.sampled_from((*METRICS, "lowrank")),
    family=st.sampled_from(FAMILIES),
    shape=st.sampled_from(SHAPES),
    d=st.sampled_from((1, 2, 3, 6)),
    kind=st.sampled_from(("good", "noisy", "random", "zero")),
    maximize=st.booleans(),
    matched=st.booleans(),
    weighted=st.booleans(),
    paired=st.booleans(),
    threads=st.sampled_from((1, 3)),
    seed=st.integers(0, 10_000),
)
def test_what_the_pass_finds(
    metric, family, shape, d, kind, maximize, matched, weighted, paired, threads, seed
):
    rng = np.random.default_rng(seed)
    source = problem(rng, metric, family, shape, d, weighted)
    v = prices(rng, source, maximize, kind)
    matching = some_matching(rng, *shape) if matched else None
    low = np.spacing(v) * rng.uniform(-0.5, 0.5, v.size) if paired else None
    given_prices = Prices(v, low)
    found = proof.by_bounds(source, matching, given_prices, maximize, threads)
    assert found[1].by == "bounds"
    same(found[0], row_minima(source, matching, given_prices, maximize, threads, 1 << 20, None))
    width = 1e-9 * float(np.ptp(v)) + 1e-12
    near = proof.by_bounds(source, matching, given_prices, maximize, threads, width=width)[0]
    same(near, found[0])
    every = row_minima(source, matching, given_prices, maximize, threads, 1 << 20, None, width=width)
    if near.near is not None and every.near is not None:
        # Either may list some that are a little farther.
        wanted = needed_pairs(source, given_prices, maximize, found[0], width)
        for listed in (near.near, every.near):
            assert wanted <= set(zip(listed.rows.tolist(), listed.columns.tolist(), strict=True))


def in_boxes(source, v, maximize):
    """The tree of a source's columns, and what the kernels compute bounds from."""
    points = geometry(source)
    order, first, last, leaves = trees.planted(points.y, np.ones(points.y.shape[1]), lambda: None)
    there = source.select(np.arange(source.shape[0]), order)
    p = geometry(there)
    tree = trees.grown(p.y, v[order], first, last, leaves, lambda: None)
    sign = -1 if maximize else 1
    costs = PointCosts(p.x, p.scale, p.kind, sign, p.factor, p.power, p.slip, p.blur, math.inf, 0, 0)
    return there, tree, costs, v[order]


@examples(60)
@given(
    metric=st.sampled_from((*METRICS, "lowrank")),
    family=st.sampled_from(FAMILIES),
    d=st.sampled_from((1, 2, 3, 6)),
    kind=st.sampled_from(("good", "noisy", "random")),
    maximize=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_no_bound_is_above_a_pair_of_its_box(metric, family, d, kind, maximize, seed):
    """In exact arithmetic, against what the source computes, margins of rounding included."""
    rng = np.random.default_rng(seed)
    source = problem(rng, metric, family, (12, 200), d, weighted=True)
    v = prices(rng, source, maximize, kind)
    there, tree, costs, v = in_boxes(source, v, maximize)
    signed = (-1 if maximize else 1) * dense(there)
    for row in range(12):
        exact = [Fraction(c) - Fraction(w) for c, w in zip(signed[row].tolist(), v.tolist(), strict=True)]
        for node in range(tree.first.size):
            box = slice(tree.first[node], tree.last[node])
            assert _plain(costs, tree, row, node) <= signed[row, box].min()
            sloped = _sloped(costs, tree, row, node)
            if np.isfinite(sloped):
                assert Fraction(sloped) <= min(exact[box])


@pytest.mark.parametrize(
    ("source", "factor"),
    [
        (("euclidean", 1e-71), 1e-90),
        (("euclidean", 1e-160), 1e-90),
        (("euclidean", 1e-163), 1e130),
        (("minkowski", 1e-30), 1e100),  # to the power of 7 beyond float64
        (("minkowski", 3e-47), 1e40),
        (("sqeuclidean", 1e-95), 1e-130),
        (("lowrank", 1e-200), 1e-130),
    ],
)
@pytest.mark.parametrize("maximize", [False, True])
def test_no_bound_of_multiplied_costs_hides_what_underflows(source, factor, maximize):
    (metric, size), rng = source, np.random.default_rng(7)
    x, y = rng.random((12, 3)) * size, rng.random((200, 3)) * size
    if metric == "lowrank":
        plain = bigsap.lowrank(x, y / size / size)
    else:
        plain = bigsap.points(x, y, metric, p=7.0 if metric == "minkowski" else None, max_distance=1.0)
    multiplied = bigsap.scaled(plain, factor)
    if geometry(multiplied) is None:
        return  # every pair is read
    there, tree, costs, _ = in_boxes(multiplied, np.zeros(200), maximize)
    signed = (-1 if maximize else 1) * dense(there)
    for row in range(12):
        for node in range(tree.first.size):
            box = slice(tree.first[node], tree.last[node])
            assert _plain(costs, tree, row, node) <= signed[row, box].min()


def test_a_box_of_wrong_prices_would_show(monkeypatch):
    """Majorants that are too small exclude what they must not: the tests here would see it."""
    rng = np.random.default_rng(0)
    source = problem(rng, "sqeuclidean", "uniform", (400, 400), 2)
    v = prices(rng, source, False, "good")
    u = row_minima(source, None, Prices(v), False, 1, 1 << 20, None).high

    def grown(*given, real=trees.grown):
        tree = real(*given)
        tree.top[1:] -= 0.01
        tree.offset[1:] -= 0.01
        return tree

    np.testing.assert_array_equal(proof.by_bounds(source, None, Prices(v), False)[0].high, u)
    monkeypatch.setattr(trees, "grown", grown)
    found = proof.minima(source, None, Prices(v), False)
    assert found[1].by == "pairs"  # a sample of rows, looked at whole, told
    np.testing.assert_array_equal(found[0].high, u)
    monkeypatch.setattr(proof, "_as_read", lambda *given: np.zeros(1))
    assert (proof.by_bounds(source, None, Prices(v), False)[0].high != u).any()


@examples(60)
@given(
    metric=st.sampled_from(("sqeuclidean", "euclidean", "minkowski", "lowrank")),
    family=st.sampled_from(("uniform", "apart", "lattice", "equal")),
    shape=st.sampled_from(SHAPES),
    maximize=st.booleans(),
    whole=st.booleans(),
    must=st.booleans(),
    seed=st.integers(0, 10_000),
)
def test_rows_that_may_stay_unassigned(metric, family, shape, maximize, whole, must, seed):
    """Clipped costs, as they are solved, and the proof of the user's problem."""
    rng = np.random.default_rng(seed)
    n, m = shape
    source = problem(rng, metric, family, shape, 2)
    gate = np.quantile(dense(source), 0.2) * (0.5 + rng.random(n))
    if whole:
        gate = np.rint(gate).astype(np.int64)
    elif must:
        gate[rng.random(n) < 0.3] = -np.inf if maximize else np.inf
    gated = ClippedCosts(source, gate, maximize=maximize)
    v = rng.random(gated.shape[1]) - 0.5
    v[:m] += prices(rng, source, maximize, "good")
    found = proof.by_bounds(gated, None, Prices(v), maximize, 2)
    assert found[1].by == "bounds"
    same(found[0], row_minima(gated, None, Prices(v), maximize, 1, 1 << 20, None))
    matching = some_matching(rng, n, gated.shape[1])
    forbidden = np.isinf(dense(gated)[matching >= 0, matching[matching >= 0]]).any()
    if not forbidden:
        found = proof.by_bounds(gated, matching, Prices(v), maximize, 2)
        same(found[0], row_minima(gated, matching, Prices(v), maximize, 1, 1 << 20, None))
    part = some_matching(rng, n, m, full=False)
    part[np.isinf(gated.prices)] = -1
    if not np.isinf(gated.prices).any():
        equal_proofs(*(certify_gated(gated, part, v[:m], pairs=p) for p in (False, True)))
    equal_proofs(*(certify_gated(gated, None, v[:m], pairs=p) for p in (False, True)))


def equal_proofs(bounds, pairs):
    """Certificates that differ in how they were made only."""
    assert (bounds.by, pairs.by) == ("bounds", "pairs")
    assert bounds.bounds >= 0 == pairs.bounds
    for name in bounds.__dataclass_fields__:
        if name not in ("by", "bounds", "pairs"):
            np.testing.assert_array_equal(getattr(bounds, name), getattr(pairs, name), name)


@each(shape=SHAPES, maximize=[False, True], normalise=[False, True])
def test_certificates_are_the_same(shape, maximize, normalise):
    rng = np.random.default_rng(5)
    source = problem(rng, "euclidean", "clusters", shape, 3)
    v = prices(rng, source, maximize, "noisy")
    for matching in (None, some_matching(rng, *shape)):
        equal_proofs(
            *(
                certify(source, matching, v, maximize=maximize, normalise=normalise, pairs=p)
                for p in (False, True)
            )
        )


def wrong(result, what, rng):
    """One claim of a result made wrong."""
    from dataclasses import replace

    n, m = result.shape
    u, v = result.u.copy(), result.v.copy()
    sign = -1 if result.maximize else 1
    if what == "price":
        j = result.col_ind[rng.integers(result.col_ind.size)]
        v[j] += sign * 1e-4
        return replace(result, v=v)
    if what == "row dual":
        i = rng.integers(n)
        u[i] += sign * 1e-9
        return replace(result, u=u)
    if what == "bound":
        return replace(result, bound=result.bound + sign * 1e-9, gap=abs(result.gap - 1e-9))
    if what == "fun":
        return replace(result, fun=result.fun - sign * 1e-9)
    col4row = result.col4row.copy()
    a, b = result.row_ind[rng.permutation(result.row_ind.size)[:2]]
    col4row[[a, b]] = col4row[[b, a]]
    return bigsap.Result.from_assignment(
        col4row,
        sign * v,
        shape=(n, m),
        status="optimal",
        maximize=result.maximize,
        u=sign * u,
        fun=result.fun,
        bound=result.bound,
    )


@each(gate=[False, True], maximize=[False, True], shape=[(90, 90), (60, 110), (110, 60)])
def test_one_wrong_claim_is_refused(shape, maximize, gate):
    rng = np.random.default_rng(1)
    source = problem(rng, "sqeuclidean", "uniform", shape, 2)
    price = float(np.quantile(dense(source), 0.95 if maximize else 0.05)) if gate else None
    result = bigsap.solve(source, maximize=maximize, unassigned_cost=price)
    assert result.certificate == "bounds"
    for pairs in (False, True):
        assert result.verify(source, pairs=pairs).by == ("pairs" if pairs else "bounds")
    for what in ("price", "row dual", "bound", "fun", "pair"):
        for _ in range(3):
            false = wrong(result, what, rng)
            said = []
            for pairs in (False, True):
                with pytest.raises(CertificateError) as refused:
                    false.verify(source, pairs=pairs, unassigned_cost=price)
                said.append(str(refused.value))
            assert said[0] == said[1]


def test_all_pairs_when_asked_for():
    rng = np.random.default_rng(2)
    source = problem(rng, "sqeuclidean", "apart", (300, 300), 2)
    by = {c: bigsap.solve(source, certify=c, seed=1) for c in (True, "pairs", False)}
    assert by[True].certificate == "bounds"
    assert by["pairs"].certificate == "pairs"
    assert by[False].certificate is None
    assert by[False].stats["proof"] is None
    assert (by["pairs"].stats["proof"], by["pairs"].stats["proof_bounds"]) == ("pairs", 0)
    assert by["pairs"].stats["certificate_pairs"] == 90_000
    assert by[True].stats["proof"] == "bounds"
    assert 0 < by[True].stats["proof_bounds"] < by[True].stats["certificate_pairs"] < 90_000
    np.testing.assert_array_equal(by[True].u, by["pairs"].u)
    assert by[True].bound == by["pairs"].bound
    for wrong_word in ("bounds", "all", 2):
        with pytest.raises(OptionError, match="certify"):
            bigsap.solve(source, certify=wrong_word if wrong_word != 2 else "2")


def test_sources_without_bounds_are_passed_over():
    rng = np.random.default_rng(2)
    source = problem(rng, "sqeuclidean", "apart", (80, 80), 2)
    cost = dense(source)
    matrix = bigsap.solve(cost)
    assert (matrix.stats["proof"], matrix.stats["certificate_pairs"]) == ("pairs", 6400)
    counted = Counted(source)
    assert certify(counted, None, np.zeros(80)).by == "pairs"
    assert counted.pairs == 6400
    assert certify(bigsap.sum_of([source]), None, np.zeros(80)).by == "pairs"
    forbidden = np.where(np.arange(80) < 3, np.inf, 0.0)
    terms = bigsap.lowrank(cost[:, :2], cost[:, :2], row_terms=forbidden)
    assert certify(terms, None, np.zeros(80)).by == "pairs"
    pole = bigsap.points(np.float32(np.pi / 2) * np.ones((80, 2)), np.zeros((80, 2)), "haversine")
    assert certify(pole, None, np.zeros(80)).by == "pairs"


def test_what_is_wrong_is_said_by_the_pass():
    source = bigsap.points(np.zeros(40), np.full(40, 8e307), "cityblock")
    for every in (False, True):
        with pytest.raises(OverflowRiskError, match="row 0 are too far apart"):
            proof.minima(source, None, Prices(np.full(40, -1.2e308)), False, every_pair=every)
    gated = ClippedCosts(bigsap.points(np.arange(4.0), np.arange(3.0)), np.full(4, np.inf))
    with pytest.raises(CertificateError, match="forbidden pair"):
        certify(gated, [0, 1, 2, 3], np.zeros(4))
    with pytest.raises(InvalidCostError):
        bigsap.points([[np.nan, 0.0]], [[0.0, 0.0]])


def test_given_up_where_bounds_exclude_nothing(monkeypatch):
    """Noise for prices in many dimensions: the pass is made, and little was done in vain."""
    monkeypatch.setattr(policy, "PRODUCT_COORDINATES", 9)
    monkeypatch.setattr(policy, "PROOF_BOUNDS_SHARE", 4)
    rng = np.random.default_rng(0)
    source = problem(rng, "euclidean", "uniform", (2000, 2000), 8)
    v = rng.standard_normal(2000)
    v = np.where(rng.random(2000) < 0.5, v * 1e-3, v - 3)
    found = certify(source, None, v)
    assert found.by == "pairs"
    # Probed rows only.
    assert 4_000_000 <= found.pairs <= 4_000_000 + 256 * 2000
    monkeypatch.setattr(policy, "PROOF_BOUNDS_PROBED", 1)
    again = certify(source, None, v, threads=2)
    assert again.by == "pairs"
    assert again.pairs <= 4_000_000 * 1.3 + 2 * (1 << 24)
    assert (again.bound, again.u.tolist()) == (found.bound, found.u.tolist())


@pytest.fixture(scope="module")
def solved():
    """Disjoint points in the plane: the source, and good prices by a solve."""
    found = {}
    for n in (2000, 8000):
        rng = np.random.default_rng(n)
        source = bigsap.points(rng.random((n, 2)), 1.0 + rng.random((n, 2)))
        found[n] = source, bigsap.solve(source, certify="pairs", threads=1)
    return found


def test_defaults_use_bounds_from_a_size_on(solved, monkeypatch):
    monkeypatch.undo()
    source, result = solved[8000]
    assert result.verify(source).by == "bounds"
    assert result.verify(source, pairs=True).by == "pairs"
    small = bigsap.points(np.arange(50.0), np.arange(50.0))
    assert bigsap.solve(small).certificate == "pairs"


def test_whether_there_is_time_for_it(solved, monkeypatch):
    """A solve that was stopped proves what it has where bounds do it in time."""
    source, _ = solved[8000]
    assert 0.01 < proof.seconds_by_bounds(source) < 1
    assert proof.seconds_by_bounds(ClippedCosts(source, 1.0)) < 1
    assert proof.seconds_by_bounds(Counted(source)) == math.inf
    monkeypatch.undo()
    assert proof.seconds_by_bounds(bigsap.points(np.zeros(50), np.zeros(50))) == math.inf
    monkeypatch.setattr("bigsap.progress._LEAST_GRACE", 60.0)  # however busy the machine is
    said = []

    def slow(self):  # what a row took lately says that there is no time for a pass
        said.append(1)
        return 1000.0

    monkeypatch.setattr("bigsap.strategies.list_run.ListSolve.seconds_per_row", slow)

    def stop(progress):
        if progress.phase >= 2:
            raise StopIteration

    for certify_by, found in ((True, "bounds"), ("pairs", None)):
        result = bigsap.solve(source, callback=stop, callback_every=0.0, certify=certify_by)
        assert (result.status, result.certificate) == ("cancelled", found)
        assert said


@each(threads=[1, 2], at=[1, 5, 30])
def test_the_proof_can_be_left(solved, threads, at, monkeypatch):
    """Everywhere: while the tree is made, and among the rows."""
    source, result = solved[8000]
    looks = []

    class Enough(Exception):
        pass

    def tick(done):
        looks.append(done)
        if len(looks) == at:
            raise Enough

    monkeypatch.setattr(descending, "_WORK", 1 << 12)
    if threads == 2:
        join = threading.Thread.join  # more looks than one in 50 ms
        monkeypatch.setattr(threading.Thread, "join", lambda self, s=None: join(self, s and 1e-3))
    with pytest.raises(Enough):
        certify(source, result.col4row, result.v, threads=threads, tick=tick)
    assert looks == [0] * at  # no row's pairs were all looked at


def test_a_thread_that_fails_ends_the_proof(solved, monkeypatch):
    source, result = solved[8000]
    real = descents.descend
    called = []

    def descend(*given):
        called.append(1)
        if len(called) > 3:
            raise MemoryError("here")
        return real(*given)

    monkeypatch.setattr(descents, "descend", descend)
    for threads in (1, 2):
        called.clear()
        with pytest.raises(MemoryError, match="here"):
            certify(source, result.col4row, result.v, threads=threads)
