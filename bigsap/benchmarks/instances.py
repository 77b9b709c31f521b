"""The cost classes of the paper (Guthe and Thuerck 2021, section 5), and integer ranges.

Every class is a function ``(n, seed) -> (n, n) array``, the same for the same seed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from bigsap.sources.base import Array

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
    found: Array = ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=2)
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


CLASSES: dict[str, Instance] = {
    "random": random,
    "geometric": geometric,
    "disjoint": disjoint,
    "sanity": sanity,
    "rank1": lambda n, seed=0: low_rank(n, seed, 1),
    "rank2": lambda n, seed=0: low_rank(n, seed, 2),
    "rank4": lambda n, seed=0: low_rank(n, seed, 4),
    "rank8": lambda n, seed=0: low_rank(n, seed, 8),
    "int0.1n": lambda n, seed=0: integers(n, seed, 0.1),
    "int1n": lambda n, seed=0: integers(n, seed, 1),
    "int10n": lambda n, seed=0: integers(n, seed, 10),
    "int1000n": lambda n, seed=0: integers(n, seed, 1000),
}
