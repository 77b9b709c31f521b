"""How many pairs a call of compiled code is asked for: what fits into a tenth of a second."""

from __future__ import annotations

import numpy as np
import pytest

from bigsap.sources import compiled
from bigsap.sources.metrics import points


class Calls(list):
    """The pairs of each call; seconds: what each takes besides."""

    seconds = 0.0


@pytest.fixture
def calls(monkeypatch, clock):
    made, usual = Calls(), compiled._fill_rows

    def told(address, context, rows, start, stop, out, stride):
        made.append(rows.size * (stop - start))
        clock.sleep(made.seconds)
        usual(address, context, rows, start, stop, out, stride)

    monkeypatch.setattr(compiled, "_fill_rows", told)
    return made


@pytest.fixture
def source():
    x = np.random.default_rng(0).random((64, 1))
    return points(x, np.random.default_rng(1).random((1 << 15, 1)))


def read(source, n_rows, width):
    source.read(np.arange(n_rows), slice(0, width), np.empty((n_rows, width)))


def test_single_pairs_tell_nothing_of_many(calls, source):
    for _ in range(50):
        read(source, 1, 1)
    calls.clear()
    read(source, 1, 1 << 15)
    assert calls[0] <= 1 << 10


def test_slow_pairs_are_few_at_a_time_and_stay_so(calls, source):
    calls.seconds = 0.05
    read(source, 1, 1 << 11)
    assert max(calls) <= 1 << 11
    assert source.fill().pace[0] <= 1 << 13
    calls.seconds = 0.3
    calls.clear()
    read(source, 1, 64)
    assert source.fill().pace[0] <= 64
    calls.clear()
    calls.seconds = 0.0
    read(source, 1, 64)
    assert calls[0] <= 16
