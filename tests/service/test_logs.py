"""Every line on the stderr of the server and of its workers is one JSON object."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

from gate import Gate, gated_job, until
from live_server import LiveServer

_WORKER = """
import logging, threading
import distributed
from bigsap_server import logs
from bigsap_server.jobs import worker
worker.dask_setup(None)
import numpy as np
def run():
    np.log(np.zeros(1))
    logging.getLogger("bigsap_server.worker").error("two\\nlines")
with logs.about(True, job="job_1", attempt=2):
    run()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
logging.getLogger("distributed.worker").error("an error")
logging.getLogger("distributed.worker").warning("no error")
logging.getLogger("uvicorn.error").warning("x", extra={"color_message": "\\x1b[36mx"})
"""


def test_lines_of_a_worker_are_json_with_the_job() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", _WORKER],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["logger"] for line in lines] == [
        "py.warnings",
        "bigsap_server.worker",
        "py.warnings",
        "bigsap_server.worker",
        "distributed.worker",
        "uvicorn.error",
    ]
    assert "RuntimeWarning: divide by zero" in lines[0]["message"]
    assert all((line["job"], line["attempt"]) == ("job_1", 2) for line in lines[:4])
    assert "job" not in lines[4]
    assert "color_message" not in lines[5]


def test_all_lines_of_a_server_are_json(start_server: Callable[..., LiveServer], gate: Gate) -> None:
    """From the start to the end, a job that was cancelled at once among them."""
    server = start_server()
    with server.client() as client:
        job: dict[str, Any] = client.post("/v1/jobs", json=gated_job(gate)).json()
        until(lambda: client.get(job["links"]["self"]).json()["state"] == "running")
        client.post(job["links"]["cancel"], json={"mode": "now"})
    assert server.finished(job["id"])["state"] == "cancelled"
    with server.client() as client:  # the next worker has come
        refused = client.get(job["links"]["self"] + "/result").status_code
        assert refused >= 400
        until(lambda: client.get("/readyz").status_code == 200)
    server.stop()
    text = (server.data.parent / f"{server.data.name}.log").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line for line in lines if line["level"] == "error"] == []
    assert {line["logger"] for line in lines} <= {
        "bigsap_server.access",
        "bigsap_server.supervisor",
        "uvicorn.error",
    }
    about = [line for line in lines if line.get("job") == job["id"]]
    assert any("cancelled" in line["message"] for line in about)
    assert any(line["logger"] == "bigsap_server.access" and line["status"] == refused for line in about)
    assert "\x1b" not in text
    assert "color_message" not in text
