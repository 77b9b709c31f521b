"""Figure 1: rows scanned and length of the path, augmentation by augmentation."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.costs import matrix
from benchmarks.records import Log
from benchmarks.report import table
from bigsap import checkpoint
from bigsap.sources.base import Array, Ids

NAME = "paths"
TITLE = "Rows scanned and path lengths, augmentation by augmentation (figure 1)"
PLAIN, PHASES = "no epsilon", "epsilon"
CLASS = "random"


class _Rows:
    """The matrix as rows that Python gives: the callback comes after each."""

    def __init__(self, cost: Array) -> None:
        self.cost, self.shape, self.dtype = cost, cost.shape, cost.dtype

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Costs of some rows and columns."""
        out[...] = self.cost[rows, columns]

    def fingerprint(self) -> str:
        """Of all costs, as a checkpoint asks."""
        return hashlib.sha256(self.cost.tobytes()).hexdigest()


def run(settings: BenchSettings, log: Log) -> None:
    """Trace one random matrix, plain and in phases."""
    n = settings.paths_size
    for kind in (PLAIN, PHASES):
        if not log.has(NAME, CLASS, n, 0, kind, 1):
            log.add(NAME, CLASS, n, 0, kind, 1, **trace(matrix(CLASS, n, 0), epsilon=kind == PHASES))


def trace(cost: Array, *, epsilon: bool) -> dict[str, Any]:
    """``scans``: (phase, rows assigned before, rows scanned) of each augmentation;
    ``paths``: the same with the number of rows whose column changed; ``total`` rows scanned.
    """
    scans: dict[tuple[int, int], int] = {}
    paths: dict[tuple[int, int], int] = {}
    now, scanned = (0, 0), 0  # phase and rows assigned, rows scanned, at the last call
    then, matching = 0, np.empty(0)  # phase and matching of the last checkpoint

    # Thousands of small checkpoints: in memory where there is such a folder.
    memory = "/dev/shm" if Path("/dev/shm").is_dir() else None
    with tempfile.TemporaryDirectory(dir=memory) as folder:
        file = Path(folder) / "trace.checkpoint"

        def record(phase: int, new: Array) -> None:
            nonlocal then, matching
            size = int((new >= 0).sum())
            if then == phase and size == (matching >= 0).sum() + 1:
                paths[phase, size - 1] = int((new != matching).sum())
            then, matching = phase, new

        def watch(progress: bigsap.Progress) -> None:
            nonlocal now, scanned
            if now[0] and progress.rows_scanned > scanned:
                scans[now] = scans.get(now, 0) + progress.rows_scanned - scanned
            now, scanned = (progress.phase, progress.assigned), progress.rows_scanned
            if file.exists() and progress.phase:
                record(progress.phase, checkpoint.read(file).snapshot["column_of_row"])

        done = bigsap.solve(
            _Rows(cost),
            method="ssp",
            start="estimate",
            epsilon=epsilon,
            threads=1,
            cache=cost[0].nbytes,
            callback=watch,
            callback_every=0,
            checkpoint=file,
            checkpoint_every=0,
        )
        record(done.nit, done.col4row)
    rest = done.stats["rows_scanned"] - scanned  # after the last call
    if rest:
        scans[now] = scans.get(now, 0) + rest
    return {
        "scans": [[*key, value] for key, value in scans.items()],
        "paths": [[*key, value] for key, value in paths.items()],
        "epsilons": [phase["epsilon"] for phase in done.stats["phases"]],
        "total": done.stats["rows_scanned"],
    }


def render(settings: BenchSettings, log: Log) -> str:
    """Totals, and the last tenth of the augmentations of the last phase."""
    rows = []
    for record in log.of(experiment=NAME):
        n, last = record["n"], len(record["epsilons"])
        late = [scans for phase, before, scans in record["scans"] if phase == last and before >= 0.9 * n]
        longest = max((length for *_, length in record["paths"]), default=0)
        rows.append(
            [
                record["solver"],
                record["cls"],
                f"{n:,}",
                f"{record['total']:,}",
                str(last),
                f"{sum(late) / max(1, len(late)):.1f}",
                f"{longest:,}",
            ]
        )
    head = [
        "phases",
        "class",
        "n",
        "rows scanned",
        "number of phases",
        "scans an augmentation, last tenth",
        "longest path",
    ]
    return table(head, rows)
