"""Progress, limits, cancellation and checkpoints of a solve, in one place.

The engine calls ``tick`` several times a second, between slices of kernel work and after every row
that Python delivers. The monitor returns, or raises ``Stopped``, which ``solve`` turns into the
best answer known so far.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from bigsap.errors import ClusterError, OptionError, number, whole

#: Names to arrays or JSON values: the state from which a method can continue. Empty: no snapshot
#: can be taken now.
Snapshot: TypeAlias = dict[str, Any]

# Seconds, and share of the time, for the work after a stop: reading the best assignment's cost,
# proving a bound.
_LEAST_GRACE = 0.5
_GRACE_SHARE = 0.1
# A checkpoint that takes longer than _LONG_SAVING seconds is not written at a phase before
# _SAVING_SHARE times as long has passed since the last.
_LONG_SAVING = 0.5
_SAVING_SHARE = 10
# Bounds are computed again after this many times as long as the last computation took.
_ASKING_SHARE = 30


class Stopped(Exception):
    """Raised to end the solve; ``reason`` is ``time_limit`` or ``cancelled``."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass
class Progress:
    """The progress of a solve, in plain numbers; each callback gets a copy.

    phase counts from 1 (0: before the search); epsilon is in cost units; assigned rows are those of
    the current phase; rows_scanned and rows_evaluated count from the start of the solve, over all
    its parts; seconds since then. stage is ``start``, ``levels`` (first prices from samples of the
    problem), ``search``, ``certificate``, ``rank`` (of ``solve_k_best``), and ``done`` at the end.
    lower_bound and upper_bound enclose the optimum, in the user's sense; None while unknown. One of
    them is the cost of a known assignment, the other is proved. level: 0 for the problem itself, else
    the depth of the current sub-problem, which has level_rows rows, level_assigned of them assigned.
    workers: rows that each worker of a cluster has evaluated so far, by address; empty without a
    cluster. ranked: assignments that are proved so far to be the best ones, in order, of ``to_rank``
    asked for; both are 0 before the stage ``rank``.
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
    level: int = 0
    level_rows: int = 0
    level_assigned: int = 0
    workers: dict[str, int] = field(default_factory=dict)
    ranked: int = 0
    to_rank: int = 0


Callback = Callable[[Progress], Any]


_of_thread = threading.local()


@contextmanager
def guarded(guard: Callable[[], None]) -> Iterator[None]:
    """Add this guard to all monitors that this thread makes within the context, see ``Monitor``."""
    before = getattr(_of_thread, "guards", ())
    _of_thread.guards = (*before, guard)
    try:
        yield
    finally:
        _of_thread.guards = before


@dataclass
class Monitor:
    """Limits and listeners of one solve.

    time_limit: seconds, None for none. callback: called at every phase and about every ``interval``
    seconds; StopIteration ends the solve. cancel: set from any thread to end it. save: writes a
    snapshot to the disk, at every phase and about every ``save_every`` seconds; None for no
    checkpoints. interval_rows: the callback is also due after so many rows, None for never. gaps:
    see ``update_bounds``. as_given: if the search is of other costs than the given ones: a function that
    turns bounds of their optimum into bounds of the given costs' optimum. guards: called at every tick; an
    exception that one raises ends the solve. bounds: called before a report to compute better bounds (it
    calls ``update_bounds``), for a small share of the time.
    """

    time_limit: float | None = None
    callback: Callback | None = None
    listeners: list[Callback] = field(default_factory=list)
    cancel: threading.Event | None = None
    interval: float = 0.25
    progress: Progress = field(default_factory=Progress)
    save: Callable[[Snapshot], None] | None = None
    save_every: float = 60.0
    interval_rows: int | None = None
    gaps: list[dict[str, Any]] = field(default_factory=list)
    guards: list[Callable[[], None]] = field(default_factory=list)
    bounds: Callable[[], None] | None = None
    as_given: Callable[[Any, Any], tuple[Any, Any]] | None = None
    ends: bool = True

    def __post_init__(self) -> None:
        if self.time_limit is not None:
            self.time_limit = _seconds("time_limit", self.time_limit)
        self.interval = _seconds("callback_every", self.interval)
        self.save_every = _seconds("checkpoint_every", self.save_every)
        if self.interval_rows is not None:
            rows = whole(self.interval_rows)
            if rows is None or rows < 1:
                given = self.interval_rows
                raise OptionError(f"callback_rows must be a number of rows >= 1, got {given!r}")
            self.interval_rows = rows
        if self.callback is not None and not callable(self.callback):
            raise OptionError(f"callback must be callable, got {type(self.callback).__name__}")
        self.guards.extend(getattr(_of_thread, "guards", ()))
        self._cancellable = self.cancel is not None
        if self.cancel is None:
            self.cancel = threading.Event()
        elif not callable(getattr(self.cancel, "is_set", None)):
            raise OptionError(f"cancel must be a threading.Event, got {type(self.cancel).__name__}")
        self._started = time.perf_counter()
        self._reported = self._saved = self._started
        self._reported_rows = 0, 0
        self._saving_took = 0.0
        self._snapshot: Callable[[], Snapshot] | None = None
        self._ended: str | None = None
        self._refused = False
        self._asked = -math.inf

    @property
    def seconds(self) -> float:
        """Seconds since the monitor was made."""
        return time.perf_counter() - self._started

    @property
    def can_stop(self) -> bool:
        """Whether the solve can be stopped with its answer still needed, or its bounds are read."""
        return self._cancellable or bool(
            self.time_limit is not None or self.callback is not None or self.listeners
        )

    @property
    def has_listeners(self) -> bool:
        """Whether progress is reported to any listener."""
        return self.callback is not None or bool(self.listeners)

    @property
    def cancelled(self) -> bool:
        """Whether another thread has requested the end."""
        return self.cancel is not None and self.cancel.is_set()

    @property
    def over(self) -> str | None:
        """The limit that has been reached, as the ``reason`` of ``Stopped``; None if none."""
        if self.cancelled:
            return "cancelled"
        late = self.time_limit is not None and self.seconds > self.time_limit
        return "time_limit" if late else None

    def tick(self, report: bool = False) -> None:
        """Call listeners and write checkpoints if due (or if ``report``), then check the limits.

        Raises Stopped if the solve is to end.
        """
        self._serve(report)
        if time.perf_counter() - self._saved >= self.save_every:
            self.save_now()

    def look(self) -> None:
        """Do as ``tick`` while a kernel is working: no checkpoint is written, no bounds are computed."""
        bounds, self.bounds = self.bounds, None
        try:
            self._serve()
        finally:
            self.bounds = bounds

    def _serve(self, report: bool = False) -> None:
        if self._ended is not None or self._refused:
            raise Stopped(self._ended or "cancelled")
        now = time.perf_counter()
        if report or now - self._reported >= self.interval or self._rows_passed():
            self._report(now)
        for guard in self.guards:
            guard()
        over = self.over
        if over is not None:
            raise Stopped(over)

    def _report(self, now: float) -> None:
        self._reported = now
        self._reported_rows = self.progress.rows_scanned, self.progress.rows_evaluated
        if self.bounds is not None and self.has_listeners and now >= self._asked:
            self.bounds()
            took = time.perf_counter() - now
            self._asked = now + _ASKING_SHARE * took
        self.progress.seconds = now - self._started
        for listener in self.listeners:
            listener(self._copy())
        if self.callback is not None:
            try:
                self.callback(self._copy())
            except StopIteration:
                self._refused = True
                raise Stopped("cancelled") from None

    def _copy(self) -> Progress:
        return replace(self.progress, workers=dict(self.progress.workers))

    def conclude(self) -> None:
        """Report the end of the solve; this can no longer stop it.

        A callback that requested the end is not called again.
        """
        self.bounds = None
        if self.ends and not self._refused:
            with suppress(Stopped):
                self._report(time.perf_counter())

    def counter(self) -> Callable[[int, int], None]:
        """Return a function that takes the rows scanned and evaluated so far by one of several engines.

        ``progress`` has their sum, which never falls.
        """
        progress, last = self.progress, (0, 0)

        def count(scanned: int, evaluated: int) -> None:
            nonlocal last
            progress.rows_scanned += max(0, scanned - last[0])
            progress.rows_evaluated += max(0, evaluated - last[1])
            last = scanned, evaluated

        return count

    def reached(self, scanned: int, evaluated: int) -> None:
        """Raise the counts of rows scanned and evaluated to at least these, for work without reports."""
        progress = self.progress
        progress.rows_scanned = max(progress.rows_scanned, scanned)
        progress.rows_evaluated = max(progress.rows_evaluated, evaluated)

    def end(self, reason: str) -> None:
        """Make every further ``tick`` raise Stopped; no more checkpoints are written.

        For a stop before the search.
        """
        self._ended, self.save = reason, None

    @property
    def ended(self) -> bool:
        """Whether ``end`` was called."""
        return self._ended is not None

    def _rows_passed(self) -> bool:
        if self.interval_rows is None:
            return False
        scanned, evaluated = self._reported_rows
        now = self.progress
        passed = max(now.rows_scanned - scanned, now.rows_evaluated - evaluated)
        return passed >= self.interval_rows

    def update_bounds(self, low: Any, high: Any) -> None:
        """Record that the optimum lies between ``low`` and ``high``; None if unknown.

        In the user's sense. Bounds worse than the known ones change nothing. Each time the gap
        shrinks, a record is added to ``gaps``: seconds, gap, lower_bound, upper_bound. Only for
        bounds of the whole problem, not of a part of it.
        """
        if self.as_given is not None:
            low, high = self.as_given(low, high)
        progress = self.progress
        old_low, old_high = progress.lower_bound, progress.upper_bound
        if low is not None and (old_low is None or low > old_low):
            progress.lower_bound = plain_number(low)
        if high is not None and (old_high is None or high < old_high):
            progress.upper_bound = plain_number(high)
        low, high = progress.lower_bound, progress.upper_bound
        if low is None or high is None or (low, high) == (old_low, old_high):
            return
        # Rounding may make one bound exceed the other.
        gap = max(0, high - low)
        if math.isfinite(gap) and (not self.gaps or gap < self.gaps[-1]["gap"]):
            record = {"gap": gap, "lower_bound": low, "upper_bound": high}
            self.gaps.append({"seconds": self.seconds, **record})

    @contextmanager
    def saving(self, snapshot: Callable[[], Snapshot]) -> Iterator[None]:
        """Take checkpoints from ``snapshot()`` within the context, at any tick.

        A checkpoint is also written if the solve is stopped or interrupted within the context, or needs
        more than an option allows.
        """
        outer, self._snapshot = self._snapshot, snapshot
        try:
            yield
        except (Stopped, KeyboardInterrupt, ClusterError, OptionError):
            self.save_now()
            raise
        finally:
            self._snapshot = outer

    def save_now(self) -> None:
        """Write a checkpoint, if there is a snapshot and a file for it."""
        if self.save is None or self._snapshot is None:
            return
        snapshot = self._snapshot()
        if snapshot:
            clock = time.perf_counter()
            self.save(snapshot)
            self._saved = time.perf_counter()
            self._saving_took = self._saved - clock

    def save_phase(self) -> None:
        """Call ``save_now`` at the beginning of a phase.

        Skip it if phases are so short, and snapshots so large, that the solve would spend its time
        writing.
        """
        since = time.perf_counter() - self._saved
        if self._saving_took < _LONG_SAVING or since > _SAVING_SHARE * self._saving_took:
            self.save_now()

    def grace(self) -> float:
        """Return the seconds that computing a stopped solve's answer may take.

        Half a second, so that a cancelled solve returns within one second. If the time limit or the
        callback stopped it, up to a tenth of the time spent, if that is longer.
        """
        if self.cancelled:
            return _LEAST_GRACE
        return max(_LEAST_GRACE, _GRACE_SHARE * (self.time_limit or self.seconds))


def plain_number(value: Any) -> Any:
    """Return a Python number, so that a result is the same after saving and loading."""
    return value.item() if hasattr(value, "item") else value


class PartMonitor(Monitor):
    """The monitor of a sub-problem: the whole's limits, progress of its own, no checkpoints.

    n_rows: of the sub-problem, which is the ``level``-th below the whole. The whole's progress
    reports its state.
    """

    def __init__(self, whole: Monitor, n_rows: int, level: int) -> None:
        super().__init__()
        self._top: Monitor = whole._top if isinstance(whole, PartMonitor) else whole
        self.progress.level, self.progress.n_rows = level, n_rows

    def tick(self, report: bool = False) -> None:
        """Call the whole's ``tick``, without reporting a new phase."""
        self._tell()
        self._top.tick()

    def look(self) -> None:
        self._tell()
        self._top.look()

    def grace(self) -> float:
        """Return 0: the grace period is the whole's."""
        return 0.0

    def _tell(self) -> None:
        own, top = self.progress, self._top.progress
        top.stage, top.level = "levels", own.level
        top.level_rows, top.level_assigned = own.n_rows, own.assigned

    def counter(self) -> Callable[[int, int], None]:
        """Return the whole's counter: work on parts is part of the solve's work."""
        return self._top.counter()

    def close(self) -> None:
        """Reset the whole's progress: the sub-problem is done."""
        top = self._top.progress
        top.stage, top.level, top.level_rows, top.level_assigned = "start", 0, 0, 0


def _seconds(name: str, value: float) -> float:
    seconds = number(value)
    if seconds is None or not seconds >= 0:
        raise OptionError(f"{name} must be a number of seconds >= 0, got {value!r}")
    return seconds
