"""The certificate of sources whose rows are read in parts: the same proof, errors and stops."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_certificate import complete, costs_of

from bigsap.errors import BigsapError, CertificateError, InvalidCostError, OverflowRiskError
from bigsap.proof import row_pass as streaming
from bigsap.proof.certificate import certify, certify_infeasible
from bigsap.proof.row_minima import Prices
from bigsap.proof.weights import shifted_weighted
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import Fill
from examples_of import examples
from gate import HANG_S


class InParts:
    """Costs of which parts of rows can be had for less; every pair that is read is counted."""

    def __init__(self, cost):
        self.cost, self.shape, self.dtype = cost, cost.shape, cost.dtype
        self.seen = np.zeros(cost.shape, np.int64)
        self.widest = 0

    def read(self, rows, columns, out):
        out[:] = self.cost[rows, columns]
        self.seen[rows, columns] += 1
        self.widest = max(self.widest, out.shape[1])

    def fill(self):
        return Fill(0, 0, (), in_parts=True)


@examples(80)
@given(
    shape=st.tuples(st.integers(1, 20), st.integers(1, 20)),
    dtype=st.sampled_from(["f8", "f4", "i8", "u1"]),
    maximize=st.booleans(),
    threads=st.integers(1, 3),
    part=st.integers(1, 25),
    seed=st.integers(0, 10**6),
    block_bytes=st.sampled_from([1, 100, 1 << 20]),
    wide=st.booleans(),
    alone=st.booleans(),
)
def test_parts_of_rows_prove_the_same(shape, dtype, maximize, threads, part, seed, block_bytes, wide, alone):
    rng = np.random.default_rng(seed)
    cost = costs_of(rng, shape, dtype)
    if dtype == "i8" and wide:  # where c - v leaves int64, in some parts or in all of them
        cost = np.where(rng.random(shape) < 0.5, 2**62 + 2**61, -(2**62))
    if dtype[0] == "f":
        cost[rng.random(shape) < 0.1] = -np.inf if maximize else np.inf
    v = rng.integers(-(2**62), 2**62, shape[1]) if wide else rng.integers(-9, 9, shape[1])
    matching = None if alone else complete(rng, shape)
    source = InParts(cost)

    def proved(of):
        try:
            return certify(of, matching, v, maximize=maximize, threads=threads, block_bytes=block_bytes)
        except BigsapError as error:
            return str(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "_PART", part)
        mine = proved(source)
    other = proved(ArraySource(cost))
    if isinstance(other, str):
        assert mine == other
        return
    for name in ("fun", "bound", "gap", "optimal", "pairs", "worst_row"):
        assert getattr(mine, name) == getattr(other, name) or np.isnan(getattr(other, name))
    np.testing.assert_array_equal(mine.u, other.u)
    assert (source.seen == 1).all()
    assert source.widest == min(part, shape[1])


@pytest.mark.parametrize("maximize", [False, True])
def test_overflow_in_one_part_is_mended_by_another(maximize, monkeypatch):
    monkeypatch.setattr(streaming, "_PART", 1)
    sign = -1 if maximize else 1
    cost, v = sign * np.array([[1.7e308, 1.0], [1.7e308, 1.0]]), np.array([-1e308, 0.0])
    part, whole = (certify(s, None, v, maximize=maximize) for s in (InParts(cost), ArraySource(cost)))
    assert part.bound == whole.bound
    np.testing.assert_array_equal(part.u, [sign, sign])
    cost[1, 1] = sign * np.inf
    with pytest.raises(OverflowRiskError, match="row 1") as caught:
        certify(InParts(cost), None, v, maximize=maximize)
    assert caught.value.row == 1


@pytest.mark.parametrize("threads", [1, 2])
def test_an_invalid_cost_is_named_in_any_part(threads, monkeypatch):
    monkeypatch.setattr(streaming, "_PART", 10)
    cost = np.ones((50, 64))
    cost[31, 47] = np.nan
    with pytest.raises(InvalidCostError, match=r"cost\[31, 47\] is nan") as caught:
        certify(InParts(cost), None, np.zeros(64), threads=threads, block_bytes=1 << 10)
    assert (caught.value.row, caught.value.column) == (31, 47)
    cost[:] = np.inf
    cost[3, 63] = np.nan
    with pytest.raises(InvalidCostError, match=r"cost\[3, 63\] is nan"):
        certify_infeasible(InParts(cost), [2, 3], threads=threads)
    cost[3, 63] = 1.0
    certify_infeasible(InParts(cost), [1, 2], threads=threads)
    with pytest.raises(CertificateError, match="has 1 allowed"):
        certify_infeasible(InParts(cost), [3], threads=threads)


class Watched(InParts):
    """Tells how wide its parts are; each takes what ``pause`` does."""

    def __init__(self, cost, pause):
        super().__init__(cost)
        self.widths, self.pause = [], pause

    def read(self, rows, columns, out):
        super().read(rows, columns, out)
        self.widths.append(out.shape[1])
        self.pause()


@pytest.mark.parametrize("threads", [1, 2])
def test_a_pass_is_left_between_the_parts_of_a_row(threads, monkeypatch):
    """A row may be long, and its pairs slow."""
    monkeypatch.setattr(streaming, "_PART", 8)
    looked = threading.Event()

    def stop(done):
        looked.set()
        raise KeyboardInterrupt

    def pause():
        if threading.current_thread() is not threading.main_thread():
            assert looked.wait(HANG_S)
            time.sleep(0.001)

    source = Watched(np.ones((4, 8000)), pause)
    with pytest.raises(KeyboardInterrupt):
        certify(source, None, np.zeros(8000), tick=stop, threads=threads)
    assert len(source.widths) < 2000  # of 4,000


def test_every_thread_has_blocks(monkeypatch):
    """Few long rows, and many of few pairs that one thread is done with at once."""
    taken = []

    class Told(InParts):
        def read(self, rows, columns, out):
            super().read(rows, columns, out)
            taken.append(len(rows))

    certify(Told(np.ones((16, 20000))), None, np.zeros(20000), threads=2)
    assert max(taken) == 2
    taken.clear()
    certify(Told(np.ones((100, 100))), None, np.zeros(100), threads=2)
    assert taken == [100]


@pytest.mark.parametrize("low", [False, True])
def test_weighted_prices_are_shifted_so_that_open_columns_have_none(low):
    high = np.array([3.0, 1.0, 2.0, 5.0])
    parts = np.array([0.25, 0.5, 0.125, 0.0]) * 2.0**-60 if low else None
    counts = np.array([1, 2, 1, 0])
    # Cheapest first, columns take 2, 3 and 4 rows in all; with n of these, the next one has room.
    for n, least in ((1, 1), (2, 1), (3, 2), (4, 0), (9, 0)):
        found = shifted_weighted(Prices(high, parts), counts, n)
        exact = high - high[least]
        assert np.array_equal(found.high, np.minimum(exact, 0.0))
        assert found.high[least] == 0.0
    none = shifted_weighted(Prices(high), np.zeros(4, int), 2)
    assert np.array_equal(none.high, np.zeros(4))
