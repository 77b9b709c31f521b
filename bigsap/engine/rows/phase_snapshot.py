"""Checkpoints of an ``Engine`` within a phase, and engines restored from them.

An unfinished search is undone. Matching and counts change only at the end of a search, so the
restored engine repeats it, bit for bit. The rows themselves are not saved.
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
    """Return copies of the data needed to continue a phase, between two of its slices."""
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
    """Restore a snapshot of a solve of the same problem, with any threads and cache."""
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
    # Missing in checkpoints of older versions, which read all of every row.
    engine.pairs_skipped = int(snapshot.get("pairs_skipped", 0))
    engine.n_kept = int(snapshot["n_kept"])
