"""Points of many dimensions, on a device and on its host: python high.py [CASE ...]

A case is ``50-D:100000:cuda`` (mixture of normals, squared distances), ``768-cosine:50000:cuda``,
``sphere:100000:cpu`` or ``cube:1000000:cpu``, with ``:SECONDS`` behind it as a time limit.
Prints what it measures; nothing is judged. A small solve of each class goes first.
"""

from __future__ import annotations

import sys
import time

import numpy as np

import bigsap

CASES = ("512-D:20000:cuda:60", "768-cosine:50000:cuda:90", "50-D:100000:cuda:120", "512-D:20000:cpu:60")


def costs(kind: str, n: int) -> bigsap.CostSource:
    """The points of a class, from a seed that is its size."""
    rng = np.random.default_rng(n)
    if kind == "cube":
        return bigsap.points(rng.random((n, 3)), rng.random((n, 3)), "euclidean")
    if kind == "sphere":
        x, y = (np.stack([np.arcsin(t), np.pi * s], axis=1) for t, s in rng.uniform(-1, 1, (2, 2, n)))
        return bigsap.points(x, y, "haversine")
    dimensions, metric = int(kind.split("-")[0]), kind.split("-")[1]
    centres = rng.normal(size=(20, dimensions))
    x, y = (centres[rng.integers(20, size=n)] + rng.normal(size=(n, dimensions)) for _ in range(2))
    y += rng.normal(0, 0.2, y.shape)
    if metric == "cosine":
        return bigsap.points(x.astype(np.float32), y.astype(np.float32), "cosine")
    return bigsap.points(x, y, "sqeuclidean")


def main(cases: list[str]) -> None:
    warm: set[tuple[str, str]] = set()
    for case in cases or CASES:
        kind, n, device, *limit = case.split(":")
        if (kind, device) not in warm:
            solve_one(f"{kind} {device}, first solve", kind, 12_000, device, None)
            warm.add((kind, device))
        solve_one(case, kind, int(n), device, float(limit[0]) if limit else None)


def solve_one(name: str, kind: str, n: int, device: str, limit: float | None) -> None:
    source = costs(kind, n)
    begin = time.perf_counter()
    stats = bigsap.solve(source, device=device, time_limit=limit).stats
    seconds = {part: round(spent, 2) for part, spent in stats["seconds"].items()}
    scans, evaluated = stats["rows_scanned"] / n, stats["rows_evaluated"] / n
    print(
        f"{name}: {time.perf_counter() - begin:.2f} s {seconds} {stats['first_prices']} {stats['device']}"
        f" scans {scans:.1f} evaluated {evaluated:.2f} gap {stats['gaps'][-1]['gap']}"
    )
    for phase in stats["phases"]:
        made = [phase[part] / n for part in ("rows_scanned", "prices_moved", "rows_evaluated")]
        print(
            f"    {phase['epsilon']:.4g} {phase['seconds']:.2f} s",
            *(f"{part:.2f}" for part in made),
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
