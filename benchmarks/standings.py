"""Who solved what in which time, whose answers were wrong, and who won."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from benchmarks.records import Log
from benchmarks.tables import DASH, middle, seconds_text

#: The experiment whose records are judged here, and a record of it that is the proof's alone.
NAME, CERTIFIED = "peers", "certificate"
#: A solver by its name, and with how many threads.
Entrant = tuple[str, int]
# Two optimal assignments differ in cost by rounding only.
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Match:
    """One class at one size: our seconds, the best other solver and its seconds.

    rival None: no other solver ended in its time, which was ``patience`` seconds.
    """

    cls: str
    n: int
    threads: int
    solver: str
    seconds: float
    rival: str | None
    rival_seconds: float | None
    patience: float | None

    @property
    def lead(self) -> float | None:
        """How many times faster we are; below 1, slower. None where no rival is known."""
        theirs = self.rival_seconds if self.rival else self.patience
        return None if theirs is None or self.seconds <= 0 else theirs / self.seconds

    @property
    def lost(self) -> bool:
        """Whether another solver was faster."""
        return self.rival is not None and self.lead is not None and self.lead < 1


def is_own(name: str) -> bool:
    """Whether a solver is one of BigSAP's."""
    return name.startswith("bigsap ")


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
    for record in records:
        if "timeout" in record:
            return f">{record['timeout']:.0f}", None
        if "failed" in record:
            return "failed", None
        if wrong(log, record):
            return "WRONG", None
    if not records:
        return DASH, None
    seconds = middle([record["seconds"] for record in records])
    return seconds_text(seconds) + ("" if len(records) == seeds else "*"), seconds


def sizes_with_peers(log: Log) -> list[int]:
    """Sizes at which others ran too; all sizes, where they never did."""
    ran = [(r["n"], r["solver"]) for r in log.of(experiment=NAME) if r["solver"] != CERTIFIED]
    others = {n for n, solver in ran if not is_own(solver)}
    return sorted(others or {n for n, _ in ran})


def thread_counts(log: Log) -> list[int]:
    """Numbers of threads that solvers ran against each other with."""
    ran = log.of(experiment=NAME)
    return sorted({r["threads"] for r in ran if r["solver"] != CERTIFIED})


def own_solvers(log: Log) -> list[Entrant]:
    """BigSAP's methods in the log, with their numbers of threads, in the order measured."""
    ran = ((r["solver"], r["threads"]) for r in log.of(experiment=NAME) if is_own(r["solver"]))
    return list(dict.fromkeys(ran))


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


def best_other(cells: dict[str, tuple[str, float | None]]) -> tuple[str | None, float | None]:
    """The fastest solver of a class that is not ours, and its seconds."""
    solved = {name: s for name, (_, s) in cells.items() if not is_own(name) and s is not None}
    return min(solved.items(), key=lambda item: item[1], default=(None, None))


def matches(log: Log) -> list[Match]:
    """Every class, size and number of threads at which others took part, in that order."""
    found = []
    for n in sizes_with_peers(log):
        for threads in sorted(log.distinct("threads", experiment=NAME, n=n)):
            _, own, others = teams(log, n, threads)
            if not own or not others:
                continue
            # The first by name is ``auto``, which people get by default.
            for cls, cells in standings(log, n, threads).items():
                seconds = cells[own[0]][1]
                if seconds is not None:
                    limit = min(log.values("timeout", experiment=NAME, cls=cls, n=n), default=None)
                    rival = best_other(cells)
                    found.append(Match(cls, n, threads, own[0], seconds, *rival, limit))
    return found
