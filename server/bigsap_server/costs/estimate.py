"""The answer to ``?dry_run=true``: memory, disk and time of a job, and the workers that it may have."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bigsap import preview
from bigsap_server.costs.build import invalid
from bigsap_server.costs.validate import Plan
from bigsap_server.problems import HttpProblem
from bigsap_server.settings import Settings


def estimate(request: Mapping[str, Any], plan: Plan, threads: int, workers: int = 1) -> dict[str, Any]:
    """Return memory and disk in bytes and time in seconds, with their parts.

    workers: number of the cluster's workers that a spread job will probably have.
    """
    options, costs = request["options"], plan.costs
    if costs is None:
        empty = ("memory_bytes", "seconds", "seconds_low", "seconds_high", "disk_bytes", "spread")
        notes = ["the shape is known only when the costs are opened"]
        return dict.fromkeys(empty) | {"memory": {}, "disk": {}, "infinite": plan.infinite, "notes": notes}
    threads = options["threads"] or threads
    choices = {name: options[name] for name in ("method", "maximize", "cache")}
    found = preview.price(costs, threads=threads, workers=workers if request["spread"] else 0, **choices)
    notes, memory, seconds = [], found.memory, found.seconds
    if plan.kinds == ("array",):
        memory["mapped"] = 0
        notes.append("the matrix is mapped from the disk: the system keeps of it what fits")
    elif options["cache"] is None and memory["cache"]:
        notes.append("the row cache takes up to a quarter of the worker's free memory")
    if plan.infinite is not None and plan.infinite["found"]:
        count, sampled, why = (plan.infinite[key] for key in ("found", "sampled", "why"))
        notes.append(f"of {sampled} costs of the expression {count} are infinite{f': {why}' if why else ''}")
    spread = None
    if request["spread"]:
        spread = {
            "workers": workers, "seconds_alone": round(found.alone, 3), "pays": seconds < found.alone
        }  # fmt: skip
        if not costs.by_rows:
            notes.append("the estimate assumes that these costs are computed where the search runs")
    if costs.by_rows:
        notes.append("rows come through Python: the time is that of reading them")
    if options["time_limit_s"] is not None:
        seconds = min(seconds, options["time_limit_s"] * 1.1)
    return {
        "memory_bytes": sum(memory.values()),
        "memory": memory,
        "disk_bytes": sum(found.disk.values()),
        "disk": found.disk,
        "infinite": plan.infinite,
        "seconds": round(seconds, 3),
        "seconds_low": round(seconds / 3, 3),
        "seconds_high": round(seconds * 4, 3),
        "rows": costs.shape[0],
        "columns": costs.shape[1],
        "threads": threads,
        "spread": spread,
        "notes": notes,
    }


def check_memory(request: Mapping[str, Any], found: Mapping[str, Any], limit: int | None) -> None:
    """Raise HttpProblem when an estimate exceeds the operator's limit."""
    if limit is not None and (found["memory_bytes"] or 0) > limit:
        raise HttpProblem(
            "over-limit",
            f"the job would need about {found['memory_bytes']} bytes of memory; at most {limit} are allowed",
            pointer="/options/cache" if request["options"]["cache"] is not None else "/shape",
        )


def has_cluster(settings: Settings) -> bool:
    """Return whether there are, as far as is known, several workers for a spread job."""
    if settings.executor == "inline":
        return False
    return settings.scheduler is not None or settings.default_workers > 1


def workers_asked(request: Mapping[str, Any], settings: Settings, most: int | None) -> bool | int:
    """Return ``spread`` for the job: False, True for all workers, or how many at most.

    most: the limit of the caller's key; None: no limit. Raises HttpProblem with the pointer to the
    field.
    """
    asked: bool | int = request["spread"]
    if not asked:
        return False
    if not has_cluster(settings):
        has = "runs jobs in its own process" if settings.executor == "inline" else "has one worker"
        raise invalid(f"there is no cluster to spread a job over: this service {has}", "/spread")
    if request["options"]["device"] == "cuda":
        raise invalid("a spread job is solved by the CPUs of its workers", "/spread")
    if most is None:
        return asked
    if most < 2 or (asked is not True and asked > most):
        allowed = "none" if most < 2 else f"at most {most}"
        number = "several" if asked is True else asked
        detail = f"{number} workers for one job; {allowed} are allowed"
        raise HttpProblem("over-limit", detail, pointer="/spread")
    return most if asked is True else asked


def workers_of(spread: bool | int, there: int) -> int:
    """Return how many of the existing workers such a job will have."""
    if not spread:
        return 1
    return max(1, there if spread is True else min(spread, there))
