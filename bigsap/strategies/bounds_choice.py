"""Whether blocks of columns help evaluations: a probe on a few rows decides.

Three ways to open an evaluation, best first: bounds of the source (``engine.lists.bounds``),
the blocks' minima as they were last seen (``engine.lists.layout``), or nothing, and the whole row.
Both of the former pay only where near columns share a block, which the sampled rows show:
bounds that leave too much open are dropped, and minima are kept only in a column order in
which few blocks hold all that matters. For a matrix that order is the compact one of the
columns' costs to a few landmark rows, unless the columns' own order is as good.
"""

from __future__ import annotations

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.lists.bounds import BLOCK, FEW_COORDINATES
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.lists.ordering import compact_order
from bigsap.sources.base import Array
from bigsap.strategies.start.samples import Counts, read_gently

#: Problems with fewer rows or columns are not worth the sampled rows.
_WORTH = 2000
#: Rows sampled, and rows whose costs place the columns.
_SAMPLED = 32
_LANDMARKS = 4
#: Bounds are dropped when they leave more than this share of the pairs open.
_OPEN = 0.6
#: Shares of the blocks that may hold the k best of a row for minima to pay: a block of
#: columns from all over the row costs several times one of neighbours.
_NEIGHBOURS = 0.5
_SCATTERED = 0.2


def choose_bounds(engine: ListEngine, k: int, seed: int, counts: Counts) -> str:
    """Choose how rows of this engine are evaluated: ``"bounds"``, ``"minima"``, ``"whole"``.

    To be called with the first prices set. Evaluates or reads about 36 rows, which are
    counted; deterministic for a seed.
    """
    n, m = engine.problem.shape
    bounded = engine.blocks.offset.size > 0
    if min(n, m) < _WORTH:
        if bounded and engine.blocks.low.shape[0] > FEW_COORDINATES:
            engine.drop_bounds()
        return "bounds" if engine.blocks.offset.size else "whole"
    generator = np.random.default_rng([seed, n, 7])
    some = generator.permutation(n)[: _SAMPLED + _LANDMARKS]
    if bounded:
        before = engine.pairs_evaluated
        engine.evaluate(some[:_SAMPLED])
        if engine.pairs_evaluated - before <= _OPEN * _SAMPLED * m:
            return "bounds"
        engine.drop_bounds()
    n_blocks = -(-m // BLOCK)
    # Minima may take twice the memory of the lists.
    if not engine.immediate or engine.price.kind == "i" or n_blocks > 6 * k:
        return "whole"
    if not engine.affords(4 * n * n_blocks):  # beside the lists
        return "whole"
    signed = np.empty((some.size, m))
    for start, block in read_gently(engine.problem, engine.monitor, some, counts):
        signed[start : start + len(block)] = block
    signed *= engine.problem.sign
    counts.rows += some.size
    counts.pairs += signed.size
    taus = signed[:_SAMPLED] - engine.v
    limit = np.partition(taus, min(k, m - 1), axis=1)[:, min(k, m - 1)]
    natural = np.empty(0, S.ID)
    share = _share(taus, limit)
    if not engine.from_fill:
        landmarks = signed[_SAMPLED:].T.copy()
        landmarks[~np.isfinite(landmarks)] = 0.0
        order = compact_order(landmarks, engine.monitor.tick)
        scattered = _share(taus[:, order], limit)
        if scattered <= _SCATTERED and scattered < 0.7 * share:
            engine.keep_minima(order.astype(S.ID))
            return "minima"
    if share <= _NEIGHBOURS:
        engine.keep_minima(natural)
        return "minima"
    return "whole"


def _share(taus: Array, limit: Array) -> float:
    """The share of the blocks that hold a ``c - v`` of at most its row's limit."""
    lowest = np.minimum.reduceat(taus, np.arange(0, taus.shape[1], BLOCK), axis=1)
    return float((lowest <= limit[:, None]).mean())
