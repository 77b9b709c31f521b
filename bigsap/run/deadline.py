"""Grace period in which a stopped solve computes its answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


class Late(Exception):
    """The grace period is over."""


@dataclass
class Deadline:
    """Deadline whose ``tick`` raises ``Late`` after ``seconds``, or once ``cancelled`` is true."""

    seconds: float
    cancelled: Callable[[], bool]

    def __post_init__(self) -> None:
        self._end = time.perf_counter() + self.seconds
        self._was_cancelled = self.cancelled()

    @property
    def left(self) -> float:
        """Return the seconds that remain; negative when late."""
        return self._end - time.perf_counter()

    def tick(self) -> None:
        """Raise Late when the time has passed."""
        if self.left < 0 or (not self._was_cancelled and self.cancelled()):
            raise Late
