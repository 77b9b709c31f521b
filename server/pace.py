"""What the service publishes of a running solve, with an estimate of the time left."""

from __future__ import annotations

import threading
import time
from typing import Any

import bigsap


class Pace:
    """Follows a solve by its callback; ``report`` may be called from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, Any] = {"stage": "loading", "seconds": 0.0}
        self._born = time.monotonic()
        self._phase = -1
        self._phase_began = 0.0

    def see(self, progress: bigsap.Progress) -> None:
        """The solve's callback."""
        with self._lock:
            if progress.phase != self._phase:
                self._phase, self._phase_began = progress.phase, progress.seconds
            lower, upper = progress.lower_bound, progress.upper_bound
            self._seen = {
                "stage": progress.stage,
                "phase": progress.phase,
                "level": progress.level,
                "level_rows": progress.level_rows,
                "level_assigned": progress.level_assigned,
                "epsilon": progress.epsilon,
                "assigned": progress.assigned,
                "rows": progress.n_rows,
                "columns": progress.n_columns,
                "rows_evaluated": progress.rows_evaluated,
                "rows_scanned": progress.rows_scanned,
                "cache_hit": progress.cache_hit,
                "lower_bound": lower,
                "upper_bound": upper,
                "gap": None if lower is None or upper is None else abs(upper - lower),
                "seconds": progress.seconds,
                "eta_s": self._eta(progress),
            }

    def report(self) -> dict[str, Any]:
        """What is known now. ``seconds`` since the attempt began go on in long rows."""
        with self._lock:
            return {**self._seen, "seconds": round(time.monotonic() - self._born, 3)}

    def _eta(self, progress: bigsap.Progress) -> float | None:
        """Seconds left: by the pace of the phase, and another like it while epsilon > 0.

        Phases with a smaller epsilon are at most about as long as those before, and
        their number is not known beforehand: an estimate, mostly low. None where there is no
        pace to go by.
        """
        rows = min(progress.n_rows, progress.n_columns)
        if progress.stage != "search" or progress.assigned <= 0 or rows <= 0:
            return None
        spent = progress.seconds - self._phase_began
        whole = spent * rows / progress.assigned
        return max(0.0, whole - spent) + (whole if progress.epsilon > 0 else 0.0)
