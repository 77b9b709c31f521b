"""Small matrices: one call in place of scipy's, and many at once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

import bigsap
from benchmarks.bench_settings import BenchSettings
from benchmarks.peers import find
from benchmarks.records import Log
from benchmarks.tables import DASH, Block, line, middle, ratio, ratio_text, table, verdict
from benchmarks.timing import side_by_side
from bigsap.types import Array

NAME = "small"
TITLE = "Small matrices: `linear_sum_assignment`, and 1,000 at once by `solve_many`"
OURS, SCIPY, LAPX = "bigsap", "scipy", "lapx"
ONE, MANY = "one", "many"
#: At most so many times as long as scipy, by size.
BARS = {100: 1.0, 200: 0.7, 500: 0.5, 1000: 0.4}


def run(settings: BenchSettings, log: Log) -> None:
    """Every size: solvers take turns, each on the same matrices."""
    singles: dict[str, Callable[[Array], Any]] = {OURS: bigsap.linear_sum_assignment}
    batches: dict[str, Callable[[Array], Any]] = {OURS: bigsap.solve_many}
    if find("scipy").installed():
        scipy = singles[SCIPY] = find("scipy").load(1)
        batches[SCIPY] = lambda costs: [scipy(cost) for cost in costs]
    if find("lapx lapjv").installed():
        import lap

        singles[LAPX] = find("lapx lapjv").load(1)
        batches[LAPX] = functools.partial(lap.lapjvx_batch, return_cost=False)
    for n in settings.small_sizes:
        cost = np.random.default_rng(n).random((n, n))
        side_by_side(log, NAME, ONE, n, singles, functools.partial(tuple, [cost]))
    for n in settings.many_sizes:
        costs = np.random.default_rng(n).random((settings.many_count, n, n))
        side_by_side(log, NAME, MANY, n, batches, functools.partial(tuple, [costs]))


def render(log: Log) -> list[Block]:
    """Microseconds a call, and multiples of scipy's."""
    rows = []
    for kind, label in ((ONE, "one matrix"), (MANY, "many matrices")):
        for n in sorted(log.distinct("n", experiment=NAME, cls=kind)):
            here = {"experiment": NAME, "cls": kind, "n": n}
            times = [middle(log.values("seconds", **here, solver=s)) for s in (OURS, SCIPY, LAPX)]
            against = ratio(times[0], times[1])
            bar = BARS.get(n) if kind == ONE else 1.0
            met = verdict(against, bar, at_most=True, judged=log.judged) if bar else DASH
            shown = line(label, f"{n:,}", *map(_micro, times), ratio_text(against))
            rows.append(f"{shown} | {f'{bar:g}' if bar else DASH} | {met}")
    head = f"what | n | {OURS}, us | {SCIPY}, us | {LAPX}, us | {OURS} / {SCIPY} | bar | judged"
    note = (
        "Independent costs, uniform; microseconds a call, the least of several turns; many:"
        " 1,000 at once in a full run, by scipy in a loop, by lapx' `lapjvx_batch`."
    )
    return [table(head, rows), note]


def _micro(seconds: float | None) -> str | None:
    if seconds is None:
        return None
    return f"{1e6 * seconds:,.3g}" if seconds < 1e-3 else f"{1e6 * seconds:,.0f}"
