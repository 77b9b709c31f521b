"""A job for the service, from Python: submit, watch, fetch, verify.

Starts a service of its own on this machine's loopback unless `--url` names one. Numpy arrays
in the spec are uploaded. Needs `pip install "bigsap[server]"`.

    python examples/service_client.py                                # n = 3,000
    python examples/service_client.py --url http://host:8765 --key KEY
    python examples/service_client.py --full                         # n = 50,000

Measured on 2 shared cores: n = 50,000 (full size) in 8.7 s from submission to arrays, gap 5e-13,
verified; n = 3,000 in 4.1 s.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import bigsap
from bigsap.client import Client
from bigsap.client.local_service import LocalService


def main(url: str, key: str | None, n: int, seed: int = 0) -> bigsap.Result:
    rng = np.random.default_rng(seed)
    x, y = rng.random((n, 3)), rng.random((n, 3))
    started = time.perf_counter()
    with Client(url, key) as client:
        job = client.submit(
            {
                "cost": {"type": "points", "metric": "euclidean", "x": x, "y": y},
                "options": {"time_limit_s": 3600},
            },
            label="service_client.py",
        )
        phases = set()
        for event in job.events():  # ends with the job; survives lost connections
            if event["kind"] == "state":
                print(f"{job.id} is {event['data']['state']}")
            elif event["kind"] == "progress" and "phase" in event["data"]:  # not while loading
                phases.add(event["data"]["phase"])
        result = job.refresh().result()
    seconds = time.perf_counter() - started
    certificate = result.verify(bigsap.points(x, y, metric="euclidean"))
    print(
        f"client: n = {n:,}, {result.status}, cost {result.fun:.9g}, gap {result.gap:.1g},"
        f" {len(phases - {None})} phases seen, {seconds:.1f} s from submission to arrays;"
        f" verified here, {certificate.pairs:,} pairs"
    )
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--url", help="a running service; default: one is started")
    parser.add_argument("--key", help="access key")
    parser.add_argument("--n", type=int, default=3_000)
    parser.add_argument("--full", action="store_true", help="n = 50,000")
    chosen = parser.parse_args()
    size = 50_000 if chosen.full else chosen.n
    if chosen.url is not None:
        main(chosen.url, chosen.key, size)
        sys.exit()
    with (
        tempfile.TemporaryDirectory(prefix="bigsap-") as folder,
        LocalService(Path(folder) / "data") as service,
    ):
        main(service.url, None, size)
