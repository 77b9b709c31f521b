"""Workers beside kernels: compiled costs and mapped files, the same bits wherever rows are made."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import bigsap
from bigsap import policy
from bigsap.engine.lists import list_engine
from bigsap.run import kept_rows, proof_on_workers
from bigsap.sources.cluster.offload import Offload
from bigsap.sources.functions.speed import PerformanceWarning
from cluster_costs import points, same

pytestmark = [
    pytest.mark.filterwarnings("ignore::bigsap.sources.functions.speed.PerformanceWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture
def handed(monkeypatch):
    """Everything that may be handed to workers is, from the first row on."""
    monkeypatch.setattr(Offload, "pays", lambda *_: True)
    monkeypatch.setattr(list_engine, "_SLICE_SECONDS", 0.0)
    monkeypatch.setattr(policy, "QUICK_PAIRS", 0)
    monkeypatch.setattr(proof_on_workers, "seconds_by_bounds", lambda source: np.inf)
    monkeypatch.setattr(kept_rows, "_pays_to_keep", lambda problem: False)


AWAY = "abs(x[i,0]-y[j,0])**1.5 + abs(x[i,1]-y[j,1])"


def on_a_circle(turn):
    angle = np.sort(np.random.default_rng(5).random(2100)) * 2 * np.pi + turn
    return np.stack([np.cos(angle), np.sin(angle)], axis=1)


def costs_of(which, folder):
    x, y = points(900)
    values = np.random.default_rng(3)

    def mapped(matrix):
        np.save(folder / "costs.npy", matrix)
        return folder / "costs.npy"

    def distances(n):
        a, b = points(n)
        return ((a[:, None] - b) ** 2).sum(axis=2)

    return {
        "points": lambda: bigsap.points(x, y),
        "more points": lambda: bigsap.points(*points(2100)),
        "wide points": lambda: bigsap.points(*points(2100, d=9)),
        "oblong": lambda: bigsap.points(*points(700, 1000)),
        "tall": lambda: bigsap.points(*points(1000, 700)),
        "lowrank": lambda: bigsap.lowrank(x, y),
        "expression": lambda: bigsap.expression(AWAY, (900, 900), x=x, y=y),
        "ordered expression": lambda: bigsap.expression(
            AWAY, (2100, 2100), x=on_a_circle(0.0), y=on_a_circle(0.3)
        ),
        "function": lambda: bigsap.from_function(lambda i, j: (i - 3 * j) % 17 * 1.5, (800, 800)),
        "mapped": lambda: mapped(values.random((800, 800))),
        "mapped integers": lambda: mapped(values.integers(0, 10**6, (800, 900), dtype=np.int32)),
        "mapped distances": lambda: mapped(distances(2100).astype(np.float32)),
    }[which]()


COMPILED = [
    "points",
    "more points",
    "wide points",
    "oblong",
    "tall",
    "lowrank",
    "expression",
    "ordered expression",
    "function",
]
MAPPED = ["mapped", "mapped integers", "mapped distances"]


# Shapes that differ in size alone are solved in one sense.
ONE_SENSE = ("more points", "wide points", "tall", "mapped distances")
SENSES = [(which, False) for which in COMPILED + MAPPED] + [
    (which, True) for which in COMPILED + MAPPED if which not in ONE_SENSE
]


@pytest.mark.some(2)
@pytest.mark.usefixtures("handed")
@pytest.mark.parametrize(("which", "maximize"), SENSES)
def test_the_same_bits(client, tmp_path, which, maximize):
    cost = costs_of(which, tmp_path)
    options = {"method": "compressed", "maximize": maximize}
    one, spread = bigsap.solve(cost, **options), bigsap.solve(cost, cluster=client, **options)
    assert same(one, spread)
    told = spread.stats["cluster"]
    assert told["list_bytes"] > 0
    assert told["dual_bytes"] > 0
    assert one.stats["rows_evaluated"] == spread.stats["rows_evaluated"]
    assert one.stats["pairs_evaluated"] == spread.stats["pairs_evaluated"]


@pytest.mark.some(2)
@pytest.mark.usefixtures("handed")
@pytest.mark.parametrize(
    "options",
    [
        {"start": "levels"},
        {"unassigned_cost": 0.01},
        {"certify": False},
        {"epsilon": False},
        {"memory_limit": 400_000},
        {"gap": 0.5},
    ],
    ids=str,
)
def test_options(client, options):
    cost = bigsap.points(*points(900))
    options = {"method": "compressed", **options}
    spread = bigsap.solve(cost, cluster=client, **options)
    assert same(bigsap.solve(cost, **options), spread)
    assert spread.stats["cluster"]["rows"] > 0


@pytest.mark.some(1)
@pytest.mark.parametrize("price", [0.001, 0.3])
def test_gated_costs_in_a_mapped_file(client, tmp_path, price):
    """They are looked at here, whether few of their pairs are worth it or many."""
    x, y = points(600)
    np.save(tmp_path / "costs.npy", ((x[:, None] - y) ** 2).sum(axis=2))
    with pytest.warns(PerformanceWarning, match="does not pay") as notes:
        spread = bigsap.solve(tmp_path / "costs.npy", unassigned_cost=price, cluster=client)
    assert notes[0].filename == __file__
    assert same(bigsap.solve(tmp_path / "costs.npy", unassigned_cost=price), spread)


@pytest.mark.some(1)
@pytest.mark.usefixtures("handed")
@pytest.mark.parametrize("which", ["points", "ordered expression", "mapped distances"])
def test_stopped_within_a_wave_and_resumed(client, tmp_path, which):
    cost = costs_of(which, tmp_path)
    file = tmp_path / "solve.ckpt"
    one = bigsap.solve(cost, method="compressed")
    event = threading.Event()

    def strike(progress):
        if sum(progress.workers.values()) > 0:
            event.set()

    stopped = bigsap.solve(
        cost,
        method="compressed",
        cluster=client,
        checkpoint=file,
        cancel=event,
        callback=strike,
        callback_every=0.001,
    )
    if stopped.status == "cancelled":
        assert same(one, bigsap.resume(file, cost))


@pytest.mark.usefixtures("handed")
def test_an_invalid_cost_is_named(client):
    x, y = points(900)
    cost = bigsap.expression(f"where(i == 700 and j == 3, -1e400, {AWAY})", (900, 900), x=x, y=y)
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[700, 3\]"):
        bigsap.solve(cost, cluster=client, method="compressed")


def dear(i, j):
    total = 0.0
    for k in range(400):
        total += ((i * 7 + j * 13 + k) % 11) * 0.25
    return total


def test_slow_compiled_rows_are_brought_whole(client, monkeypatch):
    """Of one thread here and two workers it pays by itself, but for the little that it is."""
    monkeypatch.setattr(policy, "WORKERS_LEAST_SECONDS", 0.0)
    monkeypatch.setattr(policy, "WORKERS_WAVE_SECONDS", 0.0)
    monkeypatch.setattr(kept_rows, "_pays_to_keep", lambda problem: True)
    cost = bigsap.from_function(dear, (700, 700), kind="value")
    options = {"method": "compressed", "threads": 1}
    one, with_workers = bigsap.solve(cost, **options), bigsap.solve(cost, cluster=client, **options)
    assert with_workers.stats["evaluated_by"] in ("numba", "expression")
    assert same(one, with_workers)
    told = with_workers.stats["cluster"]
    assert told["rows_asked"] == told["rows"] == 700
    assert told["row_bytes"] >= 700 * 700 * 8


def test_when_it_pays():
    class Workers:
        n_threads = 12

        def look(self):
            pass

    workers = Offload(Workers())
    # 10 s of two threads here: 1.7 s there, and little to bring.
    assert workers.pays(1000, 10.0, 2, 1600)
    # As many threads here as there.
    assert not workers.pays(1000, 10.0, 12, 1600)
    # What comes back takes longer than it is made.
    assert not workers.pays(1_000_000, 10.0, 2, 8000)
    # Over before it is there.
    assert not workers.pays(1000, 0.5, 1, 1600)


def test_cheap_costs_stay_here_and_that_is_said(client):
    with pytest.warns(PerformanceWarning, match="does not pay"):
        result = bigsap.solve(bigsap.points(*points(800)), cluster=client, method="compressed")
    assert result.stats["cluster"]["blocks"] == 0


@pytest.mark.usefixtures("handed")
def test_costs_that_cannot_be_sent_stay_here(client):
    costs = np.random.default_rng(6).random((750, 750))
    options = {"method": "compressed"}
    spread = bigsap.solve(costs, cluster=client, **options)
    assert same(bigsap.solve(costs, **options), spread)
    assert spread.stats["cluster"]["blocks"] == 0
