"""Numbers made to be got wrong: costs of two sizes, of all sizes, nearly equal, cancelling."""

from __future__ import annotations

import math
import sys
import zlib
from typing import Any

import numpy as np

#: Sizes of what stands for *forbidden*, or of a faulty reading.
SENTINELS = (1e6, 1e9, 1e12, 1e13, 1e14, 1e15, 1e16, 1e18, sys.maxsize, 1e30, 1e100, 1e300)
FAMILIES = (
    "sentinel",
    "outlier",
    "offset",
    "tiny",
    "denormal",
    "spread",
    "cancel",
    "ties",
    "whole",
    "large whole",
    "single",
    "stairs",
    "huge",
    "plain",
)


def plain(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Ordinary costs."""
    kind = rng.integers(6)
    if kind == 0:
        return rng.random((n, m)) * 10.0 ** rng.integers(-3, 4)
    if kind == 1:
        return rng.normal(size=(n, m))
    if kind == 2:
        return rng.pareto(0.7, (n, m))
    if kind == 3:
        return np.rint(rng.random((n, m)) * 9)
    if kind == 4:
        return np.abs(rng.random(n)[:, None] - rng.random(m))
    x, y = rng.random((n, 2)), rng.random((m, 2))
    return ((x[:, None] - y) ** 2).sum(-1)


def sentinel(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Numbers that stand for *forbidden*, in a shape that leaves few ways around them."""
    cost = plain(rng, n, m)
    size = float(rng.choice(SENTINELS))
    where = np.zeros((n, m), bool)
    for _ in range(int(rng.choice([1, 1, 2, 5]))):
        i, j = int(rng.integers(n)), int(rng.integers(m))
        kind = rng.integers(7)
        if kind == 0:
            where[i] = True
        elif kind == 1:
            where[:, j] = True
        elif kind <= 3:  # a forced pair
            where[i], where[:, j] = True, True
            where[i, j] = False
        elif kind == 4:
            where[: i + 1, : j + 1] = True
        elif kind == 5:
            where |= rng.random((n, m)) < rng.choice([0.02, 0.3, 0.9])
        else:
            where |= np.arange(n)[:, None] > np.arange(m)
            where = where[:, ::-1] if rng.random() < 0.3 else where
    marks = np.full((n, m), size)
    if rng.random() < 0.2:
        marks *= 1 + rng.random((n, m))
    if rng.random() < 0.2:
        marks[rng.random((n, m)) < 0.3] = float(rng.choice(SENTINELS))
    if rng.random() < 0.1:
        marks = -marks
    return np.where(where, marks, cost)


def outlier(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Whole rows and columns moved by much, or of another scale."""
    cost = plain(rng, n, m)
    for _ in range(int(rng.choice([1, 1, 2, 4]))):
        i, j = int(rng.integers(n)), int(rng.integers(m))
        size = float(rng.choice(SENTINELS[:-2]))
        kind = rng.integers(5)
        if kind == 0:
            cost[i] += size
        elif kind == 1:
            cost[:, j] += size
        elif kind == 2:
            kept = cost[i, j]
            cost[i] += size
            cost[:, j] += size
            cost[i, j] = kept
        elif kind == 3:
            cost[i] *= size
        else:
            cost[:, j] *= size
    return cost


def offset(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Nearly equal costs around a number far from 0."""
    size = 10.0 ** rng.uniform(9, 15) * rng.choice([-1, 1])
    if rng.random() < 0.3:
        return size * (1 + rng.integers(0, 9, (n, m)) * 2.0**-52)
    return size + plain(rng, n, m)


def tiny(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Next to nothing beside ordinary numbers."""
    small = float(rng.choice([1e-300, 1e-200, 1e-30, 1e-17]))
    return np.where(rng.random((n, m)) < rng.random(), small * rng.random((n, m)), plain(rng, n, m))


def denormal(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Few units of the smallest number, alone or beside others."""
    cost = rng.integers(0, int(rng.choice([3, 100, 2**40])), (n, m)) * 5e-324
    if rng.random() < 0.4:
        at = rng.random((n, m)) < 0.5
        cost[at] = rng.random(int(at.sum())) * float(rng.choice([1e-307, 1e-290, 1.0]))
    return cost * float(rng.choice([-1.0, 1.0]))


def spread(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Of all sizes."""
    reach = float(rng.choice([8, 17, 40, 150, 300]))
    cost = 10.0 ** rng.uniform(-reach, reach, (n, m))
    return cost * rng.choice([-1, 1], (n, m)) if rng.random() < 0.5 else cost


def cancel(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Large terms of rows and columns that cancel in every assignment, or nearly."""
    size = 10.0 ** rng.uniform(3, 18)
    rows, columns = size * rng.normal(size=n), size * rng.normal(size=m)
    if rng.random() < 0.5 and n == m:
        columns = -rng.permutation(rows)
    small = plain(rng, n, m)
    return rows[:, None] + columns + small


def ties(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Few values."""
    values = rng.choice([0.0, -0.0, 1.0, 2.0, 0.1, 1e9, 1e16, 1e-300, -1.0], 3)
    return rng.choice(values, (n, m))


def whole(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Integers of the usual types."""
    kind = str(rng.choice(["i1", "u1", "i2", "u2", "i4", "u4", "i8"]))
    info = np.iinfo(kind)
    high = min(int(info.max), int(rng.choice([2, 100, 2**31])))
    low = max(int(info.min), -high) if rng.random() < 0.5 else 0
    return rng.integers(low, high, (n, m), endpoint=True).astype(kind)


def large_whole(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Integers that doubles cannot hold, up to those whose sums no integer can."""
    base = 2 ** int(rng.choice([40, 53, 53, 54, 55, 62]))
    cost = base + rng.integers(-9, 10, (n, m))
    kind = rng.integers(3)
    if kind == 0:
        cost = rng.integers(-base, base, (n, m))
    elif kind == 1:
        cost = np.where(rng.random((n, m)) < 0.3, base, rng.integers(0, 100, (n, m)))
    return cost.astype(np.int64)


def single(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """float32, with an outlier or a sentinel now and then."""
    make = [plain, sentinel, outlier, offset, tiny, cancel][int(rng.integers(6))]
    limit = float(np.finfo(np.float32).max)
    return np.clip(make(rng, n, m), -limit, limit).astype(np.float32)


def stairs(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Products and powers, whose prices grow from row to row."""
    i, j = np.arange(n)[:, None], np.arange(m)
    kind = rng.integers(4)
    if kind == 0:
        return (i + 1.0) * (j + 1.0) * 10.0 ** rng.integers(-2, 13)
    if kind == 1:
        step = min(8.0, 500.0 / (n + m))
        return 2.0 ** (step * (i + j)) * (1 + 1e-3 * rng.random((n, m)))
    if kind == 2:
        return np.where(i >= j, 10.0 ** rng.uniform(0, 15), rng.random((n, m)))
    return np.abs(i - j) * 1e12 + rng.random((n, m))


def huge(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Whose sums come near the largest double."""
    cost = float(rng.choice([1e290, 1e300, 1e304])) * rng.normal(size=(n, m))
    return np.where(rng.random((n, m)) < 0.5, plain(rng, n, m), cost)


def forced(rng: np.random.Generator, n: int, m: int) -> np.ndarray:
    """Ordinary costs but one pair that must be taken: 1e6 to sys.maxsize elsewhere in its row and
    column."""
    cost = plain(rng, n, m)
    size = float(rng.choice([*10.0 ** rng.uniform(6, 18, 6), 1e13, 1e16, sys.maxsize]))
    i, j = (0, 0) if rng.random() < 0.5 else (int(rng.integers(n)), int(rng.integers(m)))
    kept = cost[i, j]
    cost[i] = cost[:, j] = size * max(1.0, float(np.abs(cost).max()) if size < 1e18 else 1.0)
    cost[i, j] = kept
    return cost


_MAKERS = {
    "sentinel": sentinel,
    "outlier": outlier,
    "offset": offset,
    "tiny": tiny,
    "denormal": denormal,
    "spread": spread,
    "cancel": cancel,
    "ties": ties,
    "whole": whole,
    "large whole": large_whole,
    "single": single,
    "stairs": stairs,
    "huge": huge,
    "plain": plain,
    "forced": forced,
}


def matrix_of(
    rng: np.random.Generator, n: int, m: int, maximize: bool, families: Any
) -> tuple[str, np.ndarray]:
    """A family and a matrix of it, now and then negated, permuted, or with forbidden pairs."""
    family = str(rng.choice(families))
    with np.errstate(over="ignore", under="ignore"):
        cost = _MAKERS[family](rng, n, m)
    if cost.dtype.kind == "f":
        if maximize or rng.random() < 0.1:
            cost = -cost if rng.random() < 0.7 else cost
        if rng.random() < 0.15:
            at = rng.random((n, m)) < rng.choice([0.05, 0.4, 0.9])
            cost[at] = -math.inf if maximize else math.inf
            family += " inf"
    if rng.random() < 0.3:
        cost = cost[rng.permutation(n)][:, rng.permutation(m)]
    return family, np.ascontiguousarray(cost)


def points_of(rng: np.random.Generator, n: int, m: int) -> tuple[np.ndarray, np.ndarray, str]:
    """Points, some of which are faulty readings; and the family's name."""
    d = int(rng.integers(1, 4))
    kind = rng.integers(4)
    if kind == 0:
        x, y = rng.random((n, d)), rng.random((m, d))
    elif kind == 1:
        x, y = rng.integers(0, 8, (n, d)) * 1.0, rng.integers(0, 8, (m, d)) * 1.0
    elif kind == 2:
        centres = rng.random((4, d)) * 10.0 ** rng.uniform(0, 6)
        x = centres[rng.integers(4, size=n)] + rng.normal(size=(n, d)) * 1e-3
        y = centres[rng.integers(4, size=m)] + rng.normal(size=(m, d)) * 1e-3
    else:
        x = rng.random((n, d))
        y = x[rng.integers(n, size=m)] + rng.normal(size=(m, d)) * 10.0 ** rng.uniform(-12, -2)
    family = "points"
    if rng.random() < 0.2:
        y = y + 10.0 ** rng.uniform(3, 9)
        family += " moved"
    if rng.random() < 0.7:
        family += " faulty"
        for _ in range(int(rng.choice([1, 1, 2, 5]))):
            far = 10.0 ** rng.uniform(5, 15) * rng.normal(size=d)
            i, j, both = int(rng.integers(n)), int(rng.integers(m)), rng.random()
            if both < 0.7:
                x[i] = far
            if both > 0.3:
                y[j] = far if rng.random() < 0.5 else -far
    # Of numbers of its own, so that the numbers of problems found earlier still name them.
    own = np.random.default_rng(zlib.crc32(x.tobytes()))
    if own.random() < 0.15:
        more = 10.0 ** own.uniform(-9, 3)
        x, y = (np.column_stack((side, more * own.normal(size=(len(side), 18)))) for side in (x, y))
        family += " many dimensions"
        if own.random() < 0.7:
            x, y = x.astype(np.float32), y.astype(np.float32)
            family += " single"
    return x, y, family
