"""Estimate of a job's memory and time: the answer to ``?dry_run=true``.

The figures are orders of magnitude. They follow the measurements of compressed rows: a row
is evaluated about ``2 + log2(n / 500)`` times, most evaluations reading a part of the
row, plus one pass for the certificate; the dense method evaluates a row as often as the
cache requires, here taken as the share of rows that the cache cannot hold.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import Any

from bigsap_server.costs.cluster_jobs import spread_seconds
from bigsap_server.costs.plan import Plan
from bigsap_server.costs.request import JobRequest

# Initial entries of a list, with few rows and with many, and that number of rows; the same where bounds are
# close (see ``bigsap.policy``); and for trees.
_LIST, _LONG_LIST, _LONG = 128, 160, 10_000
_CLOSE_LIST, _LONG_CLOSE_LIST, _LONG_CLOSE = 48, 64, 100_000
_TREE_LIST = 32
_ENTRY_BYTES = 12
# In a checkpoint: bytes of an entry, including lists that doubled, and vectors.
_KEPT_BYTES, _KEPT_VECTORS = 14, 3
_VECTORS = 24  # of 8 bytes, per row and column, certificate included
_BASE_BYTES = 220 << 20  # interpreter, numpy, numba and the kernels
_ASKED = 2  # evaluations of a row on workers, which keep rows while there is memory
_START_S = 0.2  # opening, kernels from their cache
_UNITS = {"": 1, "k": 10**3, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}


def size_bytes(value: int | str | None) -> int | None:
    """Return the number of bytes of a size such as ``"8GiB"``."""
    if value is None or isinstance(value, int):
        return value
    found = re.fullmatch(r"([0-9.]+) ?([kKMGT]?)(i?)B?", value)
    if found is None:
        raise ValueError(f"{value!r} is no size")
    number, unit, binary = found.groups()
    power = " kMGT".index(unit.replace("K", "k")) if unit else 0
    return int(float(number) * (1024**power if binary else _UNITS[unit]))


def estimate(request: JobRequest, plan: Plan, threads: int, workers: int = 1) -> dict[str, Any]:
    """Return memory and disk in bytes and time in seconds, with their parts.

    workers: number of the cluster's workers that a spread job will probably have.
    """
    options = request.options
    if plan.shape is None:
        return {
            "memory_bytes": None,
            "seconds": None,
            "seconds_low": None,
            "seconds_high": None,
            "memory": {},
            "disk_bytes": None,
            "disk": {},
            "infinite": plan.infinite,
            "spread": None,
            "notes": ["the shape is known only when the costs are opened"],
        }
    n, m = min(plan.shape), max(plan.shape)
    pairs = plan.shape[0] * plan.shape[1]
    item = 8
    dense = options.method in ("ssp", "auction")
    entries = 0 if dense else n * min(_entries(options, plan, n), m)
    threads = options.threads or threads
    memory: dict[str, int] = {
        "base": _BASE_BYTES,
        "source": plan.source_bytes,
        "vectors": _VECTORS * 8 * (n + m),
        "lists": _ENTRY_BYTES * entries,
        "cache": 0,
    }
    notes = []
    asked = size_bytes(options.cache)
    mapped = plan.kinds == ["array"]
    if mapped:
        memory["mapped"] = 0
        notes.append("the matrix is mapped from the disk: the system keeps of it what fits")
    elif asked is not None:
        memory["cache"] = min(asked, pairs * item)
    elif dense:
        memory["cache"] = min(pairs * item, 1 << 30)
        notes.append("the row cache takes up to a quarter of the worker's memory")
    disk = {
        # Twice: the next one is complete before it replaces the last.
        "checkpoint": 2 * (_KEPT_VECTORS * 8 * (n + m) + _KEPT_BYTES * entries),
        "result": 16 * (n + m) + (64 << 10),
    }
    if plan.infinite is not None and plan.infinite["found"]:
        found, sampled, why = (plan.infinite[key] for key in ("found", "sampled", "why"))
        notes.append(f"of {sampled} costs of the expression {found} are infinite{f': {why}' if why else ''}")
    passes = passes_of(n, dense, plan.python_rows)
    work = pairs * plan.pair_ns * passes * 1e-9
    searching = 1e-8 * n**1.25 * m**0.9 if dense else 6e-8 * n**1.36 * min(_LIST, m) ** 0.9
    effective = 1.0 if plan.python_rows else max(1.0, 0.7 * threads)
    alone = seconds = _START_S + (work + searching) / effective
    spread = None
    if request.spread:
        if plan.python_rows:
            whole = asked is None or asked >= pairs * item
            answered = n if whole else n * passes
            rows = spread_seconds(
                n,
                m,
                m * plan.pair_ns * 1e-9,
                workers,
                asked=min(answered, _ASKED * n),
                answered=answered,
                whole=whole,
            )
            seconds = _START_S + rows + searching / effective
        spread = {"workers": workers, "seconds_alone": round(alone, 3), "pays": seconds < alone}
        if not plan.python_rows:
            notes.append("the estimate assumes that these costs are computed where the search runs")
    if options.time_limit_s is not None:
        seconds = min(seconds, options.time_limit_s * 1.1)
    if plan.python_rows:
        notes.append("rows come through Python: the time is that of reading them")
    return {
        "memory_bytes": sum(memory.values()),
        "memory": memory,
        "disk_bytes": sum(disk.values()),
        "disk": disk,
        "infinite": plan.infinite,
        "seconds": round(seconds, 3),
        "seconds_low": round(seconds / 3, 3),
        "seconds_high": round(seconds * 4, 3),
        "rows": plan.shape[0],
        "columns": plan.shape[1],
        "threads": threads,
        "spread": spread,
        "notes": notes,
    }


def passes_of(n: int, dense: bool, python_rows: bool) -> float:
    """Return how often a solve computes a pair on average, the proof included."""
    evaluations = 2.0 + max(0.0, math.log2(max(n, 1) / 500)) if not dense else 3.0
    share = 1.0 if python_rows or dense else min(1.0, 0.15 + 600 / max(n, 1))
    return evaluations * share + 1


def _entries(options: Any, plan: Plan, n: int) -> int:
    """Return the initial number of entries of a row's list."""
    if options.method == "hungarian":
        return _TREE_LIST
    if plan.close and not options.maximize:
        return _CLOSE_LIST if n < _LONG_CLOSE else _LONG_CLOSE_LIST
    return _LIST if n < _LONG else _LONG_LIST


def over_memory(found: Mapping[str, Any], limit: int | None) -> bool:
    """Return whether an estimate exceeds the operator's limit."""
    return limit is not None and (found["memory_bytes"] or 0) > limit
