"""The benchmark harness itself, at sizes that take no time: counts, tables, resuming."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import bigsap
from benchmarks import __main__ as cli_bench
from benchmarks import (
    cached,
    curve,
    decay,
    growth,
    machine,
    measure,
    paper,
    paths,
    peak_memory,
    pictures,
    report,
    run,
    small,
    solver_child,
    table1,
    trees,
    versus,
)
from benchmarks.bench_settings import (
    ALL_CLASSES,
    INTEGER_CLASSES,
    MORE_CLASSES,
    PAPER_CLASSES,
    QUICK,
    BenchSettings,
    Round,
)
from benchmarks.costs import matrix, total
from benchmarks.instances import CLASSES, MORE
from benchmarks.peers import PEERS, find
from benchmarks.processes import Process
from benchmarks.records import Log, StaleError

ROOT = Path(__file__).parent.parent
N = 70  # larger than what solvers are warmed up with
HEADER = {"scale": "full", "code": "abc"}


@pytest.fixture(autouse=True)
def _importable(monkeypatch):
    """The solvers that misbehave, in the processes too."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def _no_collections(monkeypatch):
    """Before each timed solve: a tenth of a second among the objects of a test session."""
    monkeypatch.setattr(measure.gc, "collect", lambda: 0)


@pytest.fixture
def settings(tmp_path):
    return BenchSettings(
        **{
            **QUICK,
            "out": tmp_path,
            "classes": ("random", "int1n"),
            "table1_sizes": (60,),
            "plain_size": 60,
            "paths_size": 30,
            "decay_sizes": (40,),
            "trees_sizes": (40,),
            "cached_sizes": (50,),
            "methods": ("ssp",),
            "rounds": (Round(sizes=(N,)),),
            "curve_sizes": (90,),
            "threads_size": 60,
            "bandwidth_sizes": (60,),
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


@pytest.mark.parametrize("cls", MORE_CLASSES)
def test_what_users_bring_besides(cls):
    made = matrix(cls, 66, 3)
    assert made.shape == (66, 66)
    assert made.dtype == np.float64
    np.testing.assert_array_equal(made, matrix(cls, 66, 3))
    assert not np.array_equal(made, matrix(cls, 66, 4))
    assert np.isfinite(made).all() or cls == "half forbidden"
    assert bigsap.solve(made).status == "optimal"


def test_every_class_has_costs():
    assert set(ALL_CLASSES) == {*CLASSES, *MORE}
    assert np.unique(matrix("duplicates", 100, 0)).size < 110
    assert np.isinf(matrix("half forbidden", 100, 0)).mean() == pytest.approx(0.5, abs=0.02)
    assert matrix("offset 1e9", 20, 0).min() >= 1e9


def test_an_offset_hides_no_wrong_answer(tmp_path):
    """1e9 n is the cost of all assignments: what they differ by decides."""
    cost = matrix("offset 1e9", 40, 0)
    best = bigsap.solve(cost).col4row
    worse = best.copy()
    worse[:2] = best[1::-1]
    log = Log(tmp_path / "runs.jsonl", HEADER)
    for name, columns in {"A1015 C++": worse, "scipy": best}.items():
        found = solver_child.answer(find(name), lambda cost, c=columns: (c, {}), cost, cost)
        log.add("peers", "offset 1e9", 40, 0, name, 1, **found)
    assert [versus.wrong(log, record) for record in log.of(experiment="peers")] == [True, False]


def test_who_knows_no_forbidden_pairs_gets_a_large_cost(settings):
    cost = matrix("half forbidden", 30, 0)
    np.testing.assert_array_equal(find("scipy").prepared(cost), cost)
    given = find("lapx lapjv").prepared(cost)
    assert np.isfinite(given).all()
    np.testing.assert_array_equal(given[np.isfinite(cost)], cost[np.isfinite(cost)])
    assert bigsap.solve(given).fun == pytest.approx(bigsap.solve(cost).fun, rel=1e-12)


def test_small_matrices(settings):
    log = Log(settings.out / "runs.jsonl", HEADER)
    log.add("small", "one", 200, 0, "bigsap", 1, seconds=7e-4)
    log.add("small", "one", 200, 0, "scipy", 1, seconds=1.1e-3)
    small.run(settings, log)
    assert log.distinct("n", experiment="small", cls="one") == [200, 3, 30]
    shown = small.render(settings, log).splitlines()
    assert shown[4].endswith("| 200 | 700 | 1,100 | - | 0.64 | 0.7 | met |")
    assert shown[5].startswith("| 10 matrices | 10 |")


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
    here = {"experiment": "table1", "cls": "random", "n": 60}
    for solver, epsilon in ((table1.PLAIN, False), (table1.SOLVER, True)):
        expected = [
            bigsap.solve(matrix("random", 60, seed), method="ssp", epsilon=epsilon).stats["rows_scanned"]
            for seed in (0, 1)
        ]
        assert log.values("rows_scanned", **here, solver=solver) == expected
        assert table1.curves(log, solver) == {"random": {60: sum(expected) / 2}}
    assert log.distinct("cls", experiment="table1") == ["random"]  # the paper has no integers
    shown = cells(table1.render(settings, log))["random"]
    assert shown[:4] == ["60", "2", f"{sum(expected) / 2:,.0f}", f"{min(expected):,} to {max(expected):,}"]
    assert shown[5:] == ["-", "-", "-"]

    monkeypatch.setattr(table1, "timed", None)
    table1.run(settings, log)


def test_table1_compares_with_the_paper(settings, tmp_path):
    log = Log(tmp_path / "runs.jsonl", HEADER)
    for cls, counts in {"random": (13_000, 13_200), "rank1": (3_700, 3_700)}.items():
        for seed, count in enumerate(counts):
            log.add("table1", cls, 1000, seed, table1.SOLVER, 1, rows_scanned=count, phases=seed + 1)
    shown = cells(table1.render(settings, log))
    assert shown["random"][2:] == ["13,100", "13,000 to 13,200", "1.5", "12,824", "1.02", "met"]
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
    with Process("bench_fakes:slow", 1) as process:
        assert process.run(large, 0.2, small) == {"timeout": 0.2}
        answer = process.run(small, 30.0, small)
    assert answer["cost"] == np.trace(np.load(small))


def test_failures_are_told(saved):
    with Process("bench_fakes:failing", 1) as process:
        assert process.run(saved[0], 30.0) == {"failed": "ValueError: cannot"}
    with Process("bench_fakes:crashing", 1) as process:
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
    peers = ("bench_fakes:identity", "bench_fakes:slow", "bench_fakes:repeated")
    settings = replace(
        settings,
        classes=("random",),
        peers=peers,
        limit=0.5,
        methods=("ssp",),
        rounds=(Round(sizes=(N,), seeds=2),),
    )
    log = Log(settings.out / "runs.jsonl", HEADER)
    versus.run(settings, log)
    fun = bigsap.solve(matrix("random", N, 0)).fun
    record = log.get("peers", "random", N, 0, "bigsap ssp", 1)
    assert record["cost"] == pytest.approx(fun, rel=1e-14)
    assert len(record["runs"]) == 2
    assert min(record["runs"]) == record["seconds"] > 0
    # A solver that was stopped on the first seed is left out of the second.
    assert log.has("peers", "random", N, 0, "bench_fakes:slow", 1)
    assert not log.has("peers", "random", N, 1, "bench_fakes:slow", 1)
    assert log.has("peers", "random", N, 1, "bench_fakes:identity", 1)
    shown = versus.render(settings, log)
    identity, repeated, slow = cells(shown.split("Seconds as")[0])["random"][1:4]
    assert (identity, repeated) == ("WRONG", "WRONG")
    assert slow == ">0"
    scanned = record["rows_scanned"], log.values("rows_scanned", solver="bigsap ssp", seed=1)[0]
    per_row, evaluated, _, chosen, proof = cells(shown.split("Counts")[1])["random"]
    assert (evaluated, chosen) == ("1.0", "-")
    assert float(per_row) == pytest.approx(sum(scanned) / 2 / N, abs=0.06)
    assert float(proof) > 0
    count = len(log.records)
    versus.run(settings, log)
    assert len(log.records) == count
    assert not list(settings.out.glob("*/*.npy"))  # matrices are gone


def test_pot_without_a_matrix_runs_beside_the_curve(settings):
    pytest.importorskip("ot", reason="POT, of tests/bench/peers.txt")
    settings = replace(
        settings, classes=("geometric", "random"), curve_sizes=(40, 80), lazy_sizes=(80,), peers=("POT emd",)
    )
    log = Log(settings.out / "runs.jsonl", HEADER)
    threads = max(settings.thread_counts)
    log.add("curve", "geometric", 40, 0, curve.SOLVER, threads, timeout=600.0)
    curve.run(settings, log)
    assert [(r["n"], r["solver"]) for r in log.of(experiment="curve")] == [
        (40, curve.SOLVER),
        (80, curve.SOLVER),
        (80, curve.LAZY),
    ]
    ours, theirs = log.values("fun", n=80)
    assert theirs == pytest.approx(ours, rel=1e-12)
    assert "| geometric | 80 |" in curve.render(settings, log).split(curve.LAZY)[2]
    assert curve.render(settings, log).count("| same |") == 1
    curve.run(settings, log)
    assert len(log.records) == 3
    log.add("curve", "disjoint", 80, 0, curve.SOLVER, 1, timeout=600.0)
    log.add("curve", "disjoint", 80, 0, curve.LAZY, 1, timeout=4.0)
    assert "| disjoint | 80 | - | >4 | - | - |" in curve.render(settings, log)


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


def test_threads_beside_each_other(settings):
    """Who knows one thread runs with one, and is compared with whatever the others use."""
    settings = replace(
        settings,
        classes=("random",),
        methods=("ssp",),
        peers=("bench_fakes:exact",),
        peers_threads=(1, 2),
        rounds=(Round(sizes=(N,)), Round(sizes=(40,), peers=False)),
    )
    assert versus.entrants(settings) == [("bigsap ssp", 1), ("bigsap ssp", 2), ("bench_fakes:exact", 1)]
    log = Log(settings.out / "runs.jsonl", HEADER)
    versus.run(settings, log)
    ran = {(r["n"], r["solver"], r["threads"]) for r in log.of(experiment="peers")}
    assert ran - {(N, versus.CERTIFIED, 2), (40, versus.CERTIFIED, 2)} == {
        (N, "bigsap ssp", 1),
        (N, "bigsap ssp", 2),
        (N, "bench_fakes:exact", 1),
        (40, "bigsap ssp", 1),
        (40, "bigsap ssp", 2),
    }
    shown = versus.render(settings, log)
    heads = re.findall("^### n = .*", shown, re.M)
    assert heads == ["### n = 70, 1 thread", "### n = 70, 2 threads"]
    assert "With one thread: bench_fakes:exact." in shown
    two = cells(shown.split("2 threads")[1].split("Counts")[0].split("Seconds as")[0])
    assert two["class"] == ["bigsap ssp", "bench_fakes:exact"]
    assert float(two["random"][1]) > 0
    counts = [part.split("Largest")[0] for part in shown.split("Counts")[1:]]
    proofs = [cells(part)["random"][-1] for part in counts]
    assert len(proofs) == 2
    assert all(float(seconds) > 0 for seconds in proofs)
    by_size = cells(shown.split("paper's Table 2")[1])
    assert {"40", "70"} <= set(by_size)


def test_who_has_lost_is_left_out(tmp_path):
    log = Log(tmp_path / "runs.jsonl", HEADER)
    for solver, seconds in (("bigsap ssp", 1.0), ("slow", 3.5), ("A1015 C++", 4.0)):
        log.add("peers", "random", 1000, 0, solver, 1, seconds=seconds, cost=1.0)
    log.add("peers", "random", 1000, 0, "stopped", 1, timeout=8.0)

    def lost(n, seed, name):
        return versus._lost(log, "random", n, seed, name, 1)

    assert lost(2000, 0, "slow")
    assert lost(1000, 1, "slow")
    assert not lost(1000, 0, "slow")
    assert not lost(500, 0, "slow")
    assert not lost(2000, 0, "A1015 C++")
    assert lost(1000, 1, "A1015 C++")
    assert lost(2000, 0, "stopped")
    assert not lost(2000, 0, "bigsap ssp")
    assert not lost(2000, 0, "unseen")


def test_patience():
    settings = BenchSettings(out=Path(), limit=60, patience=6, floor=8)
    assert settings.limit_of(None) == 60
    assert settings.limit_of(0.1) == 8
    assert settings.limit_of(2.0) == 12
    assert settings.limit_of(20.0) == 60
    assert replace(settings, patience=math.inf).limit_of(0.1) == 60


def test_every_peer_is_in_the_requirements():
    listed = re.findall(r"^([\w-]+)>=", (ROOT / "tests/bench/peers.txt").read_text(), re.M)
    assert {peer.distribution for peer in PEERS.values()} == set(listed)
    with pytest.raises(KeyError, match="no solver 'bigsap'"):
        find("bigsap")


# -- the whole ------------------------------------------------------------------------


def test_everything_small(settings, monkeypatch, capsys):
    monkeypatch.setattr(machine, "code_digest", lambda: "abc")
    monkeypatch.setattr(machine, "_SORTED", 1000)
    settings = replace(settings, peers=("scipy",), classes=("disjoint", "int1n"), memory_size=1000)
    experiments = [name for name in run.EXPERIMENTS if name != "demo"]
    text = run.run(settings, experiments, stamp=True)
    assert (settings.out / "RESULTS.md").read_text() == text
    for name in experiments:
        assert f"## {run.EXPERIMENTS[name].TITLE}" in text
    assert "NO" not in re.findall(r"\b[A-Z]+\b", text)  # same scans, same answer
    assert "| WRONG" not in text
    assert re.search(r"^- date: \d{4}-\d\d-\d\d$", text, re.M)
    assert "- noise: " in text
    assert str(settings.out) not in text
    drawn = re.findall(r"\]\((\w+\.svg)\)", text)
    assert drawn == [f"figure{k}.svg" for k in (1, 3, 4, 5, 6)]
    for name in drawn:
        assert (settings.out / name).read_text().count("<path") > 5

    head, folder = settings.out / "head.md", settings.out / "published"
    head.write_text("# Mine\n")
    published = run.publish(settings, head, folder, stamp=True).read_text()
    for name in experiments:
        assert f"## {run.EXPERIMENTS[name].TITLE}" in published
    assert len(published.splitlines()) < len(text.splitlines())
    assert (folder / "runs.jsonl").read_text() == (settings.out / "runs.jsonl").read_text()

    # A hundred rows kept would be seen; so would the parent's memory, counted by mistake.
    (memory,) = Log.read(settings.out / "runs.jsonl").of(
        experiment=peak_memory.NAME, solver=peak_memory.SOLVE
    )
    assert 8_000_000 < memory["base_bytes"] < 450_000_000
    assert 5 < memory["array_bytes"] / 8000 < 100

    lines = (settings.out / "runs.jsonl").read_text().splitlines()
    monkeypatch.setattr(pictures, "draw", lambda log, folder: {})
    assert "- date: " not in run.run(settings, experiments)
    added = (settings.out / "runs.jsonl").read_text().splitlines()[len(lines) :]
    assert {json.loads(line)["experiment"] for line in added} == {"noise"}
    assert "==> table1" in capsys.readouterr().out


def test_growth():
    found = growth.fit({n: 3.0 * n**1.5 for n in (10, 100, 1000)})
    assert found == pytest.approx((3.0, 1.5, 0.0), rel=1e-4, abs=1e-4)
    assert growth.fit({10: 1.0, 20: 2.0}) is None
    shown = cells(growth.by_size({"a": {1000: 2.0, 10: 1.0}, "b": {10: 4.0}}, str))
    assert shown["10"] == ["1.0", "4.0"]
    assert shown["1,000"] == ["2.0", "-"]


def test_the_papers_tables():
    """Spot checks of the columns: first, last, and the fits the paper prints below them."""
    assert paper.TABLE1[1000]["random"] == 12_824
    assert paper.TABLE1[32000]["rank8"] == 1_548_766
    assert paper.TABLE1_PLAIN[1000]["rank1"] == 1000 * 1001 // 2
    assert paper.TABLE2[128000]["disjoint"] == 764.252
    slopes = {"random": 1.515, "geometric": 1.494, "disjoint": 2.003, "rank2": 2.001, "rank8": 1.84}
    for cls, slope in slopes.items():
        found = growth.fit({n: row[cls] for n, row in paper.TABLE1_PLAIN.items()})
        assert found[1] == pytest.approx(slope, abs=0.01)


def test_augmentations_are_traced():
    cost = matrix("random", 40, 2)
    done = bigsap.solve(cost, method="ssp", epsilon=False)
    found = paths.trace(cost, epsilon=False)
    assert found["total"] == done.stats["rows_scanned"]
    assert sum(scans for *_, scans in found["scans"]) == found["total"]
    steps = [(phase, before) for phase, before, _ in found["paths"]]
    assert len(steps) == len(set(steps))
    assert all(length >= 1 for *_, length in found["paths"])
    in_phases = paths.trace(cost, epsilon=True)
    assert in_phases["epsilons"][-1] == 0
    assert len(in_phases["epsilons"]) > 1


def test_prices_approach_the_final_ones():
    steps = decay.distances(matrix("disjoint", 120, 0))
    assert len(steps) >= 2
    assert steps[0][0] > steps[-1][0] > 0  # epsilon falls
    assert steps[0][1] > steps[-1][1] >= 0  # and so does the distance


def test_the_papers_counts_beside_ours(settings, tmp_path):
    log = Log(tmp_path / "runs.jsonl", HEADER)
    trees.run(settings, log)
    found = {(r["cls"], r["solver"]): r for r in log.of(experiment="trees")}
    assert len(found) == 7  # the classical method not where dual updates are many
    assert found["int0.1n", "tree"]["clock_steps"] <= found["int10n", "tree"]["clock_steps"]
    text = trees.render(settings, log)
    assert "**simulated**" in text
    rows = cells(text)
    assert rows["int1n tree"][3:5] == [str(found["int1n", "tree"]["stages"]), "79"]
    assert rows["16"][-1] == "30.2"
    alone, many = trees.simulated_seconds(40_000, 1), trees.simulated_seconds(40_000, 16)
    assert 0 < many < alone  # reading is shared, trees are not
    # Messages take longer than a small matrix's reading.
    assert trees.simulated_seconds(2_000, 16) > trees.simulated_seconds(2_000, 1)


def test_caches_of_all_shares(settings, tmp_path):
    log = Log(tmp_path / "runs.jsonl", HEADER)
    settings = replace(settings, classes=("disjoint", "rank2"), cached_seeds=1)
    cached.run(settings, log)
    for cls in ("disjoint", "rank2"):
        rows = {r["solver"]: r["rows_evaluated"] for r in log.of(experiment="cached", cls=cls, threads=2)}
        assert list(rows) == ["all rows", "1/4 of the rows", "1/16 of the rows", "one row"]
        assert rows["all rows"] == 50 < rows["1/4 of the rows"] < rows["one row"]
    assert "| NO |" not in cached.render(settings, log)


def test_no_pictures_without_matplotlib(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(pictures.importlib.util, "find_spec", lambda name: None)
    assert pictures.draw(Log(tmp_path / "runs.jsonl", HEADER), tmp_path) == {}
    assert "they need matplotlib" in capsys.readouterr().out


# -- the command line -----------------------------------------------------------------


def arguments(*argv):
    return cli_bench.parser().parse_args(argv)


def test_sizes():
    assert cli_bench.sizes_of(["1000..4000"]) == (1000, 1414, 2000, 2828, 4000)
    assert cli_bench.sizes_of(["300", "100..150", "300"]) == (100, 141, 300)
    for bad in ("x", "1", "5..3", "3.."):
        with pytest.raises(bigsap.OptionError, match="--sizes"):
            cli_bench.sizes_of([bad])


def test_shares():
    assert cli_bench.shares_of(["1/1", "1/4", "row", "1/16", "1/4"]) == (1, 4, 0, 16)
    for bad in ("2/3", "1/0", "x", "1/"):
        with pytest.raises(bigsap.OptionError, match="--cache"):
            cli_bench.shares_of([bad])


def test_settings_of_arguments(tmp_path):
    usual = cli_bench.settings_of(arguments())
    assert usual.scale == "full"
    assert usual.peers == tuple(PEERS)
    assert usual.out == Path("bigsap-bench/full").absolute()
    chosen = cli_bench.settings_of(
        arguments(
            "--sizes",
            "100..200",
            "--classes",
            "random",
            "int1n",
            "--methods",
            "ssp",
            "--threads",
            "1",
            "2",
            "--cache",
            "1/4",
            "row",
            "--devices",
            "cpu",
            "cuda",
            "--peers",
            "--seeds",
            "2",
            "--out",
            str(tmp_path),
        )
    )
    assert (chosen.scale, chosen.out) == ("chosen", tmp_path)
    assert chosen.table1_sizes == chosen.curve_sizes == chosen.cached_sizes == (100, 141, 200)
    assert chosen.rounds == (Round(sizes=(100, 141, 200), seeds=2),)
    assert (chosen.classes, chosen.methods) == (("random", "int1n"), ("ssp",))
    assert (chosen.peers_threads, chosen.shares, chosen.peers) == ((1, 2), (4, 0), ())
    assert versus.solvers(chosen) == ["bigsap ssp", "bigsap ssp cuda"]
    assert chosen.table1_seeds == 2
    fewer = cli_bench.settings_of(arguments("--seeds", "1"))
    assert [part.sizes for part in fewer.rounds] == [part.sizes for part in usual.rounds]
    assert {part.seeds for part in fewer.rounds} == {1}
    quick = cli_bench.settings_of(arguments("--quick"))
    assert (quick.scale, quick.classes) == ("quick", QUICK["classes"])


@pytest.mark.parametrize(
    ("argv", "text"),
    [
        (["--classes", "easy"], "--classes: no 'easy'; there are sanity"),
        (["--methods", "magic"], "--methods: no 'magic'"),
        (["--peers", "magic"], "--peers: no solver 'magic'"),
        (["--only", "nonsense"], "--only: no 'nonsense'; there are table1"),
        (["--threads", "0"], "--threads must be at least 1"),
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--limit", "-1"], "--limit must be above 0"),
        (["--patience", "nan"], "--patience must be above 0"),
    ],
)
def test_bad_arguments(argv, text, tmp_path, capsys):
    assert cli_bench.main(["--out", str(tmp_path), *argv]) == 1
    assert text in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_command_line(tmp_path, capsys, monkeypatch):
    out = ["--out", str(tmp_path)]
    assert cli_bench.main([*out, "--report"]) == 1
    assert "nothing was measured yet" in capsys.readouterr().err
    assert cli_bench.main([*out, "--only", "list"]) == 0
    assert capsys.readouterr().out.split()[0] == "table1"
    monkeypatch.setattr(machine, "code_digest", lambda: "def")
    monkeypatch.setattr(machine, "probe", lambda log: None)
    for module in run.EXPERIMENTS.values():
        monkeypatch.setattr(module, "run", lambda settings, log: None)
    assert cli_bench.main([*out, "--quick", "--methods", "ssp"]) == 0
    assert f"wrote {tmp_path / 'RESULTS.md'}" in capsys.readouterr().out
    (tmp_path / "runs.jsonl").write_text(json.dumps({"experiment": "header", **HEADER}) + "\n")
    assert cli_bench.main([*out, "--quick"]) == 1
    assert "--fresh starts over" in capsys.readouterr().err
    assert cli_bench.main([*out, "--quick", "--fresh"]) == 0


def test_published_with_a_head(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(machine, "probe", lambda log: None)
    for module in run.EXPERIMENTS.values():
        monkeypatch.setattr(module, "run", lambda settings, log: None)
    out = ["--quick", "--out", str(tmp_path / "out"), "--to", str(tmp_path / "to")]
    assert cli_bench.main(out) == 1
    assert "--head: no file" in capsys.readouterr().err
    assert cli_bench.main([*out[:3], "--head", "x.md"]) == 1
    assert "--head needs --to" in capsys.readouterr().err
    (tmp_path / "head.md").write_text("# Mine\n\nWords.\n")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "figure1.svg").write_text("<svg/>")
    assert cli_bench.main([*out, "--head", str(tmp_path / "head.md")]) == 0
    text = (tmp_path / "to" / "RESULTS.md").read_text()
    assert text.startswith("# Mine\n\nWords.\n\n## Machine and versions\n\n- machine: ")
    assert "# Measured" not in text
    assert (tmp_path / "to" / "figure1.svg").read_text() == "<svg/>"


# As ``python -m benchmarks``, which sorts millions of numbers to see the machine's noise.
ALONE = """
import runpy
from benchmarks import machine
machine._SORTED = 1000
runpy.run_module("benchmarks", run_name="__main__", alter_sys=True)
"""


def test_as_a_command_of_its_own(tmp_path):
    """From another folder."""
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "error",
            "-c",
            ALONE,
            "--out",
            "found",
            "--only",
            "table1",
            "--sizes",
            "40",
            "--seeds",
            "1",
            "--classes",
            "rank1",
            "--peers",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "| rank1 | 40 | 1 |" in (tmp_path / "found" / "RESULTS.md").read_text()


def test_numbers():
    assert report.seconds_text(0.01234) == "0.0123"
    assert report.seconds_text(0.5) == "0.500"
    assert report.seconds_text(12.345) == "12.35"
    assert report.verdict(1.5, 1.5, at_most=False) == "met"
    assert report.verdict(1.4, 1.5, at_most=False) == "MISSED"
    assert report.verdict(1.4, 1.5, at_most=False, judged=False) == "-"
