"""Work that strategies expect, against what they count. Counts are the same on every machine."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap.strategies.work import on_lists, on_whole_rows
from instances import CLASSES

FACTOR = 3.0


def solve(cost: Any, **options: Any) -> bigsap.Result:
    return bigsap.solve(cost, threads=1, **options)


def points(n: int, d: int, **options: Any) -> bigsap.Result:
    rng = np.random.default_rng(8)
    return solve(bigsap.points(rng.random((n, d)), rng.random((n, d))), **options)


def rows(cache: int) -> bigsap.Result:
    matrix = CLASSES["geometric"](400, 0)
    source = bigsap.from_function(lambda i: matrix[i], (400, 400), kind="row")
    return solve(source, method="ssp", cache=cache * 8 * 400)


SOLVES: dict[str, Callable[[], bigsap.Result]] = {
    "small": lambda: solve(CLASSES["geometric"](400, 0)),
    "whole rows": lambda: solve(CLASSES["disjoint"](1000, 0), method="ssp"),
    "lists": lambda: solve(CLASSES["geometric"](1600, 0)),
    "trees": lambda: solve(CLASSES["int1n"](1600, 0)),
    "wide": lambda: solve(np.random.default_rng(1).random((1500, 4000))),
    "bounds": lambda: points(4000, 2),
    "many coordinates": lambda: points(1500, 40),
    "many coordinates, not kept": lambda: points(1500, 40, cache="4MiB"),
    "rows may stay unassigned": lambda: solve(CLASSES["geometric"](1600, 0), unassigned_cost=0.02),
    "capacities": lambda: solve(np.random.default_rng(2).random((3000, 20)), capacity=np.full(20, 160)),
}


@pytest.mark.parametrize("name", SOLVES)
def test_expected_work_is_right_to_a_factor(name: str) -> None:
    stats = SOLVES[name]().stats
    for counted, said in (("pairs_evaluated", "pairs"), ("rows_scanned", "scans")):
        count, expected = stats[counted], stats["expected"][said]
        assert expected / FACTOR <= count <= expected * FACTOR, (said, expected, count)


def test_forgotten_rows_are_computed_again() -> None:
    for kept in (400, 100, 10):
        stats = rows(kept).stats
        assert stats["expected"] == on_whole_rows((400, 400), kept / 400).counts()
        assert 0.3 < stats["pairs_evaluated"] / stats["expected"]["pairs"] < 3


def test_the_strategy_that_answered_is_the_one_that_expected() -> None:
    """Strategies that decline before it expected something else."""
    sizes = np.arange(1.0, 1601.0)
    matrix = np.outer(sizes, sizes)  # sorting solves it
    assert solve(matrix).stats["expected"]["scans"] == 0
    unsorted = np.random.default_rng(3).random((1600, 1600))
    assert solve(unsorted).stats["expected"] == on_lists((1600, 1600)).counts()


def test_bounds_leave_fewer_pairs_the_more_columns() -> None:
    shares = [on_lists((n, n), bounded=True).pairs / n**2 for n in (1000, 10_000, 100_000, 1_000_000)]
    assert shares == sorted(shares, reverse=True)
    assert shares[-1] < 0.01
