"""For operators: turns between keys, audit, reloading, metrics, uploads that are not repeated."""

from __future__ import annotations

import asyncio
import errno
import importlib
import io
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import httpx
import numpy as np
import pytest
from bigsap_server import logs
from bigsap_server.api.app import create_app, expire, reload
from bigsap_server.auth import Caller, hashed
from bigsap_server.jobs import store as store_module
from bigsap_server.jobs.model import StoreUnavailable
from bigsap_server.jobs.store import JobStore
from bigsap_server.problems import HttpProblem
from bigsap_server.serve import reload_at_hangup, serve
from bigsap_server.settings import Settings
from checks import SQUARE, problem, solved, upload

import bigsap
from apps import TestClient, served, settings_in
from bigsap.cli import main
from gate import HANG_S, until

DEPLOY = Path(__file__).parents[2] / "deploy"


@pytest.fixture(autouse=True)
def logs_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """No handler of a test's own stderr is left to tests that follow."""
    monkeypatch.setattr("bigsap_server.logs.configure", lambda level: None)


def test_keys_take_turns_and_priorities_hold_within_a_key(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "jobs.sqlite")
    names = [("ann", 0), ("ann", 0), ("ann", 5), ("bob", 0), ("cid", -3), ("bob", 9)]
    for k, (owner, priority) in enumerate(names):
        store.submit(SQUARE | {"priority": priority}, owner=owner, label=str(k))
    order = []
    while (job := store.claim()) is not None:
        order.append(job.label)
        time.sleep(0.002)  # claims are told apart by their time
    assert order == ["2", "5", "4", "0", "3", "1"]
    store.close()


def keys_of(file: Path, *names: str) -> Path:
    tables = [f'[{name}]\nhash = "{hashed(name)}"\nscopes = ["read", "submit"]\n' for name in names]
    file.write_text("\n".join(tables))
    return file


def test_the_access_log_names_key_and_address(
    make_app: Callable[..., Any], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    api = make_app(keys=keys_of(tmp_path / "keys.toml", "ann"))
    with caplog.at_level(logging.INFO, "bigsap_server.access"):
        headers = {"X-API-Key": "ann", "X-Request-Id": "mine"}
        found = problem(api.post("/v1/jobs", json={}, headers=headers), 422, "invalid-spec")
        assert found["request"] == "mine"
        found = problem(api.post("/v1/jobs", json={}), 401, "unauthorized")
        assert found["request"]
    known, unknown = (vars(record) for record in caplog.records)
    assert (known["key"], known["address"]) == ("ann", "testclient")
    assert (unknown["key"], unknown["address"]) == (None, "testclient")


def test_keys_and_settings_are_reloaded(tmp_path: Path) -> None:
    file = keys_of(tmp_path / "keys.toml", "ann")
    settings = settings_in(tmp_path / "data", keys=file)
    app = create_app(settings)
    with TestClient(app, base_url="http://127.0.0.1:8765") as client:

        def status(key: str) -> int:
            return client.get("/v1/capabilities", headers={"X-API-Key": key}).status_code

        assert (status("ann"), status("bob")) == (200, 401)
        keys_of(file, "bob")
        (tmp_path / "lab").mkdir()
        new = settings_in(
            tmp_path / "data", {"rows": 7, "checks": 1}, keys=file, stores={"lab": tmp_path / "lab"}
        )
        reload(app, new)
        assert (status("ann"), status("bob")) == (401, 200)
        found = client.get("/v1/capabilities", headers={"X-API-Key": "bob"}).json()
        assert (found["limits"]["rows"], found["stores"]) == (7, ["lab"])
        app.app.state.service.checks.acquire_on_behalf_of_nowait(object())
        checked = client.post("/v1/costs:check", json=SQUARE, headers={"X-API-Key": "bob"})
        problem(checked, 429, "too-many-requests")
        # What is wrong changes nothing.
        file.write_text("[")
        with pytest.raises(ValueError, match=r"keys\.toml"):
            reload(app, settings)
        keys_of(file, "bob")
        with pytest.raises(ValueError, match="'absent' is not installed"):
            reload(app, settings_in(tmp_path / "data", keys=file, plugins=["absent"]))
        with pytest.raises(ValueError, match="restart it"):
            reload(app, settings_in(tmp_path / "data"))
        assert status("bob") == 200


def test_a_reload_belongs_to_no_request(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Although the signal comes in the middle of one."""
    app, seen = create_app(settings_in(tmp_path)), list[Any]()

    async def hang_up() -> None:
        done = asyncio.Event()

        def again() -> Settings:
            seen.append(logs.context.get())
            done.set()
            raise ValueError("what is wrong")

        reload_at_hangup(app, again)
        logs.context.set({"request": "r"})
        signal.raise_signal(signal.SIGHUP)
        await done.wait()

    asyncio.run(hang_up())
    assert seen == [None]
    assert "the settings stay as they were: what is wrong" in caplog.text


def test_a_reload_asked_for_during_the_start_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that comes before the service is imported does not end the process."""
    settings, early = settings_in(tmp_path, port=0), MagicMock()
    load = MagicMock(side_effect=[settings, ValueError("what is wrong")])

    def imported(name: str) -> Any:
        signal.raise_signal(signal.SIGHUP)
        return importlib.import_module(name)

    async def startup(server: Any, sockets: Any) -> None:
        server.started = True

    def run(server: Any, sockets: Any) -> None:
        asyncio.run(server.startup(sockets))

    def opened(*given: Any) -> JobStore:
        signal.raise_signal(signal.SIGHUP)
        return JobStore(*given)

    before = [(kind, signal.getsignal(kind)) for kind in (signal.SIGTERM, signal.SIGHUP)]
    monkeypatch.setattr("bigsap_server.settings.load", load)
    monkeypatch.setattr("bigsap.cli.job_commands.importlib", MagicMock(import_module=imported))
    monkeypatch.setattr("bigsap_server.serve.JobStore", opened)
    monkeypatch.setattr("bigsap_server.serve.uvicorn.Server.startup", startup)
    monkeypatch.setattr("bigsap_server.serve.uvicorn.Server.run", run)
    signal.signal(signal.SIGHUP, early)
    try:
        assert main(["serve"]) == 0
    finally:
        for kind, handler in before:
            signal.signal(kind, handler)
    assert load.call_count == 2
    early.assert_not_called()


OTEL = {
    "opentelemetry.trace": ["set_tracer_provider"],
    "opentelemetry.exporter.otlp.proto.http.trace_exporter": ["OTLPSpanExporter"],
    "opentelemetry.instrumentation.fastapi": ["FastAPIInstrumentor"],
    "opentelemetry.sdk.trace": ["TracerProvider"],
    "opentelemetry.sdk.trace.export": ["BatchSpanProcessor"],
}


@pytest.mark.parametrize(("installed", "address"), [(True, True), (True, False), (False, True)])
def test_traces_where_the_extra_is_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, installed: bool, address: bool
) -> None:
    parts = {name: MagicMock() for names in OTEL.values() for name in names}
    monkeypatch.setitem(sys.modules, "opentelemetry", SimpleNamespace())
    for module, names in OTEL.items():
        found = SimpleNamespace(**{name: parts[name] for name in names}) if installed else None
        monkeypatch.setitem(sys.modules, module, found)
        if module == "opentelemetry.trace" and installed:
            sys.modules["opentelemetry"].trace = found  # type: ignore[attr-defined]
    if address:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4318")
    app = create_app(settings_in(tmp_path / "data")).app
    instrumented = parts["FastAPIInstrumentor"].instrument_app.call_args_list
    assert [call.args for call in instrumented] == ([(app,)] if installed else [])
    assert parts["set_tracer_provider"].called == (installed and address)


def test_reloaded_keys_keep_their_count_and_removed_ones_end(tmp_path: Path) -> None:
    file = keys_of(tmp_path / "keys.toml", "ann", "bob")
    app = create_app(settings_in(tmp_path / "data", {"streams": 2}, keys=file))
    with TestClient(app, base_url="http://127.0.0.1:8765") as client:
        service = app.app.state.service

        def caller(key: str) -> Caller:
            found: Caller = service.keys.caller(None, key)
            return found

        ann, bob = caller("ann"), caller("bob")
        with ann.waiting(), bob.waiting():
            limits = {"streams": 1, "burst": 3}
            portal = client.portal
            assert portal is not None
            portal.call(reload, app, settings_in(tmp_path / "data", limits, keys=keys_of(file, "ann")))
            assert caller("ann") is ann
            assert not ann.may_wait
            with pytest.raises(HttpProblem, match="unknown key"):
                caller("bob")
            assert not bob.has("read")
        assert ann.may_wait
        assert ann.bucket is not None
        # What is left of the former burst is no more than the new one.
        assert [ann.bucket.take() == 0 for _ in range(5)].count(True) <= 3


def test_the_stream_of_a_removed_key_ends(tmp_path: Path) -> None:
    file = keys_of(tmp_path / "keys.toml", "ann", "bob")
    app = create_app(settings_in(tmp_path / "data", keys=file))
    with served(app) as url, httpx.Client(base_url=url, timeout=HANG_S) as client:
        service = app.app.state.service
        service.supervisor.stop()
        ann = {"X-API-Key": "ann"}
        job = client.post("/v1/jobs", json=SQUARE, headers=ann).json()
        with client.stream("GET", job["links"]["events"], headers=ann) as answer:
            lines = answer.iter_lines()
            assert "queued" in next(line for line in lines if line.startswith("data:"))
            new = settings_in(tmp_path / "data", keys=keys_of(file, "bob"))
            service.notifier._loop.call_soon_threadsafe(reload, app, new)
            assert [line for line in lines if line.startswith("data:")] == []


def test_a_new_key_of_the_same_name_has_its_jobs(tmp_path: Path) -> None:
    file = keys_of(tmp_path / "keys.toml", "ann")
    app = create_app(settings_in(tmp_path / "data", keys=file))
    with TestClient(app, base_url="http://127.0.0.1:8765") as client:
        job = client.post("/v1/jobs", json=SQUARE, headers={"X-API-Key": "ann"}).json()["links"]["self"]
        file.write_text(file.read_text().replace(hashed("ann"), hashed("new")))
        assert client.portal is not None
        client.portal.call(reload, app, settings_in(tmp_path / "data", keys=file))
        assert client.get(job, headers={"X-API-Key": "new"}).status_code == 200
        problem(client.get(job, headers={"X-API-Key": "ann"}), 401, "unauthorized")


def test_the_long_poll_of_a_removed_key_ends(tmp_path: Path) -> None:
    file, answers = keys_of(tmp_path / "keys.toml", "ann", "bob"), list[httpx.Response]()
    app = create_app(settings_in(tmp_path / "data", keys=file))
    with served(app) as url, httpx.Client(base_url=url, timeout=HANG_S) as client:
        service = app.app.state.service
        service.supervisor.stop()
        ann, caller = {"X-API-Key": "ann"}, service.keys.caller(None, "ann")
        job = client.post("/v1/jobs", json=SQUARE, headers=ann)
        poll, tag = f"{job.json()['links']['self']}?wait=60", {"If-None-Match": job.headers["ETag"]}
        thread = threading.Thread(target=lambda: answers.append(client.get(poll, headers=ann | tag)))
        thread.start()
        until(lambda: caller.streams == 1)
        new = settings_in(tmp_path / "data", keys=keys_of(file, "bob"))
        service.notifier._loop.call_soon_threadsafe(reload, app, new)
        thread.join(HANG_S)
    problem(answers[0], 403, "forbidden")


def test_a_store_that_does_not_exist_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = settings_in(tmp_path / "data", stores={"lab": tmp_path / "nothing"}, port=0)
    assert serve(settings) == 1
    assert "stores.lab: there is no folder" in capsys.readouterr().err


def test_a_data_folder_that_cannot_be_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    folder = tmp_path / "file" / "data"
    assert serve(settings_in(folder, port=0)) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == f"bigsap serve: data: cannot use the folder {folder}: Not a directory"


def test_a_wrong_file_of_keys_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "keys.toml"
    settings = settings_in(tmp_path / "data", keys=file, port=0)
    assert serve(settings) == 1
    file.write_text("[ann]\n")
    assert serve(settings) == 1
    missing, wrong = capsys.readouterr().err.splitlines()[-2:]
    assert missing == f"bigsap serve: keys: cannot read {file}: No such file or directory"
    assert wrong.startswith(f"bigsap serve: {file}: ann.hash: Field required; ann.scopes: ")


def test_a_plugin_that_is_not_installed_is_refused_at_the_start(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve(settings_in(tmp_path / "data", plugins=["no-such-plugin"], port=0)) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert said.startswith("bigsap serve: plugins: 'no-such-plugin' is not installed")


def test_a_second_server_on_the_same_data_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bigsap_server.serve.uvicorn.Config", lambda *_, **__: pytest.fail("it listens"))
    store = JobStore(tmp_path / "data" / "jobs.sqlite")
    try:
        assert serve(settings_in(tmp_path / "data", port=0)) == 1
    finally:
        store.close()
    assert "another server owns" in capsys.readouterr().err


STOPPING = """
import sys
import threading

from bigsap_server.jobs.supervisor import Supervisor
from bigsap.cli import main

def stop(self):
    print("stopping", flush=True)
    threading.Event().wait()

Supervisor.stop = stop
main(["serve", "--port", "0", "--data", sys.argv[1]])
"""


@pytest.mark.some(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    monkeypatch.setenv("BIGSAP_EXECUTOR", "inline")
    command = [sys.executable, "-c", STOPPING, str(tmp_path / "data")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline().startswith("BigSAP serves at")
            child.send_signal(number)
            assert child.stdout.readline() == "stopping\n"
            child.send_signal(number)
            assert child.wait(HANG_S) == -number
        finally:
            child.kill()


def test_metrics_of_jobs(api: Any) -> None:
    solved(api, SQUARE)
    bad = {"shape": [2, 2], "cost": {"type": "expression", "code": "log(0 * i - 1)"}}
    assert solved(api, bad)["state"] == "failed"
    text = api.get("/metrics").text
    assert 'bigsap_job_seconds_count{state="succeeded"} 1.0' in text
    assert 'bigsap_jobs{state="succeeded"} 1.0' in text
    assert "bigsap_jobs_submitted_total 2.0" in text
    assert re.search(r'bigsap_requests_total{method="POST",route="/v1/jobs",status="20\d"} [12]', text)
    assert "bigsap_job_queue_seconds_count 2.0" in text
    assert 'bigsap_jobs_failed_total{reason="invalid-cost"} 1.0' in text
    assert "bigsap_disk_free_bytes" in text


@pytest.mark.parametrize("left", [None, b"", b"\x93NUMPY", b"no array"])
def test_a_result_whose_files_are_gone_or_damaged(api: Any, left: bytes | None) -> None:
    job = solved(api, SQUARE)
    store = api.app.app.state.service.store
    file = store.result_file(store.get(job["id"]), "v")
    file.unlink()
    if left is not None:
        file.write_bytes(left)
    result = f"/v1/jobs/{job['id']}/result"
    for path, kind in ((f"{result}/v", "application/json"), (result, "application/x-npz")):
        problem(api.get(path, headers={"Accept": kind}), 404, "not-found")
    start = SQUARE | {"warm_start": {"job": job["id"]}}
    problem(api.post("/v1/jobs", json=start), 422, "invalid-spec", "/warm_start/job")


def test_a_result_in_one_file(api: Any, tmp_path: Path) -> None:
    cost = {"type": "array", "values": [[4, 1, 3], [2, 0, 5]]}
    job = solved(api, {"cost": cost, "options": {"unassigned_cost": 3}})
    answer = api.get(job["links"]["result"], headers={"Accept": "application/x-npz"})
    assert answer.headers["content-type"] == "application/x-npz"
    (tmp_path / "r.npz").write_bytes(answer.content)
    result = bigsap.Result.load(tmp_path / "r.npz")
    assert (result.status, result.fun, result.shape) == ("optimal", job["result"]["objective"], (2, 3))
    result.verify(np.array(cost["values"]))
    assert np.load(io.BytesIO(answer.content))["col4row"].tolist() == result.col4row.tolist()
    assert api.get(job["links"]["result"]).json()["status"] == "optimal"


RANGES = {
    "bytes=0-3": 206,
    "bytes=0-1,4-5": 206,
    "bytes=-8": 206,
    "bytes=5-2": 200,
    "bytes=a": 200,
    "lines=1-2": 200,
    "bytes=999999-": 416,
}


@pytest.mark.parametrize("wanted", RANGES)
def test_a_range_of_the_whole_result_leaves_no_file(api: Any, tmp_path: Path, wanted: str) -> None:
    link = solved(api, SQUARE)["links"]["result"]
    headers = {"Accept": "application/x-npz"}
    whole = api.get(link, headers=headers)
    answer = api.get(link, headers={**headers, "Range": wanted})
    assert answer.status_code == RANGES[wanted]
    if answer.status_code == 416:
        problem(answer, 416, "range-not-satisfiable")
    elif answer.status_code == 200:
        assert answer.content == whole.content
    head = api.head(link, headers=headers)
    same = {**headers, "If-None-Match": whole.headers["etag"]}
    assert (head.headers["etag"], api.get(link, headers=same).status_code) == (whole.headers["etag"], 304)
    assert head.headers["last-modified"] == whole.headers["last-modified"]
    assert list((tmp_path / "data" / "scratch").iterdir()) == []


@pytest.mark.parametrize(("path", "kind"), [("", "application/x-npz"), ("/{name}", "application/x-npy")])
def test_ranges_of_results_are_in_the_document(api: Any, path: str, kind: str) -> None:
    responses = api.get("/openapi.json").json()["paths"]["/v1/jobs/{job_id}/result" + path]["get"][
        "responses"
    ]
    assert set(responses["206"]["content"]) == {kind, "multipart/byteranges"}
    assert {"304", "416"} <= set(responses)


def test_a_whole_result_that_cannot_be_sent_leaves_no_file(
    make_app: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "data" / "scratch"
    scratch.mkdir(parents=True)
    (scratch / "job_0123456789abcdef-00000000.npz").write_bytes(b"of a server that was killed")
    (scratch / "of_a_worker").mkdir()
    api = make_app()
    link, headers = solved(api, SQUARE)["links"]["result"], {"Accept": "application/x-npz"}
    with monkeypatch.context() as patched:
        patched.setattr("bigsap_server.api.downloads.FileResponse._handle_simple", broken)
        assert api.get(link, headers=headers).status_code == 500
    with monkeypatch.context() as patched:
        patched.setattr(bigsap.Result, "save", half_written)
        problem(api.get(link, headers=headers), 507, "disk-full")
    assert [file.name for file in scratch.iterdir()] == ["of_a_worker"]


async def broken(*_: Any) -> None:
    raise OSError("the client has gone")


def half_written(_: Any, file: Path) -> None:
    file.write_bytes(b"PK")
    raise OSError(errno.ENOSPC, "no space left")


def test_uploads_are_found_by_digest_and_expire(make_app: Callable[..., Any], tmp_path: Path) -> None:
    api = make_app()
    x = np.arange(6.0).reshape(3, 2)
    array_id = upload(api, x)
    sha256 = api.get(f"/v1/arrays/{array_id}").json()["sha256"]
    wanted = {"dtype": "float64", "shape": [3, 2], "sha256": sha256}
    found = api.post("/v1/arrays", json=wanted)
    assert (found.status_code, found.json()["id"]) == (200, array_id)
    for other in (wanted | {"shape": [6]}, wanted | {"dtype": "int64"}, wanted | {"sha256": "0" * 64}):
        assert api.post("/v1/arrays", json=other).status_code == 201
    service = api.app.app.state.service
    store = service.arrays
    assert store.expire(3600, service.store.unused) == []
    meta = store.folder / array_id / "meta.json"
    os.utime(meta, (1, 1))
    job, _ = service.store.submit({"cost": {"type": "array", "values": {"array": array_id}}})
    assert store.expire(3600, service.store.unused) == []  # an unfinished job uses it
    service.store.request_cancel(job.id, "now")
    until(lambda: not service.store.get(job.id).active)
    assert store.expire(3600, service.store.unused) == []  # used until now
    os.utime(meta, (1, 1))
    assert store.expire(3600, service.store.unused) == [array_id]
    assert api.get(f"/v1/arrays/{array_id}").status_code == 404


def test_jobs_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1e9]
    monkeypatch.setattr(store_module, "time", SimpleNamespace(time=lambda: now[0]))
    with closing(JobStore(tmp_path / "jobs.sqlite")) as store:

        def ended() -> str:
            job, _ = store.submit(SQUARE)
            store.folder(job.id).mkdir(parents=True)
            return store.request_cancel(job.id, "now").id

        old, used, again = ended(), ended(), ended()
        store.submit(SQUARE | {"warm_start": {"job": used}})
        now[0] += 86_400
        young, active = ended(), store.submit(SQUARE)[0].id
        store.resume(again)
        store.request_cancel(again, "now")
        now[0] += 1
        assert store.expire(86_402) == []
        # Ended anew between the look and the deletion.
        usual = JobStore.delete

        def late(self: JobStore, job_id: str, *given: float) -> None:
            if job_id == old and store.get(old).finished == 1e9:
                self.resume(old)
                self.request_cancel(old, "now")
            usual(self, job_id, *given)

        with monkeypatch.context() as patched:
            patched.setattr(JobStore, "delete", late)
            assert store.expire(86_400) == []
        now[0] += 86_401
        assert store.expire(86_400) == [old, again, young]
        assert store.known() >= {used, active}
        assert not store.folder(old).exists()


def test_what_cannot_expire_now_does_an_hour_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    app = create_app(settings_in(tmp_path / "data", {"job_days": 1e-9, "array_days": 1e-9}))
    with TestClient(app, base_url="http://127.0.0.1:8765") as client:
        service, portal = app.app.state.service, client.portal
        assert portal is not None
        job_id = solved(client, SQUARE)["id"]

        def locked(*_: Any) -> Any:
            raise StoreUnavailable("the job table is locked")

        with monkeypatch.context() as patched:
            patched.setattr(JobStore, "expire", locked)
            portal.call(expire, service)
        assert "jobs cannot expire: the job table is locked" in caplog.text
        assert service.store.known() == {job_id}
        portal.call(expire, service)
        assert service.store.known() == set()


def test_nginx_lets_through_what_the_service_takes() -> None:
    said = dict(re.findall(r"^ *(\w+) (.+);$", (DEPLOY / "nginx.conf").read_text(), re.M))
    settings = settings_in(Path("unused"))
    assert int(said["client_max_body_size"].removesuffix("m")) << 20 >= settings.limits.block_bytes
    assert int(said["proxy_read_timeout"].removesuffix("s")) > settings.limits.wait_s
    assert said["proxy_buffering"] == said["proxy_request_buffering"] == "off"
    assert said["proxy_pass"] == f"http://{settings.host}:{settings.port}"
