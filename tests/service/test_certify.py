"""Jobs that prove or refute a given assignment: small ones by an oracle, errors, cancelling, resuming."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from checks import problem, solved, upload, vector

import bigsap
import exact_oracle as oracle
from gate import Gate, gated_job, until

COST = np.random.default_rng(41).integers(0, 50, (5, 7))
BEST = bigsap.solve(COST)
WORSE = BEST.col4row[[1, 0, 2, 3, 4]]
DRY = "/v1/jobs?dry_run=true"


def asked(col4row: Any = BEST.col4row, v: Any = None, **options: Any) -> dict[str, Any]:
    assignment = {"col4row": np.asarray(col4row).tolist()}
    if v is not None:
        assignment["v"] = np.asarray(v).tolist()
    cost = {"type": "array", "values": COST.tolist()}
    return {"cost": cost, "assignment": assignment, "options": options}


@pytest.mark.parametrize("prices", [False, True])
@pytest.mark.parametrize("maximize", [False, True])
def test_an_assignment_is_proved_or_refuted(api: Any, maximize: bool, prices: bool) -> None:
    best = bigsap.solve(COST, maximize=maximize)
    optimum = oracle.value(oracle.optimum(COST, maximize, None)[0])
    for col4row in (best.col4row, best.col4row[[1, 0, 2, 3, 4]]):
        total = int(COST[np.arange(5), col4row].sum())
        job = solved(api, asked(col4row, best.v if prices else None, maximize=maximize))
        assert (job["state"], job["assignment"]) == ("succeeded", True), job["problem"]
        found = job["result"]
        assert (found["objective"], Fraction(found["bound"])) == (total, optimum)
        assert found["gap"] == abs(total - optimum)
        assert found["success"] is (total == optimum)
        assert found["status"] == ("optimal" if total == optimum else "imprecise")
        assert found["certificate"]["certified"]
        assert found["stats"].get("solved_fun") == (None if prices else optimum)
        assert vector(api, job, "col4row").tolist() == col4row.tolist()
        assert "resume" not in job["links"]


def test_bad_prices_give_a_rough_bound(api: Any) -> None:
    found = solved(api, asked(v=np.zeros(7)))["result"]
    assert found["bound"] == bigsap.certify(COST, BEST.col4row, np.zeros(7)).bound < BEST.fun
    assert found["status"] == "imprecise"
    found = solved(api, asked(v=np.zeros(7), gap=1000.0))["result"]
    assert (found["status"], found["success"]) == ("gap_reached", True)


def test_uploaded_arrays_unassigned_rows_and_capacities(api: Any) -> None:
    for given in ({"unassigned_cost": 9.0}, {"capacity": 2}):
        best = bigsap.solve(COST, **given)
        body = asked(**given)
        body["assignment"] = {"col4row": {"array": upload(api, best.col4row)}}
        job = solved(api, body)
        assert (job["result"]["status"], job["result"]["objective"]) == ("optimal", best.fun), given
        body["assignment"] |= {"v": best.v.tolist()}
        assert solved(api, body)["result"]["objective"] == best.fun


@pytest.mark.parametrize(
    ("change", "pointer"),
    [
        ({"assignment": {"col4row": [0, 0, 1, 2, 3]}}, "/assignment/col4row"),
        ({"assignment": {"col4row": [0, 1, 2, 3, 9]}}, "/assignment/col4row"),
        ({"assignment": {"col4row": [0, 1, 2, 3, -1]}}, "/assignment/col4row"),
        ({"assignment": {"col4row": [0, 1, 2, 3]}}, "/assignment/col4row"),
        ({"assignment": {"col4row": [0, 1, 2, 3, 4], "v": [0.0, 1]}}, "/assignment/v"),
        ({"assignment": {"col4row": [0, 1, 2, 3, 4], "v": ["Infinity"] + [0.0] * 6}}, "/assignment/v"),
        ({"assignment": {"col4row": [0, 1, 2, 3, 4], "v_low": [0.0] * 7}}, "/assignment"),
        ({"options": {"objective": "bottleneck"}}, "/options/objective"),
        ({"options": {"demand": 1}}, "/options/demand"),
    ],
)
def test_what_is_none_is_refused_at_once(api: Any, change: dict[str, Any], pointer: str) -> None:
    for path in ("/v1/jobs", DRY):
        problem(api.post(path, json=asked() | change), 422, "invalid-spec", pointer)
    assert api.get("/v1/jobs").json()["jobs"] == []


def test_prices_exclude_a_start(api: Any) -> None:
    body = asked(v=BEST.v) | {"warm_start": {"v": [0.0] * 7}}
    problem(api.post(DRY, json=body), 422, "invalid-spec", "/warm_start")
    assert solved(api, asked() | {"warm_start": {"v": [0.0] * 7}})["result"]["status"] == "optimal"


def test_a_forbidden_pair_fails_the_job_and_is_named(api: Any) -> None:
    costs: list[list[Any]] = COST.tolist()
    costs[3][int(BEST.col4row[3])] = "Infinity"
    for v in (None, BEST.v):
        body = asked(v=v)
        body["cost"]["values"] = costs
        job = solved(api, body)
        assert job["state"] == "failed"
        assert job["problem"]["type"] == "urn:bigsap:problem:invalid-assignment"
        assert job["problem"]["pointer"] == "/assignment/col4row"
        assert "3" in job["problem"]["detail"]


def test_a_large_assignment_is_checked_by_the_worker(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bigsap_server.costs.validate.SMALL_BYTES", 20)
    body = asked() | {"assignment": {"col4row": {"array": upload(api, np.array([0, 0, 1, 2, 3]))}}}
    job = solved(api, body)
    assert (job["state"], job["problem"]["pointer"]) == ("failed", "/assignment/col4row")
    assert "column 0" in job["problem"]["detail"]


def test_a_pass_costs_less_than_a_solve(api: Any) -> None:
    body = {"shape": [4000, 4000], "cost": {"type": "expression", "code": "(i - j) ** 2"}}
    body["assignment"] = {"col4row": {"array": upload(api, np.arange(4000))}}
    solve = api.post(DRY, json=body).json()["estimate"]
    body["assignment"]["v"] = {"array": upload(api, np.zeros(4000))}
    proof = api.post(DRY, json=body).json()["estimate"]
    assert proof["seconds"] < solve["seconds"]
    assert proof["memory_bytes"] < solve["memory_bytes"]
    assert proof["disk"]["checkpoint"] == 0


def gated(gate: Gate, v: bool) -> dict[str, Any]:
    body = gated_job(gate, n=60, after=30)
    body["assignment"] = {"col4row": list(range(60))}
    if v:
        body["assignment"]["v"] = [0.0] * 60
    return body


@pytest.mark.parametrize("v", [False, True])
def test_cancelling_and_resuming(make_app: Callable[..., Any], gate: Gate, v: bool) -> None:
    api = make_app()
    job = api.post("/v1/jobs", json=gated(gate, v)).json()
    gate.wait_for_readers()
    api.post(job["links"]["cancel"], json={"mode": "graceful"})

    def ended() -> Any:
        found = api.get(job["links"]["self"]).json()
        return found["finished"] and found

    found = until(ended)
    assert (found["state"], "outcome" in found) == ("cancelled", False)
    gate.open()
    assert api.post(found["links"]["resume"]).status_code == 202
    found = until(ended)
    assert (found["state"], found["outcome"]["status"]) == ("succeeded", "imprecise"), found
    assert found["outcome"]["gap"] > 0
