"""Every source pickles, copies and deep-copies at any time; its costs are the same afterwards."""

import copy
import functools
import importlib.util
import multiprocessing
import pickle

import numpy as np
import pytest

import bigsap
import cluster_costs
from bigsap.sources import ArraySource, Counted, SliceableSource, converted
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.cluster.recipes import followed, recipe_of
from bigsap.sources.packed import WithoutMissing
from contracts import whole
from remote_provider import Provider

RNG = np.random.default_rng(5)
X, Y = RNG.random((30, 2)), RNG.random((40, 2))
COSTS = RNG.random((30, 40))
WAYS = {
    "pickle": lambda source: pickle.loads(pickle.dumps(source)),
    "old pickle": lambda source: pickle.loads(pickle.dumps(source, 2)),
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
}


def difference(i, j, x, y):
    return abs(x[i, 0] - y[j, 0])


def row(i, x, y):
    return np.abs(x[i, 0] - y[:, 0])


def block(rows, out, x, y):
    out[:] = np.abs(x[rows, :1] - y[:, 0])


def scaled_difference(factor, i, j, x, y):
    return factor * abs(x[i, 0] - y[j, 0])


class Callable:
    def __init__(self, factor):
        self.factor = factor

    def __call__(self, i, j):
        return self.factor * (i - j) ** 2


class Rows:
    """A user's own source."""

    shape, dtype = (30, 40), np.dtype("f8")

    def read(self, rows, columns, out):
        out[...] = COSTS[rows, columns]


def _sources():
    many = (150, 160)  # worth compiling
    x, y = RNG.random((150, 2)), RNG.random((160, 2))
    data = (x, y)
    offset = 1.5
    return {
        "array": lambda folder: ArraySource(COSTS),
        "integers": lambda folder: ArraySource(np.arange(12).reshape(3, 4)),
        "every second": lambda folder: ArraySource(COSTS[::2, ::-1]),
        "bool": lambda folder: ArraySource(COSTS > 0.5),
        "uint64": lambda folder: ArraySource(np.array([[2**63, 1]], np.uint64)),
        "npy": lambda folder: bigsap.from_npy(_npy(folder)),
        "map": lambda folder: bigsap.as_source(np.load(_npy(folder), mmap_mode="r")),
        "part of a map": lambda folder: ArraySource(np.load(_npy(folder), mmap_mode="r")[3:, 1:-1]),
        "reversed map": lambda folder: ArraySource(np.load(_npy(folder), mmap_mode="r")[::-2, ::-1]),
        "transposed map": lambda folder: ArraySource(np.load(_npy(folder), mmap_mode="r").T[2:]),
        "changed map": lambda folder: ArraySource(_changed(folder)),
        "sliceable": lambda folder: SliceableSource(cluster_costs.Sliceable(X, Y)),
        "points": lambda folder: bigsap.points(X, Y),
        "cosine": lambda folder: bigsap.points(X, Y, "cosine"),
        "minkowski": lambda folder: bigsap.points(X, Y, "minkowski", p=3.5, w=[1, 2]),
        "haversine": lambda folder: bigsap.points(X, Y, "haversine", radius=6371.0),
        "lowrank": lambda folder: bigsap.lowrank(X, Y, row_terms=X[:, 0]),
        "table": lambda folder: bigsap.table([[1, 2], [3, 4]], [0, 1, 1], [1, 0]),
        "expression": lambda folder: bigsap.expression("abs(x[i,0]-y[j,0])", (30, 40), x=X, y=Y),
        "value": lambda folder: bigsap.from_function(difference, many, data),
        "value in Python": lambda folder: bigsap.from_function(difference, many, data, compiled=False),
        "row": lambda folder: bigsap.from_function(row, many, data),
        "block": lambda folder: bigsap.from_function(block, many, data),
        "partial": lambda folder: bigsap.from_function(
            functools.partial(scaled_difference, 2.0), (30, 40), data, kind="value"
        ),
        "callable": lambda folder: bigsap.from_function(Callable(2.5), (30, 40)),
        "lambda": lambda folder: bigsap.from_function(lambda i, j: abs(x[i, 0] - y[j, 0]) + offset, many),
        "lambda by numba": lambda folder: bigsap.from_function(
            lambda i, j: float(np.linalg.norm(x[i] - y[j])), many, compiled=True
        ),
        "own": lambda folder: Rows(),
        "counted": lambda folder: Counted(ArraySource(COSTS)),
        "converted": lambda folder: converted(bigsap.points(X, Y), "f4"),
        "gated": lambda folder: ClippedCosts(bigsap.points(X, Y), 0.5),
        "tall gated": lambda folder: ClippedCosts(bigsap.points(Y, X), np.arange(40.0), maximize=True),
        "sum": lambda folder: bigsap.sum_of([COSTS, bigsap.points(X, Y)]),
        "scaled": lambda folder: bigsap.scaled(bigsap.lowrank(X, Y), -2.0),
        "masked": lambda folder: bigsap.masked(COSTS, COSTS > 0.5),
        "forbid_above": lambda folder: bigsap.forbid_above(COSTS, 0.5),
        "missing": lambda folder: WithoutMissing(ArraySource(COSTS), maximize=False),
        **{f"zarr {kind}": functools.partial(_zarr, kind) for kind in ZARRS},
    }


def _npy(folder):
    np.save(folder / "costs.npy", COSTS)
    return folder / "costs.npy"


def _changed(folder):
    """A map that holds what the file does not."""
    mapped = np.load(_npy(folder), mmap_mode="c")
    mapped[2, 3] = 17.0
    return mapped


ZARRS = {
    "mapped": {"chunks": (30, 40), "compressors": None},
    "raw": {"chunks": (7, 40), "compressors": None},
    "decoded": {"chunks": (7, 40), "compressors": "auto"},
    "packed": {"chunks": (7, 40), "compressors": "auto", "attributes": {"scale_factor": 0.5}},
}


def _zarr(kind, folder):
    zarr = pytest.importorskip("zarr")
    zarr.create_array(store=folder / "costs.zarr", data=COSTS, **ZARRS[kind])
    return bigsap.from_zarr(folder / "costs.zarr")


SOURCES = _sources()


def same(source, other):
    assert type(other) is type(source)
    assert (other.shape, other.dtype) == (source.shape, source.dtype)
    assert np.array_equal(whole(other), whole(source))
    if hasattr(source, "fingerprint"):
        assert other.fingerprint() == source.fingerprint()
    if hasattr(source, "evaluated_by"):
        assert other.evaluated_by == source.evaluated_by


@pytest.mark.some(15)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", SOURCES)
def test_before_and_after_use(name, way, tmp_path):
    if "lambda" in name and "pickle" in way:
        pytest.importorskip("cloudpickle")
    source = SOURCES[name](tmp_path)
    early = WAYS[way](source)
    expected = whole(source)
    same(source, early)
    if way == "pickle" and name in ("points", "gated", "sum", "zarr decoded"):
        bigsap.solve(source)
    late = WAYS[way](source)
    same(source, late)
    again = WAYS[way](late)  # used, and pickled once already
    assert np.array_equal(whole(again), expected)


@pytest.mark.some(8)
@pytest.mark.parametrize("name", [n for n in SOURCES if n not in ("changed map",)])
def test_with_cloudpickle(name, tmp_path):
    cloudpickle = pytest.importorskip("cloudpickle")
    source = SOURCES[name](tmp_path)
    whole(source)
    same(source, cloudpickle.loads(cloudpickle.dumps(source)))


@pytest.mark.parametrize("name", ["part of a map", "reversed map", "transposed map"])
def test_a_part_of_a_map_is_that_part_on_a_worker(name, tmp_path):
    pytest.importorskip("cloudpickle")
    source = SOURCES[name](tmp_path)
    assert np.array_equal(whole(followed(recipe_of(source))), whole(source))


def test_deep_copies_share_no_arrays():
    x = X.copy()
    source = bigsap.from_function(difference, (30, 40), (x, Y))
    shallow, deep = copy.copy(source), copy.deepcopy(source)
    before = whole(deep)
    x += 1.0
    assert np.array_equal(whole(deep), before)
    assert np.array_equal(whole(shallow), whole(source))
    assert not np.array_equal(whole(shallow), before)


def test_a_provider():
    with Provider(COSTS) as provider, bigsap.from_http(provider.url, COSTS.shape, "f8") as source:
        for way in WAYS.values():
            with way(source) as other:
                same(source, other)


def test_a_provider_with_a_client_of_ones_own():
    httpx = pytest.importorskip("httpx")
    with Provider(COSTS) as provider, httpx.Client() as client:
        source = bigsap.from_http(provider.url, COSTS.shape, "f8", client=client)
        with source, pytest.raises(TypeError, match="a client of your own"):
            pickle.dumps(source)


def test_a_lambda_without_cloudpickle(monkeypatch):
    source = bigsap.from_function(lambda i, j: i + j, (3, 4))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(pickle.PicklingError, match="define it at the top of a module"):
        pickle.dumps(source)
    pickle.dumps(bigsap.from_function(difference, (30, 40), (X, Y)))
    assert np.array_equal(whole(copy.deepcopy(source)), whole(source))


def test_in_another_process(tmp_path):
    pytest.importorskip("cloudpickle")
    names = ["points", "npy", "part of a map", "lambda"]
    sources = [SOURCES[name](tmp_path) for name in names]
    expected = [whole(source) for source in sources]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        for name, found, costs in zip(names, pool.map(whole, sources), expected, strict=True):
            assert np.array_equal(found, costs), name


def test_a_mapped_file_that_is_gone(tmp_path):
    data = pickle.dumps(bigsap.from_npy(_npy(tmp_path)))
    (tmp_path / "costs.npy").unlink()
    with pytest.raises(bigsap.StoreError, match=r"costs\.npy' is not there"):
        pickle.loads(data)
