"""What is left when processes are killed and disks fill up: real processes, on loopback."""

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial

import httpx
import numpy as np
import psutil
import pytest
from bigsap_server.jobs import worker
from bigsap_server.jobs.control import Folder
from bigsap_server.settings import load
from faults import Cluster, job_of, post, runner, same, searching, states, stores, wait_for

import bigsap
from live_server import LiveServer

ROWS = 5000
pytestmark = [pytest.mark.timeout(240), pytest.mark.timed]


@pytest.fixture(scope="module")
def costs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("costs")
    rng = np.random.default_rng(11)
    # Two sets apart from each other: an assignment that needs many searches.
    np.save(folder / "x.npy", rng.random((ROWS, 2)))
    np.save(folder / "y.npy", rng.random((ROWS, 2)) + 1)
    return folder


@pytest.fixture
def start_server(start_server):
    """Frequent news: what is to be hit must be seen while it lasts."""
    return partial(start_server, heartbeat_s=0.2)


@pytest.fixture(scope="module")
def slow(costs):
    """A job of several seconds, and the store it needs as a setting."""
    cost = {
        "type": "points", "metric": "euclidean",
        "x": {"store": "costs", "path": "x.npy"}, "y": {"store": "costs", "path": "y.npy"},
    }  # fmt: skip
    options = {"method": "ssp", "threads": 1, "cache": "64KiB", "checkpoint_s": 0.2}
    options["start"] = "estimate"  # levels would make it a job of one second
    return {"cost": cost, "options": options}


@pytest.fixture(scope="module")
def expected(costs):
    """What the job gives when nothing happens to it, bit for bit."""
    x, y = np.load(costs / "x.npy"), np.load(costs / "y.npy")
    source = bigsap.points(x, y, "euclidean")
    return bigsap.solve(source, method="ssp", start="estimate", threads=1, checkpoint=costs / "c")


@pytest.fixture(scope="module")
def server(tmp_path_factory, costs):
    """A server for tests that harm its workers only: it is as good as new after each."""
    server = LiveServer(
        tmp_path_factory.mktemp("shared") / "data",
        workers=2, stores=stores(costs), heartbeat_s=0.2,
    )  # fmt: skip
    try:
        yield server.start()
    finally:
        server.kill()


def test_killed_workers_are_replaced_and_the_answer_is_the_same(server, slow, expected):
    with server.client() as client:
        job_id = post(client, slow)
        for attempt in (1, 2):
            searching(client, job_id, attempt)
            os.kill(runner(server, job_id), signal.SIGKILL)
            wait_for(lambda attempt=attempt: job_of(client, job_id)["attempt"] > attempt)
        job = server.finished(job_id, 120)
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


def test_killed_workers_of_compressed_rows(server, costs):
    rng = np.random.default_rng(12)
    for name in ("p.npy", "q.npy"):
        np.save(costs / name, rng.random((24_000, 2)))
    cost = {
        "type": "points", "metric": "euclidean",
        "x": {"store": "costs", "path": "p.npy"}, "y": {"store": "costs", "path": "q.npy"},
    }  # fmt: skip
    options = {"threads": 1, "checkpoint_s": 0.1}
    source = bigsap.points(np.load(costs / "p.npy"), np.load(costs / "q.npy"), "euclidean")
    expected = bigsap.solve(source, method="compressed", threads=1, checkpoint=costs / "d")
    assert expected.status == "optimal"
    with server.client() as client:
        job_id = post(client, {"cost": cost, "options": options})
        searching(client, job_id)
        wait_for(lambda: (server.data / "jobs" / job_id / "checkpoint").exists())
        os.kill(runner(server, job_id), signal.SIGKILL)
        job = server.finished(job_id, 120)
        assert (job["state"], job["attempt"]) == ("succeeded", 2)
        result = client.get(f"/v1/jobs/{job_id}/result").json()
        assert result["stats"]["method"] == "compressed"
        assert result["stats"]["resumed"] == 1
        assert same(client, job_id, expected)


def test_cancel_now_kills_the_process_and_no_other_job(server, slow):
    with server.client() as client:
        first, second = post(client, slow), post(client, slow)
        searching(client, first)
        searching(client, second)
        # As Ctrl-C in the server's terminal would: the server decides what it means.
        os.kill(runner(server, second), signal.SIGINT)
        pid = runner(server, first)
        asked = time.monotonic()
        client.post(f"/v1/jobs/{first}/cancel", json={"mode": "now"})
        job = server.finished(first)
        assert job["state"] == "cancelled"
        assert time.monotonic() - asked < 15
        assert not psutil.pid_exists(pid) or not psutil.Process(pid).is_running()
        job = server.finished(second, 120)
        assert (job["state"], job["attempt"]) == ("succeeded", 1)


@pytest.mark.slow
def test_a_worker_that_does_not_obey_is_killed(server, slow):
    with server.client() as client:
        job_id = post(client, slow)
        searching(client, job_id)
        pid = runner(server, job_id)
        os.kill(pid, signal.SIGSTOP)
        client.post(f"/v1/jobs/{job_id}/cancel", json={"mode": "now"})
        assert server.finished(job_id)["state"] == "cancelled"
        wait_for(lambda: not psutil.pid_exists(pid))
        tiny = post(client, {"cost": {"type": "array", "values": [[1]]}})
        assert server.finished(tiny)["state"] == "succeeded"


def test_a_second_server_on_the_same_data_is_refused(server):
    second = subprocess.run(
        [sys.executable, "-m", "bigsap_server", "--port", "0", "--data", str(server.data)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert second.returncode == 1
    assert "another server owns" in second.stderr
    assert "Traceback" not in second.stderr


def test_a_server_killed_again_and_again_loses_nothing_and_doubles_nothing(
    start_server, costs, slow, expected
):
    server = start_server(workers=1, stores=stores(costs))
    block = np.arange(6000, dtype="<f8").reshape(1000, 6)
    halves = block[:500], block[500:]
    with server.client() as client:
        created = client.post("/v1/arrays", json={"dtype": "f8", "shape": [1000, 6]})
        assert created.status_code == 201, created.text
        array = f"/v1/arrays/{created.json()['id']}"
        raw = {"Content-Type": "application/octet-stream"}
        put = client.put(f"{array}/rows/0", content=halves[0].tobytes(), headers=raw)
        assert put.status_code < 300, put.text
        running = post(client, slow, **{"Idempotency-Key": "run"})
        queued = [
            post(client, {"cost": {"type": "array", "values": [[k, 9], [9, 1]]}}) for k in range(5)
        ]
        searching(client, running)

        def body():
            yield halves[1][:100].tobytes()
            time.sleep(0.3)
            children.extend(psutil.Process(server.process.pid).children(recursive=True))
            server.kill()
            yield halves[1][100:].tobytes()

        children = []
        length = {"Content-Length": str(halves[1].nbytes)}
        with pytest.raises(httpx.TransportError):
            client.put(f"{array}/rows/500", content=body(), headers=raw | length)
    # Workers end with their server: nobody is left to run a job twice.
    _, alive = psutil.wait_procs(children, timeout=15)
    assert alive == []
    # Once more, as soon as the job has begun again or is about to.
    server.start()
    with server.client() as client:
        wait_for(lambda: job_of(client, running)["attempt"] > 1)
    server.kill()
    server.start()
    with server.client() as client:
        # The client, who got no answer the last time, asks again.
        assert post(client, slow, **{"Idempotency-Key": "run"}) == running
        received = client.get(array).json()["received"]
        assert received[0] == [0, 500], received
        put = client.put(f"{array}/rows/500", content=halves[1].tobytes(), headers=raw)
        assert put.status_code < 300, put.text
        sealed = client.post(f"{array}/seal")
        assert sealed.status_code == 200, sealed.text
        data = np.load(server.data / "arrays" / created.json()["id"] / "data.npy")
        np.testing.assert_array_equal(data, block)
        assert sealed.json()["sha256"] == hashlib.sha256(block.tobytes()).hexdigest()
        job = server.finished(running, 120)
        assert (job["state"], job["attempt"]) == ("succeeded", 3)
        assert same(client, running, expected)
        assert client.get(f"/v1/jobs/{running}/result").json()["stats"]["resumed"] >= 1
        for k, job_id in enumerate(queued):
            job = server.finished(job_id)
            assert (job["state"], job["attempt"]) == ("succeeded", 1)
            result = client.get(f"/v1/jobs/{job_id}/result").json()
            assert result["objective"] == k + 1
            assert states(client, job_id).count(("running", 1)) == 1
        listed = client.get("/v1/jobs", params={"page_size": 100}).json()["jobs"]
        assert sorted(job["id"] for job in listed) == sorted([running, *queued])


def test_a_graceful_stop_checkpoints_and_goes_on(start_server, costs, slow, expected):
    slow = slow | {"options": slow["options"] | {"checkpoint_s": 3600}}
    server = start_server(workers=1, stores=stores(costs))
    with server.client() as client:
        job_id = post(client, slow)
        searching(client, job_id)
    asked = time.monotonic()
    assert server.stop() == 0
    assert time.monotonic() - asked < 30
    server.start()
    with server.client() as client:
        job = server.finished(job_id, 120)
        assert (job["state"], job["attempt"]) == ("succeeded", 2)
        assert same(client, job_id, expected)
        assert client.get(f"/v1/jobs/{job_id}/result").json()["stats"]["resumed"] == 1
        assert ("interrupted", 1) in states(client, job_id)


@pytest.fixture
def cluster(tmp_path):
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.close()


@pytest.mark.slow
def test_an_operators_cluster_outlives_the_server_and_its_scheduler_is_restarted(
    start_server, costs, slow, expected, cluster
):
    scheduler = cluster.start_scheduler()
    cluster.start_worker()
    server = start_server(scheduler=cluster.address, stores=stores(costs))
    with server.client() as client:
        orphan = post(client, slow)
        searching(client, orphan)
    server.kill()
    server.start()
    with server.client() as client:
        assert server.finished(orphan, 120)["state"] == "succeeded"
        job_id = post(client, slow)
        queued = post(client, {"cost": {"type": "array", "values": [[1]]}})
        searching(client, job_id)
        scheduler.kill()
        scheduler.wait(10)
        wait_for(lambda: client.get("/readyz").status_code == 503)
        assert client.get("/healthz").status_code == 200
        cluster.start_scheduler()
        cluster.start_worker()
        for each in (job_id, queued):
            assert server.finished(each, 120)["state"] == "succeeded"
        for each in (orphan, job_id):
            assert same(client, each, expected)
        for each in (orphan, job_id, queued):
            assert len([s for s in states(client, each) if s[0] == "succeeded"]) == 1


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 128 MB, where the system lets us mount one."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = shutil.which("mount")
    done = mount is not None and subprocess.run(
        [mount, "-t", "tmpfs", "-o", "size=128m", "tmpfs", str(folder)],
        capture_output=True, timeout=30, check=False,
    ).returncode == 0  # fmt: skip
    if not done:
        pytest.skip("mounting a small tmpfs is not permitted here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], timeout=30, check=True)


def fill(folder):
    """Take all the space that is left."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue
    return ballast


@pytest.mark.slow
def test_a_full_disk_interrupts_the_job_and_not_the_service(
    start_server, small_disk, costs, slow, expected
):
    server = start_server(data=small_disk / "data", workers=1, stores=stores(costs))
    with server.client() as client:
        created = client.post("/v1/arrays", json={"dtype": "f8", "shape": [1000, 6]}).json()
        array = f"/v1/arrays/{created['id']}"
        big = client.post("/v1/arrays", json={"dtype": "f8", "shape": [100_000, 100]})
        job_id = post(client, slow)
        searching(client, job_id)
        ballast = fill(small_disk)
        job = wait_for(lambda: (j := job_of(client, job_id))["state"] == "interrupted" and j)
        assert job["problem"]["type"].endswith(":disk-full")
        assert "disk is full" in job["problem"]["detail"]
        assert client.get("/healthz").status_code == 200
        if big.status_code == 201:
            body = np.zeros((20_000, 100)).tobytes()
            put = client.put(
                f"/v1/arrays/{big.json()['id']}/rows/0", content=body,
                headers={"Content-Type": "application/octet-stream"},
            )  # fmt: skip
        else:
            put = big
        assert put.status_code == 507, put.text
        assert put.json()["type"].endswith(":disk-full")
        ballast.unlink()
        if big.status_code == 201:
            client.delete(f"/v1/arrays/{big.json()['id']}")
        block = np.ones((1000, 6), "<f8")
        put = client.put(
            f"{array}/rows/0", content=block.tobytes(),
            headers={"Content-Type": "application/octet-stream"},
        )  # fmt: skip
        assert put.status_code < 300, put.text
        # It is tried again by itself.
        job = server.finished(job_id, 120)
        assert job["state"] == "succeeded"
        assert same(client, job_id, expected)


LIMITED = """
import json, resource, sys
resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
from bigsap_server.jobs.worker import run_job
folder, spec, settings = sys.argv[1], json.loads(sys.argv[2]), json.loads(sys.argv[3])
print(json.dumps(run_job(folder, spec, 1, settings)))
"""


def test_a_checkpoint_that_cannot_be_written_interrupts_the_attempt(tmp_path, costs, slow):
    """The same without a file system of one's own: files may not exceed 64 KiB."""
    import json

    folder = Folder(tmp_path / "job")
    folder.command(1, "run")
    settings = load(data=tmp_path, stores={"costs": costs}).model_dump(mode="json")
    done = subprocess.run(
        [sys.executable, "-c", LIMITED, str(folder.path), json.dumps(slow), json.dumps(settings)],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    outcome = json.loads(done.stdout)
    assert outcome["state"] == "interrupted"
    assert outcome["problem"]["type"].endswith(":disk-full")
    assert "checkpoint" in outcome["problem"]["detail"]
    folder.command(2, "run")
    assert worker.run_job(str(folder.path), slow, 2, settings)["state"] == "succeeded"
