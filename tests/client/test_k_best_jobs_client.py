"""Rankings by a service: ``Client.submit(..., k_best=)``, ``Job.k_best`` and ``bigsap submit --k-best``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap.cli import commands as cli
from bigsap.cli.job_commands import _row

pytest.importorskip("httpx", reason="extra http")
pytest.importorskip("fastapi", reason="extra server")

from bigsap.client import Client, Job, ServiceError, arrays

COST = np.random.default_rng(9).random((12, 15))


@pytest.mark.parametrize("options", [{}, {"maximize": True}, {"unassigned_cost": 0.2}])
def test_a_ranking_as_the_library_returns_it(client: Client, options: dict[str, Any]) -> None:
    expected = bigsap.solve_k_best(COST, 25, **options)
    job = client.submit(COST, k_best=25, options=options, wait=True)
    found = job.k_best()
    assert isinstance(found, bigsap.Assignments)
    assert found.costs.tolist() == expected.costs.tolist()
    assert found.col4row.tolist() == expected.col4row.tolist()
    assert (found.costs.dtype, found.col4row.dtype) == (expected.costs.dtype, expected.col4row.dtype)
    assert (found.maximize, found.shape, found.complete) == (expected.maximize, (12, 15), False)
    assert job.result().fun == found[0].cost


def test_few_and_none(client: Client) -> None:
    job = client.submit([[4, 1], [2, 0]], k_best=np.int64(5), wait=True)
    assert (job.k_best().costs.tolist(), job.k_best().complete) == ([3, 4], True)
    job = client.submit([[np.inf, np.inf], [2.0, 0.0]], k_best=5, wait=True)
    assert (len(job.k_best()), job.k_best().complete, job.k_best().shape) == (0, True, (2, 2))


def test_a_job_without_a_ranking_and_bad_numbers(client: Client) -> None:
    job = client.submit(COST, wait=True)
    with pytest.raises(ServiceError, match="rank") as absent:
        job.k_best()
    assert absent.value.slug == "not-found"
    for wrong in (0, 1.5, True, "3"):
        with pytest.raises(bigsap.OptionError, match="k must be"):
            client.submit(COST, k_best=wrong)  # type: ignore[arg-type]
    with pytest.raises(ServiceError, match="10000"):
        client.submit(COST, k_best=10_001)
    estimate = client.estimate(COST, k_best=100)
    assert estimate["estimate"]["memory"]["k_best"] == 60 * 100 * 27


def test_the_command(
    live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BIGSAP_URL", live_server.url)
    monkeypatch.chdir(tmp_path)
    np.save("costs.npy", COST)
    assert cli.main(["submit", "costs.npy", "--json", "--quiet", "--wait", "--k-best", "7"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = bigsap.solve_k_best(COST, 7).costs.tolist()
    with Client(live_server.url) as client:
        assert client.job(found["id"]).k_best().costs.tolist() == expected
        unranked = client.submit(COST, wait=True).id
    assert found["k_best"] == {"costs": expected, "complete": False, "status": "optimal"}
    assert cli.main(["result", found["id"]]) == 0
    shown = capsys.readouterr().out
    assert "from the best" in shown
    assert shown.splitlines()[-1].split()[0] == "7"
    assert cli.main(["result", unranked, "--json"]) == 0
    assert "k_best" not in json.loads(capsys.readouterr().out)
    assert cli.main(["submit", "costs.npy", "--json", "--k-best", "0"]) == 1
    assert "/k_best" in json.loads(capsys.readouterr().out)["message"]


def test_the_command_needs_no_columns_of_the_ranking(
    live_server: Any, in_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of many ranks and rows they are much more than what is printed."""
    monkeypatch.setenv("BIGSAP_URL", live_server.url)
    with Client(live_server.url) as client:
        job = client.submit(COST, k_best=30, wait=True)
        costs, complete, status = job.ranked_costs()
        assert (costs.tolist(), complete) == (bigsap.solve_k_best(COST, 30).costs.tolist(), False)
        assert status == "optimal"
        assert client.submit(COST, wait=True).ranked_costs() is None
    fetched = []
    monkeypatch.setattr(
        arrays, "download", lambda of, path, real=arrays.download: fetched.append(path) or real(of, path)
    )
    assert cli.main(["result", job.id]) == 0
    assert "... 10 more" in capsys.readouterr().out
    assert any("k_costs" in path for path in fetched)
    assert not any("k_col4row" in path for path in fetched)


def test_a_ranking_that_was_stopped_is_not_passed_over(
    live_server: Any, in_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The service says so by null where the time was over, or the job cancelled, before the ranking."""
    monkeypatch.setenv("BIGSAP_URL", live_server.url)
    np.save("costs.npy", COST)
    summary = Job._summary
    monkeypatch.setattr(Job, "_summary", lambda job: {**summary(job), "k_best": None})
    assert cli.main(["submit", "costs.npy", "--wait", "--k-best", "7"]) == 4
    out, err = capsys.readouterr()
    assert "from the best" not in out
    assert "was stopped before its assignments were ranked" in err
    job = out.split()[1]
    assert cli.main(["result", job, "--json", "-o", "found.npz"]) == 4
    found = json.loads(capsys.readouterr().out)
    assert (found["status"], found["k_best"], found["exit_code"]) == ("optimal", None, 4)
    assert Path("found.npz").exists()


def test_a_ranking_that_was_stopped_on_its_way(
    live_server: Any, in_folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is ranked is shown, and that it was stopped."""
    monkeypatch.setenv("BIGSAP_URL", live_server.url)
    summary = Job._summary

    def stopped(job: Job) -> dict[str, Any]:
        found = dict(summary(job))
        return found | {"k_best": found["k_best"] | {"status": "time_limit"}}

    with Client(live_server.url) as client:
        job = client.submit(COST, k_best=7, wait=True)
        monkeypatch.setattr(Job, "_summary", stopped)
        assert (job.k_best().status, len(job.k_best())) == ("time_limit", 7)
    assert cli.main(["result", job.id]) == 4
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "stopped early (time limit): these are the best, in order"
    assert cli.main(["result", job.id, "--json"]) == 4
    found = json.loads(capsys.readouterr().out)
    assert (found["k_best"]["status"], len(found["k_best"]["costs"])) == ("time_limit", 7)
    assert found["exit_code"] == 4


def test_a_list_of_jobs_says_which_rankings_were_stopped() -> None:
    """They can be resumed, unlike one that has found all that there are."""
    record = {"id": "job_1", "state": "succeeded", "outcome": {"status": "optimal"}}
    record |= {"progress": {"ranked": 30, "to_rank": 300}, "links": {"resume": "/v1/jobs/job_1/resume"}}
    assert _row(Job(None, record))[3] == "30 of 300 ranked"  # type: ignore[arg-type]
    assert _row(Job(None, record | {"links": {}}))[3] == "100%"  # type: ignore[arg-type]
