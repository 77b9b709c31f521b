"""Jobs whose row provider misbehaves: they end, with their problem, and whoever waits hears it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
from bigsap_server.api.app import create_app
from checks import problem

from apps import served, settings_in
from gate import HANG_S, until
from remote_provider import Fault, Handler, Provider

COST = np.random.default_rng(3).random((12, 12))
ENDED = ("succeeded", "failed", "cancelled")


def status(code: int, **headers: str) -> Fault:
    def fault(handler: Handler, ids: Any) -> None:
        handler.send(b"", None, code, **headers)

    return fault


def cut(handler: Handler, ids: Any) -> None:
    """Half of what was announced, and the connection is gone."""
    kind = "application/json" if ids is None else "application/octet-stream"
    size = 200 if ids is None else len(ids) * (8 + COST[0].nbytes)
    handler.send_head(200, {"Content_Type": kind, "Content_Length": str(size)} | handler.labels())
    handler.wfile.write(bytes(size // 2))
    handler.drop()


AT_ONCE = {
    "404": (status(404), "404 Not Found"),
    "410": (status(410), "410 Gone"),
    "redirect": (status(302, Location="/elsewhere"), "redirects"),
    "moved": (status(308, Location="/elsewhere"), "redirects"),
}
IN_TIME = {"500": (status(500), "500"), "503": (status(503), "503"), "cut": (cut, "connection")}


@pytest.fixture(scope="module")
def lasting() -> Iterator[Provider]:
    with Provider(COST) as found:
        yield found


@pytest.fixture
def provider(lasting: Provider) -> Iterator[Provider]:
    yield lasting
    for method in ("GET", "POST"):
        lasting.always[method] = None
        lasting.faults[method].clear()


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory, lasting: Provider) -> Iterator[httpx.Client]:
    """A service behind a socket that may ask the provider, and tries a job twice."""
    folder = tmp_path_factory.mktemp("providers") / "data"
    app = create_app(settings_in(folder, http_rows_hosts=[lasting.host], attempts=2))
    with served(app) as url, httpx.Client(base_url=url, timeout=HANG_S) as client:
        yield client


def job_of(provider: Provider, **given: Any) -> dict[str, Any]:
    cost = {"type": "http_rows", "url": provider.url, "dtype": "f8", "retries": 0} | given
    return {"shape": list(COST.shape), "cost": cost}


def followed(api: httpx.Client, body: dict[str, Any]) -> dict[str, Any]:
    """The job when it has ended, as a client follows it: by long polls until an end state."""
    answer = api.post("/v1/jobs", json=body)
    while answer.json()["state"] not in ENDED:
        answer = api.get(
            answer.json()["links"]["self"],
            params={"wait": 20},
            headers={"If-None-Match": answer.headers["ETag"]},
        )
        assert answer.status_code == 200
    found: dict[str, Any] = answer.json()
    return found


def check_failed(api: httpx.Client, job: dict[str, Any]) -> None:
    assert (job["state"], job["problem"]["type"]) == ("failed", "urn:bigsap:problem:source-failed")
    assert job["finished"] is not None
    assert "resume" in job["links"]
    assert "cancel" not in job["links"]
    # Nothing is left to wait for.
    answer = api.get(job["links"]["self"])
    again = api.get(
        job["links"]["self"], params={"wait": 30}, headers={"If-None-Match": answer.headers["ETag"]}
    )
    assert again.status_code == 304
    problem(api.get(job["links"]["result"]), 409, "no-result")
    events = api.get(job["links"]["events"], headers={"Accept": "application/json"}).json()
    assert events["over"] is True
    assert [e["data"]["state"] for e in events["events"] if e["kind"] == "state"][-1] == "failed"


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("name", AT_ONCE)
def test_what_will_not_change_fails_at_once(
    api: httpx.Client, provider: Provider, name: str, method: str
) -> None:
    provider.always[method], said = AT_ONCE[name]
    job = followed(api, job_of(provider))
    check_failed(api, job)
    assert job["attempt"] == 1
    assert said in job["problem"]["detail"]
    assert "in a row" not in job["problem"]["detail"]


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("name", IN_TIME)
def test_what_may_change_is_tried_again_and_given_up(
    api: httpx.Client, provider: Provider, name: str, method: str
) -> None:
    provider.always[method], said = IN_TIME[name]
    job = followed(api, job_of(provider))
    check_failed(api, job)
    assert job["attempt"] == 2
    assert said in job["problem"]["detail"]
    assert job["problem"]["detail"].endswith(", 2 times in a row")


def test_a_provider_that_comes_back_is_used(api: httpx.Client, provider: Provider) -> None:
    provider.faults["GET"].append(status(503))
    job = followed(api, job_of(provider))
    assert (job["state"], job["attempt"], job["problem"]) == ("succeeded", 2, None)


def test_a_failed_job_can_be_resumed(api: httpx.Client, provider: Provider) -> None:
    provider.always["GET"] = status(410)
    job = followed(api, job_of(provider))
    assert job["state"] == "failed"
    provider.always["GET"] = None
    assert api.post(job["links"]["resume"]).status_code == 202
    job = until(lambda: (j := api.get(job["links"]["self"]).json())["state"] in ENDED and j)
    assert (job["state"], job["attempt"]) == ("succeeded", 2)
