"""CUDA files of this package that are compiled together: each set is a program of its own.

Files that several programs need, as the type of prices, are in several sets.
"""

from __future__ import annotations

from bigsap.sources.cuda.device_kernels import KernelFiles


def _files(*names: str) -> KernelFiles:
    return KernelFiles(__package__, tuple(f"kernels_{name}" for name in names))


DENSE = _files("price", "group", "post", "agree", "dense", "start")
ROWS = _files("price", "rows", "lists", "product")
FOREST = _files("grid", "forest")
FOREST_ROWS = _files("forest_rows")
BIDS = _files("price", "least", "grid", "bids")
COLUMNS = _files("price", "least", "columns")
CLASSICAL = _files("price", "least", "grid", "classical")
BATCH = _files("batch")
