"""The checkpoint of a solve: refused if it is of another one, written as the solve goes on."""

from __future__ import annotations

import weakref
from dataclasses import replace

from bigsap import checkpoint
from bigsap.progress import Snapshot
from bigsap.run.fingerprint import identity
from bigsap.run.run import Run


def open_checkpoint(run: Run, *, large: bool) -> None:
    """Refuse a checkpoint of another solve; see that ours can be written, before any work.

    large: integer costs exceeded the usual range, as the solve has found out by now.
    """
    path, saved = run.options.checkpoint, run.saved
    if path is None and saved is None:
        return
    facts = identity(run.given, run.gated, run.problem, run.options, run.method, run.arithmetic, run.asked)
    if saved is not None:
        if large:
            # The costs that need int64 were met after the checkpoint: from the beginning.
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

    # A weak reference breaks the cycle run -> monitor -> save -> run: rows and lists of a finished
    # solve would stay until Python looks for cycles, which it seldom does.
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
