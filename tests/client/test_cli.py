"""The command line: what it prints, writes and returns."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas
import pytest
import scipy.sparse

import bigsap
from bigsap.cli import commands as cli
from bigsap.cli import common as cli_common
from bigsap.client.job_request import assignment_of
from bigsap.compile import kernel_files
from bigsap.errors import CertificateError, InvalidCostError

COST = np.array([[4.0, 1.0, 3.0, 9.0], [2.0, 0.0, 5.0, 9.0], [3.0, 2.0, 2.0, 9.0]])  # optimum 5
FORBIDDEN = np.array([[1.0, np.inf], [2.0, np.inf]])


@pytest.fixture
def costs(tmp_path) -> str:
    np.save(tmp_path / "costs.npy", COST)
    return str(tmp_path / "costs.npy")


@pytest.fixture
def solve_call(monkeypatch):
    """Replaces solve by a function that notes how it was called and may raise."""
    real = bigsap.solve

    class Call:
        def __init__(self):
            self.keywords = {}
            self.raises = None  # an exception
            self.status = None  # of the result, instead of "optimal"

        def __call__(self, cost, **keywords):
            self.keywords = keywords
            if self.raises is not None:
                raise self.raises
            result = real(cost, certify=True)
            if self.status is None:
                return result
            return bigsap.Result.from_assignment(
                result.col4row,
                result.v,
                shape=result.shape,
                status=bigsap.Status(self.status),
                fun=result.fun,
                bound=result.bound,
            )

    call = Call()
    monkeypatch.setattr(bigsap, "solve", call)
    return call


def run(*argv: object) -> int:
    return cli.main([str(arg) for arg in argv])


def test_solve_prints_the_numbers(costs, capsys):
    assert run("solve", costs) == 0
    out, err = capsys.readouterr()
    shown = dict(line.split("  ", 1) for line in out.splitlines())
    shown = {key.strip(): value.strip() for key, value in shown.items()}
    assert shown["status"].startswith("optimal")
    assert shown["n"] == "3 x 4"
    assert (shown["cost"], shown["bound"], shown["gap"]) == ("5", "5", "0")
    assert {"rows evaluated", "seconds", "peak memory", "method"} <= set(shown)
    assert "not saved; -o" in err


def test_solve_saves_and_verify_accepts(costs, tmp_path, capsys):
    out = tmp_path / "answer"
    assert run("solve", costs, "--maximize", "-o", out, "--quiet") == 0
    assert capsys.readouterr().err == ""
    result = bigsap.Result.load(f"{out}.npz")
    assert result.fun == 18.0  # 4 + 5 + 9
    assert run("verify", costs, f"{out}.npz") == 0
    assert "is what it claims (optimal)" in capsys.readouterr().out


@pytest.mark.parametrize("factor", [1, 0.1])
def test_pairs_are_saved_as_a_table(factor, tmp_path):
    np.save(tmp_path / "c.npy", np.array([[4, 1, 3], [2, 0, 5], [9, 9, 9]]) * factor)
    for name in ("r.npz", "r.csv", "r.parquet"):
        given = ("--unassigned-cost", 7 * factor, "-o", tmp_path / name)
        assert run("solve", tmp_path / "c.npy", *given) == 0
    frame = bigsap.Result.load(tmp_path / "r.npz").to_dataframe()
    assert 0 < len(frame) < 3
    for found in (pandas.read_csv(tmp_path / "r.csv"), pandas.read_parquet(tmp_path / "r.parquet")):
        pandas.testing.assert_frame_equal(found, frame)


def test_the_costs_are_not_overwritten(tmp_path, capsys):
    costs = tmp_path / "c.npz"
    scipy.sparse.save_npz(costs, scipy.sparse.csr_array(np.ones((2, 2))))
    before = costs.read_bytes()
    for command, flag, file in (
        ("solve", "-o", costs),
        ("solve", "-o", tmp_path / "c"),  # .npz is added
        ("solve", "--checkpoint", costs),
        ("submit", "-o", costs),
    ):
        assert run(command, costs, flag, file) == 1
        assert "c.npz: holds the costs" in capsys.readouterr().err
    assert costs.read_bytes() == before
    cli_common.check_output(str(costs), f"https://host/{'x' * 300}.npy")


def test_a_table_without_pairs_has_the_same_columns(tmp_path):
    np.save(tmp_path / "c.npy", np.full((2, 2), np.inf))
    for name in ("r.csv", "r.parquet"):
        assert run("solve", tmp_path / "c.npy", "-o", tmp_path / name) == 3
    for found in (pandas.read_csv(tmp_path / "r.csv"), pandas.read_parquet(tmp_path / "r.parquet")):
        assert (list(found), len(found)) == (["row", "column", "cost"], 0)


def test_a_table_without_its_package_is_refused_before_the_solve(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert run("solve", "absent.npy", "-o", tmp_path / "r.parquet") == 1
    assert capsys.readouterr().err == "bigsap: error: -o FILE.parquet needs pyarrow: pip install pyarrow\n"


def test_json_is_one_object_and_nothing_else(costs, tmp_path, capsys):
    assert run("solve", costs, "--json", "-o", tmp_path / "a.npz") == 0
    out, err = capsys.readouterr()
    record = json.loads(out, parse_constant=pytest.fail)
    assert (record["n_rows"], record["n_columns"]) == (3, 4)
    assert (record["fun"], record["status"], record["success"]) == (5.0, "optimal", True)
    assert record["exit_code"] == 0
    assert record["output"] == str(tmp_path / "a.npz")
    assert record["stats"]["rows_evaluated"] >= 0
    assert err == ""
    assert run("verify", costs, tmp_path / "a.npz", "--json") == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["verified"], record["fun"], record["gap"]) == (True, 5.0, 0.0)


def test_sparse_costs_of_a_file_are_solved(tmp_path, capsys):
    graph = scipy.sparse.csr_array(([0.0, 5.0, 5.0, 0.0], ([0, 0, 1, 1], [0, 1, 0, 1])), shape=(2, 2))
    scipy.sparse.save_npz(tmp_path / "graph.npz", graph)
    assert run("solve", tmp_path / "graph.npz", "--json", "-o", tmp_path / "r.npz") == 0
    assert json.loads(capsys.readouterr().out)["fun"] == 0.0
    assert run("verify", tmp_path / "graph.npz", tmp_path / "r.npz") == 0


def test_infeasible_is_exit_3_and_verifiable(tmp_path, capsys):
    np.save(tmp_path / "c.npy", FORBIDDEN)
    assert run("solve", tmp_path / "c.npy", "-o", tmp_path / "r.npz", "--json") == 3
    record = json.loads(capsys.readouterr().out)
    assert (record["status"], record["fun"], record["exit_code"]) == ("infeasible", None, 3)
    assert record["violator"] == [0, 1]
    assert run("solve", tmp_path / "c.npy") == 3
    assert "2 rows whose allowed columns are too few" in capsys.readouterr().out
    assert run("verify", tmp_path / "c.npy", tmp_path / "r.npz") == 0


def test_options_reach_solve(costs, solve_call):
    options = (
        "--maximize --method ssp --no-epsilon --threads 3 --cache 4GiB --policy lfu "
        "--memory-limit 8GiB --time-limit 2.5 --seed 7 --no-certify --gap 0.5 "
        "--checkpoint there --checkpoint-every 5"
    )
    assert run("solve", costs, *options.split()) == 0
    assert solve_call.keywords == {
        "maximize": True,
        "method": "ssp",
        "epsilon": False,
        "threads": 3,
        "cache": bigsap.RowCache(bytes="4GiB", policy="lfu"),
        "memory_limit": "8GiB",
        "time_limit": 2.5,
        "gap": 0.5,
        "checkpoint": "there",
        "checkpoint_every": 5.0,
        "seed": 7,
        "certify": False,
        "progress": False,
        "warm_start": None,
    }


def test_defaults_leave_the_choice_to_solve(costs, solve_call):
    assert run("solve", costs) == 0
    assert solve_call.keywords == {"checkpoint": None, "progress": False, "warm_start": None}


def test_every_pair_is_looked_at_when_asked_for(costs, tmp_path, solve_call, capsys):
    saved = tmp_path / "r.npz"
    assert run("solve", costs, "--certify-pairs", "-o", saved) == 0
    assert solve_call.keywords["certify"] == "pairs"
    assert run("solve", costs, "--certify-pairs", "--no-certify") == 1
    assert "exclude each other" in capsys.readouterr().err
    assert run("verify", costs, saved, "--pairs", "--json") == 0
    assert json.loads(capsys.readouterr().out)["by"] == "pairs"


@pytest.mark.parametrize("status", ["time_limit", "cancelled"])
def test_stopped_early_is_exit_4_and_saved(costs, tmp_path, solve_call, status):
    solve_call.status = status
    assert run("solve", costs, "-o", tmp_path / "r.npz") == 4
    assert bigsap.Result.load(tmp_path / "r.npz").status == status


RAISED = [
    (InvalidCostError("cost[2, 5] is NaN", 2, 5), 1, "cost[2, 5] is NaN"),
    (CertificateError("gap is 3"), 5, "certificate failed: gap is 3"),
    (ImportError('zarr is needed: pip install "bigsap[zarr]"'), 1, "bigsap[zarr]"),
    (MemoryError(), 1, "out of memory"),
    (KeyboardInterrupt(), 130, "interrupted"),
    (ZeroDivisionError("odd\nindeed"), 70, "internal error: ZeroDivisionError: odd indeed"),
]


@pytest.mark.parametrize(("error", "code", "text"), RAISED)
def test_errors_are_one_line_without_traceback(costs, solve_call, capsys, error, code, text):
    solve_call.raises = error
    assert run("solve", costs) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("bigsap: error: ")
    assert err.count("\n") == 1
    assert text in err


def test_error_under_json_is_an_object_too(costs, solve_call, capsys):
    solve_call.raises = InvalidCostError("cost[2, 5] is NaN", 2, 5)
    assert run("solve", costs, "--json") == 1
    out, err = capsys.readouterr()
    assert json.loads(out) == {
        "error": "InvalidCostError",
        "message": "cost[2, 5] is NaN",
        "exit_code": 1,
        "row": 2,
        "column": 5,
    }
    assert err.count("\n") == 1


BAD = [
    ("solve absent.npy", "absent.npy: no such file"),
    ("solve {costs} -o absent/r.npz", "the folder absent does not exist"),
    (
        "solve {costs} --checkpoint absent/c",
        "error: absent/c: the checkpoint cannot be written: No such file",
    ),
    ("solve {costs} --threads 0", "threads"),
    ("solve {costs} --cache much", "cache"),
    ("solve {points} --cache 1B", "row"),
    ("verify {costs} absent.npz", "absent.npz: no such file"),
    ("verify {costs} {costs}", "not a BigSAP result"),
    ("demo --pixels 0 --out {folder}", "pixels must be at least 1"),
    ("demo --out {costs}", "is not a folder"),
]


@pytest.mark.parametrize(("line", "text"), BAD)
def test_bad_input_is_exit_1(line, text, costs, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    points = tmp_path / "points.json"
    points.write_text(json.dumps({"type": "points", "x": [0, 1], "y": [2, 3]}))
    argv = line.format(costs=costs, points=points, folder=tmp_path / "demo").split()
    assert run(*argv) == 1
    err = capsys.readouterr().err.splitlines()
    assert text in err[-1]
    assert len(err) == 1


def test_bad_output_is_found_before_the_work(costs, tmp_path, solve_call):
    solve_call.raises = AssertionError("must not be called")
    assert run("solve", costs, "-o", tmp_path / "absent" / "r.npz") == 1
    (tmp_path / "d.npz").mkdir()
    assert run("solve", costs, "-o", tmp_path / "d.npz") == 1


@pytest.mark.parametrize(
    "line",
    ["--json", "solve --json", "solve c.npy --method nonsense --json", "jobs --json --limit x", "fly --json"],
)
def test_wrong_usage_is_one_json_object_too(line, capsys):
    with pytest.raises(SystemExit) as left:
        run(*line.split())
    out, err = capsys.readouterr()
    record = json.loads(out)
    assert (record["error"], record["exit_code"], left.value.code) == ("UsageError", 2, 2)
    assert err.startswith("usage: bigsap")
    assert err.rstrip().endswith(f"error: {record['message']}")


def test_verify_rejects_another_matrix_with_exit_5(costs, tmp_path, capsys):
    run("solve", costs, "-o", tmp_path / "r.npz")
    changed = COST.copy()
    changed[0, 3] = 0.5
    np.save(tmp_path / "changed.npy", changed)
    capsys.readouterr()
    assert run("verify", tmp_path / "changed.npy", tmp_path / "r.npz") == 5
    assert capsys.readouterr().err.startswith("bigsap: error: certificate failed: ")


def test_exit_codes_are_documented():
    parser = cli.build_parser()
    manual = (Path(__file__).parents[2] / "docs" / "command_line.md").read_text()
    for code in cli.ExitStatus:
        assert f"\n  {int(code)} " in parser.format_help()
        assert f"\n| {int(code)} |" in manual
    assert set(cli_common.STATUS_EXIT) == {str(status) for status in bigsap.Status}


def test_info_names_the_machine(capsys):
    assert run("info", "--json") == 0
    facts = json.loads(capsys.readouterr().out)
    assert facts["numpy"] == np.__version__
    assert 1 <= facts["threads"] <= os.cpu_count()
    assert facts["memory_bytes"] > 2**20
    extras = {"zarr", "http", "server", "gpu12", "gpu13", "cluster", "demo"}
    assert set(facts["extras"]) == extras
    assert run("info") == 0
    text = capsys.readouterr().out
    for label in ("bigsap", "numba", "cpu", "threads", "memory", "kernel cache", "extra zarr"):
        assert f"\n{label} " in f"\n{text}"


def test_warmup_names_what_it_compiles(capsys, monkeypatch):
    def warmup(report, processes):
        report("kernel one")
        report(f"kernel two by {processes}")
        return 2

    monkeypatch.setattr(bigsap, "warmup", warmup)
    assert run("warmup", "--processes", "3") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1:3] == ["  0:00  kernel one", "  0:00  kernel two by 3"]
    assert lines[3].startswith("2 kinds ready after")
    assert run("warmup", "--processes", "0") == 1
    assert "--processes must be at least 1" in capsys.readouterr().err


def test_warmup_where_nothing_can_be_kept(capsys, monkeypatch):
    monkeypatch.setattr(bigsap, "warmup", lambda report, processes: 2)
    monkeypatch.setattr(kernel_files, "kept_in", lambda: None)
    monkeypatch.setattr(kernel_files, "built", dict)
    assert run("warmup") == 1
    assert "set NUMBA_CACHE_DIR" in capsys.readouterr().err
    monkeypatch.setattr(kernel_files, "built", lambda: {"x86-64-v3": 300})
    assert run("warmup") == 0
    assert "None" not in capsys.readouterr().out


def test_rechunk_makes_a_store_that_solves_alike(costs, tmp_path, capsys):
    assert run("rechunk", costs, tmp_path / "c.zarr", "--rows", 2) == 0
    assert "wrote" in capsys.readouterr().out
    assert run("solve", tmp_path / "c.zarr", "--json") == 0
    assert json.loads(capsys.readouterr().out)["fun"] == 5.0
    assert run("rechunk", costs, tmp_path / "c.zarr") == 1


def test_module_and_entry_point_are_the_same_program(costs):
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "bigsap", "solve", costs, "--json"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["fun"] == 5.0
    assert done.stderr == ""  # no bar without a terminal


def test_reader_that_leaves_is_no_error(costs):
    done = subprocess.run(
        f"{sys.executable} -m bigsap info | true; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.strip() == "0"
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("found", "prices", "code", "said"),
    [
        ([0.0, 1.0, 2.0], None, 1, "must be the columns of 3 rows as integers"),
        ([0, 1], None, 1, "got int64 of shape (2,)"),
        ([["a"] * 3] * 3, None, 1, "a plan of shape (3, 3)"),
        ([0, 1, 2], [1.0, 2.0], 1, "must be 3 real numbers"),
        ([0, 1, 1], None, 5, "column 1"),
        ([0, 1, 2], [0, 0, 0], 8, ""),
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], None, 8, ""),
    ],
)
def test_a_file_that_is_no_assignment_is_bad_input(tmp_path, capsys, found, prices, code, said):
    np.save(tmp_path / "c.npy", [[9, 1, 1], [1, 9, 1], [1, 1, 9]])
    np.save(tmp_path / "found.npy", found)
    command = ["certify", tmp_path / "c.npy", tmp_path / "found.npy"]
    if prices is not None:
        np.save(tmp_path / "prices.npy", prices)
        command += ["--prices", tmp_path / "prices.npy"]
    assert run(*command) == code
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("maximize", [True, False])
def test_a_result_of_another_sense_is_not_judged(tmp_path, capsys, maximize):
    cost = np.random.default_rng(3).random((3, 4))
    np.save(tmp_path / "c.npy", cost)
    bigsap.solve(cost, maximize=maximize).save(tmp_path / "found.npz")
    flags = [["--maximize"], []]
    command = ["certify", tmp_path / "c.npy", tmp_path / "found.npz"]
    assert run(*command, *flags[maximize]) == 1
    assert "set maximize to the result's" in capsys.readouterr().err
    assert run(*command, *flags[not maximize]) == 0
    request = {"options": {"maximize": not maximize}}
    with pytest.raises(bigsap.OptionError, match="set maximize"):
        assignment_of(request, bigsap.Result.load(tmp_path / "found.npz"))


@pytest.mark.parametrize("asked", ["flag", "request"])
def test_an_upper_bound_is_rounded_up_whoever_asks_for_the_largest_cost(tmp_path, capsys, asked):
    cost = [[1 / 3, 2 / 3], [2 / 3, 1 / 3]]
    np.save(tmp_path / "c.npy", cost)
    np.save(tmp_path / "found.npy", [0, 1])
    request = {"cost": {"type": "npy", "path": "c.npy"}, "options": {"maximize": True}}
    (tmp_path / "job.json").write_text(json.dumps(request))
    costs, flags = ("c.npy", ["--maximize"]) if asked == "flag" else ("job.json", [])
    assert run("certify", tmp_path / costs, tmp_path / "found.npy", *flags) == 8
    shown = dict(re.split(r"  +", line) for line in capsys.readouterr().out.splitlines())
    assert Fraction(shown["bound"]) >= 2 * Fraction(2 / 3)


@pytest.mark.parametrize("demand", [1, 2])
def test_a_result_of_rows_that_take_several_columns_is_no_assignment(tmp_path, capsys, demand):
    cost = np.random.default_rng(3).random((3, 8))
    np.save(tmp_path / "c.npy", cost)
    bigsap.solve(cost, demand=demand).save(tmp_path / "found.npz")
    assert run("certify", tmp_path / "c.npy", tmp_path / "found.npz") == 1
    assert "rows that take several columns cannot be proved here" in capsys.readouterr().err
