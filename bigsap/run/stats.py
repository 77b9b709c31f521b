"""What a solve tells about its work: ``Result.stats``, first and last reports."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np

from bigsap.engine.core.incumbent import Known
from bigsap.engine.core.pair_costs import cheap_total
from bigsap.engine.core.state import FREE, infinity
from bigsap.memory import peak_bytes
from bigsap.progress import Monitor
from bigsap.result import Result
from bigsap.run.call import SolveCall
from bigsap.run.interrupted import Deadline, Late
from bigsap.run.kept_rows import KeptRows
from bigsap.sources.cuda.placed import OnDevice
from bigsap.strategies.placement import device_name, device_rows

# That pricing the pairs in order may take; and its share of the time limit.
_FIRST_SECONDS = 0.2
_FIRST_SHARE = 0.1


def solve_stats(call: SolveCall) -> dict[str, Any]:
    """``Result.stats`` of a solve, ended or stopped: counts of work, bytes, seconds, bounds."""
    engine, rows = call.engine, call.rows
    there = device_rows(None if call.lists is None else call.lists.engine)
    m = call.problem.shape[1]
    evaluated = engine.rows_evaluated if engine is not None else 0
    scanned = engine.rows_scanned if engine is not None else 0
    if rows.policy != "in place" and call.lists is None:
        evaluated = max(evaluated, rows.misses)  # read before the engine began
    pairs = evaluated * m
    lists: dict[str, Any] = {"list_bytes": 0, "lists_doubled": 0, "list_growth_refused": 0, "trees": {}}
    if call.lists is not None:
        counts = call.lists.totals()
        if not call.whole_rows:
            evaluated = pairs = 0
        asked = _asked(call, counts.rows, counts.pairs)
        evaluated, pairs = evaluated + asked[0], pairs + asked[1]
        scanned += counts.scans
        lists = {
            "list_bytes": counts.list_bytes,
            "lists_doubled": counts.doubled,
            "list_growth_refused": counts.refused,
            "trees": call.lists.trees,
        }
    if call.levels is not None:
        counts = call.levels.counts
        evaluated, pairs = evaluated + counts.rows, pairs + counts.pairs
        scanned += counts.scans
    first = call.lists or call.levels
    return {
        "method": call.method,
        "why": call.why,
        "threads": call.n_threads,
        "device": device_name(call.problem.source),
        "source": type(call.given.source).__name__,
        "evaluated_by": getattr(call.problem.source, "evaluated_by", None),
        "transposed": call.problem.transposed,
        "price": str(call.arithmetic.price),
        "resumed": call.resumed,
        "warm_started": call.warm_start is not None,
        "rows_evaluated": evaluated,
        "pairs_evaluated": pairs,
        "certificate_pairs": call.certificate_pairs,
        "proof": None,  # the result tells both, where there is a certificate
        "proof_bounds": 0,
        "rows_scanned": scanned,
        "pairs_skipped": engine.pairs_skipped if engine is not None else 0,
        "cache_policy": (there or rows).policy,
        "cache_slots": (there or rows).n_slots,
        "cache_bytes": (there or rows).bytes,
        "cache_hits": (there or rows).hits,
        "cache_misses": (there or rows).misses,
        "copied_bytes": getattr(there or call.problem.source, "copied_bytes", 0),
        **lists,
        "auction": call.auction,
        "refined": call.refined,
        "first_prices": first.first_prices if first is not None else None,
        "cluster": None if call.crew is None else call.crew.told(),
        "phases": call.phases,
        "gaps": call.monitor.gaps,
        "seconds": {**call.seconds, "total": call.monitor.seconds},
        "peak_bytes": peak_bytes(),
    }


def _asked(call: SolveCall, evaluated: int, pairs: int) -> tuple[int, int]:
    """Rows and pairs that the source was asked for: kept ones are not asked for again."""
    source = call.reading.source
    if isinstance(source, KeptRows):
        return evaluated - source.rows_found, pairs - source.pairs_found
    if source is not call.problem.source:
        return call.rows.misses, call.rows.misses * call.problem.shape[1]
    return evaluated, pairs


def first_bounds(call: SolveCall) -> None:
    """Tell listeners what is known before any work: the costs' floor, the price of the pairs
    in order. ``call.known`` is not told: a pass over the costs finds better."""
    problem, monitor = call.problem, call.monitor
    if not monitor.heard:
        return
    known = Known(problem, infinity(call.arithmetic.price), active=False)
    known.see_floor()
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
        known.cost = cheap_total(problem, call.rows, in_order, clock.tick)
        known.tell(monitor)


def list_bounds(call: SolveCall) -> None:
    """Tell listeners what the lists prove in the midst of a phase. Not ``call.known``: ``gap`` is
    judged at the end of each phase, never by the clock."""
    if call.lists is not None:
        known = Known(call.problem, infinity(call.arithmetic.price), active=False)
        call.lists.teach(known)
        known.tell(call.monitor)


def last_report(monitor: Monitor, result: Result) -> None:
    """Tell listeners what the result says."""
    progress = monitor.progress
    low, high = result.bound, result.fun
    if result.maximize:
        low, high = high, low
    monitor.enclose(low, high)
    monitor.reached(result.stats["rows_scanned"], result.stats["rows_evaluated"])
    progress.stage, progress.level, progress.assigned = "done", 0, len(result.row_ind)
    monitor.conclude()
