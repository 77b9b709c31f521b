"""Rows that may stay unassigned at a price: arrays beside others, points alone."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.peers import find
from benchmarks.records import Log
from benchmarks.tables import Block, line, ratio, seconds_text, table
from benchmarks.timing import side_by_side, timed
from bigsap.types import Array

NAME = "gated"
TITLE = "Rows that may stay unassigned: `unassigned_cost`"
OURS, LAPX, SCIPY = "bigsap", "lapx", "scipy"
#: Two pictures of the same points; unrelated points; the same, twice as many rows as columns.
TRACKS, RANDOM, TALL = "tracks", "random points", "tall"
POINTS = "points, no matrix"
#: The price: the square of so many mean distances of neighbours. Some twelve pairs cost less.
_SPACINGS = 2.0
_ERROR = 0.15


def points_and_price(kind: str, n: int) -> tuple[Array, Array, float]:
    """Points (n, 2) and (m, 2), and the price."""
    rng = np.random.default_rng(n)
    spacing = n**-0.5
    x = rng.random((n, 2))
    y = rng.random((n // 2 if kind == TALL else n, 2))
    if kind in (TRACKS, POINTS):
        y = x[rng.permutation(n)] + rng.normal(0, _ERROR * spacing, (n, 2))
        x = x + rng.normal(0, _ERROR * spacing, (n, 2))
    return x, y, (_SPACINGS * spacing) ** 2


def _matrix_and_price(kind: str, n: int) -> tuple[Array, float]:
    x, y, price = points_and_price(kind, n)
    return ((x[:, None] - y) ** 2).sum(2), price


def run(settings: BenchSettings, log: Log) -> None:
    """Every size: solvers take turns on the same matrix; points by BigSAP alone."""
    solvers = _solvers()
    for n in settings.gated_sizes:
        for kind in (TRACKS, RANDOM, TALL):
            make = functools.partial(_matrix_and_price, kind, n)
            solvers[OURS](*make())  # loads what solves of this size need
            side_by_side(log, NAME, kind, n, solvers, make)
    threads = max(settings.thread_counts)
    for key in log.missing((NAME, POINTS, n, 0, OURS, threads) for n in settings.gated_points):
        x, y, price = points_and_price(POINTS, key[2])
        costs = bigsap.points(x, y)
        result, seconds = timed(costs, unassigned_cost=price, threads=threads)
        stats = result.stats
        proof = {"proof": stats["proof"], "certificate": stats["seconds"]["certificate"]}
        log.add(key, seconds=seconds, scans=stats["rows_scanned"], **proof)


def _solvers() -> dict[str, Callable[[Array, float], Any]]:
    def ours(cost: Array, price: float) -> Any:
        return bigsap.solve(cost, unassigned_cost=price, threads=1).fun

    found: dict[str, Callable[[Array, float], Any]] = {OURS: ours}
    if find("lapx lapjv").installed():
        import lap

        found[LAPX] = lambda cost, price: lap.lapjv(cost, extend_cost=True, cost_limit=price)
    if find("scipy").installed():
        scipy = find("scipy").load(1)
        found[SCIPY] = lambda cost, price: scipy(np.minimum(cost, price))
    return found


def render(log: Log) -> list[Block]:
    """Times of arrays side by side, and of points alone."""
    rows = []
    for kind in (TRACKS, RANDOM, TALL):
        for n in sorted(log.distinct("n", experiment=NAME, cls=kind)):
            found = [log.get((NAME, kind, n, 0, name, 1)) or {} for name in (OURS, LAPX, SCIPY)]
            ours, lapx, _ = times = [record.get("seconds") for record in found]
            faster = ratio(lapx, ours)
            rows.append(line(kind, f"{n:,}", *map(_milli, times), faster and f"{faster:,.3g}"))
    head = f"what | rows | {OURS}, ms | {LAPX}, ms | {SCIPY}, ms | {LAPX} / {OURS}"
    parts: list[Block] = [table(head, rows)]
    alone = [
        f"{r['n']:,} | {seconds_text(r['seconds'])} | {seconds_text(r['certificate'])}"
        f" | {r['scans'] / r['n']:.1f}"
        for r in sorted(log.of(experiment=NAME, cls=POINTS), key=lambda r: int(r["n"]))
    ]
    if alone:
        head = "points on each side | seconds | of them the proof | scans / n"
        parts.append(table(head, alone))
    note = (
        "Points in the plane, squared distances; a pair may cost at most the square of two mean"
        f" distances of neighbours. {TRACKS}: two pictures of the same points, and so without a"
        f" matrix; {TALL}: random points, half as many columns. One thread for arrays; {LAPX} is"
        f" `lapjv(..., cost_limit=)`; {SCIPY} solves the clipped matrix, and does not say which"
        " pairs are worth it."
    )
    return [*parts, note]


def _milli(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return f"{1e3 * seconds:,.0f}" if seconds > 1 else f"{1e3 * seconds:.3g}"
