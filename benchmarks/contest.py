"""Who won, by class and size: BigSAP's first method against the best of the others."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks import versus
from benchmarks.records import Log


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


def matches(log: Log) -> list[Match]:
    """Every class, size and number of threads at which others took part, in that order."""
    found = []
    for n in versus.sizes_with_peers(log):
        for threads in sorted(log.distinct("threads", experiment=versus.NAME, n=n)):
            _, own, others = versus.teams(log, n, threads)
            # In the order measured: the first is the one that people get by default.
            first = [name for name, count in versus.own_solvers(log) if name in own]
            if not first or not others:
                continue
            for cls, cells in versus.standings(log, n, threads).items():
                seconds = cells[first[0]][1]
                if seconds is None:
                    continue
                solved = {name: s for name in others if (s := cells[name][1]) is not None}
                rival = min(solved, key=solved.__getitem__) if solved else None
                limits = log.values("timeout", experiment=versus.NAME, cls=cls, n=n)
                found.append(
                    Match(
                        cls,
                        n,
                        threads,
                        first[0],
                        seconds,
                        rival,
                        solved[rival] if rival else None,
                        min(limits) if limits else None,
                    )
                )
    return found
