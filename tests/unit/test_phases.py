"""Records of phases: the same four numbers by every method."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsap
from pairwise import each

NAMES = {"epsilon", "rows_scanned", "prices_moved", "seconds"}
TREE: dict[str, Any] = {"method": "hungarian", "variant": "tree"}
CLASSICAL: dict[str, Any] = {"method": "hungarian", "variant": "classical"}
# All pairs cost less than the price: they are searched as one list.
OPTIONAL: dict[str, Any] = {"method": "compressed", "unassigned_cost": 200}
WAYS: dict[str, dict[str, Any]] = {
    "auto": {},
    "ssp": {"method": "ssp"},
    "compressed": {"method": "compressed"},
    "tree": TREE,
    "classical": CLASSICAL,
    "auction": {"method": "auction"},
    "bottleneck": {"objective": "bottleneck"},
    "optional": OPTIONAL,
}


def listed(cost: np.ndarray) -> Any:
    return bigsap.sparse((*np.indices(cost.shape).reshape(2, -1), cost.ravel()))


@each(way=list(WAYS), sparse=[False, True])
def test_every_phase_has_the_same_four_numbers(way: str, sparse: bool) -> None:
    cost = np.random.default_rng(3).integers(0, 99, (90, 90))
    result = bigsap.solve(listed(cost) if sparse else cost, **WAYS[way])
    phases = result.stats["phases"]
    assert result.nit == len(phases) > 0
    for phase in phases:
        assert set(phase) >= NAMES
        assert type(phase["prices_moved"]) is int
    assert way == "auto" or any(phase["prices_moved"] for phase in phases)


@pytest.mark.parametrize("way", [TREE, CLASSICAL, OPTIONAL])
def test_prices_that_moved_are_counted_by_columns(way: dict[str, Any]) -> None:
    """Two rows contest column 0, whose price falls by 3; without a contest none does."""
    cost = np.array([[0, 3, 9], [0, 4, 9], [9, 0, 0]])
    result = bigsap.solve(cost, **way)
    assert result.v.tolist() == [-3, 0, 0]
    assert [phase["prices_moved"] for phase in result.stats["phases"]] == [1]
    (phase,) = bigsap.solve(9 - 9 * np.eye(3, dtype=int), **way).stats["phases"]
    assert phase["prices_moved"] == 0
