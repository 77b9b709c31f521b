"""The client within what a key and a service allow: scopes, rates, sizes of blocks."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bigsap_server.auth import hashed, new_key
from checks import SQUARE

from bigsap.client import Client, ServiceError, UploadError
from clock import Clock
from gate import HANG_S, Gate, gated_job


@pytest.fixture
def serve_key(serve_app: Callable[..., str], tmp_path: Path) -> Callable[..., tuple[str, str]]:
    """A service with one key: ``serve_key(scopes, further lines)`` gives address and key."""

    def serve(scopes: list[str], *lines: str) -> tuple[str, str]:
        key, file = new_key(), tmp_path / "keys.toml"
        shown = ", ".join(f'"{scope}"' for scope in scopes)
        table = ["[carol]", f'hash = "{hashed(key)}"', f"scopes = [{shown}]", *lines]
        file.write_text("\n".join(table))
        return serve_app(keys=file), key

    return serve


def test_results_and_events_wait_for_a_slow_key(
    serve_key: Callable[..., tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock that only the client's pauses move."""
    clock = Clock()
    for module in ("bigsap.client.arrays", "bigsap.client.http", "bigsap.client.jobs", "bigsap_server.auth"):
        monkeypatch.setattr(f"{module}.time", clock)
    url, key = serve_key(["read", "submit"], "requests_per_s = 1", "burst = 1")
    began = clock()
    with Client(url, key, patience=HANG_S) as client:
        job = client.submit(SQUARE).wait(HANG_S)
        assert job.result().fun == 5
        assert list(client.events(job.id))[-1]["data"]["state"] == "succeeded"
    assert clock() - began > 5


def test_a_key_that_may_only_submit(serve_key: Callable[..., tuple[str, str]], gate: Gate) -> None:
    url, key = serve_key(["submit"])
    array = np.arange(10.0).reshape(5, 2)
    with Client(url, key, patience=HANG_S) as client:
        array_id = client.upload(array)
        assert client.upload(array, array_id=array_id) == array_id
        points = {"type": "points", "x": {"array": array_id}, "y": {"array": array_id}}
        job = client.submit(points, idempotency_key="again")
        assert client.submit(points, idempotency_key="again").id == job.id
        waiting = client.submit(gated_job(gate, 30))
        assert waiting.cancel().state in ("cancelled", "cancelling")
        assert client.cancel(waiting.id).id == waiting.id
        with pytest.raises(ServiceError, match="'read'"):
            client.job(job.id)
        with pytest.raises(ServiceError, match="'read'"):
            client.events(job.id).__next__()


def test_a_key_that_may_only_read(serve_key: Callable[..., tuple[str, str]]) -> None:
    url, key = serve_key(["read"])
    with Client(url, key, patience=HANG_S) as client:
        for refused in (lambda: client.upload(np.eye(2)), lambda: client.cancel("job_1")):
            with pytest.raises(ServiceError, match="'submit'"):
                refused()


def test_blocks_are_those_that_the_service_takes(serve_app: Callable[..., str]) -> None:
    url = serve_app(limits={"block_bytes": 4096})
    array = np.random.default_rng(0).random((300, 20))
    with Client(url, patience=HANG_S) as client:
        array_id = client.upload(array)
        assert client.upload(array, array_id=array_id) == array_id
        there: dict[str, Any] = client._json("GET", f"/v1/arrays/{array_id}")
        assert there["max_block_bytes"] == 4096
        # No block is smaller than a row.
        with pytest.raises(UploadError, match="4096"):
            client.upload(np.zeros((2, 600)))
