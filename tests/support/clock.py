"""A clock that goes when the test says so, in place of the machine's.

Costs that take long move it on instead of sleeping: what a solve then does in so many seconds is
the same on every machine, and takes none of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest


class Clock:
    """Seconds since some moment. It has the names of the module ``time``, and may stand for it."""

    def __init__(self) -> None:
        self._now = 1000.0
        self._alarms: list[tuple[float, Callable[[], Any]]] = []
        self._lock = threading.RLock()

    def __call__(self) -> float:
        """The time; alarms that are due go off."""
        with self._lock:
            now = self._now
            due = [alarm for alarm in self._alarms if alarm[0] <= now]
            self._alarms = [alarm for alarm in self._alarms if alarm[0] > now]
        for _, action in due:
            action()
        return now

    perf_counter = monotonic = time = __call__

    def sleep(self, seconds: float) -> None:
        """So much time passes at once."""
        with self._lock:
            self._now += seconds
        self()

    def after(self, seconds: float, action: Callable[[], Any]) -> float:
        """Do this as soon as so much time has passed; when that is."""
        when = self() + seconds
        self._alarms.append((when, action))
        return when


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """In place of ``time.perf_counter``, by which solves tell the time."""
    found = Clock()
    monkeypatch.setattr("time.perf_counter", found)
    return found
