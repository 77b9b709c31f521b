"""Compile every kernel once, so that later processes find them on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from bigsap.methods import METHODS
from bigsap.rows import RowCache
from bigsap.solve import solve
from bigsap.sources.base import SCANNABLE
from bigsap.sources.lowrank import lowrank, table
from bigsap.sources.metrics import METRICS, points

_SIZE = 40
_PROBED = 1600


def warmup(report: Callable[[str], None] | None = None) -> int:
    """Run a tiny problem through every combination of kernels that is compiled.

    report: called with a line before each. Returns how many there were. Takes a minute
    or two on a fresh machine and a second when everything is cached already.
    """
    count = 0
    for name, run in _combinations():
        count += 1
        if report is not None:
            report(name)
        run()
    return count


def _combinations() -> Iterator[tuple[str, Callable[[], object]]]:
    # Hard enough that every sweep and the search are entered: low rank plus noise.
    generator = np.random.default_rng(0)
    a = generator.integers(0, 9, (_SIZE, 2))
    small = a @ a.T % 251 + generator.integers(0, 3, (_SIZE, _SIZE))
    for dtype in SCANNABLE:
        for method in METHODS:
            costs = small.astype(dtype)
            yield f"{dtype} costs, float64 prices, {method}", partial(solve, costs, method=method)
    for method in METHODS:
        yield f"int64 costs, int64 prices, {method}", partial(solve, small << 40, method=method)
    # Large enough for the probe, and of a kind that takes coarse first prices.
    wide = generator.integers(0, 15, (_PROBED, 2))
    yield "coarse first prices", partial(solve, (wide @ wide.T).astype(np.float64))
    x = generator.random((_SIZE, 3))
    y = generator.random((_SIZE, 3))
    for policy in ("slru", "lfu"):
        cache = RowCache(bytes=4 * _SIZE * 8, policy=policy)
        yield f"row cache, {policy}", partial(solve, points(x, y), cache=cache)
    for metric in METRICS:
        for d in (2,) if metric == "haversine" else (1, 2, 3):
            p = 3.0 if metric == "minkowski" else None
            source = points(x[:, :d], y[:, :d], metric, p=p)
            for method in METHODS:
                yield f"points, {metric}, {d}-D, {method}", partial(solve, source, method=method)
    for method in METHODS:
        yield f"lowrank, {method}", partial(solve, lowrank(x, y), method=method)
    yield "table", partial(solve, table(small, np.arange(_SIZE), np.arange(_SIZE)))
