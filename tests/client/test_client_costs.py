"""What a client sends for what ``solve`` takes: the same costs arrive, or it says why not."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bigsap

pytest.importorskip("httpx", reason="extra http")
pytest.importorskip("fastapi", reason="extra server")

from bigsap.client import Client, ServiceError
from bigsap.client.job_request import request_of, spec_of
from bigsap.errors import DtypeError, InputError, InvalidCostError, ShapeError
from gate import HANG_S
from remote_provider import Provider

RNG = np.random.default_rng(7)
X, Y = RNG.random((30, 3)), RNG.random((40, 3))
A, B = RNG.random((30, 2)), RNG.random((40, 2))
COST = RNG.random((30, 40))
CLASSES = RNG.integers(0, 4, 30), RNG.integers(0, 3, 40)
BIG = RNG.random((60, 70))


def table() -> Any:
    return bigsap.table(RNG.random((4, 3)), *CLASSES)


SENT: dict[str, Callable[[], Any]] = {
    "points": lambda: bigsap.points(X, Y),
    "minkowski": lambda: bigsap.points(X, Y, "minkowski", p=3, w=[1.0, 0.5, 2.0]),
    "haversine": lambda: bigsap.points(X[:, :2], Y[:, :2], "haversine", radius=6371.0),
    "points on a line": lambda: bigsap.points(X[:, 0], Y[:, 0], "cityblock"),
    "lowrank": lambda: bigsap.lowrank(A, B),
    "lowrank and terms": lambda: bigsap.lowrank(A, B, row_terms=X[:, 0], column_terms=Y[:, 0]),
    "table": table,
    "expression": lambda: bigsap.expression("abs(x[i, 0] - y[j, 1]) * s", (30, 40), x=X, y=Y, s=2.5),
    "array": lambda: COST,
    "float32": lambda: COST.astype(np.float32),
    "bool": lambda: COST > 0.5,
    "longdouble": lambda: COST.astype(np.longdouble),
    "fortran": lambda: np.asfortranarray(BIG),
    "list": lambda: COST.tolist(),
    "integers": lambda: (BIG * 1000).astype(np.int64),
    "forbidden": lambda: np.where(np.eye(30, 40, 3) > 0, np.inf, COST),
    "sum": lambda: bigsap.sum_of([bigsap.points(X, Y), COST, bigsap.scaled(table(), -2.0)]),
    "masked": lambda: bigsap.masked(bigsap.lowrank(A, B), np.eye(30, 40, 2)),
    "above": lambda: bigsap.forbid_above(bigsap.points(X, Y), 0.9),
    "near": lambda: bigsap.points(X, Y, "euclidean", max_distance=0.6),
}


@pytest.mark.some(5)
@pytest.mark.parametrize("name", SENT)
def test_the_same_costs_arrive(client: Client, name: str) -> None:
    cost = SENT[name]()
    result = client.submit(cost, wait=HANG_S).result()
    here = bigsap.solve(cost)
    assert (result.fun, type(result.fun), result.status) == (here.fun, type(here.fun), here.status)
    result.verify(cost)


def test_files_and_stores_arrive(client: Client, tmp_path: Any) -> None:
    zarr = pytest.importorskip("zarr", reason="extra zarr")
    here = bigsap.solve(BIG).fun
    np.save(tmp_path / "costs.npy", BIG)
    store = zarr.create_array(tmp_path / "costs.zarr", shape=BIG.shape, dtype=BIG.dtype, chunks=(16, 70))
    store[:] = BIG
    spec = {"type": "array", "values": {"npy": "costs.npy"}}
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    request = {"cost": {"type": "zarr", "path": "costs.zarr"}, "label": "from a file"}
    (tmp_path / "request.json").write_text(json.dumps(request))
    names = ("costs.npy", "costs.zarr", "spec.json", "request.json")
    given = [tmp_path / name for name in names]
    for cost in (*given, str(given[0]), store, np.load(given[0], mmap_mode="r"), Sliced()):
        job = client.submit(cost, wait=HANG_S)
        assert job.result().fun == here
    assert client.submit(given[3]).record["label"] == "from a file"


class Sliced:
    """Sliceable, as datasets of h5py are."""

    shape, dtype = BIG.shape, BIG.dtype

    def __getitem__(self, where: Any) -> Any:
        return BIG[where]


def test_a_request_may_hold_costs(client: Client) -> None:
    points = bigsap.points(X, Y)
    request = {"cost": points, "options": {"maximize": True}, "label": "r"}
    job = client.submit(request, wait=HANG_S)
    most = bigsap.solve(points, maximize=True).fun
    assert (job.result().fun, job.record["label"]) == (most, "r")
    spec = {"type": "sum", "terms": [points, {"type": "scale", "factor": 2, "cost": COST}]}
    here = bigsap.solve(bigsap.sum_of([points, bigsap.scaled(COST, 2)])).fun
    assert client.submit(spec, wait=HANG_S).result().fun == here
    scaled = {"type": "scale", "factor": 2, "cost": COST}
    assert client.submit(scaled, wait=HANG_S).result().fun == bigsap.solve(2 * COST).fun
    # What was given is as it was.
    assert spec["terms"][0] is request["cost"] is points


def test_options_and_shape_go_along(client: Client) -> None:
    job = client.submit(bigsap.points(X, Y), options={"maximize": True}, wait=HANG_S)
    assert job.record["maximize"] is True
    assert job.result().fun == bigsap.solve(bigsap.points(X, Y), maximize=True).fun
    found = client.estimate(COST, options={"method": "ssp"}, shape=(30, 40))
    assert found["spec"]["shape"] == [30, 40]
    assert found["spec"]["options"]["method"] == "ssp"
    both = {"cost": COST, "options": {"method": "compressed", "seed": 5}}
    chosen = client.estimate(both, options={"method": "ssp"})["spec"]["options"]
    assert (chosen["method"], chosen["seed"]) == ("ssp", 5)
    with pytest.raises(ServiceError, match="shape"):
        client.submit(COST, shape=(40, 30))
    for wrong in (5, (30, 40.5), ("a", 2), (30, 40, 1)):
        for ask in (client.estimate, client.check):
            with pytest.raises(bigsap.ShapeError, match="shape="):
                ask(COST, shape=wrong)


@pytest.mark.parametrize(
    "given", [{"options": 5}, {"label": "\ud800"}, {"options": {"seed": object()}}, {"options": {"gap": 1j}}]
)
def test_what_no_request_can_hold_is_an_error_of_input(client: Client, given: dict[str, Any]) -> None:
    with pytest.raises(InputError, match=r"cannot be sent|must be a mapping"):
        client.submit(COST, **given)


def test_options_may_have_their_names_in_solve(client: Client) -> None:
    request = {"cost": [[4, 1], [2, 0]], "options": {"time_limit": 60, "gap": 0.5}}
    sent = request_of(request, {"checkpoint_every": 5, "time_limit_s": 30, "certify": True})
    assert sent["options"] == {"time_limit_s": 30, "gap": 0.5, "checkpoint_s": 5, "certify": "bounds"}
    job = client.submit(COST, options={"time_limit": 60, "certify": True}, wait=HANG_S)
    assert job.result().status == "optimal"
    with pytest.raises(InputError, match="time_limit_s: is time_limit, given twice"):
        request_of(COST, {"time_limit": 1, "time_limit_s": 2})
    with pytest.raises(InputError, match="must be a mapping"):
        request_of({"cost": COST, "options": [1]}, {"gap": 1})


def test_what_forbids_depends_on_the_sense(client: Client) -> None:
    most = bigsap.masked(COST, np.eye(30, 40), maximize=True)
    result = client.submit(most, options={"maximize": True}, wait=HANG_S).result()
    assert result.fun == bigsap.solve(most, maximize=True).fun
    with pytest.raises(InputError, match="maximize=True"):
        client.submit(most)
    with pytest.raises(InputError, match="maximize=False"):
        client.submit(bigsap.forbid_above(COST, 0.5), options={"maximize": True})


def test_addresses_are_the_services_to_judge(client: Client) -> None:
    uri = "https://example.org/costs.zarr"
    assert spec_of(uri) == {"type": "zarr", "uri": uri}
    with pytest.raises(ServiceError) as caught:
        client.submit(uri)
    assert caught.value.slug == "forbidden-address"
    with Provider(COST) as provider:
        with bigsap.from_http(provider.url, COST.shape, "f8") as source:
            found = spec_of(source)
        expected = {"type": "http_rows", "url": provider.url, "shape": [30, 40], "dtype": "<f8"}
        assert found == expected
        with pytest.raises(ServiceError) as caught:
            client.submit(found)
        assert caught.value.slug == "forbidden-address"
        secret = bigsap.from_http(provider.url, COST.shape, "f8", headers={"X-Key": "secret1"})
        with secret, pytest.raises(InputError, match="credentials") as refused:
            client.submit(secret)
        assert "secret1" not in str(refused.value)


class Computed:
    shape, dtype = (3, 3), np.dtype(np.float64)

    def read(self, rows: Any, columns: slice, out: Any) -> None:
        out[:] = 0.0


@pytest.mark.parametrize(
    "cost",
    [
        lambda i, j: i + j,
        bigsap.from_function(lambda i, j: i + j, (3, 3)),
        Computed(),
        bigsap.sum_of([COST, bigsap.from_function(lambda i, j: i + j, (30, 40))]),
        {"cost": lambda i, j: i + j},
    ],
    ids=["lambda", "from_function", "source", "sum", "request"],
)
def test_code_stays_here_and_the_ways_out_are_named(client: Client, cost: Any) -> None:
    for send in (client.submit, client.estimate):
        with pytest.raises(InputError, match="cannot be sent to a service") as caught:
            send(cost)
        said = str(caught.value)
        assert "bigsap.expression" in said
        assert "compute the matrix" in said
        assert "bigsap.from_http" in said


@pytest.mark.parametrize(
    ("cost", "error", "match"),
    [
        (None, InputError, "there are no costs: got None"),
        ({"cost": None}, InputError, "there are no costs"),
        ("nowhere.npy", InputError, r"nowhere\.npy: no such file"),
        ("nowhere.json", InputError, r"nowhere\.json: no such file"),
        (np.ones(3), ShapeError, "2"),
        ([["a"]], DtypeError, "real numbers"),
        (np.full((3, 3), np.nan), InvalidCostError, r"cost\.values\[0, 0\] is nan"),
        (bigsap.expression("i + j", (3, 3)).transposed(), InputError, "exchange i and j"),
    ],
)
def test_what_are_no_costs(client: Client, cost: Any, error: type[Exception], match: str) -> None:
    before = [job.id for job in client.jobs()]
    with pytest.raises(error, match=match):
        client.submit(cost)
    assert [job.id for job in client.jobs()] == before


def test_bad_files_are_named(tmp_path: Any) -> None:
    bad = tmp_path / "bad.json"
    for text, match in (
        ("{", "not JSON"),
        ("[1]", "must be an object"),
        ("{}", "must be an obj"),
        ('{"type": "array", "values": [[1]], "type": "npy"}', "'type' appears twice"),
    ):
        bad.write_text(text)
        with pytest.raises(InputError, match=match) as caught:
            request_of(bad)
        assert "bad.json" in str(caught.value)
    bad.write_text('{"type": "array", "values": {"npy": "none.npy"}}')
    with pytest.raises(InputError, match=r"none\.npy: no such file"):
        request_of(bad)
    (tmp_path / "none.npy").write_bytes(b"no")
    with pytest.raises(InputError, match=r"none\.npy: not a readable"):
        request_of(bad)


def test_an_empty_matrix_arrives(client: Client) -> None:
    for shape in ((0, 3), (3, 0)):
        result = client.submit(np.zeros(shape), wait=HANG_S).result()
        assert (result.fun, result.shape) == (0, shape)
