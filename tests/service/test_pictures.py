"""What is drawn of a matching in the plane, wherever its points are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bigsap_server.costs import previews as pictures
from bigsap_server.costs.build import Resolver
from bigsap_server.settings import load
from checks import problem, solved, upload, vector

X = np.array([[0.0, 0], [4, 1], [2, 2]])
Y = np.array([[4.0, 2], [0, 1], [2, 0], [3, 1]])
BOX = 65_535 / 4  # what one unit becomes: the longer side has 4


@pytest.fixture
def api(make_app: Callable[..., Any], tmp_path: Path) -> Any:
    (tmp_path / "lab").mkdir()
    np.save(tmp_path / "lab/x.npy", X)
    np.save(tmp_path / "lab/y.npy", Y)
    return make_app(stores={"lab": tmp_path / "lab"})


def forms(api: Any) -> dict[str, Any]:
    """The same points, given in every way there is."""
    return {
        "inline": (X.tolist(), Y.tolist()),
        "uploaded": tuple({"array": upload(api, each)} for each in (X, Y)),
        "half precision": tuple({"array": upload(api, e.astype("f2"))} for e in (X, Y)),
        "integers": tuple({"array": upload(api, e.astype("u1"))} for e in (X, Y)),
        "store": tuple({"store": "lab", "path": name} for name in ("x.npy", "y.npy")),
    }


@pytest.mark.parametrize("form", ["inline", "uploaded", "half precision", "integers", "store"])
def test_points_of_every_form_are_drawn(api: Any, form: str) -> None:
    x, y = forms(api)[form]
    job = solved(api, {"cost": {"type": "points", "x": x, "y": y}})
    found = api.get(job["result"]["links"]["picture"]).json()
    assert found["shape"] == [3, 4]
    assert found["assigned"] == 3
    assert (found["low"], found["high"]) == ([0, 0], [4, 2])
    np.testing.assert_allclose(found["x"], X * BOX, atol=1)
    np.testing.assert_allclose(found["y"], Y * BOX, atol=1)
    accept = {"Accept": "application/json"}
    columns = api.get(job["links"]["result"] + "/col4row", headers=accept).json()["values"]
    np.testing.assert_allclose(found["links"], np.hstack([X, Y[columns]]) * BOX, atol=1)


def test_points_within_other_costs(api: Any) -> None:
    points = {"type": "points", "x": X.tolist(), "y": Y.tolist()}
    gated = {"type": "forbid_above", "threshold": 99, "cost": points}
    extra = {"type": "array", "values": np.ones((3, 4)).tolist()}
    job = solved(api, {"cost": {"type": "sum", "terms": [extra, gated]}})
    assert len(api.get(job["result"]["links"]["picture"]).json()["links"]) == 3
    assert pictures.points_in({"type": "sum", "terms": [points, points]}) is None, "which ones?"


@pytest.mark.parametrize("counts", [{"demand": [2, 1, 1]}, {"capacity": [1, 2, 1, 0]}])
def test_all_pairs_of_rows_and_columns_that_take_several(api: Any, counts: dict[str, Any]) -> None:
    cost = {"type": "points", "x": X.tolist(), "y": Y.tolist()}
    job = solved(api, {"cost": cost, "options": counts})
    found = api.get(job["result"]["links"]["picture"]).json()
    if "demand" in counts:
        columns = np.arange(4)
        rows = vector(api, job, "row4col")
        assert np.bincount(rows).tolist() == counts["demand"]
    else:
        rows = np.arange(3)
        columns = vector(api, job, "col4row")
    assert found["assigned"] == len(rows)
    np.testing.assert_allclose(found["links"], np.hstack([X[rows], Y[columns]]) * BOX, atol=1)


def test_rows_left_out_have_no_link(api: Any) -> None:
    far = [[0, 0], [100, 100], [2, 2]]
    cost = {"type": "points", "x": far, "y": Y.tolist()}
    job = solved(api, {"cost": cost, "options": {"unassigned_cost": 5}})
    found = api.get(job["result"]["links"]["picture"]).json()
    assert found["assigned"] == len(found["links"]) == 2
    assert len(found["x"]) == 3


def test_nothing_to_draw(api: Any) -> None:
    assert "picture" not in solved(api, {"cost": {"type": "array", "values": [[1]]}})["result"]["links"]
    space = {"type": "points", "x": [[0, 0, 0]], "y": [[1, 1, 1]]}
    impossible = {"type": "mask", "cost": {"type": "points", "x": [[0, 0]], "y": [[1, 1]]}, "allowed": [[0]]}
    for cost in (space, impossible):
        job = solved(api, {"cost": cost})
        answer = api.get(job["links"]["result"] + "/picture")
        assert (answer.status_code, answer.content) == (204, b"")


def test_points_that_are_gone(api: Any) -> None:
    array = upload(api, X)
    job = solved(api, {"cost": {"type": "points", "x": {"array": array}, "y": Y.tolist()}})
    assert api.delete(f"/v1/arrays/{array}").status_code == 204
    problem(api.get(job["links"]["result"] + "/picture"), 404, "not-found")
    queued = api.post("/v1/jobs", json={"cost": {"type": "array", "values": [[1]]}}).json()
    api.post(queued["links"]["cancel"], json={"mode": "now"})
    problem(api.get("/v1/jobs/job_missing/result/picture"), 404, "not-found")


def test_many_points_are_sampled_evenly_and_any_span_is_drawn(tmp_path: Path) -> None:
    n = 45_000
    x = np.column_stack([np.arange(n), np.zeros(n)]) * 1e300
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", -x)
    settings = load(data=tmp_path / "data", stores={"lab": tmp_path}).model_dump(mode="json")
    cost = {"type": "points"} | {k: {"store": "lab", "path": f"{k}.npy"} for k in "xy"}
    found = pictures.picture(cost, Resolver(tmp_path / "data", settings), np.arange(n))
    assert found is not None
    assert found["assigned"] == n
    assert (len(found["x"]), len(found["links"])) == (9000, 3000)
    steps = np.diff([link[0] for link in found["links"]])
    assert steps.min() > 0
    assert steps.max() - steps.min() <= 1
    assert found["links"][-1][0] - found["links"][-1][2] > 65_000
    one = {"type": "points", "x": [[3, 3]], "y": [[3, 3]]}
    same = pictures.picture(one, Resolver(tmp_path, settings), np.zeros(1, int))
    assert same is not None
    assert same["links"] == [[0, 0, 0, 0]]
