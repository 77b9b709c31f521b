"""What identifies a solve: the problem, and the options that change the answer.

A checkpoint holds it, and is refused by a solve that has another.
"""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from bigsap.engine.core.precision import Arithmetic
from bigsap.options import Options
from bigsap.problem import Problem
from bigsap.sources.base import Fingerprinted
from bigsap.sources.clipped import ClippedCosts

_log = logging.getLogger("bigsap")


def identity(
    given: Problem,
    gated: ClippedCosts | None,
    problem: Problem,
    options: Options,
    method: str,
    arithmetic: Arithmetic,
    asked: str,
) -> dict[str, Any]:
    """Plain values that two solves share when one may continue the other.

    given: the problem as the user has it, costs perhaps placed on a device. gated: its source
    before that, where rows may stay unassigned. problem: as it is solved. method: the one
    chosen, of asked.
    """
    source = given.source
    fingerprint = source.fingerprint() if isinstance(source, Fingerprinted) else None
    if fingerprint is None:
        _log.warning(
            "checkpoint: %s has no fingerprint; whether the costs are still the same when"
            " the solve is continued cannot be checked",
            type(source).__name__,
        )
    dtype = options.dtype
    return {
        "shape": list(given.shape),
        "asked_shape": list((source if gated is None else gated.given).shape),
        "unassigned_cost": None if gated is None else gated.prices_fingerprint(),
        "dtype": str(source.dtype),
        "asked_dtype": None if dtype is None else str(np.dtype(dtype)),
        "maximize": given.maximize,
        "method": method,
        "asked_method": asked,
        "epsilon": options.epsilon,
        "seed": int(options.seed),
        "start": options.start,
        "variant": options.variant,
        "transposed": problem.transposed,
        "price": str(arithmetic.price),
        "grid": arithmetic.grid,
        "fingerprint": fingerprint,
    }
