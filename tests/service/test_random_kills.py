"""Kills at random moments: nothing lost, nothing doubled, the same bits."""

from __future__ import annotations

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from faults import job_of, post, runner, same, states, stores

import bigsap
from gate import HANG_S, until
from live_server import LiveServer

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]
ROWS = 3000
#: Jobs that are under way at any time; and with those that wait until they are tried again: a job
#: waits the longer the more often it was hit in a row.
AT_ONCE = 3
OPEN = 8


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Points apart from each other: some seconds of searches by whole rows."""
    folder = tmp_path_factory.mktemp("costs")
    rng = np.random.default_rng(21)
    np.save(folder / "x.npy", rng.random((ROWS, 2)))
    np.save(folder / "y.npy", rng.random((ROWS, 2)) + 1)
    return folder


def spec(method: str) -> dict[str, Any]:
    cost = {
        "type": "points",
        "metric": "euclidean",
        "x": {"store": "costs", "path": "x.npy"},
        "y": {"store": "costs", "path": "y.npy"},
    }
    options = {"method": method, "threads": 1, "checkpoint_s": 0.1}
    if method == "ssp":
        options |= {"cache": "64KiB", "start": "estimate"}
    return {"cost": cost, "options": options}


def expected(costs: Path, method: str) -> bigsap.Result:
    source = bigsap.points(np.load(costs / "x.npy"), np.load(costs / "y.npy"), "euclidean")
    more = {"start": "estimate"} if method == "ssp" else {}
    return bigsap.solve(source, method=method, threads=1, checkpoint=costs / method, **more)


class Owner:
    """Somebody who sends jobs, asks again where no answer came, and counts what becomes of them."""

    def __init__(self, server: LiveServer, rng: random.Random) -> None:
        self.server, self.rng = server, rng
        self.jobs: dict[str, str] = {}  # key of the request -> id of the job
        self.methods: dict[str, str] = {}
        self.done: set[str] = set()
        self.waiting = 0

    def send(self) -> None:
        """One more job; the same request until it is answered."""
        key = f"request {len(self.methods)}"
        self.methods[key] = self.rng.choice(["ssp", "compressed"])

        def sent() -> bool:
            try:
                with self.client() as client:
                    found = post(client, spec(self.methods[key]), **{"Idempotency-Key": key})
            except httpx.TransportError:
                return False
            self.jobs[key] = found
            return True

        until(sent)

    def client(self) -> httpx.Client:
        """Waits for answers for as long as a loaded machine takes."""
        return self.server.client(timeout=300)

    def look(self) -> None:
        with self.client() as client:
            self.waiting = 0
            for key, job_id in self.jobs.items():
                if key not in self.done:
                    job = job_of(client, job_id)
                    assert job["state"] != "failed", job
                    if job["state"] == "succeeded":
                        self.done.add(key)
                    self.waiting += job["state"] == "interrupted"

    @property
    def wanted(self) -> bool:
        """Whether another job is to be sent."""
        unfinished = len(self.jobs) - len(self.done)
        return unfinished < OPEN and unfinished - self.waiting < AT_ONCE


def test_workers_and_servers_die_at_random(
    tmp_path: Path, costs: Path, request: pytest.FixtureRequest
) -> None:
    kills = request.config.getoption("--kills")
    rng = random.Random(7)
    right = {method: expected(costs, method) for method in ("ssp", "compressed")}
    server = LiveServer(
        tmp_path / "data", workers=2, stores=stores(costs), heartbeat_s=0.2, attempts=1000
    ).start()
    owner = Owner(server, rng)
    killed: Counter[str] = Counter()
    try:
        while killed.total() < kills:
            owner.look()
            while owner.wanted:
                owner.send()
            time.sleep(rng.uniform(0, 1.5))
            if rng.random() < 0.3:
                children = psutil.Process(server.process.pid).children(recursive=True)
                server.kill()
                # Workers end with their server: nobody is left to run a job twice.
                assert psutil.wait_procs(children, timeout=HANG_S)[1] == []
                killed["server"] += 1
                # A client may ask for another job while nobody is there.
                time.sleep(rng.uniform(0, 0.5))
                server.start()
                continue
            with owner.client() as client:
                active = [
                    job_id
                    for key, job_id in owner.jobs.items()
                    if key not in owner.done and job_of(client, job_id)["state"] == "running"
                ]
            if active:
                try:
                    os.kill(runner(server, rng.choice(active)), signal.SIGKILL)
                    killed["worker"] += 1
                except (ProcessLookupError, FileNotFoundError, ValueError):
                    continue  # it had ended meanwhile
        for job_id in owner.jobs.values():
            job = server.finished(job_id)
            assert job["state"] == "succeeded", job
        with owner.client() as client:
            listed = [job["id"] for job in client.get("/v1/jobs", params={"page_size": 500}).json()["jobs"]]
            assert sorted(listed) == sorted(owner.jobs.values())  # none lost, none doubled
            for key, job_id in owner.jobs.items():
                said = Counter(state for state, _ in states(client, job_id))
                assert said["succeeded"] == 1, said
                assert same(client, job_id, right[owner.methods[key]])
    finally:
        server.kill()
    print(f"{dict(killed)} kills, {len(owner.jobs)} jobs, 0 lost, 0 doubled, same bits")
