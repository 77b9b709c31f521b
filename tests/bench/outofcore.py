"""A zarr store larger than its cache: rows read, hit rate, and the same answer."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from bench.costs import matrix
from bench.measure import WARM_SIZE, timed
from bench.records import Log
from bench.report import DASH, seconds_text, table
from bench.settings import Settings

NAME = "outofcore"
TITLE = "Out of core: a zarr store (chunks of 64 rows, zstd) and a smaller cache"
CLASS = "geometric"
IN_MEMORY = "in memory"
# Shares of the matrix that the cache holds; 0 is a cache of one row.
SHARES = {"1/4 of the rows": 4, "1/16 of the rows": 16, "one row": 0}
_CHUNK_ROWS = 64


def run(settings: Settings, log: Log) -> None:
    if importlib.util.find_spec("zarr") is None:
        print(f'{NAME}: left out, it needs zarr: pip install "bigsap[zarr]"')
        return
    n, small = settings.outofcore_size, settings.outofcore_one_row_size
    for seed in range(settings.outofcore_seeds):
        # With one row every scan decodes a chunk of 64: a smaller matrix shows it as well.
        _measure(settings, log, n, seed, [k for k, d in SHARES.items() if d])
        _measure(settings, log, small, seed, list(SHARES))


def _measure(settings: Settings, log: Log, n: int, seed: int, shares: list[str]) -> None:
    kinds = [IN_MEMORY, *shares]
    if all(log.has(NAME, CLASS, n, seed, kind, 1) for kind in kinds):
        return
    cost = matrix(CLASS, n, seed)
    with tempfile.TemporaryDirectory(dir=settings.out) as folder:
        path = Path(folder) / "costs.zarr"
        _store(path, cost)
        _store(Path(folder) / "warm.zarr", matrix(CLASS, WARM_SIZE, 0))
        _solve(Path(folder) / "warm.zarr", WARM_SIZE, SHARES["1/4 of the rows"])
        reference, seconds = timed(cost, method="ssp", threads=1)
        if not log.has(NAME, CLASS, n, seed, IN_MEMORY, 1):
            log.add(
                NAME, CLASS, n, seed, IN_MEMORY, 1, seconds=seconds,
                rows_scanned=reference.stats["rows_scanned"],
            )  # fmt: skip
        for kind in shares:
            if log.has(NAME, CLASS, n, seed, kind, 1):
                continue
            result, seconds = _solve(path, n, SHARES[kind])
            stats = result.stats
            same = bool(np.array_equal(result.col4row, reference.col4row))
            log.add(
                NAME, CLASS, n, seed, kind, 1, seconds=seconds, identical=same,
                rows_scanned=stats["rows_scanned"], hits=stats["cache_hits"],
                misses=stats["cache_misses"], policy=stats["cache_policy"],
                slots=stats["cache_slots"], gap=result.gap, fun=result.fun,
            )  # fmt: skip


def _store(path: Path, cost: np.ndarray) -> None:
    import zarr
    from zarr.codecs import ZstdCodec

    array = zarr.create_array(
        str(path), shape=cost.shape, dtype=cost.dtype, chunks=(_CHUNK_ROWS, cost.shape[1]),
        compressors=[ZstdCodec()],
    )  # fmt: skip
    array[:] = cost


def _solve(path: Path, n: int, divisor: int) -> tuple[Any, float]:
    cached = n // divisor if divisor else 1
    cache = bigsap.RowCache(bytes=cached * 8 * n)
    return timed(bigsap.from_zarr(path), method="ssp", threads=1, cache=cache)


def render(settings: Settings, log: Log) -> str:
    rows = []
    for record in log.of(experiment=NAME):
        if record["solver"] == IN_MEMORY:
            cells = [DASH] * 4 + [seconds_text(record["seconds"]), DASH]
        else:
            asked = record["hits"] + record["misses"]
            cells = [
                f"{record['slots']:,} ({record['policy']})",
                f"{record['misses']:,}",
                f"{record['misses'] / record['n']:.1f}",
                f"{100 * record['hits'] / max(1, asked):.1f} %",
                seconds_text(record["seconds"]),
                "yes" if record["identical"] else "NO",
            ]
        rows.append([record["solver"], f"{record['n']:,}", f"{record['rows_scanned']:,}", *cells])
    head = [
        "cache", "n", "rows scanned", "slots", "rows read", "rows read / n", "hit rate",
        "seconds, certified", "same answer",
    ]  # fmt: skip
    return table(head, rows)
