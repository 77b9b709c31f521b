"""Results whose optimality is proved only to within their gap; duals that are pairs of doubles."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bigsap_server.jobs import worker
from checks import problem

import bigsap
from apps import TestClient
from bigsap.cli import commands as cli
from bigsap.client import Client

COSTS = [[4.0, 1, 3], [2, 0, 5], [3, 2, 2]]
REQUEST = {"cost": {"type": "array", "values": COSTS}}
LOW = np.array([0.0, 2.0**-60, -(2.0**-61)])
LOW_V = np.array([2.0**-70, 0.0, 0.0])


@pytest.fixture
def imprecise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is solved here ends as imprecise, with low parts."""
    real = bigsap.solve

    def solve(source: Any, **options: Any) -> bigsap.Result:
        found = real(source, maximize=options.get("maximize", False))
        assert found.gap is not None
        sign = -1 if found.maximize else 1
        return bigsap.Result.from_assignment(
            found.col4row,
            sign * found.v,
            u=sign * found.u,
            u_low=sign * LOW,
            v_low=sign * LOW_V,
            shape=found.shape,
            status=bigsap.Status.IMPRECISE,
            maximize=found.maximize,
            fun=found.fun,
            bound=found.bound,
            gap=0.25,
            stats={"proof": "pairs"},
        )

    monkeypatch.setattr(worker.bigsap, "solve", solve)


def ended(api: TestClient, request: dict[str, Any]) -> dict[str, Any]:
    """The job, once it is over."""
    job: dict[str, Any] = api.post("/v1/jobs", json=request).json()
    while job["finished"] is None:
        job = api.get(f"/v1/jobs/{job['id']}?wait=5").json()
    return job


def test_the_job_has_succeeded_and_its_result_has_not(api: TestClient, imprecise: None) -> None:
    job = ended(api, REQUEST)
    assert job["state"] == "succeeded"
    assert job["outcome"] == {
        "status": "imprecise",
        "success": False,
        "objective": 5.0,
        "bound": 5.0,
        "gap": 0.25,
    }
    result = api.get(f"/v1/jobs/{job['id']}/result").json()
    assert (result["status"], result["success"], result["gap"]) == ("imprecise", False, 0.25)
    assert "to within gap" in result["message"]
    # Another attempt would find the same.
    assert "resume" not in job["links"]
    refused = api.post(f"/v1/jobs/{job['id']}/resume")
    assert "is solved: imprecise" in problem(refused, 409, "wrong-state")["detail"]
    folder = Path(api.app.app.state.settings.data) / "jobs" / job["id"]  # type: ignore[attr-defined]
    assert not (folder / "checkpoint").exists()


def test_what_a_result_has_not_is_not_found(api: TestClient) -> None:
    job = ended(api, REQUEST)
    result = api.get(f"/v1/jobs/{job['id']}/result").json()
    assert (result["status"], result["success"]) == ("optimal", True)
    for name in ("u_low", "v_low", "unassigned_cost"):
        assert name not in result["links"]
        assert name not in result["arrays"]
        refused = problem(api.get(f"/v1/jobs/{job['id']}/result/{name}"), 404, "not-found")
        assert f"has no {name}" in refused["detail"]


@pytest.mark.parametrize("maximize", [False, True])
def test_the_client_gets_all_of_it(serve_app: Callable[..., str], imprecise: None, maximize: bool) -> None:
    pytest.importorskip("httpx_sse", reason="extra http")
    with Client(serve_app()) as client:
        job = client.submit(np.array(COSTS), options={"maximize": maximize}).wait()
        assert job.outcome is not None
        assert (job.state, job.outcome["status"]) == ("succeeded", "imprecise")
        result = job.result()
    assert result.status == bigsap.Status.IMPRECISE
    assert not result.success
    assert not result
    assert result.gap == 0.25, "as the service says, not the difference of rounded numbers"
    assert result.u_low is not None
    assert result.v_low is not None
    np.testing.assert_array_equal(result.u_low, LOW)
    np.testing.assert_array_equal(result.v_low, LOW_V)


def test_the_client_verifies_gated_results(serve_app: Callable[..., str]) -> None:
    """The prices of rows left out come with the result."""
    pytest.importorskip("httpx_sse", reason="extra http")
    costs = np.array(COSTS)
    with Client(serve_app()) as client:
        for price in (1.5, np.array([0.5, 9.0, np.inf])):
            job = client.submit(costs, options={"unassigned_cost": price}).wait()
            result = job.result()
            assert result.unassigned_cost is not None
            np.testing.assert_array_equal(result.unassigned_cost, np.broadcast_to(price, 3))
            result.verify(costs)
            assert result.fun == bigsap.solve(costs, unassigned_cost=price).fun


def test_the_client_verifies_results_with_capacities(serve_app: Callable[..., str]) -> None:
    """How many rows a column takes comes with the result; demands as well."""
    pytest.importorskip("httpx_sse", reason="extra http")
    costs = np.random.default_rng(0).random((6, 3))
    with Client(serve_app()) as client:
        job = client.submit(costs, options={"capacity": np.array([1, 4, 2])}).wait()
        result = job.result()
        assert result.row4col is None
        assert result.capacity is not None
        assert result.capacity.tolist() == [1, 4, 2]
        result.verify(costs)
        assert result.fun == bigsap.solve(costs, capacity=[1, 4, 2]).fun
        result = client.submit(costs.T, options={"demand": 2}).wait().result()
        assert result.col4row is None
        result.verify(costs.T)
        assert len(result.pairs()) == 6


def test_the_command_line(
    serve_app: Callable[..., str],
    imprecise: None,
    tmp_path: Path,
    capsys: Any,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("httpx_sse", reason="extra http")
    monkeypatch.setenv("BIGSAP_URL", serve_app())
    monkeypatch.delenv("BIGSAP_KEY", raising=False)
    np.save(tmp_path / "c.npy", COSTS)
    code = cli.main(["submit", str(tmp_path / "c.npy"), "-o", str(tmp_path / "r"), "--json"])
    record = json.loads(capsys.readouterr().out)
    assert code == record["exit_code"] == 8
    assert (record["state"], record["status"], record["success"]) == ("succeeded", "imprecise", False)
    saved = bigsap.Result.load(tmp_path / "r.npz")
    assert saved.status == "imprecise"
    np.testing.assert_array_equal(saved.u_low, LOW)  # type: ignore[arg-type]
    np.testing.assert_array_equal(saved.v_low, LOW_V)  # type: ignore[arg-type]
    assert cli.main(["result", record["id"]]) == 8
    assert "imprecise: Assignment found" in capsys.readouterr().out
    assert cli.main(["jobs"]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[4] == "imprecise"
    assert cli.main(["jobs", record["id"]]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^outcome +imprecise: proved only to within 0\.25$", out, re.M)
    # A solve of this machine likewise.
    real = bigsap.solve(np.array(COSTS))
    other = replace(real, status=bigsap.Status.IMPRECISE, success=False)
    monkeypatch.setattr(bigsap, "solve", lambda *_, **__: other)
    assert cli.main(["solve", str(tmp_path / "c.npy"), "--json"]) == 8
