"""How server and worker agree about an attempt: small files in the job's folder.

``control.json``     what the attempt of that number is to do; written by the server only
``begun-N``          attempt N has begun; it may begin once
``run.lock``         held by the process that runs the job, for as long as it lives
``progress.json``    the running attempt's latest report
``workers.json``     whose workers a spread attempt may use besides its own; written by the server
``outcome-N.json``   how attempt N ended; written last, when all it names is on the disk
``result-N/``        the arrays of attempt N
``checkpoint``       where any attempt continues
``start/``           the prices that a job starts from, where another job's result has them

So whatever dies (worker, scheduler, server), what is left tells the truth: an outcome
that is there counts, and a lock that is free with no outcome is an attempt that was lost.
A new attempt changes ``control.json`` first, which stops a worker of an older one that
nobody can reach any more.
"""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bigsap_server.jobs.files import is_locked, read_json, write_json

#: run; stop and keep the answer so far; die; stop to be continued; no longer yours.
Command = Literal["run", "graceful", "now", "stop", "fenced"]

RESULT_ARRAYS = ("col4row", "row4col", "u", "v", "violator")
#: What a result may have besides: low parts of the duals, the prices of leaving rows unassigned.
FURTHER_ARRAYS = ("u_low", "v_low", "unassigned_cost")
START_ARRAYS = ("v", "col4row")


@dataclass(frozen=True)
class Folder:
    """The folder of one job."""

    path: Path

    @property
    def checkpoint(self) -> Path:
        return self.path / "checkpoint"

    @property
    def start(self) -> Path:
        return self.path / "start"

    @property
    def lock(self) -> Path:
        return self.path / "run.lock"

    def result(self, attempt: int) -> Path:
        """Where the arrays of an attempt lie."""
        return self.path / f"result-{attempt}"

    def keep_start(self, result: Path | None) -> Path:
        """Keep what the job starts from, once; where it lies.

        result: the arrays of another job, which may be deleted or solved further before this one
        has ended. Raises FileNotFoundError when neither is there.
        """
        if not self.start.exists():
            if result is None:
                raise FileNotFoundError("there is no result to start from")
            temporary = self.start.with_name("start.tmp")
            shutil.rmtree(temporary, ignore_errors=True)
            temporary.mkdir()
            for name in START_ARRAYS:
                file = f"{name}.npy"
                try:
                    os.link(result / file, temporary / file)  # results are never written again
                except FileNotFoundError:
                    raise
                except OSError:  # a file system without links
                    shutil.copyfile(result / file, temporary / file)
            os.rename(temporary, self.start)
        return self.start

    def nothing_left(self) -> None:
        """Remove what only an attempt to come would need."""
        self.checkpoint.unlink(missing_ok=True)
        shutil.rmtree(self.start, ignore_errors=True)

    def command(self, attempt: int, command: Command) -> None:
        """Tell the attempt what to do."""
        self.path.mkdir(parents=True, exist_ok=True)
        write_json(self.path / "control.json", {"attempt": attempt, "command": command})

    def commanded(self, attempt: int) -> Command:
        """What the attempt is to do; ``fenced`` when another one has taken its place."""
        control = read_json(self.path / "control.json")
        if control is None or control["attempt"] != attempt:
            return "fenced"
        command: Command = control["command"]
        return command

    def lend(self, attempt: int, workers: list[str]) -> None:
        """Let the attempt use these workers, and no others but its own."""
        write_json(self.path / "workers.json", {"attempt": attempt, "workers": workers})

    def lent(self, attempt: int) -> list[str]:
        """The workers that the attempt may use besides its own."""
        found = read_json(self.path / "workers.json")
        if found is None or found["attempt"] != attempt:
            return []
        return [str(address) for address in found["workers"]]

    def begin(self, attempt: int) -> bool:
        """Whether the attempt begins now; False when it has begun before."""
        try:
            (self.path / f"begun-{attempt}").touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def begun(self, attempt: int) -> bool:
        """Whether a worker has taken the attempt up."""
        return (self.path / f"begun-{attempt}").exists()

    def locked(self) -> bool:
        """Whether a process is running the job."""
        return is_locked(self.lock)

    def outcome(self, attempt: int) -> dict[str, Any] | None:
        """How the attempt ended; None when it has not."""
        found: dict[str, Any] | None = read_json(self.path / f"outcome-{attempt}.json")
        return found

    def end(self, attempt: int, outcome: dict[str, Any]) -> None:
        """Record how the attempt ended."""
        write_json(self.path / f"outcome-{attempt}.json", outcome)

    def progress(self) -> dict[str, Any] | None:
        """The latest report: ``{"attempt", "progress"}``."""
        found: dict[str, Any] | None = read_json(self.path / "progress.json")
        return found

    def prune(self, attempt: int, result_of: int | None) -> None:
        """Remove what attempts before ``attempt`` left, but not the result of ``result_of``."""
        for entry in self.path.glob("*-*"):
            kind, _, number = entry.name.removesuffix(".json").removesuffix(".tmp").partition("-")
            if not number.isdigit() or int(number) > attempt:
                continue
            if kind == "result" and (int(number) != result_of or entry.suffix == ".tmp"):
                shutil.rmtree(entry, ignore_errors=True)
            elif kind in ("begun", "outcome") and int(number) < attempt:
                entry.unlink(missing_ok=True)


def aside(folder: Path) -> Path:
    """Where the folder of a job goes while the job is being deleted."""
    return folder.with_name(f".deleted-{folder.name}")


def sweep(jobs: Path, known: set[str]) -> None:
    """Finish or undo the deletions that a crash left half done among the folders of jobs."""
    for folder in jobs.glob(".deleted-*"):
        job_id = folder.name.removeprefix(".deleted-")
        if job_id in known:
            os.replace(folder, jobs / job_id)
        else:
            shutil.rmtree(folder, ignore_errors=True)
