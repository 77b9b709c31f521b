"""Progress of a job for a progress bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Shown:
    """The attributes that a ``Bar`` reads, from a job's record."""

    def __init__(self, record: Mapping[str, Any]) -> None:
        progress = record.get("progress") or {}
        shape = record.get("shape") or (0, 0)
        self.phase = int(progress.get("phase") or 0)
        self.epsilon = float(progress.get("epsilon") or 0.0)
        self.assigned = int(progress.get("assigned") or 0)
        self.n_rows = int(progress.get("rows") or min(shape))
        self.rows_scanned = int(progress.get("rows_scanned") or 0)
        self.rows_evaluated = int(progress.get("rows_evaluated") or 0)
        self.stage = str(progress.get("stage") or "")
        self.seconds = float(progress.get("seconds") or 0.0)
        self.ranked = int(progress.get("ranked") or 0)
        self.to_rank = int(progress.get("to_rank") or 0)
