"""Nominal time of a cost, by the kind of its source: see ``policy``."""

from __future__ import annotations

from bigsap import policy
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource
from bigsap.sources.clipped import ClippedCosts
from bigsap.sources.expression.formula import ExpressionSource
from bigsap.sources.functions.callbacks import FunctionSource
from bigsap.sources.kept_bounds import Kept
from bigsap.sources.lowrank import LowRankSource, TableSource
from bigsap.sources.metrics import PointSource
from bigsap.sources.residual import Residual


def pair_ns(source: CostSource) -> float | None:
    """Return the nominal nanoseconds of a pair on one thread; None where they are not known.

    Reads nothing and compiles nothing: a function is a formula once it was compiled as one.
    """
    match source:
        case Kept() | ClippedCosts():
            return pair_ns(source.given)
        case Residual():
            return pair_ns(source.source)
        case PointSource():
            each = policy.METRIC_NS.get(source.prepared()[0], policy.COORDINATE_NS)
            return policy.BEGUN_NS + each * float(source.x.shape[1])
        case LowRankSource():
            return policy.BEGUN_NS + policy.RANK_NS * float(source.a.shape[1])
        case TableSource():
            return policy.TABLE_NS
        case ArraySource():
            return policy.ARRAY_NS
        case FunctionSource():
            return None if source.formula is None else pair_ns(source.formula)
        case ExpressionSource():
            tree = source.expression
            plain = policy.FORMULA_NS + policy.OPERATION_NS * tree.operations
            return plain + policy.LIBRARY_NS * tree.library_calls()
    return None
