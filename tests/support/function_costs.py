"""Costs that the tests of functions share: distances of six numbers to five."""

from __future__ import annotations

import numpy as np

SHAPE = (6, 5)
X = np.random.default_rng(1).uniform(-3, 3, 6)
Y = np.random.default_rng(2).uniform(-3, 3, 5)
EXPECTED = np.abs(X[:, None] - Y)
