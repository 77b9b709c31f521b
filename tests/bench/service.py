"""Load figures of the service: many clients while jobs run, and memory over many jobs.

``python tests/bench/service.py clients`` starts a server with one Dask worker, keeps it busy
with jobs and has CLIENTS clients poll one of them every second, half of them also reading
its event stream; it reports the latency of ``GET /v1/jobs/{id}``. ``... jobs`` sends JOBS tiny jobs
(``--executor dask`` through worker processes, ``inline`` through threads of the server) and
reports the memory of the server as it goes. Both need a data directory on a local disk.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil

TINY = {"cost": {"type": "array", "values": [[4, 1, 3], [2, 0, 5], [3, 2, 2]]}}
LONG = {
    "cost": {
        "type": "points",
        "metric": "euclidean",
        "x": {"store": "bench", "path": "x.npy"},
        "y": {"store": "bench", "path": "y.npy"},
    },
    "options": {"method": "ssp", "threads": 1, "checkpoint_s": 1, "cache": "64MiB"},
}


def start(folder: Path, **env: str) -> tuple[subprocess.Popen[str], str]:
    """A server process and its address."""
    env = {f"BIGSAP_{name}": value for name, value in env.items()}
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "bigsap", "serve", "--port", "0", "--data", str(folder / "data")],
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            env=os.environ
            | env
            | {
                "BIGSAP_LIMITS__REQUESTS_PER_S": "1000000",
                "BIGSAP_LIMITS__BURST": "1000000",
                "BIGSAP_LIMITS__ACTIVE_JOBS": "1000000",
                "BIGSAP_LIMITS__STREAMS": "10000",
            },
        )
    assert process.stdout is not None
    url = "http://" + process.stdout.readline().split("http://")[1].strip()
    until = time.monotonic() + 60
    while httpx.get(url + "/readyz").status_code != 200:
        assert time.monotonic() < until, "the server is not ready"
        time.sleep(0.1)
    return process, url


def stop(process: subprocess.Popen[str]) -> None:
    """End the server gracefully."""
    process.send_signal(signal.SIGTERM)
    process.wait(60)
    assert process.stdout is not None
    process.stdout.close()


class Connection:
    """Just enough HTTP, so that the clients do not take the cores from the server."""

    def __init__(self, url: str) -> None:
        self.host, _, port = url.removeprefix("http://").partition(":")
        self.port = int(port)

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Connection]:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        try:
            yield self
        finally:
            self.writer.close()

    async def get(self, path: str, accept: str = "application/json") -> tuple[int, dict[str, str]]:
        head = f"GET {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\nAccept: {accept}\r\n\r\n"
        self.writer.write(head.encode())
        status = int((await self.reader.readline()).split()[1])
        headers = {}
        while line := (await self.reader.readline()).strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        return status, headers


async def poll(
    url: str, job_id: str, delay: float, until: float, taken: list[float], errors: list[str]
) -> None:
    """Look at the job once a second, from ``delay`` on: clients are not in step."""
    await asyncio.sleep(delay)
    async with Connection(url).open() as connection:
        while time.monotonic() < until:
            began = time.perf_counter()
            status, headers = await connection.get(f"/v1/jobs/{job_id}")
            await connection.reader.readexactly(int(headers["content-length"]))
            taken.append(time.perf_counter() - began)
            if status != 200:
                errors.append(f"GET gave {status}")
            await asyncio.sleep(1.0)


async def stream(url: str, job_id: str, until: float, gaps: list[float], errors: list[str]) -> None:
    """Read the job's events; note how far apart they come."""
    async with Connection(url).open() as connection:
        status, _ = await connection.get(f"/v1/jobs/{job_id}/events", "text/event-stream")
        if status != 200:
            errors.append(f"the stream gave {status}")
            return
        last = None
        while (left := until - time.monotonic()) > 0:
            try:
                line = await asyncio.wait_for(connection.reader.readline(), left)
            except TimeoutError:
                return
            if not line:
                errors.append("the stream ended early")
                return
            if line.startswith(b"event: progress"):
                now = time.perf_counter()
                if last is not None:
                    gaps.append(now - last)
                last = now


async def clients(url: str, job_id: str, number: int, seconds: float) -> dict[str, Any]:
    """The figures of ``number`` clients over ``seconds``."""
    until = time.monotonic() + seconds
    taken: list[float] = []
    gaps: list[float] = []
    errors: list[str] = []
    delays = np.random.default_rng(1).random(number)
    async with asyncio.TaskGroup() as group:
        for k in range(number):
            group.create_task(poll(url, job_id, delays[k], until, taken, errors))
            if k % 2 == 0:
                group.create_task(stream(url, job_id, until, gaps, errors))
    quantiles = np.quantile(np.array(taken) * 1e3, [0.5, 0.9, 0.99, 1.0]).round(1).tolist()
    return {
        "clients": number,
        "streams": (number + 1) // 2,
        "seconds": seconds,
        "requests": len(taken),
        "errors": len(errors),
        "first_errors": errors[:3],
        "ms_p50_p90_p99_max": quantiles,
        "events_received": len(gaps),
        "event_gap_s_p99": round(float(np.quantile(gaps, 0.99)), 2),
    }


def cpu_seconds(server: int) -> tuple[float, float, float]:
    """CPU time so far: of the server's process, of all of ours, and of the whole machine."""
    root = psutil.Process(server)
    used = []
    for one in (root, psutil.Process(), *root.children(recursive=True)):
        spent = one.cpu_times()
        used.append(spent.user + spent.system)
    machine = psutil.cpu_times()
    return used[0], sum(used), machine.user + machine.nice + machine.system


def measure_clients(
    folder: Path, number: int, seconds: float, job: dict[str, Any] = LONG, **env: str
) -> dict[str, Any]:
    """Clients on a server whose worker is solving ``job``."""
    rng = np.random.default_rng(0)
    for name in "xy":
        np.save(folder / f"{name}.npy", rng.random((60_000, 6)))
    process, url = start(folder, WORKERS="1", STORES=json.dumps({"bench": str(folder)}), **env)
    try:
        with httpx.Client(base_url=url) as client:
            ids = [client.post("/v1/jobs", json=job).json()["id"] for _ in range(2)]
            while client.get(f"/v1/jobs/{ids[0]}").json()["state"] != "running":
                time.sleep(0.1)
            time.sleep(3)
            before = cpu_seconds(process.pid)
            found = asyncio.run(clients(url, ids[0], number, seconds))
            server, ours, all_ = np.subtract(cpu_seconds(process.pid), before) / seconds
            found["server_cores"] = round(float(server), 2)
            found["others_cores"] = round(float(all_ - ours), 2)
            found["load_average"] = os.getloadavg()[0]
            found["job_state_at_the_end"] = client.get(f"/v1/jobs/{ids[0]}").json()["state"]
            for job_id in ids:
                client.post(f"/v1/jobs/{job_id}/cancel", json={"mode": "now"})
        return found
    finally:
        stop(process)


def measure_jobs(folder: Path, number: int, executor: str) -> dict[str, Any]:
    """Memory of the server and its workers over ``number`` jobs."""
    process, url = start(folder, WORKERS="2", EXECUTOR=executor)
    server = psutil.Process(process.pid)
    memory: list[tuple[int, float, float]] = []
    began = time.perf_counter()

    def note(done: int) -> None:
        children = sum(child.memory_info().rss for child in server.children(recursive=True))
        memory.append((done, server.memory_info().rss / 2**20, children / 2**20))
        print(f"{done} jobs: server {memory[-1][1]:.0f} MiB, workers {memory[-1][2]:.0f} MiB")

    try:
        with httpx.Client(base_url=url, timeout=60) as client:
            batch = max(1, number // 20)
            for done in range(0, number, batch):
                ids = [client.post("/v1/jobs", json=TINY).json()["id"] for _ in range(batch)]
                for job_id in ids:
                    tag = ""
                    while True:
                        answer = client.get(
                            f"/v1/jobs/{job_id}", params={"wait": 10}, headers={"If-None-Match": tag}
                        )
                        if answer.status_code == 200:
                            tag = answer.headers["ETag"]
                            if answer.json()["state"] in ("succeeded", "failed"):
                                break
                    assert answer.json()["state"] == "succeeded", answer.text
                note(done + batch)
            listed = client.get("/metrics").text
        seconds = time.perf_counter() - began
        counts = [line for line in listed.splitlines() if "jobs" in line and "succeeded" in line]
        return {
            "jobs": number,
            "executor": executor,
            "jobs_per_s": round(number / seconds, 1),
            "server_mib": [round(entry[1], 1) for entry in memory],
            "workers_mib": [round(entry[2], 1) for entry in memory],
            "metrics": counts,
        }
    finally:
        stop(process)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("what", choices=("clients", "jobs"))
    parser.add_argument("--number", type=int, help="default 200 clients, 10,000 jobs")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--executor", choices=("inline", "dask"), default="inline")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        if given.what == "clients":
            found = measure_clients(Path(folder), given.number or 200, given.seconds)
        else:
            found = measure_jobs(Path(folder), given.number or 10_000, given.executor)
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
