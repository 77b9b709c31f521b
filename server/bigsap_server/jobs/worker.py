"""Execution of one attempt of a job, in the worker process.

The attempt writes its outcome to a file and returns it as well. It never raises for
errors of the job: a failing source or an infeasible problem is an outcome like others.
"""

from __future__ import annotations

import contextvars
import logging
import os
import shutil
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psutil

import bigsap
from bigsap.memory import usable_memory
from bigsap.summary import RANKING_ARRAYS, arrays_of, jsonable, summary_of, with_ranking
from bigsap.system import replace
from bigsap_server import logs
from bigsap_server.costs.limits import limit_process
from bigsap_server.costs.objects import put_result
from bigsap_server.files import FileLock
from bigsap_server.jobs.control import START_ARRAYS, STOPPED, Command, Order, interrupted
from bigsap_server.jobs.eta import Pace
from bigsap_server.jobs.proving import proved
from bigsap_server.problems import HttpProblem, from_error, is_disk_full, without_paths
from bigsap_server.settings import GIB

_log = logging.getLogger("bigsap_server.worker")

# Seconds between checks for commands: a cancelled solve returns within a second of the command.
_LOOK_S = 0.2
# Seconds that an older attempt's process gets to end after the command to stop.
_LOCK_S = 30.0

# Errors of sources that would recur; a remote provider may recover.
_NO_USE_AGAIN = (bigsap.CallbackError, bigsap.StoreError)
# The same for errors that open stores at an address: the store is missing, or is something else.
_NO_STORE_THERE = (FileNotFoundError, PermissionError, ImportError, TypeError, ValueError)
_PASSING_STATUS = (408, 425, 429)

# What ends a ranking.
_STOPPED = {
    bigsap.Status.CANCELLED: "the job was cancelled",
    bigsap.Status.TIME_LIMIT: "the time limit ended the ranking",
}

# Attempts under way in this process. The process must not be killed while another one runs.
_present: set[str] = set()


def dask_setup(worker: Any) -> None:
    """Set up signals in worker processes that the server starts. Called by Dask.

    Ctrl-C reaches every process of a terminal, but the server alone decides when and how workers stop.
    """
    logs.configure("info")
    if sys.platform == "win32":
        psutil.Process().nice(psutil.BELOW_NORMAL_PRIORITY_CLASS)
    else:
        psutil.Process().nice(5)
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.SIG_IGN)


def run_job(order: Order, worker: str = "", cluster: Any = None) -> dict[str, Any]:
    """Run an attempt and return its outcome.

    worker: the address of this process, if it has one. cluster: that of ``bigsap.solve``, for a job
    that is spread.

    The outcome has ``state``: succeeded, failed, cancelled, interrupted, or ``stale`` when this
    attempt must not run (any more); and ``result``, ``problem`` or neither.
    """
    settings = order.settings
    alone = bool(settings.get("own_process"))
    if alone:
        logs.set_level(settings.get("log_level") or "info")
        # By default no less than the setting may be: code and libraries alone take some hundred MB.
        limit_process(DATA=settings.get("worker_memory_bytes") or max(usable_memory(), GIB))
    try:
        with logs.about(alone, job=order.job_id, attempt=order.attempt):
            return _run_job(order, worker, cluster)
    except OSError as error:
        if not is_disk_full(error):
            raise
        return interrupted("disk-full", "the disk is full")


def _run_job(order: Order, worker: str, cluster: Any) -> dict[str, Any]:
    place, attempt = order.folder, order.attempt
    if place.commanded(attempt) == "fenced":
        return {"state": "stale"}
    if not place.begin(attempt, worker):
        # The scheduler ran the attempt again by itself, but the server counts lost attempts.
        return interrupted("worker-lost", "the worker was lost")
    lock = FileLock(place.lock)
    until = time.monotonic() + _LOCK_S
    while not lock.take():
        if place.commanded(attempt) == "fenced":
            return {"state": "stale"}
        if time.monotonic() > until:
            return interrupted("worker-lost", "another worker still holds the job")
        time.sleep(_LOOK_S / 2)
    try:
        outcome = Attempt(order, cluster).run()
        place.end(attempt, outcome)
        return outcome
    finally:
        lock.release()


class Attempt:
    """One attempt under way: the solve on this thread, a watcher on another."""

    def __init__(self, order: Order, cluster: Any = None) -> None:
        self.folder, self.spec = order.folder, order.spec
        self.attempt, self.settings = order.attempt, order.settings
        self._cluster = cluster
        self._log: list[str] = []
        self._reporting = threading.Lock()
        self._cancel = threading.Event()
        self._over = threading.Event()
        self._command: Command = "run"
        self._pace = Pace()
        self._ranking: bigsap.Assignments | None = None
        self._unranked = False  # cancelled before the ranking ended
        self._began = 0.0

    def run(self) -> dict[str, Any]:
        """Solve and write the result; return the outcome."""
        name = str(self.folder.path)
        look = contextvars.copy_context().run
        watcher = threading.Thread(target=look, args=(self._watch,), name="bigsap-watch", daemon=True)
        _present.add(name)
        watcher.start()
        try:
            result = self._solve()
            self._note_cluster(result.stats.get("cluster"))
            return self._outcome(result)
        except Exception as error:  # noqa: BLE001 - a job must not take its worker along
            return self._failure(error)
        finally:
            self._over.set()
            watcher.join()
            _present.discard(name)

    # The solve

    def _solve(self) -> bigsap.Result:
        # Imported here, so that a server that never runs a job in its own process starts faster.
        from bigsap_server.costs.build import Resolver, build_source
        from bigsap_server.costs.validate import check_opened

        settings, options = self.settings, {"dtype": None, **self.spec["options"]}
        resolver = Resolver(Path(settings["data"]), settings)
        source = build_source(self.spec, settings["data"], settings)
        if self.spec["shape"] is None:
            request = {"assignment": None, "k_best": None, "spread": False, **self.spec}
            check_opened(request, source, resolver, settings.get("threads") or 1)
        for name in ("unassigned_cost", "capacity", "demand"):
            options[name] = resolver.value(options[name], f"/options/{name}")
        limit, every = options.pop("time_limit_s"), options.pop("checkpoint_s")
        given: dict[str, Any] = options | {
            "certify": "pairs" if options["certify"] == "pairs" else True,
            "threads": options["threads"] or settings.get("threads"),
            "time_limit": settings.get("time_left") or limit,
            "warm_start": self._warm_start(resolver),
            "checkpoint": self.folder.checkpoint,
            "checkpoint_every": every or settings["checkpoint_s"],
            "callback": self._pace.see,
            "cancel": self._cancel,
        }
        self._began = time.monotonic()
        solved = partial(self._solved, source, given)
        asked = self.spec.get("assignment")
        result = solved() if asked is None else proved(asked, source, given, resolver, solved)
        if self.spec.get("k_best") is not None:
            self._rank(result, source, given)
        return result

    def _limited(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return options with the time limit that is left of the attempt's, for what begins later."""
        if (limit := given["time_limit"]) is None:
            return given
        return given | {"time_limit": max(0.0, limit - (time.monotonic() - self._began))}

    def _solved(self, source: bigsap.CostSource, given: dict[str, Any]) -> bigsap.Result:
        """Solve, or continue from the checkpoint."""
        separable = getattr(source, "separable", None)
        bounds = separable is not None and separable() is not None
        self._pace.proof_reads_all = not bounds or given["certify"] == "pairs"
        if self._cluster is not None:
            given |= {"device": "cpu", "cluster": self._cluster}
        if self.folder.checkpoint.exists():
            try:
                return bigsap.resume(self.folder.checkpoint, source, **given)
            except bigsap.CheckpointError as error:
                # The costs have changed, or another version wrote the checkpoint: it is not valid for this
                # problem.
                message = without_paths(f"starting anew: {error}", self.settings)
                self._note(message)
                self.folder.checkpoint.unlink(missing_ok=True)
                given = self._limited(given)
        return bigsap.solve(source, **given)

    def _rank(self, result: bigsap.Result, source: bigsap.CostSource, given: dict[str, Any]) -> None:
        """Rank the best assignments of a solve that was not stopped, in the time that is left."""
        from bigsap_server.jobs.ranking import ranked

        k, progress, checkpoint = self.spec["k_best"], self._pace.last, self.folder.ranking
        rank = partial(ranked, result, source, k, progress=progress, settings=self.settings)
        try:
            found = rank(self._limited(given), checkpoint=checkpoint)
        except bigsap.CheckpointError as error:  # costs without a fingerprint that are others now
            self._note(without_paths(f"ranking anew: {error}", self.settings))
            checkpoint.unlink(missing_ok=True)
            found = rank(self._limited(given), checkpoint=checkpoint)
        if len(found) or found.complete:
            self._ranking = found
        self._unranked = found.status == bigsap.Status.CANCELLED
        if found.status in _STOPPED:
            count = f"{len(found)} of {k}" if len(found) else "no"
            solved = result.status not in _STOPPED
            why = _STOPPED[found.status] if solved else f"the solve was stopped ({result.status})"
            self._note(f"{count} assignments are ranked: {why}")

    def _note_cluster(self, stats: dict[str, Any] | None) -> None:
        """Write to the job's log whether the use of workers paid."""
        if stats is None:
            return
        if not stats["rows"]:
            message = "spreading did not help: the costs were computed where the search ran"
        elif stats["paid"]:
            message = f"spread over workers, rows came {stats['faster']:.1f} times faster"
        else:
            message = "spreading did not pay: rows took longer to come than to be evaluated"
        self._note(message)

    def _warm_start(self, resolver: Any) -> Any:
        given = self.spec["warm_start"]
        if given is None:
            return None
        if given["job"] is None:
            prices = resolver.array(given["v"], "/warm_start/v")
            if given["col4row"] is None:
                return prices
            return prices, resolver.array(given["col4row"], "/warm_start/col4row")
        result = self.settings.get("warm_folder")
        try:
            folder = self.folder.keep_start(None if result is None else Path(result))
            return _start_in(folder)
        except FileNotFoundError:
            if self.folder.checkpoint.exists():  # which has prices of its own
                self._note("going on without the job that this started from")
                return None
            raise HttpProblem(
                "invalid-spec", "the job to start from has no result (any more)", pointer="/warm_start/job"
            ) from None

    # The outcome

    def _outcome(self, result: bigsap.Result) -> dict[str, Any]:
        command = self._command
        cancelled = result.status == bigsap.Status.CANCELLED or self._unranked
        if cancelled:
            if command == "fenced":
                return {"state": "stale"}
            if command == "stop":
                return interrupted("server-stopped", STOPPED)
            if command == "now":
                return {"state": "cancelled"}
        state = "cancelled" if cancelled else "succeeded"
        self._write_arrays(result)
        summary = summary_of(result, self.attempt) | {"k_best": None}
        in_file = {"arrays": summary["arrays"]}  # a result's file has none of the ranking
        if (ranking := self._ranking) is not None:
            found = ranking.costs, ranking.col4row
            summary = with_ranking(summary, *found, complete=ranking.complete, status=ranking.status)
        if (uri := self.spec.get("results")) is not None:
            summary["stored"] = put_result(
                result,
                summary | in_file,
                uri,
                self.folder.path.name,
                self.folder.unfinished(self.attempt),
                self.settings,
                lambda: self._command not in ("run", "stop"),
            )
            if self._command == "fenced":  # the next attempt writes it
                return {"state": "stale"}
            if "problem" in summary["stored"]:
                self._note(f"the result could not be written to {uri}")
        return {"state": state, "result": summary}

    def _write_arrays(self, result: bigsap.Result) -> None:
        target, temporary = self.folder.result(self.attempt), self.folder.unfinished(self.attempt)
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir()
        try:
            arrays = arrays_of(result)
            if (ranking := self._ranking) is not None:
                arrays |= zip(RANKING_ARRAYS, (ranking.costs, ranking.col4row), strict=True)
            for name, array in arrays.items():
                with (temporary / f"{name}.npy").open("wb") as file:
                    np.save(file, array, allow_pickle=False)
                    file.flush()
                    os.fsync(file.fileno())
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
        replace(temporary, target)

    def _failure(self, error: BaseException) -> dict[str, Any]:
        if is_disk_full(error):
            where = getattr(error, "filename", None)
            what = "a checkpoint" if where == os.fspath(self.folder.checkpoint) else "a file"
            return interrupted("disk-full", f"the disk is full: {what} cannot be written")
        if self._command == "fenced":
            return {"state": "stale"}
        if isinstance(error, bigsap.ClusterError):
            return interrupted("worker-lost", without_paths(str(error), self.settings))
        if isinstance(error, bigsap.CertificateError) and self._cancel.is_set():
            stopped = self._command == "stop"
            return interrupted("server-stopped", STOPPED) if stopped else {"state": "cancelled"}
        problem = from_error(error, settings=self.settings)
        cause = error.__cause__ if isinstance(error, HttpProblem) else error
        if problem.slug == "source-failed" and may_pass(cause):
            return {"state": "interrupted", "slug": problem.slug, "problem": problem.document()}
        if problem.slug == "solve-failed":
            _log.exception("attempt %s of %s failed", self.attempt, self.folder.path.name)
        return {"state": "failed", "problem": problem.document()}

    # The watcher

    def _watch(self) -> None:
        """Obey commands and report progress, also while the solve is busy."""
        every = float(self.settings.get("heartbeat_s") or 0.8)
        # Slightly early, because "at least once a second" is measured at the end of the stream.
        due = time.monotonic() + 0.8 * every
        while not self._over.wait(_LOOK_S):
            try:
                self._obey(self.folder.commanded(self.attempt))
                if time.monotonic() >= due:
                    due = time.monotonic() + 0.8 * every
                    self._report()
            except OSError as error:
                _log.warning("%s: %s", self.folder.path.name, error)
        # The final report, which for short solves is the only one.
        self._report()

    def _obey(self, command: Command) -> None:
        self._command = command
        if command == "run":
            return
        self._cancel.set()
        if command == "now" and self.settings.get("own_process") and len(_present) == 1:
            psutil.Process().kill()

    def _note(self, message: str) -> None:
        self._log.append(message)
        self._report()

    def _report(self) -> None:
        try:
            with self._reporting:
                self.folder.report(self.attempt, jsonable(self._pace.report()), self._log)
        except OSError as error:
            # A full disk: the solve notices it if it has to write.
            _log.warning("%s: %s", self.folder.path.name, error)


def _start_in(folder: Path) -> Any:
    """Return prices, with pairs if each row has a column of its own there. Raises FileNotFoundError."""
    v, pairs = (folder / f"{name}.npy" for name in START_ARRAYS)
    prices = np.load(v, allow_pickle=False)
    if not pairs.exists():
        return prices
    col4row = np.load(pairs, allow_pickle=False)
    # A column of a job with capacities may take several rows: its prices are a start of any job.
    return prices if np.bincount(col4row + 1)[1:].max(initial=0) > 1 else (prices, col4row)


def may_pass(cause: BaseException | None) -> bool:
    """Return whether a source that failed for this reason may succeed at the next attempt."""
    if isinstance(cause, bigsap.BigsapError):
        return not isinstance(cause, _NO_USE_AGAIN)
    status = getattr(cause, "status", None)  # of an HTTP answer, if the source uses HTTP
    if isinstance(status, int):
        return not 300 <= status < 500 or status in _PASSING_STATUS
    return not isinstance(cause, _NO_STORE_THERE)
