"""Small matrices: one call in place of scipy's, and many at once."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.peers import find, lapx_batch
from benchmarks.records import Log
from benchmarks.report import DASH, middle, ratio_text, table, verdict
from bigsap.sources.base import Array

NAME = "small"
TITLE = "Small matrices: `linear_sum_assignment`, and 1,000 at once by `solve_many`"
OURS, SCIPY, LAPX = "bigsap", "scipy", "lapx"
ONE, MANY = "one", "many"
#: At most so many times as long as scipy, by size.
BARS = {100: 1.0, 200: 0.7, 500: 0.5, 1000: 0.4}
# A measurement repeats calls for so long, and is the least of so many.
_SECONDS, _TURNS = 0.05, 5


def run(settings: BenchSettings, log: Log) -> None:
    """Every size: solvers take turns, each on the same matrices."""
    for n in settings.small_sizes:
        missing = [name for name in _singles() if not log.has(NAME, ONE, n, 0, name, 1)]
        if missing:
            cost = np.random.default_rng(n).random((n, n))
            _record(log, ONE, n, {name: _singles()[name] for name in missing}, cost)
    for n in settings.many_sizes:
        missing = [name for name in _batches() if not log.has(NAME, MANY, n, 0, name, 1)]
        if missing:
            costs = np.random.default_rng(n).random((settings.many_count, n, n))
            _record(log, MANY, n, {name: _batches()[name] for name in missing}, costs)


def _record(log: Log, kind: str, n: int, calls: dict[str, Callable[[Array], Any]], costs: Array) -> None:
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(_TURNS):
        for name, call in calls.items():
            best[name] = min(best[name], _seconds(call, costs))
    for name, seconds in best.items():
        log.add(NAME, kind, n, 0, name, 1, seconds=seconds)


def _seconds(call: Callable[[Array], Any], costs: Array) -> float:
    """Of one call: the mean of as many as fit ``_SECONDS``, after one that loads."""
    call(costs)
    count, clock = 0, time.perf_counter()
    while (spent := time.perf_counter() - clock) < _SECONDS or not count:
        call(costs)
        count += 1
    return spent / count


def _singles() -> dict[str, Callable[[Array], Any]]:
    found: dict[str, Callable[[Array], Any]] = {OURS: bigsap.linear_sum_assignment}
    for name, peer in ((SCIPY, find("scipy")), (LAPX, find("lapx lapjv"))):
        if peer.installed():
            found[name] = peer.load(1)
    return found


def _batches() -> dict[str, Callable[[Array], Any]]:
    found: dict[str, Callable[[Array], Any]] = {OURS: bigsap.solve_many}
    if find("scipy").installed():
        one = find("scipy").load(1)
        found[SCIPY] = lambda costs: [one(cost) for cost in costs]
    if find("lapx lapjv").installed():
        found[LAPX] = lapx_batch
    return found


def render(settings: BenchSettings, log: Log) -> str:
    """Microseconds a call, and multiples of scipy's."""
    rows = []
    for kind, label in ((ONE, "one matrix"), (MANY, f"{settings.many_count:,} matrices")):
        for n in sorted(log.distinct("n", experiment=NAME, cls=kind)):
            times = {
                name: middle(log.values("seconds", experiment=NAME, cls=kind, n=n, solver=name))
                for name in (OURS, SCIPY, LAPX)
            }
            ours, theirs = times[OURS], times[SCIPY]
            ratio = ours / theirs if ours and theirs else None
            bar, met = BARS.get(n) if kind == ONE else 1.0, DASH
            if bar is not None and ratio is not None:
                met = verdict(ratio, bar, at_most=True, judged=log.judged)
            rows.append(
                [
                    label,
                    f"{n:,}",
                    *(_micro(times[name]) for name in (OURS, SCIPY, LAPX)),
                    ratio_text(ratio),
                    DASH if bar is None else f"{bar:g}",
                    met,
                ]
            )
    head = ["what", "n", f"{OURS}, us", f"{SCIPY}, us", f"{LAPX}, us", f"{OURS} / {SCIPY}", "bar", "judged"]
    note = (
        "Independent costs, uniform; microseconds a call, the least of"
        f" {_TURNS} turns. scipy solves many in a loop, lapx by `lapjvx_batch`."
    )
    return f"{table(head, rows)}\n\n{note}"


def _micro(seconds: float | None) -> str:
    return (
        DASH if seconds is None else f"{1e6 * seconds:,.3g}" if seconds < 1e-3 else (f"{1e6 * seconds:,.0f}")
    )
