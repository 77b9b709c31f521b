"""Options of ``bigsap solve``, ``verify`` and ``submit`` that belong to the problem."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap.cli import commands as cli
from bigsap.cli import job_commands
from bigsap.cli.common import check_output
from bigsap.errors import InputError

COST = np.array([[4.0, 1.0, 3.0], [2.0, 0.0, 5.0], [3.0, 2.0, 2.0]])  # optimum 5


@pytest.fixture
def folder(in_folder: Path) -> Path:
    np.save("c.npy", COST)
    return in_folder


def run(*argv: object) -> int:
    return cli.main([str(arg) for arg in argv])


def record(capsys: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return found


def test_unassigned_cost(folder: Path, capsys: Any) -> None:
    np.save(folder / "p.npy", np.array([1.5, np.inf, 1.5]))
    for given, price in (("1.5", 1.5), ("1", 1), ("p.npy", [1.5, np.inf, 1.5]), ("inf", np.inf)):
        assert run("solve", "c.npy", "--unassigned-cost", given, "-o", "r", "--json") == 0
        assert record(capsys)["fun"] == bigsap.solve(COST, unassigned_cost=price).fun
        assert run("verify", "c.npy", "r.npz", "--json") == 0
        assert run("verify", "c.npy", "r.npz", "--unassigned-cost", given, "--json") == 0
        assert run("verify", "c.npy", "r.npz", "--unassigned-cost", "77") == 5
        capsys.readouterr()
    for option, text in (("--unassigned-cost", "none.npy: no such file"), ("--capacity", "x: is neither")):
        assert run("solve", "c.npy", option, text.partition(":")[0]) == 1
        assert f"error: {option} {text}" in capsys.readouterr().err
    # Whole prices stay whole: integers beyond 2**53 are compared as they are.
    np.save(folder / "i.npy", np.array([[2**53 + 1]]))
    assert run("solve", "i.npy", "--unassigned-cost", 2**53, "--json") == 0
    assert record(capsys)["fun"] == 2**53


def test_dtype(folder: Path, capsys: Any) -> None:
    assert run("solve", "c.npy", "--dtype", "int64", "-o", "r", "--json") == 0
    assert type(record(capsys)["fun"]) is int
    assert run("verify", "c.npy", "r.npz", "--dtype", "int64") == 0
    tenth = np.array([[0.1, 0.7], [0.4, 0.2]])
    np.save("t.npy", tenth)
    assert run("solve", "t.npy", "--dtype", "float32", "-o", "f", "--json") == 0
    assert record(capsys)["fun"] == bigsap.solve(tenth.astype(np.float32)).fun
    assert run("verify", "t.npy", "f.npz", "--dtype", "float32") == 0
    assert run("verify", "t.npy", "f.npz") == 5
    assert run("solve", "c.npy", "--dtype", "words") == 1
    capsys.readouterr()


def test_dtype_of_a_checkpoint_need_not_be_said_again(
    folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[dict[str, Any]] = []
    real = bigsap.solve
    monkeypatch.setattr(bigsap, "resume", lambda _, cost, **k: said.append(k) or real(cost))
    (folder / "ck").touch()
    for options, expected in ((["--dtype", "f4"], "f4"), ([], None)):
        assert run("solve", "c.npy", "--resume", "--checkpoint", "ck", *options) == 0
        assert said.pop().get("dtype") == expected
        assert not said
    capsys.readouterr()


@pytest.mark.parametrize("command", [("solve", "c.npy"), ("k-best", "c.npy", "3")])
def test_a_checkpoint_overwrites_no_input_and_no_output(
    folder: Path, capsys: Any, command: tuple[str, ...]
) -> None:
    np.save("p.npy", np.full(3, 2.5))
    assert run(*command, "--unassigned-cost", "p.npy", "--checkpoint", "p.npy") == 1
    assert "p.npy: is no BigSAP checkpoint, and would be replaced" in capsys.readouterr().err
    assert np.load("p.npy").tolist() == [2.5] * 3
    for output, checkpoint in (("r.npz", "r.npz"), ("r", "./r.npz"), ("r.csv", folder / "r.csv")):
        assert run(*command, "-o", output, "--checkpoint", checkpoint) == 1
        assert "is the file of -o and of --checkpoint" in capsys.readouterr().err
        assert not Path(checkpoint).exists()
    assert run(*command, "-o", "r", "--checkpoint", "r") == 0
    capsys.readouterr()


def test_warm_start_and_device(folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("solve", "c.npy", "-o", "r") == 0
    saved = bigsap.Result.load("r.npz")
    np.save("v.npy", saved.v)
    said: list[dict[str, Any]] = []
    real = bigsap.solve

    def noted(cost: Any, **options: Any) -> Any:
        said.append(options)
        return real(cost, warm_start=options["warm_start"])

    monkeypatch.setattr(bigsap, "solve", noted)
    assert run("solve", "c.npy", "--warm-start", "r.npz", "--json") == 0
    assert record(capsys)["stats"]["warm_started"]
    assert isinstance(said[-1]["warm_start"], bigsap.Result)
    assert "device" not in said[-1]
    assert run("solve", "c.npy", "--warm-start", "v.npy", "--device", "auto", "--json") == 0
    assert record(capsys)["stats"]["warm_started"]
    np.testing.assert_array_equal(said[-1]["warm_start"], saved.v)
    assert said[-1]["device"] == "auto"
    assert run("solve", "c.npy", "--device", "cuda:0,cuda:1") == 0
    assert said[-1]["device"] == ["cuda:0", "cuda:1"]
    for wrong in ("none.npz", "none"):
        assert run("solve", "c.npy", "--warm-start", wrong) == 1
        assert f"--warm-start {wrong}: no such file" in capsys.readouterr().err
    np.save("short.npy", saved.v[:2])
    assert run("solve", "c.npy", "--warm-start", "short.npy") == 1
    assert "needs 3 prices" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["out", "out/", ".", "./", "absent/", "out.npz", "out.npz/"])
def test_a_folder_is_no_output(folder: Path, capsys: Any, name: str) -> None:
    """Nothing is written beside it, nor into it under a name that nobody gave."""
    (folder / "out").mkdir()
    (folder / "out.npz").mkdir()
    before = sorted(folder.rglob("*"))
    assert run("solve", "c.npy", "-o", name) == 1
    assert f"{name}: is a folder; name a file in it" in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before


def test_outputs(folder: Path) -> None:
    (folder / "out").mkdir()
    assert check_output("out/r") == Path("out/r.npz")
    assert check_output("r.v2") == Path("r.v2.npz")
    with pytest.raises(InputError, match="does not exist"):
        check_output("absent/r")


class Taking:
    """A client that keeps what is submitted."""

    def __enter__(self) -> Taking:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def submit(self, request: Any, **_: Any) -> Any:
        from bigsap.client import Job

        self.request = request
        return Job(self, {"id": "job_1", "state": "queued", "links": {}})  # type: ignore[arg-type]

    def upload(self, array: Any, **_: Any) -> str:
        return f"arr_of_{array.shape[0]}"


def test_submit_takes_them_too(folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("httpx", reason="extra http")
    client = Taking()
    monkeypatch.setattr(job_commands, "client_of", lambda args: client)
    assert run("solve", "c.npy", "-o", "r") == 0
    result = bigsap.Result.load("r.npz")
    np.save("p.npy", np.array([1.5, np.inf]))
    assert run("submit", "c.npy", "--device", "cuda", "--unassigned-cost", "p.npy") == 0
    assert client.request["options"] == {"device": "cuda", "unassigned_cost": {"array": "arr_of_2"}}
    (folder / "named.json").write_text('{"cost": [[4, 1], [2, 0]], "options": {"time_limit": 9, "gap": 1}}')
    assert run("submit", "named.json", "--time-limit", 5) == 0
    assert client.request["options"] == {"time_limit_s": 5, "gap": 1}
    assert run("submit", "c.npy", "--unassigned-cost", 2**53 + 1, "--warm-start", "job_1a") == 0
    assert client.request["options"] == {"unassigned_cost": 2**53 + 1}
    assert client.request["warm_start"] == {"job": "job_1a"}
    assert run("submit", "c.npy", "--warm-start", "p.npy") == 0
    assert client.request["warm_start"] == {"v": {"array": "arr_of_2"}}
    assert run("submit", "c.npy", "--warm-start", "r.npz") == 0
    start = client.request["warm_start"]
    np.testing.assert_array_equal(start["v"], result.v)
    np.testing.assert_array_equal(start["col4row"], result.col4row)
    assert run("submit", "c.npy", "--warm-start", "none.npz") == 1
    assert "no such file" in capsys.readouterr().err


def test_verify_and_certify_take_the_document_that_solve_takes(folder: Path, capsys: Any) -> None:
    request = {
        "cost": {"type": "array", "values": [[4, 1], [2, 0]]},
        "options": {"maximize": True, "objective": "sum", "unassigned_cost": 3, "method": "ssp"},
    }
    (folder / "job.json").write_text(json.dumps(request))
    assert run("solve", "job.json", "--json", "-o", "r.npz") == 0
    assert record(capsys)["fun"] == 4 + 3
    assert run("verify", "job.json", "r.npz", "--json") == 0
    assert record(capsys)["fun"] == 7
    for prices in ((), ("--prices", "r.npz")):
        assert run("certify", "job.json", "r.npz", "--json", *prices) == 0
        assert record(capsys)["bound"] == 7
    # What is given on the command line goes first.
    assert run("certify", "job.json", "r.npz", "--json", "--unassigned-cost", "100") == 8
    assert record(capsys)["bound"] == 200
    request["options"]["objective"] = "bottleneck"  # type: ignore[index]
    (folder / "job.json").write_text(json.dumps(request))
    assert run("certify", "job.json", "r.npz") == 1
    assert "objective" in capsys.readouterr().err


def test_what_forbids_in_a_file_follows_the_sense(folder: Path, capsys: Any) -> None:
    spec = {
        "type": "mask",
        "cost": {"type": "npy", "path": "c.npy"},
        "forbidden": np.eye(3, dtype=int).tolist(),
    }
    (folder / "spec.json").write_text(json.dumps(spec))
    job = {"cost": spec, "options": {"maximize": True}}
    (folder / "job.json").write_text(json.dumps(job))
    for words in (("spec.json", "--maximize"), ("job.json",)):
        assert run("solve", *words, "--json", "-o", "r.npz") == 0
        assert record(capsys)["fun"] == 1 + 5 + 3
        assert run("verify", words[0], "r.npz", "--json") == 0
        assert run("certify", words[0], "r.npz", *words[1:], "--json") == 0
        assert run("k-best", words[0], 9, *words[1:], "--json") == 0
        assert len(record(capsys)["costs"]) == 2  # derangements of three


def test_solve_takes_the_document_that_submit_takes(folder: Path, capsys: Any) -> None:
    request = {
        "shape": [3, 3],
        "cost": {"type": "expression", "code": "x[i]*y[j]", "arrays": {"x": [1, 2, 3], "y": [4, 6, 5]}},
        "options": {"maximize": True, "time_limit_s": 60, "unassigned_cost": [-9, -9, -9]},
        "label": "a name",
    }
    (folder / "job.json").write_text(json.dumps(request))
    assert run("solve", "job.json", "--json") == 0
    assert record(capsys)["fun"] == 1 * 4 + 2 * 5 + 3 * 6
    # Options have the names of a request, or those of bigsap.solve.
    named = {"maximize": True, "time_limit": 60, "checkpoint_every": 5, "certify": True}
    (folder / "named.json").write_text(json.dumps({**request, "options": named}))
    assert run("solve", "named.json", "--json") == 0
    assert record(capsys)["fun"] == 1 * 4 + 2 * 5 + 3 * 6
    # What is given on the command line goes first.
    assert run("solve", "job.json", "--json", "--unassigned-cost", "100") == 0
    assert record(capsys)["fun"] == 300
    for wrong, text in (
        ({"options": {"wrong": 1}}, "/options/wrong: unknown option"),
        ({"options": []}, "/options: must be an object"),
        ({"options": {"certify": False}}, '/options/certify: must be "bounds", "pairs" or true'),
        ({"options": {"gap": 0, "time_limit": 3, "time_limit_s": 3}}, "/options/time_limit_s: is time_limit"),
        ({"options": {"maximize": "false"}}, "/options/maximize: must be true or false, got a string"),
        ({"options": {"epsilon": 0}}, "/options/epsilon: must be true or false, got a number"),
        ({"spread": True}, "/spread: is for a service"),
        ({"shape": [3, 2]}, "3"),
    ):
        (folder / "job.json").write_text(json.dumps({**request, **wrong}))
        assert run("solve", "job.json") == 1
        assert text in capsys.readouterr().err
