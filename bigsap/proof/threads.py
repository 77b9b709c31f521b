"""Threads of a proof; the calling thread handles signals, limits and listeners meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bigsap.errors import quiet


class Left(Exception):
    """Raised in a thread to end its work because another thread's has ended."""


def first_failure(failures: list[tuple[int, BaseException]]) -> BaseException:
    """Empty the list and return its failure with the smallest number, to be raised.

    An error that its own frames still hold is a reference cycle: everything in these frames, perhaps
    a whole solve, would wait for Python's garbage collector.
    """
    first = min(failures, key=lambda failure: failure[0])[1]
    failures.clear()
    return first


def run_together(
    count: int, run: Callable[[], None], look: Callable[[], None], ended: threading.Event
) -> None:
    """Run ``run`` in ``count`` threads to the end; call ``look`` many times a second.

    Sets ``ended`` if ``look`` raises or all is done; threads that check it then stop.
    """
    team = [threading.Thread(target=quiet(run), daemon=True) for _ in range(count)]
    try:
        for member in team:
            member.start()
        for member in team:
            # With a timeout, so that Ctrl-C reaches this thread.
            while member.is_alive():
                member.join(0.05)
                look()
    finally:
        ended.set()
        for member in team:
            if member.ident is not None:
                member.join()
