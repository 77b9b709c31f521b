"""Costs in a zarr store that is larger than the memory the solve may use.

Writes a store in row chunks, block by block, as an instrument or a simulation would, and
solves it under a memory limit of a fraction of its size. Needs `pip install "bigsap[zarr]"`.

    python examples/zarr_larger_than_memory.py --store costs.zarr           # n = 2,000, 16 MB
    python examples/zarr_larger_than_memory.py --store costs.zarr --full    # n = 60,000, 14 GB

Measured on 2 shared cores: n = 60,000 (full size), a store of 13,735 MiB with a cache of 3,434 MiB,
in 109 s (346 s with writing the store), 2.43 reads a row.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path

import numpy as np
import zarr

import bigsap


def write(store: Path, n: int, rows_a_chunk: int, seed: int) -> None:
    """n x n float32 costs of rank 3 with noise, a block of rows in memory at a time."""
    rng = np.random.default_rng(seed)
    left, right = rng.random((n, 3)), rng.random((n, 3))
    array = zarr.create_array(
        store, shape=(n, n), chunks=(rows_a_chunk, n), dtype="float32", compressors=None
    )
    for start in range(0, n, rows_a_chunk):
        block = left[start : start + rows_a_chunk] @ right.T
        array[start : start + len(block)] = block + 0.05 * rng.random(block.shape)


def main(n: int, store: Path, seed: int = 0) -> bigsap.Result:
    # Whole rows, chunks of 1 to 8 MiB are read fastest (smaller here where the store is small).
    rows_a_chunk = max(1, min(n // 16, (4 << 20) // (4 * n)))
    write(store, n, rows_a_chunk, seed)
    stored = sum(file.stat().st_size for file in store.rglob("*") if file.is_file())

    limit = stored // 4
    result = bigsap.solve(bigsap.from_zarr(store), cache=limit)
    print(
        f"zarr: n = {n:,}, store {stored / 2**20:,.1f} MiB, cache {limit / 2**20:,.1f} MiB,"
        f" {result.status}, cost {result.fun:.9g}, gap {result.gap:.1g},"
        f" {result.stats['rows_evaluated'] / n:.2f} reads a row,"
        f" {result.stats['seconds']['total']:.2f} s"
    )
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=2_000)
    parser.add_argument("--store", type=Path, help="where to write; default: a temporary folder")
    parser.add_argument("--full", action="store_true", help="n = 60,000: 14 GB on the disk")
    chosen = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="bigsap-")) if chosen.store is None else None
    try:
        main(60_000 if chosen.full else chosen.n, chosen.store or folder / "costs.zarr")
    finally:
        if folder is not None:
            shutil.rmtree(folder)
