"""What the fault tests share: watching jobs from outside, and a Dask cluster of an operator's."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import psutil
from bigsap_server.files import is_locked

from gate import HANG_S, PLUGINS
from live_server import free_port

ARRAYS = ("col4row", "row4col", "u", "v")


def stores(costs):
    return f'{{"costs": "{costs}"}}'


def post(client, body, **headers):
    answer = client.post("/v1/jobs", json=body, headers=headers)
    assert answer.status_code == 202, answer.text
    return answer.json()["id"]


def job_of(client, job_id):
    answer = client.get(f"/v1/jobs/{job_id}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def same(client, job_id, expected):
    """Whether all arrays of the job's result are those expected, bit for bit."""
    for name in ARRAYS:
        answer = client.get(f"/v1/jobs/{job_id}/result/{name}", headers={"Accept": "application/x-npy"})
        assert answer.status_code == 200, answer.text
        path = Path(os.environ.get("TMPDIR", "/tmp")) / f"{job_id}-{name}.npy"
        path.write_bytes(answer.content)
        np.testing.assert_array_equal(np.load(path), getattr(expected, name))
        path.unlink()
    return True


def runner(server, job_id):
    """The process that runs the job, by the lock it holds; ProcessLookupError where none does."""
    folder = server.data / "jobs" / job_id
    held_by = folder / "run.pid"
    if is_locked(folder / "run.lock") and held_by.exists():
        return int(held_by.read_text())
    # What it names has ended, and its number may be another process's by now.
    raise ProcessLookupError(job_id)


def states(client, job_id):
    """All states of a job that was told of, page by page: many attempts fill more than one."""
    found, after = [], 0
    while True:
        answer = client.get(
            f"/v1/jobs/{job_id}/events", params={"after": after}, headers={"Accept": "application/json"}
        )
        assert answer.status_code == 200, answer.text
        if not (events := answer.json()["events"]):
            return found
        after = answer.json()["next"]
        found += [(e["data"]["state"], e["data"]["attempt"]) for e in events if e["kind"] == "state"]


class Cluster:
    """A scheduler and a worker that an operator has started."""

    def __init__(self, folder):
        self.port = free_port()
        self.folder = folder
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.processes = []

    def _start(self, *command):
        with (self.folder / "dask.log").open("ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-m", "distributed.cli.dask_" + command[0], *command[1:]],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=os.environ | {"PYTHONPATH": str(PLUGINS)},
            )
        self.processes.append(process)
        return process

    def start_scheduler(self):
        return self._start("scheduler", "--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard")

    def start_worker(self):
        return self._start(
            "worker",
            self.address,
            "--nthreads",
            "1",
            "--memory-limit",
            "0",
            "--no-dashboard",
            "--host",
            "127.0.0.1",
        )

    def close(self):
        for process in self.processes:
            family = []
            if process.poll() is None:
                family = psutil.Process(process.pid).children(recursive=True)
                process.kill()
            process.wait(HANG_S)
            for child in family:
                if child.is_running():
                    child.kill()
