"""Costs from and results to addresses, by fsspec's files in memory in place of an object store."""

from __future__ import annotations

import hashlib
import io
import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from bigsap_server import settings as service_settings
from bigsap_server.costs import objects
from bigsap_server.jobs.control import Folder
from bigsap_server.settings import Settings
from checks import SQUARE, problem, solved

import bigsap
from gate import HANG_S

COST = np.array([[4.0, 1, 3], [2, 0, 5], [3, 2, 2]])
Make = Callable[..., Any]


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Files in memory, an allowed scheme here."""
    monkeypatch.setattr(service_settings, "STORES", ("memory",))
    files = fsspec.filesystem("memory")
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


def npy(array: Any) -> bytes:
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


def cost_at(uri: str) -> dict[str, Any]:
    return {"cost": {"type": "npy", "uri": uri}}


@pytest.mark.parametrize("order", ["C", "F"])
def test_costs_of_a_file_at_an_address(make_app: Make, bucket: Any, order: Any) -> None:
    api = make_app(zarr_uris=["memory://lab/"])
    bucket.pipe_file("/lab/costs.npy", npy(np.asarray(COST, order=order)))
    job = solved(api, cost_at("memory://lab/costs.npy"))
    assert (job["result"]["objective"], job["result"]["shape"]) == (5, [3, 3])
    assert next(iter((Path(api.app.app.state.settings.data) / "scratch").iterdir()), None) is None
    kinds = {kind["type"]: kind for kind in api.get("/v1/cost-types").json()["cost_types"]}
    assert kinds["npy"]["enabled"]


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_npy_is_read(make_app: Make, bucket: Any, version: tuple[int, int]) -> None:
    api, file = make_app(zarr_uris=["memory://lab/"]), io.BytesIO()
    np.lib.format.write_array(file, np.asarray(COST), version)
    bucket.pipe_file("/lab/costs.npy", file.getvalue())
    assert solved(api, cost_at("memory://lab/costs.npy"))["result"]["objective"] == 5


@pytest.mark.parametrize(
    ("content", "slug"),
    [
        (b"no array", "invalid-store"),
        (npy(COST)[:-8], "invalid-store"),
        (npy(np.arange(3.0)), "invalid-store"),
        (npy(np.array([["a"]])), "invalid-store"),
        (npy(np.zeros((40, 40))), "over-limit"),
        (npy(COST).replace(b"(3, 3)", b"(-1,3)"), "invalid-store"),
        (npy(COST).replace(b"NUMPY\x01", b"NUMPY\x02"), "invalid-store"),
        (npy(COST).replace(b"NUMPY\x01", b"NUMPY\x04"), "invalid-store"),
        (b"\x93NUMPY\x02\x00\xff\xff\xff\xff{'descr': '<f8'", "invalid-store"),
        (b"\x93NUMPY\x02\x00\x01\x00", "invalid-store"),
        (None, "source-failed"),
    ],
)
def test_files_that_are_refused(make_app: Make, bucket: Any, content: bytes | None, slug: str) -> None:
    api = make_app({"array_bytes": 10_000}, zarr_uris=["memory://lab/"])
    if content is not None:
        bucket.pipe_file("/lab/costs.npy", content)
    job = solved(api, cost_at("memory://lab/costs.npy"))
    assert (job["state"], job["attempt"]) == ("failed", 1)
    assert job["problem"]["type"] == f"urn:bigsap:problem:{slug}"
    assert job["problem"]["pointer"] == "/cost/uri"


ELSEWHERE = [
    "memory://other/costs.npy",
    "memory://lab/../other/costs.npy",
    "memory://labs/costs.npy",
    "simplecache::memory://lab/costs.npy",
    "memory://lab/a?b",
    "file:///etc/passwd",
]


@pytest.mark.parametrize("uri", ELSEWHERE)
def test_other_addresses_are_refused(make_app: Make, bucket: Any, uri: str) -> None:
    api = make_app(zarr_uris=["memory://lab/"], result_uris=["memory://lab/"])
    for body, pointer in ((cost_at(uri), "/cost/uri"), (SQUARE | {"results": uri}, "/results")):
        problem(api.post("/v1/jobs", json=body), 422, "forbidden-address", pointer)


def test_both_are_off_by_default(api: Any) -> None:
    for body, pointer in (
        (cost_at("s3://b/c.npy"), "/cost/uri"),
        (SQUARE | {"results": "s3://b"}, "/results"),
    ):
        problem(api.post("/v1/jobs", json=body), 422, "forbidden-address", pointer)
    assert api.get("/v1/capabilities").json()["remote"] == dict.fromkeys(
        ("zarr", "npy", "http_rows", "results"), False
    )
    with pytest.raises(ValueError, match="result_uris"):
        Settings(result_uris=["https://host/path/"])  # nothing is written there


def test_a_result_is_written_with_its_digest(make_app: Make, bucket: Any, tmp_path: Path) -> None:
    api = make_app(result_uris=["memory://out/"])
    assert api.get("/v1/capabilities").json()["remote"]["results"]
    job = solved(api, SQUARE | {"results": "memory://out/ann/"})
    stored = job["result"]["stored"]
    content = bucket.cat_file(f"/out/ann/{job['id']}.npz")
    assert stored == {
        "uri": f"memory://out/ann/{job['id']}.npz",
        "bytes": len(content),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    (tmp_path / "r.npz").write_bytes(content)
    result = bigsap.Result.load(tmp_path / "r.npz")
    assert result.fun == job["result"]["objective"] == 5
    result.verify(COST)
    summary = json.loads(bucket.cat_file(f"/out/ann/{job['id']}.json"))
    assert (summary["stored"], summary["objective"]) == (stored, 5)
    assert "stored" not in solved(api, SQUARE)["result"]


def test_the_file_of_a_ranking_job_has_the_arrays_that_it_says(make_app: Make, bucket: Any) -> None:
    """The costs of the first ranks are written, too; arrays of the ranking are not."""
    api = make_app(result_uris=["memory://out/"])
    job = solved(api, SQUARE | {"results": "memory://out/", "k_best": 3})
    summary = json.loads(bucket.cat_file(f"/out/{job['id']}.json"))
    assert summary["k_best"] == job["result"]["k_best"]
    assert summary["k_best"]["count"] == 3
    assert set(job["result"]["arrays"]) - set(summary["arrays"]) == {"k_costs", "k_col4row"}


def test_a_store_that_fails_does_not_fail_the_job(
    make_app: Make, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    api = make_app(result_uris=["memory://out/"])

    def put_file(*_: Any, **__: Any) -> None:
        raise PermissionError("the key AKIA1234 may not write")

    monkeypatch.setattr(type(bucket), "put_file", put_file)
    job = solved(api, SQUARE | {"results": "memory://out"})
    assert (job["state"], job["result"]["objective"]) == ("succeeded", 5)
    found = job["result"]["stored"]["problem"]
    assert (found["type"], found["pointer"]) == ("urn:bigsap:problem:result-not-stored", "/results")
    assert "PermissionError" in found["detail"]
    events = api.get(job["links"]["events"], headers={"Accept": "application/json"})
    assert "could not be written" in events.text
    assert "AKIA" not in events.text + json.dumps(job)


def test_the_worker_looks_at_the_list_again(bucket: Any, tmp_path: Path) -> None:
    settings = {"result_uris": ["memory://out/"], "data": str(tmp_path)}
    result = bigsap.solve(COST)
    found = objects.put_result(result, {}, "memory://other", "job_1", tmp_path / "new", settings)
    assert found["problem"]["type"].endswith("forbidden-address")
    assert bucket.store == {}


def test_a_result_on_its_way_to_a_store_lies_in_the_folder_of_its_job(
    make_app: Make, bucket: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """So that what a killed worker leaves goes with the next attempt, or with the job."""
    api, sent, usual = make_app(result_uris=["memory://out/"]), [], type(bucket).put_file

    def put_file(files: Any, file: str, *args: Any, **options: Any) -> None:
        sent.append(Path(file).parent)
        usual(files, file, *args, **options)

    monkeypatch.setattr(type(bucket), "put_file", put_file)
    job = solved(api, SQUARE | {"results": "memory://out"})
    folder = Folder(Path(api.app.app.state.settings.data) / "jobs" / job["id"])
    assert sent == [folder.unfinished(1)]
    assert not sent[0].exists()
    sent[0].mkdir()
    folder.prune(1, 1)
    assert not sent[0].exists()
    assert folder.result(1).exists()


def test_a_store_that_hangs_is_left(bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"result_uris": ["memory://out/"], "data": str(tmp_path)}
    result = bigsap.solve(COST)
    go_on, hung = threading.Event(), threading.Event()

    def put_file(*_: Any, **__: Any) -> None:
        hung.set()
        assert go_on.wait(HANG_S)

    monkeypatch.setattr(type(bucket), "put_file", put_file)
    found = objects.put_result(result, {}, "memory://out", "job_1", tmp_path / "new", settings, seconds=0.0)
    assert found["problem"]["type"].endswith("result-not-stored")
    assert "TimeoutError" in found["problem"]["detail"]
    assert hung.wait(HANG_S)
    threads = [thread for thread in threading.enumerate() if thread.name == "result-store"]
    go_on.set()
    for thread in threads:
        thread.join(HANG_S)
    assert bucket.store == {}


def test_a_fenced_attempt_writes_no_more(
    bucket: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {"result_uris": ["memory://out/"], "data": str(tmp_path)}
    result = bigsap.solve(COST)
    found = objects.put_result(result, {}, "memory://out", "job_1", tmp_path / "new", settings, lambda: True)
    assert "InterruptedError" in found["problem"]["detail"]
    assert bucket.store == {}
    fenced = threading.Event()
    put_file = type(bucket).put_file

    def fence_then(*args: Any, **options: Any) -> None:
        put_file(*args, **options)
        fenced.set()

    monkeypatch.setattr(type(bucket), "put_file", fence_then)
    found = objects.put_result(result, {}, "memory://out", "job_2", tmp_path / "new", settings, fenced.is_set)
    assert "InterruptedError" in found["problem"]["detail"]
    assert [name for name in bucket.store if name.endswith(".json")] == []


@pytest.mark.parametrize(
    ("limits", "detail"),
    [
        ({"rows": 2}, "3 rows"),
        ({"columns": 2}, "3 columns"),
        ({"pairs": 8}, "9 pairs"),
        ({"memory_bytes": 1 << 20}, "bytes of memory"),
    ],
)
def test_limits_are_those_of_the_opened_costs(make_app: Make, bucket: Any, limits: Any, detail: str) -> None:
    api = make_app(zarr_uris=["memory://lab/"], limits=limits)
    bucket.pipe_file("/lab/costs.npy", npy(COST))
    job = solved(api, cost_at("memory://lab/costs.npy"))
    assert (job["state"], job["problem"]["type"]) == ("failed", "urn:bigsap:problem:over-limit")
    assert detail in job["problem"]["detail"]
    assert job["problem"]["pointer"] == "/shape"


@pytest.mark.parametrize(
    ("more", "pointer"),
    [
        ({"warm_start": {"v": [[0, 0, 0]]}}, "/warm_start/v"),
        ({"warm_start": {"v": [0, "Infinity", 0]}}, "/warm_start/v/1"),
        ({"warm_start": {"v": [0, 0], "col4row": [0, 2]}}, "/warm_start/col4row"),
        ({"warm_start": {"v": [0, 0]}, "options": {"capacity": [1, 2, 3]}}, "/warm_start/v"),
        ({"options": {"unassigned_cost": [[1], [2]]}}, "/options/unassigned_cost"),
        ({"options": {"capacity": [0.5, 1]}}, "/options/capacity"),
        ({"options": {"demand": [1, 2], "unassigned_cost": [1, 2, 3]}}, "/options/demand"),
        ({"assignment": {"col4row": [[0, 1]]}}, "/assignment/col4row"),
        ({"assignment": {"col4row": [0, 2], "v": [0, 0]}}, "/assignment/col4row"),
        ({"assignment": {"col4row": [0, 1], "v": [0, 0], "v_low": [0]}}, "/assignment/v_low"),
    ],
)
def test_what_is_given_besides_costs_of_unknown_shape(
    make_app: Make, bucket: Any, more: dict[str, Any], pointer: str
) -> None:
    api = make_app(zarr_uris=["memory://lab/"])
    found = problem(api.post("/v1/jobs", json=cost_at("memory://lab/costs.npy") | more), 422, "invalid-spec")
    assert found["pointer"].startswith(pointer.rpartition("/")[0]), found


def test_arrays_for_another_shape_than_the_opened_costs_have(make_app: Make, bucket: Any) -> None:
    api = make_app(zarr_uris=["memory://lab/"])
    bucket.pipe_file("/lab/costs.npy", npy(COST))
    job = solved(api, cost_at("memory://lab/costs.npy") | {"options": {"capacity": [1, 1]}})
    assert job["problem"]["type"] == "urn:bigsap:problem:invalid-spec"
    assert job["problem"]["pointer"] == "/options/capacity"
