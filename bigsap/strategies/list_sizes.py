"""Initial size of lists: larger where searches go far, smaller where bounds are close.

Points of many dimensions are nearly equally far from each other: a row's best columns reach a few
epsilons only, and short lists run out in each phase.
"""

from __future__ import annotations

import numpy as np

from bigsap import policy
from bigsap.engine.lists.layout import ENTRY_BYTES
from bigsap.problem import Problem
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource, Separable
from bigsap.sources.cuda.placed import ComputedOnDevice, multiplies_there
from bigsap.sources.products import is_multiplied
from bigsap.types import Array

#: Metrics for which affine majorants give close bounds, with few coordinates.
_CLOSE = ("square", "product")


def many_dimensions(source: CostSource) -> bool:
    """Return whether rows of a source are made by matrix products, here or on a device."""
    return is_multiplied(source) or multiplies_there(source)


def _served_there(problem: Problem) -> bool:
    """Return whether a device evaluates the rows that a search asks for, so that short lists pay."""
    source = problem.source
    if not isinstance(source, ComputedOnDevice) or source.shape[1] < policy.PRODUCT_COLUMNS:
        return False
    product = source.code().product
    return product is not None and not (problem.maximize and product.root)


def list_size(problem: Problem, memory: int | None = None, *, many: bool = False) -> int:
    """Return the entries that lists start with; memory, many: see ``list_run.ListSettings``."""
    n = problem.shape[0]
    kept = many and isinstance(problem.source, ArraySource)
    usual = policy.MANY_LIST_SIZE if kept else usual_list_size(problem, n)
    if memory is None:
        return usual
    # Lists begin with half of it, and the rest is for those that double. Shorter ones are evaluated more
    # often.
    return max(policy.LEAST_LIST_SIZE, min(usual, memory // (2 * ENTRY_BYTES * max(1, n))))


def usual_list_size(problem: Problem, n: int) -> int:
    """Return the size for ``n`` rows where memory does not limit it."""
    source = problem.source
    if _served_there(problem):
        return policy.DEVICE_MANY_LIST_SIZE
    if many_dimensions(source):
        return policy.MANY_LIST_SIZE if n < policy.LONG_LIST_ROWS else policy.LONG_MANY_LIST_SIZE
    if isinstance(source, Separable) and not problem.maximize:
        terms = source.separable()
        few = terms is not None and terms.y.shape[0] <= policy.FEW_COORDINATES
        if terms is not None and few and terms.kind in _CLOSE and not _repeated(terms.y):
            return policy.CLOSE_LIST_SIZE if n < policy.LONG_CLOSE_LIST_ROWS else policy.LONG_CLOSE_LIST_SIZE
    short, long = policy.LIST_SIZE, policy.LONG_LIST_SIZE
    if isinstance(source, ArraySource) and not source.mapped and source.shape[0] == source.shape[1]:
        short, long = policy.MATRIX_LIST_SIZE, policy.LONG_MATRIX_LIST_SIZE
    return short if n < policy.LONG_LIST_ROWS else long


def _repeated(points: Array) -> bool:
    """Return whether many of the points (d, m) are equal. O(m log m)."""
    if not points.size:
        return False
    mixed: Array = np.zeros(points.shape[1])
    factors = np.random.default_rng(0).random((points.shape[0],))
    for k in range(points.shape[0]):
        mixed = mixed + factors[k] * points[k]
    return bool(np.unique(mixed).size < (1.0 - policy.REPEATED_SHARE) * mixed.size)
