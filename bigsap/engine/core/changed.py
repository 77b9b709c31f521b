"""What is said when costs in place change under a solve.

Whoever owns a matrix may write to it, or cut short the file behind it. Costs are judged when
they are first read; from then on kernels only see to it that they stay within their arrays and
come to an end. Where that shows a change, the solve ends with these errors.
"""

from __future__ import annotations

from typing import Any

from bigsap.errors import SourceError
from bigsap.sources.base import Array


def changed(how: str) -> SourceError:
    """The error; ``how`` it was noticed."""
    return SourceError(f"the costs changed during the solve: {how}")


def refuse_wild(v: Array, infinity: Any) -> None:
    """Raise for integer prices that no costs within the judged range lead to.

    Sums with them could leave int64, and pass for labels of columns not settled yet.
    """
    if v.dtype.kind == "i" and v.size and not -infinity < v.min() <= v.max() < infinity:
        raise changed(f"prices reach from {v.min()} to {v.max()}")
