"""Threads of a proof: the calling thread looks after signals, limits and listeners meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bigsap.errors import quiet


class Left(Exception):
    """A thread's work was ended because another's is."""


def first_failure(failures: list[tuple[int, BaseException]]) -> BaseException:
    """The one with the smallest number, to be raised; the list is empty then.

    An error that its own frames still hold is a cycle: all that these frames have, a whole
    solve perhaps, would wait for Python's collector.
    """
    first = min(failures, key=lambda failure: failure[0])[1]
    failures.clear()
    return first


def run_together(
    count: int, run: Callable[[], None], look: Callable[[], None], ended: threading.Event
) -> None:
    """``run`` in ``count`` threads, to their end; ``look`` many times a second.

    Sets ``ended`` when ``look`` raises or all is done; threads that look there then leave.
    """
    team = [threading.Thread(target=quiet(run), daemon=True) for _ in range(count)]
    try:
        for member in team:
            member.start()
        for member in team:
            # With a time limit, so that Ctrl-C reaches this thread in between.
            while member.is_alive():
                member.join(0.05)
                look()
    finally:
        ended.set()
        for member in team:
            if member.ident is not None:
                member.join()
