"""What is sent between a solve and its workers: prices, their changes, and rows that are kept."""

from __future__ import annotations

import itertools
from collections import OrderedDict

import numpy as np
import pytest

import bigsap
from bigsap.engine.core import state as S
from bigsap.engine.lists.on_workers import Making, SentPrices, _packed, lists_of
from bigsap.sources.cluster import lookups, on_worker
from bigsap.sources.cluster.on_worker import Built, KeptOnWorker
from bigsap.sources.cluster.row_blocks import WaveBlocks
from bigsap.sources.cluster.sharing import Line, applied, changes
from bigsap.sources.cluster.workers import Workers
from cluster_costs import called, few_rows, same

pytestmark = [
    pytest.mark.filterwarnings("ignore::bigsap.sources.functions.speed.PerformanceWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Sharing:
    """Keeps what would be sent to workers."""

    row_bytes = 8

    def __init__(self):
        self.serials = itertools.count(1)

    def share(self, values):
        return Line(self.serials).version(values)


def message(width, reference, fresh):
    return _packed(np.asarray(width, np.int32), reference, fresh)


def test_changed_prices_make_the_same_lists_as_prices_sent_anew():
    n = 400
    cost = called("row", n)
    built = Built(cost, KeptOnWorker(cost, 0))
    generator = np.random.default_rng(11)
    blocked = S.blocked_price(np.dtype(np.float64))
    sharing = Sharing()
    sent = SentPrices(sharing, blocked)
    v = -generator.random(n) / 10
    first = sent.of(v, v.copy())
    assert sent.of(v, v.copy()) is first
    some = generator.permutation(n)[:8]
    v[some[:6]] -= 0.3
    open_price = v.copy()
    open_price[some[4:]] = blocked
    now = sent.of(v, open_price)
    since = now.changes(first.serial, first.values)
    assert since.nbytes < 8 * 8 + n // 8 + 100
    anew = SentPrices(sharing, blocked).of(v, open_price)
    assert anew.line is not now.line
    rows = np.arange(0, n, 3)
    making = Making("<f8", 50, 0, False, False)
    rest = message(np.full(rows.size, 50), np.zeros(rows.size), np.ones(rows.size, bool))

    def lists(values):
        return [a.tobytes() for a in lists_of(built, values, rows, making, (), rest)]

    assert lists(applied(first.values, since)) == lists(anew.values) != lists(first.values)
    # Columns that were let go of, at the same prices: another version.
    freed = sent.of(v, v.copy())
    assert freed.serial != now.serial
    assert freed.values.tobytes() == SentPrices(sharing, blocked).of(v, v.copy()).values.tobytes()


@pytest.mark.parametrize("kind", ["u4", "u8"])
def test_changes_give_every_bit_back(kind):
    generator = np.random.default_rng(12)
    ends = np.array([0, 1, 2 ** (8 * int(kind[1]) - 1), 2 ** (8 * int(kind[1])) - 1], kind)

    def some(size):
        values = generator.integers(0, np.iinfo(kind).max, size, kind, endpoint=True)
        return np.where(generator.random(size) < 0.3, generator.choice(ends, size), values)

    for size in (1, 2, 7, 8, 9, 500):
        for share in (0.0, 0.1, 0.5, 1.0):
            old = some(size)
            new = np.where(generator.random(size) < share, some(size), old)
            assert applied(old, changes(old, new)).tobytes() == new.tobytes()


@pytest.mark.parametrize("why", ["new", "restarted", "late message", "older message"])
def test_a_worker_without_the_version_is_sent_the_whole(why):
    """It never takes changes for what they are not changes of."""
    built = Built(None, None)
    generator = np.random.default_rng(15)
    versions = [Sharing().share(generator.permutation(300).astype(np.uint64))]
    for _ in range(3):
        versions.append(versions[-1].followed_by(generator.permutation(300).astype(np.uint64)))
    one, two, three, four = versions
    there = one.line.there
    if why == "new":
        assert two.message("a") == (None, two.serial, two.values)
        return

    def sent(version):
        found = built.version(*version.message("a"))
        if found is not None:
            there["a"] = version.serial, version.values
        return found

    assert sent(one).tobytes() == one.values.tobytes()
    given_up = two.message("a")
    assert given_up[0] == one.serial
    assert sent(three).tobytes() == three.values.tobytes()
    if why == "restarted":
        built = Built(None, None)
    elif why == "late message":
        assert built.version(*given_up) is None
        assert sent(four).tobytes() == four.values.tobytes()
        return
    else:
        # A whole version arrives after a later one.
        assert built.version(None, two.serial, two.values).tobytes() == two.values.tobytes()
    assert sent(four) is None
    del there["a"]
    assert sent(four).tobytes() == four.values.tobytes()


def test_rows_are_asked_for_once_while_workers_keep_them(client):
    """In one wave after another each goes to the worker that has it, whoever is free."""
    slow, cost = (called(name, 600, seed=14) for name in ("slow_row", "row"))
    options = {"method": "compressed", "cache": few_rows(600), "start": "levels"}
    one, spread = bigsap.solve(cost, **options), bigsap.solve(slow, cluster=client, **options)
    assert same(one, spread)
    counts = spread.stats["cluster"]
    assert counts["rows"] > 1.5 * 600
    assert counts["rows_asked"] <= 1.02 * 600 + counts["again"] * 100


@pytest.mark.parametrize("why", ["nothing built", "rows gone", "other prices"])
def test_a_worker_declines_what_it_does_not_have(monkeypatch, why):
    cost = called("row", 50)
    rows = np.array([3, 4])
    built = Built(cost, KeptOnWorker(cost, 1 << 20))
    out = np.empty((2, 50))
    built.rows.read(rows, slice(0, 50), out)
    values = np.zeros(3, np.uint8)
    built.shared = 7, values
    monkeypatch.setattr(on_worker, "_built", OrderedDict(t=built))
    name = on_worker.rows_of
    whole = on_worker._kept_rows("t", name, (7, 7, None), (rows,), "tcp://here")
    _, asked, address, body = on_worker.opened(whole)
    assert (asked, address) == (0, "tcp://here")
    assert body.tobytes() == out.tobytes()
    given = {
        "nothing built": ("u", name, (None, 7, values), (rows,)),
        "rows gone": ("t", name, (None, 9, values), (np.array([3, 5]),)),
        "other prices": ("t", name, (8, 9, values), (rows,)),
    }[why]
    answer = on_worker._kept_rows(*given, "tcp://here")
    # Where rows are gone the prices are there nevertheless.
    assert answer.size == 0 if why == "rows gone" else answer is None
    assert built.shared == ((9, values) if why == "rows gone" else (7, values))


def test_workers_that_cannot_be_asked_directly_get_tasks(client, monkeypatch):
    """Whatever becomes of the short way: the same bits by the long one."""
    cost = called("row", 400, seed=16)
    options = {"method": "compressed", "cache": few_rows(400)}
    one = bigsap.solve(cost, **options)
    monkeypatch.setattr(lookups.pickle, "dumps", lambda value: b"not what a worker can read")
    assert same(one, bigsap.solve(cost, cluster=client, **options))


def wave_of(rows, keepers, **crew):
    """A wave that is not sent, of two workers; ``row_owners`` of rows 0, 1, ... by number."""
    found = object.__new__(Workers)
    vars(found).update(
        {
            "seats": ["a", "b"],
            "threads": {"a": 1, "b": 1},
            "_known": {"a": 0, "b": 1},
            "row_owners": {"t": np.array(keepers)},
            "forgotten": 0.0,
            "_pace": {("f", True): 0.001},
            "_dear": None,
            "late": {},
            "look": lambda: None,
        }
        | crew
    )
    return WaveBlocks(found, ("t", None), "f", np.array(rows), "list", 8, None, lambda positions: ())


def cut(wave, seat):
    positions, kept = wave._cut(seat)
    return wave.rows[positions].tolist(), kept


def test_what_a_worker_has_kept_is_its_own():
    wave = wave_of([1, 3, 5, 20, 21], [0, 0, 1, 0, -1, 1] + 20 * [-1])
    assert cut(wave, "a") == ([1, 3], True)
    # Rows 16 to 31 are to be b's, but nobody has them.
    assert cut(wave, "a") == ([20, 21], False)
    assert cut(wave, "a") == ([], False)
    assert cut(wave, "b") == ([5], True)
    assert wave._left() == 0
