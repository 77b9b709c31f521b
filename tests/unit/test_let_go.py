"""A solve that is over lets go of what it held, without waiting for the collector."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import bigsap
from bigsap.progress import Stopped
from bigsap.proof.row_pass import stream
from bigsap.proof.threads import share_out
from bigsap.run.run import Run
from bigsap.sources import as_source
from bigsap.strategies import whole_rows


@pytest.mark.some(1)
@pytest.mark.parametrize("method", ["compressed", "ssp", "hungarian"])
def test_nothing_of_a_stopped_solve_waits_for_the_collector(tmp_path: Path, method: str) -> None:
    """What stops a solve carries all frames on the way: none of them may hold it in turn."""
    rng = np.random.default_rng(0)
    costs = bigsap.points(rng.random((2100, 6)), rng.random((2100, 6)), "euclidean")

    def stopped() -> bigsap.Result:
        cancel = threading.Event()

        def look(progress: bigsap.Progress) -> None:
            if progress.stage == "search":
                cancel.set()

        return bigsap.solve(
            costs,
            method=method,
            threads=2,
            checkpoint=tmp_path / "run.ckpt",
            callback=look,
            callback_every=0,
            cancel=cancel,
        )

    stopped()  # compiles what is needed: that leaves frames in cycles, ours among them
    gc.collect()
    gc.disable()
    try:
        result = stopped()
        assert not [one for one in gc.get_objects() if type(one) is Run]
    finally:
        gc.enable()
    assert result.status == "cancelled"


def test_frames_that_hold_what_stopped_them_are_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """As those do that bring an error from where a device was waited for."""

    def stopped(*_: object, **__: object) -> None:
        raised = Stopped("cancelled")
        raise raised

    costs = np.random.default_rng(0).random((60, 60))
    bigsap.solve(costs, method="ssp", start="estimate", threads=1)
    monkeypatch.setattr(whole_rows, "run", stopped)
    gc.collect()
    gc.disable()
    try:
        result = bigsap.solve(costs, method="ssp", start="estimate", threads=1)
        assert not [one for one in gc.get_objects() if type(one) is Run]
    finally:
        gc.enable()
    assert result.status in ("cancelled", "optimal")


class _Mine(Exception):
    pass


def _fail(*_: object) -> None:
    raise _Mine


def _in_blocks(threads: int) -> None:
    stream(as_source(np.zeros((9, 9))), lambda: _fail, threads=threads, block_bytes=72)


def _in_shares(threads: int) -> None:
    looked = threading.Event()

    def look() -> None:
        looked.set()
        raise _Mine

    def some(start: int, stop: int, pause: Callable[[], None]) -> bool:
        if threads > 1:  # the calling thread looks meanwhile
            looked.wait(200)
        pause()
        return True

    share_out(1000, 10, threads, look, some)


@pytest.mark.some(2)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("call", [_in_blocks, _in_shares])
def test_errors_from_other_threads_do_not_wait_for_the_collector(
    call: Callable[[int], None], threads: int
) -> None:
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(_Mine) as caught:
            call(threads)
        del caught
        assert not [one for one in gc.get_objects() if type(one) is _Mine]
    finally:
        gc.enable()
