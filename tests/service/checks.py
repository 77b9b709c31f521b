"""What several of the server's tests check or send."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from gate import until

SQUARE = {"cost": {"type": "array", "values": [[4, 1, 3], [2, 0, 5], [3, 2, 2]]}}
NOW = {"Prefer": "wait=30"}


def problem(answer: Any, status: int, slug: str, pointer: str | None = None) -> dict[str, Any]:
    """Check that an answer is this problem document, without a trace of what is inside."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    document: dict[str, Any] = answer.json()
    assert document["type"] == f"urn:bigsap:problem:{slug}", document
    assert document["status"] == status
    assert document["title"]
    assert document["detail"]
    if pointer is not None:
        assert document.get("pointer") == pointer, document
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text
    if status == 429:
        assert int(answer.headers["Retry-After"]) >= 1
    return document


def upload(client: Any, array: Any, seal: bool = True) -> str:
    """Upload an array in one block; its id."""
    array = np.ascontiguousarray(array)
    made = client.post("/v1/arrays", json={"dtype": array.dtype.name, "shape": list(array.shape)})
    assert made.status_code == 201, made.text
    array_id = made.json()["id"]
    sent = client.put(
        f"/v1/arrays/{array_id}/rows/0",
        content=array.astype(array.dtype.newbyteorder("<")).tobytes(),
        headers={"Content-Type": "application/octet-stream"},
    )
    assert sent.status_code == 200, sent.text
    if seal:
        assert client.post(f"/v1/arrays/{array_id}/seal").status_code == 200
    return str(array_id)


def solved(client: Any, body: dict[str, Any]) -> dict[str, Any]:
    """Submit, wait, and return the finished job with its result."""
    answer = client.post("/v1/jobs", json=body, headers=NOW)
    assert answer.status_code in (200, 202), answer.text
    job: dict[str, Any] = answer.json()
    job = until(lambda: (now := client.get(job["links"]["self"]).json())["finished"] and now)
    if "outcome" in job and "result" not in job:
        job["result"] = client.get(job["links"]["result"]).json()
    return job


def normalised(request: dict[str, Any]) -> dict[str, Any]:
    """A request as it is stored: validated, with its defaults."""
    from bigsap_server.costs.request import JobRequest

    return JobRequest.model_validate(request).model_dump(mode="json")


def vector(client: Any, job: dict[str, Any], name: str) -> np.ndarray[Any, Any]:
    """A result array through npy."""
    answer = client.get(job["links"]["result"] + "/" + name)
    assert answer.status_code == 200, answer.text
    return np.load(io.BytesIO(answer.content), allow_pickle=False)
