"""Checkpoint of a solve with capacities whose searches lead from column to column."""

from __future__ import annotations

import os
from typing import Any

from bigsap import checkpoint
from bigsap.checkpoint import Saved
from bigsap.options import Options
from bigsap.progress import Monitor, Snapshot
from bigsap.sources.clipped import ClippedCosts
from bigsap.strategies import ON_COLUMNS


def identity_on_columns(
    problem_facts: dict[str, Any], options: Options, dtype: str, gated: ClippedCosts | None, transposed: bool
) -> dict[str, Any]:
    """Return plain values that are equal for two solves if one may continue the other.

    problem_facts: of ``fingerprint.identity_with_counts``.
    """
    return {
        **problem_facts,
        "unassigned_cost": None if gated is None else gated.prices_fingerprint(),
        "dtype": dtype,
        "maximize": options.maximize,
        "method": ON_COLUMNS,
        "asked_method": options.method,
        "epsilon": options.epsilon,
        "seed": int(options.seed),
        "start": options.start,
        "variant": options.variant,
        "transposed": transposed,
        "price": "float64",
        "grid": 0.0,
    }


def open_checkpoint(
    facts: dict[str, Any], path: str | os.PathLike[str] | None, monitor: Monitor, saved: Saved | None
) -> int:
    """Refuse a checkpoint of another solve, and let the monitor write further ones to ``path``.

    Returns how many times the solve has been resumed. Raises CheckpointError or OSError.
    """
    resumed = 0
    if saved is not None:
        saved.refuse_unless(facts)
        resumed = int(saved.facts.get("resumed", 0)) + 1
    facts = {**facts, "resumed": resumed}
    if path is None:
        return resumed
    if saved is None:
        checkpoint.write(path, facts, {})

    def save(snapshot: Snapshot) -> None:
        checkpoint.write(path, {**facts, "saved_after": monitor.seconds}, snapshot)

    monitor.save = save
    return resumed
