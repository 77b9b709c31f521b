"""Jobs that rank the k best assignments: requests, arrays, what is absent, stopped and cancelled jobs."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bigsap_server.costs.given import check_choices
from bigsap_server.jobs import ranking
from bigsap_server.problems import HttpProblem
from checks import SQUARE, normalised, problem, solved, upload, vector

import bigsap
from bigsap.progress import Monitor, Stopped
from gate import Gate, gated_job, until

COST = np.random.default_rng(71).integers(0, 50, (5, 7))
DRY = "/v1/jobs?dry_run=true"


def asked(k: Any, costs: Any = COST, **options: Any) -> dict[str, Any]:
    cost = {"type": "array", "values": costs.tolist() if isinstance(costs, np.ndarray) else costs}
    return {"cost": cost, "k_best": k, "options": options}


def notes(api: Any, job: dict[str, Any]) -> str:
    events = api.get(job["links"]["events"], headers={"Accept": "application/json"}).json()["events"]
    return "\n".join(str(event["data"]) for event in events if event["kind"] == "log")


@pytest.mark.parametrize(
    ("costs", "options"),
    [
        (COST, {}),
        (COST.T, {"maximize": True}),
        (COST / 7, {"unassigned_cost": 1.5}),
        (COST / 7, {"unassigned_cost": [1.5, 2.0, 0.5, 3.0, 1.0]}),
        (COST / 7, {"dtype": "float32"}),
    ],
)
def test_a_job_ranks_as_the_library_does(api: Any, costs: Any, options: dict[str, Any]) -> None:
    expected = bigsap.solve_k_best(costs, 12, **options)
    job = solved(api, asked(12, costs, **options))
    assert (job["state"], job["k_best"]) == ("succeeded", 12), job["problem"]
    found = job["result"]
    first, progress = expected.costs[:10].tolist(), job["progress"]
    assert found["k_best"] == {"count": 12, "complete": False, "status": "optimal", "costs": first}
    assert (progress["stage"], progress["ranked"], progress["to_rank"]) == ("done", 12, 12)
    assert (found["status"], found["objective"]) == ("optimal", expected.costs[0])
    assert len(vector(api, job, "col4row")) == len(costs)
    for name, array in (("k_costs", expected.costs), ("k_col4row", expected.col4row)):
        got = vector(api, job, name)
        assert got.dtype == array.dtype
        assert got.tolist() == array.tolist()
        assert found["arrays"][name] == {"dtype": array.dtype.str, "shape": list(array.shape)}
        assert found["links"][name].endswith(f"/result/{name}")


def test_uploaded_costs_whose_shape_the_store_knows(api: Any) -> None:
    body = asked(3)
    body["cost"]["values"] = {"array": upload(api, COST.astype(float))}
    expected = bigsap.solve_k_best(COST.astype(float), 3)
    assert solved(api, body)["result"]["k_best"]["costs"] == expected.costs.tolist()


def test_all_there_are_and_none(api: Any) -> None:
    small = [[4, 1], [2, 0]]
    assert solved(api, asked(10, small))["result"]["k_best"] == {
        "count": 2,
        "complete": True,
        "status": "optimal",
        "costs": [3, 4],
    }
    job = solved(api, asked(10, [["Infinity"] * 2, [1, 2]]))
    assert job["result"]["status"] == "infeasible"
    assert job["result"]["k_best"] == {"count": 0, "complete": True, "status": "infeasible", "costs": []}
    assert vector(api, job, "k_col4row").shape == (0, 2)


@pytest.mark.parametrize("maximize", [False, True])
def test_forbidden_pairs_in_either_sense(api: Any, maximize: bool) -> None:
    infinity = -np.inf if maximize else np.inf
    costs = np.array([[1.0, infinity, 3.0], [2.0, 5.0, infinity], [infinity, 1.0, 2.0]])
    body = asked(9, maximize=maximize)
    text = "-Infinity" if maximize else "Infinity"
    body["cost"]["values"] = [[c if np.isfinite(c) else text for c in row] for row in costs.tolist()]
    expected = bigsap.solve_k_best(costs, 9, maximize=maximize)
    assert len(expected) == 2
    job = solved(api, body)
    costs = expected.costs.tolist()
    assert job["result"]["k_best"] == {"count": 2, "complete": True, "status": "optimal", "costs": costs}
    assert vector(api, job, "k_col4row").tolist() == expected.col4row.tolist()
    # Formulas know the sense only when they are solved.
    code = "1/0 if i == j else i + 2*j" if not maximize else "-1/0 if i == j else i + 2*j"
    formula = {"shape": [4, 4], "cost": {"type": "expression", "code": code}, "k_best": 3}
    job = solved(api, formula | {"options": {"maximize": maximize}})
    expected = bigsap.solve_k_best(bigsap.expression(code, shape=(4, 4)), 3, maximize=maximize)
    assert job["result"]["k_best"]["costs"] == expected.costs.tolist()


def test_csv_and_json_of_the_ranks(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    # As few at a time as there may be: the parts must fit together.
    monkeypatch.setattr("bigsap_server.api.routes_results._ROWS_AT_A_TIME", 7)
    job = solved(api, asked(12))
    expected = bigsap.solve_k_best(COST, 12)
    place = job["links"]["result"] + "/k_col4row"
    text = api.get(place, headers={"Accept": "text/csv"}).text
    head, *lines = csv.reader(io.StringIO(text))
    assert head == ["rank", "0", "1", "2", "3", "4"]
    assert lines == [[str(v) for v in (rank, *row)] for rank, row in enumerate(expected.col4row.tolist())]
    part = api.get(place, params={"offset": 3, "limit": 2}, headers={"Accept": "text/csv"}).text
    assert part.splitlines()[1:] == text.splitlines()[4:6]
    page = api.get(place, params={"offset": 3, "limit": 2}, headers={"Accept": "application/json"}).json()
    rows = expected.col4row[3:5].tolist()
    assert page == {"name": "k_col4row", "offset": 3, "total": 12, "values": rows, "next": 5}
    place = job["links"]["result"] + "/k_costs"
    first = api.get(place, params={"limit": 1}, headers={"Accept": "text/csv"}).text
    assert first == f"rank,k_costs\r\n0,{expected.costs[0]}\r\n"
    # A page holds so many numbers, and one rank at least.
    for most, ranks in ((11, 2), (1, 1)):
        monkeypatch.setattr("bigsap_server.api.routes_results._MOST_ROWS", most)
        place = job["links"]["result"] + "/k_col4row"
        page = api.get(place, headers={"Accept": "application/json"}).json()
        assert (len(page["values"]), page["next"]) == (ranks, ranks)


def test_a_job_without_a_ranking_has_no_arrays_of_it(api: Any) -> None:
    job = solved(api, SQUARE)
    assert (job["k_best"], job["result"]["k_best"]) == (None, None)
    for name in ("k_costs", "k_col4row"):
        assert name not in job["result"]["links"]
        found = problem(api.get(f"{job['links']['result']}/{name}"), 404, "not-found")
        assert "rank" in found["detail"]


@pytest.mark.parametrize("k", [0, -1, 10_001, 1.5, "3", True])
def test_how_many_there_may_be(api: Any, k: Any) -> None:
    problem(api.post(DRY, json=asked(k)), 422, "invalid-spec", "/k_best")


@pytest.mark.parametrize("k", [1, 10_000, None])
def test_what_is_taken(api: Any, k: Any) -> None:
    assert api.post(DRY, json=asked(k)).json()["spec"]["k_best"] == k


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"assignment": {"col4row": [0, 1, 2, 3, 4]}}, "assignment"),
        ({"options": {"capacity": 2}}, "capacity"),
        ({"options": {"demand": 1}}, "demand"),
        ({"options": {"objective": "bottleneck"}}, "objective"),
        ({"options": {"gap": 0.5}}, "gap"),
    ],
)
def test_what_does_not_go_with_it(api: Any, change: dict[str, Any], word: str) -> None:
    for path in ("/v1/jobs", DRY):
        found = problem(api.post(path, json=asked(3) | change), 422, "invalid-spec", "/k_best")
        assert word in found["detail"]
    assert api.get("/v1/jobs").json()["jobs"] == []


@pytest.mark.parametrize("spread", [True, 3])
def test_a_job_over_workers_does_not_rank(spread: bool | int) -> None:
    with pytest.raises(HttpProblem, match="spread") as refused:
        check_choices(normalised(asked(3) | {"spread": spread}))
    assert (refused.value.slug, refused.value.pointer) == ("invalid-spec", "/k_best")
    check_choices(normalised(asked(None) | {"spread": spread}))


def test_memory_of_the_ranks(make_app: Callable[..., Any]) -> None:
    """60 bytes for each rank, row and column are counted, against both limits."""
    api = make_app(limits={"memory_bytes": 1 << 30})
    body = {"shape": [500, 700], "cost": {"type": "expression", "code": "i * j"}}
    without = api.post(DRY, json=body).json()["estimate"]
    found = api.post(DRY, json=body | {"k_best": 1000}).json()["estimate"]
    assert found["memory"]["k_best"] == 60 * 1000 * 1200
    assert found["memory_bytes"] == without["memory_bytes"] + 60 * 1000 * 1200
    assert found["disk_bytes"] == without["disk_bytes"] + 8 * 1000 * 501
    assert any("rank" in note for note in found["notes"])
    assert 60 * 10_000 * 1200 < 1 << 30
    refused = api.post("/v1/jobs", json=body | {"shape": [900, 1100], "k_best": 10_000})
    found = problem(refused, 422, "over-limit", "/k_best")
    assert "memory" in found["detail"]
    for size, status in (("1MiB", 422), ("1GiB", 200)):
        answer = api.post(DRY, json=body | {"k_best": 1000, "options": {"memory_limit": size}})
        assert answer.status_code == status
        if status == 422:
            problem(answer, 422, "invalid-spec", "/k_best")


@pytest.mark.parametrize("whose", ["job", "service"])
def test_memory_of_the_pairs_that_are_listed(make_app: Callable[..., Any], whose: str) -> None:
    """Of equal costs all pairs are listed: a job cannot take more than it may."""
    api = make_app(**({"worker_memory_bytes": 1 << 30} if whose == "service" else {}))
    body = {"shape": [60, 60], "cost": {"type": "expression", "code": "1"}, "k_best": 2}
    job = solved(api, body)
    assert job["result"]["k_best"]["count"] == 2
    with pytest.MonkeyPatch.context() as patch:
        if whose == "job":
            body |= {"options": {"memory_limit": 1 << 18}}
        else:
            patch.setattr("bigsap.strategies.k_best_lists.PAIR_BYTES", 1 << 20)
        job = solved(api, body)
    assert job["state"] == "failed"
    assert "pairs" in job["problem"]["detail"]


def test_a_shape_that_only_the_data_have(
    make_app: Callable[..., Any], gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Then the worker refuses what is too much."""
    api = make_app(limits={"memory_bytes": 1 << 30})
    gate.open()
    body = gated_job(gate, n=60)
    assert solved(api, body | {"k_best": 2})["result"]["k_best"]["count"] == 2
    monkeypatch.setattr("bigsap_server.costs.validate.RANK_BYTES", 1 << 20)
    job = solved(api, body | {"k_best": 10})
    assert (job["state"], job["problem"]["pointer"]) == ("failed", "/k_best")
    assert job["problem"]["type"].endswith("over-limit")


def test_a_solve_that_was_stopped_ranks_nothing(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    real = bigsap.solve
    monkeypatch.setattr(bigsap, "solve", lambda *a, **given: real(*a, **(given | {"time_limit": 0})))
    job = solved(api, asked(3, np.random.default_rng(0).random((30, 30)), method="ssp"))
    assert (job["state"], job["result"]["status"]) == ("succeeded", "time_limit")
    assert job["result"]["k_best"] is None
    assert "rank" in notes(api, job)
    found = problem(api.get(job["links"]["result"] + "/k_costs"), 404, "not-found")
    assert "stopped" in found["detail"]


def test_cancelled_before_the_ranking(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best assignment is kept, and the job is not said to have done what it was asked."""
    real = bigsap.solve

    def solve(*args: Any, cancel: Any, **given: Any) -> bigsap.Result:
        result = real(*args, cancel=cancel, **given)
        api.post(f"/v1/jobs/{api.get('/v1/jobs').json()['jobs'][0]['id']}/cancel", json={"mode": "graceful"})
        until(cancel.is_set)
        return result

    monkeypatch.setattr(bigsap, "solve", solve)
    job = api.post("/v1/jobs", json=asked(3)).json()
    job = until(lambda: (now := api.get(job["links"]["self"]).json())["finished"] and now)
    assert (job["state"], job["outcome"]["status"]) == ("cancelled", "optimal")
    assert api.get(job["links"]["result"]).json()["k_best"] is None
    monkeypatch.setattr(bigsap, "solve", real)
    assert api.post(job["links"]["resume"]).status_code == 202
    job = until(lambda: (now := api.get(job["links"]["self"]).json())["finished"] and now)
    assert job["state"] == "succeeded"
    assert api.get(job["links"]["result"]).json()["k_best"]["count"] == 3


LARGE = np.random.default_rng(72).random((20, 20))


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., None]], None]:
    """Call this at each report of a ranking, which are many; ``cancel`` is the job's event."""
    monkeypatch.setattr("bigsap.strategies.k_best_search._PAIRS", 0)
    monkeypatch.setattr("bigsap.k_best.Monitor", partial(Monitor, interval=0))
    real = ranking.best_after

    def take(do: Callable[..., None]) -> None:
        def best_after(*args: Any, callback: Any, cancel: Any, **given: Any) -> bigsap.Assignments:
            def see(progress: bigsap.Progress) -> None:
                callback(progress)
                do(progress, cancel)

            return real(*args, callback=see, cancel=cancel, **given)

        monkeypatch.setattr(ranking, "best_after", best_after)

    return take


def test_progress_of_a_ranking(api: Any, reported: Callable[..., None]) -> None:
    """The stage is done when all is done."""

    def see(progress: bigsap.Progress, _: Any) -> None:
        if progress.stage == "rank" and progress.ranked >= 20 and not seen:
            place = api.get("/v1/jobs").json()["jobs"][0]["links"]["self"]
            seen.append(until(lambda: (now := api.get(place).json()["progress"]) and now["ranked"] and now))

    seen: list[dict[str, Any]] = []
    reported(see)
    job = solved(api, asked(50, LARGE))
    assert (seen[0]["stage"], seen[0]["to_rank"], seen[0]["assigned"]) == ("rank", 50, 20)
    assert 20 <= seen[0]["ranked"] <= 50
    assert (seen[0]["eta_s"], seen[0]["rows"]) == (None, 20)
    assert (job["progress"]["stage"], job["progress"]["ranked"]) == ("done", 50)
    other = solved(api, asked(None, LARGE))
    assert (other["progress"]["ranked"], other["progress"]["to_rank"]) == (None, None)


def resumed_from_its_checkpoint(
    api: Any, job: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> dict[str, Any]:
    """The job after another attempt, which does not solve again."""
    real, resumed = bigsap.resume, []
    monkeypatch.setattr(bigsap, "resume", lambda *args, **given: resumed.append(1) or real(*args, **given))
    assert api.post(job["links"]["resume"]).status_code == 202
    job = until(lambda: (now := api.get(job["links"]["self"]).json())["finished"] and now)
    assert resumed
    return job


@pytest.mark.parametrize("least", [0, 20])
def test_cancelled_while_it_ranks(
    api: Any, reported: Callable[..., None], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ranking ends; the best assignment is kept, and what is ranked."""

    def see(progress: bigsap.Progress, cancel: Any) -> None:
        if progress.ranked >= least and not cancel.is_set() and not resumed:
            place = api.get("/v1/jobs").json()["jobs"][0]["links"]["self"]
            api.post(f"{place}/cancel", json={"mode": "graceful"})
            until(cancel.is_set)

    resumed: list[bool] = []
    reported(see)
    job = solved(api, asked(300, LARGE))
    assert (job["state"], job["result"]["status"]) == ("cancelled", "optimal")
    found = job["result"]["k_best"]
    whole = bigsap.solve_k_best(LARGE, 300)
    if least == 0:
        assert found is None
        assert "no assignments are ranked: the job was cancelled" in notes(api, job)
    else:
        count = found["count"]
        assert least <= count < 300
        assert (found["complete"], found["status"]) == (False, "cancelled")
        assert f"{count} of 300 assignments are ranked: the job was cancelled" in notes(api, job)
        assert vector(api, job, "k_costs").tolist() == whole.costs[:count].tolist()
        assert vector(api, job, "k_col4row").tolist() == whole.col4row[:count].tolist()
    resumed.append(True)
    job = resumed_from_its_checkpoint(api, job, monkeypatch)
    found = api.get(job["links"]["result"]).json()["k_best"]
    assert (found["count"], found["status"]) == (300, "optimal")


@pytest.mark.parametrize("least", [0, 20, 280])
def test_the_time_limit_is_that_of_the_ranking_too(
    api: Any, reported: Callable[..., None], least: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def see(progress: bigsap.Progress, _: Any) -> None:
        if progress.stage == "rank":
            reports[bool(resumed)] += 1
            if progress.ranked >= least and not resumed:
                raise Stopped("time_limit")

    reports, resumed = [0, 0], []
    reported(see)
    job = solved(api, asked(300, LARGE))
    assert (job["state"], job["result"]["status"]) == ("succeeded", "optimal")
    assert "the time limit ended the ranking" in notes(api, job)
    found = job["result"]["k_best"]
    if least == 0:
        assert found is None
    else:
        assert least <= found["count"] < 300
        assert (found["complete"], found["status"]) == (False, "time_limit")
    resumed.append(True)
    job = resumed_from_its_checkpoint(api, job, monkeypatch)
    found = api.get(job["links"]["result"]).json()["k_best"]
    assert (found["count"], found["status"]) == (300, "optimal")
    assert (reports[1] < reports[0] / 2) == (least == 280)  # it went on from where it was stopped
    assert "resume" not in job["links"]
    problem(api.post(job["links"]["self"] + "/resume"), 409, "wrong-state")
    folder = api.app.app.state.service.store.folder(job["id"])
    until(lambda: not (folder / "checkpoint").exists() and not (folder / "ranking").exists())


def test_a_checkpoint_of_other_costs_is_left(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Costs without a fingerprint may have changed: the ranking begins anew."""
    real, files = ranking.best_after, []

    def best_after(*args: Any, checkpoint: Path, **given: Any) -> bigsap.Assignments:
        files.append(checkpoint.exists())
        if len(files) == 1:
            checkpoint.write_bytes(b"of other costs")
            raise bigsap.CheckpointError("the checkpoint of the ranking is of other costs")
        return real(*args, checkpoint=checkpoint, **given)

    monkeypatch.setattr(ranking, "best_after", best_after)
    job = solved(api, asked(3))
    assert job["result"]["k_best"]["count"] == 3
    assert files == [False, False]
    assert "ranking anew: the checkpoint of the ranking is of other costs" in notes(api, job)


def test_a_ranking_gets_the_time_that_the_solve_left(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    limits, real = [], ranking.best_after

    def best_after(*args: Any, time_limit: Any, **given: Any) -> bigsap.Assignments:
        limits.append(time_limit)
        return real(*args, time_limit=time_limit, **given)

    monkeypatch.setattr(ranking, "best_after", best_after)
    assert solved(api, asked(3, time_limit_s=1000))["result"]["k_best"]["count"] == 3
    assert solved(api, asked(3))["result"]["k_best"]["count"] == 3
    assert 0 < limits[0] < 1000
    assert limits[1] is None


def test_costs_beyond_64_bits_and_errors_of_the_ranking(api: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no array for them: the job fails, and says why."""
    large = bigsap.solve_k_best(COST, 2)
    large = replace(large, costs=np.array([2**63, 2**63 + 1], object))
    monkeypatch.setattr(ranking, "best_after", lambda *_, **__: large)
    job = solved(api, asked(2))
    assert (job["state"], job["problem"]["type"]) == ("failed", "urn:bigsap:problem:invalid-cost")
    assert "int64" in job["problem"]["detail"]
    assert "k_best" in job["problem"]["pointer"]

    def refuse(*_: Any, **__: Any) -> None:
        raise bigsap.OverflowRiskError("too many orders of magnitude")

    monkeypatch.setattr(ranking, "best_after", refuse)
    job = solved(api, asked(2))
    assert (job["state"], job["problem"]["detail"]) == ("failed", "too many orders of magnitude")
    assert job["problem"]["type"].endswith("invalid-cost")
