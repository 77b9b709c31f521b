"""Supervisor: assigns queued jobs to workers and records in the job table what becomes of them.

One thread, so that decisions about a job are sequential. Executors report the end of an attempt
quickly, but the files in a job's folder (``control``) are authoritative, and progress comes by them
alone. If nothing is known about an attempt's
worker (server restarted, scheduler gone), its files decide: an outcome is recorded, a held lock
means that it still runs and is watched, and a free lock that it was lost.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from bigsap_server.auth import Keys
from bigsap_server.jobs.control import STOPPED, Command, Folder, Order, interrupted
from bigsap_server.jobs.executor import Executor, InlineExecutor, Report
from bigsap_server.jobs.model import JobRow, StaleAttempt, StoreUnavailable, UnderWay, UnknownJob, settled
from bigsap_server.jobs.store import JobStore
from bigsap_server.problems import is_disk_full, without_paths
from bigsap_server.settings import Settings

_log = logging.getLogger("bigsap_server.supervisor")

_TICK_S = 0.2
# Seconds without a report after which the files are read.
_SILENCE_S = 2.0
# Seconds in which a worker must exit after the command to do so.
_PATIENCE_S = 5.0
# Pause before a lost attempt is tried again, times the failures in a row; the first retry is immediate,
# except after a full disk, which takes a while to change.
_BACKOFF_S = 2.0
_DISK_BACKOFF_S = 3.0


@dataclass
class _Watch:
    """An attempt that is, or may be, under way.

    begun_here: False for an attempt ordered by a former server. lost: when and why the executor lost
    contact with it. outcome: known, not yet recorded. read: time of the progress file last read, and
    the lines of its log; looked: when the outcome's file was last looked for. seen: when a former server
    last recorded something of it; None: it went on after that.
    """

    order: Order
    begun_here: bool = True
    lost: float | None = None
    why: str = "the worker was lost"
    outcome: dict[str, Any] | None = None
    command: Command = "run"
    commanded_at: float = 0.0
    read: int = 0
    lines: int | None = 0
    looked: float = field(default_factory=time.monotonic)
    seen: float | None = None

    @property
    def folder(self) -> Folder:
        return self.order.folder

    def lose(self, why: str) -> None:
        self.lost, self.why = time.monotonic(), why


def make_executor(settings: Settings) -> Executor:
    """Return the executor that the settings specify, not yet started."""
    if settings.executor == "inline":
        return InlineExecutor(settings.default_workers)
    from bigsap_server.jobs.dask_executor import DaskExecutor

    return DaskExecutor(settings.scheduler, settings.default_workers, settings.data / "scratch")


class Supervisor:
    """Runs the jobs of ``store`` on ``executor`` until stopped.

    settings: the service's. If a job loses its worker, its source fails or the disk is full,
    ``settings.attempts`` attempts in a row are made, each from the last
    checkpoint; then it has failed. ``start`` returns at once; ``ready`` tells when
    there are workers. keys: of the service, for how many jobs of each may run at a time.

    ``stop`` lets running jobs write a checkpoint, to be continued by the
    next start, closes the executor, and may take ``settings.drain_s`` and some seconds.
    """

    def __init__(
        self, store: JobStore, executor: Executor, settings: Settings, keys: Keys | None = None
    ) -> None:
        self._store, self._executor = store, executor
        self._keys = keys or Keys(None, settings.limits)
        self.reload(settings)
        self._reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
        self._wake = threading.Event()
        self._stopping = threading.Event()
        self._watches: dict[str, _Watch] = {}
        self._thread = threading.Thread(target=self._run, name="bigsap-supervisor", daemon=True)
        self._started = False

    def start(self) -> None:
        self._store.on_change(self._changed)
        self._thread.start()

    def reload(self, settings: Settings) -> None:
        """Take other settings for the next attempts."""
        self._settings = settings
        self._names = {"stores": settings.stores, "data": settings.data}

    def stop(self) -> None:
        """Stop gracefully and wait for it. Harmless twice, and when never started."""
        self._stopping.set()
        self._wake.set()
        if self._thread.ident is not None:
            self._thread.join()

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def ready(self) -> bool:
        """Whether jobs submitted now would get a worker, sooner or later."""
        return self.alive and self._started and self._executor.ready()

    def held(self) -> int:
        """Return how many queued jobs wait for the limit of running jobs of their key."""
        return self._store.held(self._keys.running_jobs)

    def workers(self) -> dict[str, int]:
        """Return the numbers of the cluster's workers by activity, see ``Executor``."""
        return self._executor.workers()

    def memory(self) -> dict[str, int]:
        """Return the bytes of memory of each of our own workers, see ``Executor``."""
        return self._executor.memory()

    # The loop

    def _receive(self, report: Report) -> None:
        self._reports.put(report)
        self._wake.set()

    def _changed(self, job_id: str, job: JobRow | None) -> None:
        # The supervisor's own writes need no wake-up.
        if threading.get_ident() != self._thread.ident:
            self._wake.set()

    def _run(self) -> None:
        try:
            for job in self._store.running():
                watch = self._watches[job.id] = self._watch_of(job)
                watch.seen = self._store.last_event(job.id)
            while not self._stopping.is_set():
                self._safely(self.tick)
                self._wake.wait(_TICK_S)
                self._wake.clear()
            self._drain()
        finally:
            self._executor.close()

    def _safely(self, step: Callable[..., None], *args: Any) -> None:
        """Run one step; an error in it must not end the service of all jobs."""
        try:
            step(*args)
        except (StoreUnavailable, OSError) as error:
            _log.error("%s", error)
            self._stopping.wait(1.0)
        except Exception:  # noqa: BLE001 - logged; the step is tried again
            _log.exception("the supervisor goes on after an error")
            self._stopping.wait(1.0)

    def tick(self) -> None:
        """Do once what is repeated several times a second."""
        if not self._started:
            try:
                self._executor.start(self._receive)
                self._started = True
            except OSError as error:
                _log.warning("workers cannot be reached: %s", error)
                self._stopping.wait(1.0)
        if self._started:
            self._executor.poll()
        self._follow()
        if self._started:
            self._claim()

    def _follow(self) -> None:
        """Handle reports, commands and files of all attempts under way."""
        with suppress(queue.Empty):
            while True:
                report = self._reports.get_nowait()
                reported = self._watches.get(report.job_id)
                if reported is None or reported.order.attempt != report.attempt:
                    continue
                if report.outcome is not None:
                    reported.outcome = report.outcome
                else:
                    reported.lose(without_paths(report.why, self._names))
        jobs = {job.id: job for job in self._store.under_way()}
        for job_id in jobs.keys() - self._watches.keys():
            self._safely(self._give_up, job_id)
        for job_id, watch in list(self._watches.items()):
            job = jobs.get(job_id)
            if job is None or job.attempt != watch.order.attempt:
                del self._watches[job_id]
            else:
                self._safely(self._poll, job, watch)

    def _drain(self) -> None:
        """Stop all attempts so that they can be continued."""
        until = time.monotonic() + self._settings.drain_s
        for watch in self._watches.values():
            if watch.command == "run":
                self._safely(self._send_command, watch, "stop")
        while self._watches and time.monotonic() < until:
            self._safely(self._follow)
            self._wake.wait(0.05)
            self._wake.clear()
        for watch in self._watches.values():
            self._send_command(watch, "fenced")
            watch.lose(STOPPED)
        # Ends our own worker processes; attempts on other workers stop at the fence.
        self._executor.close()
        until = time.monotonic() + _PATIENCE_S
        while self._watches and time.monotonic() < until:
            self._safely(self._follow)
            time.sleep(0.05)

    # One attempt

    def _claim(self) -> None:
        while not self._stopping.is_set() and self._executor.free() > 0:
            job = self._store.claim(self._keys.running_jobs)
            if job is None:
                return
            watch = self._watches[job.id] = self._watch_of(job)
            watch.begun_here, watch.lost, watch.lines = True, None, 0
            try:
                self._send_command(watch, "run")
                result_of = None if job.result is None else job.result["attempt"]
                watch.folder.prune(job.attempt - 1, result_of)
                self._executor.submit(watch.order)
            except Exception as error:  # noqa: BLE001 - any executor, any error
                _log.warning("%s cannot be submitted: %s", job.id, error)
                if is_disk_full(error):
                    slug, detail = "disk-full", "the disk is full"
                else:
                    why = without_paths(str(error), self._names)
                    slug, detail = "worker-lost", f"no worker could be given the job: {why}"
                watch.outcome = interrupted(slug, detail)

    def _give_up(self, job_id: str) -> None:
        """Count as lost an attempt that an error kept from being ordered after it was claimed."""
        watch = self._watches[job_id] = self._watch_of(self._store.get(job_id))
        watch.begun_here = True
        watch.lose("the worker was lost")

    def _watch_of(self, job: JobRow) -> _Watch:
        """Return a watch of an attempt that may be under way; ``lost`` until there is a report."""
        order = Order(
            job.id, job.attempt, Folder(self._store.folder(job.id)), job.spec, self._job_settings(job)
        )
        now = time.monotonic()
        return _Watch(order, begun_here=False, lost=now, why="the server was restarted", lines=None)

    def _job_settings(self, job: JobRow) -> dict[str, Any]:
        settings = self._settings.model_dump(mode="json")
        limit = (job.spec.get("options") or {}).get("time_limit_s")
        # Attempts share the job's time. Even if none is left, an attempt returns a result.
        left = None if limit is None else max(0.05, limit - job.spent)
        warm = (job.spec.get("warm_start") or {}).get("job")
        warm_folder = None
        if warm is not None:
            with suppress(UnknownJob):
                # The owner's permission was checked when the job was submitted.
                other = self._store.get(warm)
                if other.result is not None:
                    warm_folder = str(self._store.result_file(other, "v").parent)
        return settings | {
            "data": str(self._store.data.absolute()),
            "threads": self._settings.default_threads,
            "time_left": left,
            "warm_folder": warm_folder,
            "own_process": self._executor.own_process,
        }

    def _poll(self, job: UnderWay, watch: _Watch) -> None:
        now, folder, attempt = time.monotonic(), watch.folder, watch.order.attempt
        self._read(job, watch)
        if watch.outcome is None and (watch.lost is not None or now - watch.looked > _SILENCE_S):
            watch.looked, watch.outcome = now, folder.outcome(attempt)
        # A full disk may keep the command from its file, but not an end from being recorded.
        if watch.outcome is None and job.state == "cancelling":
            self._cancel(watch, "now" if job.cancel == "now" else "graceful")
        if watch.outcome is None and watch.lost is not None:
            if not folder.locked() and watch.command != "fenced":
                # Set the fence first and check the lock again: an order that is still on its way to a
                # worker must not begin once it is recorded as lost.
                self._send_command(watch, "fenced")
            if folder.locked():
                watch.seen = None
                return
            here = watch.begun_here and watch.why != STOPPED
            lost = interrupted("worker-lost" if here else "server-stopped", watch.why)
            watch.outcome = folder.outcome(attempt) or lost
        if watch.outcome is not None:
            self._finish(job, watch, watch.outcome)

    def _read(self, job: UnderWay, watch: _Watch) -> None:
        """Record what the worker has reported since the last look."""
        time_, report = watch.folder.reported(watch.read)
        if report is not None and report["attempt"] == watch.order.attempt:
            watch.read = time_
            lines = report["log"]
            for line in lines[watch.lines :] if watch.lines is not None else ():
                self._update(watch, log=line)
            watch.lines = len(lines)
            self._update(watch, state="running", progress=report["progress"])
        elif job.state == "starting" and watch.folder.begun(watch.order.attempt):
            self._update(watch, state="running")

    def _cancel(self, watch: _Watch, mode: Command) -> None:
        now = time.monotonic()
        if watch.command not in (mode, "now", "fenced"):
            self._send_command(watch, mode)
            if not watch.folder.begun(watch.order.attempt):
                # No worker has started it. A worker that starts now is stopped by the fence.
                self._executor.kill(watch.order)
        elif mode == "now" and watch.lost is None and now - watch.commanded_at > _PATIENCE_S:
            watch.commanded_at = now
            self._executor.kill(watch.order)

    def _send_command(self, watch: _Watch, command: Command) -> None:
        watch.folder.command(watch.order.attempt, command)
        watch.command, watch.commanded_at = command, time.monotonic()

    # The table

    def _finish(self, job: UnderWay, watch: _Watch, outcome: dict[str, Any]) -> None:
        """Record how the attempt ended, and the job's next state."""
        if outcome["state"] == "stale":
            outcome = interrupted("worker-lost", "the attempt was stopped by another one")
        state, slug, result = outcome["state"], outcome.get("slug"), outcome.get("result")
        problem: Any = outcome.get("problem")
        failures, retry_at = 0, None
        if state == "interrupted" and job.state == "cancelling":
            state, problem = "cancelled", None
        if state == "interrupted" and slug == "server-stopped":
            failures, retry_at = job.failures, time.time()
        elif state == "interrupted":
            failures = job.failures + 1
            if failures < self._settings.attempts:
                full = slug == "disk-full"
                pause = _DISK_BACKOFF_S * failures if full else _BACKOFF_S * (failures - 1)
                retry_at = time.time() + pause
            else:
                # An interrupted job is retried automatically; this one is not.
                times = f", {failures} times in a row" if failures > 1 else ""
                state, problem = "failed", {**problem, "detail": f"{problem['detail']}{times}"}
        ended: Any = {"retry_at": retry_at, "failures": failures, "until": watch.seen}
        self._update(watch, state=state, result=result, problem=problem, **ended)
        self._watches.pop(job.id, None)
        _log.info("job %s attempt %s: %s", job.id, job.attempt, state, extra={"job": job.id})
        if state in ("succeeded", "cancelled", "failed"):
            watch.folder.prune(job.attempt, job.result_of if result is None else job.attempt)
            if settled(result, watch.order.spec):
                watch.folder.nothing_left()

    def _update(self, watch: _Watch, **news: Any) -> None:
        """Write a report; drop it if its attempt has ended."""
        with suppress(StaleAttempt, UnknownJob):
            self._store.update(watch.order.job_id, attempt=watch.order.attempt, **news)
