"""Seconds against the other solvers: matrix in memory, solve only; and how they grow with n."""

from __future__ import annotations

import itertools
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from benchmarks import standings, tables
from benchmarks.bench_settings import BenchSettings
from benchmarks.instances import matrix
from benchmarks.machine import enough_memory
from benchmarks.paper import TABLE2
from benchmarks.peers import find, own_name
from benchmarks.processes import Process
from benchmarks.records import Log
from benchmarks.standings import CERTIFIED, NAME, Entrant, is_own
from benchmarks.tables import DASH, Block, Heading, Table, line, table
from benchmarks.timing import WARM_SIZE

TITLE = "Seconds against other solvers, matrix in memory, solve only"
REFERENCE = "A1015 C++"

# A run shorter than this is repeated at once, in a second round: its noise is larger.
_REPEATED = 1.0
# On the first seed a solver this much slower than the best, and this slow, has lost:
# the other seeds are not spent on it.
_LOST, _LOST_SECONDS = 3.0, 3.0
# What does not depend on the machine: label -> field and the power of n it is divided by.
COUNTS = {
    "scans / n": ("rows_scanned", 1),
    "evaluated / n": ("rows_evaluated", 1),
    "pairs / n^2": ("pairs_evaluated", 2),
}
_LEGEND = (
    "`>` stopped; `*` so slow on the first seed that the others were left out; WRONG: another"
    " solver found a cheaper assignment; `-` left out, having lost or failed at a smaller size."
)


def solvers(settings: BenchSettings) -> list[str]:
    """BigSAP's methods first: the others' patience is measured by them."""
    installed = [name for name in settings.peers if find(name).installed()]
    own = [own_name(method, device) for device in settings.devices for method in settings.methods]
    return own + installed


def entrants(settings: BenchSettings) -> list[Entrant]:
    """Each solver with each number of threads, those that know one thread with one."""
    return [
        (name, threads)
        for name in solvers(settings)
        for threads in (settings.peers_threads if find(name).threaded else (1,))
    ]


def run(settings: BenchSettings, log: Log) -> None:
    """Every size, seed and class of each round; solvers turn by turn on each matrix."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=settings.out)))
        processes = {it: stack.enter_context(Process(*it)) for it in entrants(settings)}
        for part in settings.rounds:
            classes = [cls for cls in settings.classes if cls in part.classes]
            takes_part = {it: process for it, process in processes.items() if part.peers or is_own(it[0])}
            for n, seed, cls in itertools.product(part.sizes, range(part.seeds), classes):
                _instance(settings, log, takes_part, (cls, n, seed), folder)


def _instance(
    settings: BenchSettings,
    log: Log,
    processes: dict[Entrant, Process],
    instance: tuple[str, int, int],
    folder: Path,
) -> None:
    """What the log does not hold yet of one matrix."""
    cls, n, seed = instance
    if not enough_memory(4 * 8.0 * n * n):
        print(f"    {cls}, n = {n:,} left out: four times the matrix is not free")
        return
    keys = log.missing((NAME, *instance, *it) for it in processes)
    missing = [key[4:] for key in keys if not _lost(log, *key[1:])]
    threads = max(settings.peers_threads)
    proof = log.missing([(NAME, cls, n, seed, CERTIFIED, threads)]) if seed == 0 else []
    if not missing and not proof:
        return
    print(f"    {cls}, n = {n:,}, seed {seed}: {len(missing)} runs", flush=True)
    cost = matrix(cls, n, seed)
    for key in proof:  # what it costs on top: not part of the seconds compared
        options: dict[str, Any] = {"method": settings.methods[0], "threads": threads}
        bigsap.solve(matrix(cls, WARM_SIZE, 0), **options)
        found = bigsap.solve(cost, **options)
        seconds = found.stats["seconds"]["certificate"]
        facts = {"method": found.stats["method"], "gap": found.gap, "fun": found.fun}
        log.add(key, certificate_seconds=seconds, **facts)
    if missing:
        path, small = folder / "matrix.npy", folder / f"warm-{cls}.npy"
        np.save(path, cost)
        np.save(small, matrix(cls, WARM_SIZE, 0))
        del cost
        _contest(settings, log, processes, missing, instance, (path, small))


def _contest(
    settings: BenchSettings,
    log: Log,
    processes: dict[Entrant, Process],
    missing: list[Entrant],
    instance: tuple[str, int, int],
    paths: tuple[Path, Path],
) -> None:
    """All solvers on one matrix, turn by turn; quick ones a second time in reverse order."""
    own = [it for it in missing if is_own(it[0])]
    others = [it for it in missing if it not in own]
    best: float | None = None
    quick: dict[Entrant, dict[str, Any]] = {}
    path, small = paths
    for it in own + (others[::-1] if instance[2] % 2 else others):
        answer = processes[it].run(path, settings.limit_of(best), small)
        seconds = answer.get("seconds")
        if seconds is not None and answer["cost"] is not None:
            best = seconds if best is None else min(best, seconds)
        if seconds is not None and seconds < _REPEATED:
            quick[it] = answer
        else:
            log.add((NAME, *instance, *it), **answer)
    for it in reversed(quick):
        again = processes[it].run(path, settings.limit_of(best), small)
        runs = [quick[it]["seconds"], *([again["seconds"]] if "seconds" in again else [])]
        log.add((NAME, *instance, *it), **{**quick[it], "seconds": min(runs), "runs": runs})


def _lost(log: Log, cls: str, n: int, seed: int, name: str, threads: int) -> bool:
    """Whether the first seed, or a smaller size, was verdict enough."""
    if is_own(name):
        return False
    here = {"experiment": NAME, "cls": cls, "seed": 0}
    for first in log.of(**here, solver=name, threads=threads):
        if first["n"] > n or (first["n"] == n and not seed):
            continue
        seconds = first.get("seconds")
        if seconds is None:
            return True
        if name == REFERENCE and first["n"] < n:
            continue  # the one that goes on to the largest sizes
        best = min(log.values("seconds", **here, n=first["n"]))
        if seconds > _LOST_SECONDS and seconds > _LOST * best:
            return True
    return False


def render(log: Log) -> list[Block]:
    """A section a size and number of threads, then how our methods grow with n."""
    parts: list[Block] = []
    for n in standings.sizes_with_peers(log):
        for threads in sorted(log.distinct("threads", experiment=NAME, n=n)):
            parts += _times(log, n, threads)
    parts += _growth(log)
    failures = [
        f"{r['solver']} failed on {r['cls']}, n = {r['n']:,}, seed {r['seed']}: {r['failed']}"
        for r in log.of(experiment=NAME)
        if "failed" in r
    ]
    return [*parts, failures] if failures else parts


def brief(log: Log) -> list[Block]:
    """The tables of seconds, with the counts of the fewest threads."""
    parts: list[Block] = []
    for n in standings.sizes_with_peers(log):
        for k, threads in enumerate(sorted(log.distinct("threads", experiment=NAME, n=n))):
            parts.append(Heading(f"n = {n:,}, {tables.threads_text(threads)}"))
            parts.append(_table(log, n, threads, counted=k == 0))
    return [*parts, f"Seconds. {_LEGEND}"]


def _table(log: Log, n: int, threads: int, *, counted: bool = True) -> Table:
    """A line a class: seconds, who else was best, and if ``counted``, counts and the proof."""
    _, own, others = standings.teams(log, n, threads)
    rows = []
    for cls, cells in standings.standings(log, n, threads).items():
        rival, theirs = standings.best_other(cells)
        row = [cls, *(cells[name][0] for name in own + others)]
        against = (tables.ratio(cells[name][1], theirs) for name in own)
        row += [*map(tables.ratio_text, against), rival or DASH]
        here = {"experiment": NAME, "n": n, "cls": cls}
        for name in own if counted else ():
            for field, power in COUNTS.values():
                count = tables.middle(log.values(field, **here, threads=threads, solver=name))
                row.append(DASH if count is None else f"{count / n**power:.1f}")
        if counted:  # the proof was measured once, with the largest number of threads
            proof = log.values("certificate_seconds", **here, solver=CERTIFIED)
            chosen = log.distinct("method", **here, threads=threads, solver="bigsap auto")
            row += [", ".join(chosen) or DASH, tables.seconds_text(tables.middle(proof))]
        rows.append(line(*row))
    head = ["class", *own, *others, *(f"{name} / best other" for name in own), "best other"]
    if counted:
        head += [f"{name}, {what}" for name in own for what in COUNTS]
        head += ["auto chose", "certificate, s"]
    return table(line(*head), rows)


def _growth(log: Log) -> list[Block]:
    """The shape of the paper's Table 2: our columns, a size a line."""
    if len(log.distinct("n", experiment=NAME)) < 2:
        return []
    parts: list[Block] = [Heading("Seconds by size, as the paper's Table 2")]
    for solver, threads in standings.own_solvers(log):
        found = log.curves("seconds", experiment=NAME, solver=solver, threads=threads)
        parts += [f"{solver}, {tables.threads_text(threads)}:", tables.by_size(found, tables.seconds_text)]
    sizes = [n for n in log.distinct("n", experiment=NAME) if n in TABLE2]
    if sizes:
        theirs = {cls: {n: TABLE2[n][cls] for n in sizes} for cls in TABLE2[sizes[0]]}
        parts += ["The paper's, 32 threads on 16 cores:", tables.by_size(theirs, tables.seconds_text)]
    return parts


def _times(log: Log, n: int, threads: int) -> list[Block]:
    here = {"experiment": NAME, "n": n}
    found, own, others = standings.teams(log, n, threads)
    seeds = max((1 + seed for seed in log.values("seed", **here)), default=0)
    size = f"Medians of {seeds} seeds" if seeds > 1 else "One matrix a class"
    size += ", in seconds, run in turn; then the ratio to the best other solver, counts, and the"
    size += " seconds of the proof (with all threads), which are not in those before."
    if threads > 1 and (single := [name for name in others if found[name] == 1]):
        size += f" With one thread: {', '.join(single)}."
    peaks = []
    for name in own + others:
        most = log.values("peak_bytes", **here, solver=name, threads=found[name])
        peaks.append(line(name, f"{max(most) / 2**20:,.0f}" if most else None))
    return [
        Heading(f"n = {n:,}, {tables.threads_text(threads)}"),
        f"{size} {_LEGEND}",
        _table(log, n, threads),
        "Largest resident memory of each solver's process so far, MiB, its libraries, the matrix"
        " and smaller instances included.",
        table("solver | MiB", peaks),
    ]
