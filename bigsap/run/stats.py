"""Statistics of a solve: ``Result.stats``, and the first and last reports to listeners."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np

from bigsap.engine.core.incumbent import Incumbent
from bigsap.engine.core.pair_costs import cheap_total
from bigsap.engine.core.state import FREE, infinity
from bigsap.memory import peak_bytes
from bigsap.progress import Monitor
from bigsap.result import Result
from bigsap.run.deadline import Deadline, Late
from bigsap.run.kept_rows import KeptRows
from bigsap.run.run import Run
from bigsap.sources.cuda.placed import OnDevice
from bigsap.strategies.placement import device_name, device_rows
from bigsap.strategies.sparse_pairs import sparse_part

# Most seconds for pricing the pairs in order, and its share of the time limit.
_FIRST_SECONDS = 0.2
_FIRST_SHARE = 0.1

#: Counts that add up over the searches of a solve.
_COUNTED = {
    "rows_evaluated",
    "pairs_evaluated",
    "rows_scanned",
    "pairs_skipped",
    "cache_hits",
    "cache_misses",
}
#: What else a search leaves in the statistics.
_OF_SEARCH = {
    *_COUNTED,
    *("list_bytes", "lists_doubled", "list_growth_refused", "trees", "first_prices"),
    *("cache_policy", "cache_slots", "cache_bytes"),
}


def of_search(run: Run) -> dict[str, Any]:
    """Return the statistics of a search that has ended, for one whose problem changes afterwards."""
    return {name: value for name, value in solve_stats(run).items() if name in _OF_SEARCH}


def solve_stats(run: Run) -> dict[str, Any]:
    """Return ``Result.stats`` of a finished or stopped solve: counts, bytes, seconds, bounds."""
    engine, rows = run.engine, run.rows
    there = device_rows(None if run.lists is None else run.lists.engine)
    m = run.problem.shape[1]
    evaluated = engine.rows_evaluated if engine is not None else 0
    scanned = engine.rows_scanned if engine is not None else run.sparse_scans
    if rows.policy != "in place" and run.lists is None:
        evaluated = max(evaluated, rows.misses)  # read before the engine began
    pairs = evaluated * m
    lists: dict[str, Any] = {"list_bytes": 0, "lists_doubled": 0, "list_growth_refused": 0, "trees": {}}
    if run.lists is not None:
        counts = run.lists.totals()
        if not run.whole_rows:
            evaluated = pairs = 0
        asked = _asked(run, counts.rows, counts.pairs)
        evaluated, pairs = evaluated + asked[0], pairs + asked[1]
        scanned += counts.scans
        lists = {
            "list_bytes": counts.list_bytes,
            "lists_doubled": counts.doubled,
            "list_growth_refused": counts.refused,
            "trees": run.lists.trees,
        }
    if run.levels is not None:
        counts = run.levels.counts
        evaluated, pairs = evaluated + counts.rows, pairs + counts.pairs
        scanned += counts.scans
    listed = sparse_part(run.problem.source) if run.method == "sparse" else None
    found = {
        "method": run.method,
        "why": run.why,
        "threads": run.n_threads,
        "device": device_name(run.problem.source),
        "source": type(run.given.source).__name__,
        "evaluated_by": getattr(run.problem.source, "evaluated_by", None),
        "transposed": run.problem.transposed,
        "price": str(run.arithmetic.price),
        "resumed": run.resumed,
        "warm_started": run.warm_start is not None,
        "rows_evaluated": evaluated,
        "pairs_evaluated": pairs,
        "certificate_pairs": run.certificate_pairs,
        "proof": None,  # the result sets both, where there is a certificate
        "proof_bounds": 0,
        "rows_scanned": scanned,
        "expected": None if run.expected is None else run.expected.counts(),
        "pairs_skipped": engine.pairs_skipped if engine is not None else 0,
        "cache_policy": (there or rows).policy,
        "cache_slots": (there or rows).n_slots,
        "cache_bytes": (there or rows).bytes,
        "cache_hits": (there or rows).hits,
        "cache_misses": (there or rows).misses,
        "copied_bytes": getattr(there or run.problem.source, "copied_bytes", 0),
        **lists,
        "auction": run.auction,
        "refined": run.refined,
        **({} if listed is None else {"entries": listed.entries().columns.size}),
        "first_prices": _first_prices(run),
        "cluster": None if run.crew is None else run.crew.stats(),
        "phases": run.phases,
        "gaps": run.monitor.gaps,
        "seconds": {**run.seconds, "total": run.monitor.seconds},
        "peak_bytes": peak_bytes(),
    }
    for name, count in run.searched.items():
        found[name] = found[name] + count if name in _COUNTED else count
    return found


def _first_prices(run: Run) -> str | None:
    """Return the first prices' name; None where a method always has its own, such as sparse costs."""
    first = run.lists or run.levels
    if first is not None:
        return first.first_prices
    return run.own_first_prices if run.method in ("ssp", "auction") else None


def _asked(run: Run, evaluated: int, pairs: int) -> tuple[int, int]:
    """Return the rows and pairs read from the source, without those served from kept rows."""
    source = run.reading.source
    if isinstance(source, KeptRows):
        return evaluated - source.rows_found, pairs - source.pairs_found
    if source is not run.problem.source:
        return run.rows.misses, run.rows.misses * run.problem.shape[1]
    return evaluated, pairs


def first_bounds(run: Run) -> None:
    """Report what is known before any work: the costs' floor, and the cost of the pairs in order.

    ``run.known`` is not updated: a pass over the costs finds better bounds.
    """
    problem, monitor = run.problem, run.monitor
    if not monitor.has_listeners:
        return
    known = Incumbent(problem, infinity(run.arithmetic.price), active=False)
    known.add_floor()
    known.tell(monitor)
    source = problem.source
    if isinstance(source, OnDevice):
        return
    n, m = problem.shape
    rows = np.arange(n)
    with suppress(Late):
        limit = math.inf if monitor.time_limit is None else _FIRST_SHARE * monitor.time_limit
        clock = Deadline(min(_FIRST_SECONDS, limit), lambda: monitor.cancelled)
        in_order = np.where(rows < m, rows, FREE)
        known.cost = cheap_total(problem, run.rows, in_order, clock.tick)
        known.tell(monitor)


def list_bounds(run: Run) -> None:
    """Report the bounds that the lists prove in the middle of a phase.

    ``run.known`` is not updated: ``gap`` is checked at the end of each phase, never by the clock.
    """
    if run.lists is not None:
        known = Incumbent(run.problem, infinity(run.arithmetic.price), active=False)
        run.lists.report_to(known)
        known.tell(run.monitor)


def last_report(monitor: Monitor, result: Result) -> None:
    """Report the result to listeners."""
    progress = monitor.progress
    low, high = result.bound, result.fun
    if result.maximize:
        low, high = high, low
    monitor.update_bounds(low, high)
    result.stats["seconds"]["total"] = monitor.seconds  # this may have been the last record of a gap
    monitor.reached(result.stats["rows_scanned"], result.stats["rows_evaluated"])
    decided = len(result.row_ind) + result.stats.get("unassigned_rows", 0)
    progress.stage, progress.level, progress.assigned = "done", 0, decided
    monitor.conclude()
