"""Progress, limits, cancellation and checkpoints of a solve, in one place.

The engine calls ``tick`` several times a second, between slices of kernel work and
after every row that Python had to deliver; the monitor answers by returning, or by
raising ``Stopped``, which ``solve`` turns into the best answer known so far.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from bigsap.errors import OptionError

#: Names to arrays or JSON values: what a method needs to continue.
Snapshot: TypeAlias = dict[str, Any]

# What may follow a stop: reading the best assignment's cost, proving a bound.
_LEAST_GRACE = 0.5
_GRACE_SHARE = 0.1


class Stopped(Exception):
    """The solve is to end now; ``reason`` is ``time_limit`` or ``cancelled``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class Progress:
    """Where a solve stands; handed to callbacks. Plain numbers, updated in place.

    phase counts from 1 (0: the start's sweeps); epsilon is in cost units; assigned
    rows are those of the current phase; seconds since the start of the solve; stage is
    ``start``, ``search`` or ``certificate``. lower_bound and upper_bound enclose the
    optimum, in the user's sense; None while unknown. One of them is the cost of an
    assignment known already, the other is proved.
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
    thread to end it. save: takes a snapshot to the disk, at every phase and about every
    ``save_every`` seconds; None for no checkpoints.
    """

    time_limit: float | None = None
    callback: Callback | None = None
    listeners: list[Callback] = field(default_factory=list)
    cancel: threading.Event | None = None
    interval: float = 0.25
    progress: Progress = field(default_factory=Progress)
    save: Callable[[Snapshot], None] | None = None
    save_every: float = 60.0

    def __post_init__(self) -> None:
        _check_seconds("time_limit", self.time_limit)
        _check_seconds("callback_every", self.interval)
        _check_seconds("checkpoint_every", self.save_every)
        if self.callback is not None and not callable(self.callback):
            raise OptionError(f"callback must be callable, got {type(self.callback).__name__}")
        if self.cancel is None:
            self.cancel = threading.Event()
        elif not callable(getattr(self.cancel, "is_set", None)):
            raise OptionError(f"cancel must be a threading.Event, got {type(self.cancel).__name__}")
        self._started = time.perf_counter()
        self._reported = self._saved = self._started
        self._snapshot: Callable[[], Snapshot] | None = None

    @property
    def seconds(self) -> float:
        """Seconds since the monitor was made."""
        return time.perf_counter() - self._started

    @property
    def cancelled(self) -> bool:
        """Whether another thread has asked for the end."""
        return self.cancel is not None and self.cancel.is_set()

    def tick(self, report: bool = False) -> None:
        """Serve listeners and checkpoints when due (or when ``report``), then judge the limits.

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
        if self.cancelled:
            raise Stopped("cancelled")
        if self.time_limit is not None and self.seconds > self.time_limit:
            raise Stopped("time_limit")
        if now - self._saved >= self.save_every:
            self.save_now()

    @contextmanager
    def saving(self, snapshot: Callable[[], Snapshot]) -> Iterator[None]:
        """Within, ``snapshot()`` is what a checkpoint is made of, at any tick.

        Also made when the solve is stopped or interrupted in here.
        """
        outer, self._snapshot = self._snapshot, snapshot
        try:
            yield
        except (Stopped, KeyboardInterrupt):
            self.save_now()
            raise
        finally:
            self._snapshot = outer

    def save_now(self) -> None:
        """Write a checkpoint, when there is anything to write and somewhere to write it."""
        if self.save is not None and self._snapshot is not None:
            self.save(self._snapshot())
            self._saved = time.perf_counter()

    def grace(self) -> float:
        """Seconds that putting a stopped solve's answer together may take.

        Half a second, so that a cancelled solve is back within one; when it was the clock
        or the callback that stopped it, up to a tenth of the time spent, where longer.
        """
        if self.cancelled:
            return _LEAST_GRACE
        return max(_LEAST_GRACE, _GRACE_SHARE * (self.time_limit or self.seconds))


def _check_seconds(name: str, value: float | None) -> None:
    if value is None and name == "time_limit":
        return
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not value >= 0:  # type: ignore[operator]
        raise OptionError(f"{name} must be a number of seconds >= 0, got {value!r}")
