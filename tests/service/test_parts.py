"""Small parts: layers, negotiation, problems, waking, what is logged and told of files."""

from __future__ import annotations

import ast
import asyncio
import errno
import json
import logging
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import bigsap_server
import bigsap_server.jobs.worker as worker
import numpy as np
import pytest
import zarr
from bigsap_server import logs
from bigsap_server.api.negotiation import accepted, matches, preferred_wait, satisfiable
from bigsap_server.jobs.events import Notifier
from bigsap_server.jobs.model import FINISHED, RUNNING, STATES, JobState
from bigsap_server.problems import PROBLEMS, HttpProblem, from_error, pointer_to, without_paths
from checks import SQUARE, problem, solved

import bigsap
from gate import HANG_S

SERVER = Path(bigsap_server.__file__).parent
#: Modules of the library for programs that solve elsewhere.
SHARED = (
    "bigsap.info",
    "bigsap.k_best",
    "bigsap.memory",
    "bigsap.option_table",
    "bigsap.preview",
    "bigsap.sources.cost_specs",
    "bigsap.summary",
    "bigsap.system",
)


def test_the_server_uses_only_what_bigsap_exports() -> None:
    """And eight modules that it shares with the command line and the client."""
    for file in SERVER.rglob("*.py"):
        tree = ast.parse(file.read_text())
        for node in ast.walk(tree):
            module = getattr(node, "module", None) or ""
            if module.startswith("bigsap.") and module not in SHARED:
                raise AssertionError(f"{file.name} imports from {node.module}")
            if isinstance(node, ast.ImportFrom) and node.module == "bigsap":
                names = {alias.name for alias in node.names}
                assert names <= {*bigsap.__all__, "preview"}, file.name
            if isinstance(node, ast.Import):
                assert not any(a.name.startswith("bigsap.") for a in node.names), file.name
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.value, ast.Name)
                and node.value.id == "bigsap"
            ):
                assert node.attr in bigsap.__all__, f"{file.name}: bigsap.{node.attr}"


def test_workers_need_no_web_framework() -> None:
    code = (
        "import sys; import bigsap_server.costs.build, bigsap_server.jobs.worker;"
        "print([m for m in ('fastapi', 'uvicorn', 'starlette', 'distributed') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    assert done.stdout.strip() == "[]"


OFFERS = ["application/x-npy", "text/csv", "application/json"]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, 0),
        ("*/*", 0),
        ("text/csv", 1),
        ("text/*", 1),
        ("application/json;q=0.5, text/csv;q=0.9", 1),
        ("TEXT/CSV", 1),
        ("application/json, */*;q=0.1", 2),
        ("application/x-npy;q=0, */*", 1),
    ],
)
def test_accept(header: str | None, expected: int) -> None:
    assert accepted(header, OFFERS) == OFFERS[expected]


@pytest.mark.parametrize("header", ["image/png", "text/csv;q=0", "text", "text/csv;q=abc", ","])
def test_accept_of_nothing_we_have(header: str) -> None:
    with pytest.raises(HttpProblem):
        accepted(header, OFFERS)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("wait=5", 5),
        ("respond-async, wait=10", 10),
        ("wait = 3; x", 3),
        ("Respond-Async, Wait=4", 4),
        ("await=5", None),
        ("wait=-5", None),
        ("wait=5.5", None),
        ('wait="7"', 7),
        ("handling=lenient", None),
    ],
)
def test_prefer(header: str | None, expected: float | None) -> None:
    assert preferred_wait(header) == expected


def test_states_are_those_of_the_documents() -> None:
    page = (SERVER.parents[1] / "docs" / "service.md").read_text()
    for name, state in STATES.items():
        assert f"| `{name}` | {state.meaning} | {', '.join(state.next)} |\n" in page
        assert set(state.next) <= set(STATES)
    assert set(STATES) == set(get_args(JobState))
    assert set(RUNNING) | set(FINISHED) | {"queued", "interrupted"} == set(STATES)


def test_entity_tags() -> None:
    assert matches('"1"', '"1"')
    assert matches('W/"1"', '"1"')
    assert matches('"0", "1"', '"1"')
    assert matches("*", '"1"')
    assert not matches('"2"', '"1"')
    assert not matches(None, '"1"')


def test_ranges() -> None:
    assert satisfiable("bytes=0-1, 5-", 10) == "bytes=0-1,5-"
    assert satisfiable("bytes=0-1,10-,-3, 12-15,-0", 10) == "bytes=0-1,-3"
    for ignored in (None, "", "bytes=5-1", "bytes=-", "BYTES 1", "bytes=0-1,5-1"):
        assert satisfiable(ignored, 10) is None
    for outside in ("bytes=10-", "bytes=-0", "bytes=10-,-0"):
        with pytest.raises(HttpProblem):
            satisfiable(outside, 10)


def test_problems() -> None:
    for slug, (status, title) in PROBLEMS.items():
        assert 400 <= status < 600
        assert title
        assert slug.replace("-", "").isalpha()
    found = HttpProblem("over-limit", "too many", pointer="/a", row=3)
    assert found.document("/x") == {
        "type": "urn:bigsap:problem:over-limit",
        "title": PROBLEMS["over-limit"][1],
        "status": 422,
        "detail": "too many",
        "instance": "/x",
        "pointer": "/a",
        "row": 3,
    }
    # Workers send them between processes.
    assert pickle.loads(pickle.dumps(found)).document() == found.document()
    assert pointer_to("a/b", 0, "c~d") == "/a~1b/0/c~0d"


@pytest.mark.parametrize(
    ("error", "slug"),
    [
        (bigsap.InvalidCostError("cost[1, 2] is nan", 1, 2), "invalid-cost"),
        (bigsap.StoreError("chunk missing"), "source-failed"),
        (bigsap.OptionError("bad"), "invalid-spec"),
        (bigsap.CertificateError("not tight"), "certificate-failed"),
        (MemoryError(), "out-of-memory"),
        (OSError(errno.ENOSPC, "full"), "disk-full"),
        (OSError(errno.EDQUOT, "quota"), "disk-full"),
        (OSError(errno.EACCES, "denied"), "solve-failed"),
        (RuntimeError("x"), "solve-failed"),
    ],
)
def test_errors_of_a_solve(error: Exception, slug: str) -> None:
    assert from_error(error).slug == slug


def test_lines_of_a_request_have_its_ids() -> None:
    token = logs.context.set({"request": "r1", "job": "job_1"})
    try:
        record = logging.LogRecord("bigsap_server", logging.INFO, "f.py", 1, "a %s", ("b",), None)
        found = json.loads(logs.JsonFormatter().format(record))
    finally:
        logs.context.reset(token)
    assert (found["message"], found["request"], found["job"]) == ("a b", "r1", "job_1")


def test_waking_from_other_threads() -> None:
    async def scenario() -> None:
        notifier = Notifier(asyncio.get_running_loop())
        with notifier.watching("a") as wait, notifier.watching("a") as other:
            assert not await wait(0.01)
            threading.Timer(0.05, notifier.wake, ("a",)).start()
            assert await wait(HANG_S)
            assert await other(HANG_S)
            notifier.wake("b")
            assert not await wait(0.05)
            notifier.wake("a")
            await asyncio.sleep(0.05)  # a change between two waits is not missed
            assert await wait(HANG_S)
            threading.Timer(0.05, notifier.close).start()
            assert await wait(HANG_S)
            assert notifier.stopping
            await asyncio.wait_for(wait(100), HANG_S)  # no waiting any more
        assert notifier._waiters == {}

    asyncio.run(scenario())


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


_WORKER = """
import logging, threading
import distributed
from bigsap_server import logs
from bigsap_server.jobs import worker
worker.dask_setup(None)
import numpy as np
def run():
    np.log(np.zeros(1))
    logging.getLogger("bigsap_server.worker").error("two\\nlines")
with logs.about(True, job="job_1", attempt=2):
    run()
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
logging.getLogger("distributed.worker").error("an error")
logging.getLogger("distributed.worker").warning("no error")
logging.getLogger("uvicorn.error").warning("x", extra={"color_message": "\\x1b[36mx"})
"""


def test_lines_of_a_worker_are_json_with_the_job() -> None:
    done = subprocess.run(
        [sys.executable, "-W", "always", "-c", _WORKER],
        capture_output=True,
        text=True,
        timeout=200,
        check=True,
    )
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [line["logger"] for line in lines] == [
        "py.warnings",
        "bigsap_server.worker",
        "py.warnings",
        "bigsap_server.worker",
        "distributed.worker",
        "uvicorn.error",
    ]
    assert "RuntimeWarning: divide by zero" in lines[0]["message"]
    assert all((line["job"], line["attempt"]) == ("job_1", 2) for line in lines[:4])
    assert "job" not in lines[4]
    assert "color_message" not in lines[5]
