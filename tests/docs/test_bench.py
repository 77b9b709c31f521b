"""The benchmarks at sizes that take no time: counts, judgements, resuming, the command line."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import bigsap
from benchmarks import machine, processes, run, standings, timing
from benchmarks.bench_settings import ALL_CLASSES, QUICK, BenchSettings, Round
from benchmarks.experiments import peak_memory, table1, versus
from benchmarks.instances import matrix, total
from benchmarks.peers import find
from benchmarks.records import Log
from benchmarks.tables import Table
from gate import SUPPORT

N = 70  # larger than what solvers are warmed up with
HEADER = {"scale": "full", "code": "abc"}


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """No collection before a timed solve, and the solvers that misbehave in the processes too."""
    monkeypatch.setenv("PYTHONPATH", str(SUPPORT))
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


# -- against each other -----------------------------------------------------------------


@pytest.mark.slow
def test_contest(settings, log):
    peers = ("bench_fakes:identity", "bench_fakes:repeated")
    rounds = (Round(sizes=(N,), seeds=2),)
    settings = replace(settings, classes=("random",), peers=peers, limit=300, rounds=rounds)
    versus.run(settings, log)
    record = log.get(("peers", "random", N, 0, "bigsap ssp", 1))
    fun = bigsap.solve(matrix("random", N, 0)).fun
    assert record["cost"] == pytest.approx(fun, rel=1e-14)
    assert len(record["runs"]) == 2
    assert min(record["runs"]) == record["seconds"] > 0
    head = next(block for block in versus.render(log) if isinstance(block, Table)).head
    shown = dict(zip(head[1:], cells(versus.render(log), "class")["random"], strict=True))
    assert shown["bench_fakes:identity"] == shown["bench_fakes:repeated"] == "WRONG"
    assert shown["bigsap ssp, evaluated / n"] == "1.0"
    assert float(shown["certificate, s"]) > 0
    count = len(log.records)
    versus.run(settings, log)
    assert len(log.records) == count
    assert not list(settings.out.glob("*/*.npy"))  # matrices are gone


# -- gaps of heuristics -----------------------------------------------------------------


# -- the whole --------------------------------------------------------------------------


@pytest.mark.slow
def test_everything_small(settings, monkeypatch, capsys):
    monkeypatch.setattr(machine, "code_digest", lambda: "abc")
    settings = replace(settings, peers=("scipy",), classes=("disjoint", "int1n"), memory_size=1000)
    experiments = [name for name in run.EXPERIMENTS if name not in ("demo", "gaps")]
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
