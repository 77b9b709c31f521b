"""Published progress of a running solve, with an estimate of the remaining time."""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from typing import Any

import bigsap

#: Assumed time of the last phase relative to the one before, until its own rows allow an estimate.
_SHORTER = 0.8
#: Time of a certificate that reads all costs relative to an evaluation of all rows; a proof by bounds takes
#: much less.
_PASS = 0.8
# Members of a published progress that are those of the library.
_SAME = (
    *("stage", "phase", "level", "level_rows", "level_assigned", "epsilon", "assigned", "seconds"),
    *("rows_evaluated", "rows_scanned", "cache_hit", "lower_bound", "upper_bound"),
)


class Pace:
    """Follows a solve by its callback; ``report`` may be called from another thread.

    proof_reads_all: the certificate will read all costs, as far as is known. last: what was seen last.
    """

    def __init__(self, proof_reads_all: bool = True) -> None:
        self.proof_reads_all = proof_reads_all
        self._lock = threading.Lock()
        self._seen: dict[str, Any] = {"stage": "loading", "seconds": 0.0}
        self.last: bigsap.Progress | None = None
        self._born = time.monotonic()
        self._phase = -1
        self._phase_began = 0.0
        self._before_s: float | None = None  # duration of the phase before
        self._pass_s = 0.0  # duration of a certificate that reads all costs
        self._stale = 0  # rows assigned when the phase began
        self._free: deque[tuple[float, int]] = deque()  # in this phase: time, rows without a column

    def see(self, progress: bigsap.Progress) -> None:
        """Record progress; the solve's callback."""
        with self._lock:
            self._follow(progress)
            self.last = progress
            lower, upper = progress.lower_bound, progress.upper_bound
            self._seen = {name: getattr(progress, name) for name in _SAME} | {
                "rows": progress.n_rows,
                "columns": progress.n_columns,
                "gap": None if lower is None or upper is None else abs(upper - lower),
                "eta_s": self._eta(progress),
                "workers": dict(progress.workers) or None,
                "ranked": progress.ranked if progress.to_rank else None,
                "to_rank": progress.to_rank or None,
            }

    def _follow(self, progress: bigsap.Progress) -> None:
        now, rows = progress.seconds, min(progress.n_rows, progress.n_columns)
        if progress.phase != self._phase:
            if self._phase >= 1:
                self._before_s = now - self._phase_began
            elif progress.phase >= 1 and progress.rows_evaluated:
                # The time of a pass over the costs, by the number of passes so far.
                passes = max(1.0, progress.rows_evaluated / max(1, progress.n_rows))
                self._pass_s = _PASS * now / passes
            self._phase, self._phase_began = progress.phase, now
            self._stale = progress.assigned
            self._free = deque([(now, rows)])
        elif progress.assigned != self._stale or len(self._free) > 1:
            # Until its first rows are matched, a phase reports the rows of the one before.
            self._free.append((now, rows - progress.assigned))

    def report(self) -> dict[str, Any]:
        """Return the current progress. ``seconds`` since the attempt began also grows during long rows."""
        with self._lock:
            return {**self._seen, "seconds": round(time.monotonic() - self._born, 3)}

    def _eta(self, progress: bigsap.Progress) -> float | None:
        """Return the seconds left, mostly within a factor of 3; None without a basis for an estimate.

        There is none before the last phase: the number of phases is unknown, and the last took
        between a fifth of the time of the one before and ten times as much. The certificate reports no
        rate.
        """
        last = progress.phase >= 2 and progress.epsilon == 0
        if progress.stage != "search" or not last or self._before_s is None:
            return None
        left = self._by_decay(progress.seconds)
        if left is None:
            return None
        spent = progress.seconds - self._phase_began
        left = max(left, _SHORTER * self._before_s - spent)
        return left + (self._pass_s if self.proof_reads_all else 0.0)

    def _by_decay(self, now: float) -> float | None:
        """Return the time left by the decrease of rows without a column since the middle of the phase.

        The decrease is exponential, and faster towards the end: the last rows' searches are
        not the longest ones. None where there is no decrease.
        """
        half = (self._phase_began + now) / 2
        while len(self._free) > 2 and self._free[1][0] <= half:
            self._free.popleft()
        (t0, u0), (t1, u1) = self._free[0], self._free[-1]
        if u1 < 1 or u0 <= u1:
            return None
        return (t1 - t0) / math.log(u0 / u1) * math.sqrt(math.log(u1 + 1))
