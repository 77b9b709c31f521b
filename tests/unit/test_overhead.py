"""What a solve costs beyond its kernels: Python's part, counted in calls, which no clock blurs."""

import gc
import sys

import numpy as np
import pytest

import bigsap
from bigsap.sources.base import Fillable, Foreseeing, Resident


def calls(function):
    """How many functions, of Python and C, a second call of ``function`` makes."""
    function()
    count = 0

    def count_calls(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    gc.disable()  # finalizers of what other tests have left are no part of it
    sys.setprofile(count_calls)
    try:
        function()
    finally:
        sys.setprofile(None)
        gc.enable()
    return count


@pytest.mark.parametrize(("method", "most"), [("ssp", 2500), ("auto", 300)])
def test_a_small_general_solve_makes_few_calls(method, most):
    """2,329 and 190; some more where limits are looked at, 3,000 where ``typing`` looks protocols up."""
    cost = np.random.default_rng(0).random((100, 100))
    assert calls(lambda: bigsap.solve(cost, method=method, certify=False, threads=1)) < most


def test_a_proof_makes_no_calls_for_single_rows():
    """Here 1,999 of 2,000 rows have no allowed pair, and stay unassigned."""
    costs = bigsap.sparse(([0], [0], [1.0]), (2000, 2000))
    result = bigsap.solve(costs, unassigned_cost=2.0)
    assert calls(lambda: result.verify(costs)) < 2000


def test_the_abilities_of_sources():
    class Ahead:
        foresees = 0

        def predict_slot(self, rows):
            pass

    matrix = bigsap.sources.as_source(np.zeros((2, 2)))
    assert isinstance(matrix, Resident)
    assert not isinstance(matrix, Foreseeing)
    assert isinstance(bigsap.points(np.zeros((3, 2)), np.zeros((3, 2))), Fillable)
    assert isinstance(Ahead(), Foreseeing)
    assert not any(isinstance(thing, Resident) for thing in (None, 3, object()))


class Diagonal(bigsap.CostSource):
    shape, dtype = (2, 2), np.dtype(np.float64)

    def read(self, rows, columns, out):
        out[...] = np.eye(2)[rows, columns]


def test_sources_are_instances_of_cost_source():
    costs = np.eye(2)
    pairs = bigsap.sparse(([0, 1], [1, 0], [3.0, 0.0]))
    sources = (
        Diagonal(),
        bigsap.points(costs, costs),
        pairs,
        bigsap.from_function(max, (2, 2), kind="value"),
    )
    assert all(isinstance(source, bigsap.CostSource) for source in sources)
    assert bigsap.solve(Diagonal()).fun == 0
    others = (None, costs, max, "costs.npy", bigsap.solve(costs))
    assert not any(isinstance(thing, bigsap.CostSource) for thing in others)
