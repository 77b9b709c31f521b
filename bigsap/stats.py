"""What a solve tells about its work: ``Result.stats``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bigsap.memory import peak_bytes
from bigsap.methods.device import device_name

if TYPE_CHECKING:
    from bigsap.run import Run


def solve_stats(run: Run) -> dict[str, Any]:
    """``Result.stats`` of a solve, ended or stopped: counts of work, bytes, seconds, bounds."""
    engine, rows = run.engine, run.rows
    m = run.problem.shape[1]
    evaluated = engine.rows_evaluated if engine is not None else 0
    scanned = engine.rows_scanned if engine is not None else 0
    pairs = evaluated * m
    lists = {"list_bytes": 0, "lists_doubled": 0, "list_growth_refused": 0}
    if run.lists is not None:
        counts = run.lists.totals()
        if not run.whole_rows:
            evaluated = pairs = 0
        evaluated, pairs = evaluated + counts.rows, pairs + counts.pairs
        scanned += counts.scans
        lists = {
            "list_bytes": counts.list_bytes,
            "lists_doubled": counts.doubled,
            "list_growth_refused": counts.refused,
        }
    return {
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
        "rows_scanned": scanned,
        "cache_policy": rows.policy,
        "cache_slots": rows.n_slots,
        "cache_bytes": rows.bytes,
        "cache_hits": rows.hits,
        "cache_misses": rows.misses,
        **lists,
        "first_prices": run.lists.first_prices if run.lists is not None else None,
        "phases": run.phases,
        "gaps": run.monitor.gaps,
        "seconds": {**run.seconds, "total": run.monitor.seconds},
        "peak_bytes": peak_bytes(),
    }
