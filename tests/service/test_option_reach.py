"""Every option of the table goes from a request, and from the command line, to ``bigsap.solve``."""

from __future__ import annotations

import argparse
from typing import Any

import pytest
from checks import SQUARE, problem, solved, upload

import bigsap
from bigsap.cli.option_flags import add_request_options, given_request_options
from bigsap.option_table import OPTIONS, SolveOption

#: A value of each that is not its default: as it is written, and as it is sent.
VALUES: dict[str, tuple[str | None, Any]] = {
    "maximize": (None, True),
    "objective": ("bottleneck", "bottleneck"),
    "method": ("ssp", "ssp"),
    "variant": ("tree", "tree"),
    "epsilon": (None, False),
    "start": ("estimate", "estimate"),
    "unassigned_cost": ("2.5", 2.5),
    "capacity": ("2", 2),
    "demand": ("1", 1),
    "dtype": ("float32", "float32"),
    "device": ("cpu", "cpu"),
    "threads": ("1", 1),
    "cache": ("3MiB", "3MiB"),
    "memory_limit": ("2GiB", "2GiB"),
    "time_limit": ("77.0", 77.0),
    "gap": ("0.25", 0.25),
    "checkpoint_every": ("5.5", 5.5),
    "seed": ("9", 9),
}
NEEDS = {"variant": {"method": "hungarian"}}


@pytest.mark.parametrize("option", OPTIONS, ids=[option.name for option in OPTIONS])
def test_an_option_reaches_the_solve(api: Any, monkeypatch: pytest.MonkeyPatch, option: SolveOption) -> None:
    text, value = VALUES[option.name]
    assert value != option.remote_default or option.name == "device"
    parser = argparse.ArgumentParser()
    add_request_options(parser)
    sent = given_request_options(parser.parse_args([option.flag, *([text] if text else [])]))
    assert sent == {option.remote: value}
    received: dict[str, Any] = {}

    def solve(source: Any, **given: Any) -> Any:
        received.update(given)
        raise bigsap.OptionError("received")

    monkeypatch.setattr(bigsap, "solve", solve)
    job = solved(api, SQUARE | {"options": sent | NEEDS.get(option.name, {})})
    assert job["problem"]["detail"] == "received"
    assert received[option.name] == value


def test_costs_are_read_as_another_type(api: Any) -> None:
    body: dict[str, Any] = {
        "cost": {"type": "array", "values": [[0.1, 2.0], [3.0, 0.2]]},
        "options": {"dtype": "float32"},
    }
    assert api.post("/v1/jobs?dry_run=true", json=body).json()["dtype"] == "float32"
    found = solved(api, body)["result"]
    assert found["objective"] == bigsap.solve([[0.1, 2.0], [3.0, 0.2]], dtype="float32").fun
    body["options"] = {"dtype": "int64"}
    found = problem(api.post("/v1/jobs", json=body), 422, "invalid-cost", "/cost/values")
    assert (found["row"], found["column"]) == (0, 0)
    # An upload is read when the job runs.
    body["cost"]["values"] = {"array": upload(api, [[0.1, 2.0], [3.0, 0.2]])}
    job = solved(api, body)
    assert (job["state"], job["problem"]["type"]) == ("failed", "urn:bigsap:problem:invalid-cost")
    body["assignment"] = {"col4row": [0, 1]}
    assert solved(api, body)["state"] == "failed"
    body["options"] = {"dtype": "float32"}
    assert solved(api, body)["result"]["status"] == "optimal"
