"""Checkpoint of a solve: validation on resumption, and saving while the solve runs."""

from __future__ import annotations

import weakref
from dataclasses import replace

from bigsap import checkpoint
from bigsap.progress import Snapshot
from bigsap.run.fingerprint import identity
from bigsap.run.run import Run


def open_checkpoint(run: Run, *, large: bool) -> None:
    """Refuse a checkpoint of another solve, and check before any work that the file can be written.

    large: whether the solve has found integer costs that exceed the usual range.
    """
    path, saved = run.options.checkpoint, run.saved
    if path is None and saved is None:
        return
    facts = identity(run.given, run.gated, run.problem, run.options, run.method, run.arithmetic, run.asked)
    if saved is not None:
        if large:
            # Costs that need int64 were found after the checkpoint was written, so the solve starts over.
            of_saved = {name: saved.facts.get(name) for name in ("price", "grid")}
            saved.refuse_unless(facts | of_saved)
            run.saved = replace(saved, snapshot={})
        else:
            saved.refuse_unless(facts)
        run.resumed = int(saved.facts.get("resumed", 0)) + 1
    facts["resumed"] = run.resumed
    if path is None:
        return
    if saved is None:
        checkpoint.write(path, facts, {})

    # A weak reference breaks the cycle run -> monitor -> save -> run. With a cycle, rows and lists of a
    # finished solve would stay in memory until Python's garbage collector runs.
    reference = weakref.ref(run)

    def save(snapshot: Snapshot) -> None:
        run = reference()
        if run is None:
            return
        if run.levels is not None:
            own = {"levels": vars(run.levels.counts), "levels_kind": run.levels.first_prices}
            snapshot = {**snapshot, **own}
        checkpoint.write(path, {**facts, "saved_after": run.monitor.seconds}, snapshot)

    run.monitor.save = save
