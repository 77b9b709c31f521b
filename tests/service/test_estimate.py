"""Estimates of dry runs against solves: they need to be right to a factor only."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bigsap_server.costs.build import Resolver, build_source
from bigsap_server.costs.request import JobRequest
from bigsap_server.costs.validate import estimate, validate
from bigsap_server.settings import load
from checks import normalised

import bigsap
from bigsap.preview import expected
from bigsap.row_cache import parse_bytes
from gate import HANG_S

#: Of pairs computed: the same on every machine.
PAIRS_FACTOR = 3
MEMORY_FACTOR = 2


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lab")
    rng = np.random.default_rng(3)
    for name in "xy":
        np.save(folder / f"{name}.npy", rng.random((2000, 3)))
    np.save(folder / "m.npy", rng.random((1500, 1500)))
    return folder


def ref(name: str) -> dict[str, str]:
    return {"store": "lab", "path": f"{name}.npy"}


POINTS = {"type": "points", "metric": "euclidean", "x": ref("x"), "y": ref("y")}
BODIES: dict[str, dict[str, Any]] = {
    "points": {"cost": POINTS},
    "dense": {"cost": POINTS, "options": {"method": "ssp", "cache": "8MiB"}},
    "matrix": {"cost": {"type": "array", "values": ref("m")}},
    "formula": {
        "shape": [2000, 2000],
        "cost": {
            "type": "expression",
            "code": "abs(x[i,0]-y[j,0]) + 0.1*(x[i,1]-y[j,1])**2",
            "arrays": {"x": ref("x"), "y": ref("y")},
        },
    },
    "rows through Python": {"cost": {"type": "scale", "factor": 2, "cost": POINTS}},
}


def settings(lab: Path) -> dict[str, Any]:
    return load(data=lab / "data", stores={"lab": lab}).model_dump(mode="json")


def guess(lab: Path, body: dict[str, Any]) -> dict[str, Any]:
    request = normalised(body)
    given = settings(lab)
    return estimate(request, validate(request, Resolver(Path(given["data"]), given), ["cpu"]), 1)


def solve(lab: Path, body: dict[str, Any]) -> bigsap.Result:
    request = normalised(body)
    given = settings(lab)
    source = build_source(request, given["data"], given)
    options = {name: request["options"][name] for name in ("method", "cache")}
    result = bigsap.solve(source, **options, threads=1)
    assert result.status == "optimal"
    return result


@pytest.mark.parametrize("name", BODIES)
def test_pairs(lab: Path, name: str) -> None:
    """Seconds are pairs times what one takes: the pairs are counted."""
    request = normalised(BODIES[name])
    given = settings(lab)
    costs = validate(request, Resolver(Path(given["data"]), given), ["cpu"]).costs
    assert costs is not None
    cache = request["options"]["cache"]
    kept = 1.0 if cache is None else parse_bytes(cache) / (8 * costs.shape[0] * costs.shape[1])
    guessed = expected(costs, request["options"]["method"], kept).pairs
    real = solve(lab, BODIES[name]).stats["pairs_evaluated"]
    assert guessed / PAIRS_FACTOR < real < guessed * PAIRS_FACTOR, (guessed, real)


MEASURED = """
import json, re, sys
from pathlib import Path
import bigsap
from bigsap_server.costs.build import Resolver, build_source
body, given = json.loads(sys.argv[1]), json.loads(sys.argv[2])
options = body["options"]
source = build_source(body, given["data"], given)
bigsap.solve(source, method=options["method"], cache=options["cache"], threads=1)
# Not ru_maxrss: it starts with what the parent had.
status = Path("/proc/self/status").read_text()
print(1024 * int(re.search(r"VmHWM:\\s*([0-9]+) kB", status)[1]))
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs /proc")
@pytest.mark.parametrize("cache", ["1MiB", "64MiB"])
def test_memory(lab: Path, cache: str) -> None:
    import json

    body = BODIES["dense"] | {"options": {"method": "ssp", "cache": cache}}
    text = JobRequest.model_validate(body).model_dump_json()
    done = subprocess.run(
        [sys.executable, "-c", MEASURED, text, json.dumps(settings(lab))],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=True,
    )
    found, real = guess(lab, body)["memory_bytes"], int(done.stdout)
    assert found / MEMORY_FACTOR < real < found * MEMORY_FACTOR, (found, real)


def test_estimates_grow_with_the_problem() -> None:
    def asked(n: int, **options: Any) -> dict[str, Any]:
        cost = {"type": "expression", "code": "abs(i - j)"}
        body = {"shape": [n, n], "cost": cost, "options": options}
        request = normalised(body)
        given = load(data="unused").model_dump(mode="json")
        return estimate(request, validate(request, Resolver(Path("unused"), given), ["cpu"]), 1)

    small, large = asked(1000), asked(100_000)
    assert small["seconds"] < large["seconds"]
    assert small["memory_bytes"] < large["memory_bytes"]
    assert large["memory_bytes"] < 8 * 100_000**2 / 10, "no matrix is kept"
    assert asked(100_000, time_limit_s=5)["seconds"] < 6
    dense, cached = (asked(50_000, method="ssp", cache=size) for size in ("1GiB", "4GiB"))
    assert cached["memory_bytes"] - dense["memory_bytes"] == 3 << 30


@pytest.mark.parametrize(
    ("metric", "n", "options"),
    [
        ("sqeuclidean", 2_000, {}),
        ("sqeuclidean", 2_000, {"maximize": True}),
        ("euclidean", 2_000, {}),
        ("sqeuclidean", 2_000, {"method": "hungarian"}),
        ("sqeuclidean", 2_000, {"method": "auction"}),
    ],
)
def test_lists_have_the_lengths_that_they_are_counted_with(
    lab: Path, metric: str, n: int, options: dict[str, Any]
) -> None:
    from bigsap import policy
    from bigsap.engine.lists.layout import ENTRY_BYTES
    from bigsap.problem import Problem
    from bigsap.strategies import list_sizes

    cost = POINTS | {"metric": metric}
    found = guess(lab, {"cost": cost, "options": options})["memory"]["lists"]
    x, y = (np.load(lab / f"{name}.npy") for name in "xy")
    source = bigsap.points(x, y, metric=metric)
    length = {"hungarian": policy.TREE_LIST_SIZE, "auction": 0}.get(
        options.get("method", ""), list_sizes.list_size(Problem(source, options.get("maximize", False)))
    )
    assert found == ENTRY_BYTES * n * length


OVERFLOW = {"type": "expression", "code": "exp(800 + i + j)"}
MEANT = {"type": "expression", "code": "where(i < j, inf, exp(800 + i))"}
PLAIN = {"type": "expression", "code": "abs(i - j)"}


def estimated(api: Any, cost: dict[str, Any], n: int = 100, **more: Any) -> dict[str, Any]:
    body = {"shape": [n, n], "cost": cost, **more}
    answer = api.post("/v1/jobs?dry_run=true", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["estimate"]
    assert found["memory_bytes"] == sum(found["memory"].values())
    assert found["seconds_low"] < found["seconds"] < found["seconds_high"]
    assert api.get("/v1/jobs").json()["jobs"] == []
    return found


def test_a_dry_run_tells_of_overflow(api: Any) -> None:
    found = estimated(api, OVERFLOW)
    assert found["infinite"]["found"] == found["infinite"]["sampled"] == 256
    assert "exceed float64" in found["infinite"]["why"]
    assert any("256 are infinite: the expression says inf nowhere" in n for n in found["notes"])
    found = estimated(api, {"type": "scale", "factor": 2.0, "cost": OVERFLOW})
    assert found["infinite"]["found"] == 256


def test_a_dry_run_of_inf_that_is_meant(api: Any) -> None:
    found = estimated(api, MEANT)["infinite"]
    assert found["found"] > 0
    assert found["why"] is None
    found = estimated(api, PLAIN)
    assert found["infinite"] == {"sampled": 256, "found": 0, "why": None}
    assert not any("infinite" in note for note in found["notes"])


def test_a_dry_run_samples_no_long_formula(api: Any) -> None:
    code = "sum(sum(k + l for l in range(200)) for k in range(200))"
    assert estimated(api, {"type": "expression", "code": code})["infinite"] is None
    matrix = {"type": "array", "values": [[1, 2], [3, 4]]}
    assert estimated(api, matrix, 2)["infinite"] is None


@pytest.mark.parametrize("method", ["compressed", "ssp"])
def test_disk_bytes_are_those_of_a_checkpoint(api: Any, tmp_path: Path, method: str) -> None:
    n = 1500
    found = estimated(api, PLAIN, n, options={"method": method})
    assert found["disk_bytes"] == sum(found["disk"].values())
    path, sizes = tmp_path / "checkpoint", []

    def look(progress: bigsap.Progress) -> None:
        sizes.append(path.stat().st_size)

    g = np.random.default_rng(0)
    cost = bigsap.points(g.random((n, 2)), g.random((n, 2)))
    options: dict[str, Any] = {"method": method, "checkpoint": path, "checkpoint_every": 0.0}
    result = bigsap.solve(cost, callback=look, **options)
    # Two at a time, while one replaces the other.
    assert 1 <= found["disk"]["checkpoint"] / (2 * max(sizes)) < 3
    result.save(tmp_path / "result.npz")
    assert 0.5 < found["disk"]["result"] / (tmp_path / "result.npz").stat().st_size < 4
