"""Checkpoints of a ``ListEngine``, and engines restored from them.

Saved are prices, matching and lists; of work in progress, the finished rows of an evaluation and
the roots still to be searched. A search changes nothing before its end, so the state is always
consistent between two slices of work.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.record import numbers, set_numbers
from bigsap.engine.lists import layout as L
from bigsap.engine.lists import workspace as F
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.lists.pool import clear_unused
from bigsap.engine.lists.store import Wave
from bigsap.errors import CheckpointError
from bigsap.types import Array

# Fields of Lists with a value per row.
_BY_ROW = ("start", "width", "size", "theta", "reference")


def kept(engine: ListEngine) -> dict[str, Any]:
    """Return the engine's state as names with arrays and plain values.

    The arrays are the engine's own, to be written before it continues: about 12 bytes an entry of the
    lists. Empty during an update.
    """
    if engine.torn or engine.frontier.search.underway:
        return {}
    lists, f, wave = engine.lists, engine.frontier, engine.wave
    # Before the first evaluation the lists are empty.
    used = int(lists.counts.pool_used) if lists.counts.evaluations else 0
    if used:
        clear_unused(lists)
    rows, before, done = engine.roots[:0], engine.v[:0], 0
    if wave is not None:
        rows, before = wave.rows, wave.before
        first, underway = wave.done
        done = first + min(int(lists.counts.next_item), underway)
    return {
        **{name: getattr(lists, name) for name in _BY_ROW},
        "ids": lists.ids[:used],
        "costs": lists.costs[:used],
        "counters": np.append(numbers(lists.counts, L.ListCounts)["words"], lists.freed),
        # A search that ran out of room starts again, and must do so after a restart.
        "pool": int(lists.counts.pool_size),
        "longest": engine.longest,
        "v": engine.v,
        "column_of_row": engine.column_of_row,
        "match_cost": engine.match_cost,
        "group": engine.group,
        "group_reach": np.array(engine.group_reach, engine.price),
        **numbers(f.at, F.SearchStanding),
        "requests": f.requests[: f.at.n_requests],
        "abandoned": f.abandoned[: f.at.n_abandoned],
        "low": lists.low,
        "block_order": lists.order,
        "slope": engine.blocks.slope,
        "offset": engine.blocks.offset,
        "margin": engine.blocks.margin,
        "roots": engine.roots,
        "wave": wave is not None,
        "wave_rows": rows,
        "wave_before": before,
        "wave_done": done,
    }


def continued(engine: ListEngine, saved: dict[str, Any]) -> None:
    """Restore the state of ``kept`` in a new engine of the same problem.

    Removes the lists from ``saved``, so that their memory is held only once.
    """
    # A probe has already decided which bounds evaluations use.
    if engine.blocks.offset.size and not saved["offset"].size:
        engine.drop_bounds()
    if saved["low"].shape[1]:
        engine.keep_minima(saved["block_order"])
    lists, f, blocks = engine.lists, engine.frontier, engine.blocks
    counts = numbers(lists.counts, L.ListCounts)["words"]
    _check("counters", saved["counters"], counts.dtype, (counts.size + lists.freed.size,))
    saved["freed"] = saved["counters"][counts.size :]
    for name, here in numbers(f.at, F.SearchStanding).items():
        _check(name, saved[name], here.dtype, here.shape)
    fixed = {name: getattr(lists, name) for name in (*_BY_ROW, "low", "freed")}
    fixed |= {name: getattr(engine, name) for name in ("v", "column_of_row", "match_cost", "group")}
    fixed |= {name: getattr(blocks, name) for name in ("slope", "offset", "margin")}
    for name, here in fixed.items():
        _check(name, saved[name], here.dtype, here.shape)
        here[:] = saved[name]
    set_numbers(lists.counts, L.ListCounts, {"words": saved["counters"][: counts.size]})
    set_numbers(f.at, F.SearchStanding, saved)
    n = lists.start.size
    rows = {name: saved[name] for name in ("requests", "abandoned", "roots", "wave_rows")}
    for name, values in rows.items():
        _check(name, values, np.dtype(S.ID), values.shape)
        if values.size > n or (values.size and not 0 <= values.min() <= values.max() < n):
            raise CheckpointError(f"the checkpoint names rows beyond {n} in {name}")
    engine.row_of_column[:] = S.FREE
    matched = np.flatnonzero(engine.column_of_row >= 0)
    engine.row_of_column[engine.column_of_row[matched]] = matched
    engine.open_price[:] = np.where(engine.row_of_column < 0, engine.v, engine.blocked)
    # The limit is the original one of the lists.
    engine.move_pool(int(saved["pool"]), 0)
    engine.make_room(0, int(saved["longest"]))
    if engine.limited:
        engine.make_reach(engine.terms.n_columns)
    used = int(lists.counts.pool_used) if lists.counts.evaluations else 0
    for name in ("ids", "costs"):
        here = getattr(engine.lists, name)
        values = saved.pop(name)
        _check(name, values, here.dtype, (used,))
        here[:used] = values
    f = engine.frontier
    f.requests[: rows["requests"].size] = rows["requests"]
    f.requested[rows["requests"]] = 1
    f.abandoned[: rows["abandoned"].size] = rows["abandoned"]
    engine.group_reach = engine.price.type(saved["group_reach"][()])
    engine.roots = rows["roots"]
    if not engine.roots.size:  # no search is in progress
        f.at.position = f.at.n_abandoned = f.at.n_requests = 0
        f.requested[:] = 0
    if saved["wave"]:
        engine.wave = Wave(rows["wave_rows"], saved["wave_before"], (int(saved["wave_done"]), 0))


def _check(name: str, saved: Array, dtype: np.dtype[Any], shape: tuple[int, ...]) -> None:
    if saved.dtype != dtype or saved.shape != shape:
        raise CheckpointError(
            f"the checkpoint holds {name} as {saved.dtype} of shape {saved.shape},"
            f" this solve has {dtype} of shape {shape}"
        )
