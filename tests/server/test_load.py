"""What the service promises under load: quick answers while a job runs, memory that stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.service import measure_clients, measure_jobs

pytestmark = pytest.mark.timed

# Promised are 100 ms, which ``tests/bench/service.py`` measures; machines differ by more than that
# bound has room for. Five times as long is a service that waits for something.
CLIENTS, SECONDS, P99_MS = 200, 12.0, 500.0
# Cores that other programs may use before latencies are theirs rather than the service's.
OTHERS = 0.3
JOBS = 300
# Of the server, over the jobs of the second half; a record of a job has some kilobytes.
GROWTH_MIB = 8.0


@pytest.mark.slow
def test_200_clients_are_served_while_a_job_runs(tmp_path: Path) -> None:
    """Half of them stream; nobody gets an error, and a look at the job is quick."""
    for attempt in range(2):
        (folder := tmp_path / str(attempt)).mkdir()
        found = measure_clients(folder, CLIENTS, SECONDS)
        assert found["job_state_at_the_end"] == "running"
        assert (found["clients"], found["streams"]) == (CLIENTS, CLIENTS // 2)
        assert found["errors"] == 0, found["first_errors"]
        assert found["requests"] > CLIENTS * SECONDS * 0.7
        if found["ms_p50_p90_p99_max"][2] < P99_MS:
            return
    if found["others_cores"] > OTHERS:
        pytest.skip(f"others use {found['others_cores']} cores: times mean nothing")
    pytest.fail(f"slow answers: {found}")


@pytest.mark.parametrize("executor", ["inline", pytest.param("dask", marks=pytest.mark.slow)])
def test_memory_does_not_grow_with_jobs(executor: str, tmp_path: Path) -> None:
    found = measure_jobs(tmp_path, JOBS, executor)
    server = found["server_mib"]
    assert server[-1] - server[len(server) // 2] < GROWTH_MIB, found
    if executor == "dask":
        workers = found["workers_mib"]
        assert workers[-1] - workers[len(workers) // 2] < 2 * GROWTH_MIB, found
