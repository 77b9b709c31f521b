"""One solve over the workers of a cluster: the bits of one machine, whatever happens to workers."""

from __future__ import annotations

import functools
import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
from contextlib import suppress

import numpy as np
import pytest

import bigsap
import cluster_costs
from bigsap import policy
from bigsap.engine.lists import on_workers
from bigsap.sources.base import Foreseeing
from bigsap.sources.cluster import lookups, on_worker
from bigsap.sources.cluster import row_blocks as wave_module
from bigsap.sources.cluster.costs import ClusterCosts
from bigsap.sources.functions.speed import PerformanceWarning
from cluster_costs import called, few_rows, local, points, same
from gate import HANG_S, Gate, until
from remote_provider import Provider

pytestmark = [
    pytest.mark.filterwarnings("ignore::bigsap.sources.functions.speed.PerformanceWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Gated:
    """Costs whose rows wait, on workers, at a gate once ``after`` of them were asked for."""

    def __init__(self, folder, n, after, seed=0):
        x, y = points(n, seed=seed)
        self.gate = Gate(folder / "gate")
        folder = folder / "rows"
        folder.mkdir()
        (folder / "gate").symlink_to(self.gate.folder)
        args = x, y, folder, after
        self.cost = bigsap.from_function(cluster_costs.gated_row, (n, n), args, kind="row", compiled=False)
        self.alone = bigsap.from_function(cluster_costs.row, (n, n), (x, y), "row", compiled=False)

    def then(self, act):
        """Do this on a thread once a row waits, and open the gate."""

        def wait():
            self.gate.wait_for_readers()
            try:
                act()
            finally:
                self.gate.open()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def waiting(self):
        """The processes whose rows wait, the last to come first."""
        found = [path.name.split("-") for path in self.gate.folder.iterdir()]
        return [int(pid) for pid, _, _ in sorted(found, key=lambda one: -int(one[2]))]


FUNCTIONS = {
    "row": ("row", "row"),
    "part": ("part", "part"),
    "block": ("block", "block"),
    "integers": ("whole", "row"),
    "float32": ("single", "row"),
}


@pytest.mark.some(2)
@pytest.mark.parametrize("kept", ["all", "few"])
@pytest.mark.parametrize("which", FUNCTIONS)
def test_functions_of_rows(client, which, kept):
    name, kind = FUNCTIONS[which]
    options = {} if kept == "all" else {"cache": few_rows(300), "method": "compressed"}
    cost = called(name, kind=kind)
    assert same(bigsap.solve(cost, **options), bigsap.solve(cost, cluster=client, **options))


def test_values_that_python_computes(client):
    cost = called("value", 60, kind="value")
    assert same(bigsap.solve(cost), bigsap.solve(cost, cluster=client))


@pytest.mark.some(2)
@pytest.mark.parametrize("shape", [(200, 330), (330, 200), (800, 800)])
@pytest.mark.parametrize("maximize", [False, True])
def test_shapes_and_senses(client, shape, maximize):
    cost = called("row", *shape)
    options = {"maximize": maximize, "cache": few_rows(*shape)}
    assert same(bigsap.solve(cost, **options), bigsap.solve(cost, cluster=client, **options))


@pytest.mark.some(4)
@pytest.mark.parametrize(
    "options",
    [
        {"method": "ssp"},
        {"method": "compressed", "start": "levels"},
        {"method": "compressed", "start": "estimate"},
        {"method": "compressed", "epsilon": False},
        {"method": "auction"},
        {"method": "hungarian"},
        {"certify": False},
        {"certify": "pairs"},
        {"unassigned_cost": 0.01},
        {"unassigned_cost": 0.01, "maximize": True},
        {"gap": 0.5},
        {"memory_limit": 120_000, "method": "compressed"},
    ],
    ids=str,
)
def test_options(client, options):
    cost = called("row", 120)
    for cache in (None, 40 * 8 * 120):
        asked = {**options, "cache": cache}
        if cache is not None and options.get("method") in ("ssp", "auction"):
            continue  # row by row, a round trip each
        assert same(bigsap.solve(cost, **asked), bigsap.solve(cost, cluster=client, **asked))


@pytest.mark.some(3)
@pytest.mark.parametrize("kept", ["all", "few"])
@pytest.mark.parametrize("layout", ["decoded", "raw", "shards"])
def test_zarr(client, tmp_path, layout, kept):
    zarr = pytest.importorskip("zarr")
    costs = np.random.default_rng(4).random((200, 200))
    more = {
        "decoded": {"chunks": (16, 200), "compressors": "auto"},
        "raw": {"chunks": (16, 200), "compressors": None},
        "shards": {"chunks": (8, 200), "shards": (40, 200), "compressors": "auto"},
    }[layout]
    path = tmp_path / "costs.zarr"
    zarr.create_array(store=path, data=costs, **more)
    options = {} if kept == "all" else {"cache": few_rows(200), "method": "compressed"}
    one, spread = bigsap.solve(path, **options), bigsap.solve(path, cluster=client, **options)
    assert same(one, spread)
    assert spread.stats["cluster"]["rows"] > 0


def test_a_provider(client):
    costs = np.random.default_rng(5).random((150, 150))
    with Provider(costs) as provider:
        for options in ({}, {"cache": few_rows(150), "method": "compressed"}):
            with bigsap.from_http(provider.url, costs.shape, costs.dtype) as source:
                one = bigsap.solve(source, **options)
                assert same(one, bigsap.solve(source, cluster=client, **options))


def combined(which, n=160):
    x, y = points(n)
    function, near = called("row", n), bigsap.points(x, y)
    forbidden = np.random.default_rng(7).random((n, n)) < 0.3
    np.fill_diagonal(forbidden, False)
    return {
        "scaled": lambda: bigsap.scaled(function, 3.0),
        "sum": lambda: bigsap.sum_of([function, bigsap.scaled(near, 0.5)]),
        "masked": lambda: bigsap.masked(function, forbidden),
        "forbid_above": lambda: bigsap.forbid_above(function, 0.3),
        "sum of compiled": lambda: bigsap.sum_of([near, bigsap.lowrank(x, y)]),
        "own class": lambda: cluster_costs.Own(x, y),
        "sliceable": lambda: cluster_costs.Sliceable(x, y),
        "lambda": lambda: bigsap.from_function(lambda i, j: abs(x[i, 0] - y[j, 0]), (n, n), compiled=False),
    }[which]()


@pytest.mark.some(8)
@pytest.mark.parametrize("kept", ["all", "few"])
@pytest.mark.parametrize(
    "which",
    ["scaled", "sum", "masked", "forbid_above", "sum of compiled", "own class", "sliceable", "lambda"],
)
def test_every_kind_of_source(client, which, kept):
    cost = combined(which)
    options = {} if kept == "all" else {"cache": few_rows(160), "method": "compressed"}
    spread = bigsap.solve(cost, cluster=client, **options)
    assert same(bigsap.solve(cost, **options), spread)
    assert spread.stats["cluster"]["rows"] >= 160


def test_sources_that_stay_here(client, tmp_path):
    x, y = points(900)
    costs = np.random.default_rng(6).random((300, 300))
    np.save(tmp_path / "costs.npy", costs)
    for cost in (
        bigsap.points(x, y),
        bigsap.lowrank(x, y),
        bigsap.expression("abs(x[i,0]-y[j,0])", (900, 900), x=x, y=y),
        bigsap.from_function(lambda i, j: abs(i - j) * 1.5, (300, 300)),
        costs,
        tmp_path / "costs.npy",
        bigsap.scaled(costs, 2.0),
        bigsap.scaled(bigsap.points(x, y), 2.0),
        bigsap.sum_of([costs, bigsap.points(*points(300))]),
        bigsap.sparse((np.arange(9), np.arange(9), np.arange(9)), shape=(9, 9)),
    ):
        assert same(bigsap.solve(cost), bigsap.solve(cost, cluster=client))


def test_matrices_that_are_too_large_to_be_sent_along(client, monkeypatch):
    cost = combined("masked")
    monkeypatch.setattr(policy, "MOST_SENT", 160 * 160 - 1)
    with pytest.warns(PerformanceWarning, match="does not pay"):
        spread = bigsap.solve(cost, cluster=client)
    assert spread.stats["cluster"]["rows"] == 0
    assert same(bigsap.solve(cost), spread)


def test_rows_are_evaluated_by_the_workers_alone(client, tmp_path):
    x, y = points(200)
    cost = bigsap.from_function(
        cluster_costs.told_row, (200, 200), (x, y, tmp_path), kind="row", compiled=False
    )
    for file in tmp_path.iterdir():  # the probe of row 0
        file.unlink()
    result = bigsap.solve(cost, cluster=client, method="compressed", cache=few_rows(200))
    processes = {file.name.partition("-")[2] for file in tmp_path.iterdir()}
    counts = result.stats["cluster"]
    assert len(processes) == 2
    assert str(threading.get_native_id()) not in processes
    assert processes == {str(pid) for pid in client.run(os.getpid).values()}
    assert sum(counts["by_worker"].values()) == counts["rows"] >= 200
    # Rows stay where they were evaluated: hardly any is asked of the function twice.
    assert counts["rows_asked"] < 1.5 * 200 < counts["rows"]


def test_few_whole_rows_come_with_lists(client):
    n = 400
    options = {"method": "compressed", "cache": few_rows(n), "start": "none"}
    counts = bigsap.solve(called("row", n), cluster=client, **options).stats["cluster"]
    assert counts["row_bytes"] <= 17 * 8 * n  # those of the certificate's margins
    assert counts["list_bytes"] <= 1.2 * 128 * 12 * counts["rows"]


@pytest.fixture
def patient(monkeypatch):
    """On a busy machine too nobody is late, and all kept rows are asked for without tasks."""
    monkeypatch.setattr(wave_module, "_LEAST_SECONDS", 100.0)
    monkeypatch.setattr(wave_module, "_LATE_SECONDS", 100.0)
    monkeypatch.setattr(lookups, "_PATIENCE", 100.0)


@pytest.mark.usefixtures("patient")
def test_what_goes_both_ways_is_little_more_than_the_lists(client, monkeypatch):
    """Prices, rows' numbers and messages counted, where searches ask for many waves."""
    n, entries, put = 2500, [0], on_workers._put  # 44 waves

    def count(store, rows, body):
        put(store, rows, body)
        entries[0] += int(store.lists.size[rows].sum())

    monkeypatch.setattr(on_workers, "_put", count)
    cost = called("row", n, seed=1)
    options = {"method": "compressed", "cache": few_rows(n)}
    counts = bigsap.solve(cost, cluster=client, **options).stats["cluster"]
    assert counts["waves"] > 30
    assert counts["sent_bytes"] < 0.15 * counts["list_bytes"]
    assert counts["sent_bytes"] + counts["list_bytes"] < 1.02 * 12 * entries[0]


@pytest.mark.usefixtures("patient")
def test_workers_that_lose_their_prices(client, monkeypatch):
    """They decline, tasks answer instead, and all prices are sent again: the same bits."""
    look_up, found = wave_module.look_up, []

    def lose_some(crew, *rest):
        lost = len(found) % 3 == 2
        if lost:
            client.run(cluster_costs.lose_prices, crew.token)
        look_up(crew, *rest)
        found.append((lost, [lookup.body is not None for lookup in rest[-1]]))

    monkeypatch.setattr(wave_module, "look_up", lose_some)
    cost = called("row", 1000, seed=15)
    options = {"method": "compressed", "cache": few_rows(1000), "start": "none"}
    one, spread = bigsap.solve(cost, **options), bigsap.solve(cost, cluster=client, **options)
    assert same(one, spread)
    assert any(lost and not all(answered) for lost, answered in found)
    assert any(not lost and any(answered) for lost, answered in found)


def test_it_is_judged_whether_workers_paid(client):
    options = {"method": "compressed", "cache": few_rows(400)}
    counts = bigsap.solve(called("slow_row", 400), cluster=client, **options).stats["cluster"]
    assert counts["faster"] == counts["busy"] / (counts["waited"] + counts["started"])
    assert counts["paid"] == (counts["faster"] > 1)
    # Of two threads at most twice the work of one is done meanwhile.
    assert 0 < counts["busy"] <= 2.05 * counts["waited"]
    assert counts["idle"] == pytest.approx(2 * counts["waited"] - counts["busy"], abs=0.05)
    x, y = points(300)
    stays = bigsap.solve(bigsap.points(x, y), cluster=client, method="compressed")
    assert stays.stats["cluster"]["paid"] is False


class Here:
    """Stands for workers: rows are made at once, and counted."""

    n_threads = 3

    def __init__(self, bad=()):
        self.waves, self.bad, self.made = [], set(bad), None

    def pace(self, name):
        return None if self.made is None else 0.1

    def wave(self, costs, name, rows, **rest):
        if not rows.size:
            return
        self.made = True
        self.waves.append(rows.tolist())
        if self.bad & set(rows.tolist()):
            raise bigsap.CallbackError("a row that fails")
        values = np.stack([np.full(50, float(row)) for row in rows])
        yield np.arange(rows.size), values.view(np.uint8).ravel()


def read(spread, row):
    out = np.empty((1, 50))
    spread.read(np.array([row]), slice(0, 50), out)
    assert (out == row).all()


def spread_here(**given):
    crew = Here(**given)
    cost = bigsap.from_function(lambda i: np.full(50, float(i)), (90, 50), kind="row")
    return ClusterCosts(cost, crew, ("token", None)), crew


def test_rows_that_may_be_next_come_along():
    spread, crew = spread_here()
    assert isinstance(spread, Foreseeing)
    assert spread.foresees == 2
    spread.predict_slot(np.array([70, 12, 40, 3]))
    read(spread, 30)
    assert crew.waves == [[30, 12, 70]]
    read(spread, 12)
    read(spread, 70)
    read(spread, 30)
    assert len(crew.waves) == 1
    # What was foreseen for one row says nothing of later ones.
    read(spread, 55)
    assert crew.waves[1] == [55]


def test_an_error_of_a_row_that_nobody_asked_for_is_not_told():
    spread, crew = spread_here(bad=[12])
    spread.predict_slot(np.array([12, 40]))
    read(spread, 30)
    assert crew.waves == [[30, 12, 40], [30]]
    spread.predict_slot(np.array([40]))
    with pytest.raises(bigsap.CallbackError):
        read(spread, 12)


def test_ssp_asks_for_rows_in_waves(client):
    cost = called("row", 150)
    options = {"method": "ssp", "cache": 30 * 8 * 150}
    one, spread = bigsap.solve(cost, **options), bigsap.solve(cost, cluster=client, **options)
    assert same(one, spread)
    assert one.stats["rows_evaluated"] == spread.stats["rows_evaluated"]
    assert spread.stats["cluster"]["waves"] < 0.7 * spread.stats["rows_evaluated"]


def test_progress_tells_rows_by_worker(client):
    seen = []
    bigsap.solve(called("row"), cluster=client, callback=seen.append, callback_every=0)
    assert any(sum(p.workers.values()) > 0 for p in seen)
    assert all(isinstance(p.workers, dict) for p in seen)


@pytest.mark.parametrize("cache", [None, 1 << 15])
def test_an_error_names_row_and_worker(client, cache):
    with pytest.raises(bigsap.errors.CallbackError, match=r"row 37.*on worker tcp://") as caught:
        bigsap.solve(called("failing"), cluster=client, cache=cache, method="compressed")
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


@pytest.mark.parametrize(("name", "kind", "row"), [("failing", "row", 37), ("failing_pair", "value", 20)])
def test_an_error_carries_its_row(name, kind, row):
    """Not the first of its block: a block that begins earlier may fail in a later row."""
    with pytest.raises(bigsap.errors.CallbackError) as caught:
        called(name, 100, kind=kind).read(np.array([3, row, 90]), slice(0, 100), np.empty((3, 100)))
    assert pickle.loads(pickle.dumps(caught.value)).row == row


def test_an_error_names_the_column(client):
    with pytest.raises(bigsap.errors.CallbackError, match=r"row 20, column 5 \(on worker"):
        bigsap.solve(called("failing_pair", 60, kind="value"), cluster=client)


@pytest.mark.parametrize("cache", [None, 1 << 15])
def test_an_invalid_cost_is_named(client, cache):
    with pytest.raises(bigsap.InvalidCostError, match=r"cost\[41, 3\] is nan") as caught:
        bigsap.solve(called("nan_row"), cluster=client, cache=cache, method="compressed")
    assert (caught.value.row, caught.value.column) == (41, 3)


def test_costs_that_cannot_be_sent(client):
    lock = threading.Lock()

    def row(i):
        with lock:
            return np.zeros(100)

    cost = bigsap.from_function(row, (100, 100), kind="row", compiled=False)
    wire = socket.socket()
    try:
        cost.args = (wire,)
        with pytest.raises(bigsap.OptionError, match="cannot be sent"):
            bigsap.solve(cost, cluster=client)
    finally:
        wire.close()


def test_what_is_no_cluster():
    for wrong in (3, "", object()):
        with pytest.raises(bigsap.OptionError, match="cluster must be"):
            bigsap.solve(called("row", 30), cluster=wrong)
    with pytest.raises(bigsap.OptionError, match="CPUs"):
        bigsap.solve(called("row", 30), cluster="local", device="cuda")


def test_limits(client, tmp_path, clock):
    gated = Gated(tmp_path, 200, 50)
    thread = gated.then(lambda: clock.sleep(1.0))
    result = bigsap.solve(gated.cost, cluster=client, time_limit=0.5)
    thread.join()
    assert result.status == "time_limit"
    gated.gate.shut()
    event = threading.Event()
    thread = gated.then(event.set)
    result = bigsap.solve(gated.cost, cluster=client, cancel=event, certify="pairs")
    thread.join()
    assert result.status == "cancelled"


@pytest.mark.slow
def test_workers_die_and_others_join(client, tmp_path):
    """Two in turn, each with rows that it had begun."""
    gated = Gated(tmp_path, 300, 250)
    options = {"method": "compressed", "cache": few_rows(300)}
    killed = []

    def kill():
        for _ in range(2):
            pid = until(lambda: next((one for one in gated.waiting() if one not in killed), None))
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)

    thread = gated.then(kill)
    spread = bigsap.solve(gated.cost, cluster=client, **options)
    thread.join()
    client.wait_for_workers(2, timeout=200)
    assert same(bigsap.solve(gated.alone, **options), spread)
    assert len(killed) == 2


@pytest.mark.slow
def test_a_worker_that_dies_with_what_all_need(cluster, client, tmp_path, monkeypatch):
    """A scheduler that allows no failures, as the service's, gives such a task up at once."""
    cost = called("row", 120)
    options = {"method": "compressed", "cache": few_rows(120)}
    monkeypatch.setattr(cluster.scheduler, "allowed_failures", 0)
    dying = functools.partial(cluster_costs.die_first, str(tmp_path / "died"))
    monkeypatch.setattr(on_worker, "hold", dying)
    spread = bigsap.solve(cost, cluster=client, **options)
    client.wait_for_workers(2, timeout=200)
    assert (tmp_path / "died").exists()
    assert same(bigsap.solve(cost, **options), spread)


def test_a_worker_that_hangs(client, tmp_path, monkeypatch):
    """It is not known to be lost, and what it had is asked of others, not in every wave.

    On a busy machine others may be late as well, and answer then.
    """
    monkeypatch.setattr(wave_module, "_LEFT_ALONE_SECONDS", 2 * HANG_S)
    left, usual = [], wave_module.WaveBlocks._leave_alone

    def leave_alone(wave, seat):
        left.append(seat)
        usual(wave, seat)

    monkeypatch.setattr(wave_module.WaveBlocks, "_leave_alone", leave_alone)
    gated = Gated(tmp_path, 300, 60, seed=13)
    options = {"method": "compressed", "cache": few_rows(300)}
    client.wait_for_workers(2, timeout=200)
    seats = {pid: seat for seat, pid in client.run(os.getpid).items()}
    stopped = []

    def stop():
        stopped.append(gated.waiting()[0])
        os.kill(stopped[0], signal.SIGSTOP)

    thread = gated.then(stop)
    try:
        spread = bigsap.solve(gated.cost, cluster=client, **options)
    finally:
        thread.join()
        with suppress(ProcessLookupError):  # a scheduler may end a worker that it does not hear
            os.kill(stopped[0], signal.SIGCONT)
        client.wait_for_workers(2, timeout=200)
    assert same(bigsap.solve(gated.alone, **options), spread)
    assert spread.stats["cluster"]["again"] > 0
    # None where the scheduler has ended it: then its blocks go to others at once.
    assert left.count(seats[stopped[0]]) < spread.stats["cluster"]["waves"]


@pytest.mark.slow
def test_a_lost_scheduler_ends_with_a_checkpoint(client, tmp_path):
    file = tmp_path / "solve.ckpt"
    gated = Gated(tmp_path, 300, 250, seed=8)
    cost, options = gated.cost, {"method": "compressed", "cache": few_rows(300)}
    own = local(1)
    try:
        thread = gated.then(lambda: own.close(timeout=5))
        with pytest.raises(bigsap.errors.ClusterError):
            bigsap.solve(cost, cluster=own.scheduler_address, checkpoint=file, **options)
        thread.join()
    finally:
        own.close()
    one = bigsap.solve(gated.alone, **options)
    kept = file.read_bytes()
    for cluster in (None, client):
        file.write_bytes(kept)
        resumed = bigsap.resume(file, cost, cache=few_rows(300), cluster=cluster)
        assert same(one, resumed)
        assert resumed.stats["resumed"] == 1


def test_resumed_with_a_cluster(client, tmp_path):
    file = tmp_path / "solve.ckpt"
    cost = called("row", 300, seed=9)
    options = {"method": "compressed", "cache": few_rows(300)}
    one = bigsap.solve(cost, **options)

    def stop(progress):
        if progress.stage == "search":
            raise StopIteration

    stopped = bigsap.solve(cost, callback=stop, callback_every=0, checkpoint=file, **options)
    assert stopped.status == "cancelled"
    assert same(one, bigsap.resume(file, cost, cache=few_rows(300), cluster=client))


def test_nothing_of_it_is_imported_without_a_cluster():
    code = (
        "import sys, numpy as np, bigsap\n"
        "bigsap.solve(lambda i: np.arange(40.0) * (i % 7), shape=(40, 40), method='compressed')\n"
        "print({'distributed', 'dask', 'cloudpickle', 'tornado'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"
