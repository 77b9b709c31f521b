"""Cost functions for tests of clusters: in a module, so that workers find them too."""

from __future__ import annotations

import os
import time

import numpy as np

import bigsap
from bigsap.sources.cluster import on_worker
from gate import Gate


def points(n, m=None, d=2, seed=0):
    """Two sets of points at random."""
    generator = np.random.default_rng(seed)
    return generator.random((n, d)), generator.random((m or n, d))


def same(one, other):
    """Whether two results have the same bits."""
    for name in ("col4row", "row4col", "u", "v"):
        a, b = getattr(one, name), getattr(other, name)
        assert (a.dtype, a.tobytes()) == (b.dtype, b.tobytes()), name
    assert (one.fun, one.bound, one.gap, one.status) == (other.fun, other.bound, other.gap, other.status)
    assert one.stats["method"] == other.stats["method"]
    return True


def called(name, n=300, m=None, kind="row", seed=0):
    """Costs of a function of this module, by its name, for points at random."""
    x, y = points(n, m, seed=seed)
    return bigsap.from_function(globals()[name], (n, m or n), (x, y), kind=kind, compiled=False)


def few_rows(n, m=None):
    """A cache that does not hold all rows: lists are evaluated again and again."""
    return 40 * 8 * (m or n)


def local(workers):
    """A cluster on this machine."""
    import distributed

    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        memory_limit=0,
        dashboard_address="127.0.0.1:0",
        silence_logs=50,
    )


def row(i, x, y):
    return ((x[i] - y) ** 2).sum(axis=1)


def part(i, start, stop, x, y):
    return ((x[i] - y[start:stop]) ** 2).sum(axis=1)


def block(rows, out, x, y):
    for k, i in enumerate(rows):
        out[k] = ((x[i] - y) ** 2).sum(axis=1)


def value(i, j, x, y):
    return float(((x[i] - y[j]) ** 2).sum())


def whole(i, x, y):
    return np.rint(100 * np.abs(x[i] - y).sum(axis=1)).astype(np.int64)


def single(i, x, y):
    return ((x[i] - y) ** 2).sum(axis=1).astype(np.float32)


def slow_row(i, x, y):
    time.sleep(0.002)
    return row(i, x, y)


def failing(i, x, y):
    if i in (37, 90):
        raise ZeroDivisionError("no such row")
    return row(i, x, y)


def failing_pair(i, j, x, y):
    if (i, j) == (20, 5):
        raise ZeroDivisionError("no such pair")
    return value(i, j, x, y)


def nan_row(i, x, y):
    costs = row(i, x, y)
    if i == 41:
        costs[3] = np.nan
    return costs


def told_row(i, x, y, folder):
    """Leaves a file that says which process was asked."""
    (folder / f"{i}-{os.getpid()}").touch()
    return row(i, x, y)


def gated_row(i, x, y, folder, after):
    """Once ``after`` rows were asked for anywhere, rows wait at a gate in the folder."""
    (folder / f"{i}-{os.getpid()}-{time.monotonic_ns()}").touch()
    if len(list(folder.glob("*-*"))) > after:
        Gate(folder / "gate").enter()
    return row(i, x, y)


def lose_prices(token):
    """Called on a worker: of this solve's costs it no longer has what blocks share."""
    for name, built in on_worker._built.items():
        if name.startswith(token):
            built.shared = None


class Own:
    """A source of somebody's own."""

    dtype = np.dtype(np.float64)

    def __init__(self, x, y):
        self.x, self.y, self.shape = x, y, (len(x), len(y))

    def read(self, rows, columns, out):
        for k, i in enumerate(np.asarray(rows).tolist()):
            out[k] = row(i, self.x, self.y)[columns]


class Sliceable:
    """Anything with a shape, a dtype and slices, as h5py's arrays have them."""

    dtype = np.dtype(np.float64)

    def __init__(self, x, y):
        self.x, self.y, self.shape = x, y, (len(x), len(y))

    def __getitem__(self, key):
        rows, columns = key
        some = np.arange(len(self.x))[rows]
        return np.stack([row(i, self.x, self.y) for i in np.atleast_1d(some)])[:, columns]


def die_first(path, values):
    """``on_worker.hold``, of which the first worker dies."""
    if not os.path.exists(path):
        open(path, "w").close()
        os._exit(1)
    return on_worker.hold(values)
