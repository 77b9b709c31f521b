"""Matrices of whole numbers that are hard for the Hungarian method."""

from __future__ import annotations

import numpy as np


def costs_of(kind, n, m, seed):
    """Whole numbers: many ties, few, none; deep trees; columns that all rows like, or none."""
    g = np.random.default_rng(seed)
    i, j = np.arange(n)[:, None], np.arange(m)
    if kind == "equal":
        return np.full((n, m), 7)
    if kind == "two values":
        return g.integers(0, 2, (n, m))
    if kind == "few cheap":
        cost = g.integers(5, 9, (n, m))
        cost[:, g.permutation(m)[: max(1, m // 4)]] = 0
        return cost
    if kind == "lonely":
        cost = g.integers(0, 3, (n, m))
        cost[:, g.integers(0, m, 3)] += 50
        return cost
    if kind == "twins":
        cost = g.integers(0, 40, (n, m))
        return cost[np.ix_(np.arange(n) // 2, np.arange(m) // 2)]
    if kind == "sanity":
        return 10 * g.integers(0, 99, n)[:, None] + 10 * g.integers(0, 99, m) + (i != j)
    if kind == "product":
        return (i + 1) * (j + 1) % 251 if n > 200 else (i + 1) * (j + 1)
    if kind == "identity":
        return 3 * (g.permutation(n)[:, None] % m != j)
    share = {"0.1n": 0.1, "n": 1, "10n": 10, "1000n": 1000}[kind]
    return g.integers(0, max(1, int(share * n)) + 1, (n, m))


KINDS = (
    "equal",
    "two values",
    "few cheap",
    "lonely",
    "twins",
    "sanity",
    "product",
    "identity",
    "0.1n",
    "n",
    "10n",
    "1000n",
)
