"""``stats["first_prices"]``: which first prices a solve took."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import bigsap

COST = np.random.default_rng(4).random((60, 60))
WARM = bigsap.solve(COST)


@pytest.mark.parametrize(
    ("options", "taken"),
    [
        ({"method": "ssp"}, "estimate"),
        ({"method": "ssp", "start": "estimate"}, "estimate"),
        ({"method": "ssp", "start": "none"}, "estimate"),
        ({"method": "ssp", "epsilon": False}, "none"),
        ({"method": "ssp", "warm_start": WARM}, "warm"),
        ({"method": "auction"}, "none"),
        ({"method": "compressed", "start": "none"}, "none"),
        ({"method": "compressed", "start": "estimate"}, "estimate"),
        ({"method": "hungarian"}, "columns"),
    ],
)
def test_first_prices_are_named(options: dict[str, Any], taken: str) -> None:
    assert bigsap.solve(COST, **options).stats["first_prices"] == taken


def test_few_rows_start_from_zero_by_whole_rows() -> None:
    assert bigsap.solve(np.ones((2, 900)) * COST[0, 0], method="ssp").stats["first_prices"] == "none"
