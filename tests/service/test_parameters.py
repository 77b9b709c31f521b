"""Parameters, paths and sizes that are none: refused, and told apart from what is there."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from apps import TestClient, settings_in
from bigsap_server.api.app import create_app
from checks import SQUARE, problem, solved, upload


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    app = create_app(settings_in(tmp_path_factory.mktemp("parameters") / "data"))
    base = "http://127.0.0.1:8765"
    with TestClient(app, base_url=base, raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def idle(api: Any) -> Iterator[Any]:
    """The same, of which no request makes a job."""

    def jobs() -> Any:
        return api.get("/v1/jobs").json()["jobs"]

    before = jobs()
    yield api
    assert jobs() == before


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "DELETE", "PATCH"])
@pytest.mark.parametrize(
    "path", ["/nothing", "/v1/nothing", "/v1", "/v2/jobs", "/js/nothing.js", "/js", "/v1/jobs/a/b/c"]
)
def test_what_is_not_there_is_not_found(idle: Any, method: str, path: str) -> None:
    answer = idle.request(method, path)
    problem(answer, 404, "not-found")
    assert "Allow" not in answer.headers


PARAMETERS = [
    ("POST", "/v1/jobs", "dryrun", "dry_run"),
    ("POST", "/v1/jobs", "wait", "dry_run"),
    ("GET", "/v1/jobs", "pagesize", "page_size"),
    ("GET", "/v1/jobs", "", "page_token"),
    ("GET", "/v1/jobs/job_1", "timeout", "wait"),
    ("GET", "/v1/jobs/job_1/events", "since", "after"),
    ("GET", "/v1/jobs/job_1/result/u", "start", "offset"),
    ("GET", "/v1/jobs/job_1/result", "offset", "none"),
    ("POST", "/v1/jobs/job_1/cancel", "mode", "none"),
    ("GET", "/v1/arrays", "page_size", "limit"),
    ("PUT", "/v1/arrays/arr_1/rows/0", "stop", "none"),
    ("POST", "/v1/costs:check", "samples", "sample"),
    ("GET", "/v1/kernels", "type", "none"),
    ("GET", "/v1/capabilities", "x", "none"),
]


@pytest.mark.parametrize(("method", "path", "name", "known"), PARAMETERS)
def test_unknown_parameters_are_refused(idle: Any, method: str, path: str, name: str, known: str) -> None:
    given = {} if method in ("GET", "PUT") else {"json": SQUARE}
    answer = idle.request(method, path, params={name: "1"}, **given)
    found = problem(answer, 422, "invalid-spec")
    (error,) = found["errors"]
    assert error["parameter"] == name
    assert known in error["detail"]


def test_all_unknown_parameters_are_named(idle: Any) -> None:
    found = idle.post("/v1/jobs?dry_run=true&dryrun=1&x=", json=SQUARE)
    names = [error["parameter"] for error in problem(found, 422, "invalid-spec")["errors"]]
    assert names == ["dryrun", "x"]
    assert idle.post("/v1/jobs?dry_run=true", json=SQUARE).status_code == 200
    # Probes and scrapers may add what they like, and the page is no resource of the service.
    for path in ("/healthz?probe=1", "/metrics?format=text", "/?theme=dark", "/openapi.json?v=3"):
        assert idle.get(path).status_code == 200, path


WIDE = {"type": "points", "x": [[0.0]] * 3, "y": [[1.0]] * 200}
TALL = {"type": "points", "x": [[0.0]] * 200, "y": [[1.0]] * 3}


@pytest.mark.parametrize(
    ("cost", "option", "size", "row_bytes"),
    [
        (WIDE, "cache", "1kB", 1600),
        (WIDE, "cache", 1599, 1600),
        (WIDE, "memory_limit", "1KiB", 1600),
        (TALL, "memory_limit", "1KiB", 1600),
        (TALL, "cache", "1KiB", 1600),
        ({"type": "sum", "terms": [WIDE, WIDE]}, "cache", 1, 1600),
        ({"type": "array", "values": [[1.5] * 200] * 2}, "memory_limit", "1KiB", 1600),
    ],
)
def test_sizes_that_hold_no_row(
    api: Any, cost: dict[str, Any], option: str, size: Any, row_bytes: int
) -> None:
    """Refused where the solve would refuse them, and only there."""
    body = {"cost": cost, "options": {option: size}}
    for path in ("/v1/jobs", "/v1/jobs?dry_run=true"):
        found = problem(api.post(path, json=body), 422, "invalid-spec", f"/options/{option}")
        assert f"{row_bytes} bytes" in found["detail"]
        assert "one row" in found["detail"]
    job = solved(api, {"cost": cost, "options": {option: row_bytes}})
    assert job["state"] == "succeeded", job["problem"]


def test_a_matrix_scanned_in_place_needs_no_cache(api: Any) -> None:
    wide = np.arange(600.0).reshape(3, 200)
    for values in (wide.tolist(), {"array": upload(api, wide)}):
        cost = {"type": "array", "values": values}
        job = solved(api, {"cost": cost, "options": {"cache": "1kB"}})
        assert job["state"] == "succeeded", job["problem"]
    narrow = {"type": "array", "values": {"array": upload(api, wide.astype("f2"))}}
    body = {"cost": narrow, "options": {"cache": 399}}
    problem(api.post("/v1/jobs", json=body), 422, "invalid-spec", "/options/cache")
    gated = {"cache": "1kB", "unassigned_cost": 1.0}
    body = {"cost": {"type": "array", "values": wide.tolist()}, "options": gated}
    problem(api.post("/v1/jobs", json=body), 422, "invalid-spec", "/options/cache")
