"""Rows from a provider on loopback: what works, and every way in which a provider fails."""

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
from bigsap.sources.http import wire as remote_wire
from contracts import SourceContract, read
from gate import HANG_S, until
from remote_provider import Provider

httpx = pytest.importorskip("httpx", reason="extra http")

COST = np.random.default_rng(11).uniform(0, 9, (40, 25))


@pytest.fixture(autouse=True)
def quick_pauses(monkeypatch):
    monkeypatch.setattr(remote_wire, "FIRST_PAUSE", 0.01)


@pytest.fixture
def provider():
    with Provider(COST) as made:
        yield made


def connect(provider, **options):
    cost = provider.cost
    options = {"timeout": HANG_S} | options
    return bigsap.from_http(provider.url, cost.shape, cost.dtype, **options)


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


# -- faults that pass ------------------------------------------------------------------


def status(code, **headers):
    return lambda handler, ids: handler.send(b"no", "text/plain", code, **headers)


def cut_body(handler, ids):
    body = handler.provider.records(ids)
    handler.send_head(
        200, handler.labels() | {"Content_Type": "application/octet-stream", "Content_Length": str(len(body))}
    )
    handler.wfile.write(body[: len(body) // 2])
    handler.drop()


def cut_chunked(handler, ids):
    body = handler.provider.records(ids)
    handler.send_head(
        200, handler.labels() | {"Content_Type": "application/octet-stream", "Transfer_Encoding": "chunked"}
    )
    half = body[: len(body) // 2]
    handler.wfile.write(b"%x\r\n%s\r\n" % (len(half), half))
    handler.drop()


def cut_without_length(handler, ids):
    body = handler.provider.records(ids)
    handler.send_head(
        200, handler.labels() | {"Content_Type": "application/octet-stream", "Connection": "close"}
    )
    handler.wfile.write(body[:-8])
    handler.drop()


def hang_up(handler, ids):
    handler.drop()


def reset(handler, ids):
    handler.drop(reset=True)


def no_http(handler, ids):
    handler.wfile.write(b"what?\r\n\r\n")
    handler.drop()


PASSING = {
    "500": status(500),
    "503": status(503, Retry_After="0"),
    "503 later": status(503, Retry_After="Wed, 21 Oct 2015 07:28:00 GMT"),
    "429": status(429),
    "cut body": cut_body,
    "cut chunked": cut_chunked,
    "cut without length": cut_without_length,
    "hang up": hang_up,
    "reset": reset,
    "no http": no_http,
}


@pytest.mark.parametrize("name", PASSING)
def test_trouble_that_passes(provider, name):
    provider.faults["POST"].extend([PASSING[name]] * 2)
    with connect(provider, retries=2) as source:
        np.testing.assert_array_equal(read(source, [4, 2]), COST[[4, 2]])
        assert source.counts["retries"] == 2


@pytest.mark.parametrize("name", PASSING)
def test_trouble_that_stays(provider, name):
    provider.always["POST"] = PASSING[name]
    with connect(provider, retries=2) as source, pytest.raises(SourceError) as caught:
        read(source, [4, 2, 9])
    assert provider.n_posts() == 3
    message = str(caught.value)
    assert message.startswith(f"rows 2 to 9 (3 rows) from http://{provider.host}/rows: ")
    assert "3 attempts" in message


@pytest.mark.parametrize("name", PASSING)
def test_trouble_at_the_description(provider, name):
    if not name.startswith("cut"):
        provider.faults["GET"].append(PASSING[name])
        connect(provider).close()
        provider.always["GET"] = PASSING[name]
        with pytest.raises(SourceError, match="the description from"):
            connect(provider, retries=1)


def test_pauses_grow(provider, monkeypatch):
    monkeypatch.setattr(remote_wire, "FIRST_PAUSE", 0.08)
    provider.faults["POST"].extend([status(500)] * 3)
    with connect(provider) as source:
        read(source, [0])
    times = [at for method, at, _ in provider.seen if method == "POST"]
    gaps = np.diff(times)
    assert (gaps >= [0.04, 0.08, 0.16]).all()


def test_retry_after_is_honoured_up_to_a_bound(provider, monkeypatch):
    real, pauses = remote_wire.Wire._pause, []

    def pause(self, attempt, after):
        pauses.append(real(self, attempt, after))
        return 0.0

    monkeypatch.setattr(remote_wire.Wire, "_pause", pause)
    with connect(provider) as source:
        provider.faults["POST"].append(status(429, Retry_After="7"))
        read(source, [0])
        provider.faults["POST"].append(status(503, Retry_After="86400"))
        read(source, [0])
    assert pauses == [7.0, remote_wire.LONGEST_RETRY_AFTER]


def hang(handler, ids):
    handler.provider.released.wait(HANG_S)
    handler.drop()


def drip(handler, ids):
    """A byte at a time: every read succeeds in time, the whole never."""
    body = handler.provider.records(ids)
    handler.send_head(
        200, handler.labels() | {"Content_Type": "application/octet-stream", "Content_Length": str(len(body))}
    )
    for k in range(len(body)):
        handler.wfile.write(body[k : k + 1])
        if handler.provider.released.wait(0.05):
            break


def drip_head(handler, ids):
    handler.wfile.write(b"HTTP/1.1 200 OK\r\n")
    while not handler.provider.released.wait(0.05):
        handler.wfile.write(b"a")


@pytest.mark.parametrize("fault", [hang, drip])
def test_slow_provider_is_asked_again(provider, fault):
    """Only what never comes is too late, on any machine: the good answer has all the time."""
    with connect(provider) as source:

        def first(handler, ids):
            source._wire._timeout = HANG_S
            fault(handler, ids)

        provider.faults["POST"].append(first)
        source._wire._timeout = 0.3
        np.testing.assert_array_equal(read(source, [5]), COST[[5]])
        assert source.counts["retries"] >= 1


@pytest.mark.parametrize("fault", [drip, drip_head])
def test_provider_that_stays_slow(provider, fault):
    provider.always["POST"] = fault
    with connect(provider, retries=1) as source:
        source._wire._timeout, source._wire.patience = 0.3, 0.6
        with pytest.raises(SourceError, match=r"row 5 from .*(timeout=0\.3|within 0\.6) s"):
            read(source, [5])
        assert not provider.served
    assert not provider.released.is_set()


# -- faults that are errors at once ----------------------------------------------------


def rows_with(change=lambda body, size: body, **labels):
    """An otherwise good answer: body changed (``size``: bytes of a record), or labels."""

    def fault(handler, ids):
        body = handler.provider.records(ids)
        size = 8 + handler.provider.cost[0].nbytes
        handler.send_rows(change(body, size), **labels)

    return fault


changed = rows_with(BigSAP_Fingerprint="other")


def redirect(code):
    return lambda handler, ids: handler.send(
        b"", None, code, Location=f"http://user:secret@{handler.provider.host}/other"
    )


def endless(handler, ids):
    handler.send_head(
        200, handler.labels() | {"Content_Type": "application/octet-stream", "Transfer_Encoding": "chunked"}
    )
    while not handler.provider.released.is_set():
        handler.wfile.write(b"10000\r\n" + bytes(1 << 16) + b"\r\n")


LASTING = {
    "short": (rows_with(lambda body, size: body[:-8]), "bytes instead of"),
    "endless": (endless, "more than 416 bytes instead of 416"),
    "order": (rows_with(lambda body, size: body[size:] + body[:size]), "row . came where row"),
    "twice": (rows_with(lambda body, size: body[:size] * (len(body) // size)), "row 2 came where"),
    "dtype": (rows_with(BigSAP_Dtype="<i8"), "dtype '<i8' instead of '<f8'"),
    "byte order": (rows_with(BigSAP_Dtype=">f8"), "dtype '>f8' instead of '<f8'"),
    "no fingerprint": (rows_with(BigSAP_Fingerprint=None), "lacks the header BigSAP-Finger"),
    "changed": (changed, "the provider's data changed"),
    "html": (rows_with(Content_Type="text/html"), "Content-Type 'text/html' instead"),
    "gzip": (rows_with(Content_Encoding="gzip"), "Content-Encoding 'gzip'"),
    "301": (redirect(301), "redirects .301 Moved Permanently., which is refused"),
    "302": (redirect(302), "redirects"),
    "404": (status(404), "answered 404 Not Found"),
    "206": (status(206), "answered 206 Partial Content instead of 200"),
}


@pytest.mark.parametrize("name", LASTING)
def test_fault_that_is_an_error(provider, name):
    fault, match = LASTING[name]
    provider.faults["POST"].append(fault)
    with connect(provider) as source:
        out = np.full((2, 25), 5.0)
        with pytest.raises(SourceError, match=match) as caught:
            source.read(np.array([4, 2]), slice(0, 25), out)
        assert (out == 5.0).all()
        assert str(caught.value).startswith("rows 2 to 4 (2 rows) from http://127.0.0.1:")
        assert "secret" not in "".join(traceback.format_exception(caught.value))
    assert provider.n_posts() == 1


@pytest.mark.some(4)
@pytest.mark.parametrize("name", LASTING)
def test_faults_during_a_solve_never_give_an_answer(provider, name):
    fault, _ = LASTING[name]
    provider.faults["POST"].extend([None] * 3)
    provider.always["POST"] = fault
    # Hardly a row is kept, so that the proof asks too: for several at once.
    with connect(provider, block_rows=2) as source, pytest.raises(SourceError):
        bigsap.solve(source, threads=1, cache=8 * 25)


def test_failed_guess_is_no_error(provider):
    """A row ahead that the provider cannot give does not matter until it is needed."""

    def no_row_9(handler, ids):
        if 9 in ids:
            handler.send(b"", None, 404)
        else:
            handler.send_rows(handler.provider.records(ids))

    provider.always["POST"] = no_row_9
    with connect(provider, block_rows=8) as source:
        for row in range(9):
            np.testing.assert_array_equal(read(source, [row]), COST[[row]])
        with pytest.raises(SourceError, match=r"row 9 from .* 404"):
            read(source, [9])
        np.testing.assert_array_equal(read(source, [10]), COST[[10]])


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
    ({"dtype": "complex128"}, DtypeError, "cannot be sent"),
    ({"dtype": None}, DtypeError, "say what the provider sends"),
    ({"dtype": "no"}, DtypeError, "is no numpy dtype"),
    ({"timeout": float("nan")}, OptionError, "timeout must be"),
    ({"retries": -1}, OptionError, "retries must be"),
    ({"in_flight": 0}, OptionError, "in_flight must be an integer from 1 to 64"),
    ({"block_rows": 0}, OptionError, "block_rows must be"),
    ({"headers": "x"}, OptionError, "headers must be a mapping"),
    ({"headers": {"Token": "secret\n"}}, OptionError, "headers.'Token'. is no legal"),
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
