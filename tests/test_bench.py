"""The benchmarks at sizes that take no time: counts, judgements, resuming, the command line."""

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
from benchmarks import __main__ as command
from benchmarks import machine, paper, processes, run, standings, tables, timing
from benchmarks.bench_settings import ALL_CLASSES, QUICK, BenchSettings, Round
from benchmarks.experiments import cached, curve, decay, paths, peak_memory, table1, trees, versus
from benchmarks.instances import CLASSES, MORE, matrix, total
from benchmarks.peers import PEERS, find
from benchmarks.processes import Process
from benchmarks.records import Log, StaleError
from benchmarks.tables import Table

ROOT = Path(__file__).parent.parent
N = 70  # larger than what solvers are warmed up with
HEADER = {"scale": "full", "code": "abc"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """No collection before a timed solve, and the solvers that misbehave in the processes too."""
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    monkeypatch.setattr(timing.gc, "collect", lambda: 0)
    monkeypatch.setattr(machine, "_SORTED", 1000)


@pytest.fixture
def settings(tmp_path):
    sizes = {
        "table1_sizes": (60,),
        "plain_size": 60,
        "paths_size": 30,
        "decay_sizes": (40,),
        "trees_sizes": (40,),
        "cached_sizes": (50,),
        "curve_sizes": (90,),
        "threads_size": 60,
        "bandwidth_sizes": (60,),
        "memory_size": 60,
        "outofcore_instances": (("random", 80),),
        "startup_seeds": 1,
        "demo_pixels": 60,
        "rounds": (Round(sizes=(N,)),),
    }
    classes = ("random", "int1n")
    return BenchSettings(**{**QUICK, **sizes, "out": tmp_path, "classes": classes, "methods": ("ssp",)})


@pytest.fixture
def log(tmp_path):
    return Log(tmp_path / "runs.jsonl", HEADER)


def cells(blocks, first: str = "") -> dict[str, list[str]]:
    """The rows of the tables by their first cell; of those whose first head is ``first``."""
    found = [block for block in blocks if isinstance(block, Table)]
    return {row[0]: row[1:] for t in found if t.head[0] == (first or t.head[0]) for row in t.rows}


# -- costs and the log ------------------------------------------------------------------


@pytest.mark.parametrize("cls", ALL_CLASSES)
def test_matrices_are_those_of_the_classes(cls):
    made = matrix(cls, 66, 3)
    assert made.shape == (66, 66)
    assert made.dtype == (np.int32 if cls.startswith("int") else np.float64)
    assert made.flags.c_contiguous
    np.testing.assert_array_equal(made, matrix(cls, 66, 3))
    assert not np.array_equal(made, matrix(cls, 66, 4))
    if cls.startswith("int"):
        top = {"int0.1n": 6, "int1n": 66, "int10n": 660, "int1000n": 66_000}[cls]
        assert made.min() >= 0
        assert 0.99 * top <= made.max() <= top
    assert np.isfinite(made).all() or cls == "half forbidden"
    assert bigsap.solve(made).status == "optimal"


def test_every_class_has_costs():
    assert set(ALL_CLASSES) == {*CLASSES, *MORE}
    assert np.unique(matrix("duplicates", 100, 0)).size < 110
    assert matrix("offset 1e9", 20, 0).min() >= 1e9


def test_total_refuses_what_is_no_permutation():
    cost = np.arange(9.0).reshape(3, 3)
    assert total(cost, np.array([2, 0, 1])) == 2 + 3 + 7
    assert total(cost, np.array([0, 0, 1])) is None
    assert total(cost, np.array([0, 1])) is None
    assert total(cost, np.array([-1, 0, 1])) is None


def test_an_offset_hides_no_wrong_answer(log):
    """1e9 n is the cost of all assignments: what they differ by decides."""
    cost = matrix("offset 1e9", 40, 0)
    best = bigsap.solve(cost).col4row
    worse = best.copy()
    worse[:2] = best[1::-1]
    for name, columns in {"A1015 C++": worse, "scipy": best}.items():
        found = processes.answer(find(name), lambda cost, c=columns: (c, {}), cost, cost)
        log.add(("peers", "offset 1e9", 40, 0, name, 1), **found)
    assert [standings.wrong(log, record) for record in log.records] == [True, False]


def test_who_knows_no_forbidden_pairs_gets_a_large_cost():
    cost = matrix("half forbidden", 30, 0)
    np.testing.assert_array_equal(find("scipy").prepared(cost), cost)
    given = find("lapx lapjv").prepared(cost)
    assert np.isfinite(given).all()
    np.testing.assert_array_equal(given[np.isfinite(cost)], cost[np.isfinite(cost)])
    assert bigsap.solve(given).fun == pytest.approx(bigsap.solve(cost).fun, rel=1e-12)


def test_log_is_continued(tmp_path):
    path = tmp_path / "new" / "runs.jsonl"
    keys = [("e", "random", 60, seed, "s", 1) for seed in (0, 1)]
    Log(path, HEADER).add(keys[0], seconds=0.5)
    with path.open("a") as file:
        file.write('{"experiment": "e", "cls": "ra')  # a writer that was killed
    log = Log(path, HEADER)
    assert log.missing(keys) == keys[1:]
    log.add(keys[1], seconds=0.7)
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


# -- solvers in processes ---------------------------------------------------------------


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


def test_every_peer_is_in_the_requirements():
    listed = re.findall(r"^([\w-]+)>=", (ROOT / "tests/bench/peers.txt").read_text(), re.M)
    assert {peer.distribution for peer in PEERS.values()} == set(listed)
    with pytest.raises(KeyError, match="no solver 'bigsap'"):
        find("bigsap")


# -- against each other -----------------------------------------------------------------


def test_contest(settings, log):
    peers = ("bench_fakes:identity", "bench_fakes:slow", "bench_fakes:repeated")
    rounds = (Round(sizes=(N,), seeds=2),)
    settings = replace(settings, classes=("random",), peers=peers, limit=0.5, rounds=rounds)
    versus.run(settings, log)
    record = log.get(("peers", "random", N, 0, "bigsap ssp", 1))
    fun = bigsap.solve(matrix("random", N, 0)).fun
    assert record["cost"] == pytest.approx(fun, rel=1e-14)
    assert len(record["runs"]) == 2
    assert min(record["runs"]) == record["seconds"] > 0
    # A solver that was stopped on the first seed is left out of the second.
    slow = [("peers", "random", N, seed, "bench_fakes:slow", 1) for seed in (0, 1)]
    assert log.missing(slow) == slow[1:]
    head = next(block for block in versus.render(log) if isinstance(block, Table)).head
    shown = dict(zip(head[1:], cells(versus.render(log), "class")["random"], strict=True))
    assert shown["bench_fakes:identity"] == shown["bench_fakes:repeated"] == "WRONG"
    assert shown["bench_fakes:slow"] == ">0"
    assert shown["bigsap ssp, evaluated / n"] == "1.0"
    assert float(shown["certificate, s"]) > 0
    count = len(log.records)
    versus.run(settings, log)
    assert len(log.records) == count
    assert not list(settings.out.glob("*/*.npy"))  # matrices are gone


def test_who_was_fastest(log):
    def add(solver, *seconds, cost=1.0):
        for seed, s in enumerate(seconds):
            log.add(("peers", "random", 4000, seed, solver, 1), seconds=s, cost=cost)

    add("bigsap ssp", 0.5, 0.6, 2.0)
    add("scipy", 5.0)
    add("lapx lapjvr", 0.1, 0.1, 0.1, cost=1.5)  # fastest, but wrong
    add("A1015 C++", 1.5, 1.2, 1.0, cost=1.0 + 1e-13)
    add("POT emd", 1.0, 1.0, 0.9)
    times = ["0.600", "1.20", "1.00", "WRONG", "5.00*"]
    assert cells(versus.render(log), "class")["random"][:7] == [*times, "0.60", "POT emd"]


def test_threads_beside_each_other(settings, log):
    """Who knows one thread runs with one, and is compared with whatever the others use."""
    settings = replace(
        settings,
        classes=("random",),
        peers=("bench_fakes:exact",),
        peers_threads=(1, 2),
        rounds=(Round(sizes=(N,)), Round(sizes=(40,), peers=False)),
    )
    versus.run(settings, log)
    assert {(r["n"], r["solver"], r["threads"]) for r in log.records} == {
        (N, "bigsap ssp", 1),
        (N, "bigsap ssp", 2),
        (N, "bench_fakes:exact", 1),
        (40, "bigsap ssp", 1),
        (40, "bigsap ssp", 2),
        (N, standings.CERTIFIED, 2),
        (40, standings.CERTIFIED, 2),
    }
    blocks = versus.render(log)
    assert [b for b in blocks if isinstance(b, tables.Heading)][:2] == [
        "n = 70, 1 thread",
        "n = 70, 2 threads",
    ]
    assert any("With one thread: bench_fakes:exact." in str(block) for block in blocks)
    assert {"40", "70"} <= set(cells(blocks, "n"))


def test_who_has_lost_is_left_out(log):
    for solver, seconds in (("bigsap ssp", 1.0), ("slow", 3.5), ("A1015 C++", 4.0)):
        log.add(("peers", "random", 1000, 0, solver, 1), seconds=seconds, cost=1.0)
    log.add(("peers", "random", 1000, 0, "stopped", 1), timeout=8.0)

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
    assert [settings.limit_of(best) for best in (None, 0.1, 2.0, 20.0)] == [60, 8, 12, 60]
    assert replace(settings, patience=math.inf).limit_of(0.1) == 60


def test_pot_without_a_matrix_runs_beside_the_curve(settings, log):
    pytest.importorskip("ot", reason="POT, of tests/bench/peers.txt")
    settings = replace(
        settings, classes=("geometric",), curve_sizes=(40, 80), lazy_sizes=(80,), peers=("POT emd",)
    )
    log.add(("curve", "geometric", 40, 0, curve.SOLVER, 2), timeout=600.0)
    curve.run(settings, log)
    ours, theirs = log.values("fun", n=80)
    assert theirs == pytest.approx(ours, rel=1e-12)
    assert cells(curve.render(log))["geometric"][-1] == "same"


# -- the other experiments --------------------------------------------------------------


def test_rows_scanned_are_counted_and_not_counted_again(settings, log, monkeypatch):
    table1.run(settings, log)
    here = {"experiment": "table1", "cls": "random", "n": 60}
    for solver, epsilon in ((table1.PLAIN, False), (table1.SOLVER, True)):
        expected = []
        for seed in (0, 1):
            found = bigsap.solve(matrix("random", 60, seed), method="ssp", epsilon=epsilon)
            expected.append(found.stats["rows_scanned"])
        assert log.values("rows_scanned", **here, solver=solver) == expected
        assert table1.curves(log, solver) == {"random": {60: sum(expected) / 2}}
    assert log.distinct("cls", experiment="table1") == ["random"]  # the paper has no integers
    monkeypatch.setattr(table1, "timed", None)
    table1.run(settings, log)


def test_table1_compares_with_the_paper(log):
    for cls, counts in {"random": (13_000, 13_200), "rank1": (3_700, 3_700)}.items():
        for seed, count in enumerate(counts):
            key = ("table1", cls, 1000, seed, table1.SOLVER, 1)
            log.add(key, rows_scanned=count, phases=seed + 1)
    shown = cells(table1.render(log), "class")
    spread = ["13,100", "13,000 to 13,200", "1.5"]
    assert shown["random"][2:] == [*spread, "12,824", "1.02", "met"]
    assert shown["rank1"][-2:] == ["1.06", "MISSED"]


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


def test_the_papers_counts_beside_ours(settings, log):
    trees.run(settings, log)
    found = {(r["cls"], r["solver"]): r for r in log.records}
    assert len(found) == 7  # the classical method not where dual updates are many
    assert found["int0.1n", "tree"]["clock_steps"] <= found["int10n", "tree"]["clock_steps"]
    rows = cells(trees.render(log))
    assert rows["int1n tree"][3:5] == [str(found["int1n", "tree"]["stages"]), "79"]


def test_caches_of_all_shares(settings, log):
    cached.run(replace(settings, classes=("disjoint", "rank2"), cached_seeds=1), log)
    for cls in ("disjoint", "rank2"):
        rows = {r["solver"]: r["rows_evaluated"] for r in log.of(cls=cls, threads=2)}
        assert list(rows) == ["all rows", "1/4 of the rows", "1/16 of the rows", "one row"]
        assert rows["all rows"] == 50 < rows["1/4 of the rows"] < rows["one row"]
    assert all(row[-1] == "yes" for row in cells(cached.render(log)).values())


def test_growth_and_the_papers_tables():
    found = tables.fit({n: 3.0 * n**1.5 for n in (10, 100, 1000)})
    assert found == pytest.approx((3.0, 1.5, 0.0), rel=1e-4, abs=1e-4)
    assert tables.fit({10: 1.0, 20: 2.0}) is None
    assert paper.TABLE1[1000]["random"] == 12_824
    assert paper.TABLE1[32000]["rank8"] == 1_548_766
    assert paper.TABLE2[128000]["disjoint"] == 764.252
    # The exponents that the paper prints below its columns.
    slopes = {"random": 1.515, "geometric": 1.494, "disjoint": 2.003, "rank2": 2.001, "rank8": 1.84}
    for cls, slope in slopes.items():
        found = tables.fit({n: row[cls] for n, row in paper.TABLE1_PLAIN.items()})
        assert found[1] == pytest.approx(slope, abs=0.01)


def test_numbers():
    assert [tables.seconds_text(s) for s in (0.01234, 0.5, 12.345)] == ["0.0123", "0.500", "12.35"]
    assert tables.verdict(1.5, 1.5, at_most=False) == "met"
    assert tables.verdict(1.4, 1.5, at_most=False) == "MISSED"
    assert tables.verdict(1.4, 1.5, at_most=False, judged=False) == "-"


# -- the whole --------------------------------------------------------------------------


def test_everything_small(settings, monkeypatch, capsys):
    monkeypatch.setattr(machine, "code_digest", lambda: "abc")
    settings = replace(settings, peers=("scipy",), classes=("disjoint", "int1n"), memory_size=1000)
    experiments = [name for name in run.EXPERIMENTS if name != "demo"]
    log = run.measured(settings, experiments)
    report = run.write(log, settings.out, "2026-01-31")
    text, page = report.read_text(), (settings.out / run.PAGE).read_text()
    for name in experiments:
        assert f'<details id="{name}">' in page
    for row in table1._compared(log).rows:
        assert f"| {' | '.join(row)} |" in text
        assert all(f">{cell}</t" in page for cell in row)
    assert ">NO<" not in page  # same scans, same answer
    assert "WRONG</td>" not in page
    assert "- date: 2026-01-31\n" in text
    assert "- noise: " in text
    assert str(settings.out) not in text + page
    assert page.count("<svg ") > 8

    # A hundred rows kept would be seen; so would the parent's memory, counted by mistake.
    (memory,) = log.of(experiment=peak_memory.NAME, solver=peak_memory.SOLVE)
    assert 8_000_000 < memory["base_bytes"] < 450_000_000
    assert 5 < memory["array_bytes"] / 8000 < 100

    again = run.measured(settings, experiments).records[len(log.records) :]
    assert {record["experiment"] for record in again} == {"noise"}
    (settings.out / "to").mkdir()
    (settings.out / "to" / "HEAD.md").write_text("# Mine\n")
    published = run.write(log, settings.out / "to").read_text()
    assert published.startswith("# Mine\n\n## Machine and versions\n\n- machine: ")
    assert (settings.out / "to" / "runs.jsonl").read_text() == log.path.read_text()
    assert "==> table1" in capsys.readouterr().out


def settings_of(*argv):
    return command.settings_of(command.parser().parse_args(argv))


def test_settings_of_arguments(tmp_path):
    usual = settings_of()
    assert usual.scale == "full"
    assert usual.peers == tuple(PEERS)
    assert usual.out == Path("bigsap-bench/full").absolute()
    given = "--sizes 100..200 120 --classes random int1n --methods ssp --threads 1 2"
    given += " --cache 1/4 row 1/4 --devices cpu cuda --peers --seeds 2 --out"
    chosen = settings_of(*given.split(), str(tmp_path))
    assert (chosen.scale, chosen.out) == ("chosen", tmp_path)
    assert chosen.table1_sizes == chosen.curve_sizes == (100, 120, 141, 200)
    assert chosen.rounds == (Round(sizes=(100, 120, 141, 200), seeds=2),)
    assert (chosen.classes, chosen.methods) == (("random", "int1n"), ("ssp",))
    assert (chosen.peers_threads, chosen.shares, chosen.peers) == ((1, 2), (4, 0), ())
    assert versus.solvers(chosen) == ["bigsap ssp", "bigsap ssp cuda"]
    assert chosen.table1_seeds == 2
    fewer = settings_of("--seeds", "1")
    assert [part.sizes for part in fewer.rounds] == [part.sizes for part in usual.rounds]
    assert {part.seeds for part in fewer.rounds} == {1}
    quick = settings_of("--quick")
    assert (quick.scale, quick.classes) == ("quick", QUICK["classes"])


@pytest.mark.parametrize(
    "argv",
    [
        "--classes easy",
        "--methods magic",
        "--peers magic",
        "--only nonsense",
        "--threads 0",
        "--seeds 0",
        "--limit -1",
        "--patience nan",
        "--sizes 1",
        "--sizes 5..3",
        "--sizes x",
        "--cache 2/3",
        "--cache 1/0",
        "--cache 4",
    ],
)
def test_bad_arguments(argv, capsys):
    option, value = argv.split()
    with pytest.raises(SystemExit):
        command.main([option, value])
    assert f"argument {option}: " in capsys.readouterr().err


def test_command_line(tmp_path, capsys, monkeypatch):
    out = ["--out", str(tmp_path)]
    assert command.main([*out, "--report"]) == 1
    assert "nothing was measured yet" in capsys.readouterr().err
    monkeypatch.setattr(machine, "code_digest", lambda: "def")
    monkeypatch.setattr(machine, "probe", lambda log: None)
    for module in run.EXPERIMENTS.values():
        monkeypatch.setattr(module, "run", lambda settings, log: None)
    assert command.main([*out, "--quick", "--methods", "ssp"]) == 0
    assert f"wrote {tmp_path / 'RESULTS.md'}" in capsys.readouterr().out
    (tmp_path / "runs.jsonl").write_text(json.dumps({"experiment": "header", **HEADER}) + "\n")
    assert command.main([*out, "--quick"]) == 1
    assert "--fresh starts over" in capsys.readouterr().err
    assert command.main([*out, "--quick", "--fresh"]) == 0


def test_as_a_command_of_its_own(tmp_path):
    code = "import runpy; from benchmarks import machine; machine._SORTED = 1000\n"
    code += "runpy.run_module('benchmarks', run_name='__main__', alter_sys=True)"
    words = "--out found --only table1 --sizes 40 --seeds 1 --classes rank1 --peers"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code, *words.split()],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    assert "| rank1 | 40 | 1 |" in (tmp_path / "found" / "RESULTS.md").read_text()
