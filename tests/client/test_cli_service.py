"""``bigsap serve``, ``submit``, ``jobs``, ``result`` and ``cancel``, against a real service."""

from __future__ import annotations

import json
import os
import re
import runpy
import signal
import subprocess
import sys
from unittest.mock import MagicMock

import numpy as np
import pytest
import scipy.sparse

import bigsap
from bigsap.cli import commands as cli
from bigsap.client.http import UnreachableError
from gate import HANG_S, gated_job, until

pytest.importorskip("httpx", reason="extra http")
pytest.importorskip("fastapi", reason="extra server")


RNG = np.random.default_rng(3)
X, Y = RNG.random((60, 2)), RNG.random((60, 2))


@pytest.fixture
def service(live_server, monkeypatch) -> str:
    """Its address, which the commands find in the environment."""
    monkeypatch.setenv("BIGSAP_URL", live_server.url)
    monkeypatch.delenv("BIGSAP_KEY", raising=False)
    return live_server.url


@pytest.fixture
def spec(tmp_path) -> str:
    """A cost spec with two point sets in files beside it."""
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", Y.astype(np.float32))
    cost = {"type": "points", "x": {"npy": "x.npy"}, "y": {"npy": "y.npy"}}
    (tmp_path / "spec.json").write_text(json.dumps(cost))
    return str(tmp_path / "spec.json")


def run(*argv: object) -> int:
    return cli.main([str(arg) for arg in argv])


def record_of(capsys) -> dict:
    return json.loads(capsys.readouterr().out, parse_constant=pytest.fail)


def test_submit_jobs_result_cancel(service, spec, tmp_path, capsys):
    assert run("submit", spec, "--label", "cli", "--json", "--seed", 5) == 0
    out, err = capsys.readouterr()
    job = json.loads(out)
    assert (job["label"], job["shape"], job["exit_code"]) == ("cli", [60, 60], 0)
    assert re.search(r"^x\.npy is arr_\w+$", err, re.M)

    assert run("result", job["id"], "--wait", "-o", tmp_path / "r", "--json") == 0
    found = record_of(capsys)
    assert (found["id"], found["status"]) == (job["id"], "optimal")
    assert found["output"] == str(tmp_path / "r.npz")
    result = bigsap.Result.load(tmp_path / "r.npz")
    result.verify(bigsap.points(X, Y.astype(np.float32)))
    assert found["fun"] == result.fun

    assert run("jobs", job["id"]) == 0
    shown = capsys.readouterr().out
    assert re.search(r"^state +succeeded$", shown, re.M)
    assert re.search(r"^n +60 x 60$", shown, re.M)
    assert run("jobs", "--label", "cli") == 0
    header, line = capsys.readouterr().out.splitlines()
    assert header.split() == ["ID", "STATE", "CREATED", "DONE", "LABEL"]
    assert line.split()[:2] == [job["id"], "succeeded"]
    assert run("jobs", "--label", "cli", "--state", "failed") == 0
    assert capsys.readouterr().out == "no jobs\n"
    assert run("jobs", "--json", "--limit", 1) == 0
    assert len(record_of(capsys)["jobs"]) == 1

    assert run("cancel", job["id"]) == 6  # it is over
    assert "succeeded" in capsys.readouterr().err


def test_submit_and_wait_prints_what_solve_prints(service, spec, tmp_path, capsys):
    assert run("submit", spec, "--wait", "-o", tmp_path / "r.npz") == 0
    out, err = capsys.readouterr()
    labels = [line.split("  ")[0] for line in out.splitlines()]
    assert {"job", "status", "n", "cost", "bound", "gap", "rows evaluated"} <= set(labels)
    assert "saved to" in err
    assert run("submit", spec, "--wait", "--quiet", "--json") == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert json.loads(out)["state"] == "succeeded"


def test_whole_requests_matrices_and_options(service, tmp_path, capsys):
    cost = RNG.integers(0, 50, (8, 8))
    np.save(tmp_path / "c.npy", cost)
    best = bigsap.solve(cost, maximize=True).fun
    assert run("submit", tmp_path / "c.npy", "--maximize", "--wait", "--json") == 0
    assert record_of(capsys)["fun"] == best
    request = {"cost": {"type": "npy", "path": "c.npy"}, "options": {"maximize": True}}
    (tmp_path / "request.json").write_text(json.dumps(request))
    assert run("submit", tmp_path / "request.json", "--wait", "--json") == 0
    found = record_of(capsys)
    assert (found["fun"], found["maximize"]) == (best, True)
    infinite = '{"type": "array", "values": [[1, Infinity], [2, Infinity]]}'
    (tmp_path / "infeasible.json").write_text(infinite)
    assert run("submit", tmp_path / "infeasible.json", "--wait", "--json") == 3
    assert record_of(capsys)["violator"] == [0, 1]


def test_what_solve_takes_is_submitted(service, tmp_path, capsys):
    zarr = pytest.importorskip("zarr", reason="extra zarr")
    cost = RNG.integers(1, 50, (8, 8))
    best = bigsap.solve(cost).fun
    zarr.save_array(tmp_path / "c.zarr", cost)
    scipy.sparse.save_npz(tmp_path / "c.npz", scipy.sparse.csr_array(cost))
    store = {"type": "zarr", "path": "c.zarr"}
    twice = {"type": "sum", "terms": [store, {"type": "scale", "cost": store, "factor": 2}]}
    (tmp_path / "store.json").write_text(json.dumps(store))
    (tmp_path / "twice.json").write_text(json.dumps(twice))
    for name, times in {"store.json": 1, "twice.json": 3, "c.zarr": 1, "c.npz": 1}.items():
        if name != "twice.json":  # combinations are for a service
            assert run("solve", tmp_path / name, "--json") == 0
            assert record_of(capsys)["fun"] == best
        assert run("submit", tmp_path / name, "--wait", "--json") == 0
        out, err = capsys.readouterr()
        assert json.loads(out)["fun"] == times * best
        assert err.count("c.zarr is arr_") == (name != "c.npz")


def test_nan_in_a_file_is_found_before_anything_is_sent(service, tmp_path, capsys):
    assert run("arrays", "--json") == 0
    before = record_of(capsys)["arrays"]
    np.save(tmp_path / "nan.npy", [[1.0, 2.0], [np.nan, 3.0]])
    assert run("submit", tmp_path / "nan.npy") == 1
    err = capsys.readouterr().err
    assert "nan.npy[1, 0] is nan" in err
    assert "to continue" not in err
    assert run("arrays", "--json") == 0
    assert record_of(capsys)["arrays"] == before


def test_each_file_is_uploaded_once_and_may_be_named_again(service, tmp_path, capsys):
    np.save(tmp_path / "x.npy", X)
    both = {"type": "points", "x": {"npy": "x.npy"}, "y": {"npy": "./x.npy"}}
    (tmp_path / "s.json").write_text(json.dumps(both))
    assert run("submit", tmp_path / "s.json") == 0
    uploads = re.findall(r"x\.npy is (arr_\w+)", capsys.readouterr().err)
    assert len(uploads) == 1
    again = f"{tmp_path / 'x.npy'}={uploads[0]}"
    assert run("submit", tmp_path / "s.json", "--uploaded", again, "--wait", "--json") == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["fun"] == 0.0
    assert uploads[0] in err
    np.save(tmp_path / "x.npy", X + 1)
    for unfit in ("arr_0000000000000000", uploads[0]):  # absent, or of other data: never to be continued
        given = f"{tmp_path / 'x.npy'}={unfit}"
        assert run("submit", tmp_path / "s.json", "--uploaded", given) == 6
        assert "to continue" not in capsys.readouterr().err


def test_tables_of_a_service_have_no_costs(service, tmp_path):
    (tmp_path / "s.json").write_text('{"type": "array", "values": [[Infinity]]}')
    assert run("submit", tmp_path / "s.json", "-o", tmp_path / "r.csv") == 3
    assert (tmp_path / "r.csv").read_text() == "row,column\n"


def test_dry_run_starts_nothing(service, spec, capsys):
    assert run("submit", spec, "--dry-run", "--json", "--label", "dry") == 0
    assert record_of(capsys)["estimate"]["memory_bytes"] > 0
    assert run("submit", spec, "--dry-run") == 0
    out = capsys.readouterr().out
    assert re.search(r"^memory   [\d.]+ MiB \(base [\d.]+ MiB, ", out, re.M)
    assert re.search(r"^seconds  [\d.]+ \([\d.]+ to [\d.]+\)$", out, re.M)
    assert len(out.splitlines()) < 10
    run("jobs", "--label", "dry")
    assert capsys.readouterr().out == "no jobs\n"


def test_cancel_now(service, tmp_path, capsys, gate):
    (tmp_path / "s.json").write_text(json.dumps(gated_job(gate)))
    assert run("submit", tmp_path / "s.json", "--json") == 0
    job = record_of(capsys)["id"]
    assert run("result", job) == 6  # not yet
    assert run("cancel", job, "--now", "--json") == 0
    assert record_of(capsys)["cancel"] == "now"

    def cancelled() -> bool:
        assert run("jobs", job, "--json") == 0
        return record_of(capsys)["state"] == "cancelled"

    until(cancelled)
    capsys.readouterr()
    assert run("result", job) == 7
    assert run("jobs", job) == 0
    assert "cancel" in capsys.readouterr().out


def test_failed_job_is_exit_7(service, tmp_path, capsys):
    bad = {"shape": [2, 2], "cost": {"type": "expression", "code": "log(i - 1.0 - j)"}}
    (tmp_path / "s.json").write_text(json.dumps(bad))
    assert run("submit", tmp_path / "s.json", "--wait", "--json") == 7
    found = record_of(capsys)
    assert (found["error"], found["exit_code"]) == ("JobFailedError", 7)
    assert found["problem"]["type"].endswith("invalid-cost")


BAD = [
    ("submit absent.json", 1, "absent.json: no such file"),
    ("submit broken.json", 1, "not JSON"),
    ("submit metric.json", 1, "/cost/metric"),
    ("submit lost.json", 1, "/cost/x/npy"),
    ("submit https://nobody.example/c.zarr", 1, "/cost/uri"),
    ("submit metric.json -o absent/r.npz", 1, "the folder absent does not exist"),
    ("submit metric.json --uploaded x.npy", 1, "FILE=ID"),
    ("submit metric.json --uploaded x.npy=arr_1", 1, "x.npy: the request names no such file"),
    ("submit metric.json --url nowhere", 1, "http"),
    ("jobs --limit 0", 1, "--limit"),
    ("jobs ../arrays", 1, "is no id"),
    ("result job_1/events", 1, "is no id"),
    ("jobs job_0000000000000000", 6, "job_0000000000000000"),
    ("cancel job_0000000000000000", 6, "job_0000000000000000"),
]


@pytest.mark.parametrize(("line", "code", "text"), BAD)
def test_mistakes_are_one_line(service, tmp_path, capsys, monkeypatch, line, code, text):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "list.json").write_text("[1]")
    (tmp_path / "broken.json").write_text("{")
    lost = {"cost": {"type": "points", "x": {"npy": "absent.npy"}, "y": [[1]]}}
    (tmp_path / "lost.json").write_text(json.dumps(lost))
    crow = {"cost": {"type": "points", "x": [[0]], "y": [[1]], "metric": "crow"}}
    (tmp_path / "metric.json").write_text(json.dumps(crow))
    assert run(*line.split()) == code
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 1
    assert err[0].startswith("bigsap: error: ")
    assert text in err[0]


def test_empty_keys_are_mistakes(service, spec, capsys, monkeypatch):
    assert run("jobs", "--key", "") == 1
    assert run("jobs", "--key", "abc ") == 1
    assert run("submit", spec, "--idempotency-key", "") == 1
    monkeypatch.setenv("BIGSAP_KEY", "abc ")
    assert run("jobs") == 1
    err = capsys.readouterr().err.splitlines()
    assert ["key" in line for line in err] == [True] * 4
    # An empty variable is none: shells and compose files have no other way to say it.
    monkeypatch.setenv("BIGSAP_KEY", "")
    assert run("jobs") == 0


def test_nobody_there_is_exit_6(capsys, monkeypatch):
    monkeypatch.setattr("bigsap.client.http.Transport.persist", _impatient(monkeypatch))
    assert run("jobs", "--url", "http://127.0.0.1:9", "--json") == 6
    found = record_of(capsys)
    assert (found["error"], found["exit_code"]) == ("UnreachableError", 6)


def _impatient(monkeypatch):
    from bigsap.client.http import Transport

    real = Transport.persist

    def persist(self, send, *, again=True):
        self.patience = 0
        return real(self, send, again=again)

    return persist


# --- serve --------------------------------------------------------------------------------


def serve(*argv: object) -> subprocess.Popen[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith("BIGSAP_")}
    own = {"BIGSAP_WORKERS": "1", "BIGSAP_EXECUTOR": "inline", "BIGSAP_LOG_LEVEL": "error"}
    return subprocess.Popen(
        [sys.executable, "-m", "bigsap", "serve", *map(str, argv)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=kept | own,
    )


def test_serve_listens_and_stops(tmp_path, capsys):
    config = tmp_path / "service.toml"
    config.write_text(f'data = "{tmp_path / "other"}"\n[limits]\ninline_numbers = 12\n')
    child = serve("--port", 0, "--data", tmp_path / "data", "--config", config)
    try:
        line = child.stdout.readline()
        url = re.search(r"http://127\.0\.0\.1:\d+", line).group()
        (tmp_path / "s.json").write_text('{"type": "array", "values": [[3, 1], [1, 3]]}')
        assert run("submit", tmp_path / "s.json", "--wait", "--json", "--url", url) == 0
        assert record_of(capsys)["fun"] == 2
        (tmp_path / "s.json").write_text(json.dumps({"type": "array", "values": [[1] * 13]}))
        assert run("submit", tmp_path / "s.json", "--url", url) == 1  # the file's limit
        assert "12" in capsys.readouterr().err
        child.send_signal(signal.SIGTERM)
        assert child.wait(HANG_S) == 0
        assert (tmp_path / "data" / "jobs.sqlite").exists()  # the command line's folder
        assert not (tmp_path / "other").exists()
    finally:
        child.kill()
        child.communicate()


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (("--host", "0.0.0.0"), "keys"),
        (("--port", "70000"), "port"),
        (("--config", "absent.toml"), "settings: cannot read absent.toml: No such file or directory"),
    ],
)
def test_serve_refuses(tmp_path, capsys, argv, text):
    assert run("serve", "--data", tmp_path / "data", *argv) == 1
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert text in err


def test_the_service_starts_as_a_module_as_well(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["bigsap_server", "--config", "absent.toml"])
    with pytest.raises(SystemExit) as leaving:
        runpy.run_module("bigsap_server", run_name="__main__")
    assert leaving.value.code == 1
    assert "absent.toml" in capsys.readouterr().err


def test_serve_without_its_packages_names_the_extra(capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    monkeypatch.delitem(sys.modules, "bigsap_server.serve", raising=False)
    assert run("serve") == 1
    assert "bigsap[server]" in capsys.readouterr().err


def test_a_job_cannot_be_spread_over_one_worker(service, spec, capsys):
    assert run("submit", spec, "--dry-run", "--spread", 3) != 0
    assert "no cluster to spread a job over" in capsys.readouterr().err


def test_jobs_and_arrays_are_managed(service, tmp_path, capsys, monkeypatch):
    own = np.random.default_rng(77).random((2, 60, 2))  # no other test has uploaded them
    np.save(tmp_path / "x.npy", own[0])
    np.save(tmp_path / "y.npy", own[1])
    spec = tmp_path / "spec.json"
    spec.write_text(json.dumps({"type": "points", "x": {"npy": "x.npy"}, "y": {"npy": "y.npy"}}))
    assert run("submit", spec, "--label", "kept", "--json", "--wait") == 0
    job = record_of(capsys)["id"]
    assert run("resume", job) == 6  # it has succeeded
    assert run("arrays", "--limit", 2, "--json") == 0
    newest = record_of(capsys)["arrays"]
    arrays = [one["id"] for one in newest]
    assert len(arrays) == 2
    assert run("arrays") == 0
    table = capsys.readouterr().out.splitlines()
    assert table[0].split() == ["ID", "DTYPE", "SHAPE", "SIZE", "STATE", "CREATED"]
    shape = " x ".join(map(str, newest[0]["shape"]))
    assert all(word in table[1] for word in (arrays[0], "sealed", shape)), table
    assert run("delete", "job_absent", job, "../arrays", "--json") == 6  # what can be removed is
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert (found["deleted"], list(found["errors"])) == ([job], ["job_absent", "../arrays"])
    assert (found["error"], found["exit_code"], found["problem"]["status"]) == ("ServiceError", 6, 404)
    assert found["message"] == found["errors"]["job_absent"]
    assert [line.split(":")[2].strip() for line in err.splitlines()] == ["job_absent", "../arrays"]
    assert run("jobs", job) == 6
    assert run("arrays", "--delete", "arr_absent", *arrays) == 6
    capsys.readouterr()
    assert run("arrays", "--json") == 0
    assert not set(arrays) & {one["id"] for one in record_of(capsys)["arrays"]}
    assert run("arrays", "--limit", 0) == 1
    capsys.readouterr()
    monkeypatch.setattr("bigsap.client.http.Transport.call", MagicMock(side_effect=UnreachableError({})))
    assert run("delete", "job_a", "job_b", "--json") == 6
    found = record_of(capsys)
    assert (found["deleted"], list(found["errors"]), found["error"]) == ([], ["job_a"], "UnreachableError")


def test_a_new_key_fits_the_file_of_keys(tmp_path, capsys):
    from bigsap_server.auth import Keys
    from bigsap_server.settings import Limits

    assert run("keys", "ann", "read") == 0
    text = capsys.readouterr().out
    (tmp_path / "keys.toml").write_text(text)
    caller = Keys.read(tmp_path / "keys.toml", Limits()).caller(None, text.split()[2])
    assert (caller.owner, caller.scopes) == ("ann", {"read"})
    assert run("keys", "ann", "write") == 1
    assert "unknown scope 'write'" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run("keys")
    assert "SCOPE" not in capsys.readouterr().err.splitlines()[-1]


def test_rows_that_must_all_be_assigned(service, tmp_path, capsys):
    """The infinite price that ``solve`` takes, also from the document that both take."""
    np.save(tmp_path / "c.npy", RNG.random((3, 4)))
    for name, price in (("bare", np.inf), ("text", "Infinity")):
        document = {"cost": {"type": "npy", "path": "c.npy"}, "options": {"unassigned_cost": price}}
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    documents = [(tmp_path / "bare.json",), (tmp_path / "text.json",)]
    for given in ((tmp_path / "c.npy", "--unassigned-cost", "inf"), *documents):
        found = []
        for command in (("solve",), ("submit", "--wait")):
            assert run(*command, *given, "--json") == 0
            found.append(record_of(capsys)["fun"])
        assert found[0] == found[1]
