"""A .npy file or numpy memmap: scanned in place, the kernel's page cache does the rest.

    python examples/memmap.py                         # n = 2,000, 16 MB
    python examples/memmap.py --file c.npy --full     # n = 40,000, 6.4 GB

Measured on 2 shared cores: n = 40,000 (full size), a file of 6,104 MiB, total 2,163,295 s, gap 0,
in 30 s (130 s with writing the file); n = 2,000 in 0.44 s.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np

import bigsap


def write(file: Path, n: int, seed: int) -> None:
    """Travel times in whole seconds (int32), row by row: never all in memory at once."""
    rng = np.random.default_rng(seed)
    start, goal = rng.uniform(0, 10_000, (n, 2)), rng.uniform(0, 10_000, (n, 2))
    array = np.lib.format.open_memmap(file, mode="w+", dtype=np.int32, shape=(n, n))
    for i in range(n):
        array[i] = np.abs(goal - start[i]).sum(axis=1) / 1.4
    array.flush()


def main(n: int, file: Path, seed: int = 0) -> bigsap.Result:
    write(file, n, seed)
    costs = np.load(file, mmap_mode="r")  # bigsap.from_npy(file) is the same
    result = bigsap.solve(costs)
    # Integer costs give integer answers: nothing is rounded on the way.
    print(
        f"memmap: n = {n:,}, file {file.stat().st_size / 2**20:,.0f} MiB, {result.status},"
        f" total {result.fun:,} s on foot, gap {result.gap}, {result.stats['method']},"
        f" {result.stats['seconds']['total']:.2f} s"
    )
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=2_000)
    parser.add_argument("--file", type=Path, help="where to write; default: a temporary folder")
    parser.add_argument("--full", action="store_true", help="n = 40,000: 6.4 GB on the disk")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="bigsap-") as folder:
        main(40_000 if chosen.full else chosen.n, chosen.file or Path(folder) / "costs.npy")
