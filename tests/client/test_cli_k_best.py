"""``bigsap k-best``: ranked assignments on the command line."""

from __future__ import annotations

import csv
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import bigsap
from bigsap.cli import commands as cli

COST = np.random.default_rng(3).integers(0, 9, (4, 5)).astype(float)
COST[0, 1] = np.inf


@pytest.fixture
def folder(in_folder: Path) -> Path:
    np.save("c.npy", COST)
    return in_folder


def run(*argv: object) -> int:
    return cli.main([str(arg) for arg in argv])


@pytest.mark.parametrize("given", [{}, {"maximize": True}, {"unassigned_cost": 2.5}])
def test_the_files_hold_what_the_library_returns(given: dict[str, Any], folder: Path, capsys: Any) -> None:
    cost = -COST if "maximize" in given else COST  # its infinity is forbidden then
    np.save("c.npy", cost)
    flags = {"maximize": ["--maximize"], "unassigned_cost": ["--unassigned-cost", "2.5"]}
    words = [word for name in given for word in flags[name]]
    expected = bigsap.solve_k_best(cost, 30, **given)
    assert run("k-best", "c.npy", 30, *words, "-o", "best", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert record["costs"] == expected.costs.tolist()
    assert (record["complete"], record["shape"], record["exit_code"]) == (expected.complete, [4, 5], 0)
    assert record["status"] == "optimal"
    with np.load("best.npz", allow_pickle=False) as saved:
        assert saved["costs"].tolist() == expected.costs.tolist()
        assert saved["col4row"].tolist() == expected.col4row.tolist()
    assert run("k-best", "c.npy", 30, *words, "-o", "best.csv") == 0
    with open("best.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    col4row = np.full_like(expected.col4row, -1)
    for line in lines:
        col4row[int(line["rank"]) - 1, int(line["row"])] = int(line["column"])
        assert float(line["cost"]) == expected.costs[int(line["rank"]) - 1]
    assert col4row.tolist() == expected.col4row.tolist()


def test_what_is_printed(folder: Path, capsys: Any) -> None:
    expected = bigsap.solve_k_best(COST, 500)
    assert expected.complete
    assert run("k-best", "c.npy", 500) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert lines[0].split()[:2] == ["rank", "cost"]
    assert lines[1].split() == ["1", f"{expected.costs[0]:g}", "0"]
    first, last = expected.costs[[0, 19]]
    assert lines[20].split() == ["20", f"{last:g}", f"{last - first:g}"]
    assert lines[21:] == [f"... {len(expected) - 20} more", "there are no others"]
    assert "not saved" in err
    assert run("k-best", "c.npy", 2, "--quiet") == 0
    out, err = capsys.readouterr()
    assert (len(out.splitlines()), err) == (3, "")


def test_no_assignment_and_bad_input(folder: Path, capsys: Any) -> None:
    np.save("none.npy", np.full((2, 2), np.inf))
    assert run("k-best", "none.npy", 3) == 3
    assert "infeasible" in capsys.readouterr().out
    for words, code, text in (
        (("c.npy", 0), 1, "k must be an integer of at least 1"),
        (("lost.npy", 2), 1, "lost.npy"),
        (("c.npy", 2, "-o", "c.npy/"), 1, "is a folder"),
        (("c.npy", 2, "-o", "c.npy"), 0, ""),  # c.npy.npz
    ):
        assert run("k-best", *words) == code
        assert text in capsys.readouterr().err
    for words in (("c.npy", 2, "--gap", 1), ("c.npy", 2, "--capacity", 2), ("c.npy",)):
        with pytest.raises(SystemExit):
            run("k-best", *words)
    request = {"cost": {"type": "array", "values": [[1, 2], [3, 5]]}, "options": {"objective": "sum"}}
    Path("job.json").write_text(json.dumps(request))
    assert run("k-best", "job.json", 5, "--json") == 0
    capsys.readouterr()
    request["options"] = {"objective": "bottleneck"}
    Path("job.json").write_text(json.dumps(request))
    assert run("k-best", "job.json", 5) == 1
    assert "solve_k_best takes no objective=" in capsys.readouterr().err


def test_whole_costs_beyond_int64(folder: Path, capsys: Any) -> None:
    """Their sums are exact: printed, and saved where the file holds them."""
    large = 2**61 + np.arange(25).reshape(5, 5) ** 2
    scipy.sparse.save_npz("s.npz", scipy.sparse.csr_matrix(large))
    expected = bigsap.solve_k_best(scipy.sparse.csr_matrix(large), 3).costs.tolist()
    assert expected[0] > 2**63
    assert run("k-best", "s.npz", 3, "-o", "best.csv", "--quiet") == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[1:]] == [str(cost - expected[0]) for cost in expected]
    with open("best.csv", newline="") as file:
        assert {int(line["cost"]) for line in csv.DictReader(file)} == set(expected)
    for name in ("best.npz", "best.parquet"):
        assert run("k-best", "s.npz", 3, "-o", name) == 1
        assert "beyond int64" in capsys.readouterr().err
        assert not Path(name).exists()


def test_a_ranking_that_is_stopped(folder: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("k-best", "c.npy", 3, "--time-limit", 0, "--json", "-o", "none.npz") == 4
    record = json.loads(capsys.readouterr().out)
    assert (record["status"], record["costs"], record["complete"]) == ("time_limit", [], False)
    assert run("k-best", "c.npy", 3, "--time-limit", 0) == 4
    assert capsys.readouterr().out == "stopped early (time limit): no assignment is ranked yet\n"
    whole = bigsap.solve_k_best(COST, 2)
    some = replace(whole, status=bigsap.Status.CANCELLED)
    monkeypatch.setattr(bigsap, "solve_k_best", lambda *_, **__: some)
    assert run("k-best", "c.npy", 3, "-o", "some.npz") == 4
    assert (
        capsys.readouterr().out.splitlines()[-1] == "stopped early (cancelled): these are the best, in order"
    )
    with np.load("some.npz", allow_pickle=False) as saved:
        assert saved["costs"].tolist() == whole.costs.tolist()


def test_a_ranking_that_is_continued(folder: Path, capsys: Any) -> None:
    whole = bigsap.solve_k_best(COST, 30)
    options = ("--checkpoint", "r.ckpt", "--resume", "-o", "best.npz")
    assert run("k-best", "c.npy", 30, *options, "--time-limit", 0) == 4
    assert "there is no checkpoint r.ckpt yet" in capsys.readouterr().err
    assert run("k-best", "c.npy", 29, *options) == 1
    assert "of a ranking of k = 30, not 29" in capsys.readouterr().err
    assert run("k-best", "c.npy", 30, *options, "--checkpoint-every", 0) == 0
    with np.load("best.npz", allow_pickle=False) as saved:
        assert saved["costs"].tolist() == whole.costs.tolist()
    assert run("k-best", "c.npy", 30, "--resume") == 1
    assert "--resume needs --checkpoint FILE" in capsys.readouterr().err
    assert run("k-best", "c.npy", 30, "--checkpoint", "c.npy") == 1
    assert "would be overwritten" in capsys.readouterr().err


def test_the_bar_of_a_terminal(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    whole = bigsap.solve_k_best(COST, 2)
    monkeypatch.setattr("bigsap.cli.k_best_command.on_terminal", lambda: True)
    monkeypatch.setattr(bigsap, "solve_k_best", lambda *_, progress, **__: asked.append(progress) or whole)
    assert run("k-best", "c.npy", 2) == run("k-best", "c.npy", 2, "--quiet") == 0
    assert asked == [True, False]
