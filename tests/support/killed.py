"""Solves that a signal ends, and whether a continued one has the same answer."""

from __future__ import annotations

import signal

import numpy as np

KILLED = -signal.SIGKILL if hasattr(signal, "SIGKILL") else 1  # of Windows


def same(a, b):
    """Whether two results have the same pairs, duals and status, bit for bit."""
    return (
        np.array_equal(a.col4row, b.col4row)
        and np.array_equal(a.v, b.v)
        and np.array_equal(a.u, b.u)
        and a.fun == b.fun
        and a.status == b.status
    )


def stop_after(ticks):
    """A callback that stops the solve once it was called so many times."""
    count = iter(range(10**9))

    def callback(_state):
        if next(count) >= ticks:
            raise StopIteration

    return callback
