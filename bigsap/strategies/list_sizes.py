"""Initial size of lists: larger where searches go far, smaller where bounds are close."""

from __future__ import annotations

import numpy as np

from bigsap import policy
from bigsap.engine.lists.layout import ENTRY_BYTES
from bigsap.problem import Problem
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import Separable
from bigsap.sources.products import is_multiplied
from bigsap.types import Array

#: Metrics for which affine majorants give close bounds, with few coordinates.
_CLOSE = ("square", "product")
#: Bytes of an inner product that is kept, see ``engine.lists.products``.
_PRODUCT_BYTES = np.dtype(np.float32).itemsize


def list_size(problem: Problem, memory: int | None = None, products: int = 0) -> int:
    """Return the entries that lists start with; memory, products: see ``list_run.ListSettings``."""
    n, m = problem.shape
    usual = usual_list_size(problem, n)
    if memory is None:
        return usual
    if is_multiplied(problem.source) and _PRODUCT_BYTES * n * m > products:
        # Each evaluation multiplies anew: long lists end later.
        usual = max(usual, m // policy.PRODUCT_LIST_PART)
    # Lists begin with half of it, and the rest is for those that double. Shorter ones are evaluated more
    # often.
    return max(policy.LEAST_LIST_SIZE, min(usual, memory // (2 * ENTRY_BYTES * max(1, n))))


def usual_list_size(problem: Problem, n: int) -> int:
    """Return the size for ``n`` rows where memory does not limit it."""
    source = problem.source
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
