"""Rows from a provider on loopback: reads, solves, its description, options, and stops."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import traceback

import numpy as np
import pytest

import bigsap
from bigsap.cli.costspec import open_costs
from bigsap.errors import DtypeError, InputError, OptionError, ShapeError, SourceError, StoreError
from connected import COST, connect
from contracts import SourceContract, read
from gate import HANG_S, until
from provider_faults import PASSING, changed, hang, redirect, status
from remote_provider import Provider

httpx = pytest.importorskip("httpx", reason="extra http")

# -- a good provider -------------------------------------------------------------------


class ProviderContract(SourceContract):
    def options(self):
        return {}

    @pytest.fixture(autouse=True)
    def cleared(self):
        self.opened = []
        yield
        for source, provider in self.opened:
            source.close()
            provider.__exit__()

    def make(self, matrix):
        provider = Provider(matrix).__enter__()
        source = connect(provider, **self.options())
        self.opened.append((source, provider))
        return source


class TestHttpSource(ProviderContract):
    pass


class TestOneRowOneRequest(ProviderContract):
    def options(self):
        return {"block_rows": 1, "in_flight": 1}


class TestWidenedIntegers(ProviderContract):
    def options(self):
        return {"block_rows": 4, "in_flight": 2}

    def matrix(self):
        return np.random.default_rng(5).integers(-9, 9, (13, 9), np.int16)


@pytest.mark.parametrize("name", ["f8", "f4", "f2", "i8", "i4", "i2", "i1", "u8", "u4", "u2", "u1"])
def test_every_dtype_travels(name):
    cost = np.random.default_rng(1).integers(0, 100, (5, 7)).astype(name)
    with Provider(cost) as provider, connect(provider) as source:
        np.testing.assert_array_equal(read(source, range(5)), cost)


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0, 0), (1, 1)])
def test_small_shapes(shape):
    with Provider(np.ones(shape)) as provider, connect(provider) as source:
        assert read(source, range(shape[0])).shape == shape


def test_rows_travel_once_in_ascending_order(provider):
    with connect(provider) as source:
        np.testing.assert_array_equal(read(source, [7, 3, 7, 30, 3]), COST[[7, 3, 7, 30, 3]])
    assert provider.asked == [[3, 7, 30]]


def test_providers_max_rows_is_kept():
    with Provider(COST, max_rows=3) as provider, connect(provider, block_rows=16) as source:
        np.testing.assert_array_equal(read(source, range(40)), COST)
        assert max(map(len, provider.asked)) == 3


def test_several_requests_in_flight_and_no_more(provider):
    def together(handler, ids):
        until(lambda: provider.most_active >= 3)
        handler.send_rows(provider.records(ids))

    provider.always["POST"] = together
    with connect(provider, block_rows=2, in_flight=3) as source:
        read(source, range(40))
    assert provider.most_active == 3


def test_connections_are_kept_open(provider):
    with connect(provider, in_flight=2, block_rows=1) as source:
        read(source, range(40))
    assert provider.n_posts() == 40
    assert provider.connections <= 2


@pytest.mark.parametrize("step", [1, -1])
def test_sequential_rows_are_fetched_ahead_in_blocks(provider, step):
    with connect(provider, block_rows=8) as source:
        for row in range(40)[::step]:
            np.testing.assert_array_equal(read(source, [row]), COST[[row]])
        assert source.counts["rows_unused"] == 0
    assert provider.n_posts() < 20
    assert provider.served == dict.fromkeys(range(40), 1)


def test_an_abandoned_sequence_wastes_no_more_than_it_used(provider):
    with connect(provider, block_rows=8) as source:
        for row in range(6):
            read(source, [row])
        read(source, [30])
        until(lambda: not source._fetcher._running)  # nor is anything hinted any more
        assert source.counts["rows_unused"] <= 6
        assert source.counts["rows"] == sum(provider.served.values())


def test_random_rows_cost_exactly_themselves(provider):
    rows = np.random.default_rng(0).permutation(20) * 2
    with connect(provider) as source:
        for row in rows:
            read(source, [row])
    assert provider.served == dict.fromkeys(rows.tolist(), 1)


def test_hinted_rows_come_in_the_background(provider):
    with connect(provider, block_rows=8) as source:
        for row in (9, 3, 21):
            source.prefetch(row)
        until(lambda: source.counts["rows"] == 3)
        before = provider.n_posts()
        np.testing.assert_array_equal(read(source, [21, 3, 9]), COST[[21, 3, 9]])
        assert provider.n_posts() == before


def test_wrong_hints_are_dropped_in_the_end(provider):
    with connect(provider, block_rows=2, in_flight=1) as source:
        for row in range(20):
            source.prefetch(row)
        for row in (30, 33, 37, 39):
            np.testing.assert_array_equal(read(source, [row]), COST[[row]])
        until(lambda: source._fetcher.n_ahead <= source._fetcher.capacity)


# -- end to end ------------------------------------------------------------------------


@pytest.mark.parametrize("cache", [None, 10 * 25 * 8])
def test_solve_and_count(provider, cache):
    with connect(provider, block_rows=4) as source:
        result = bigsap.solve(source, cache=cache, threads=1)
        counts = source.counts
    expected = bigsap.solve(COST)
    assert result.fun == expected.fun
    assert result.status == "optimal"
    certificate_rows = result.stats["certificate_pairs"] // 25
    served = sum(provider.served.values())
    assert served == counts["rows"]
    proof = certificate_rows - result.stats["cache_slots"]  # kept rows are not asked for again
    assert served == result.stats["rows_evaluated"] + proof + counts["rows_unused"]
    if cache is None:
        assert provider.served == dict.fromkeys(range(40), 1)


def test_solve_through_troubles(provider):
    rng = np.random.default_rng(2)
    kinds = list(PASSING.values())
    provider.faults["POST"].extend(
        kinds[rng.integers(len(kinds))] if rng.random() < 0.3 else None for _ in range(400)
    )
    with connect(provider, block_rows=4, retries=30) as source:
        result = bigsap.solve(source, cache=10 * 25 * 8, threads=1)
        assert source.counts["retries"] > 5
    np.testing.assert_array_equal(result.col4row, bigsap.solve(COST).col4row)


def test_solve_ends_when_the_data_changes(provider):
    provider.faults["POST"].extend([None] * 5)
    provider.always["POST"] = changed
    with connect(provider, block_rows=2) as source:
        with pytest.raises(StoreError, match="data changed"):
            bigsap.solve(source)
        # For good: rows of both versions must not be mixed.
        provider.always["POST"] = None
        with pytest.raises(StoreError, match="data changed"):
            read(source, [0])


def test_client_of_ones_own(provider):
    with httpx.Client(headers={"Authorization": "Bearer 1"}, follow_redirects=True) as client:
        with connect(provider, client=client, headers={"X-Two": "2"}) as source:
            read(source, [1])
        assert not client.is_closed
    _, _, headers = provider.seen[-1]
    assert headers["Authorization"] == "Bearer 1"
    assert headers["X-Two"] == "2"


# -- the description -------------------------------------------------------------------


def says(**changes):
    def fault(handler, ids):
        given = handler.provider.description() | changes
        given = {key: value for key, value in given.items() if value is not ...}
        handler.send(json.dumps(given).encode(), "application/json; charset=utf-8")

    return fault


def text(body, kind="application/json"):
    return lambda handler, ids: handler.send(body, kind)


DESCRIPTIONS = {
    "garbage": (text(b"{rows"), StoreError, "not JSON"),
    "deep": (text(b"[" * 60_000), StoreError, "not JSON"),
    "a list": (text(b"[1]"), StoreError, "no JSON object"),
    "huge": (text(b" " * 70_000 + b"{}"), StoreError, "longer than 65536 bytes"),
    "html": (text(b"{}", "text/html"), StoreError, "Content-Type 'text/html'"),
    "no shape": (says(shape=...), StoreError, "lacks 'shape'"),
    "negative": (says(shape=[-1, 2]), StoreError, "'shape' is not"),
    "booleans": (says(shape=[True, True]), StoreError, "'shape' is not"),
    "objects": (says(dtype="O"), StoreError, "'dtype' is not one of <f8"),
    "empty fingerprint": (says(fingerprint=""), StoreError, "'fingerprint' is not"),
    "two lines": (says(fingerprint="a\nb"), StoreError, "'fingerprint' is not"),
    "max_rows": (says(max_rows=0), StoreError, "'max_rows' is not"),
    "other shape": (says(shape=[25, 40]), ShapeError, r"shape \(25, 40\), not shape=\(40, 25\)"),
    "other dtype": (says(dtype="<f4"), DtypeError, "dtype float32, not dtype=float64"),
    "redirect": (redirect(302), SourceError, "redirects .302 Found., which is refused"),
    "404": (status(404), SourceError, "404 Not Found"),
}


@pytest.mark.parametrize("name", DESCRIPTIONS)
def test_bad_description(provider, name):
    fault, kind, match = DESCRIPTIONS[name]
    provider.always["GET"] = fault
    with pytest.raises(kind, match=match) as caught:
        connect(provider)
    assert provider.host in str(caught.value)
    assert len(provider.seen) == 1


def test_nobody_there():
    with pytest.raises(SourceError, match=r"the description from http://127\.0\.0\.1:9/x: .*2 att"):
        bigsap.from_http("http://127.0.0.1:9/x", (1, 1), "f8", retries=1)


# -- the call --------------------------------------------------------------------------

BAD_CALLS = [
    ({"url": 7}, OptionError, "url must be a string"),
    ({"url": "ftp://host/x"}, OptionError, "url must look like"),
    ({"url": "http://host:99999/"}, OptionError, "url must look like"),
    ({"url": "http://host/\n"}, OptionError, "url must look like"),
    ({"shape": (1, 2, 3)}, ShapeError, "3 dimension"),
    ({"shape": (1, 1 << 28)}, ShapeError, "exceeds 2 GiB"),
    ({"dtype": "complex128"}, DtypeError, "cannot be sent"),
    ({"dtype": None}, DtypeError, "say what the provider sends"),
    ({"dtype": "no"}, DtypeError, "is no numpy dtype"),
    ({"timeout": float("nan")}, OptionError, "timeout must be"),
    ({"retries": -1}, OptionError, "retries must be"),
    ({"in_flight": 0}, OptionError, "in_flight must be an integer from 1 to 64"),
    ({"block_rows": 0}, OptionError, "block_rows must be"),
    ({"headers": "x"}, OptionError, "headers must be a mapping"),
    ({"headers": {"Token": "secret\n"}}, OptionError, "headers.'Token'. is no legal"),
    ({"headers": {"Token": "secret\u00e9"}}, OptionError, "headers.'Token'. is no legal"),
    ({"headers": {"To ken": "secret"}}, OptionError, "a name in headers"),
    ({"client": object()}, OptionError, r"client must be a httpx\.Client, got object"),
]


@pytest.mark.parametrize(("change", "error", "match"), BAD_CALLS)
def test_bad_arguments(change, error, match):
    call = {"url": "http://127.0.0.1:9/", "shape": (2, 2), "dtype": "f8"} | change
    with pytest.raises(error, match=match) as caught:
        bigsap.from_http(**call)
    assert "secret" not in str(caught.value)


def test_credentials_are_used_and_never_shown(provider):
    url = f"http://me:secret1@{provider.host}/rows?key=secret2"
    headers = {"X-Token": "secret3"}
    provider.always["POST"] = status(500)
    with bigsap.from_http(url, COST.shape, "f8", headers=headers, retries=0) as source:
        with pytest.raises(SourceError) as caught:
            read(source, [1])
        seen = "".join(traceback.format_exception(caught.value)) + repr(source)
    assert "secret" not in seen
    assert f"http://{provider.host}/rows?..." in seen
    _, _, sent = provider.seen[-1]
    assert sent["X-Token"] == "secret3"
    assert sent["Authorization"].startswith("Basic ")


def test_illegal_rows(provider):
    with connect(provider) as source:
        for row in (-1, 40):
            with pytest.raises(SourceError, match=f"row {row} is outside"):
                read(source, [row])
    assert provider.n_posts() == 0


def test_missing_httpx_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "httpx", None)
    with pytest.raises(OptionError, match=r'pip install "bigsap\[http\]"'):
        bigsap.from_http("http://127.0.0.1:9/", (1, 1), "f8")


# -- stopping --------------------------------------------------------------------------


class Enough(Exception):
    pass


def test_a_waiting_read_can_be_left(provider):
    provider.always["POST"] = hang
    with connect(provider) as source:

        def check():
            if provider.active:
                raise Enough

        source.while_waiting(check)
        with pytest.raises(Enough):
            read(source, range(10))
        assert provider.active  # which would hang on
        source.while_waiting(None)
        provider.always["POST"] = None
        provider.released.set()
        np.testing.assert_array_equal(read(source, [3]), COST[[3]])


def test_checks_belong_to_their_thread(provider):
    with connect(provider) as source:

        def refuse():
            raise Enough

        other = threading.Thread(target=source.while_waiting, args=(refuse,))
        other.start()
        other.join()
        provider.delay = 0.2
        np.testing.assert_array_equal(read(source, [3]), COST[[3]])


def test_ctrl_c_while_the_provider_hangs(provider):
    provider.always["POST"] = hang
    code = (
        "import bigsap, numpy as np\n"
        f"source = bigsap.from_http({provider.url!r}, (40, 25), 'f8', timeout={2 * HANG_S})\n"
        "print('ready', flush=True)\n"
        "source.read(np.arange(3), slice(0, 25), np.empty((3, 25)))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        until(provider.n_posts)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=HANG_S)
    assert provider.active  # it has not answered
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


def test_close_while_waiting_and_reading_after_it(provider):
    provider.always["POST"] = hang
    source = connect(provider, in_flight=1)
    failures = []

    def reader():
        try:
            read(source, range(10))
        except SourceError as error:
            failures.append(error)

    thread = threading.Thread(target=reader)
    thread.start()
    until(provider.n_posts)
    source.close()
    source.close()
    thread.join(HANG_S)
    assert [str(error) for error in failures] == ["this source is closed"]
    provider.released.set()
    with pytest.raises(SourceError, match="this source is closed"):
        read(source, [0])
    source.prefetch(3)


def test_forgotten_source_ends_its_threads(provider):
    source = connect(provider, block_rows=1)
    read(source, range(20))
    threads = source._fetcher._threads
    assert any(thread.is_alive() for thread in threads)
    del source
    gc.collect()
    for thread in threads:
        thread.join(HANG_S)
    assert not any(thread.is_alive() for thread in threads)


def test_after_a_fork(provider, monkeypatch):
    with connect(provider) as source:
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            source.prefetch(1)
            with pytest.raises(SourceError, match="forked"):
                read(source, [0])
        np.testing.assert_array_equal(read(source, [0]), COST[[0]])


# -- cost spec -------------------------------------------------------------------------


def test_cost_spec(provider, tmp_path):
    spec = {
        "type": "http_rows",
        "url": provider.url,
        "shape": [40, 25],
        "dtype": "<f8",
        "headers": {"X-Token": "t"},
        "timeout": 200,
        "retries": 1,
        "in_flight": 2,
        "block_rows": 8,
    }
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(spec))
    with open_costs(file) as source:
        np.testing.assert_array_equal(read(source, range(40)), COST)
    assert provider.seen[0][2]["X-Token"] == "t"


BAD_SPECS = [
    ({"url": 3}, "/url: must be a string"),
    ({"shape": [1]}, r"/shape: must be \[n_rows, n_columns\]"),
    ({"headers": {"A": 1}}, "/headers/A: must be a string"),
    ({"retries": 1.5}, "/retries: must be an integer"),
]


@pytest.mark.parametrize(("change", "match"), BAD_SPECS)
def test_bad_cost_spec(tmp_path, change, match):
    good = {"type": "http_rows", "url": "http://127.0.0.1:9/", "shape": [1, 1], "dtype": "f8"}
    file = tmp_path / "spec.json"
    file.write_text(json.dumps(good | change))
    with pytest.raises(InputError, match=match):
        open_costs(file)
