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


@pytest.mark.parametrize("form", FORMATS)
def test_explicit_zeros_are_costs_in_every_format(form: str) -> None:
    places = np.array([0, 0, 1, 1]), np.array([0, 1, 0, 1])
    given = scipy.sparse.coo_array((np.array([0.0, 5, 5, 0]), places), shape=(2, 2)).asformat(form)
    if form == "dok":  # scipy leaves zeros out of a new one
        given = scipy.sparse.dok_array((2, 2))
        given._dict.update({(0, 0): 0.0, (0, 1): 5.0, (1, 0): 5.0, (1, 1): 0.0})
    assert bigsap.solve(given).fun == 0.0
    assert sparse(given).entries().columns.size == 4


@pytest.mark.parametrize("shape", [(3, 3), (3, 5), (5, 3), (0, 3), (3, 0)])
def test_stored_diagonals_are_listed_inside_the_shape(shape: tuple[int, int]) -> None:
    n, m = shape
    offsets = np.array([-7, -2, 0, 1, 4, 9])
    for width in (0, 2, 7):
        data = np.arange(6 * width).reshape(6, width)
        given = scipy.sparse.dia_array((data, offsets), shape=shape)
        start, columns, costs = sparse(given).entries()
        rows = np.repeat(np.arange(n), np.diff(start))
        found = dict(zip(zip(rows.tolist(), columns.tolist(), strict=True), costs.tolist(), strict=True))
        pairs = [
            (k, j, j - offset) for k, offset in enumerate(offsets.tolist()) for j in range(min(width, m))
        ]
        assert found == {(i, j): data[k, j] for k, j, i in pairs if 0 <= i < n}
        assert len(found) == given.nnz


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
