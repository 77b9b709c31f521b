"""Memory sizes in a request: conversion, and the check that a row of costs fits."""

from __future__ import annotations

from typing import Any

import numpy as np

import bigsap
from bigsap_server.costs import specs
from bigsap_server.costs.build import build
from bigsap_server.costs.request import JobRequest
from bigsap_server.costs.resolver import Resolver
from bigsap_server.costs.sizes import size_bytes
from bigsap_server.problems import HttpProblem

# Kinds that give columns as cheaply as rows: for a tall problem the columns are read.
_TURNED = {"points", "lowrank", "table", "expression", "sum", "scale", "forbid_above"}


def check_budgets(
    request: JobRequest, resolver: Resolver, shape: tuple[int, int], dtype: str, kinds: list[str]
) -> None:
    """Refuse a cache or a limit that cannot hold one row, since the solve would refuse it.

    shape, dtype, kinds: of the costs, as planned. Raises HttpProblem with the pointer.
    """
    options = request.options
    n, m = shape
    if not n or not m:
        return
    gated = options.unassigned_cost is not None
    width = max(n, m) if gated or _TURNED.issuperset(kinds) else m
    row_bytes = width * np.dtype(dtype).itemsize
    limit, cache = options.memory_limit, options.cache
    if limit is not None and size_bytes(limit) < row_bytes:
        raise HttpProblem(
            "invalid-spec",
            f"{limit} does not even hold one row of costs, {row_bytes} bytes",
            pointer="/options/memory_limit",
        )
    if cache is None or size_bytes(cache) >= row_bytes:
        return
    if gated or not _in_place(request.cost, resolver, request.shape):
        raise HttpProblem(
            "invalid-spec",
            f"a cache of {cache} does not hold one row of {width} costs, {row_bytes} bytes",
            pointer="/options/cache",
        )


def _in_place(cost: Any, resolver: Resolver, shape: list[int] | None) -> bool:
    """Return whether kernels scan the costs in place, so that there is no cache."""
    if not isinstance(cost, specs.Matrix) and not (isinstance(cost, specs.Zarr) and not cost.uri):
        return False
    source: bigsap.CostSource = build(cost, resolver, shape, False, "/cost")
    resident = getattr(source, "resident", None)
    return resident is not None and resident() is not None
