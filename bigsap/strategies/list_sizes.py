"""How many entries lists begin with: more where searches go far, fewer where bounds are close."""

from __future__ import annotations

import numpy as np

from bigsap.engine.lists.bounds import FEW_COORDINATES
from bigsap.engine.lists.layout import ENTRY_BYTES
from bigsap.problem import Problem
from bigsap.sources.base import Array, Separable

#: Entries a list starts with; with many rows, whose searches go further, some more.
LIST_SIZE = 128
LONG_LIST_SIZE = 160
#: The same where bounds make an evaluation cheap: shorter lists are evaluated more often, but scans
#: of them take less, and so does memory.
CLOSE_LIST_SIZE = 48
LONG_CLOSE_LIST_SIZE = 64
#: Costs whose bounds affine majorants make so tight; of few coordinates.
_CLOSE = ("square", "product")
#: Unless more than this share of the columns repeats others: short lists of ties are used up all
#: the time, and searches pass through all that ties.
_REPEATED = 0.125
#: However little memory there is: shorter lists are used up all the time.
LEAST_LIST_SIZE = 16
#: Rows from which on there are many.
LONG, _LONG_CLOSE = 10_000, 100_000


def list_size(problem: Problem, memory: int | None = None) -> int:
    """Entries that lists start with; memory: see ``course.Setting``."""
    usual = _usual_size(problem)
    if memory is None:
        return usual
    # Half of it to begin with; lists that doubled have some room on top. Shorter ones are
    # evaluated more often.
    return max(LEAST_LIST_SIZE, min(usual, memory // (2 * ENTRY_BYTES * max(1, problem.shape[0]))))


def _usual_size(problem: Problem) -> int:
    """Where memory does not limit them."""
    n, source = problem.shape[0], problem.source
    if isinstance(source, Separable) and not problem.maximize:
        terms = source.separable()
        few = terms is not None and terms.y.shape[0] <= FEW_COORDINATES
        if terms is not None and few and terms.kind in _CLOSE and not _repeated(terms.y):
            return CLOSE_LIST_SIZE if n < _LONG_CLOSE else LONG_CLOSE_LIST_SIZE
    return LIST_SIZE if n < LONG else LONG_LIST_SIZE


def _repeated(points: Array) -> bool:
    """Whether many of the points (d, m) are the same. O(m log m)."""
    if not points.size:
        return False
    mixed: Array = np.zeros(points.shape[1])
    factors = np.random.default_rng(0).random((points.shape[0],))
    for k in range(points.shape[0]):
        mixed = mixed + factors[k] * points[k]
    return bool(np.unique(mixed).size < (1.0 - _REPEATED) * mixed.size)
