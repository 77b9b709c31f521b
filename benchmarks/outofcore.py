"""A zarr store larger than its cache: what is read, and the same answer."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from benchmarks.bench_settings import BenchSettings, share_text
from benchmarks.costs import matrix
from benchmarks.measure import WARM_SIZE, timed
from benchmarks.records import Log
from benchmarks.report import DASH, seconds_text, table

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
        missing = [kind for kind in (IN_MEMORY, *shares) if not log.has(NAME, cls, n, 0, kind, 1)]
        if missing:
            with tempfile.TemporaryDirectory(dir=settings.out) as folder:
                _measure(log, cls, n, missing, shares, Path(folder))


def _measure(log: Log, cls: str, n: int, kinds: list[str], shares: dict[str, int], folder: Path) -> None:
    cost = matrix(cls, n, 0)
    _store(folder / "costs.zarr", cost)
    _store(folder / "warm.zarr", matrix(cls, WARM_SIZE, 0))
    for share in shares.values():  # each policy has kernels of its own
        _solve(folder / "warm.zarr", WARM_SIZE, share)
    timed(matrix(cls, WARM_SIZE, 0), method="ssp", start="estimate", threads=1, certify=False)
    reference, seconds = timed(cost, method="ssp", start="estimate", threads=1, certify=False)
    if IN_MEMORY in kinds:
        scanned = reference.stats["rows_scanned"]
        log.add(NAME, cls, n, 0, IN_MEMORY, 1, seconds=seconds, rows_scanned=scanned)
    for kind in kinds:
        if kind == IN_MEMORY:
            continue
        result, seconds, n_reads = _solve(folder / "costs.zarr", n, shares[kind])
        kept = ("rows_scanned", "cache_hits", "cache_misses", "cache_policy", "cache_slots")
        same = np.array_equal(result.col4row, reference.col4row) and result.fun == reference.fun
        log.add(
            NAME,
            cls,
            n,
            0,
            kind,
            1,
            seconds=seconds,
            identical=bool(same),
            reads=n_reads,
            **{name: result.stats[name] for name in kept},
        )


def _store(path: Path, cost: np.ndarray) -> None:
    import zarr
    from zarr.codecs import ZstdCodec

    array = zarr.create_array(
        str(path),
        shape=cost.shape,
        dtype=cost.dtype,
        chunks=(_CHUNK_ROWS, cost.shape[1]),
        compressors=[ZstdCodec()],
    )
    array[:] = cost


def _solve(path: Path, n: int, divisor: int) -> tuple[bigsap.Result, float, int]:
    """Result, seconds, and how often the solve read from the store."""
    source: Any = bigsap.from_zarr(path)
    read, n_reads = source.read, 0

    def counted(*args: Any) -> None:
        nonlocal n_reads
        n_reads += 1
        read(*args)

    source.read = counted
    cache = bigsap.RowCache(bytes=(max(1, n // divisor) if divisor else 1) * 8 * n)
    result, seconds = timed(source, method="ssp", start="estimate", threads=1, cache=cache, certify=False)
    return result, seconds, n_reads


def render(settings: BenchSettings, log: Log) -> str:
    """One line an instance and cache."""
    rows = []
    for record in log.of(experiment=NAME):
        cells = [DASH] * 5 + [seconds_text(record["seconds"]), DASH]
        if record["solver"] != IN_MEMORY:
            hits, misses = record["cache_hits"], record["cache_misses"]
            cells = [
                f"{record['cache_slots']:,} ({record['cache_policy']})",
                f"{record['reads']:,}",
                f"{misses:,}",
                f"{misses / record['n']:.1f}",
                f"{100 * hits / max(1, hits + misses):.1f} %",
                seconds_text(record["seconds"]),
                "yes" if record["identical"] else "NO",
            ]
        shown = (record["cls"], f"{record['n']:,}", record["solver"], f"{record['rows_scanned']:,}")
        rows.append([*shown, *cells])
    head = [
        "class",
        "n",
        "cache",
        "rows scanned",
        "slots",
        "reads",
        "rows read",
        "rows read / n",
        "hit rate",
        "seconds",
        "same answer",
    ]
    note = (
        "One thread, solve only. A read decodes a chunk; with more than one slot it brings the"
        " other rows of the chunk along, which count as rows read. Hit rate: hits over hits and"
        " rows read."
    )
    return f"{table(head, rows)}\n\n{note}"
