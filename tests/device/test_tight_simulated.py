"""Tight pairs (``bigsap/strategies/tight``) of a matrix that was copied to a device, simulated."""

from __future__ import annotations

import numpy as np
import pytest

import bigsap
from bigsap import policy
from oracle import optimum


@pytest.mark.usefixtures("cupy")
@pytest.mark.parametrize("kind", ["few values", "terms"])
def test_a_matrix_that_was_copied_to_a_device_is_gone_through_here(kind, monkeypatch):
    monkeypatch.setattr(policy, "TIGHT_PAIRS_ROWS", 1)
    generator, n = np.random.default_rng(8), 48
    few = generator.integers(0, 9, (n, n)).astype("f8")
    terms = generator.integers(0, 60, (n, 1)) + generator.integers(0, 60, n)
    cost = few if kind == "few values" else (terms + 0.0)
    result = bigsap.solve(cost, device="cuda", method="compressed")
    assert result.fun == optimum(cost)[0]
    result.verify(cost)
    assert result.stats["first_prices"] == "tight"
