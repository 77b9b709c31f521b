"""Proofs by a service: ``Client.certify`` and ``bigsap submit --certify``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap.cli import commands as cli
from bigsap.errors import InputError

pytest.importorskip("httpx", reason="extra http")
pytest.importorskip("fastapi", reason="extra server")

from bigsap.client import Client, JobFailedError, ServiceError

RNG = np.random.default_rng(8)
COST = RNG.random((40, 50))
BEST = bigsap.solve(COST)
SWAPPED = BEST.col4row[[1, 0, *range(2, 40)]]


def plan_of(col4row: np.ndarray) -> np.ndarray:
    plan = np.zeros(COST.shape)
    plan[np.arange(40), col4row] = 1 / 40
    return plan


def test_every_form_of_an_assignment(client: Client) -> None:
    for given, more in (
        (BEST, {}),
        (BEST.col4row.tolist(), {}),
        ((BEST.row_ind, BEST.col_ind), {"shape": COST.shape}),
        (plan_of(BEST.col4row), {}),
    ):
        result = client.certify(COST, given, wait=True, label="forms", **more).result()
        assert (result.status, result.fun) == ("optimal", BEST.fun)
        assert result.col4row.tolist() == BEST.col4row.tolist()
        assert result.verify(COST).optimal
    with pytest.raises(InputError, match="shape"):
        client.certify(COST, (BEST.row_ind, BEST.col_ind))


@pytest.mark.parametrize("maximize", [False, True])
def test_refuted_with_prices_and_without(client: Client, maximize: bool) -> None:
    best = bigsap.solve(COST, maximize=maximize)
    here = bigsap.certify(COST, SWAPPED, best, maximize=maximize)
    for v in (None, best, best.v):
        job = client.certify(COST, SWAPPED, v, options={"maximize": maximize}, wait=True)
        result = job.result()
        assert (result.status, result.success, result.fun) == ("imprecise", False, here.fun)
        assert (result.bound, result.gap) == pytest.approx((here.bound, here.gap), abs=1e-12)
        assert ("solved_fun" in result.stats) == (v is None)
        assert result.verify(COST).fun == here.fun


def test_no_assignment(client: Client) -> None:
    with pytest.raises(ServiceError, match="column 3 is assigned") as refused:
        client.certify(COST, np.full(40, 3))
    assert refused.value.slug == "invalid-spec"
    costs = COST.copy()
    costs[7, BEST.col4row[7]] = np.inf
    with pytest.raises(JobFailedError) as failed:
        client.certify(costs, BEST, wait=True).result()
    assert failed.value.problem["type"].endswith("invalid-assignment")


def test_the_command(
    live_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("BIGSAP_URL", live_server.url)
    np.save(tmp_path / "costs.npy", COST)
    np.save(tmp_path / "best.npy", BEST.col4row)
    np.save(tmp_path / "plan.npy", plan_of(SWAPPED))
    BEST.save(tmp_path / "best.npz")

    def run(*more: str) -> tuple[int, dict[str, Any]]:
        words = ["submit", "costs.npy", "--json", "--quiet", "--wait", *more]
        code = cli.main(words)
        return code, json.loads(capsys.readouterr().out)

    monkeypatch.chdir(tmp_path)
    for name in ("best.npy", "best.npz"):
        code, found = run("--certify", name)
        assert (code, found["status"], found["fun"]) == (0, "optimal", BEST.fun)
    code, found = run("--certify", "plan.npy", "--prices", "best.npz", "-o", "proved.npz")
    assert (code, found["status"]) == (8, "imprecise")
    saved = bigsap.Result.load(tmp_path / "proved.npz")
    assert saved.col4row.tolist() == SWAPPED.tolist()
    code, found = run("--prices", "best.npz")
    assert (code, found["error"]) == (1, "InputError")
