"""Threads of a proof; the calling thread handles signals, limits and listeners meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable

from bigsap.errors import quiet


class Left(Exception):
    """Raised in a thread to end its work because another thread's has ended."""


def first_failure(failures: list[tuple[int, BaseException]]) -> BaseException:
    """Empty a list of (number, failure); return the failure of the smallest number, to be raised.

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


def share_out(
    count: int,
    step: int,
    threads: int,
    look: Callable[[], None],
    some: Callable[[int, int, Callable[[], None]], bool],
) -> bool:
    """Call ``some(start, stop, pause)`` over all of ``count`` on several threads, ``step`` at a time.

    some: returns False to give up, which ends the other threads; then this returns False, else True.
    pause: to be called often by ``some``; it ends a thread when another has ended all. look: called
    many times a second, by the calling thread. An exception there or in a thread ends all as well, and
    is raised.
    """
    lock = threading.Lock()
    ended = threading.Event()
    failures: list[tuple[int, BaseException]] = []
    taken = 0
    refused = threading.Event()

    def run(pause: Callable[[], None]) -> None:
        nonlocal taken
        try:
            while not ended.is_set():
                with lock:
                    start = taken
                    taken += step
                if start >= count:
                    return
                if not some(start, min(count, start + step), pause):
                    refused.set()
                    ended.set()
        except Left:
            return
        except BaseException as error:  # noqa: BLE001 - raised in the calling thread
            failures.append((len(failures), error))
            ended.set()

    def leave() -> None:
        if ended.is_set():
            raise Left

    members = min(threads, -(-count // step))
    if members <= 1:
        run(look)
    else:
        run_together(members, lambda: run(leave), look, ended)
    if failures:
        raise first_failure(failures)
    return not refused.is_set()
