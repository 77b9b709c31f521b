"""Solvers of one kind of problem: each in a process that is not ours, its answers judged.

An experiment that uses it has ``make(cls, n)``, the problem as named arrays; ``SOLVERS``; and
``judge(problem, answer)``, facts for the log, of which ``cost`` is that of the answer as the
problem's own costs give it, None where it is no answer, and inf where it says that there is none.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.peers import PEERS, find
from benchmarks.processes import ERRORS, Child, own_peak
from benchmarks.records import Key, Log
from benchmarks.tables import DASH, Table, line, ratio_text, seconds_text, table, verdict

Problem = dict[str, Any]
OURS = "bigsap"
#: Distributions of other solvers that no solver of ``peers`` is of.
LIBRARIES = ("laprust", "k-means-constrained")
_COUNTS = ("rows_scanned", "rows_evaluated", "pairs_evaluated", "certificate_pairs", "expected", "method")
# Loading, making and warming up do not count as solving.
_LOADING = 300.0
# A run shorter than this is repeated: the first one loads kernels and pages.
_SHORT, _RUNS = 1.0, 3
# Two optimal answers differ by rounding only.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Entrant:
    """A solver: what must be installed, and ``start``, which converts and returns the timed call.

    threads: with more than one, seconds are those of the wall, else of the processor.
    rounding: by how much of the largest cost it may change each cost.
    """

    module: str
    start: Callable[[Problem], Callable[[], Any]]
    threads: int = 1
    rounding: float = 0.0

    def installed(self) -> bool:
        """Whether it can be imported; nothing is."""
        return importlib.util.find_spec(self.module) is not None


@dataclass(frozen=True)
class Case:
    """One problem and the solvers that are tried on it, ours first."""

    cls: str
    n: int
    names: Sequence[str]


def ours(solve: Callable[[Problem], Any], threads: int = 1) -> Entrant:
    """BigSAP, by a call on the problem; nothing is converted before the clock starts."""
    return Entrant("bigsap", lambda problem: lambda: solve(problem), threads)


def facts_of(result: bigsap.Result) -> dict[str, Any]:
    """What a result says of its own work."""
    stats = result.stats
    seconds = {f"{name}_seconds": stats["seconds"][name] for name in ("search", "certificate")}
    return {name: stats[name] for name in _COUNTS} | seconds | {"status": str(result.status)}


def run(settings: BenchSettings, log: Log, name: str, cases: Iterable[Case]) -> None:
    """Every case of the module so named: solvers take turns on one problem, unless the log has it."""
    module = importlib.import_module(name)
    children: dict[tuple[bool, int], Child] = {}
    try:
        with tempfile.TemporaryDirectory(dir=settings.out) as folder:
            for case in cases:
                _case(settings, log, module, case, children, Path(folder))
    finally:
        for child in children.values():
            child.kill()


def _case(
    settings: BenchSettings,
    log: Log,
    module: Any,
    case: Case,
    children: dict[tuple[bool, int], Child],
    folder: Path,
) -> None:
    entrants = {name: module.SOLVERS[name] for name in case.names}
    keys = log.missing(
        (module.NAME, case.cls, case.n, 0, name, it.threads)
        for name, it in entrants.items()
        if it.installed() and _chosen(settings, it.module)
    )
    if not keys:
        return
    print(f"    {case.cls}, n = {case.n:,}: {', '.join(key[4] for key in keys)}", flush=True)
    path = folder / "problem.npz"
    np.savez(path, **module.make(case.cls, case.n))
    for key in keys:
        place = (key[4].startswith(OURS), key[5])
        known = log.of(experiment=module.NAME, cls=case.cls, n=case.n)
        best = min((r["seconds"] for r in known if r.get("cost") is not None), default=None)
        if place not in children:
            children[place] = Child(_serve, module.__name__, threads=key[5])
        answer = _answer(children[place], key, path, settings.contest_limit_of(best, own=place[0]))
        if "failed" in answer or "timeout" in answer:
            children.pop(place).kill()
        log.add(key, **answer)


def _chosen(settings: BenchSettings, module: str) -> bool:
    """Whether a library takes part: BigSAP always, others as the settings name their solvers."""
    known = {peer.module for peer in PEERS.values()}
    chosen = {find(name).module for name in settings.peers}
    return module == OURS or module in chosen or (bool(chosen) and module not in known)


def _answer(child: Child, key: Key, path: Path, limit: float) -> dict[str, Any]:
    """What a process says of one solver: it is ready, it has solved, and how well."""
    with suppress(OSError):  # it ended: its next message says so
        child.pipe.send((key[4], key[1], str(path)))
    said: dict[str, Any] = {}
    for seconds, otherwise in (_LOADING, "failed"), (limit, "timeout"), (_LOADING, "failed"):
        answer = child.next(seconds)
        if answer is None:
            return {otherwise: limit if otherwise == "timeout" else f"silent for {seconds:.0f} s"}
        if "failed" in answer:
            return answer
        said = answer
    return said


def _serve(pipe: Connection, name: str) -> None:
    """Answer one request after another: a problem of the experiment by one of its solvers."""
    os.dup2(2, 1)  # libraries may print
    module = importlib.import_module(name)
    warm: set[tuple[str, str]] = set()
    while True:
        solver, cls, path = pipe.recv()
        try:
            if (solver, cls) not in warm:
                module.SOLVERS[solver].start(_arrays(module.make(cls, module.WARM)))()
            warm.add((solver, cls))
            pipe.send(_solved(pipe, module, module.SOLVERS[solver], path))
        except ERRORS as error:
            pipe.send({"failed": f"{type(error).__name__}: {error}"[:200]})


def _solved(pipe: Connection, module: Any, entrant: Entrant, path: str) -> dict[str, Any]:
    """Facts of one solve; the pipe gets a message when it begins and ends."""
    with np.load(path) as file:
        problem = _arrays(file)
    call = entrant.start(problem)
    pipe.send({"ready": True})
    answer, facts = _timed(call, entrant.threads)
    pipe.send({"solved": True})
    facts |= module.judge(problem, answer)
    # Of the largest cost, and for each row.
    bound = entrant.rounding * facts.pop("largest", 0.0)
    return facts | ({"error_bound": bound} if bound else {})


def _arrays(given: Any) -> Problem:
    """The problem as arrays, and as numbers where they have no axes."""
    return {name: one[()] for name, one in ((name, np.asarray(given[name])) for name in given)}


def _timed(call: Callable[[], Any], threads: int) -> tuple[Any, dict[str, Any]]:
    """The answer, the seconds of its best run, and what the process took beyond the problem."""
    gc.collect()
    before = _fresh_peak()
    runs: list[dict[str, float]] = []
    while len(runs) < (_RUNS if not runs or runs[0]["wall"] < _SHORT else 1):
        wall, processor = time.perf_counter(), time.process_time()
        answer = call()
        spent = {"wall": time.perf_counter() - wall, "processor": time.process_time() - processor}
        runs.append(spent | {"seconds": spent["processor" if threads == 1 else "wall"]})
    best = min(runs, key=lambda run: run["seconds"])
    return answer, {**best, "beyond_bytes": max(0, own_peak() - before)}


def _fresh_peak() -> int:
    """Forget the largest size of this process so far, and return the present one."""
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    return own_peak()


# -- reports --------------------------------------------------------------------------------


def gap(log: Log, record: dict[str, Any]) -> float | None:
    """How much more an answer costs than the best of its problem, as a share; None: no answer."""
    if record.get("cost") is None:
        return None
    same = {name: record[name] for name in ("experiment", "cls", "n")}
    best = min(found["cost"] for found in log.of(**same) if found.get("cost") is not None)
    over = record["cost"] - best if record["cost"] != best else 0.0
    margin = _TOLERANCE * max(abs(best), 1e-300) + record.get("error_bound", 0.0)
    return over / (abs(best) or 1.0) if over > margin else 0.0


def exact(log: Log, record: dict[str, Any]) -> bool:
    """Whether a record is that of an optimal answer."""
    return gap(log, record) == 0


def cell(log: Log, record: dict[str, Any] | None) -> str:
    """Seconds, and how the answer misses the optimum if it does."""
    if record is None:
        return DASH
    if "timeout" in record:
        return f">{record['timeout']:.0f}"
    if "failed" in record:
        return "failed"
    missed = gap(log, record)
    if missed is None or missed == float("inf"):
        return "WRONG"
    text = seconds_text(record["seconds"])
    return f"{text} (+{100 * missed:.2g} %)" if missed else text


def memory_text(record: dict[str, Any] | None) -> str:
    """MiB beyond the problem."""
    return (
        DASH if record is None or "beyond_bytes" not in record else f"{record['beyond_bytes'] / 2**20:,.0f}"
    )


def contest(
    log: Log, name: str, solvers: Iterable[str], classes: Iterable[str], bars: dict[tuple[str, int], float]
) -> Table | None:
    """A line a problem: seconds of all, the best other over ours, memory, and bars; None of nothing."""
    here = [r for r in log.of(experiment=name) if r["cls"] in set(classes)]
    shown = [s for s in solvers if any(r["solver"] == s for r in here)]
    problems = sorted({(r["cls"], r["n"]) for r in here}, key=lambda it: (list(classes).index(it[0]), it[1]))
    rows = []
    for cls, n in problems:
        of = {r["solver"]: r for r in here if (r["cls"], r["n"]) == (cls, n)}
        own = next((r for s, r in of.items() if s.startswith(OURS)), None)
        seconds = own.get("seconds") if own else None
        right = [r["seconds"] for s, r in of.items() if not s.startswith(OURS) and exact(log, r)]
        lead = min(right) / seconds if right and seconds else None
        bar = bars.get((cls, n))
        met = verdict(seconds, bar, at_most=True, judged=log.judged) if bar else DASH
        cells = [cell(log, of.get(s)) for s in shown]
        rows.append(
            line(cls, f"{n:,}", *cells, ratio_text(lead), memory_text(own), f"{bar:g}" if bar else DASH, met)
        )
    if not rows:
        return None
    head = ["problem", "n", *shown, f"best exact other / {OURS}", f"{OURS}, MiB", "bar, s", "judged"]
    return table(line(*head), rows)


LEGEND = (
    "Seconds of the processor on one thread, of the solve alone, the proof included where there is one;"
    " conversions that a solver needs are made before its clock starts. In brackets: how much more the"
    " answer costs than the best; `WRONG`: pairs that are not allowed, or no complete answer; `failed`: an"
    " error or a crash; `>`: stopped after so many seconds; `-`: not tried. MiB: what the solve took beyond"
    " the problem itself."
)
