"""Optimal results made without the engine, for the tests of ``Result``."""

from __future__ import annotations

import numpy as np

from bigsap.proof.certificate import certify
from bigsap.result import Result, Status
from bigsap.sources.arrays.matrix import ArraySource
from instances import geometric, integers
from oracle import optimal_prices, optimum

PHASES = [
    {"epsilon": 0.5, "rows_scanned": 40, "seconds": 0.1},
    {"epsilon": 0.125, "rows_scanned": 20, "seconds": 0.1},
    {"epsilon": 0.0, "rows_scanned": 12, "seconds": 0.1},
]


def solved(cost, maximize=False, **more):
    """An optimal result, made without the engine."""
    _, col4row = optimum(cost, maximize)
    prices = optimal_prices(cost, maximize)
    whole = cost.dtype.kind != "f"
    prices = np.array([int(p) if whole else float(p) for p in prices])
    c = certify(ArraySource(cost), col4row, prices, maximize=maximize)
    return Result.from_assignment(
        col4row,
        prices,
        c,
        shape=cost.shape,
        status=Status.OPTIMAL,
        maximize=maximize,
        nit=3,
        stats={"phases": PHASES, "rows_evaluated": 12, **more},
    )


def cost_of(kind, shape=(6, 6)):
    n = max(shape)
    cost = geometric(n, seed=4) if kind == "real" else integers(n, seed=4, factor=30)
    return np.ascontiguousarray(cost[: shape[0], : shape[1]])
