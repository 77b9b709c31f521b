"""Identity of a solve: the problem, and the options that change the answer.

A checkpoint stores it. A solve with another identity refuses the checkpoint.
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
    """Return plain values that are equal for two solves if one may continue the other.

    given: the user's problem, its costs possibly placed on a device. gated: the source before that
    placement, where rows may stay unassigned. problem: the problem as it is solved. method: the
    method chosen. asked: the method requested.
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
