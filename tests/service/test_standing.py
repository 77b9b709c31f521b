"""What a job refers to stays while the job needs it: deleting against submitting and resuming."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from bigsap_server.api import routes_jobs
from bigsap_server.jobs.control import Folder
from bigsap_server.jobs.references import references
from checks import SQUARE, problem, solved, upload

from gate import HANG_S


def parts(api: Any) -> Any:
    return api.app.app.state.service


def matrix(array_id: str) -> dict[str, Any]:
    return {"cost": {"type": "array", "values": {"array": array_id}}}


@pytest.fixture
def idle(make_app: Callable[..., Any]) -> Any:
    """A service whose jobs stay queued, and a solved job of it."""
    api = make_app()
    api.first = solved(api, SQUARE)
    parts(api).supervisor.stop()
    return api


def test_references() -> None:
    inner = {"type": "array", "values": {"array": "arr_1"}}
    spec = {
        "cost": {
            "type": "sum",
            "terms": [
                {"type": "plugin", "params": {"array": "arr_0"}},
                {"type": "expression", "arrays": {"array": {"array": "arr_2"}, "y": [1.0]}},
                inner,
            ],
        },
        "options": {"unassigned_cost": {"array": "arr_3"}},
        "warm_start": {"job": "job_1", "v": None},
    }
    assert references(spec) == {
        "arr_1": "/cost/terms/2/values",
        "arr_2": "/cost/terms/1/arrays/array",
        "arr_3": "/options/unassigned_cost",
        "job_1": "/warm_start/job",
    }
    assert references({"cost": inner, "warm_start": None}) == {"arr_1": "/cost/values"}


def test_a_job_that_another_starts_from_stays(idle: Any) -> None:
    first = idle.first
    job = idle.post("/v1/jobs", json=SQUARE | {"warm_start": {"job": first["id"]}}).json()
    found = problem(idle.delete(first["links"]["self"]), 409, "job-in-use")
    assert job["id"] in found["detail"]
    assert idle.get(first["links"]["result"]).status_code == 200
    # A label that says its id uses nothing.
    assert idle.post("/v1/jobs", json=SQUARE | {"label": first["id"]}).status_code == 202
    assert idle.post(job["links"]["cancel"]).status_code == 200
    assert idle.delete(first["links"]["self"]).status_code == 204


def test_resuming_needs_what_the_job_refers_to(idle: Any) -> None:
    array = upload(idle, np.eye(3))
    for spec, link, pointer in (
        (matrix(array), f"/v1/arrays/{array}", "/cost/values"),
        (SQUARE | {"warm_start": {"job": idle.first["id"]}}, idle.first["links"]["self"], "/warm_start/job"),
    ):
        job = idle.post("/v1/jobs", json=spec).json()
        idle.post(job["links"]["cancel"])
        assert idle.delete(link).status_code == 204
        found = problem(idle.post(job["links"]["self"] + "/resume"), 422, "invalid-spec", pointer)
        assert "there is no" in found["detail"]
        assert idle.get(job["links"]["self"]).json()["state"] == "cancelled"


def test_resuming_does_not_need_the_job_once_begun(idle: Any) -> None:
    job = idle.post("/v1/jobs", json=SQUARE | {"warm_start": {"job": idle.first["id"]}}).json()
    idle.post(job["links"]["cancel"])
    store = parts(idle).store
    folder = Folder(store.folder(job["id"]))
    folder.path.mkdir(parents=True)
    v = store.result_file(store.get(idle.first["id"]), "v")
    assert folder.keep_start(v.parent) == folder.start
    assert idle.delete(idle.first["links"]["self"]).status_code == 204
    assert np.load(folder.keep_start(None) / "v.npy").shape == (3,)
    assert idle.post(job["links"]["self"] + "/resume").status_code == 202


def test_prices_are_kept_without_links(idle: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> None:
        raise PermissionError("no links here")

    monkeypatch.setattr("os.link", refuse)
    store = parts(idle).store
    result = store.result_file(store.get(idle.first["id"]), "v").parent
    kept = Folder(tmp_path).keep_start(result)
    for name in ("v", "col4row"):
        np.testing.assert_array_equal(np.load(kept / f"{name}.npy"), np.load(result / f"{name}.npy"))
    with pytest.raises(FileNotFoundError):
        Folder(tmp_path / "jobs").keep_start(None)


def test_what_goes_while_a_job_is_judged_keeps_it_out(idle: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    array, judged = upload(idle, np.eye(3)), routes_jobs.priced
    service = parts(idle)
    for spec, delete, pointer in (
        (matrix(array), lambda: service.arrays.delete(array, service.store.unused), "/cost/values"),
        (
            SQUARE | {"warm_start": {"job": idle.first["id"]}},
            lambda: service.store.delete(idle.first["id"]),
            "/warm_start/job",
        ),
    ):

        def meanwhile(*given: Any, delete: Any = delete) -> Any:
            found = judged(*given)
            delete()
            return found

        monkeypatch.setattr(routes_jobs, "priced", meanwhile)
        problem(idle.post("/v1/jobs", json=spec), 422, "invalid-spec", pointer)
    assert service.store.counts()["queued"] == 0


def test_a_deletion_under_way_holds_submissions_back(idle: Any) -> None:
    array, store = upload(idle, np.eye(3)), parts(idle).store
    codes: list[int] = []
    thread = threading.Thread(
        target=lambda: codes.append(idle.post("/v1/jobs", json=matrix(array)).status_code)
    )
    with store.unused(array):
        thread.start()
        thread.join(0.5)
        assert codes == []
    thread.join(HANG_S)
    assert codes == [202]
    problem(idle.delete(f"/v1/arrays/{array}"), 409, "array-in-use")


def test_no_start_from_what_has_no_prices(api: Any) -> None:
    none = solved(api, {"cost": {"type": "array", "values": [["Infinity", "Infinity"], [1, 2]]}})
    assert none["result"]["status"] == "infeasible"
    spec = {"cost": {"type": "array", "values": [[1, 2], [3, 4]]}}
    start = {"warm_start": {"job": none["id"]}}
    found = problem(api.post("/v1/jobs", json=spec | start), 422, "invalid-spec", "/warm_start/job")
    assert "infeasible" in found["detail"]
