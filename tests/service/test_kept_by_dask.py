"""What Dask keeps of jobs that are over: its logs must not grow with them."""

from __future__ import annotations

import gc
import queue
from pathlib import Path

import dask
import pytest
from bigsap_server.jobs.control import Folder
from bigsap_server.jobs.dask_executor import _KEEP_LITTLE, DaskExecutor
from bigsap_server.jobs.executor import Order, Report
from distributed.protocol.serialize import ToPickle
from distributed.system_monitor import SystemMonitor

JOBS = 20


@pytest.mark.slow
def test_requests_of_jobs_that_are_over_are_let_go(tmp_path: Path) -> None:
    """A message with a request is kept by who sent it and by who received it, twice."""
    reports: queue.SimpleQueue[Report] = queue.SimpleQueue()
    executor = DaskExecutor(workers=1, scratch=tmp_path / "scratch")
    executor.subscribe(reports.put)
    with dask.config.set({name: dask.config.get(name) for name in _KEEP_LITTLE}):
        executor.start()
        try:
            for number in range(JOBS):
                folder = tmp_path / f"job_{number}"
                folder.mkdir()
                Folder(folder).command(1, "fenced")  # over as soon as it has begun
                executor.submit(Order(folder.name, 1, folder, {"numbers": [0.5] * 1000}, {}))
                reports.get(timeout=200)  # over; or lost, where its outcome came too slowly
            gc.collect()
            kept = [one for one in gc.get_objects() if type(one) is ToPickle]
            monitors = [one for one in gc.get_objects() if type(one) is SystemMonitor]
        finally:
            executor.close()
    # Of the last job: from the client, to the scheduler, to the worker; three parts each.
    assert len(kept) < 12
    assert monitors
    assert max(monitor.maxlen for monitor in monitors) == 10
