"""Statistics of a solve that ends before a search of the sum."""

from __future__ import annotations

from typing import Any

from bigsap.memory import peak_bytes
from bigsap.progress import Monitor
from bigsap.run.small_arrays import WITHOUT_LISTS
from bigsap.sources.base import CostSource


def unsearched(source: CostSource, method: str, why: str, monitor: Monitor) -> dict[str, Any]:
    """Return the fields of ``stats.solve_stats`` of a solve that ends before a search of the sum begins."""
    return {
        "method": method,
        "why": why,
        "threads": 1,
        "device": "cpu",
        "source": type(source).__name__,
        "evaluated_by": getattr(source, "evaluated_by", None),
        "transposed": False,
        "price": "float64",
        "resumed": 0,
        "warm_started": False,
        **dict.fromkeys(("rows_evaluated", "pairs_evaluated", "certificate_pairs", "rows_scanned"), 0),
        "proof": None,
        "proof_bounds": 0,
        "expected": None,
        **WITHOUT_LISTS,
        "trees": {},
        "auction": {},
        "first_prices": None,
        "phases": [],
        "gaps": monitor.gaps,
        "seconds": {"start": 0.0, "search": 0.0, "certificate": 0.0, "total": monitor.seconds},
        "peak_bytes": peak_bytes(),
    }
