"""What the service promises under load: answers for all while a job runs, memory that stays.

How quick the answers are is the machine's, and measured by ``tests/bench/service.py``: 100 ms.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from bench.service import measure_clients, measure_jobs

from gate import PLUGINS, Gate, gated_job

CLIENTS, SECONDS = 200, 12.0
JOBS = 300
# Of the server, over the jobs of the second half; a record of a job has some kilobytes.
GROWTH_MIB = 8.0


@pytest.mark.slow
def test_200_clients_are_served_while_a_job_runs(
    tmp_path: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of them stream; nobody gets an error, and each has looked at the job."""
    paths = [str(PLUGINS), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    job = gated_job(gate)  # it waits until the clients have left
    found = measure_clients(tmp_path, CLIENTS, SECONDS, job, PLUGINS='["gated"]')
    assert found["job_state_at_the_end"] == "running"
    assert (found["clients"], found["streams"]) == (CLIENTS, CLIENTS // 2)
    assert found["errors"] == 0, found["first_errors"]
    assert found["requests"] >= CLIENTS
    assert found["events_received"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["inline", "dask"])
def test_memory_does_not_grow_with_jobs(executor: str, tmp_path: Path) -> None:
    found = measure_jobs(tmp_path, JOBS, executor)
    server = found["server_mib"]
    assert server[-1] - server[len(server) // 2] < GROWTH_MIB, found
    if executor == "dask":
        workers = found["workers_mib"]
        assert workers[-1] - workers[len(workers) // 2] < 2 * GROWTH_MIB, found
