"""What is left when processes are killed and disks fill up: real processes, on loopback."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import psutil
import pytest
from bigsap_server.jobs import worker
from bigsap_server.jobs.control import Folder, Order
from bigsap_server.settings import load
from checks import normalised
from faults import Cluster, job_of, post, runner, same, states

import bigsap
from gate import HANG_S, Gate, apart, gated_job, until
from live_server import LiveServer

ROWS = 200
#: Rows that are read before the gate: the job is then in its second phase.
SEARCHING = 1500
pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def gated(gate):
    """A job that waits in a search, with something in its checkpoint, until the gate is opened."""
    return gated_job(gate, ROWS, SEARCHING)


@pytest.fixture(scope="module")
def expected(tmp_path_factory):
    """What the job gives when nothing happens to it, bit for bit."""
    checkpoint = tmp_path_factory.mktemp("expected") / "c"
    return bigsap.solve(apart(ROWS), method="ssp", threads=1, cache="32KiB", checkpoint=checkpoint)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """A server for tests that harm its workers only: it is as good as new after each."""
    server = LiveServer(tmp_path_factory.mktemp("shared") / "data", workers=2)
    try:
        yield server.start()
    finally:
        server.kill()


@pytest.mark.slow
def test_killed_workers_are_replaced_and_the_answer_is_the_same(server, gate, gated, expected):
    with server.client() as client:
        job_id = post(client, gated)
        for attempt in (1, 2):
            gate.wait_for_readers(attempt)
            os.kill(runner(server, job_id), signal.SIGKILL)
            until(lambda attempt=attempt: job_of(client, job_id)["attempt"] > attempt)
        gate.open()
        job = server.finished(job_id)
        assert (job["state"], job["attempt"]) == ("succeeded", 3)
        assert same(client, job_id, expected)
        result = client.get(f"/v1/jobs/{job_id}/result").json()
        assert result["stats"]["resumed"] == 2
        said = states(client, job_id)
        assert said.count(("interrupted", 1)) == said.count(("interrupted", 2)) == 1
        assert len([s for s in said if s[0] == "succeeded"]) == 1
        # And the service has its two workers again.
        assert client.get("/readyz").status_code == 200
        others = [post(client, {"cost": {"type": "array", "values": [[1]]}}) for _ in range(4)]
        assert {server.finished(other)["state"] for other in others} == {"succeeded"}


@pytest.mark.slow
def test_cancel_now_kills_the_process_and_no_other_job(server, gate, gated, tmp_path):
    other = Gate(tmp_path / "other")
    with server.client() as client:
        first, second = post(client, gated), post(client, gated_job(other, ROWS, SEARCHING))
        gate.wait_for_readers()
        other.wait_for_readers()
        # As Ctrl-C in the server's terminal would: the server decides what it means.
        os.kill(runner(server, second), signal.SIGINT)
        pid = runner(server, first)
        client.post(f"/v1/jobs/{first}/cancel", json={"mode": "now"})
        job = server.finished(first)
        assert job["state"] == "cancelled"
        # Dead, though perhaps not waited for yet.
        assert not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
        other.open()
        job = server.finished(second)
        assert (job["state"], job["attempt"]) == ("succeeded", 1)
        refused = client.get(f"/v1/jobs/{first}/result").status_code
        assert refused >= 400
        until(lambda: client.get("/readyz").status_code == 200)  # the next worker has come
    # All that it has written of this is one JSON object a line.
    text = (server.data.parent / f"{server.data.name}.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line for line in lines if line["level"] == "error"] == []
    loggers = {"bigsap_server.access", "bigsap_server.supervisor", "uvicorn.error"}
    assert {line["logger"] for line in lines} <= loggers
    about = [line for line in lines if line.get("job") == first]
    assert any("cancelled" in line["message"] for line in about)
    assert any(line["logger"] == "bigsap_server.access" and line["status"] == refused for line in about)
    assert "\x1b" not in text
    assert "color_message" not in text


@pytest.mark.slow
def test_a_worker_that_does_not_obey_is_killed(server, gate, gated):
    with server.client() as client:
        job_id = post(client, gated)
        gate.wait_for_readers()
        pid = runner(server, job_id)
        os.kill(pid, signal.SIGSTOP)
        client.post(f"/v1/jobs/{job_id}/cancel", json={"mode": "now"})
        assert server.finished(job_id)["state"] == "cancelled"
        until(lambda: not psutil.pid_exists(pid))
        tiny = post(client, {"cost": {"type": "array", "values": [[1]]}})
        assert server.finished(tiny)["state"] == "succeeded"


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.mark.slow
def test_an_operators_cluster_outlives_the_server_and_its_scheduler_is_restarted(
    start_server, gate, gated, expected, cluster
):
    scheduler = cluster.start_scheduler()
    cluster.start_worker()
    server = start_server(scheduler=cluster.address)
    with server.client() as client:
        orphan = post(client, gated)
        gate.wait_for_readers()
    server.kill()
    gate.open()
    server.start()
    with server.client() as client:
        assert server.finished(orphan)["state"] == "succeeded"
        gate.shut()
        job_id = post(client, gated)
        queued = post(client, {"cost": {"type": "array", "values": [[1]]}})
        gate.wait_for_readers()
        scheduler.kill()
        scheduler.wait(HANG_S)
        until(lambda: client.get("/readyz").status_code == 503)
        assert client.get("/healthz").status_code == 200
        cluster.start_scheduler()
        cluster.start_worker()
        gate.open()
        for each in (job_id, queued):
            assert server.finished(each)["state"] == "succeeded"
        for each in (orphan, job_id):
            assert same(client, each, expected)
        for each in (orphan, job_id, queued):
            assert len([s for s in states(client, each) if s[0] == "succeeded"]) == 1


LIMITED = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))
from pathlib import Path
from bigsap_server.jobs.control import Folder, Order
from bigsap_server.jobs.worker import run_job
folder, spec, settings = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
print(json.dumps(run_job(Order("job", 1, Folder(Path(folder)), spec, settings))))
"""


@pytest.mark.slow
def test_a_checkpoint_that_cannot_be_written_interrupts_the_attempt(tmp_path):
    """The same without a file system of one's own: files may not exceed 16 KiB."""
    rng = np.random.default_rng(11)
    for name in ("x.npy", "y.npy"):
        np.save(tmp_path / name, rng.random((1500, 2)))
    cost = {
        "type": "points",
        "metric": "euclidean",
        "x": {"store": "costs", "path": "x.npy"},
        "y": {"store": "costs", "path": "y.npy"},
    }
    spec = normalised({"cost": cost, "options": {"method": "ssp", "threads": 1}})
    folder = Folder(tmp_path / "job")
    folder.command(1, "run")
    settings = load(data=tmp_path, stores={"costs": tmp_path}).model_dump(mode="json")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(folder.path), json.dumps(spec), json.dumps(settings)],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    outcome = json.loads(done.stdout)
    assert outcome["state"] == "interrupted"
    assert outcome["problem"]["type"].endswith(":disk-full")
    assert "checkpoint" in outcome["problem"]["detail"]
    folder.command(2, "run")
    assert worker.run_job(Order("job", 2, folder, spec, settings))["state"] == "succeeded"
