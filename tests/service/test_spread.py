"""Jobs over several workers of the cluster: who may have them, what becomes of them."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from bigsap_server.api.routes_jobs import workers_of
from bigsap_server.auth import hashed
from bigsap_server.costs.build import build_source
from bigsap_server.costs.validate import Plan, estimate
from bigsap_server.settings import load
from checks import SQUARE, normalised, problem
from faults import job_of, post, runner, same, states

import bigsap
from bigsap.preview import Costs
from gate import Gate, gated_job, until
from live_server import LiveServer

pytestmark = pytest.mark.timeout(600)
ROWS = 300


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    zarr = pytest.importorskip("zarr")
    folder = tmp_path_factory.mktemp("lab")
    rng = np.random.default_rng(5)
    for name in "xy":
        np.save(folder / f"{name}.npy", rng.random((ROWS, 3)))
    zarr.create_array(
        store=folder / "costs.zarr",
        data=rng.random((400, 400)),
        chunks=(10, 400),
        shards=(100, 400),
        compressors="auto",
    )
    return folder


def through_python() -> dict[str, Any]:
    """Costs whose rows only Python can read, and lists of them."""
    points: dict[str, Any] = {"type": "points", "metric": "minkowski", "p": 3.5}
    points |= {side: {"store": "lab", "path": f"{side}.npy"} for side in "xy"}
    cost = {"type": "scale", "factor": 2.0, "cost": points}
    return {"cost": cost, "options": {"method": "compressed", "cache": 40 * 8 * ROWS}}


SHARDS = {"cost": {"type": "zarr", "store": "lab", "path": "costs.zarr"}}


def alone(lab: Path, body: dict[str, Any]) -> bigsap.Result:
    """The same solve in this process."""
    request = normalised(body)
    given = load(data=lab / "data", stores={"lab": lab}, plugins=["gated"]).model_dump(mode="json")
    options = {k: v for k, v in body.get("options", {}).items() if k != "checkpoint_s"}
    return bigsap.solve(build_source(request, given["data"], given), **options)


# -- what is asked ---------------------------------------------------------------------


def test_it_is_refused_where_there_is_no_cluster(api: Any) -> None:
    found = problem(api.post("/v1/jobs", json=SQUARE | {"spread": True}), 422, "invalid-spec")
    assert found["pointer"] == "/spread"
    assert "no cluster" in found["detail"]
    assert api.get("/v1/capabilities").json()["spread"] is False


@pytest.mark.parametrize("wrong", [1, 0, -3, 2.5, "yes", None, 5000])
def test_what_spread_must_be(api: Any, wrong: Any) -> None:
    found = problem(api.post("/v1/jobs", json=SQUARE | {"spread": wrong}), 422, "invalid-spec")
    assert found["pointer"].startswith("/spread")
    if wrong == 1:
        assert "greater than or equal to 2" in found["detail"]


@pytest.fixture
def of_a_cluster(make_app: Callable[..., Any], tmp_path: Path) -> Any:
    """A service of a scheduler that is not there: jobs wait, but are judged."""
    keys = {"any": {}, "four": {"spread_workers": 4}, "none": {"spread_workers": 0}}
    lines = []
    for name, quotas in keys.items():
        lines += [f"[{name}]", f'hash = "{hashed(name)}"', 'scopes = ["read", "submit"]']
        lines += [f"{quota} = {value}" for quota, value in quotas.items()]
    (tmp_path / "keys.toml").write_text("\n".join(lines))
    return make_app(
        executor="dask", scheduler="tcp://127.0.0.1:9", keys=tmp_path / "keys.toml", devices=["cpu", "cuda"]
    )


def asked(api: Any, key: str, spread: Any, **body: Any) -> Any:
    return api.post(
        "/v1/jobs?dry_run=true",
        json=SQUARE | body | {"spread": spread},
        headers={"Authorization": f"Bearer {key}"},
    )


def test_keys_have_limits(of_a_cluster: Any) -> None:
    api = of_a_cluster
    for key, spread, given in [
        ("any", True, True),
        ("any", 7, 7),
        ("four", True, 4),
        ("four", 3, 3),
        ("none", False, False),
    ]:
        answer = asked(api, key, spread)
        assert answer.status_code == 200, answer.text
        assert answer.json()["spec"]["spread"] is given or given == answer.json()["spec"]["spread"]
    for key, spread in [("four", 5), ("none", True), ("none", 2)]:
        found = problem(asked(api, key, spread), 422, "over-limit")
        assert found["pointer"] == "/spread"
    found = api.get("/v1/capabilities", headers={"Authorization": "Bearer four"}).json()
    assert (found["spread"], found["caller"]["spread_workers"]) == (True, 4)
    found = api.get("/v1/capabilities", headers={"Authorization": "Bearer none"}).json()
    assert found["spread"] is False
    # It is solved by CPUs.
    answer = asked(api, "any", True, options={"device": "cuda"})
    assert problem(answer, 422, "invalid-spec")["pointer"] == "/spread"


# -- what it will take -----------------------------------------------------------------


def guessed(costs: Costs, workers: int, **options: Any) -> dict[str, Any]:
    body = {
        "shape": list(costs.shape),
        "cost": {"type": "expression", "code": "i*1.0"},
        "options": options,
        "spread": True,
    }
    return estimate(normalised(body), Plan(costs), 1, workers)


def test_the_estimate_follows_the_formula() -> None:
    # 20 us a pair: 0.2 s a row, and each row once.
    plan = Costs((10_000, 10_000), pair_ns=20_000.0)
    one, two, four = (guessed(plan, workers)["seconds"] for workers in (1, 2, 4))
    assert one == pytest.approx(2000, rel=0.05)
    assert one / two > 0.85 * 2
    assert one / four > 0.85 * 4
    assert guessed(plan, 4)["spread"]["pays"] is True
    lists = guessed(plan, 4, cache=1 << 20)["seconds"]
    assert four < lists < one
    cheap = Costs((10_000, 10_000), pair_ns=0.3)
    assert guessed(cheap, 2)["spread"]["pays"] is False
    compiled = Costs((10_000, 10_000), pair_ns=2.0, by_rows=False)
    found = guessed(compiled, 4)
    assert found["spread"]["pays"] is False
    assert any("are computed where the search runs" in note for note in found["notes"])


def test_how_many_workers_it_will_have() -> None:
    assert [workers_of(spread, 6) for spread in (False, True, 4, 9)] == [1, 6, 4, 6]
    assert workers_of(True, 0) == 1


# -- what becomes of it ----------------------------------------------------------------


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, lab: Path) -> Iterator[LiveServer]:
    server = LiveServer(
        tmp_path_factory.mktemp("spread") / "data",
        workers=3,
        heartbeat_s=0.2,
        stores=json.dumps({"lab": str(lab)}),
    )
    try:
        yield server.start()
    finally:
        server.kill()


def metric(client: Any, name: str) -> dict[str, int]:
    """Values of a metric that has one label, by the label."""
    lines = client.get("/metrics").text.splitlines()
    return {line.split('"')[1]: int(float(line.split()[-1])) for line in lines if line.startswith(name + "{")}


def doing(client: Any) -> dict[str, int]:
    """Workers by what they do, as the metrics have it."""
    return metric(client, "bigsap_workers")


def stats_of(client: Any, job_id: str) -> Any:
    return client.get(f"/v1/jobs/{job_id}/result").json()["stats"]["cluster"]


def test_metrics_have_the_memory_of_the_workers(server: LiveServer) -> None:
    with server.client() as client:
        until(lambda: sum(doing(client).values()) == 3)
        found = metric(client, "bigsap_worker_memory_bytes")
        assert sorted(found) == ["0", "1", "2"]
        assert min(found.values()) > 20e6


@pytest.mark.some(1)
@pytest.mark.parametrize("body", [SHARDS, through_python()], ids=["shards", "rows"])
def test_several_workers_and_the_same_bits(server: LiveServer, lab: Path, body: dict[str, Any]) -> None:
    with server.client() as client:
        job_id = post(client, body | {"spread": True})
        assert server.finished(job_id)["state"] == "succeeded"
        assert same(client, job_id, alone(lab, body))
        told = stats_of(client, job_id)
        # How many have rows before all is done is the machine's; see the gated tests below.
        assert 1 <= len(told["by_worker"]) <= 3
        assert sum(told["by_worker"].values()) == told["rows"] > 0
        assert client.get(f"/v1/jobs/{job_id}").json()["spread"] is True
        said = client.get(f"/v1/jobs/{job_id}/events", headers={"Accept": "application/json"}).json()[
            "events"
        ]
        assert any(
            e["kind"] == "log" and re.search("spread.* (faster|not pay)", e["data"]["message"]) for e in said
        )
        assert "bigsap_spread_jobs_total" in client.get("/metrics").text
        until(lambda: doing(client) == {"busy": 0, "lent": 0, "idle": 3})


def gated(gate: Gate) -> dict[str, Any]:
    """Each process gets so many rows before it waits at the gate."""
    return gated_job(gate, after=20, method="compressed", cache=40 * 8 * 200)


def test_a_number_of_workers(server: LiveServer, lab: Path, gate: Gate) -> None:
    body = gated(gate)
    with server.client() as client:
        job_id = post(client, body | {"spread": 2})
        until(lambda: doing(client) == {"busy": 1, "lent": 1, "idle": 1})
        until(lambda: len({path.name.split("-")[0] for path in gate.folder.iterdir()}) == 2)
        gate.open()
        assert server.finished(job_id)["state"] == "succeeded"
        assert len(stats_of(client, job_id)["by_worker"]) == 2
        assert same(client, job_id, alone(lab, body))


def test_another_job_gets_a_worker_at_once(server: LiveServer, lab: Path, gate: Gate) -> None:
    body = gated(gate)
    with server.client() as client:
        job_id = post(client, body | {"spread": True})
        until(lambda: doing(client) == {"busy": 1, "lent": 2, "idle": 0})
        # Progress tells who does what.
        assert sum(working(client, job_id).values()) > 0
        others = [post(client, body) for _ in range(2)]
        until(lambda: doing(client)["busy"] == 3)
        gate.open()
        for one in (*others, job_id):
            assert server.finished(one)["state"] == "succeeded"
            assert same(client, one, alone(lab, body))
        for one in others:
            assert client.get(f"/v1/jobs/{one}/result").json()["stats"]["cluster"] is None


def working(client: Any, job_id: str) -> dict[str, int]:
    """Wait until the job has had rows from workers; how many from each."""

    def rows() -> dict[str, int]:
        job = job_of(client, job_id)
        assert job["state"] not in ("succeeded", "failed"), job
        return (job["progress"] or {}).get("workers") or {}

    return until(rows)


def processes(server: LiveServer) -> set[int]:
    """The workers of a server's own cluster."""
    assert server.process is not None
    found = psutil.Process(server.process.pid).children(recursive=True)
    return {one.pid for one in found if "spawn_main" in " ".join(one.cmdline())}


@pytest.mark.some(1)
@pytest.mark.parametrize("own", [False, True], ids=["lent", "own"])
def test_killed_workers(server: LiveServer, lab: Path, own: bool, gate: Gate) -> None:
    """One that was lent costs time only; the job's own costs an attempt."""
    body = gated(gate)
    with server.client() as client:
        until(lambda: len(processes(server)) == 3)
        job_id = post(client, body | {"spread": True})
        working(client, job_id)
        home = runner(server, job_id)
        lent = (processes(server) - {home}).pop()
        os.kill(home if own else lent, signal.SIGKILL)
        gate.open()
        assert server.finished(job_id)["state"] == "succeeded"
        assert same(client, job_id, alone(lab, body))
        assert (("interrupted", 1) in states(client, job_id)) == own


def test_no_pickle_of_the_costs_is_sent(lab: Path) -> None:
    """What workers get is the call that builds the source from the spec."""
    from bigsap.sources.cluster.recipes import recipe_of

    request = normalised(SHARDS | {"spread": True})
    given = load(data=lab / "data", stores={"lab": lab}).model_dump(mode="json")
    recipe = recipe_of(build_source(request, given["data"], given))
    assert b"build_source" in recipe
    assert b"DecodedZarrSource" not in recipe
