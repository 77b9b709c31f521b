"""Clusters of equal sizes: k-means whose every step is solved exactly.

The assignment of points to centres minimises the sum of squared distances among all assignments in
which no cluster is larger than its share; the proof says so. Prices of one round start the next.
"""

import argparse
import time

import numpy as np

import bigsap


def balanced_k_means(points, k, rounds=50, seed=0):
    """Return the cluster of each point, the centres, and the result of the last step."""
    rng = np.random.default_rng(seed)
    centres = points[rng.choice(len(points), k, replace=False)]
    share = -(-len(points) // k)
    result, before = None, None
    for _ in range(rounds):
        start = None if result is None else result.v
        result = bigsap.solve(bigsap.points(points, centres), capacity=share, warm_start=start)
        centres = np.array([points[result.rows_of(j)].mean(axis=0) for j in range(k)])
        if before is not None and result.fun >= before * (1 - 1e-4):
            break
        before = result.fun
        print(f"sum of squares {result.fun:.6f}, {result.status}, gap {result.gap:.1e}")
    return result.col4row, centres, result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=3000, help="points")
    parser.add_argument("--k", type=int, default=12, help="clusters")
    parser.add_argument("--full", action="store_true", help="100,000 points, 100 clusters")
    args = parser.parse_args()
    n, k = (100_000, 100) if args.full else (args.n, args.k)

    rng = np.random.default_rng(1)
    blobs = rng.random((7, 2))[rng.integers(0, 7, n)]
    x = blobs + 0.05 * rng.standard_normal((n, 2))
    clock = time.perf_counter()
    cluster, centres, last = balanced_k_means(x, k)
    sizes = np.bincount(cluster, minlength=k)
    print(f"{k} clusters of {sizes.min()} to {sizes.max()} points, {time.perf_counter() - clock:.1f} s")
