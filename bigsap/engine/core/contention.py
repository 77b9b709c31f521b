"""Number of threads a search uses while other processes compete for the same cores.

The threads of a search synchronise once a row or more often, within a microsecond if each has its
own core. A thread without a core delays all others by a time slice of the scheduler: two threads
beside one busy process on two cores took 17 times as long as one thread.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

# Fraction of a slice that a thread waited for a core. Above this, half of the team is faster.
# Idle machine: below 0.02; beside one busy process: 0.4 and more.
_CROWDED = 0.2
# Shorter measurements are ignored.
_SHORT_SECONDS = 0.004
# Seconds at a smaller width before a larger one is tried again; doubled after each failed trial.
_FIRST_SECONDS, _LAST_SECONDS = 1.0, 64.0


class Contention:
    """Width of a team, adapted to the load of the machine.

    It is halved when one of its threads waits for a core, and doubled when that is over. Answers
    do not depend on it.

    clock: seconds; replaced in tests.
    """

    def __init__(self, n_threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.n_threads = self.width = n_threads
        self._clock = clock
        self._keep, self._since, self._raised = _FIRST_SECONDS, clock(), False
        self._waited, self._seconds = [0.0] * n_threads, 0.0
        #: Whether the present width has not been judged yet; slices are then short.
        self.unsure = n_threads > 1

    def judge(self, waited: Sequence[float], seconds: float) -> None:
        """Choose the next width, after ``seconds`` at the present one.

        waited: how long each thread was ready to run without a core during that time; empty if the
        system does not report it, or if one thread ran.
        """
        for member, delay in enumerate(waited):
            self._waited[member] += delay
        self._seconds += seconds
        if self.n_threads == 1 or self._seconds < _SHORT_SECONDS:
            return
        now, width = self._clock(), self.width
        crowded = max(self._waited) > _CROWDED * self._seconds
        self._waited, self._seconds, self.unsure = [0.0] * self.n_threads, 0.0, False
        held = now - self._since > self._keep
        if crowded and width > 1:
            if self._raised and not held:
                self._keep = min(2 * self._keep, _LAST_SECONDS)
            self.width, self._raised = width // 2, False
        elif held and self._raised:
            self._keep, self._raised = _FIRST_SECONDS, False
        elif held and width < self.n_threads:
            self.width, self._raised = min(2 * width, self.n_threads), True
        if self.width != width:
            self._since, self.unsure = now, True


class Waits:
    """Times that threads of this process waited for a core.

    Linux reports them in ``schedstat`` (nanoseconds run, nanoseconds waited, slices).
    """

    def __init__(self, threads: Sequence[int]) -> None:
        self._files: list[int] = []
        try:
            for thread in threads:
                self._files.append(os.open(f"/proc/self/task/{thread}/schedstat", os.O_RDONLY))
        except OSError:  # another system, or schedstat is unavailable
            self.close()

    def read(self, width: int) -> list[float]:
        """Return the seconds each of the first ``width`` threads has waited; empty if unavailable."""
        if not hasattr(os, "pread"):  # Windows, which has no such files
            return []
        try:
            figures = [os.pread(file, 96, 0).split() for file in self._files[:width]]
            return [1e-9 * int(waited) for _, waited, _ in figures]
        except (OSError, ValueError):
            self.close()
            return []

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop())
