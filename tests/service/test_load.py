"""What the service promises under load: answers for all while a job runs, memory that stays.

How quick the answers are is the machine's, and measured by ``tests/bench/service.py``: 100 ms.
"""

from __future__ import annotations

import gc
import os
import queue
from pathlib import Path

import dask
import pytest
from bench.service import measure_clients, measure_jobs
from bigsap_server.jobs.control import Folder, Order
from bigsap_server.jobs.dask_executor import _KEEP_LITTLE, DaskExecutor
from bigsap_server.jobs.executor import Report
from distributed.protocol.serialize import ToPickle
from distributed.system_monitor import SystemMonitor

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


@pytest.mark.slow
def test_requests_of_jobs_that_are_over_are_let_go(tmp_path: Path) -> None:
    """A message with a request is kept by who sent it and by who received it, twice."""
    reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
    executor = DaskExecutor(workers=1, scratch=tmp_path / "scratch")
    before = [one for one in gc.get_objects() if type(one) in (ToPickle, SystemMonitor)]  # of other tests
    old = set(map(id, before))
    with dask.config.set({name: dask.config.get(name) for name in _KEEP_LITTLE}):
        executor.start(reports.put)
        try:
            for number in range(20):
                folder = tmp_path / f"job_{number}"
                folder.mkdir()
                order = Order(folder.name, 1, Folder(folder), {"numbers": [0.5] * 1000}, {})
                order.folder.command(1, "fenced")  # over as soon as it has begun
                executor.submit(order)
                reports.get(timeout=200)  # over; or lost, where its outcome came too slowly
            gc.collect()
            new = [one for one in gc.get_objects() if id(one) not in old]
            kept = [one for one in new if type(one) is ToPickle]
            monitors = [one for one in new if type(one) is SystemMonitor]
        finally:
            executor.close()
    # Of the last job: from the client, to the scheduler, to the worker; three parts each.
    assert len(kept) < 12
    assert monitors
    assert max(monitor.maxlen for monitor in monitors) == 10
