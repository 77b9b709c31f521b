"""Seconds against the other solvers: matrix in memory, solve only; and how they grow with n."""

from __future__ import annotations

import itertools
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.costs import matrix
from benchmarks.growth import Curves, by_size
from benchmarks.machine import enough_memory
from benchmarks.measure import WARM_SIZE
from benchmarks.paper import TABLE2
from benchmarks.peers import find, own_name
from benchmarks.processes import Process
from benchmarks.records import Log
from benchmarks.report import DASH, middle, ratio_text, seconds_text, table

NAME = "peers"
TITLE = "Seconds against other solvers, matrix in memory, solve only"
CERTIFIED = "certificate"
REFERENCE = "A1015 C++"

#: A solver by its name, and with how many threads.
Entrant = tuple[str, int]

# A run shorter than this is repeated at once, in a second round: its noise is larger.
_REPEATED = 1.0
# On the first seed a solver this much slower than the best, and this slow, has lost:
# the other seeds are not spent on it.
_LOST, _LOST_SECONDS = 3.0, 3.0
# What does not depend on the machine: label -> field and the power of n it is divided by.
COUNTS = {
    "scans / n": ("rows_scanned", 1),
    "rows evaluated / n": ("rows_evaluated", 1),
    "pairs / n^2": ("pairs_evaluated", 2),
}
# Two optimal assignments differ in cost by rounding only.
_TOLERANCE = 1e-9
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


def is_own(name: str) -> bool:
    """Whether a solver is one of BigSAP's."""
    return name.startswith("bigsap ")


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
    missing = [it for it in processes if not log.has(NAME, *instance, *it) and not _lost(log, *instance, *it)]
    threads = max(settings.peers_threads)
    proof = seed == 0 and not log.has(NAME, cls, n, 0, CERTIFIED, threads)
    if not missing and not proof:
        return
    print(f"    {cls}, n = {n:,}, seed {seed}: {len(missing)} runs", flush=True)
    cost = matrix(cls, n, seed)
    if proof:
        _certificate(log, cls, cost, settings.methods[0], threads)
    if missing:
        path = _save(folder / "matrix.npy", cost)
        small = _save(folder / f"warm-{cls}.npy", matrix(cls, WARM_SIZE, 0))
        del cost
        _contest(settings, log, processes, missing, instance, path, small)


def _save(path: Path, cost: Any) -> Path:
    np.save(path, cost)
    return path


def _contest(
    settings: BenchSettings,
    log: Log,
    processes: dict[Entrant, Process],
    missing: list[Entrant],
    instance: tuple[str, int, int],
    path: Path,
    small: Path,
) -> None:
    """All solvers on one matrix, turn by turn; quick ones a second time in reverse order."""
    own = [it for it in missing if is_own(it[0])]
    others = [it for it in missing if it not in own]
    order = own + (others[::-1] if instance[2] % 2 else others)
    best: float | None = None
    quick: dict[Entrant, dict[str, Any]] = {}
    for it in order:
        answer = processes[it].run(path, settings.limit_of(best), small)
        seconds = answer.get("seconds")
        if seconds is not None and answer["cost"] is not None:
            best = seconds if best is None else min(best, seconds)
        if seconds is not None and seconds < _REPEATED:
            quick[it] = answer
        else:
            log.add(NAME, *instance, *it, **answer)
    for it in reversed(quick):
        again = processes[it].run(path, settings.limit_of(best), small)
        runs = [quick[it]["seconds"], *([again["seconds"]] if "seconds" in again else [])]
        log.add(NAME, *instance, *it, **{**quick[it], "seconds": min(runs), "runs": runs})


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


def _certificate(log: Log, cls: str, cost: Any, method: str, threads: int) -> None:
    """What the proof costs on top: not part of the seconds compared."""
    small = matrix(cls, WARM_SIZE, 0)
    bigsap.solve(small, method=method, threads=threads)
    result = bigsap.solve(cost, method=method, threads=threads)
    log.add(
        NAME,
        cls,
        len(cost),
        0,
        CERTIFIED,
        threads,
        method=result.stats["method"],
        certificate_seconds=result.stats["seconds"]["certificate"],
        gap=result.gap,
        fun=result.fun,
    )


def wrong(log: Log, record: dict[str, Any]) -> bool:
    """Whether another solver found a cheaper assignment of the same matrix."""
    if record["cost"] is None:
        return True
    same = {name: record[name] for name in ("experiment", "cls", "n", "seed")}  # any threads
    # Above the least cost of the matrix, lest an offset hide what assignments differ by.
    own = _above(record)
    best = min(_above(found) for found in log.of(**same) if found.get("cost") is not None)
    margin = _TOLERANCE * max(abs(best), abs(own)) + record.get("error_bound", 0.0)
    return bool(own > best + margin)


def _above(record: dict[str, Any]) -> float:
    return float(record["cost"] - record.get("floor", 0.0))


def _cell(log: Log, records: list[dict[str, Any]], seeds: int) -> tuple[str, float | None]:
    """What the table shows for a solver on a class, and its seconds if it solved it."""
    if not records:
        return DASH, None
    for record in records:
        if "timeout" in record:
            return f">{record['timeout']:.0f}", None
        if "failed" in record:
            return "failed", None
        if wrong(log, record):
            return "WRONG", None
    seconds = middle([record["seconds"] for record in records])
    return seconds_text(seconds) + ("" if len(records) == seeds else "*"), seconds


def render(settings: BenchSettings, log: Log) -> str:
    """A section a size and number of threads, then how our methods grow with n."""
    parts = [
        _times(log, n, threads)
        for n in sizes_with_peers(log)
        for threads in sorted(log.distinct("threads", experiment=NAME, n=n))
    ]
    parts += _growth(log)
    failures = [
        f"- {r['solver']} failed on {r['cls']}, n = {r['n']:,}, seed {r['seed']}: {r['failed']}"
        for r in log.of(experiment=NAME)
        if "failed" in r
    ]
    return "\n\n".join(parts + (["\n".join(failures)] if failures else []))


def brief(settings: BenchSettings, log: Log) -> str:
    """One table a size: seconds of all with one thread, of some with more, and our counts."""
    parts = []
    for n in sizes_with_peers(log):
        counts = sorted(log.distinct("threads", experiment=NAME, n=n))
        first, last = standings(log, n, counts[0]), standings(log, n, counts[-1])
        _, own, others = teams(log, n, counts[0])
        more = [name for name in [*own, REFERENCE] if len(counts) > 1 and name in own + others]
        rows = []
        for cls, cells in first.items():
            here = {"experiment": NAME, "n": n, "cls": cls, "threads": counts[0]}
            best, *ratios = _ratios({name: cells[name][1] for name in cells}, own)
            rows.append(
                [
                    cls,
                    *(cells[name][0] for name in own + others),
                    ratios[0] if ratios else DASH,
                    best,
                    *(last[cls][name][0] for name in more),
                    *_counts(log, here, own[:1])[:2],
                ]
            )
        head = [
            "class",
            *own,
            *others,
            f"{own[0]} / best other" if own else "",
            "best other",
            *(f"{name}, {counts[-1]} threads" for name in more),
            "scans / n",
            "evaluated / n",
        ]
        parts.append(f"### n = {n:,}, {counts[0]} thread{'s' if counts[0] > 1 else ''}")
        parts.append(table(head, rows))
    return "\n\n".join([*parts, f"Seconds. {_LEGEND} Counts are those of the first column."])


def sizes_with_peers(log: Log) -> list[int]:
    """Sizes at which others ran too; all sizes, where they never did."""
    found = {r["n"] for r in log.of(experiment=NAME) if r["solver"] != CERTIFIED}
    others = {r["n"] for r in log.of(experiment=NAME) if r["solver"] != CERTIFIED and not is_own(r["solver"])}
    return sorted(others or found)


def curves(log: Log, solver: str, threads: int, field: str = "seconds") -> Curves:
    """Medians over the seeds: class -> n -> median."""
    found: Curves = {}
    here = {"experiment": NAME, "solver": solver, "threads": threads}
    for cls in log.distinct("cls", **here):
        for n in sorted(log.distinct("n", **here, cls=cls)):
            value = middle(log.values(field, **here, cls=cls, n=n))
            if value is not None:
                found.setdefault(cls, {})[n] = value
    return found


def own_solvers(log: Log) -> list[tuple[str, int]]:
    """BigSAP's methods in the log, with their numbers of threads."""
    return list(
        dict.fromkeys((r["solver"], r["threads"]) for r in log.of(experiment=NAME) if is_own(r["solver"]))
    )


def _growth(log: Log) -> list[str]:
    """The shape of the paper's Table 2: our columns, a size a line."""
    if len(log.distinct("n", experiment=NAME)) < 2:
        return []
    parts = ["### Seconds by size, as the paper's Table 2"]
    for solver, threads in own_solvers(log):
        found = curves(log, solver, threads)
        parts += [f"{solver}, {threads} thread{'s' if threads > 1 else ''}:"]
        parts += [by_size(found, seconds_text)]
    sizes = [n for n in log.distinct("n", experiment=NAME) if n in TABLE2]
    if sizes:
        theirs = {cls: {n: TABLE2[n][cls] for n in sizes} for cls in TABLE2[sizes[0]]}
        parts += ["The paper's, 32 threads on 16 cores:", by_size(theirs, seconds_text)]
    return parts


def teams(log: Log, n: int, threads: int) -> tuple[dict[str, int], list[str], list[str]]:
    """Threads of each solver that ran at this size beside those with ``threads``; ours, others."""
    here = {"experiment": NAME, "n": n}
    # Who knows one thread only takes part with it whatever the others use.
    found = {
        name: threads if threads in log.distinct("threads", **here, solver=name) else 1
        for name in log.distinct("solver", **here)
        if name != CERTIFIED
    }
    own = sorted(name for name in found if is_own(name))
    return found, own, sorted(name for name in found if name not in own)


def standings(log: Log, n: int, threads: int) -> dict[str, dict[str, tuple[str, float | None]]]:
    """class -> solver -> what the table says of it, and its seconds if it solved it."""
    here = {"experiment": NAME, "n": n}
    found, own, others = teams(log, n, threads)
    seeds = max((1 + seed for seed in log.values("seed", **here)), default=0)
    return {
        cls: {
            name: _cell(log, list(log.of(**here, cls=cls, solver=name, threads=found[name])), seeds)
            for name in own + others
        }
        for cls in log.distinct("cls", **here)
    }


def _times(log: Log, n: int, threads: int) -> str:
    here = {"experiment": NAME, "n": n}
    found, own, others = teams(log, n, threads)
    seeds = max((1 + seed for seed in log.values("seed", **here)), default=0)
    times, ratios, counts = [], [], []
    for cls, cells in standings(log, n, threads).items():
        times.append([cls, *(cells[name][0] for name in own + others)])
        ratios.append([cls, *_ratios({name: cells[name][1] for name in cells}, own)])
        counts.append([cls, *_counts(log, {**here, "threads": threads, "cls": cls}, own)])
    team = f"{threads} thread{'s' if threads > 1 else ''}"
    medians = f"Medians of {seeds} seeds" if seeds > 1 else "One matrix a class"
    size = f"### n = {n:,}, {team}\n\n{medians}, in seconds, run in turn."
    if threads > 1 and (single := [name for name in others if found[name] == 1]):
        size += f" With one thread: {', '.join(single)}."
    meaning = "Seconds as multiples of another's: below 1, BigSAP is faster."
    pairs = [f"{name} / {rival}" for name in own for rival in ("best other", REFERENCE)]
    per_row = [f"{name}, {what}" for name in own for what in COUNTS]
    return "\n\n".join(
        [
            size,
            table(["class", *own, *others], times),
            _LEGEND,
            meaning,
            table(["class", "best other", *pairs], ratios),
            "Counts, and the seconds of the proof (with all threads), which are not in those above.",
            table(["class", *per_row, "auto chose", "certificate, s"], counts),
            "Largest resident memory of each solver's process so far, MiB, its libraries, the matrix"
            " and smaller instances included.",
            table(
                ["solver", "MiB"],
                [
                    [name, _peak(log, {**here, "solver": name, "threads": found[name]})]
                    for name in own + others
                ],
            ),
        ]
    )


def _peak(log: Log, where: dict[str, Any]) -> str:
    found = log.values("peak_bytes", **where)
    return f"{max(found) / 2**20:,.0f}" if found else DASH


def _ratios(seconds: dict[str, float | None], own: list[str]) -> list[str]:
    """The best other solver, then each of ours against it and against REFERENCE."""
    solved = {name: s for name, s in seconds.items() if name not in own and s is not None}
    first = min(solved, key=solved.__getitem__) if solved else None
    texts = [first or DASH]
    for name in own:
        mine = seconds[name]
        for rival in (first, REFERENCE):
            other = solved.get(rival) if rival else None
            texts.append(ratio_text(mine / other if mine and other else None))
    return texts


def _counts(log: Log, where: dict[str, Any], own: list[str]) -> list[str]:
    """What does not depend on the machine, and the proof, listed apart."""
    n, texts = where["n"], []
    for name in own:
        for field, power in COUNTS.values():
            count = middle(log.values(field, **where, solver=name))
            texts.append(DASH if count is None else f"{count / n**power:.1f}")
    chosen = log.distinct("method", **where, solver="bigsap auto")
    # Measured once, with the largest number of threads.
    any_threads = {key: value for key, value in where.items() if key != "threads"}
    proof = log.values("certificate_seconds", **{**any_threads, "solver": CERTIFIED})
    return [*texts, ", ".join(chosen) or DASH, seconds_text(middle(proof))]
