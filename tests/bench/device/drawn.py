"""Large point sets drawn on the device: python drawn.py DIMENSIONS POINTS [SECONDS [CHECKPOINT]]

A mixture of 20 normals in float32 against another sample of it with noise 0.2, squared distances,
after a small solve that compiles the kernels. With CHECKPOINT the solve writes checkpoints to that file, and
continues from the one that it finds. The points are read-only, so that nothing copies them.
Prints seconds, scans and evaluations a row, the gap, and the peaks of host and card.
"""

from __future__ import annotations

import resource
import sys
import threading
import time
from pathlib import Path

import cupy
import numpy as np

import bigsap

PART = 65_536


def sample(n: int, dimensions: int, seed: int, noise: float) -> np.ndarray:
    """(n, dimensions) points of the mixture, float32, drawn in parts."""
    centres = np.random.default_rng(dimensions).normal(size=(20, dimensions)).astype(np.float32)
    on_device, random = cupy.asarray(centres), cupy.random.default_rng(seed)
    points = np.empty((n, dimensions), np.float32)
    for begin in range(0, n, PART):
        count = min(PART, n - begin)
        part = on_device[random.integers(20, size=count)]
        part += random.standard_normal((count, dimensions), dtype=np.float32)
        if noise:
            part += noise * random.standard_normal((count, dimensions), dtype=np.float32)
        points[begin : begin + count] = part.get()
    points.flags.writeable = False
    return points


def solve_one(dimensions: int, n: int, limit: float | None, saved: str | None) -> None:
    begin = time.perf_counter()
    source = bigsap.points(sample(n, dimensions, 1, 0), sample(n, dimensions, 2, 0.2), "sqeuclidean")
    cupy.get_default_memory_pool().free_all_blocks()
    drawn = time.perf_counter() - begin
    used, done = [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.05):
            free, total = cupy.cuda.runtime.memGetInfo()
            used[0] = max(used[0], total - free)

    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    if saved and Path(saved).exists():
        result = bigsap.resume(saved, source, device="cuda", time_limit=limit)
    else:
        result = bigsap.solve(source, device="cuda", time_limit=limit, checkpoint=saved)
    seconds = time.perf_counter() - begin
    done.set()
    watcher.join()
    stats = result.stats
    parts = {part: round(spent, 1) for part, spent in stats["seconds"].items()}
    host = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(
        f"{n:,} x {dimensions}-D: {seconds:.1f} s {parts}, drawn in {drawn:.1f} s, {result.status},"
        f" scans {stats['rows_scanned'] / n:.1f}, evaluated {stats['rows_evaluated'] / n:.2f},"
        f" cost {result.fun!r}, gap {stats['gaps'][-1]['gap'] if stats['gaps'] else None},"
        f" host {host:.1f} GiB, card {used[0] / 2**30:.1f} GiB",
        flush=True,
    )
    for phase in stats["phases"]:
        made = [phase[part] / n for part in ("rows_scanned", "prices_moved", "rows_evaluated")]
        print(f"    {phase['epsilon']:.4g} {phase['seconds']:.2f} s", *(f"{part:.2f}" for part in made))


def main(dimensions: str, n: str, limit: str | None = None, saved: str | None = None) -> None:
    solve_one(int(dimensions), 12_000, None, None)
    solve_one(int(dimensions), int(n), float(limit) if limit else None, saved)


if __name__ == "__main__":
    main(*sys.argv[1:])
