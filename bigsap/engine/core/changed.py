"""Errors for costs that change in place during a solve.

The owner of a matrix may write to it, or truncate the file behind it. Costs are checked when
they are first read. After that, kernels only guarantee that they stay within their arrays and
terminate. A change detected by these guards ends the solve with these errors.
"""

from __future__ import annotations

from typing import Any

from bigsap.errors import SourceError
from bigsap.types import Array


def changed(how: str) -> SourceError:
    """Return the error; ``how`` says how the change was noticed."""
    return SourceError(f"the costs changed during the solve: {how}")


def refuse_wild(v: Array, infinity: Any) -> None:
    """Raise for integer prices that no costs within the checked range can produce.

    Sums with such prices could overflow int64, or be mistaken for labels of unsettled columns.
    """
    if v.dtype.kind == "i" and v.size and not -infinity < v.min() <= v.max() < infinity:
        raise changed(f"prices reach from {v.min()} to {v.max()}")
