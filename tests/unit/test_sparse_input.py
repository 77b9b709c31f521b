"""Sparse costs as they are given: formats, indices, missing values, files; bad ones are named."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import scipy.sparse

import bigsap
from bigsap.sources.sparse.sparse_costs import sparse

FORMATS = ("csr", "csc", "coo", "lil", "dok", "bsr", "dia")


@pytest.mark.parametrize("form", ["dense", "csr", "csc", "coo", "vectors"])
def test_long_doubles_beyond_float64_are_named(form: str) -> None:
    costs = np.array(["1", "-1e4000", "2"], "g")
    if np.isinf(costs[1]):
        return  # Long doubles are float64 here.
    given: Any = (np.array([0, 0, 1]), np.array([0, 1, 1]), costs)
    if form != "vectors":
        given = scipy.sparse.coo_array((costs, given[:2]), shape=(2, 2))
        given = given.toarray() if form == "dense" else given.asformat(form)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(bigsap.InvalidCostError, match=r"cost\[0, 1\] = -1e\+4000 cannot") as caught:
            bigsap.solve(sparse(given) if form == "vectors" else given)
    assert (caught.value.row, caught.value.column) == (0, 1)
