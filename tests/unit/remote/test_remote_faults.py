"""Rows over HTTP from a provider that fails: what passes is asked again, what lasts is an error."""

from __future__ import annotations

import traceback

import numpy as np
import pytest

import bigsap
from bigsap.errors import SourceError, StoreError
from bigsap.sources.cluster.recipes import followed, recipe_of
from bigsap.sources.http import wire as remote_wire
from connected import COST, connect
from contracts import read
from gate import HANG_S
from provider_faults import LASTING, PASSING, drip, drip_head, hang, status

pytest.importorskip("httpx", reason="extra http")

# -- faults that pass ------------------------------------------------------------------


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


@pytest.mark.some(1)
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


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_worker_refuses_data_that_have_changed(provider, wrapped):
    """It opens the provider later than the caller, whose rows are of the data before."""
    pytest.importorskip("cloudpickle", reason="extra cluster")
    with connect(provider) as source:
        recipe = recipe_of(bigsap.scaled(source, 2.0) if wrapped else source)
        followed(recipe)
        provider.fingerprint = "another"
        with pytest.raises(StoreError, match=r"from_http\(.* changed since .* start again"):
            followed(recipe)


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
