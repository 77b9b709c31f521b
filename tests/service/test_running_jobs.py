"""A limit of running jobs for each key: the others wait, also while workers are idle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bigsap_server.api.app import create_app, reload
from bigsap_server.auth import Keys, hashed
from bigsap_server.jobs.store import JobStore
from bigsap_server.settings import Limits
from checks import SQUARE, problem

from apps import TestClient, settings_in
from gate import Gate, gated_job, until


def keys_of(file: Path, **quotas: str) -> Path:
    """A file of keys with the scopes to read and submit; the key is the name."""
    tables = [
        f'[{name}]\nhash = "{hashed(name)}"\nscopes = ["read", "submit"]\n{quota}\n'
        for name, quota in quotas.items()
    ]
    file.write_text("\n".join(tables))
    return file


def as_(name: str) -> dict[str, dict[str, str]]:
    return {"headers": {"X-API-Key": name}}


def states(client: TestClient, name: str) -> list[str]:
    """States of the key's jobs, the oldest first."""
    return [job["state"] for job in client.get("/v1/jobs", **as_(name)).json()["jobs"]][::-1]


def held(client: TestClient) -> float:
    lines = client.get("/metrics", **as_("ann")).text.splitlines()
    return float(next(line for line in lines if line.startswith("bigsap_jobs_held")).split()[1])


def test_a_key_runs_its_number_while_others_get_workers(tmp_path: Path, gate: Gate) -> None:
    keys = keys_of(tmp_path / "keys.toml", ann="running_jobs = 1\nactive_jobs = 3", bob="")
    settings = settings_in(tmp_path / "data", {"running_jobs": 2}, keys=keys, workers=4)
    app = create_app(settings)
    with TestClient(app, base_url="http://127.0.0.1:8765") as client:
        for name, count in (("ann", 3), ("bob", 3)):
            for _ in range(count):
                assert client.post("/v1/jobs", json=gated_job(gate), **as_(name)).status_code == 202
        gate.wait_for_readers(3)  # of four workers one stays idle
        until(lambda: states(client, "ann").count("running") == 1)
        until(lambda: states(client, "bob").count("running") == 2)
        assert states(client, "ann") == ["running", "queued", "queued"]
        assert states(client, "bob") == ["running", "running", "queued"]
        assert held(client) == 3
        answer = client.post("/v1/jobs", json=SQUARE, **as_("ann"))
        found = problem(answer, 429, "quota-exceeded")
        assert (found["quota"], found["limit"]) == ("active_jobs", 3)
        caller = client.get("/v1/capabilities", **as_("ann")).json()["caller"]
        assert (caller["active_jobs"], caller["running_jobs"]) == (3, 1)
        assert client.get("/v1/capabilities", **as_("bob")).json()["caller"]["running_jobs"] == 2
        # A reloaded file of keys holds for those that wait.
        keys_of(keys, ann="running_jobs = 2", bob="")
        reload(app, settings)
        until(lambda: states(client, "ann") == ["running", "running", "queued"])
        assert states(client, "bob") == ["running", "running", "queued"]
        assert held(client) == 2
        gate.open()
        for name in ("ann", "bob"):
            until(lambda name=name: states(client, name) == ["succeeded"] * 3)
        assert held(client) == 0


def test_claims_leave_out_keys_that_are_full(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "jobs.sqlite")
    for k, owner in enumerate(("ann", "ann", "bob", "ann")):
        store.submit(SQUARE, owner=owner, label=str(k))
    most: dict[str, int | None] = {"ann": 1, "bob": None}

    def claimed() -> Any:
        job = store.claim(most.__getitem__)
        return job and job.label

    assert [claimed() for _ in range(3)] == ["0", "2", None]
    first = next(job for job in store.running() if job.label == "0")
    # Who is being cancelled still has its worker; who has lost it has not.
    store.request_cancel(first.id, "graceful")
    assert (claimed(), store.held(most.__getitem__)) == (None, 2)
    store.update(first.id, attempt=1, state="cancelled")
    assert (claimed(), claimed(), store.held(most.__getitem__)) == ("1", None, 1)
    second = next(job for job in store.running() if job.label == "1")
    store.update(second.id, attempt=1, state="interrupted", retry_at=0.0)
    assert (claimed(), claimed()) == ("1", None)
    most["ann"] = None
    assert claimed() == "3"
    store.close()


def test_without_keys_the_limit_is_of_all() -> None:
    assert Keys(None, Limits(running_jobs=3)).running_jobs("") == 3
    assert Keys(None, Limits()).running_jobs("") is None


@pytest.mark.parametrize("text", ["running_jobs = 0", "running_jobs = 1.5"])
def test_a_limit_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ValueError, match="running_jobs"):
        Keys.read(keys_of(tmp_path / "keys.toml", ann=text), Limits())
