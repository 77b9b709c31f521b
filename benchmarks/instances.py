"""The cost classes of the paper (Guthe and Thuerck 2021, section 5), integer ranges, and more.

What users bring besides: tight clusters, repeated points, heavy tails, embeddings, a large offset,
forbidden pairs. A class is a function ``(n, seed) -> (n, n) array``, the same for the same seed.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bigsap.types import Array

Instance = Callable[..., Array]


def random(n: int, seed: int = 0) -> Array:
    """(n, n) independent costs, uniform in [0, 1)."""
    return np.random.default_rng(seed).random((n, n))


def points_of(name: str, n: int, seed: int = 0) -> tuple[Array, Array]:
    """The two point sets, (n, 2) each, of ``geometric`` or ``disjoint``."""
    rng = np.random.default_rng(seed)
    x, y = rng.random((n, 2)), rng.random((n, 2))
    if name == "disjoint":
        upper = np.arange(n) >= n // 2
        x += upper[:, None]
        y[:, 0] += upper
        y[:, 1] += ~upper
    return x, y


def squared_distances(x: Array, y: Array) -> Array:
    """(n, m) squared distances of the points (n, d) and (m, d)."""
    found = np.empty((len(x), len(y)))
    for start in range(0, len(x), 64):  # no three-dimensional temporary of the whole
        part = x[start : start + 64, None, :] - y[None, :, :]
        found[start : start + 64] = (part**2).sum(axis=2)
    return found


def geometric(n: int, seed: int = 0) -> Array:
    """Squared distances of points in one square."""
    return squared_distances(*points_of("geometric", n, seed))


def disjoint(n: int, seed: int = 0) -> Array:
    """Squared distances of points in neighbouring squares."""
    return squared_distances(*points_of("disjoint", n, seed))


def sanity(n: int, seed: int = 0) -> Array:
    """0.1 off the diagonal, plus a number a row and a number a column."""
    rng = np.random.default_rng(seed)
    return 0.1 * (1 - np.eye(n)) + rng.random(n)[None, :] + rng.random(n)[:, None]


def low_rank(n: int, seed: int = 0, rank: int = 1) -> Array:
    """The symmetric sum of ``rank`` outer products of nonnegative vectors."""
    a = np.random.default_rng(seed).random((n, rank))
    found: Array = np.outer(a[:, 0], a[:, 0])
    for k in range(1, rank):  # one by one: all at once take 2 * rank matrices
        found += np.outer(a[:, k], a[:, k])
    return found


def integers(n: int, seed: int = 0, factor: float = 1.0, dtype: npt.DTypeLike = np.int64) -> Array:
    """U{0..factor n}; ``factor`` 0.1 gives massive ties."""
    generator = np.random.default_rng(seed)
    found: Array = generator.integers(0, int(factor * n), (n, n), dtype, endpoint=True)
    return found


def clusters(n: int, seed: int = 0) -> Array:
    """Distances of points in 12 tight clusters of five dimensions."""
    rng = np.random.default_rng(seed)
    centres = rng.random((12, 5))

    def points() -> Array:
        found: Array = centres[rng.integers(12, size=n)] + 0.01 * rng.standard_normal((n, 5))
        return found

    return np.sqrt(squared_distances(points(), points()))


def duplicates(n: int, seed: int = 0) -> Array:
    """Squared distances of points in the plane; each point has some ten rows and columns."""
    x, y = points_of("geometric", max(1, n // 10), seed)
    rng = np.random.default_rng([seed, 1])
    return squared_distances(x[rng.integers(len(x), size=n)], y[rng.integers(len(y), size=n)])


def product(n: int, seed: int = 0) -> Array:
    """c = i * j in shuffled order (Machol and Wien)."""
    rng = np.random.default_rng(seed)
    return np.outer(1.0 + rng.permutation(n), 1.0 + rng.permutation(n))


def lognormal_rank1(n: int, seed: int = 0) -> Array:
    """An outer product of lognormal factors, sigma 2: six orders of magnitude."""
    rng = np.random.default_rng(seed)
    return np.outer(rng.lognormal(0.0, 2.0, n), rng.lognormal(0.0, 2.0, n))


def embeddings(n: int, seed: int = 0) -> Array:
    """1 - cosine of random directions in 64 dimensions."""
    rng = np.random.default_rng(seed)

    def directions() -> Array:
        found = rng.standard_normal((n, 64))
        return found / np.linalg.norm(found, axis=1, keepdims=True)  # type: ignore[no-any-return]

    found: Array = 1.0 - directions() @ directions().T
    return found


def half_forbidden(n: int, seed: int = 0) -> Array:
    """Independent costs of which each second is forbidden; the diagonal never is."""
    rng = np.random.default_rng(seed)
    found = np.where(rng.random((n, n)) < 0.5, np.inf, rng.random((n, n)))
    np.fill_diagonal(found, rng.random(n))
    return found


#: Those that neither the paper nor the ranges of integers have.
MORE: dict[str, Instance] = {
    "clusters": clusters,
    "duplicates": duplicates,
    "i*j": product,
    "lognormal": lambda n, seed=0: np.random.default_rng(seed).lognormal(0.0, 2.0, (n, n)),
    "rank1 lognormal": lognormal_rank1,
    "cosine 64-D": embeddings,
    "offset 1e9": lambda n, seed=0: 1e9 + geometric(n, seed),  # 2e-7 of precision is left
    "half forbidden": half_forbidden,
}
CLASSES: dict[str, Instance] = {
    "random": random,
    "geometric": geometric,
    "disjoint": disjoint,
    "sanity": sanity,
    **{f"rank{k}": functools.partial(low_rank, rank=k) for k in (1, 2, 4, 8)},
    **{f"int{k}n": functools.partial(integers, factor=float(k)) for k in ("0.1", 1, 10, 1000)},
}


def matrix(cls: str, n: int, seed: int) -> Array:
    """(n, n) costs of the class: float64, or int32 for the integer classes."""
    if cls.startswith("int"):
        return integers(n, seed, float(cls[3:-1]), np.int32)
    return np.ascontiguousarray((CLASSES | MORE)[cls](n, seed))


def total(cost: Array, columns: Array) -> float | None:
    """The cost of the assignment, None when ``columns`` is no permutation."""
    n = cost.shape[0]
    columns = np.asarray(columns)
    if columns.shape != (n,) or not np.array_equal(np.sort(columns), np.arange(n)):
        return None
    picked = cost[np.arange(n), columns.astype(np.intp)]
    return float(picked.sum(dtype=np.int64 if picked.dtype.kind in "iu" else np.float64))


def factors(rank: int, n: int, seed: int) -> tuple[Array, Array]:
    """(n, rank) factors of ``rank2``, ``rank8``, ...: costs are ``a @ a.T``."""
    a = np.random.default_rng(seed).random((n, rank))
    return a, a
