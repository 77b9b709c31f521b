"""Solves one problem of points that are never stored as a matrix; prints what it took as JSON."""

from __future__ import annotations

import json
import sys
import time

import bigsap
from bigsap.benchmarks.costs import matrix
from bigsap.benchmarks.instances import points_of
from bigsap.benchmarks.memory_child import own_peak

# Large enough for coarse first prices, which have kernels of their own.
_WARM = 2048
_KEPT = ("method", "rows_evaluated", "pairs_evaluated", "rows_scanned", "certificate_pairs")


def main() -> None:
    """``python -m bigsap.benchmarks.curve_child CLASS N SEED THREADS``."""
    cls, n, seed, threads = sys.argv[1], *map(int, sys.argv[2:5])
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
