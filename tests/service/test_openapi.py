"""The OpenAPI document: complete, with examples, and nothing it allows breaks the service."""

from __future__ import annotations

import json
import os
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import numpy as np
import pytest
import schemathesis
from bigsap_server.api.app import create_app
from bigsap_server.costs.request import JobRequest
from bigsap_server.costs.specs import MEMBERS
from checks import SQUARE, solved, upload
from schemathesis.checks import not_a_server_error
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import response_schema_conformance

from apps import settings_in
from gate import HANG_S
from live_server import LiveServer

DOCUMENT: dict[str, Any] = create_app(settings_in(Path("unused"))).app.openapi()
OPERATIONS = {
    found.ok().label: found.ok() for found in schemathesis.openapi.from_dict(DOCUMENT).get_all_operations()
}
# These leave nothing to choose, so that there is no wrong choice either.
FIXED = ("GET /healthz", "GET /readyz")
CASES = [
    pytest.param(label, mode, id=f"{label} {mode.value}")
    for label in OPERATIONS
    for mode in GenerationMode
    if not (label in FIXED and mode == GenerationMode.NEGATIVE)
]
# One check compiles for about a second, in a process of its own.
# A result has few of all the arrays that there are.
EXAMPLES = {"POST /v1/jobs": 20, "POST /v1/costs:check": 3, "GET /v1/jobs/{job_id}/result/{name}": 30}


SEEN: dict[str, Counter[int]] = defaultdict(Counter)


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An address, and the ids of a finished job and of a sealed and an open array.

    The service has a process of its own: hypothesis parses the source of lambdas, and CPython 3.11
    gets the depths of trees wrong that two threads of a process build at once.
    """
    folder: Path = tmp_path_factory.mktemp("schemathesis") / "data"
    limits = {
        "wait_s": 0.05,
        "rows": 500,
        "columns": 500,
        "pairs": 100_000,
        "array_bytes": 1 << 16,
        "check_s": 10,
        "time_limit_s": None,
    }
    server = LiveServer(folder, executor="inline", heartbeat_s=0.1, limits=json.dumps(limits))
    try:
        with server.start().client() as client:
            yield {
                "url": server.url,
                "job_id": solved(client, SQUARE)["id"],
                "sealed": upload(client, np.eye(3)),
                "open": upload(client, np.eye(3), seal=False),
            }
    finally:
        server.kill()


@pytest.mark.some(14)
@pytest.mark.parametrize(("label", "mode"), CASES)
def test_no_request_breaks_the_service(label: str, mode: GenerationMode, service: dict[str, str]) -> None:
    SEEN[label].update(requests(label, mode, service, EXAMPLES.get(label, 8)))
    # The service is as it was.
    assert httpx.get(service["url"] + "/readyz", timeout=HANG_S).status_code == 200


def requests(
    label: str, mode: GenerationMode, service: dict[str, str], examples: int, seed: int | None = None
) -> list[int]:
    """Send so many requests to an operation; their status codes, none of which is 5xx."""
    answers: list[int] = []

    @hypothesis.given(case=OPERATIONS[label].as_strategy(generation_mode=mode))
    def send(case: schemathesis.Case) -> None:
        # A random id is that of nothing: most requests should reach something.
        turn = len(answers) % 3
        if "job_id" in case.path_parameters and turn and case.method != "DELETE":
            case.path_parameters["job_id"] = service["job_id"]
        if "array_id" in case.path_parameters and turn and case.method != "DELETE":
            case.path_parameters["array_id"] = service["open" if turn == 1 else "sealed"]
        answer = case.call(base_url=service["url"], timeout=HANG_S)
        answers.append(answer.status_code)
        # What is answered is what the document promises.
        checks = [not_a_server_error]
        if answer.headers.get("content-type") == ["application/json"]:
            checks.append(response_schema_conformance)
        case.validate_response(answer, checks=checks)
        # What is not HTTP, such as a length that is no number, is refused by the parser before us.
        framed = {"content-length", "transfer-encoding"}.isdisjoint(map(str.lower, case.headers or ()))
        if answer.status_code >= 400 and case.method != "HEAD" and (framed or answer.status_code != 400):
            assert answer.headers["content-type"] == ["application/problem+json"]
            assert answer.json()["status"] == answer.status_code

    again = {} if seed is None else {"derandomize": False}
    send = hypothesis.settings(
        max_examples=examples,
        phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
        **again,
    )(send)
    (send if seed is None else hypothesis.seed(seed)(send))()
    assert answers
    return answers


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_requests_for_as_long_as_told(service: dict[str, str], request: pytest.FixtureRequest) -> None:
    """Other requests in every round, until ``--api-minutes`` are over."""
    end = time.monotonic() + 60 * request.config.getoption("--api-minutes")
    first = int(time.time()) if os.environ.get("BIGSAP_TEST_PROFILE") == "random" else 0
    found: Counter[int] = Counter()
    seed = first
    while time.monotonic() < end:
        for label, mode in (case.values for case in CASES):
            if time.monotonic() > end:
                break
            try:
                found.update(requests(label, mode, service, EXAMPLES.get(label, 25), seed))
            except BaseException:
                print(f"{label} {mode.value}, seed {seed}")
                raise
        assert httpx.get(service["url"] + "/readyz", timeout=HANG_S).status_code == 200
        seed += 1
    print(f"{found.total()} requests in {seed - first} rounds:", dict(sorted(found.items())))
    assert found
    assert max(found) < 500


def test_requests_got_through() -> None:
    """Most operations have answered a request as it wished, not only refused some."""
    if len(SEEN) < len(OPERATIONS):
        pytest.skip("only some of the operations have been tried")
    total = sum(SEEN.values(), Counter())
    print(f"{total.total()} requests:", dict(sorted(total.items())))
    assert total.total() > 200
    assert max(total) < 500
    refused = {label for label, answers in SEEN.items() if min(answers) >= 300}
    # A random id is that of no job; a finished one can be neither cancelled nor resumed.
    assert refused <= {
        "POST /v1/jobs/{job_id}/cancel",
        "POST /v1/jobs/{job_id}/resume",
        "DELETE /v1/jobs/{job_id}",
        "DELETE /v1/arrays/{array_id}",
        "PUT /v1/arrays/{array_id}/rows/{start}",
    }


def test_examples_are_in_the_document_and_valid() -> None:
    schemas = DOCUMENT["components"]["schemas"]
    for member in MEMBERS.values():
        (example,) = schemas[member.__name__]["examples"]
        member.model_validate(example)
    assert len(schemas["JobRequest"]["examples"]) == 2
    for example in schemas["JobRequest"]["examples"]:
        JobRequest.model_validate(example)


def test_errors_are_problem_documents_in_the_document() -> None:
    for path, operations in DOCUMENT["paths"].items():
        for operation in operations.values():
            for status, answer in operation["responses"].items():
                if status.startswith(("4", "5")) and not path.startswith(("/healthz",)):
                    assert list(answer["content"]) == ["application/problem+json"], path


def test_answers_name_their_types() -> None:
    for path, operations in DOCUMENT["paths"].items():
        for operation in operations.values():
            assert operation["responses"].get("200", {"content": True}).get("content"), path


@pytest.mark.parametrize(
    ("method", "path", "statuses"),
    [
        ("post", "/v1/jobs/{job_id}/cancel", {"200", "202"}),
        ("post", "/v1/jobs/{job_id}/resume", {"202"}),
        ("get", "/v1/arrays/{array_id}/data", {"200", "206", "304", "416"}),
        ("get", "/v1/jobs/{job_id}/result/{name}", {"200", "206", "304", "416"}),
        ("get", "/v1/capabilities", {"200", "401", "403", "422", "429"}),
        ("get", "/metrics", {"200", "401", "403", "429"}),
    ],
)
def test_answers_are_in_the_document(method: str, path: str, statuses: set[str]) -> None:
    found = DOCUMENT["paths"][path][method]["responses"]
    assert statuses <= set(found)
    good = {status for status in found if status.startswith("2")}
    assert good == {status for status in statuses if status.startswith("2")}
    if path.endswith(("/cancel", "/resume")):
        for status in good:
            schema = found[status]["content"]["application/json"]["schema"]
            assert schema["$ref"].endswith("/Job")
