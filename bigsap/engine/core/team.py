"""Team of threads that run one kernel together, each on its own column slab.

With more than one thread, all members are Python threads that sleep between calls and release
the GIL inside the kernel; they synchronise at the kernel's own barrier. Kernels return every
fraction of a second. The calling thread alone then handles signals, limits and callbacks.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from bigsap.engine.core.contention import Contention, Waits
from bigsap.errors import OptionError, whole
from bigsap.system import cgroup_folders, system_file, usable_cores


def available_threads() -> int:
    """Return the number of usable cores: affinity and cgroup quota, at least 1."""
    cores = usable_cores()
    quota = _cgroup_quota()
    return max(1, min(cores, quota) if quota else cores)


def _cgroup_quota() -> int | None:
    """Return the whole cores granted by the cgroups (v2 or v1), None without a limit."""
    return min(filter(None, map(_cores_of, cgroup_folders("cpu"))), default=None)


def _cores_of(folder: str) -> int | None:
    try:
        limit, period = system_file(f"{folder}/cpu.max").split()
        return None if limit == "max" else max(1, int(limit) // int(period))
    except (OSError, ValueError):
        pass
    try:
        limit_us = int(system_file(f"{folder}/cpu.cfs_quota_us"))
        period_us = int(system_file(f"{folder}/cpu.cfs_period_us"))
        return None if limit_us <= 0 else max(1, limit_us // period_us)
    except (OSError, ValueError):
        return None


def check_threads(threads: int | None) -> int:
    """Return the number of threads to use: ``threads``, or all available if None.

    Raises OptionError for anything but a positive integer.
    """
    if threads is None:
        return available_threads()
    count = whole(threads)
    if count is None or count < 1:
        raise OptionError(f"threads must be a positive integer or None, got {threads!r}")
    return count


#: Up to this number, the requested threads are always granted, however few cores or columns there are.
_FEW_THREADS = 8
_COLUMNS_A_THREAD = 64
# For fewer rows or columns, a pass takes about as long as waking the team.
_MANY = 8192


def useful_threads(n_threads: int, n_columns: int) -> int:
    """Limit the threads to the cores and columns available: too many would only wait for each other."""
    if n_threads <= _FEW_THREADS:
        return n_threads
    return min(
        n_threads, max(_FEW_THREADS, available_threads()), max(_FEW_THREADS, n_columns // _COLUMNS_A_THREAD)
    )


class Team:
    """``n_threads`` threads for the lifetime of one solve; a context manager.

    With more than one thread, all members are threads of their own and the caller only
    waits. An interrupt of the caller then never leaves members waiting at a barrier for one
    that did not start; it is raised when the kernel has returned. They start with the first
    kernel: a solve on a device may run none.

    contention: measures contention for cores, and decides how many members a search uses.
    """

    def __init__(self, n_threads: int) -> None:
        self.n_threads = n_threads
        self.contention = Contention(n_threads)
        self._condition = threading.Condition()
        # The number of the current call; members that have not seen it yet take part in it.
        self._generation = 0
        # Members that began and ended this call's work, and whether it ends only when all have begun.
        self._n_begun = self._n_done = 0
        self._all_must_begin = True
        self._closed = False
        self._work: tuple[Callable[..., int], tuple[Any, ...]] | None = None
        self._width = n_threads
        self._waits: Waits | None = None
        self._statuses = [0] * n_threads
        self._errors: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._serve, args=(k,), name=f"bigsap-{k}", daemon=True)
            for k in range(n_threads if n_threads > 1 else 0)
        ]
        self._started = False

    def run(self, kernel: Callable[..., int], *args: Any) -> int:
        """Run ``kernel(k, n_threads, *args)`` on all members k in parallel; return member 0's result.

        After ``close`` the caller runs it alone.
        """
        return self.run_some(self.n_threads, kernel, *args)

    def run_claims(self, kernel: Callable[..., int], *args: Any) -> None:
        """Run a kernel whose threads claim pieces of work.

        As ``run``, without waiting for members that have not begun when all work is done: on a
        busy machine that may take milliseconds.
        """
        try:
            self._all_must_begin = False
            self.run_some(self.n_threads, kernel, *args)
        finally:
            self._all_must_begin = True

    def run_some(self, width: int, kernel: Callable[..., int], *args: Any) -> int:
        """Run ``kernel(k, width, *args)`` on the first ``width`` members, as ``run``."""
        if width == 1 or self._closed:
            return kernel(0, 1, *args)
        if not self._started:
            for thread in self._threads:
                if thread.ident is None:  # an interrupt may have come in between
                    thread.start()
            self._started = True
        generation = self._generation + 1
        interrupt: BaseException | None = None
        while True:
            # Safe to repeat from the top: setting the generation starts the members, exactly once.
            try:
                with self._condition:
                    if self._generation != generation:
                        self._n_begun = self._n_done = 0
                        self._work, self._width = (kernel, args), width
                        self._generation = generation
                    self._condition.notify_all()
                    while not self._finished():
                        self._condition.wait(0.1)
                    self._work = None
                break
            except BaseException as raised:  # noqa: BLE001 - raised again below
                # An interrupt inside the lock's own code becomes the context of the lock's error.
                context = raised.__context__
                hides_interrupt = context is not None and not isinstance(context, Exception)
                interrupt = context if hides_interrupt else raised
        if interrupt is not None:
            raise interrupt
        if self._errors:
            raise self._errors[0]
        return self._statuses[0]

    def share(self, n: int, kernel: Callable[..., int], *args: Any) -> None:
        """Run a kernel over n rows or columns on all members, or on the caller alone if n is small.

        For kernels whose results do not depend on the number of threads.
        """
        if n < _MANY:
            kernel(0, 1, *args)
        else:
            self.run(kernel, *args)

    def waits(self, width: int) -> list[float]:
        """Return the seconds for which each of the first members has waited for a core so far.

        Empty if the caller runs alone or the system does not report it.
        """
        if width == 1:
            return []
        if not self._started:
            return [0.0] * width
        if self._waits is None:
            self._waits = Waits([thread.native_id or 0 for thread in self._threads])
        return self._waits.read(width)

    def _finished(self) -> bool:
        if self._n_done == self._width:
            return True
        return not self._all_must_begin and 0 < self._n_done == self._n_begun

    def _serve(self, member: int) -> None:
        seen = 0
        while True:
            with self._condition:
                while self._generation == seen and not self._closed:
                    self._condition.wait(1.0)
                if self._closed:
                    return
                seen = self._generation
                work, width = self._work, self._width
                if work is None or member >= width:  # the others have done it, or do it alone
                    continue
                self._n_begun += 1
            kernel, args = work
            try:
                self._statuses[member] = kernel(member, width, *args)
            except BaseException as error:  # noqa: BLE001 - raised by run()
                self._errors.append(error)
            with self._condition:
                self._n_done += 1
                if self._finished():
                    self._condition.notify_all()

    def close(self) -> None:
        """Stop the members; later kernels run on the caller alone."""
        with self._condition:
            self._closed = True
            self._condition.notify_all()
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self.contention.width = 1
        if self._waits is not None:
            self._waits.close()

    def __enter__(self) -> Team:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
