"""What a checkpoint keeps of an ``Engine`` within a phase, and an engine continued from it.

An unfinished search is undone: matching and counts change only at its end, so continuing runs it
again, bit for bit. The rows themselves are not kept.
"""

from __future__ import annotations

from copy import copy
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.record import numbers, set_numbers
from bigsap.engine.rows.rectangular import NEXT_ROW
from bigsap.engine.rows.row_engine import Engine
from bigsap.errors import CheckpointError


def kept(engine: Engine) -> dict[str, Any]:
    """What continues a phase, between two slices of it; copies."""
    st = engine.state
    at = copy(st.at)
    at.stage = NEXT_ROW
    return {
        **numbers(at, S.Standing),
        "v": engine.prices(),
        "reference": st.reference.copy(),
        "column_of_row": st.column_of_row.copy(),
        "group": st.group.copy(),
        "group_reach": np.array(engine.group_reach, engine.price),
        "rows_read": engine.reader.rows_read,
        "pairs_skipped": engine.pairs_skipped + int(st.fronts["skipped"].sum()) * S.LANES,
        "n_kept": engine.n_kept,
    }


def continued(engine: Engine, snapshot: dict[str, Any]) -> None:
    """Take up a snapshot of a solve of the same problem, with any threads and cache."""
    st = engine.state
    arrays = ("v", "reference", "column_of_row", "group")
    fixed = {name: getattr(st, name) for name in arrays} | numbers(st.at, S.Standing)
    for name, here in fixed.items():
        saved = snapshot[name]
        if saved.shape != here.shape or saved.dtype != here.dtype:
            raise CheckpointError(
                f"the checkpoint holds {name} as {saved.dtype} of shape {saved.shape},"
                f" this solve has {here.dtype} of shape {here.shape}"
            )
        here[:] = saved
    set_numbers(st.at, S.Standing, snapshot)
    st.row_of_column[:] = S.FREE
    rows = np.flatnonzero(st.column_of_row >= 0)
    st.row_of_column[st.column_of_row[rows]] = rows
    engine.group_reach = engine.price.type(snapshot["group_reach"][()])
    engine.reader.rows_read = int(snapshot["rows_read"])
    # Not in checkpoints of versions that read all of every row.
    engine.pairs_skipped = int(snapshot.get("pairs_skipped", 0))
    engine.n_kept = int(snapshot["n_kept"])
