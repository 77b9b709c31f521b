"""Solves one problem of points that are never stored as a matrix; prints what it took as JSON.

With a fifth argument, ``lazy``, by POT's ``emd2_lazy``.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import bigsap
from benchmarks.costs import matrix
from benchmarks.instances import points_of
from benchmarks.memory_child import own_peak
from benchmarks.peers import lazy_emd

# Large enough for coarse first prices, which have kernels of their own.
_WARM = 2048
_KEPT = ("method", "rows_evaluated", "pairs_evaluated", "rows_scanned", "certificate_pairs")


def lazy(cls: str, n: int, seed: int) -> dict[str, Any]:
    """What POT takes; a small problem first, which loads it."""
    lazy_emd(*points_of(cls, 64, 0))
    x, y = points_of(cls, n, seed)
    clock = time.perf_counter()
    fun = lazy_emd(x, y)
    return {"seconds": time.perf_counter() - clock, "peak_bytes": own_peak(), "fun": fun}


def main() -> None:
    """``python -m benchmarks.curve_child CLASS N SEED THREADS [lazy]``."""
    cls, n, seed, threads = sys.argv[1], *map(int, sys.argv[2:5])
    if sys.argv[5:] == ["lazy"]:
        print(json.dumps(lazy(cls, n, seed)))
        return
    bigsap.solve(bigsap.points(*points_of(cls, _WARM, 0)), threads=threads)
    bigsap.solve(matrix("random", 64, 0), threads=threads)
    x, y = points_of(cls, n, seed)
    clock = time.perf_counter()
    result = bigsap.solve(bigsap.points(x, y), threads=threads)
    answer = {
        "seconds": time.perf_counter() - clock,
        "stages": result.stats["seconds"],
        "peak_bytes": own_peak(),
        "fun": result.fun,
        "gap": result.gap,
        "status": str(result.status),
        **{name: result.stats[name] for name in _KEPT},
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
