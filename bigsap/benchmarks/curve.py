"""How seconds, evaluations and memory grow with n: points, no matrix anywhere."""

from __future__ import annotations

import json
import subprocess

from bigsap.benchmarks.processes import environment, python
from bigsap.benchmarks.records import Log
from bigsap.benchmarks.report import DASH, seconds_text, table
from bigsap.benchmarks.settings import Settings

NAME = "curve"
TITLE = "Points without a matrix, by size: seconds, evaluations and memory"
CLASSES = ("disjoint", "geometric")
SOLVER = "bigsap auto"
_LIMIT = 600.0


def run(settings: Settings, log: Log) -> None:
    """Each size in a process of its own, kernels loaded before the clock starts."""
    threads = max(settings.thread_counts)
    for n in settings.curve_sizes:
        for cls in (name for name in CLASSES if name in settings.classes):
            if log.has(NAME, cls, n, 0, SOLVER, threads):
                continue
            print(f"    {cls}, n = {n:,}", flush=True)
            command = python("bigsap.benchmarks.curve_child", cls, str(n), "0", str(threads))
            try:
                done = subprocess.run(
                    command, env=environment(), capture_output=True, text=True, check=False,
                    timeout=_LIMIT,
                )  # fmt: skip
            except subprocess.TimeoutExpired:
                log.add(NAME, cls, n, 0, SOLVER, threads, timeout=_LIMIT)
                continue
            if done.returncode:
                raise RuntimeError(f"{' '.join(command[1:])}: {done.stderr.strip()[-500:]}")
            log.add(NAME, cls, n, 0, SOLVER, threads, **json.loads(done.stdout))


def render(settings: Settings, log: Log) -> str:
    """One line a size."""
    rows = []
    for cls in log.distinct("cls", experiment=NAME):
        for record in sorted(log.of(experiment=NAME, cls=cls), key=lambda r: r["n"]):
            n = record["n"]
            if "timeout" in record:
                rows.append([cls, f"{n:,}", f">{record['timeout']:.0f}", *[DASH] * 9])
                continue
            stages = record["stages"]
            rows.append([
                cls, f"{n:,}", seconds_text(record["seconds"]),
                *(seconds_text(stages[name]) for name in ("start", "search", "certificate")),
                f"{record['rows_evaluated'] / n:.2f}", f"{record['pairs_evaluated'] / n**2:.3f}",
                f"{record['rows_scanned'] / n:.0f}", f"{record['peak_bytes'] / 2**20:,.0f}",
                f"{record['gap'] / abs(record['fun']):.1e}", record["status"],
            ])  # fmt: skip
    head = [
        "class", "n", "seconds", "start", "search", "certificate", "rows evaluated / n",
        "pairs / n^2", "scans / n", "peak MiB", "gap / cost", "status",
    ]  # fmt: skip
    count = ", ".join(str(c) for c in log.distinct("threads", experiment=NAME))
    note = (
        f"`bigsap.solve(bigsap.points(x, y))` with {count} threads, certificate included, one"
        " matrix a size, each in a process of its own. Rows evaluated count every evaluation,"
        " whole or partial, on every level; a block bound counts as one pair. The certificate's"
        " pass over the costs is not among the pairs."
    )
    return f"{table(head, rows)}\n\n{note}"
