"""The client against a real service, also through a proxy that breaks connections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import bigsap

pytest.importorskip("httpx", reason="extra http")
pytest.importorskip("fastapi", reason="extra server")

from bigsap.client import Client, JobFailedError, ServiceError, UploadError
from bigsap.errors import DtypeError, InputError, ShapeError
from gate import HANG_S, gated_job
from http_stand_ins import Proxy

RNG = np.random.default_rng(0)
X, Y = RNG.random((300, 2)), RNG.random((320, 2))
#: Rows that are read before the gate: the gated job is then in a search of the second phase.
SEARCHING = 1500


@pytest.fixture
def proxy(live_server) -> Iterator[Proxy]:
    found = Proxy(int(live_server.url.rsplit(":", 1)[1]))
    yield found
    found.close()


# --- jobs ---------------------------------------------------------------------------------


def test_points_solved_far_away_are_those_solved_here(client):
    job = client.submit({"type": "points", "x": X, "y": Y, "metric": "euclidean"}, label="far")
    assert job.id.startswith("job_")
    assert job.record["label"] == "far"
    job.wait(HANG_S)
    assert (job.state, job.ended) == ("succeeded", True)
    result = job.result()
    here = bigsap.solve(bigsap.points(X, Y, metric="euclidean"))
    assert result.fun == pytest.approx(here.fun, rel=1e-12)
    assert isinstance(result.col4row, np.ndarray)
    assert result.col4row.dtype == np.intp
    result.verify(bigsap.points(X, Y, metric="euclidean"))
    assert result.stats["rows_evaluated"] >= 300
    assert result.nit == len(result.stats["phases"])


@pytest.mark.parametrize(("kind", "n"), [(np.asarray, 400), (np.ndarray.tolist, 3)], ids=["array", "list"])
def test_nan_is_refused_before_anything_is_sent(kind, n, client):
    cost = np.ones((n, n))
    cost[2, 1] = np.nan
    before = len(list(client.jobs()))
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\.values\[2, 1\] is nan") as caught:
        client.submit({"type": "array", "values": kind(cost)})
    assert (caught.value.row, caught.value.column) == (2, 1)
    assert len(list(client.jobs())) == before


def test_infeasible_is_a_result_with_its_proof(client):
    cost = np.array([[1.0, np.inf], [2.0, np.inf]])
    job = client.submit({"type": "array", "values": cost}, wait=HANG_S)
    assert job.state == "succeeded"
    result = job.result()
    assert result.status == "infeasible"
    assert result.fun is None
    assert result.violator.tolist() == [0, 1]
    result.verify(cost)


def test_two_submissions_under_one_key_are_one_job(client):
    spec = {"type": "array", "values": [[1, 2], [3, 4]]}
    first = client.submit(spec, idempotency_key="test-client-once")
    again = client.submit(spec, idempotency_key="test-client-once")
    assert again.id == first.id
    first.wait(HANG_S)
    # Answered as the first time, and then looked at.
    assert client.submit(spec, idempotency_key="test-client-once").state == "succeeded"
    with pytest.raises(ServiceError) as caught:
        client.submit({"type": "array", "values": [[5]]}, idempotency_key="test-client-once")
    assert (caught.value.slug, caught.value.status) == ("idempotency-conflict", 409)


def test_list_is_paged_and_limited(client):
    made = [
        client.submit({"type": "array", "values": [[k]]}, label="listed", wait=HANG_S).id for k in range(3)
    ]
    assert [job.id for job in client.jobs(label="listed")] == made[::-1]
    assert [job.id for job in client.jobs(label="listed", limit=2)] == made[:0:-1]
    assert list(client.jobs(label="nobody's")) == []


def test_estimate_and_check_start_nothing(client):
    before = len(list(client.jobs()))
    found = client.estimate({"type": "points", "x": [[0.0], [1.0]], "y": [[1.0], [3.0]]})
    assert found["spec"]["spread"] is False
    with pytest.raises(ServiceError, match="no cluster to spread a job over"):
        client.estimate([[1.0, 2.0], [3.0, 1.0]], spread=True)
    assert found["spec"]["shape"] == [2, 2]
    assert found["estimate"]["memory_bytes"] > 0
    checked = client.check({"type": "expression", "code": "i + 2*j"}, shape=(3, 3))
    assert json.dumps(checked)
    assert len(list(client.jobs())) == before


def test_cancelled_gracefully_keeps_what_was_found(client, gate):
    job = client.submit(gated_job(gate, after=SEARCHING))
    gate.wait_for_readers()  # nobody opens it
    assert job.cancel().state in ("cancelling", "cancelled")
    assert job.wait(HANG_S).state == "cancelled"
    result = job.result()
    assert result.status == "cancelled"
    assert result.bound <= result.fun
    assert sorted(result.col4row) == list(range(200))
    job.delete()
    with pytest.raises(ServiceError) as caught:
        client.job(job.id)
    assert caught.value.status == 404


def test_waiting_has_an_end(client, gate):
    job = client.submit(gated_job(gate))
    with pytest.raises(TimeoutError, match=job.id):
        job.wait(0.1)
    with pytest.raises(ServiceError) as caught:
        job.result()
    assert caught.value.slug == "no-result"
    with pytest.raises(ServiceError) as caught:
        job.delete()
    assert caught.value.slug == "wrong-state"
    job.cancel("now")
    job.wait(HANG_S)
    with pytest.raises(JobFailedError):
        job.result()


def test_wait_draws_a_bar_and_tells_of_changes(client, capsys):
    states = []
    job = client.submit({"type": "points", "x": X, "y": Y})
    job.wait(HANG_S, progress=True, callback=lambda now: states.append(now.state))
    assert states[-1] == "succeeded"
    assert f"/{len(X)}" in capsys.readouterr().err


def test_failed_job_says_why(client):
    spec = {"shape": [3, 3], "cost": {"type": "expression", "code": "log(i - 1.0 - j)"}}
    job = client.submit(spec, wait=HANG_S)
    assert job.state == "failed"
    with pytest.raises(JobFailedError) as caught:
        job.result()
    assert caught.value.slug == "invalid-cost"
    assert caught.value.problem["row"] == 0
    assert caught.value.job["id"] == job.id


# --- arrays -------------------------------------------------------------------------------


def test_arrays_of_a_later_attempt_are_not_mixed_with_an_earlier_summary(client, monkeypatch):
    job = client.submit(np.array([[4, 1], [2, 0]]), wait=HANG_S)
    ask, asked = client._json, []

    def answered(method: str, path: str, **given: Any) -> Any:
        """Return at first the summary of an attempt before the last."""
        asked.append(path)
        found = ask(method, path, **given)
        return found | {"attempt": 0, "objective": 5} if len(asked) == 1 else found

    monkeypatch.setattr(client, "_json", answered)
    assert job.result().fun == 3
    assert len(asked) == 3


def test_upload_keeps_dtype_and_shape(client):
    for array in (
        RNG.random((50, 3)).astype(np.float32),
        np.arange(20, dtype=">i4"),
        np.asfortranarray(RNG.random((30, 40))),
        np.zeros((0, 3)),
        RNG.random((100, 100))[::2, ::3],
    ):
        array_id = client.upload(array, block_bytes=1000)
        info = client._json("GET", f"/v1/arrays/{array_id}")
        assert info["sealed"]
        assert tuple(info["shape"]) == array.shape
        assert np.dtype(info["dtype"]) == array.dtype.newbyteorder("<")
        client.delete_array(array_id)


@pytest.mark.parametrize(
    ("array", "error"),
    [
        (np.array(["a"]), DtypeError),
        (np.ones((2, 2), complex), DtypeError),
        (np.ones((2, 2), bool), DtypeError),
        (np.ones((2, 2, 2)), ShapeError),
        (np.array(1.0), ShapeError),
    ],
)
def test_what_cannot_be_uploaded(client, array, error):
    with pytest.raises(error):
        client.upload(array)


@pytest.mark.parametrize("given", [{"wait": "x"}, {"wait": np.nan}, {"idempotency_key": 3}])
def test_nothing_is_submitted_with_wrong_arguments(client, given):
    with pytest.raises(InputError, match="must be"):
        client.submit([[1.0]], label="wrong", **given)
    assert list(client.jobs(label="wrong")) == []


def test_what_is_no_key_and_no_time(client):
    with pytest.raises(InputError, match="the key must be text"):
        Client(client.url, 3)
    with pytest.raises(InputError, match="seconds"):
        client.submit([[1.0]]).wait("x")


def sent_rows(client: Client, monkeypatch) -> list[str]:
    """The paths of row blocks, as they are sent from now on."""
    paths: list[str] = []
    real = client._transport.call

    def call(method: str, path: str, **given: Any) -> Any:
        if method == "PUT":
            paths.append(path.rpartition("/")[2])
        return real(method, path, **given)

    monkeypatch.setattr(client._transport, "call", call)
    return paths


def test_half_an_upload_is_continued(client, proxy, monkeypatch):
    array = RNG.random((1000, 8))  # 64,000 bytes in 8 blocks
    # Within the fourth block, however the bytes are read: a block that arrives whole after the
    # connection is lost is kept too, perhaps only after `received` was asked for.
    proxy.most_up = 28_000
    with Client(proxy.url, patience=0) as broken, pytest.raises(UploadError) as caught:
        broken.upload(array, block_bytes=8000)
    array_id = caught.value.array_id
    received = client._json("GET", f"/v1/arrays/{array_id}")["received"]
    assert received == [[0, 375]]
    paths = sent_rows(client, monkeypatch)
    done: list[tuple[int, int]] = []
    found = client.upload(array, array_id=array_id, block_bytes=8000, progress=lambda *now: done.append(now))
    assert found == array_id
    assert 0 < len(paths) < 8
    assert int(paths[0]) == received[-1][1]
    assert done[-1] == (1000, 1000)
    # Once more: nothing is sent, the digest is compared.
    paths.clear()
    client.upload(array, array_id=array_id)
    assert paths == []


def test_upload_survives_lost_connections(proxy):
    array = RNG.random((1000, 8))
    proxy.most_up = 20_000
    with Client(proxy.url, patience=HANG_S) as client:
        array_id = client.upload(array, block_bytes=8000)
        assert client._json("GET", f"/v1/arrays/{array_id}")["sealed"]
    assert proxy.connections > 2


def test_sealing_is_waited_for_as_long_as_the_service_reads(client, monkeypatch):
    monkeypatch.setattr("bigsap.client.arrays._READ_BYTES_PER_S", 2)
    waits, usual = {}, client._transport.call

    def call(method, path, **given):
        waits[path.rpartition("/")[2]] = given.get("wait", 0)
        return usual(method, path, **given)

    monkeypatch.setattr(client._transport, "call", call)
    client.upload(np.arange(600.0).reshape(3, 200))
    assert (waits["0"], waits["seal"]) == (0, 2400)


def test_other_data_under_the_same_id_is_noticed(client):
    array = RNG.random((10, 2))
    array_id = client.upload(array)
    with pytest.raises(ServiceError, match="digest") as other:
        client.upload(array + 1, array_id=array_id)
    with pytest.raises(ServiceError, match=r"shape \(10, 2\)") as shorter:
        client.upload(array[:5], array_id=array_id)
    with pytest.raises(ServiceError, match="no such array") as absent:
        client.upload(array, array_id="arr_0000000000000000")
    assert {other.type, shorter.type, absent.type} == {ServiceError}  # none to be continued


def test_broken_downloads_go_on(proxy):
    x, y = RNG.random((4000, 1)), RNG.random((4000, 1))
    with Client(proxy.url, patience=HANG_S) as client:
        job = client.submit({"type": "points", "x": x, "y": y}, wait=HANG_S)
        proxy.most_down = 15_000  # an array has 32,000 bytes
        client.close()
    with Client(proxy.url, patience=HANG_S) as client:
        result = client.result(job.id)
    assert proxy.connections > 5
    result.verify(bigsap.points(x, y))


# --- events -------------------------------------------------------------------------------


def test_events_have_no_gap_when_the_connection_is_lost(client, proxy, gate):
    proxy.most_down = 1500
    job = client.submit(gated_job(gate, after=SEARCHING))
    seen = []
    with Client(proxy.url, patience=HANG_S) as broken:
        for event in broken.events(job.id):
            seen.append(event)
            if sum(event["kind"] == "progress" for event in seen) == 4:
                gate.open()
    assert proxy.connections >= 3
    numbers = [event["seq"] for event in seen]
    assert numbers == list(range(1, len(numbers) + 1))
    assert seen[-1]["data"]["state"] == "succeeded"
    assert {"state", "progress"} <= {event["kind"] for event in seen}
    times = [event for event in seen if event["kind"] == "progress"]
    assert len(times) >= 3
    assert [e["seq"] for e in client.events(job.id, after=numbers[-2])] == numbers[-1:]
    assert list(client.job(job.id).events(after=numbers[-1])) == []
