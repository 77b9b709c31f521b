"""Progress, time limit and cancellation of a solve, in one place.

The engine calls ``tick`` several times a second, between slices of kernel work and
before every row that Python has to deliver; the monitor answers by returning, or by
raising ``Stopped``, which the methods turn into the best answer known so far.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bigsap.errors import OptionError


class Stopped(Exception):
    """The solve is to end now; ``reason`` is ``time_limit`` or ``cancelled``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class Progress:
    """Where a solve stands; handed to callbacks. Plain numbers, updated in place.

    phase counts from 1 (0: the start's sweeps); epsilon is in cost units; assigned
    rows are those of the current phase; seconds since the start of the solve.
    """

    n_rows: int = 0
    n_columns: int = 0
    phase: int = 0
    epsilon: float = 0.0
    assigned: int = 0
    rows_scanned: int = 0
    rows_evaluated: int = 0
    cache_hit: float = 0.0
    lower_bound: float | None = None
    upper_bound: float | None = None
    seconds: float = 0.0
    stage: str = "start"


Callback = Callable[[Progress], Any]


@dataclass
class Monitor:
    """Limits and listeners of one solve.

    time_limit: seconds, None for none. callback: called at every phase and about
    every ``interval`` seconds; StopIteration ends the solve. cancel: set from any
    thread to end it.
    """

    time_limit: float | None = None
    callback: Callback | None = None
    listeners: list[Callback] = field(default_factory=list)
    cancel: threading.Event = field(default_factory=threading.Event)
    interval: float = 0.25
    progress: Progress = field(default_factory=Progress)

    def __post_init__(self) -> None:
        limit = self.time_limit
        if limit is not None and not (isinstance(limit, (int, float)) and limit >= 0):
            raise OptionError(f"time_limit must be a number of seconds >= 0, got {limit!r}")
        if self.callback is not None and not callable(self.callback):
            raise OptionError(f"callback must be callable, got {type(self.callback).__name__}")
        self._started = time.perf_counter()
        self._reported = self._started

    @property
    def seconds(self) -> float:
        """Seconds since the monitor was made."""
        return time.perf_counter() - self._started

    def tick(self, report: bool = False) -> None:
        """Serve listeners when due (or when ``report``), then judge the limits.

        Raises Stopped when the solve is to end.
        """
        now = time.perf_counter()
        if report or now - self._reported >= self.interval:
            self._reported = now
            self.progress.seconds = now - self._started
            for listener in self.listeners:
                listener(self.progress)
            if self.callback is not None:
                try:
                    self.callback(self.progress)
                except StopIteration:
                    raise Stopped("cancelled") from None
        if self.cancel.is_set():
            raise Stopped("cancelled")
        if self.time_limit is not None and now - self._started > self.time_limit:
            raise Stopped("time_limit")
