"""The costs of a provider of rows, and a source that is connected to it."""

from __future__ import annotations

import numpy as np

import bigsap
from gate import HANG_S

COST = np.random.default_rng(11).uniform(0, 9, (40, 25))


def connect(provider, **options):
    cost = provider.cost
    options = {"timeout": HANG_S} | options
    return bigsap.from_http(provider.url, cost.shape, cost.dtype, **options)
