"""What a solve allocates beyond a matrix in memory, counted exactly."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import bigsap
from instances import low_rank

BAR = 12.0  # vectors of 8 n bytes, seven of which are the result's: three indices, costs, duals, inverse
CERTIFIED = 50.0  # with room for near pairs, whose memory is taken only when they are noted
OBJECTS = 16 << 10  # records, statistics: whatever does not grow with n


def peak_of(cost, **options):
    """The most bytes that numpy and Python held during the solve, beyond those before it."""
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        result = bigsap.solve(cost, method="ssp", start="estimate", threads=1, **options)
        return tracemalloc.get_traced_memory()[1] - before, result
    finally:
        tracemalloc.stop()


def matrix(kind, n):
    """Few scans each: rank 1 takes all of the start's sweeps, random two of them."""
    if kind == "rank 1":
        return np.ascontiguousarray(low_rank(n))
    return np.random.default_rng(0).random((n, n))


@pytest.mark.some(1)
@pytest.mark.parametrize("certify", [True, False])
@pytest.mark.parametrize("kind", ["random", "rank 1"])
def test_some_vectors_beyond_the_matrix(kind, certify):
    n = 7500
    for certified in (False, True):  # kernels and modules are not the solve's
        bigsap.solve(matrix(kind, 100), method="ssp", threads=1, certify=certified)
    peak, result = peak_of(matrix(kind, n), certify=certify)
    assert result.success
    assert (result.gap is not None) == certify
    assert peak <= (CERTIFIED if certify else BAR) * 8 * n + OBJECTS


def test_one_that_can_be_stopped_still_has_its_answer():
    n = 600
    cost = matrix("random", n)

    def stop(progress):
        if progress.phase == 2:
            raise StopIteration

    result = bigsap.solve(cost, method="ssp", threads=1, callback=stop)
    best = bigsap.solve(cost, method="ssp", threads=1).fun
    assert result.status == "cancelled"
    assert result.bound <= best <= result.fun
    np.testing.assert_array_equal(np.sort(result.col4row), np.arange(n))
