"""The service under a modest load for long: does memory stay flat, does anything fail?

``python tests/bench/endurance.py --minutes 60`` starts a server with two worker processes on
loopback. Two senders submit jobs of five kinds, wait, download and compare every result with the
first of its kind; three readers poll jobs and pages of the list; two follow event streams to
their ends. Once a minute the memory of the server and of its workers is written down. The exit
status is 1 when anything failed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import psutil
from service import start, stop

import bigsap
from bigsap.client import Client, Job, ServiceError

ROWS = 1000
KINDS = ("tiny", "points", "upload", "expression", "cancelled")
GROUPS = [f"{one}{kind}_mib" for one in ("server", "workers") for kind in ("", "_own")]
ENDS = {"succeeded", "failed", "cancelled"}


def store(path: str) -> dict[str, str]:
    return {"store": "bench", "path": path}


def request(kind: str) -> dict[str, Any]:
    """What is sent, the upload apart."""
    if kind == "tiny":
        return {"cost": {"type": "array", "values": [[4, 1, 3], [2, 0, 5], [3, 2, 2]]}}
    if kind == "points":
        return {"cost": {"type": "points", "metric": "euclidean", "x": store("x.npy"), "y": store("y.npy")}}
    if kind == "expression":
        side = np.random.default_rng(1).random(200).round(6).tolist()
        return {
            "cost": {
                "type": "expression",
                "code": "(x[i]-y[j])**2 + 0.1*abs(i-j)",
                "shape": [200, 200],
                "arrays": {"x": side, "y": side[::-1]},
            }
        }
    return {
        "cost": {"type": "points", "metric": "euclidean", "x": store("long_x.npy"), "y": store("long_y.npy")},
        "options": {"method": "ssp", "threads": 1, "checkpoint_s": 1, "cache": "16MiB"},
    }


class Load:
    """What senders and readers share: the jobs of late, what was counted, what went wrong."""

    def __init__(self, url: str, until: float, every: float) -> None:
        self.url, self.until, self.every = url, until, every
        self.numbers = itertools.count()
        self.recent: list[str] = []
        self.first: dict[str, tuple[float | None, bytes]] = {}
        self.counts: Counter[str] = Counter()
        self.taken: dict[str, list[float]] = {"GET": [], "POST": [], "job": []}
        self.failures: list[str] = []
        self.lock = threading.Lock()

    def count(self, what: str, seconds: float | None = None) -> None:
        with self.lock:
            self.counts[what] += 1
            if seconds is not None:
                self.taken[what].append(seconds)

    def repeat(self, step: Callable[[Client, random.Random], None], seed: int) -> None:
        """The step until time is over; what it raises is a failure and no end."""
        rng = random.Random(seed)
        with Client(self.url) as client:
            while time.monotonic() < self.until:
                try:
                    step(client, rng)
                except Exception as error:  # noqa: BLE001 - whatever it is, it is counted
                    with self.lock:
                        self.failures.append(f"{step.__name__}: {error!r}")
                    time.sleep(1.0)

    def send(self, client: Client, rng: random.Random) -> None:
        """One job from submission to its result, then a rest."""
        number = next(self.numbers)
        # Cancelled jobs are long ones: they would have the workers for themselves.
        kind = KINDS[4] if number % 20 == 19 else KINDS[number % 4]
        began = time.perf_counter()
        if kind == "upload":
            array = np.random.default_rng(2).random((300, 300))
            job = client.submit(array, label=kind)
        else:
            job = client.submit(request(kind), label=kind)
        self.count("POST", time.perf_counter() - began)
        with self.lock:
            self.recent = [*self.recent[-7:], job.id]
        if kind == "cancelled":
            while job.refresh(wait=5).state == "queued":
                pass
            time.sleep(2.0)
            with suppress(ServiceError):  # a fast machine has solved it by then
                job.cancel()
        job.wait(600)
        self.count("job", time.perf_counter() - began)
        self.count(f"jobs {kind} {job.state}")
        self.check(kind, job)
        if kind == "upload":
            job.delete()
        time.sleep(rng.uniform(0, 2 * self.every))

    def check(self, kind: str, job: Job) -> None:
        if kind == "cancelled":
            # The count of "jobs cancelled cancelled" says how many were stopped on the way.
            assert job.state in ("cancelled", "succeeded"), job.record
            return
        assert job.state == "succeeded", job.record
        result = job.result()
        assert result.status == "optimal"
        found = (result.fun, result.col4row.tobytes())
        with self.lock:
            assert self.first.setdefault(kind, found) == found, f"another answer for {kind}"

    def poll(self, client: Client, rng: random.Random) -> None:
        """A job of late, or a page of the list."""
        began = time.perf_counter()
        if rng.random() < 0.2:
            assert list(client.jobs(limit=20)) or not self.recent
        elif self.recent:
            self.look(client, rng.choice(self.recent))
        self.count("GET", time.perf_counter() - began)
        time.sleep(1.0)

    def look(self, client: Client, job_id: str) -> None:
        try:
            assert client.job(job_id).state
        except bigsap.BigsapError as error:
            # An uploaded matrix's job is deleted by who sent it.
            if getattr(error, "status", None) != 404:
                raise

    def follow(self, client: Client, rng: random.Random) -> None:
        """The events of a job of late, to its end."""
        time.sleep(0.5)
        if not self.recent:
            return
        job_id = self.recent[-1]
        states = []
        try:
            for event in client.events(job_id):
                self.count("events")
                if event["kind"] == "state":
                    states.append(event["data"].get("state"))
        except bigsap.BigsapError as error:
            if getattr(error, "status", None) != 404:
                raise
            return
        self.count("streams")
        assert states, f"no state in the events of {job_id}"
        assert states[-1] in ENDS, states
        time.sleep(rng.uniform(0, 2.0))


def sample(server: psutil.Process, minute: int) -> dict[str, Any]:
    """MiB and open files of the server, and MiB of its workers.

    ``own``: without the pages of files, which fill as code is first used.
    """
    found = {"minute": minute, **dict.fromkeys(GROUPS, 0.0)}
    for process in (server, *server.children(recursive=True)):
        try:
            memory = process.memory_info()
        except psutil.NoSuchProcess:
            continue
        group = "server" if process == server else "workers"
        found[f"{group}_mib"] += memory.rss / 2**20
        found[f"{group}_own_mib"] += (memory.rss - memory.shared) / 2**20
    found = {name: round(value, 1) for name, value in found.items()}
    found |= {
        "server_files": server.num_fds(),
        "server_threads": server.num_threads(),
        "load_average": round(os.getloadavg()[0], 1),
    }
    print(json.dumps(found), flush=True)
    return found


def slope(samples: list[dict[str, Any]], name: str) -> float:
    """MiB an hour over the second half."""
    half = samples[len(samples) // 2 :]
    if len(half) < 2:
        return 0.0
    minutes = [entry["minute"] for entry in half]
    return round(float(np.polyfit(minutes, [entry[name] for entry in half], 1)[0]) * 60, 1)


def measure(folder: Path, minutes: float, every: float) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    for name in ("x", "y"):
        np.save(folder / f"{name}.npy", rng.random((ROWS, 2)))
        np.save(folder / f"long_{name}.npy", rng.random((20_000, 6)))
    process, url = start(folder, WORKERS="2", STORES=json.dumps({"bench": str(folder)}))
    try:
        load = Load(url, time.monotonic() + 60 * minutes, every)
        steps = [load.send] * 2 + [load.poll] * 3 + [load.follow] * 2
        threads = [threading.Thread(target=load.repeat, args=(step, seed)) for seed, step in enumerate(steps)]
        for thread in threads:
            thread.start()
        samples = []
        server = psutil.Process(process.pid)
        began = time.monotonic()
        for minute in itertools.count():
            left = min(began + 60 * minute, load.until) - time.monotonic()
            time.sleep(max(0.0, left))
            samples.append(sample(server, minute))
            if time.monotonic() >= load.until:
                break
        for thread in threads:
            thread.join(600)
        return figures(load, samples, minutes, folder / "data")
    finally:
        stop(process)


def figures(load: Load, samples: list[dict[str, Any]], minutes: float, data: Path) -> dict[str, Any]:
    found: dict[str, Any] = {
        "minutes": minutes,
        "counts": dict(sorted(load.counts.items())),
        "failures": len(load.failures),
        "first_failures": load.failures[:10],
        "disk_mib": round(sum(path.stat().st_size for path in data.rglob("*") if path.is_file()) / 2**20, 1),
    }
    for name in GROUPS:
        values = [entry[name] for entry in samples]
        found[name] = {
            "by_minute": {minute: values[minute] for minute in (0, 2, 20, 40, 60) if minute < len(values)},
            "last": values[-1],
            "peak": max(values),
            "slope_per_hour_second_half": slope(samples, name),
        }
    for name, taken in load.taken.items():
        if taken:
            p50, p99 = np.percentile(np.array(taken) * 1000, [50, 99])
            found[f"{name}_ms"] = {"number": len(taken), "p50": round(p50), "p99": round(p99)}
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=3.0, help="mean rest of a sender, seconds")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), given.minutes, given.every)
    print(json.dumps(found, indent=1))
    return 1 if found["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
