"""Problem documents tell clients nothing of the server's folders."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import bigsap_server.jobs.worker as worker
import numpy as np
import pytest
import zarr
from bigsap_server.problems import from_error, without_paths
from checks import SQUARE, problem, solved

SETTINGS = {"stores": {"lab": "/srv/stores/lab", "deep": "/srv/stores/lab/deep"}, "data": "/srv/data"}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("store '/srv/stores/lab/a.zarr': chunk c/0/0", "store 'lab/a.zarr': chunk c/0/0"),
        ("/srv/stores/lab/deep/x.npy", "deep/x.npy"),
        ("the store '/srv/stores/lab' is", "the store 'lab' is"),
        ("[Errno 13] No: '/srv/stores/lab2/x y/z.npy'", "[Errno 13] No: 'z.npy'"),
        ("[Errno 2] No: '/a/b' -> \"/c/d e\"", "[Errno 2] No: 'b' -> \"d e\""),
        ("/srv/data/arrays/arr_1/data.npy: short", "data/arrays/arr_1/data.npy: short"),
        ("no name (/usr/lib/python3/x.so)", "no name (x.so)"),
        ("file=/usr/lib/x.so", "file=x.so"),
        ("https://host/a/b?c and s3://b/c/d, /cost, a/b/c", None),
        ("pairs / rows, 3 /m", None),
    ],
)
def test_without_paths(text: str, shown: str | None) -> None:
    assert without_paths(text, SETTINGS) == (text if shown is None else shown)


def test_without_paths_behind_links_and_relative_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    settings = {"stores": {"lab": tmp_path / "link"}, "data": Path("data")}
    for place in ("real", "link"):
        assert without_paths(f"{tmp_path / place}/a.npy", settings) == "lab/a.npy"
    assert without_paths(f"{tmp_path}/data/jobs", settings) == "data/jobs"


def test_errors_of_files_without_settings() -> None:
    found = from_error(OSError(5, "Input/output error", "/srv/data/arrays/arr_1/data.npy"))
    assert found.detail.endswith(": 'data.npy'")


def test_a_store_is_called_by_its_name(make_app: Callable[..., Any], tmp_path: Path) -> None:
    lab = tmp_path / "lab"
    zarr.create_array(
        lab / "in" / "nan.zarr", shape=(3, 3), dtype="f8", chunks=(1, 3), fill_value=float("nan")
    )
    api = make_app(stores={"lab": lab})
    spec = {"cost": {"type": "zarr", "store": "lab", "path": "in/nan.zarr"}}
    told = [solved(api, spec)["problem"], api.post("/v1/costs:check", json=spec).json()]
    for document in told:
        assert "lab/in/nan.zarr" in document["detail"], document
        assert str(tmp_path) not in str(document)


def test_what_a_worker_says_of_its_files(
    make_app: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any, **__: Any) -> None:
        np.load(tmp_path / "data" / "jobs" / "gone.npy")

    monkeypatch.setattr(worker.bigsap, "solve", broken)
    api = make_app()
    found = solved(api, SQUARE)
    assert found["state"] == "failed"
    assert "'data/jobs/gone.npy'" in found["problem"]["detail"]
    assert str(tmp_path) not in api.get(found["links"]["self"]).text
    assert problem(api.get(found["links"]["result"]), 409, "no-result")
