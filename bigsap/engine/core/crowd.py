"""How many threads of its team a search uses while other processes want the same cores.

The threads of a search meet once a row or more often, within a microsecond where each has a core of
its own. One whose core is taken lets all others wait for a slice of the scheduler: two threads
beside one busy process on two cores took 17 times as long as one thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from bigsap.engine.core.atomics import SLEEP_SECONDS

# Of the time of a slice, the share for which a thread slept until others came, on average, past
# which half of the team does better. Quiet: below 0.01; beside one busy process: 0.4 and more.
_CROWDED = 0.2
# Less time is too short to tell.
_SHORT_SECONDS = 0.004
# Seconds that fewer threads run before more are tried again: doubled each time it was in vain.
_FIRST_SECONDS, _LAST_SECONDS = 1.0, 64.0


class Crowd:
    """The width of a team: halved where its threads wait for their cores, doubled when that is
    over. Answers do not depend on it.

    clock: seconds; another one in tests.
    """

    def __init__(self, n_threads: int, clock: Callable[[], float] = time.monotonic) -> None:
        self.n_threads = self.width = n_threads
        self._clock = clock
        self._keep, self._since = _FIRST_SECONDS, clock()
        self._n_sleeps, self._seconds = 0, 0.0
        #: Whether the present width has not been judged yet: slices are short then.
        self.unsure = n_threads > 1

    def judge(self, n_sleeps: int, seconds: float) -> None:
        """Choose the width from here on, after ``seconds`` in which all threads of the present
        width together slept ``n_sleeps`` times."""
        self._n_sleeps += n_sleeps
        self._seconds += seconds
        if self.n_threads == 1 or self._seconds < _SHORT_SECONDS:
            return
        now, width = self._clock(), self.width
        asleep = self._n_sleeps * SLEEP_SECONDS / (self._seconds * max(1, width - 1))
        self._n_sleeps, self._seconds, self.unsure = 0, 0.0, False
        if asleep > _CROWDED:
            well = now - self._since > self._keep
            self._keep = _FIRST_SECONDS if well else min(2 * self._keep, _LAST_SECONDS)
            self.width = max(1, width // 2)
        elif width < self.n_threads and now - self._since > self._keep:
            self.width = min(2 * width, self.n_threads)
        if self.width != width:
            self._since, self.unsure = now, True
