"""Work that a strategy is expected to do, from facts that are known before it begins.

Counts, never seconds: pairs whose costs are computed, and rows, or lists, that searches go through.
The figures are of costs whose rows compete, as in ``policy`` under *expected work*; costs that a first
assignment nearly solves take fewer scans. ``Result.stats`` has both what was expected and what was done.
"""

from __future__ import annotations

from dataclasses import dataclass

from bigsap import policy
from bigsap.sources.base import CostSource, Separable


@dataclass(frozen=True, slots=True)
class Work:
    """Pairs computed and rows scanned, without those of the proof."""

    pairs: float
    scans: float

    def counts(self) -> dict[str, int]:
        """Return both as whole numbers."""
        return {"pairs": round(self.pairs), "scans": round(self.scans)}


def has_bounds(source: CostSource) -> bool:
    """Return whether bounds of boxes exclude most pairs of the source."""
    terms = source.separable() if isinstance(source, Separable) else None
    return terms is not None and terms.y.shape[0] <= policy.FEW_COORDINATES


def on_lists(shape: tuple[int, int], *, bounded: bool = False, kept: bool = False) -> Work:
    """Return the work of searches on lists.

    bounded: bounds exclude most pairs. kept: all rows are kept, so that each pair is computed once.
    """
    n, m = shape
    evaluations = 1.0 if kept else max(1.0, policy.EVALUATIONS * _growth(n, policy.EVALUATIONS_POWER))
    if bounded:
        evaluations = min(evaluations, policy.BOUNDED_PAIRS * _growth(m, policy.BOUNDED_POWER))
    return Work(evaluations * n * m, searched(shape))


def on_trees(shape: tuple[int, int]) -> Work:
    """Return the work of trees, which count no scans."""
    n, m = shape
    return Work(policy.TREE_PAIRS * n * m, 0.0)


def on_whole_rows(shape: tuple[int, int], kept: float = 1.0) -> Work:
    """Return the work of scans of whole rows. kept: share of the rows that stay in memory."""
    n, m = shape
    scans = searched(shape)
    return Work(n * m + (1.0 - kept) * max(0.0, scans - n) * m, scans)


def on_pairs(shape: tuple[int, int], pairs: float) -> Work:
    """Return the work of searches on a few pairs a row, of which so many are computed first."""
    return Work(pairs, searched(shape))


def on_columns(shape: tuple[int, int]) -> Work:
    """Return the work of searches from column to column, where few columns take many rows each."""
    n, m = shape
    return Work(policy.CONTRACTED_PAIRS * n * m, policy.CONTRACTED_SCANS * max(n, m))


def searched(shape: tuple[int, int]) -> float:
    """Return the rows that searches scan, all phases together."""
    n, m = sorted(shape)
    if n * policy.SKINNY <= m:
        return policy.SKINNY_SCANS * n
    return policy.SCANS * _growth(n, policy.SCANS_POWER) * n


def _growth(size: int, power: float) -> float:
    return float((max(size, 1) / policy.EXPECTED_ROWS) ** power)
