"""Rows that may stay unassigned at a price: arrays beside others, points alone."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.peers import find, lapx_gated
from benchmarks.records import Log
from benchmarks.report import DASH, seconds_text, table
from bigsap.sources.base import Array

NAME = "gated"
TITLE = "Rows that may stay unassigned: `unassigned_cost`"
OURS, LAPX, SCIPY = "bigsap", "lapx", "scipy"
#: Two pictures of the same points; unrelated points; the same, twice as many rows as columns.
TRACKS, RANDOM, TALL = "tracks", "random points", "tall"
POINTS = "points, no matrix"
#: The price: the square of so many mean distances of neighbours. Some twelve pairs cost less.
_SPACINGS = 2.0
_ERROR = 0.15
_LEAST_SECONDS, _TURNS = 0.05, 3


def pictures_of(kind: str, n: int) -> tuple[Array, Array, float]:
    """Points (n, 2) and (m, 2), and the price."""
    rng = np.random.default_rng(n)
    spacing = n**-0.5
    x = rng.random((n, 2))
    y = rng.random((n // 2 if kind == TALL else n, 2))
    if kind in (TRACKS, POINTS):
        y = x[rng.permutation(n)] + rng.normal(0, _ERROR * spacing, (n, 2))
        x = x + rng.normal(0, _ERROR * spacing, (n, 2))
    return x, y, (_SPACINGS * spacing) ** 2


def run(settings: BenchSettings, log: Log) -> None:
    """Every size: solvers take turns on the same matrix; points by BigSAP alone."""
    for n in settings.gated_sizes:
        for kind in (TRACKS, RANDOM, TALL):
            missing = [name for name in _solvers() if not log.has(NAME, kind, n, 0, name, 1)]
            if missing:
                _side_by_side(log, kind, n, missing)
    threads = max(settings.thread_counts)
    for n in settings.gated_points:
        if not log.has(NAME, POINTS, n, 0, OURS, threads):
            x, y, price = pictures_of(POINTS, n)
            costs = bigsap.points(x, y)
            clock = time.perf_counter()
            result = bigsap.solve(costs, unassigned_cost=price, threads=threads)
            log.add(
                NAME,
                POINTS,
                n,
                0,
                OURS,
                threads,
                seconds=time.perf_counter() - clock,
                scans=result.stats["rows_scanned"],
                proof=result.stats["proof"],
                certificate=result.stats["seconds"]["certificate"],
            )


def _side_by_side(log: Log, kind: str, n: int, names: list[str]) -> None:
    x, y, price = pictures_of(kind, n)
    cost = ((x[:, None] - y) ** 2).sum(2)
    calls = {name: _solvers()[name] for name in names}
    best = dict.fromkeys(calls, float("inf"))
    for _ in range(_TURNS):
        for name, call in calls.items():
            if best[name] < 1 or best[name] == float("inf"):  # once is enough for what takes long
                best[name] = min(best[name], _seconds(call, cost, price))
    for name, seconds in best.items():
        log.add(NAME, kind, n, 0, name, 1, seconds=seconds)


def _seconds(call: Callable[[Array, float], Any], cost: Array, price: float) -> float:
    """Of one call: the mean of as many as fit a while, after one that loads."""
    clock = time.perf_counter()
    call(cost, price)
    if (first := time.perf_counter() - clock) > 1:
        return first
    count, clock = 0, time.perf_counter()
    while (spent := time.perf_counter() - clock) < _LEAST_SECONDS or not count:
        call(cost, price)
        count += 1
    return spent / count


def _ours(cost: Array, price: float) -> Any:
    return bigsap.solve(cost, unassigned_cost=price, threads=1).fun


def _solvers() -> dict[str, Callable[[Array, float], Any]]:
    found: dict[str, Callable[[Array, float], Any]] = {OURS: _ours}
    if find("lapx lapjv").installed():
        found[LAPX] = lapx_gated
    if find("scipy").installed():
        scipy = find("scipy").load(1)
        found[SCIPY] = lambda cost, price: scipy(np.minimum(cost, price))
    return found


def render(settings: BenchSettings, log: Log) -> str:
    """Times of arrays side by side, and of points alone."""
    rows = []
    for kind in (TRACKS, RANDOM, TALL):
        for n in sorted(log.distinct("n", experiment=NAME, cls=kind)):
            times = {
                name: (log.get(NAME, kind, n, 0, name, 1) or {}).get("seconds")
                for name in (OURS, LAPX, SCIPY)
            }
            ours, theirs = times[OURS], times[LAPX]
            rows.append(
                [
                    kind,
                    f"{n:,}",
                    *(_milli(times[name]) for name in (OURS, LAPX, SCIPY)),
                    f"{theirs / ours:,.3g}" if ours and theirs else DASH,
                ]
            )
    head = ["what", "rows", f"{OURS}, ms", f"{LAPX}, ms", f"{SCIPY}, ms", f"{LAPX} / {OURS}"]
    parts = [table(head, rows)]
    alone = [
        [
            f"{record['n']:,}",
            seconds_text(record["seconds"]),
            seconds_text(record["certificate"]),
            f"{record['scans'] / record['n']:.1f}",
        ]
        for record in sorted(log.of(experiment=NAME, cls=POINTS), key=lambda r: int(r["n"]))
    ]
    if alone:
        parts.append(table(["points on each side", "seconds", "of them the proof", "scans / n"], alone))
    parts.append(
        "Points in the plane, squared distances; a pair may cost at most the square of two mean"
        f" distances of neighbours. {TRACKS}: two pictures of the same points, and so without a"
        f" matrix; {TALL}: random points, half as many columns. One thread for arrays; {LAPX} is"
        f" `lapjv(..., cost_limit=)`; {SCIPY} solves the clipped matrix, and does not say which"
        " pairs are worth it."
    )
    return "\n\n".join(parts)


def _milli(seconds: float | None) -> str:
    if seconds is None:
        return DASH
    return f"{1e3 * seconds:,.0f}" if seconds > 1 else f"{1e3 * seconds:.3g}"
