"""Problems of copies of rows or columns: what they say names the rows and columns that were given."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import bigsap
from pairwise import each

COUNTS = [{"capacity": [2, 1, 3]}, {"capacity": 2, "unassigned_cost": -1e9}, {"demand": [2, 1]}]


@each(
    counts=COUNTS,
    ways=[{}, {"method": "ssp"}, {"epsilon": False}, {"method": "compressed", "memory_limit": 1 << 20}],
    kind=["matrix", "function", "missing"],
    many=[False, True],
)
def test_errors_name_the_pair_and_not_its_copy(
    counts: dict[str, Any], ways: dict[str, Any], kind: str, many: bool
) -> None:
    cost = np.arange(6.0).reshape(2, 3)
    cost[1, 2] = np.nan
    other = np.ma.masked if kind == "missing" else np.nan
    source: Any = cost
    if kind != "matrix":
        source = bigsap.from_function(lambda i, j: other if (i, j) == (1, 2) else cost[i, j], cost.shape)
    with pytest.raises(bigsap.InvalidCostError) as raised:
        bigsap.solve_many([source], **counts, **ways) if many else bigsap.solve(source, **counts, **ways)
    assert (raised.value.row, raised.value.column) == (1, 2)
    assert re.search(r"cost\[1, 2\]|row 1, column 2", str(raised.value))


@pytest.mark.parametrize("counts", [COUNTS[0], COUNTS[2]])
def test_so_do_those_of_integers_too_large_for_exact_sums(counts: dict[str, Any]) -> None:
    cost = np.arange(6).reshape(2, 3)
    cost[1, 2] = 2**60
    with pytest.raises(bigsap.OverflowRiskError, match=r"cost\[1, 2\]") as raised:
        bigsap.solve(cost, method="ssp", **counts)
    assert (raised.value.row, raised.value.column) == (1, 2)


@pytest.mark.parametrize("method", ["auto", "ssp"])
def test_demands_that_cannot_be_met_name_the_rows(method: str) -> None:
    cost = np.array([[1, np.inf, np.inf], [3, np.inf, np.inf], [np.inf, 2, 1]])
    for demand, rows, count in (([1, 1, 1], [0, 1], 2), ([0, 2, 1], [1], 2)):
        found = bigsap.solve(cost, demand=demand, method=method)
        assert found.violator.tolist() == rows
        assert f"rows {rows} demand {count} columns" in found.message


@pytest.mark.parametrize("counts", [{"capacity": [1, 1, 0]}, {"demand": [2, 1, 1]}])
def test_too_few_places_have_the_statistics_of_any_solve(counts: dict[str, Any]) -> None:
    """Nothing is read for them."""
    reports: list[str] = []
    result = bigsap.solve(np.eye(3), callback=lambda p: reports.append(p.stage), **counts)
    assert result.status == "infeasible"
    usual = bigsap.solve(np.eye(3), method="ssp").stats
    assert usual.keys() - result.stats.keys() == set()
    assert usual["seconds"].keys() == result.stats["seconds"].keys()
    read = ("rows_evaluated", "pairs_evaluated", "certificate_pairs", "rows_scanned")
    assert [result.stats[name] for name in read] == [0] * 4
    assert reports[-1] == "done"


@pytest.mark.parametrize(
    ("shape", "counts"),
    [
        ((10, 1), {}),
        ((10, 1), {"capacity": 0}),
        ((10, 1), {"capacity": 2}),
        ((10, 3), {"capacity": [0, 1, 2], "method": "ssp"}),
        ((4, 2), {"demand": [3, 2, 1, 1]}),
    ],
)
def test_a_price_too_large_for_exact_sums_is_named_as_a_price(
    shape: tuple[int, int], counts: dict[str, Any]
) -> None:
    """Where rows may stay without a column their prices are costs of columns that nobody gave."""
    prices = np.ones(shape[0], np.int64)
    prices[1] = 2**60
    with pytest.raises(bigsap.OverflowRiskError, match=f"^unassigned_cost of row 1 is {2**60}: ") as raised:
        bigsap.solve(np.ones(shape, np.int64), unassigned_cost=prices, **counts)
    assert (raised.value.row, raised.value.column) == (1, None)


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("many", [2**24 + 4, 2**31 - 2, 2**40])
def test_a_huge_demand_that_must_be_met_is_infeasible(many: int, maximize: bool) -> None:
    """Its places do not stay open. Numbers that are beyond the limit are not named as the limit."""
    stated = f"at least {2**31 - 2}" if many >= 2**31 - 2 else str(many)
    cost, must = np.ones((2, 3)), -np.inf if maximize else np.inf
    for price in (None, must, [must, 1]):
        found = bigsap.solve(cost, demand=[many, 0], unassigned_cost=price, maximize=maximize)
        assert (found.status, found.violator[0]) == ("infeasible", 0)
        assert f"need {stated} places" in found.message
        found.verify(cost, unassigned_cost=price)
    with pytest.raises(bigsap.OptionError, match=rf"demand\[1\] is {stated}, but there are 3 columns"):
        bigsap.solve(cost, demand=[1, many], unassigned_cost=1, maximize=maximize)
