"""Checkpoint of a solve: validation on resumption, and saving while the solve runs."""

from __future__ import annotations

import os
import weakref
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bigsap import checkpoint
from bigsap.engine.core.incumbent import Incumbent
from bigsap.engine.core.state import infinity
from bigsap.errors import CheckpointError
from bigsap.progress import Snapshot, plain_number
from bigsap.run.fingerprint import identity
from bigsap.run.interrupted import Conclusion
from bigsap.run.run import Run
from bigsap.run.without_far_lines import given_incumbent

# What the search itself has found, from which a strategy may take its first epsilon.
_FOUND = "found"
# The best assignment and bound. Strategies go on without them, so that the result has the bits of an
# uninterrupted solve.
_BEST_COST, _BEST_BOUND = ("cost", "exact", "error", "column_of_row"), ("bound", "u", "v", "u_low", "v_low")
# A larger file is not written again only to add the bounds of a stopped solve.
_LARGEST_REWRITE = 1 << 27


def open_checkpoint(run: Run, *, large: bool) -> None:
    """Refuse a checkpoint of another solve, and check before any work that the file can be written.

    large: whether the solve has found integer costs that exceed the usual range. A halted run leaves what
    was searched as it is.
    """
    path, saved = run.options.checkpoint, run.saved
    if path is None and saved is None:
        return
    facts = identity(run.given, run.gated, run.problem, run.options, run.method, run.arithmetic, run.asked)
    facts |= run.stands_for
    run.fingerprint = facts["fingerprint"]
    if run.near is not None:
        facts["far_lines"] = True
    if saved is not None:
        may_differ: tuple[str, ...] = ()
        if large:
            # Costs that need int64 were found after the checkpoint was written, so the solve starts over.
            may_differ, run.saved = ("price", "grid"), replace(saved, snapshot={})
        elif run.halted:
            may_differ, run.saved = ("price", "grid", "method", "far_lines"), None
        elif not saved.snapshot:
            may_differ = ("far_lines",)  # nothing has been searched
        saved.refuse_unless(facts | {name: saved.facts.get(name) for name in may_differ})
        run.resumed = int(saved.facts.get("resumed", 0)) + 1
        run.earlier = _earlier(run, saved, facts)
        run.known.before = tuple(run.snapshot.get(_FOUND, (None, None)))
    facts |= {"resumed": run.resumed, "reach": run.reach}
    if path is None:
        return
    checkpoint.begin(path, facts, saved)
    if run.halted:
        return

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
        if snapshot and facts["fingerprint"] is not None:
            near, known = run.near, run.known
            snapshot = {**snapshot, _FOUND: [plain_number(x) for x in known.found()]}
            best = known if near is None else given_incumbent(run, known, near)
            snapshot = {**snapshot, **_best(run, best)}
        checkpoint.write(path, {**facts, "saved_after": run.monitor.seconds}, snapshot)

    run.monitor.save = save


def _earlier(run: Run, saved: checkpoint.Saved, facts: Mapping[str, Any]) -> Incumbent | None:
    """Return what earlier attempts proved; None where the costs may have changed since.

    A fingerprint, compared already, says that they are the same.
    """
    if not saved.best or facts["fingerprint"] is None:
        return None
    found = _nothing(run)
    found.exact = "exact" in saved.best  # else its pairs are priced again
    for name, part in saved.best.items():
        setattr(found, name, part)
    found.tell(run.monitor)
    return found


def _nothing(run: Run) -> Incumbent:
    """Return an incumbent of the given costs, of which nothing is known yet."""
    problem = run.problem if run.near is None else run.near.given
    return Incumbent(problem, infinity(run.arithmetic.price), active=True)


def _best(run: Run, known: Incumbent) -> Snapshot:
    """Return the best assignment and bound of this and earlier attempts, as a part of a snapshot."""
    best = _nothing(run)
    for one in (known, run.earlier):
        if one is not None:
            best.add(one)
    names = [*(_BEST_COST if best.column_of_row is not None else ())]
    names += _BEST_BOUND if best.u is not None else ()
    found = {name: getattr(best, name) for name in names}
    return {checkpoint.BEST + name: part for name, part in found.items() if part is not None}


def save_bounds(run: Run, conclusion: Conclusion) -> None:
    """Add the assignment and bound of a stopped solve to its checkpoint, unless that is large."""
    path = run.options.checkpoint
    known = (conclusion.certificate, conclusion.bound, conclusion.fun)
    if path is None or known == (None, None, None):
        return
    found = _nothing(run)
    if conclusion.certificate is not None:
        found.add_certificate(conclusion.certificate, conclusion.column_of_row)
    else:
        sign = run.problem.sign
        for name, part in (("cost", conclusion.fun), ("bound", conclusion.bound)):
            setattr(found, name, None if part is None else sign * part)
        for name in ("column_of_row", "u", "v", "u_low", "v_low"):
            setattr(found, name, getattr(conclusion, name))
    add_best(path, run.fingerprint, _best(run, found))


def add_best(path: str | os.PathLike[str], fingerprint: str | None, best: Snapshot) -> None:
    """Add the best assignment and bound to a checkpoint, unless that is large.

    fingerprint: of the costs that they are of. Not added without one, nor to a checkpoint of others: that of
    an attempt before may still be there.
    """
    if fingerprint is None:
        return
    # The answer does not depend on this file.
    with suppress(CheckpointError, OSError):
        saved = checkpoint.read(path) if Path(path).stat().st_size <= _LARGEST_REWRITE else None
        if saved is not None and saved.facts.get("fingerprint") == fingerprint:
            checkpoint.write(path, saved.facts, {**saved.snapshot, **best})
