"""Jobs over HTTP: submitting, waiting, listing, cancelling, resuming, deleting, following."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import httpx
import numpy as np
import pytest
from bigsap_server.api import routes_jobs
from bigsap_server.jobs.model import StoreUnavailable, UnknownJob
from checks import NOW, SQUARE, problem, solved, upload, vector

from gate import HANG_S, Gate, gated_job, until


@pytest.fixture
def waiting(gate: Gate) -> dict[str, Any]:
    """A job that waits, in a search, until the gate is opened."""
    return gated_job(gate, after=1500)


def wait_for(api: Any, job: dict[str, Any], *states: str) -> dict[str, Any]:
    def there() -> Any:
        found = api.get(job["links"]["self"]).json()
        return found["state"] in states and found

    found: dict[str, Any] = until(there)
    return found


def test_submit_answers_at_once(api: Any) -> None:
    answer = api.post("/v1/jobs", json=SQUARE | {"label": "three"})
    assert answer.status_code == 202
    job = answer.json()
    assert answer.headers["Location"] == f"/v1/jobs/{job['id']}" == job["links"]["self"]
    assert int(answer.headers["Retry-After"]) >= 1
    assert job["state"] in ("queued", "starting", "running")
    assert (job["label"], job["cost"], job["shape"]) == ("three", "array", [3, 3])
    found = wait_for(api, job, "succeeded")
    assert found["finished"] >= found["started"] >= found["created"]
    assert found["outcome"] == {"status": "optimal", "success": True, "objective": 5, "bound": 5, "gap": 0}
    assert "resume" not in found["links"]


def test_prefer_wait_gives_the_result(api: Any) -> None:
    answer = api.post("/v1/jobs", json=SQUARE, headers=NOW)
    problem(api.post(answer.json()["links"]["self"] + "/cancel"), 409, "wrong-state")
    assert answer.status_code == 200
    assert answer.headers["Preference-Applied"] == "wait=30"
    job = answer.json()
    assert job["state"] == "succeeded"
    assert job["result"]["objective"] == 5
    assert job["result"] == api.get(job["links"]["result"]).json()


@pytest.mark.parametrize("error", [UnknownJob("gone"), StoreUnavailable("full")])
def test_what_happens_while_it_is_waited_for_changes_no_acceptance(
    api: Any, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def gone(*_: Any) -> None:
        raise error

    monkeypatch.setattr(routes_jobs, "_waited", gone)
    answer = api.post("/v1/jobs", json=SQUARE, headers=NOW)
    assert answer.status_code == 202
    assert answer.headers["Location"] == answer.json()["links"]["self"]


def test_a_service_without_long_polls(make_app: Callable[..., Any], waiting: dict[str, Any]) -> None:
    """It answers at once, and says when to come again."""
    api = make_app(limits={"wait_s": 0})
    answer = api.post("/v1/jobs", json=waiting, headers={"Prefer": "wait=50"})
    assert (answer.status_code, answer.headers["Preference-Applied"]) == (202, "wait=0")
    link = answer.json()["links"]["self"]
    running = wait_for(api, answer.json(), "running")
    seen = {"If-None-Match": api.get(running["links"]["self"]).headers["ETag"]}
    for headers in (seen, {}):
        found = api.get(link, params={"wait": 30}, headers=headers)
        assert found.status_code in (200, 304)
        assert int(found.headers["Retry-After"]) >= 1
    api.post(answer.json()["links"]["cancel"], json={"mode": "now"})
    wait_for(api, answer.json(), "cancelled")
    assert "Retry-After" not in api.get(link, params={"wait": 30}).headers


def test_a_replay_is_the_first_answer(api: Any) -> None:
    """Status, body and headers, whatever has become of the job, and whatever is preferred now."""
    names = ("Location", "ETag", "Retry-After", "Preference-Applied", "Content-Location")
    for prefer in ({}, NOW, {"Prefer": "wait=0"}):
        key = {"Idempotency-Key": f"first {prefer}"}
        first = api.post("/v1/jobs", json=SQUARE, headers=key | prefer)
        assert first.status_code == (200 if prefer == NOW else 202)
        wait_for(api, first.json(), "succeeded")
        for other in ({}, NOW):
            again = api.post("/v1/jobs", json=SQUARE, headers=key | other)
            assert (again.status_code, again.content) == (first.status_code, first.content)
            for name in names:
                assert again.headers.get(name) == first.headers.get(name)
            assert again.headers["Idempotency-Replayed"] == "true"
    assert len(api.get("/v1/jobs").json()["jobs"]) == 3


def test_a_replay_outlives_what_it_refers_to(api: Any) -> None:
    array = upload(api, np.eye(2))
    earlier = solved(api, SQUARE)
    key = {"Idempotency-Key": "k", "Prefer": "wait=30"}
    points = {"cost": {"type": "points", "x": {"array": array}, "y": [[1, 2], [3, 4]]}}
    start = SQUARE | {"warm_start": {"job": earlier["id"]}}
    first = api.post("/v1/jobs", json=points, headers=key)
    warm = api.post("/v1/jobs", json=start, headers=key | {"Idempotency-Key": "w"})
    assert first.status_code == warm.status_code == 200
    assert api.delete(f"/v1/arrays/{array}").status_code == 204
    assert api.delete(earlier["links"]["self"]).status_code == 204
    again = api.post("/v1/jobs", json=points, headers=key)
    assert again.status_code == 200, again.text
    assert again.headers["Idempotency-Replayed"] == "true"
    assert again.json() == first.json()
    again = api.post("/v1/jobs", json=start, headers=key | {"Idempotency-Key": "w"})
    assert again.json() == warm.json()
    # Another body with the key is a conflict, whatever else is wrong with it.
    other = points | {"label": "other"}
    problem(api.post("/v1/jobs", json=other, headers=key), 409, "idempotency-conflict")
    # Without the key it is judged as ever, and a dry run replays nothing.
    problem(api.post("/v1/jobs", json=points), 422, "invalid-spec", "/cost/x")
    problem(api.post("/v1/jobs?dry_run=true", json=points, headers=key), 422, "invalid-spec")


def test_etag_and_long_poll(serve_app: Callable[..., str]) -> None:
    with httpx.Client(base_url=serve_app(), timeout=HANG_S) as api:
        job = api.post("/v1/jobs", json=SQUARE).json()
        tag, states = "", [job["state"]]
        while states[-1] != "succeeded":
            answer = api.get(job["links"]["self"], params={"wait": 20}, headers={"If-None-Match": tag})
            assert answer.status_code == 200
            assert answer.headers["ETag"] != tag
            tag = answer.headers["ETag"]
            states.append(answer.json()["state"])
        unchanged = api.get(job["links"]["self"], headers={"If-None-Match": tag})
        assert unchanged.status_code == 304
        assert unchanged.content == b""
        assert unchanged.headers["ETag"] == tag
        # It has ended: there is nothing to wait for.
        waited = api.get(
            job["links"]["self"], params={"wait": 30}, headers={"If-None-Match": f'W/"x", {tag}'}
        )
        assert waited.status_code == 304
        assert api.get(job["links"]["self"], params={"wait": 30}).status_code == 200


@pytest.mark.parametrize("mode", ["graceful", "now"])
def test_cancel_a_running_job(api: Any, mode: str, gate: Gate, waiting: dict[str, Any]) -> None:
    job = api.post("/v1/jobs", json=waiting).json()
    wait_for(api, job, "running")
    gate.wait_for_readers()
    answer = api.post(job["links"]["cancel"], json={"mode": mode})
    assert answer.status_code in (200, 202)
    assert answer.json()["cancel"] == mode
    found = wait_for(api, job, "cancelled")
    assert "resume" in found["links"]
    if mode == "graceful":
        result = api.get(job["links"]["result"]).json()
        assert result["status"] == "cancelled"
        found = result["certificate"]
        # The grace of a stop may suffice for the certificate, or not.
        whole = found["by"] is not None and found["gap"] is not None
        assert found["certified"] is whole
        proved = None if found["bound"] is None else "search"
        assert found["bound_from"] == ("certificate" if whole else proved)
    else:
        problem(api.get(job["links"]["result"]), 409, "no-result")
    assert api.post(job["links"]["self"] + "/cancel").status_code == 200


def test_how_the_proof_was_made_is_told(api: Any) -> None:
    spec = {"cost": {"type": "array", "values": [[4, 1, 3], [2, 0, 5], [3, 2, 2]]}}
    job = api.post("/v1/jobs", json=spec | {"options": {"certify": "pairs"}}).json()
    result = api.get(wait_for(api, job, "succeeded")["links"]["result"]).json()
    assert result["certificate"]["certified"]
    assert (result["certificate"]["by"], result["certificate"]["pairs"]) == ("pairs", 9)
    assert api.post("/v1/jobs", json=spec | {"options": {"certify": False}}).status_code == 422


def test_resume_and_delete(api: Any, waiting: dict[str, Any]) -> None:
    job = api.post("/v1/jobs", json=waiting).json()
    wait_for(api, job, "running")
    problem(api.delete(job["links"]["self"]), 409, "wrong-state")
    problem(api.post(job["links"]["self"] + "/resume"), 409, "wrong-state")
    problem(api.post(job["links"]["cancel"], json={"mode": "softly"}), 422, "invalid-spec", "/mode")
    api.post(job["links"]["cancel"], json={"mode": "now"})
    wait_for(api, job, "cancelled")
    again = api.post(job["links"]["self"] + "/resume")
    assert again.status_code == 202
    assert again.json()["state"] in ("queued", "starting", "running")
    assert wait_for(api, job, "running")["attempt"] == 2
    api.post(job["links"]["cancel"], json={"mode": "now"})
    wait_for(api, job, "cancelled")
    assert api.delete(job["links"]["self"]).status_code == 204
    problem(api.get(job["links"]["self"]), 404, "not-found")
    problem(api.delete(job["links"]["self"]), 404, "not-found")


def test_if_match_is_obeyed(api: Any, waiting: dict[str, Any]) -> None:
    """Who has seen another state of the job changes nothing."""
    job = api.post("/v1/jobs", json=waiting).json()["links"]["self"]
    wait_for(api, {"links": {"self": job}}, "running")
    for path, then in (("/cancel", "cancelled"), ("/resume", "running"), ("/cancel", "cancelled"), ("", "")):
        method, before = "POST" if path else "DELETE", api.get(job)
        for stale in ('"0"', f"W/{before.headers['ETag']}", ""):
            problem(api.request(method, job + path, headers={"If-Match": stale}), 412, "precondition-failed")
        assert api.get(job).json()["state"] == before.json()["state"]
        last = until(partial(_matched, api, method, job, path))
        if then:
            wait_for(api, {"links": {"self": job}}, then)
    assert last.status_code == 204
    problem(api.delete(job, headers={"If-Match": "*"}), 404, "not-found")


def _matched(api: Any, method: str, job: str, path: str) -> Any:
    """The answer with the present tag, unless the job has changed between."""
    tags = f'"0", {api.get(job).headers["ETag"]}'
    answer = api.request(method, job + path, headers={"If-Match": tags})
    return answer.status_code != 412 and answer


def test_warm_start(api: Any) -> None:
    first = solved(api, SQUARE)
    again = solved(api, SQUARE | {"warm_start": {"job": first["id"]}})
    assert again["result"]["objective"] == 5
    v = vector(api, first, "v").tolist()
    col4row = vector(api, first, "col4row").tolist()
    given = solved(api, SQUARE | {"warm_start": {"v": v, "col4row": col4row}})
    assert given["result"]["objective"] == 5
    wide = {"cost": {"type": "array", "values": [[1, 2]]}, "warm_start": {"job": first["id"]}}
    problem(api.post("/v1/jobs", json=wide), 422, "invalid-spec", "/warm_start/job")


COUNTS = [{}, {"demand": [2, 1]}, {"capacity": [1, 2, 0]}, {"unassigned_cost": 3}]


@pytest.mark.some(7)
@pytest.mark.parametrize("of", COUNTS)
@pytest.mark.parametrize("to", COUNTS)
def test_a_job_starts_from_one_of_other_counts(api: Any, of: dict[str, Any], to: dict[str, Any]) -> None:
    cost = {"type": "array", "values": [[4, 1, 3], [2, 0, 5]]}
    first = solved(api, {"cost": cost, "options": of})
    again = solved(api, {"cost": cost, "options": to, "warm_start": {"job": first["id"]}})
    assert again["state"] == "succeeded", again["problem"]
    assert again["result"]["objective"] == solved(api, {"cost": cost, "options": to})["result"]["objective"]
    assert again["result"]["status"] == "optimal"


def read_events(lines: Any) -> list[dict[str, str]]:
    """The events of a stream, as the standard says."""
    found: list[dict[str, str]] = []
    event: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            event[name] = value.removeprefix(" ")
        elif event:
            found.append(event)
            event = {}
    return found


def test_event_stream(serve_app: Callable[..., str]) -> None:
    with httpx.Client(base_url=serve_app(), timeout=HANG_S) as api:
        job = api.post("/v1/jobs", json=SQUARE).json()
        with api.stream("GET", job["links"]["events"]) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            found = read_events(stream.iter_lines())
        assert found[-1]["event"] == "end"
        ids = [int(event["id"]) for event in found[:-1]]
        assert ids == list(range(1, len(ids) + 1))
        states = [json.loads(e["data"])["data"]["state"] for e in found if e["event"] == "state"]
        assert states[0] == "queued"
        assert states[-1] == "succeeded"
        # Cut off anywhere, it goes on without a gap or a repetition.
        for last in ids[:-1]:
            header = {"Last-Event-ID": str(last)}
            with api.stream("GET", job["links"]["events"], headers=header) as stream:
                rest = read_events(stream.iter_lines())
            assert [int(event["id"]) for event in rest[:-1]] == ids[last:]
        done = api.get(job["links"]["events"], headers={"Last-Event-ID": str(ids[-1])})
        assert done.status_code == 204


def test_events_as_json_pages(api: Any) -> None:
    job = solved(api, SQUARE)
    accept = {"Accept": "application/json"}
    whole = api.get(job["links"]["events"], headers=accept).json()
    assert whole["over"] is True
    assert [event["seq"] for event in whole["events"]] == list(range(1, whole["next"] + 1))
    seen, after = [], 0
    while True:
        page = api.get(job["links"]["events"], params={"after": after, "limit": 2}, headers=accept).json()
        # Who reads until it is over has all of them.
        assert page["over"] is (
            len(seen + page["events"]) == len(whole["events"]) and len(page["events"]) < 2
        )
        if not page["events"]:
            break
        seen += page["events"]
        after = page["next"]
    assert seen == whole["events"]


def progress_of(api: Any, job: dict[str, Any], count: int) -> list[dict[str, Any]]:
    """So many reports of a solve that waits at a gate."""
    seen: list[dict[str, Any]] = []
    with api.stream("GET", job["links"]["events"]) as stream:
        for line in stream.iter_lines():
            if line.startswith("data:") and '"kind":"progress"' in line:
                state = json.loads(line[5:])["data"]
                if state.get("phase"):  # on a busy machine there are reports before the first
                    seen.append(state)
                if len(seen) == count:
                    break
    api.post(job["links"]["cancel"], json={"mode": "now"})
    wait_for(api, job, "cancelled")
    return seen


def test_progress_of_compressed_rows_has_bounds(serve_app: Callable[..., str], gate: Gate) -> None:
    """From the first phase on, long before it is over."""
    spec = gated_job(gate, after=300, method="compressed")
    with httpx.Client(base_url=serve_app(), timeout=HANG_S) as api:
        seen = progress_of(api, api.post("/v1/jobs", json=spec).json(), 3)
    for state in seen:
        assert state["phase"] == 1
        assert state["lower_bound"] is not None
        if state["upper_bound"] is not None:  # single pairs of these costs are not cheap
            assert state["lower_bound"] <= state["upper_bound"]
            assert state["gap"] == state["upper_bound"] - state["lower_bound"]
    for name in ("rows_evaluated", "rows_scanned", "level"):
        assert all(state[name] >= 0 for state in seen)


def test_streams_have_a_limit(serve_app: Callable[..., str], waiting: dict[str, Any]) -> None:
    with httpx.Client(base_url=serve_app(limits={"streams": 1}), timeout=HANG_S) as api:
        job = api.post("/v1/jobs", json=waiting).json()
        with api.stream("GET", job["links"]["events"]) as stream:
            lines = stream.iter_lines()
            next(lines)
            answer = api.get(job["links"]["events"])
            problem(answer, 429, "too-many-requests")
            assert "Retry-After" in answer.headers

        # Its place is free again as soon as the service sees that the client has left.
        def streams() -> bool:
            with api.stream("GET", job["links"]["events"]) as stream:
                return stream.status_code == 200

        until(streams)
        api.post(job["links"]["cancel"], json={"mode": "now"})
        wait_for(api, job, "cancelled")


def test_result_arrays(api: Any) -> None:
    job = solved(api, SQUARE)
    link = job["links"]["result"]
    np.testing.assert_array_equal(vector(api, job, "col4row"), [1, 0, 2])
    np.testing.assert_array_equal(vector(api, job, "row4col"), [1, 0, 2])
    u, v = vector(api, job, "u"), vector(api, job, "v")
    assert u.sum() + v.sum() == 5
    text = api.get(link + "/u", headers={"Accept": "text/csv"})
    assert text.headers["content-type"].startswith("text/csv")
    rows = [line.split(",") for line in text.text.splitlines()]
    assert rows[0] == ["row", "u"]
    assert [float(value) for _, value in rows[1:]] == u.tolist()
    part = api.get(link + "/v?offset=1&limit=1", headers={"Accept": "text/csv"}).text
    assert part.splitlines() == ["column,v", f"1,{v[1]!r}".replace("np.float64(", "").rstrip(")")]
    page = api.get(
        link + "/col4row", params={"offset": 1, "limit": 1}, headers={"Accept": "application/json"}
    ).json()
    assert page == {"name": "col4row", "offset": 1, "total": 3, "values": [0], "next": 2}
    past = api.get(link + "/u?offset=99", headers={"Accept": "application/json"}).json()
    assert (past["values"], past["next"]) == ([], None)
    whole = api.get(link + "/u").content
    answer = api.get(link + "/u", headers={"Range": "bytes=-8"})
    assert (answer.status_code, answer.content) == (206, whole[-8:])
    problem(api.get(link + "/u", headers={"Range": f"bytes={len(whole)}-"}), 416, "range-not-satisfiable")
    problem(api.get(link + "/u", headers={"Accept": "image/png"}), 406, "not-acceptable")
    problem(api.get(link + "/w"), 404, "not-found")


def test_costs_check(make_app: Callable[..., Any]) -> None:
    api = make_app(limits={"check_s": HANG_S})
    cost = {"type": "expression", "code": "x[i] / (j + 1)", "arrays": {"x": [1.0, 2.0]}}
    found = api.post("/v1/costs:check", json={"shape": [2, 2], "cost": cost}).json()
    assert found["ok"] is True
    assert (found["shape"], found["dtype"]) == ([2, 2], "float64")
    assert found["sample"]["costs"] == [[1.0, 0.5], [2.0, 1.0]]
    assert found["compile_s"] >= 0
    nan = {"shape": [2, 2], "cost": cost | {"code": "x[i] / j - x[i] / j"}}
    problem(api.post("/v1/costs:check", json=nan), 422, "invalid-cost", "/cost")


def test_costs_check_that_takes_too_long(make_app: Callable[..., Any]) -> None:
    api = make_app(limits={"check_s": 1e-3})
    found = api.post("/v1/costs:check", json=SQUARE)
    problem(found, 422, "over-limit", "/cost")


def test_catalogue_and_capabilities(api: Any) -> None:
    found = api.get("/v1/cost-types").json()
    assert found == api.get("/v1/kernels").json()
    kernels = {entry["type"]: entry for entry in found["kernels"]}
    assert len(kernels) == 14
    for entry in kernels.values():
        assert entry["schema"]["properties"]["type"]["const"] == entry["type"]
        assert entry["example"]["type"] == entry["type"]
        assert entry["description"]
    assert kernels["http_rows"]["enabled"] is False
    assert kernels["points"]["enabled"] is True
    found = api.get("/v1/capabilities").json()
    assert found["limits"]["inline_numbers"] == 10_000
    assert found["devices"] == ["cpu"]
    assert found["versions"]["bigsap"]
    assert found["auth"] is False


def test_defaults_of_options_are_the_operators(make_app: Callable[..., Any]) -> None:
    api = make_app({"time_limit_s": 90}, checkpoint_s=7.5, threads_per_job=1)
    options = api.get("/v1/capabilities").json()["options"]
    found = {one["name"]: one["default"] for one in options}
    helps = {one["name"]: one["help"] for one in options}
    assert "60" not in helps["checkpoint_s"]
    assert "this process" not in helps["threads"]
    assert "cuda" not in helps["device"]
    assert (found["checkpoint_s"], found["time_limit_s"], found["threads"]) == (7.5, 90, 1)
    assert (found["maximize"], found["device"], found["cache"]) == (False, "auto", None)


def test_readiness_follows_the_parts(make_app: Callable[..., Any]) -> None:
    api = make_app()
    service = api.app.app.state.service
    service.supervisor.stop()
    found = problem(api.get("/readyz"), 503, "unavailable")
    assert found["checks"] == {"store": True, "executor": False, "disk": True, "accepting": True}
    assert api.get("/healthz").status_code == 200


def test_headers_of_every_answer(api: Any) -> None:
    for path in ("/healthz", "/v1/jobs", "/v1/nothing"):
        headers = api.get(path).headers
        policy = headers["content-security-policy"]
        assert policy == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self';"
            " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
        )
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["x-request-id"]
        assert "server" not in headers
    assert api.get("/v1/jobs").headers["cache-control"] == "no-store"
    given = api.get("/healthz", headers={"X-Request-ID": "my-id.1"})
    assert given.headers["x-request-id"] == "my-id.1"


def test_an_error_of_the_service_shows_nothing(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: Any, **__: Any) -> Any:
        raise RuntimeError("secret in /home/me/service.py")

    monkeypatch.setattr(api.app.app.state.service.store, "page", broken)
    found = problem(api.get("/v1/jobs"), 500, "internal")
    assert "secret" not in json.dumps(found)


def test_a_replay_before_the_first_answer_waits_as_it_prefers(
    serve_app: Callable[..., str], waiting: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second that the first request waits for is over when its replay is answered."""
    waited, over = routes_jobs._waited, threading.Event()

    async def until_over(service: Any, job: Any, seconds: float, done: Any) -> Any:
        assert seconds == 1.0
        assert await asyncio.to_thread(over.wait, HANG_S)
        return await waited(service, job, 0.0, done)

    monkeypatch.setattr(routes_jobs, "_waited", until_over)
    with httpx.Client(base_url=serve_app(limits={"wait_s": 1.0}), timeout=HANG_S) as api:
        key, first = {"Idempotency-Key": "early"}, list[Any]()
        sent = threading.Thread(
            target=lambda: first.append(api.post("/v1/jobs", json=waiting, headers=key | NOW))
        )
        sent.start()
        until(lambda: api.get("/v1/jobs").json()["jobs"])
        early = api.post("/v1/jobs", json=waiting, headers=key)
        over.set()
        sent.join(HANG_S)
        later = api.post("/v1/jobs", json=waiting, headers=key)
        assert early.status_code == first[0].status_code == later.status_code == 202
        assert early.json()["id"] == first[0].json()["id"]
        assert early.headers["Idempotency-Replayed"] == "true"
        assert "Preference-Applied" not in early.headers
        assert later.content == first[0].content
        assert later.headers["Preference-Applied"] == "wait=1"
        api.post(early.json()["links"]["cancel"], json={"mode": "now"})
        wait_for(api, early.json(), "cancelled")


def test_quota_of_active_jobs(make_app: Callable[..., Any], waiting: dict[str, Any]) -> None:
    api = make_app(limits={"active_jobs": 1})
    job = api.post("/v1/jobs", json=waiting).json()
    answer = api.post("/v1/jobs", json=SQUARE)
    problem(answer, 429, "quota-exceeded")
    assert int(answer.headers["Retry-After"]) >= 1
    api.post(job["links"]["cancel"], json={"mode": "now"})
    wait_for(api, job, "cancelled")
    assert api.post("/v1/jobs", json=SQUARE).status_code == 202
