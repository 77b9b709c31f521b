"""Files in a job's folder by which server and worker agree about an attempt.

docs/service.md lists the files. The server alone writes commands (``control.json``) and lent workers
(``workers.json``); the process that runs the job holds ``run.lock`` and writes the others, the
outcome last, when all files it names are on the disk.

So the files are valid whichever process dies (worker, scheduler, server): an existing outcome
counts, and a free lock without an outcome means that the attempt was lost.
A new attempt changes ``control.json`` first, which stops the worker of an older attempt even if
no message can reach it.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from bigsap.system import replace
from bigsap_server.files import DELETED, is_locked, read_json, write_json
from bigsap_server.problems import HttpProblem, is_disk_full

#: run; stop and keep the answer so far; exit; stop to be continued; superseded by another attempt.
Command = Literal["run", "graceful", "now", "stop", "fenced"]

#: What a job starts from: prices, and the pairs of a result that has a column for each row.
START_ARRAYS = ("v", "col4row")
STOPPED = "the server was stopped"
_ANY_NUMBER = 1 << 30


class Folder:
    """The folder of one job."""

    def __init__(self, path: Path) -> None:
        self.path, self.lock = path, path / "run.lock"
        self.checkpoint, self.ranking, self.start = (
            path / name for name in ("checkpoint", "ranking", "start")
        )

    def result(self, attempt: int) -> Path:
        return self.path / f"result-{attempt}"

    def unfinished(self, attempt: int) -> Path:
        """Return the folder of files that the attempt is still writing; ``prune`` removes it."""
        return self.path / f"result-{attempt}.tmp"

    def keep_start(self, result: Path | None) -> Path:
        """Store the arrays that the job starts from, once; return their folder.

        result: the arrays of another job, which may be deleted or resumed before this one
        has ended. Of a job with demands there are prices alone. Raises FileNotFoundError when neither
        exists.
        """
        if not self.start.exists():
            if result is None:
                raise FileNotFoundError("there is no result to start from")
            temporary = self.start.with_name("start.tmp")
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            prices, pairs = (f"{name}.npy" for name in START_ARRAYS)
            _linked(result / prices, temporary / prices)
            with suppress(FileNotFoundError):
                _linked(result / pairs, temporary / pairs)
            replace(temporary, self.start)
        return self.start

    def nothing_left(self) -> None:
        """Remove files that only another attempt would need."""
        self.checkpoint.unlink(missing_ok=True)
        self.ranking.unlink(missing_ok=True)
        shutil.rmtree(self.start, ignore_errors=True)

    def command(self, attempt: int, command: Command) -> None:
        file = self.path / "control.json"
        self.path.mkdir(parents=True, exist_ok=True)
        try:
            write_json(file, {"attempt": attempt, "command": command}, durable=False)
        except OSError as error:
            if command not in ("now", "fenced") or not is_disk_full(error):
                raise
            # Without the file the attempt is fenced: it ends, and nothing of it is kept.
            file.unlink(missing_ok=True)

    def commanded(self, attempt: int) -> Command:
        """Return the attempt's command; ``fenced`` when another attempt has replaced it."""
        command: Command = self._told("control.json", attempt).get("command", "fenced")
        return command

    def lend(self, attempt: int, workers: list[str]) -> None:
        """Set the workers that the attempt may use besides its own."""
        write_json(self.path / "workers.json", {"attempt": attempt, "workers": workers}, durable=False)

    def lent(self, attempt: int) -> list[str]:
        """Return the workers that the attempt may use besides its own."""
        return [str(address) for address in self._told("workers.json", attempt).get("workers", ())]

    def _told(self, name: str, attempt: int) -> dict[str, Any]:
        """Return what the server has written for the attempt; empty if nothing."""
        found: dict[str, Any] = read_json(self.path / name) or {}
        return found if found.get("attempt") == attempt else {}

    def begin(self, attempt: int, worker: str = "") -> bool:
        """Mark the attempt as begun on a worker; return False when it had begun before."""
        try:
            with (self.path / f"begun-{attempt}").open("x") as file:
                file.write(worker)
        except FileExistsError:
            return False
        return True

    def worker(self, attempt: int) -> str | None:
        """Return the address of the worker that has begun the attempt; None before."""
        with suppress(FileNotFoundError):
            return (self.path / f"begun-{attempt}").read_text() or None
        return None

    def begun(self, attempt: int) -> bool:
        return (self.path / f"begun-{attempt}").exists()

    def locked(self) -> bool:
        return is_locked(self.lock)

    def outcome(self, attempt: int) -> dict[str, Any] | None:
        """Return how the attempt ended; None when it has not."""
        found: dict[str, Any] | None = read_json(self.path / f"outcome-{attempt}.json")
        return found

    def end(self, attempt: int, outcome: dict[str, Any]) -> None:
        write_json(self.path / f"outcome-{attempt}.json", outcome)

    def report(self, attempt: int, progress: dict[str, Any], log: list[str]) -> None:
        """Set the attempt's progress and its log so far."""
        news = {"attempt": attempt, "progress": progress, "log": log}
        write_json(self.path / "progress.json", news, durable=False)

    def reported(self, after: int) -> tuple[int, dict[str, Any] | None]:
        """Return the time of the latest report, and the report if it is not that of ``after``."""
        file = self.path / "progress.json"
        with suppress(FileNotFoundError):
            time = file.stat().st_mtime_ns
            return time, None if time == after else read_json(file)
        return 0, None

    def prune(self, attempt: int, result_of: int | None) -> None:
        """Remove files of attempts before ``attempt``, but not the result of ``result_of``."""
        for entry in self.path.glob("*-*"):
            kind, _, number = entry.name.removesuffix(".json").removesuffix(".tmp").partition("-")
            if not number.isdigit() or int(number) > attempt:
                continue
            if kind == "result" and (int(number) != result_of or entry.suffix == ".tmp"):
                shutil.rmtree(entry, ignore_errors=True)
            elif kind in ("begun", "outcome") and int(number) < attempt:
                entry.unlink(missing_ok=True)


def _linked(file: Path, link: Path) -> None:
    """Let ``link`` be the same file, which is never modified. Raises FileNotFoundError."""
    try:
        os.link(file, link)
    except FileNotFoundError:
        raise
    except OSError:  # a file system without hard links
        shutil.copyfile(file, link)


@dataclass(frozen=True)
class Order:
    """An attempt to run.

    spec: a normalised request. settings: the server's, as JSON, with ``threads`` (of this
    job), ``time_left`` (seconds or None: the limit of the spec), ``warm_folder`` (of the job
    to start from, or None) and ``own_process`` (whether ``now`` may kill its process).
    """

    job_id: str
    attempt: int
    folder: Folder
    spec: dict[str, Any] = field(repr=False)
    settings: dict[str, Any] = field(repr=False)

    @property
    def key(self) -> tuple[str, int]:
        return self.job_id, self.attempt

    @property
    def spread(self) -> int:
        """Most workers that the attempt may use: 1 if it is not spread."""
        asked = self.spec.get("spread", False)
        return _ANY_NUMBER if asked is True else max(1, int(asked))


def interrupted(slug: str, detail: str) -> dict[str, Any]:
    """Return the outcome of an attempt that did not end by itself."""
    return {"state": "interrupted", "slug": slug, "problem": HttpProblem(slug, detail).document()}


def sweep(jobs: Path, known: set[str]) -> None:
    """Complete or undo deletions of jobs' folders that a crash interrupted."""
    for folder in jobs.glob(f"{DELETED}*"):
        job_id = folder.name.removeprefix(DELETED)
        if job_id in known:
            replace(folder, jobs / job_id)
        else:
            shutil.rmtree(folder, ignore_errors=True)
