"""The cost classes of the paper (Guthe and Thuerck 2021, section 5) and a few more.

Every class is a function ``(n, seed) -> (n, n) array``, the same for the same seed.
"""

from __future__ import annotations

import numpy as np


def random(n, seed=0):
    return np.random.default_rng(seed).random((n, n))


def points_of(name, n, seed=0):
    """The two point sets, (n, 2) each, of ``geometric`` or ``disjoint``."""
    rng = np.random.default_rng(seed)
    x, y = rng.random((n, 2)), rng.random((n, 2))
    if name == "disjoint":
        upper = np.arange(n) >= n // 2
        x += upper[:, None]
        y[:, 0] += upper
        y[:, 1] += ~upper
    return x, y


def squared_distances(x, y):
    return ((x[:, None, :] - y[None, :, :]) ** 2).sum(axis=2)


def geometric(n, seed=0):
    return squared_distances(*points_of("geometric", n, seed))


def disjoint(n, seed=0):
    return squared_distances(*points_of("disjoint", n, seed))


def sanity(n, seed=0):
    rng = np.random.default_rng(seed)
    return 0.1 * (1 - np.eye(n)) + rng.random(n)[None, :] + rng.random(n)[:, None]


def low_rank(n, seed=0, rank=1):
    a = np.random.default_rng(seed).random((n, rank))
    return sum(np.outer(a[:, k], a[:, k]) for k in range(rank))


def integers(n, seed=0, factor=1.0, dtype=np.int64):
    """U{0..factor n}; ``factor`` 0.1 gives massive ties."""
    return np.random.default_rng(seed).integers(0, int(factor * n), (n, n), dtype, endpoint=True)


CLASSES = {
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
