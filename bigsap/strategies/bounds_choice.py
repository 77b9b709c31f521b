"""Choice of how rows are evaluated, by a probe of a few rows.

Evaluations can use three kinds of bounds, best first: bounds of the source
(``engine.lists.bounds``), the block minima last computed (``engine.lists.layout``), or none, which
reads the whole row. The first two pay only where near columns share a block, which the probed rows
show: bounds that leave too many pairs open are dropped, and minima are kept only in a column order
in which few blocks contain the best columns. For a matrix that order is the compact order of the
columns' costs to a few landmark rows, unless the columns' own order is as good.
"""

from __future__ import annotations

import numpy as np

from bigsap import policy
from bigsap.engine.core import state as S
from bigsap.engine.lists.bounds import BLOCK
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.lists.ordering import compact_order
from bigsap.strategies.start.samples import Counts, read_gently
from bigsap.types import Array


def choose_bounds(engine: ListEngine, k: int, seed: int, counts: Counts) -> str:
    """Choose how this engine evaluates rows: ``"bounds"``, ``"minima"`` or ``"whole"``.

    The first prices must be set. Evaluates or reads about 36 rows, which are counted; deterministic
    for a seed.
    """
    n, m = engine.problem.shape
    bounded = engine.blocks.offset.size > 0
    if min(n, m) < policy.PROBE_ROWS:
        if bounded and engine.blocks.low.shape[0] > policy.FEW_COORDINATES:
            engine.drop_bounds()
        return "bounds" if engine.blocks.offset.size else "whole"
    generator = np.random.default_rng([seed, n, 7])
    some = generator.permutation(n)[: policy.PROBED_ROWS + policy.PROBE_LANDMARKS]
    if bounded:
        before = engine.pairs_evaluated
        engine.evaluate(some[: policy.PROBED_ROWS])
        if engine.pairs_evaluated - before <= policy.OPEN_SHARE * policy.PROBED_ROWS * m:
            return "bounds"
        engine.drop_bounds()
    if engine.products is not None:
        return "whole"
    n_blocks = -(-m // BLOCK)
    if not engine.immediate or engine.price.kind == "i" or n_blocks > policy.MOST_MINIMA_PER_ENTRY * k:
        return "whole"
    if not engine.affords(4 * n * n_blocks):  # in addition to the lists
        return "whole"
    signed = np.empty((some.size, m))
    for start, block in read_gently(engine.problem, engine.monitor, some, counts):
        signed[start : start + len(block)] = block
    signed *= engine.problem.sign
    counts.rows += some.size
    counts.pairs += signed.size
    taus = signed[: policy.PROBED_ROWS] - engine.v
    limit = np.partition(taus, min(k, m - 1), axis=1)[:, min(k, m - 1)]
    natural = np.empty(0, S.ID)
    share = _share(taus, limit)
    if not engine.from_fill:
        landmarks = signed[policy.PROBED_ROWS :].T.copy()
        landmarks[~np.isfinite(landmarks)] = 0.0
        order = compact_order(landmarks, engine.monitor.tick)
        scattered = _share(taus[:, order], limit)
        if scattered <= policy.SCATTERED_SHARE and scattered < policy.SCATTERED_GAIN * share:
            engine.keep_minima(order.astype(S.ID))
            return "minima"
    if share <= policy.NEIGHBOURS_SHARE:
        engine.keep_minima(natural)
        return "minima"
    return "whole"


def _share(taus: Array, limit: Array) -> float:
    """Return the share of the blocks that contain a ``c - v`` of at most its row's limit."""
    lowest = np.minimum.reduceat(taus, np.arange(0, taus.shape[1], BLOCK), axis=1)
    return float((lowest <= limit[:, None]).mean())
