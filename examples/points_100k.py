"""Two point sets of 100,000: the matrix would take 80 GB, the solve takes a few hundred MB.

    python examples/points_100k.py              # n = 10,000
    python examples/points_100k.py --full       # n = 100,000

Measured on 2 shared cores: n = 100,000 in 13.4 s with other work beside it, 0.05 of the
matrix computed, 305 MiB.
"""

from __future__ import annotations

import argparse
import sys

import numpy as np

import bigsap


def main(n: int, seed: int = 0) -> bigsap.Result:
    rng = np.random.default_rng(seed)
    # The hard case: sources and targets in different squares, so that all links are long.
    x, y = rng.random((n, 2)), rng.random((n, 2))
    x[n // 2 :] += 1
    y += np.where(np.arange(n)[:, None] < n // 2, [0.0, 1.0], [1.0, 0.0])

    result = bigsap.solve(bigsap.points(x, y), progress=sys.stderr.isatty())
    stats = result.stats
    print(
        f"points: n = {n:,}, {result.status}, cost {result.fun:.9g}, bound {result.bound:.9g},"
        f" gap {result.gap:.1g}, {stats['pairs_evaluated'] / n**2:.2f} of the matrix computed,"
        f" {stats['seconds']['total']:.1f} s, peak {stats['peak_bytes'] / 2**20:.0f} MiB"
    )
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--full", action="store_true", help="n = 100,000")
    chosen = parser.parse_args()
    main(100_000 if chosen.full else chosen.n)
