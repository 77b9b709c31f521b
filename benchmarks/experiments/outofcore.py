"""A zarr store larger than its cache: what is read, and the same answer."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from benchmarks.bench_settings import BenchSettings, share_text
from benchmarks.instances import matrix
from benchmarks.records import Key, Log
from benchmarks.tables import Block, line, seconds_text, table
from benchmarks.timing import SSP, WARM_SIZE, stats_of, timed, warm
from bigsap.types import Array

NAME = "outofcore"
TITLE = "Out of core: a zarr store (chunks of 64 rows, zstd) and a smaller cache"
IN_MEMORY = "in memory"
_CHUNK_ROWS = 64


def run(settings: BenchSettings, log: Log) -> None:
    """Each share of the rows in the cache, against the matrix in memory."""
    if importlib.util.find_spec("zarr") is None:
        print(f'{NAME}: left out, it needs zarr: pip install "bigsap[zarr]"')
        return
    shares = {share_text(share): share for share in settings.shares}
    for cls, n in settings.outofcore_instances:
        if missing := log.missing((NAME, cls, n, 0, kind, 1) for kind in (IN_MEMORY, *shares)):
            with tempfile.TemporaryDirectory(dir=settings.out) as folder:
                _measure(log, missing, shares, Path(folder))


def _measure(log: Log, keys: list[Key], shares: dict[str, int], folder: Path) -> None:
    _, cls, n, *_ = keys[0]
    cost = matrix(cls, n, 0)
    _store(folder / "costs.zarr", cost)
    _store(folder / "warm.zarr", matrix(cls, WARM_SIZE, 0))
    for share in shares.values():  # each policy has kernels of its own
        _solve(folder / "warm.zarr", WARM_SIZE, share)
    warm(cls, threads=1, **SSP)
    reference, seconds = timed(cost, threads=1, **SSP)
    for key in keys:
        if key[4] == IN_MEMORY:
            log.add(key, seconds=seconds, **stats_of(reference, "rows_scanned"))
            continue
        result, taken, reads = _solve(folder / "costs.zarr", n, shares[key[4]])
        same = np.array_equal(result.col4row, reference.col4row) and result.fun == reference.fun
        counts = stats_of(result, "rows_scanned cache_hits cache_misses cache_policy cache_slots")
        log.add(key, seconds=taken, identical=bool(same), reads=reads, **counts)


def _store(path: Path, cost: Array) -> None:
    import zarr
    from zarr.codecs import ZstdCodec

    chunks = (_CHUNK_ROWS, cost.shape[1])
    options: dict[str, Any] = {"chunks": chunks, "compressors": [ZstdCodec()]}
    array = zarr.create_array(str(path), shape=cost.shape, dtype=cost.dtype, **options)
    array[:] = cost


def _solve(path: Path, n: int, divisor: int) -> tuple[bigsap.Result, float, int]:
    """Result, seconds, and how often the solve read from the store."""
    source: Any = bigsap.from_zarr(path)
    read, reads = source.read, 0

    def counted(*args: Any) -> None:
        nonlocal reads
        reads += 1
        read(*args)

    source.read = counted
    cache = bigsap.RowCache(bytes=(max(1, n // divisor) if divisor else 1) * 8 * n)
    result, seconds = timed(source, threads=1, cache=cache, **SSP)
    return result, seconds, reads


def render(log: Log) -> list[Block]:
    """One line an instance and cache."""
    rows = []
    for r in log.of(experiment=NAME):
        begun = line(r["cls"], f"{r['n']:,}", r["solver"], f"{r['rows_scanned']:,}")
        seconds = seconds_text(r["seconds"])
        if r["solver"] == IN_MEMORY:
            rows.append(line(begun, *[None] * 5, seconds, None))
            continue
        hits, misses = r["cache_hits"], r["cache_misses"]
        rows.append(
            f"{begun} | {r['cache_slots']:,} ({r['cache_policy']}) | {r['reads']:,} | {misses:,}"
            f" | {misses / r['n']:.1f} | {100 * hits / max(1, hits + misses):.1f} %"
            f" | {seconds} | {'yes' if r['identical'] else 'NO'}"
        )
    head = (
        "class | n | cache | rows scanned | slots | reads | rows read | rows read / n | hit rate"
        " | seconds | same answer"
    )
    note = (
        "One thread, solve only. A read decodes a chunk; with more than one slot it brings the"
        " other rows of the chunk along, which count as rows read. Hit rate: hits over hits and"
        " rows read."
    )
    return [table(head, rows), note]
