"""What the service publishes of a running solve, with an estimate of the time left."""

from __future__ import annotations

import threading
import time
from typing import Any

import bigsap

#: A phase takes so much of the time of the one before. All that follow a phase take so many
#: times as long as it, until two are over: then as many as if each were shorter by what the
#: last was, but no more than this.
_SHORTER = 0.8
_FOLLOWING = 1.5
_MOST_FOLLOWING = 2.0
#: The certificate takes so much of the time of an evaluation of all rows.
_PASS = 0.8


class Pace:
    """Follows a solve by its callback; ``report`` may be called from another thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._seen: dict[str, Any] = {"stage": "loading", "seconds": 0.0}
        self._born = time.monotonic()
        self._phase = -1
        self._phase_began = 0.0
        self._last_s: float | None = None  # how long the phase before took
        self._proof_s: float | None = None  # how long the certificate may take
        self._stale = 0  # rows assigned when the phase began
        self._following = _FOLLOWING  # phases of this length that all later ones are worth

    def see(self, progress: bigsap.Progress) -> None:
        """The solve's callback."""
        with self._lock:
            self._follow(progress)
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
                "workers": dict(progress.workers) or None,
            }

    def _follow(self, progress: bigsap.Progress) -> None:
        now = progress.seconds
        if progress.phase != self._phase:
            if self._phase >= 1:
                took = now - self._phase_began
                if self._last_s:
                    shrunk = min(took / self._last_s, 0.99)
                    self._following = min(_MOST_FOLLOWING, shrunk / (1 - shrunk))
                self._last_s = took
            elif progress.phase >= 1 and progress.rows_evaluated:
                # A pass over the costs, by the passes that there were.
                passes = max(1.0, progress.rows_evaluated / max(1, progress.n_rows))
                self._proof_s = _PASS * now / passes
            self._phase, self._phase_began = progress.phase, now
            self._stale = progress.assigned

    def report(self) -> dict[str, Any]:
        """What is known now. ``seconds`` since the attempt began go on in long rows."""
        with self._lock:
            return {**self._seen, "seconds": round(time.monotonic() - self._born, 3)}

    def _eta(self, progress: bigsap.Progress) -> float | None:
        """Seconds left, mostly within a factor of 3; None where nothing tells.

        Nothing does before a whole phase is over: the first may take any time. A later one
        takes about as long as the one before it, or less; how many follow is not known, but
        each is shorter. The certificate has no pace.
        """
        rows = min(progress.n_rows, progress.n_columns)
        if progress.stage != "search" or progress.phase < 2 or self._last_s is None or rows <= 0:
            return None
        spent = progress.seconds - self._phase_began
        # Until its first rows are matched, a phase has those of the one before.
        fresh = progress.assigned != self._stale
        done = min(1.0, progress.assigned / rows) if fresh else 0.0
        # By the phase before as long as this one has not come far: its last rows take longest.
        trust = done**3
        whole = (1 - trust) * _SHORTER * self._last_s + trust * spent / max(done, 1e-9)
        left = max((1 - done) * whole, whole - spent)
        if progress.epsilon > 0:
            left += self._following * whole
        return left + (self._proof_s or 0.0)
