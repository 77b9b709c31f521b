"""The benchmark harness itself, at sizes that take no time: counts, tables, resuming."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest

import bigsap
from bench import machine, memory, report, run, table1, versus
from bench.costs import matrix, total
from bench.peers import PEERS, find
from bench.processes import Process
from bench.records import Log, StaleError
from bench.settings import INTEGER_CLASSES, PAPER_CLASSES, QUICK, Settings
from instances import CLASSES

N = 70  # larger than what solvers are warmed up with
HEADER = {"scale": "full", "code": "abc"}


@pytest.fixture
def settings(tmp_path):
    return Settings(
        **{
            **QUICK,
            "out": tmp_path,
            "classes": ("random", "int1n"),
            "table1_sizes": (60,),
            "peers_size": N,
            "threads_size": 60,
            "bandwidth_size": 60,
            "memory_size": 60,
            "outofcore_instances": (("random", 80),),
            "startup_seeds": 1,
            "demo_pixels": 60,
        }
    )


def cells(text: str) -> dict[str, list[str]]:
    """The rows of Markdown tables by their first cell."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {row[0]: row[1:] for row in rows}


# -- costs ----------------------------------------------------------------------------


@pytest.mark.parametrize("cls", PAPER_CLASSES + INTEGER_CLASSES)
def test_matrices_are_those_of_the_classes(cls):
    made = matrix(cls, 66, 3)
    np.testing.assert_array_equal(made, CLASSES[cls](66, 3) if made.dtype.kind == "f" else made)
    assert made.dtype == (np.int32 if cls in INTEGER_CLASSES else np.float64)
    assert made.flags.c_contiguous
    if cls in INTEGER_CLASSES:
        top = {"int0.1n": 6, "int1n": 66, "int10n": 660, "int1000n": 66_000}[cls]
        assert made.min() == 0 or top > 1000
        assert 0.99 * top <= made.max() <= top


def test_total_refuses_what_is_no_permutation():
    cost = np.arange(9.0).reshape(3, 3)
    assert total(cost, np.array([2, 0, 1])) == 2 + 3 + 7
    assert total(cost, np.array([0, 0, 1])) is None
    assert total(cost, np.array([0, 1])) is None
    assert total(cost, np.array([-1, 0, 1])) is None


# -- the log --------------------------------------------------------------------------


def test_log_is_continued(tmp_path):
    path = tmp_path / "new" / "runs.jsonl"
    log = Log(path, HEADER)
    log.add("e", "random", 60, 0, "s", 1, seconds=0.5)
    again = Log(path, HEADER)
    assert again.has("e", "random", 60, 0, "s", 1)
    assert not again.has("e", "random", 60, 1, "s", 1)
    assert not again.has("e", "random", 60, 0, "s", 2)
    assert again.values("seconds", experiment="e") == [0.5]


def test_log_drops_a_line_that_was_cut_off(tmp_path):
    path = tmp_path / "runs.jsonl"
    Log(path, HEADER).add("e", "random", 60, 0, "s", 1, seconds=0.5)
    with path.open("a") as file:
        file.write('{"experiment": "e", "cls": "ra')
    log = Log(path, HEADER)
    log.add("e", "random", 60, 1, "s", 1, seconds=0.7)
    assert Log(path, HEADER).values("seconds", experiment="e") == [0.5, 0.7]


def test_log_of_other_code_is_refused(tmp_path):
    path = tmp_path / "runs.jsonl"
    Log(path, HEADER)
    with pytest.raises(StaleError, match="another code; --fresh starts over"):
        Log(path, {**HEADER, "code": "def"})
    assert Log.read(path).header == HEADER
    path.write_text('{"experiment": "e"}\n')
    with pytest.raises(StaleError, match="not a log"):
        Log(path, HEADER)


# -- table 1 --------------------------------------------------------------------------


def test_rows_scanned_are_counted_and_not_counted_again(settings, monkeypatch):
    log = Log(settings.out / "runs.jsonl", HEADER)
    table1.run(settings, log)
    expected = [
        bigsap.solve(matrix("random", 60, seed), method="ssp").stats["rows_scanned"]
        for seed in (0, 1)
    ]
    assert log.values("rows_scanned", experiment="table1", cls="random", n=60) == expected
    assert log.distinct("cls", experiment="table1") == ["random"]  # the paper has no integers
    shown = cells(table1.render(settings, log))["random"]
    assert shown[:4] == [
        "60", "2", f"{sum(expected) / 2:,.0f}", f"{min(expected):,} to {max(expected):,}",
    ]  # fmt: skip
    assert shown[5:] == ["-", "-", "-"]

    monkeypatch.setattr(table1, "timed", None)
    table1.run(settings, log)


def test_table1_compares_with_the_paper(settings, tmp_path):
    log = Log(tmp_path / "runs.jsonl", HEADER)
    for cls, counts in {"random": (13_000, 13_200), "rank1": (3_700, 3_700)}.items():
        for seed, count in enumerate(counts):
            log.add(
                "table1", cls, 1000, seed, table1.SOLVER, 1, rows_scanned=count, phases=seed + 1
            )
    shown = cells(table1.render(settings, log))
    assert shown["random"][2:] == [
        "13,100", "13,000 to 13,200", "1.5", "12,824", "1.02", "met",
    ]  # fmt: skip
    assert shown["rank1"][-2:] == ["1.06", "MISSED"]


# -- against the others ---------------------------------------------------------------


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("matrices")
    for name, n in {"small": 20, "large": N}.items():
        np.save(folder / f"{name}.npy", matrix("random", n, 0))
    return folder / "large.npy", folder / "small.npy"


def test_a_process_that_takes_too_long_is_killed_and_started_again(saved):
    large, small = saved
    with Process("bench.fakes:slow", 1) as process:
        assert process.run(large, 0.2, small) == {"timeout": 0.2}
        answer = process.run(small, 30.0, small)
    assert answer["cost"] == np.trace(np.load(small))


def test_failures_are_told(saved):
    with Process("bench.fakes:failing", 1) as process:
        assert process.run(saved[0], 30.0) == {"failed": "ValueError: cannot"}
    with Process("bench.fakes:crashing", 1) as process:
        assert process.run(saved[0], 30.0) == {"failed": "exit code 3"}
    with Process("no solver", 1) as process:
        assert "no solver 'no solver'" in process.run(saved[0], 30.0)["failed"]


@pytest.mark.parametrize("name", [name for name, peer in PEERS.items() if peer.installed()])
@pytest.mark.parametrize("cls", ["random", "int1n"])
def test_installed_peers_find_the_optimum(name, cls, tmp_path):
    cost = matrix(cls, N, 1)
    np.save(tmp_path / "cost.npy", cost)
    with Process(name, 1) as process:
        answer = process.run(tmp_path / "cost.npy", 60.0)
    fun = bigsap.solve(cost, method="ssp").fun
    assert answer["cost"] == pytest.approx(fun, rel=1e-12, abs=answer["error_bound"])


def test_contest(settings):
    peers = ("bench.fakes:identity", "bench.fakes:slow", "bench.fakes:repeated")
    settings = replace(settings, classes=("random",), peers=peers, limit=0.5, peers_seeds=2)
    log = Log(settings.out / "runs.jsonl", HEADER)
    versus.run(settings, log)
    fun = bigsap.solve(matrix("random", N, 0)).fun
    record = log.get("peers", "random", N, 0, "bigsap ssp", 1)
    assert record["cost"] == pytest.approx(fun, rel=1e-14)
    assert len(record["runs"]) == 2
    assert min(record["runs"]) == record["seconds"] > 0
    # A solver that was stopped on the first seed is left out of the second.
    assert log.has("peers", "random", N, 0, "bench.fakes:slow", 1)
    assert not log.has("peers", "random", N, 1, "bench.fakes:slow", 1)
    assert log.has("peers", "random", N, 1, "bench.fakes:identity", 1)
    shown = versus.render(settings, log)
    identity, repeated, slow = cells(shown.split("Seconds as")[0])["random"][1:4]
    assert (identity, repeated) == ("WRONG", "WRONG")
    assert slow == ">0"
    scanned = record["rows_scanned"], log.values("rows_scanned", solver="bigsap ssp", seed=1)[0]
    per_row, _, chosen, proof = cells(shown.split("Counts")[1])["random"]
    assert chosen == "-"
    assert float(per_row) == pytest.approx(sum(scanned) / 2 / N, abs=0.06)
    assert float(proof) > 0
    count = len(log.records)
    versus.run(settings, log)
    assert len(log.records) == count
    assert not list(settings.out.glob("*/*.npy"))  # matrices are gone


def test_ratios(settings, tmp_path):
    log = Log(tmp_path / "runs.jsonl", HEADER)

    def add(solver, *seconds, cost=1.0):
        for seed, s in enumerate(seconds):
            log.add("peers", "random", 4000, seed, solver, 1, seconds=s, cost=cost)

    add("bigsap ssp", 0.5, 0.6, 2.0)
    add("scipy", 5.0)
    add("lapx lapjvr", 0.1, 0.1, 0.1, cost=1.5)  # fastest, but wrong
    add("A1015 C++", 1.5, 1.2, 1.0, cost=1.0 + 1e-13)
    add("POT emd", 1.0, 1.0, 0.9)
    times, ratios = re.split("Seconds as|Counts", versus.render(settings, log))[:2]
    assert cells(times)["random"] == ["0.600", "1.20", "1.00", "WRONG", "5.00*"]
    assert cells(ratios)["random"] == ["POT emd", "0.60", "0.50"]


def test_patience():
    settings = Settings(out=None, limit=60, patience=6, floor=8)
    assert settings.limit_of(None) == 60
    assert settings.limit_of(0.1) == 8
    assert settings.limit_of(2.0) == 12
    assert settings.limit_of(20.0) == 60
    assert replace(settings, patience=math.inf).limit_of(0.1) == 60


def test_every_peer_is_in_the_requirements():
    listed = re.findall(
        r"^([\w-]+)>=", (machine.ROOT / "tests/bench/requirements.txt").read_text(), re.M
    )
    assert {peer.distribution for peer in PEERS.values()} == set(listed)
    with pytest.raises(KeyError, match="no solver 'bigsap'"):
        find("bigsap")


# -- the whole ------------------------------------------------------------------------


def test_memory_of_a_solve_is_seen(settings):
    """A hundred rows kept would be seen; so would the parent's memory, counted by mistake."""
    base = memory._child(1000, 0, "base")["peak_bytes"]
    traced = memory._child(1000, 0, "solve", "traced")["traced_bytes"]
    assert 8_000_000 < base < 450_000_000
    assert 5 < traced / 8000 < 100


def test_everything_small(settings, capsys, monkeypatch):
    monkeypatch.setattr(machine, "code_digest", lambda: "abc")
    settings = replace(settings, peers=("scipy",), peers_seeds=1)
    experiments = [name for name in run.EXPERIMENTS if name != "demo"]
    assert run.main(["--only", *experiments, "--stamp"], settings) == 0
    text = (settings.out / "RESULTS.md").read_text()
    assert text in capsys.readouterr().out
    for name in experiments:
        assert f"## {run.EXPERIMENTS[name].TITLE}" in text
    assert "NO" not in re.findall(r"\b[A-Z]+\b", text)  # same scans, same answer
    assert "| WRONG" not in text
    assert re.search(r"^- date: \d{4}-\d\d-\d\d$", text, re.M)
    assert "- noise: " in text
    assert str(settings.out) not in text

    lines = (settings.out / "runs.jsonl").read_text().splitlines()
    assert run.main(["--only", *experiments], settings) == 0
    added = (settings.out / "runs.jsonl").read_text().splitlines()[len(lines) :]
    assert {json.loads(line)["experiment"] for line in added} == {"noise"}
    assert "- date: " not in (settings.out / "RESULTS.md").read_text()


def test_command_line(tmp_path, capsys, monkeypatch):
    assert run.main(["--report", "--out", str(tmp_path)]) == 1
    assert "nothing was measured yet" in capsys.readouterr().err
    monkeypatch.setattr(machine, "code_digest", lambda: "def")
    for module in run.EXPERIMENTS.values():
        monkeypatch.setattr(module, "run", lambda settings, log: None)
    assert run.main(["--quick", "--out", str(tmp_path), "--method", "ssp"]) == 0
    (tmp_path / "runs.jsonl").write_text(json.dumps({"experiment": "header", **HEADER}) + "\n")
    assert run.main(["--quick", "--out", str(tmp_path)]) == 1
    assert "--fresh starts over" in capsys.readouterr().err
    assert run.main(["--quick", "--out", str(tmp_path), "--fresh"]) == 0
    with pytest.raises(SystemExit):
        run.main(["--only", "nonsense"])


def test_numbers():
    assert report.seconds_text(0.01234) == "0.0123"
    assert report.seconds_text(0.5) == "0.500"
    assert report.seconds_text(12.345) == "12.35"
    assert report.verdict(1.5, 1.5, at_most=False) == "met"
    assert report.verdict(1.4, 1.5, at_most=False) == "MISSED"
    assert report.verdict(1.4, 1.5, at_most=False, judged=False) == "-"
