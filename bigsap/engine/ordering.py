"""Column orders in which near columns are near, so that blocks of them are small."""

from __future__ import annotations

import numpy as np

from bigsap.sources.base import Array


def compact_order(points: Array, block: int, group: int = 1) -> Array:
    """Order points so that every ``block`` consecutive ones fill a small box.

    points: float64 (n, d). Halves the points along their widest extent, at multiples of
    ``block`` (of ``group`` blocks first), until a block is left (the leaves of a k-d
    tree). Against the Morton curve, whose stretches jump, this halved the pairs that
    bounded evaluations open.
    Returns intp (n,). O(n log n).
    """
    leaves = []
    stack = [np.arange(points.shape[0])]
    while stack:
        ids = stack.pop()
        if ids.size <= block:
            leaves.append(ids)
            continue
        part = points[ids]
        axis = int(np.argmax(part.max(axis=0) - part.min(axis=0)))
        unit = block * group if ids.size > block * group else block
        half = (-(-ids.size // unit) // 2) * unit
        split = np.argpartition(part[:, axis], half)
        stack.append(ids[split[half:]])
        stack.append(ids[split[:half]])
    return np.concatenate(leaves) if leaves else np.empty(0, np.intp)
