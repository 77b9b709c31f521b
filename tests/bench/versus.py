"""Seconds against the other solvers: matrix in memory, one thread, solve only."""

from __future__ import annotations

import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from bench.costs import matrix
from bench.measure import WARM_SIZE
from bench.peers import find
from bench.processes import Process
from bench.records import Log
from bench.report import DASH, middle, ratio_text, seconds_text, table
from bench.settings import Settings

NAME = "peers"
TITLE = "Seconds against other solvers, one thread, matrix in memory, solve only"
CERTIFIED = "certificate"
THREADS = 1
REFERENCE = "A1015 C++"

# A run shorter than this is repeated at once, in a second round: its noise is larger.
_REPEATED = 1.0
# On the first seed a solver this much slower than the best, and this slow, has lost:
# the other seeds are not spent on it.
_LOST, _LOST_SECONDS = 3.0, 3.0
# Two optimal assignments differ in cost by rounding only.
_TOLERANCE = 1e-9


def solvers(settings: Settings) -> list[str]:
    """BigSAP's methods first: the others' patience is measured by them."""
    installed = [name for name in settings.peers if find(name).installed()]
    return [f"bigsap {method}" for method in settings.methods] + installed


def run(settings: Settings, log: Log) -> None:
    n, names = settings.peers_size, solvers(settings)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=settings.out)))
        processes = {name: stack.enter_context(Process(name, THREADS)) for name in names}
        for seed in range(settings.peers_seeds):
            for cls in settings.classes:
                missing = [
                    name
                    for name in names
                    if not log.has(NAME, cls, n, seed, name, THREADS)
                    and not (seed and _lost(log, cls, n, name))
                ]
                proof = seed == 0 and not log.has(NAME, cls, n, 0, CERTIFIED, THREADS)
                if not missing and not proof:
                    continue
                print(f"    {cls}, seed {seed}: {len(missing)} solvers", flush=True)
                cost = matrix(cls, n, seed)
                if proof:
                    _certificate(log, cls, cost, settings.methods[0])
                if missing:
                    path = _save(folder / "matrix.npy", cost)
                    small = _save(folder / f"warm-{cls}.npy", matrix(cls, WARM_SIZE, 0))
                    del cost
                    instance = (cls, n, seed)
                    _contest(settings, log, processes, missing, instance, path, small)


def _save(path: Path, cost: Any) -> Path:
    np.save(path, cost)
    return path


def _contest(
    settings: Settings, log: Log, processes: dict[str, Process], names: list[str],
    instance: tuple[str, int, int], path: Path, small: Path,
) -> None:  # fmt: skip
    """All solvers on one matrix, turn by turn; quick ones a second time in reverse order."""
    cls, n, seed = instance
    own = [name for name in names if name.startswith("bigsap ")]
    others = [name for name in names if name not in own]
    order = own + (others[::-1] if seed % 2 else others)
    best: float | None = None
    quick: dict[str, dict[str, Any]] = {}
    for name in order:
        answer = processes[name].run(path, settings.limit_of(best), small)
        seconds = answer.get("seconds")
        if seconds is not None and answer["cost"] is not None:
            best = seconds if best is None else min(best, seconds)
        if seconds is not None and seconds < _REPEATED:
            quick[name] = answer
        else:
            log.add(NAME, cls, n, seed, name, THREADS, **answer)
    for name in reversed(quick):
        again = processes[name].run(path, settings.limit_of(best), small)
        runs = [quick[name]["seconds"], *([again["seconds"]] if "seconds" in again else [])]
        answer = {**quick[name], "seconds": min(runs), "runs": runs}
        log.add(NAME, cls, n, seed, name, THREADS, **answer)


def _lost(log: Log, cls: str, n: int, name: str) -> bool:
    """Whether the first seed was verdict enough."""
    first = log.get(NAME, cls, n, 0, name, THREADS)
    if first is None or name.startswith("bigsap "):
        return False
    seconds = first.get("seconds")
    if seconds is None:
        return True
    best = min(log.values("seconds", experiment=NAME, cls=cls, n=n, seed=0))
    return bool(seconds > _LOST_SECONDS and seconds > _LOST * best)


def _certificate(log: Log, cls: str, cost: Any, method: str) -> None:
    """What the proof costs on top: not part of the seconds compared."""
    small = matrix(cls, WARM_SIZE, 0)
    bigsap.solve(small, method=method, threads=THREADS)
    result = bigsap.solve(cost, method=method, threads=THREADS)
    log.add(
        NAME, cls, len(cost), 0, CERTIFIED, THREADS, method=result.stats["method"],
        certificate_seconds=result.stats["seconds"]["certificate"], gap=result.gap, fun=result.fun,
    )  # fmt: skip


def wrong(log: Log, record: dict[str, Any]) -> bool:
    """Whether another solver found a cheaper assignment of the same matrix."""
    if record["cost"] is None:
        return True
    same = {name: record[name] for name in ("experiment", "cls", "n", "seed")}
    costs = [cost for cost in log.values("cost", **same) if cost is not None]
    best = min(costs)
    margin = _TOLERANCE * max(abs(best), abs(record["cost"])) + record.get("error_bound", 0.0)
    return bool(record["cost"] > best + margin)


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


def render(settings: Settings, log: Log) -> str:
    parts = [_times(log, n) for n in log.distinct("n", experiment=NAME)]
    failures = [
        f"- {r['solver']} failed on {r['cls']}, seed {r['seed']}: {r['failed']}"
        for r in log.of(experiment=NAME)
        if "failed" in r
    ]
    return "\n\n".join(parts + (["\n".join(failures)] if failures else []))


def _times(log: Log, n: int) -> str:
    here = {"experiment": NAME, "n": n}
    names = [name for name in log.distinct("solver", **here) if name != CERTIFIED]
    # In the order of the first seed's records: slow solvers are logged before quick ones.
    own = sorted(name for name in names if name.startswith("bigsap "))
    others = sorted(name for name in names if name not in own)
    seeds = max((1 + seed for seed in log.values("seed", **here)), default=0)
    times, ratios, counts = [], [], []
    for cls in log.distinct("cls", **here):
        cells = {
            name: _cell(log, list(log.of(**here, cls=cls, solver=name)), seeds)
            for name in own + others
        }
        times.append([cls, *(cells[name][0] for name in own + others)])
        ratios.append([cls, *_ratios({name: cells[name][1] for name in cells}, own)])
        counts.append([cls, *_counts(log, {**here, "cls": cls}, own)])
    size = f"n = {n:,}, medians of {seeds} seeds in seconds, run in turn."
    legend = (
        "`>` stopped; `*` so slow on the first seed that the others were left out; WRONG: another"
        " solver found a cheaper assignment."
    )
    meaning = "Seconds as multiples of another's: below 1, BigSAP is faster."
    pairs = [f"{name} / {rival}" for name in own for rival in ("best other", REFERENCE)]
    per_row = [f"{name}, {what}" for name in own for what in ("scans / n", "pairs / n^2")]
    return "\n\n".join([
        size, table(["class", *own, *others], times), legend,
        meaning, table(["class", "best other", *pairs], ratios),
        "Counts, and the proof's seconds, which are not in those above.",
        table(["class", *per_row, "auto chose", "certificate, s"], counts),
    ])  # fmt: skip


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
        for field, unit in (("rows_scanned", n), ("pairs_evaluated", n * n)):
            count = middle(log.values(field, **where, solver=name))
            texts.append(DASH if count is None else f"{count / unit:.1f}")
    chosen = log.distinct("method", **where, solver="bigsap auto")
    proof = log.values("certificate_seconds", **where, solver=CERTIFIED)
    return [*texts, ", ".join(chosen) or DASH, seconds_text(middle(proof))]
