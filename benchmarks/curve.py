"""How seconds, evaluations and memory grow with n: points, no matrix anywhere."""

from __future__ import annotations

import json
import math
import subprocess

from benchmarks.bench_settings import BenchSettings
from benchmarks.peers import find
from benchmarks.processes import environment, python
from benchmarks.records import Log
from benchmarks.report import DASH, seconds_text, table

NAME = "curve"
TITLE = "Points without a matrix, by size: seconds, evaluations and memory"
CLASSES = ("disjoint", "geometric")
SOLVER = "bigsap auto"
LAZY = "POT emd2_lazy"
_LIMIT = 3600.0
_LOADING = 10.0


def run(settings: BenchSettings, log: Log) -> None:
    """Each size in a process of its own, kernels loaded before the clock starts."""
    threads = max(settings.thread_counts)
    beside = "POT emd" in settings.peers and find("POT emd").installed()
    for n in settings.curve_sizes:
        for cls in (name for name in CLASSES if name in settings.classes):
            _measure(log, cls, n, SOLVER, threads, _LIMIT)
            if beside and n in settings.lazy_sizes:
                ours = log.get(NAME, cls, n, 0, SOLVER, threads) or {}
                limit = settings.limit_of(ours.get("seconds"))
                _measure(log, cls, n, LAZY, 1, limit, "lazy")


def _measure(log: Log, cls: str, n: int, solver: str, threads: int, limit: float, *more: str) -> None:
    if log.has(NAME, cls, n, 0, solver, threads):
        return
    print(f"    {cls}, n = {n:,}" + (f", {solver}" if more else ""), flush=True)
    command = python("benchmarks.curve_child", cls, str(n), "0", str(threads), *more)
    try:
        done = subprocess.run(
            command,
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            # What starts and loads is not counted; a limit of seconds must not be used up by it.
            timeout=limit + (_LOADING if more else 0),
        )
    except subprocess.TimeoutExpired:
        log.add(NAME, cls, n, 0, solver, threads, timeout=limit)
        return
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])}: {done.stderr.strip()[-500:]}")
    log.add(NAME, cls, n, 0, solver, threads, **json.loads(done.stdout))


def render(settings: BenchSettings, log: Log) -> str:
    """One line a size."""
    rows = []
    for cls in log.distinct("cls", experiment=NAME):
        found = log.of(experiment=NAME, cls=cls, solver=SOLVER)
        for record in sorted(found, key=lambda r: r["n"]):
            n = record["n"]
            if "timeout" in record:
                rows.append([cls, f"{n:,}", f">{record['timeout']:.0f}", *[DASH] * 9])
                continue
            stages = record["stages"]
            rows.append(
                [
                    cls,
                    f"{n:,}",
                    seconds_text(record["seconds"]),
                    *(seconds_text(stages[name]) for name in ("start", "search", "certificate")),
                    f"{record['rows_evaluated'] / n:.2f}",
                    f"{record['pairs_evaluated'] / n**2:.3f}",
                    f"{record['rows_scanned'] / n:.0f}",
                    f"{record['peak_bytes'] / 2**20:,.0f}",
                    f"{record['gap'] / abs(record['fun']):.1e}",
                    record["status"],
                ]
            )
    head = [
        "class",
        "n",
        "seconds",
        "start",
        "search",
        "certificate",
        "rows evaluated / n",
        "pairs / n^2",
        "scans / n",
        "peak MiB",
        "gap / cost",
        "status",
    ]
    count = ", ".join(str(c) for c in log.distinct("threads", experiment=NAME, solver=SOLVER))
    note = (
        f"`bigsap.solve(bigsap.points(x, y))` with {count} threads, certificate included, one"
        " matrix a size, each in a process of its own. Rows evaluated count every evaluation,"
        " whole or partial, on every level; a block bound counts as one pair. The certificate's"
        " pass over the costs is not among the pairs."
    )
    return "\n\n".join([table(head, rows), note, *_lazy(log)])


def _lazy(log: Log) -> list[str]:
    """POT's solver that computes costs as well, beside ours."""
    rows = []
    for record in log.of(experiment=NAME, solver=LAZY):
        cls, n = record["cls"], record["n"]
        (ours,) = log.of(experiment=NAME, cls=cls, n=n, solver=SOLVER)
        mine = seconds_text(ours["seconds"]) if "seconds" in ours else DASH
        if "timeout" in record:
            rows.append([cls, f"{n:,}", mine, f">{record['timeout']:.0f}", DASH, DASH])
            continue
        same = "fun" in ours and math.isclose(record["fun"], ours["fun"], rel_tol=1e-9)
        rows.append(
            [
                cls,
                f"{n:,}",
                mine,
                seconds_text(record["seconds"]),
                f"{record['peak_bytes'] / 2**20:,.0f}",
                "same" if same else "ANOTHER",
            ]
        )
    if not rows:
        return []
    head = ["class", "n", SOLVER, LAZY, f"peak MiB of {LAZY}", "cost"]
    note = f"{LAZY} (one thread) computes costs when it needs them and stores no matrix either."
    return [table(head, rows), note]
