"""Behind a proxy that takes a prefix from paths, and before probes that name no host."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from typing import Any
from urllib.parse import urljoin, urlsplit

import pytest
from bigsap_server.settings import Settings
from checks import problem

from apps import TestClient

SQUARE = {"cost": {"type": "array", "values": [[1, 2], [3, 4]]}}
PREFIX = "/tools/bigsap"
OUTSIDE = f"https://example.org{PREFIX}"


def inside(place: str, seen_at: str = OUTSIDE) -> str:
    """The path that the service is asked for when a client goes to ``place`` from ``seen_at``."""
    found = urlsplit(urljoin(seen_at, place))
    assert (found.scheme, found.netloc) == ("https", "example.org")
    assert found.path.startswith(f"{PREFIX}/"), found
    return found.path.removeprefix(PREFIX)


def links_of(document: Any) -> list[str]:
    """All links, however deep."""
    if isinstance(document, dict):
        found = list(document.get("links", {}).values())
        return found + [link for value in document.values() for link in links_of(value)]
    if isinstance(document, list):
        return [link for value in document for link in links_of(value)]
    return []


def test_all_places_have_the_prefix(make_app: Callable[..., TestClient]) -> None:
    api = make_app(root_path=PREFIX, limits={"wait_s": 600})
    made = api.post("/v1/jobs", json=SQUARE, headers={"Idempotency-Key": "k"})
    assert inside(made.headers["Location"]) == f"/v1/jobs/{made.json()['id']}"
    again = api.post("/v1/jobs", json=SQUARE, headers={"Idempotency-Key": "k"})
    assert again.headers["Location"] == made.headers["Location"]
    waited = api.post("/v1/jobs", json=SQUARE, headers={"Prefer": "wait=600"})
    job = waited.json()
    for name in ("Location", "Content-Location"):
        assert inside(waited.headers[name]) == f"/v1/jobs/{waited.json()['id']}"
    array = api.post("/v1/arrays", json={"dtype": "f8", "shape": [1]})
    assert inside(array.headers["Location"]) == f"/v1/arrays/{array.json()['id']}"
    result = api.get(f"/v1/jobs/{job['id']}/result").json()
    documents = [
        made.json(),
        waited.json(),
        array.json(),
        result,
        api.get("/v1/jobs").json(),
        api.get("/v1/arrays").json(),
        api.get(f"/v1/jobs/{job['id']}").json(),
    ]
    for document in documents:
        links = links_of(document)
        assert links
        for link in links:
            inside(link)
    assert api.get(inside(result["links"]["u"])).status_code == 200
    refused = api.get("/v1/jobs/job_none")
    assert inside(problem(refused, 404, "not-found")["instance"]) == "/v1/jobs/job_none"
    refused = api.get("/v1/nothing")
    assert inside(problem(refused, 404, "not-found")["instance"]) == "/v1/nothing"
    large = api.get("/v1/jobs", headers={"X-Large": "x" * 40_000})
    assert inside(problem(large, 431, "headers-too-large")["instance"]) == "/v1/jobs"
    assert api.get("/openapi.json").json()["servers"] == [{"url": PREFIX}]


@pytest.mark.parametrize("prefix", ["", PREFIX])
def test_redirects_are_relative(make_app: Callable[..., TestClient], prefix: str) -> None:
    """Neither scheme, host nor prefix of the client's side is known here, and none is needed."""
    api = make_app(root_path=prefix)
    answer = api.get("/docs", follow_redirects=False)
    assert answer.status_code == 307
    assert answer.headers["Location"] == "./docs/"
    for path in ("/v1/jobs/", "/healthz/", "/v1/jobs/?page_size=1&label=a%20b", "/v1/jobs/a%3Fb/"):
        answer = api.post(path, follow_redirects=False)
        place = answer.headers["Location"]
        assert (answer.status_code, place[:3]) == (307, "../")
        asked, found = urlsplit(path), urlsplit(urljoin(OUTSIDE + path, place))
        assert (inside(place, OUTSIDE + path), found.query) == (asked.path[:-1], asked.query)
    for path in ("/v1/jobs//", "/nothing/"):
        problem(api.get(path, follow_redirects=False), 404, "not-found")


@pytest.mark.parametrize("path", ["", "/", "/a", "/a/", "/a/b-c.d_e~f"])
def test_root_paths(path: str) -> None:
    assert Settings(root_path=path).root_path == path.rstrip("/")


@pytest.mark.parametrize(
    "path", ["a", "a/b", "/a b", "/a//b", "/../a", "/a/.", "/a?b", "/é", "http://x/a", "/a\n"]
)
def test_what_is_no_root_path(path: str) -> None:
    with pytest.raises(ValueError, match="is no path such as"):
        Settings(root_path=path)


def spoken(address: str, text: str) -> tuple[int, bytes]:
    """Status and body of what is answered to the lines of a request."""
    parts = urlsplit(address)
    with socket.create_connection((parts.hostname, parts.port), timeout=200) as line:
        line.sendall(text.replace("\n", "\r\n").encode())
        answer = b""
        while piece := line.recv(65536):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def test_probes_need_name_no_host(serve_app: Callable[..., str]) -> None:
    address = serve_app()
    for path in ("/healthz", "/readyz"):
        status, body = spoken(address, f"GET {path} HTTP/1.0\n\n")
        assert status == 200
        assert json.loads(body)["status"] in ("ok", "ready")
        assert spoken(address, f"HEAD {path} HTTP/1.0\n\n") == (200, b"")
        # Another site's name is still DNS rebinding.
        assert spoken(address, f"GET {path} HTTP/1.0\nHost: evil.example\n\n")[0] == 403
        assert spoken(address, f"GET {path} HTTP/1.0\nHost: \n\n")[0] == 403
    for path in ("/v1/jobs", "/", "/metrics", "/openapi.json"):
        assert spoken(address, f"GET {path} HTTP/1.0\n\n")[0] == 403
