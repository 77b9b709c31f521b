"""Small matrices of many kinds, for comparisons with all assignments."""

from __future__ import annotations

import numpy as np


def costs_of(rng, kind, shape, maximize=False, bits=52):
    if kind == "ties":
        return rng.integers(0, 4, shape).astype(float)
    if kind == "equal":
        return np.full(shape, 2.5)
    if kind == "int64":
        return rng.integers(-(2**bits), 2**bits, shape)
    if kind == "uint8":
        return rng.integers(0, 9, shape).astype(np.uint8)
    if kind == "float32":
        return rng.standard_normal(shape).astype(np.float32)
    cost = rng.standard_normal(shape)
    if kind == "forbidden":
        cost[rng.random(shape) < 0.35] = -np.inf if maximize else np.inf
    if kind == "offset":
        cost += 1e9
    if kind == "outliers":
        cost[rng.random(shape) < 0.1] *= 1e12
    return cost
