"""Figure 1: rows scanned and length of the path, augmentation by augmentation."""

from __future__ import annotations

import hashlib
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.instances import matrix
from benchmarks.records import Log
from benchmarks.tables import Block, table
from bigsap import checkpoint
from bigsap.types import Array, Ids

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
    for key in log.missing((NAME, CLASS, n, 0, kind, 1) for kind in (PLAIN, PHASES)):
        log.add(key, **trace(matrix(CLASS, n, 0), epsilon=key[4] == PHASES))


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

        options: dict[str, Any] = {"method": "ssp", "start": "estimate", "threads": 1}
        options |= {"callback": watch, "callback_every": 0, "cache": cost[0].nbytes}
        options |= {"checkpoint": file, "checkpoint_every": 0}
        done = bigsap.solve(_Rows(cost), epsilon=epsilon, **options)
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


def render(log: Log) -> list[Block]:
    """Totals, and the last tenth of the augmentations of the last phase."""
    rows = []
    for r in log.of(experiment=NAME):
        n, last = r["n"], len(r["epsilons"])
        late = [found for phase, at, found in r["scans"] if phase == last and at >= 0.9 * n]
        longest = max((length for *_, length in r["paths"]), default=0)
        rows.append(
            f"{r['solver']} | {r['cls']} | {n:,} | {r['total']:,} | {last}"
            f" | {sum(late) / max(1, len(late)):.1f} | {longest:,}"
        )
    head = "phases | class | n | rows scanned | number of phases"
    return [table(f"{head} | scans an augmentation, last tenth | longest path", rows)]
