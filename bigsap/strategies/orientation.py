"""Orientation of a problem, and conversion of the answer to the user's orientation."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bigsap.errors import OptionError
from bigsap.problem import Problem
from bigsap.proof.certificate import Certificate
from bigsap.proof.listed import listed_columns
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import Resident, Sparse
from bigsap.types import Array


def resident(problem: Problem) -> Array | None:
    """Return the whole matrix if it is in memory, else None."""
    source = problem.source
    return source.resident() if isinstance(source, Resident) else None


def orient(problem: Problem) -> Problem:
    """Return the problem or its transpose: rows must be cheap, and preferably the shorter side.

    A matrix in memory is solved with at most as many rows as columns, whatever its layout: strided
    rows are slower to read, but searches with more rows than columns are many times longer. A square
    matrix, and one in a mapped file, where each item of a column may be in another page, is solved by
    its contiguous lines. Other tall problems are transposed when the source gives columns as cheaply
    as rows.
    """
    source = problem.source
    n, m = problem.shape
    if isinstance(source, Sparse):
        other = problem.transpose() if n > m else None
        return problem if other is None else other
    if isinstance(source, ArraySource) and not source.mapped and n != m:
        if n < m:
            return problem
        return Problem(source.across(), problem.maximize, not problem.transposed)
    if resident(problem) is not None:
        return problem
    other = problem.transpose()
    if other is None or (n <= m and resident(other) is None):
        return problem
    return other


def refuse_more_rows(problem: Problem, method: str) -> None:
    """Raise OptionError where ``orient`` has left more rows than columns."""
    if not problem.n_virtual_columns:
        return
    if problem.transposed:
        raise OptionError(
            f'method "{method}" needs no more rows than columns, or costs that lie by rows: those'
            f" of shape {problem.shape[::-1]} are read by columns; pass a copy in C order"
        )
    raise OptionError(
        f'method "{method}" needs no more rows than columns, or costs that give columns as'
        f" cheaply as rows; the shape is {problem.shape}: solve the transpose"
    )


def inverse(columns: Array, n_columns: int) -> Array:
    """Return (n_columns,) intp: the row of each column, from the column of each row; -1 = none."""
    rows = np.full(n_columns, -1, np.intp)
    matched = np.flatnonzero(columns >= 0)
    rows[columns[matched]] = matched
    return rows


def exchanged(certificate: Certificate) -> Certificate:
    """Return the certificate of the transposed problem: u and v are exchanged."""
    return replace(
        certificate, u=certificate.v, v=certificate.u, u_low=certificate.v_low, v_low=certificate.u_low
    )


def rows_outside(problem: Problem, columns: Array) -> Array:
    """Return the rows that allow none of ``columns`` (rows of the transposed problem).

    If fewer rows allow them than there are such columns, these rows in turn have too
    few allowed columns: Hall's condition for the other side.
    """
    source = problem.source
    m = problem.shape[1]
    reached = np.zeros(m, bool)
    if isinstance(source, Sparse):
        reached[listed_columns(source, columns, problem.maximize)] = True
        return np.flatnonzero(~reached)
    costs = np.empty((1, m), source.dtype)
    for column in columns.tolist():
        source.read(np.array([column]), slice(0, m), costs)
        reached |= problem.sign * costs[0] < np.inf
    return np.flatnonzero(~reached)
