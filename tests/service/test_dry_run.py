"""Dry runs and checks of costs: infinite costs and why, and what a job takes of the disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsap

OVERFLOW = {"type": "expression", "code": "exp(800 + i + j)"}
MEANT = {"type": "expression", "code": "where(i < j, inf, exp(800 + i))"}
PLAIN = {"type": "expression", "code": "abs(i - j)"}


def estimate(api: Any, cost: dict[str, Any], n: int = 100, **more: Any) -> dict[str, Any]:
    body = {"shape": [n, n], "cost": cost, **more}
    answer = api.post("/v1/jobs?dry_run=true", json=body)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()["estimate"]
    return found


def test_a_dry_run_tells_of_overflow(api: Any) -> None:
    found = estimate(api, OVERFLOW)
    assert found["infinite"]["found"] == found["infinite"]["sampled"] == 256
    assert "exceed float64" in found["infinite"]["why"]
    assert any("256 are infinite: the expression says inf nowhere" in n for n in found["notes"])
    found = estimate(api, {"type": "scale", "factor": 2.0, "cost": OVERFLOW})
    assert found["infinite"]["found"] == 256


def test_a_dry_run_of_inf_that_is_meant(api: Any) -> None:
    found = estimate(api, MEANT)["infinite"]
    assert found["found"] > 0
    assert found["why"] is None
    found = estimate(api, PLAIN)
    assert found["infinite"] == {"sampled": 256, "found": 0, "why": None}
    assert not any("infinite" in note for note in found["notes"])


def test_a_dry_run_samples_no_long_formula(api: Any) -> None:
    code = "sum(sum(k + l for l in range(200)) for k in range(200))"
    assert estimate(api, {"type": "expression", "code": code})["infinite"] is None
    matrix = {"type": "array", "values": [[1, 2], [3, 4]]}
    assert estimate(api, matrix, 2)["infinite"] is None


@pytest.mark.parametrize("method", ["compressed", "ssp"])
def test_disk_bytes_are_those_of_a_checkpoint(api: Any, tmp_path: Path, method: str) -> None:
    n = 1500
    found = estimate(api, PLAIN, n, options={"method": method})
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
