"""Stretches that a search leaves out: what is noted of them is true, whatever the numbers."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import bigsap
from bigsap.engine.core import state, team
from bigsap.engine.core.record import record
from bigsap.engine.core.state import LANES, RUNS, CodeScale
from bigsap.engine.rows.stretches import code_of, note_lows, plan
from examples_of import examples
from instances import low_rank
from pairwise import each


def new_scale():
    return record(CodeScale, np.dtype(np.float64))


def codes(lows, row):
    """The codes of a row, one after the other."""
    return [int(byte) >> shift & 15 for byte in lows[row] for shift in (0, 4)]


def stretches(values, width):
    return [values[first : first + width].min() for first in range(0, len(values), width)]


@examples(300)
@given(data=st.data(), share=st.sampled_from([1, 2, 4, 8]), full=st.integers(1, 40))
def test_a_stretch_is_left_out_only_if_all_of_it_lies_above_the_limit(data, share, full):
    """Rows of all sizes one after the other, so that the scale moves under what is noted."""
    width = -(-full // (2 * share))
    sizes = data.draw(st.lists(st.sampled_from([1e-30, 0.1, 1, 9, 1e4, 1e30]), min_size=1))
    generator = np.random.default_rng(data.draw(st.integers(0, 1000)))
    lows, scale = np.zeros((len(sizes), share), np.uint8), new_scale()
    minima = []
    for row, size in enumerate(sizes):
        low = size * generator.standard_exponential(full) ** 3
        low[generator.random(full) < 0.2] = generator.choice([0, -size, np.inf])
        minima.append(low)
        note_lows(row, low, full, width, lows, scale)
        # What one row does to the scale is little; the test makes up for that.
        scale.centre += generator.integers(-(1 << 25), 1 << 25)
    runs = np.empty(RUNS, np.int64)
    for row, low in enumerate(minima):
        noted, true = codes(lows, row), stretches(low, width)
        for limit in [*true, *(true * generator.uniform(0.5, 2, len(true))), -1.0, 0.0]:
            if not np.isfinite(limit):
                continue
            code = code_of(limit, scale.origin)
            end = plan(row, code, full, width, lows, runs, 4)
            read = np.zeros(full, bool)
            for first, stop in runs[4:end].reshape(-1, 2):
                assert 0 <= first < stop <= full
                assert not read[: first + 1][-2:].any()  # one run does not touch another
                read[first:stop] = True
            np.testing.assert_array_equal(read, np.repeat(np.array(noted[: len(true)]) <= code, width)[:full])
            assert read[low <= limit].all()


COSTS = {
    "random": lambda n, g: g.random((n, n)),
    "points": lambda n, g: ((g.random((n, 1, 2)) - g.random((1, n, 2))) ** 2).sum(2),
    "integers": lambda n, g: g.integers(0, n, (n, n)).astype(float),
    "ties": lambda n, g: g.integers(0, 5, (n, n)),
    "shifted": lambda n, g: g.random((n, n)) + 1e4 * g.random((n, 1)),
    "all but lost": lambda n, g: g.random((n, n)) * 1e-3 + 1e12 * g.random((n, 1)),
    "wide int64": lambda n, g: g.integers(-(10**14), 10**14, (n, n)),
    "float32": lambda n, g: g.random((n, n), np.float32),
    "uint8": lambda n, g: g.integers(0, 256, (n, n), np.uint8),
    "one large row": lambda n, g: np.where(np.arange(n)[:, None] == 3, 1e30, g.random((n, n))),
    "forbidden": lambda n, g: np.where(g.random((n, n)) < 0.5, np.inf, g.random((n, n))),
    "rank 2": lambda n, g: np.ascontiguousarray(low_rank(n, 2)),
}


@pytest.mark.some(2)
@each(kind=COSTS, maximize=[False, True])
def test_leaving_stretches_out_changes_nothing(kind, maximize, monkeypatch):
    n = 800
    cost = COSTS[kind](n, np.random.default_rng(n))
    if maximize:
        cost = np.where(np.isinf(cost), -cost, cost) if cost.dtype.kind == "f" else cost
    monkeypatch.setattr(state, "ROOM", 0)
    whole = bigsap.solve(cost, method="ssp", threads=2, maximize=maximize)
    assert whole.stats["pairs_skipped"] == 0
    monkeypatch.undo()
    monkeypatch.setattr(team, "available_threads", lambda: 16)
    # On a busy machine fewer threads would go on, and forget what they skip.
    monkeypatch.setattr(team.Contention, "judge", lambda *_: None)
    # More threads than cores take long: for costs that need few scans.
    for threads in (1, 2, 3, 9) if kind == "ties" else (1, 2):
        result = bigsap.solve(cost, method="ssp", threads=threads, maximize=maximize)
        assert result.status == "optimal"
        np.testing.assert_array_equal(result.col4row, whole.col4row)
        np.testing.assert_array_equal(result.v, whole.v)
        assert result.stats["rows_scanned"] == whole.stats["rows_scanned"]
        skipped = result.stats["pairs_skipped"]
        assert skipped % LANES == 0
        assert skipped < result.stats["rows_scanned"] * n
        if threads == 9:
            assert skipped == 0  # no room for so many
        elif kind in ("random", "float32", "shifted", "integers"):
            assert skipped > 0.3 * result.stats["rows_scanned"] * n
