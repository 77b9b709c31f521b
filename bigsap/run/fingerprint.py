"""Identity of a solve: the problem, and the options that change the answer.

A checkpoint stores it. A solve with another identity refuses the checkpoint.
"""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import numpy as np

from bigsap.engine.core.precision import Arithmetic
from bigsap.options import Options
from bigsap.problem import Problem
from bigsap.sources.base import CostSource, Fingerprinted
from bigsap.sources.clipped import ClippedCosts
from bigsap.types import Array

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
    fingerprint = _fingerprint(source)
    return {
        "shape": list(given.shape),
        "asked_shape": list((source if gated is None else gated.given).shape),
        "unassigned_cost": None if gated is None else gated.prices_fingerprint(),
        "dtype": str(source.dtype),
        "asked_dtype": _name(options.dtype),
        "maximize": given.maximize,
        "objective": options.objective,
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


def identity_with_counts(
    source: CostSource, options: Options, capacity: Array | None, demand: Array | None
) -> dict[str, Any]:
    """Return what identifies a problem that is solved as another one, beyond ``identity`` of the other.

    source: as the user has it.
    """
    return {
        "shape": list(source.shape),
        "asked_shape": list(source.shape),
        "asked_dtype": _name(options.dtype),
        "objective": options.objective,
        "capacity": _digest(capacity),
        "demand": _digest(demand),
        "fingerprint": _fingerprint(source),
    }


def identity_of_ranking(
    source: CostSource, gated: ClippedCosts | None, k: int, *, maximize: bool, dtype: Any
) -> dict[str, Any]:
    """Return what identifies a ranking after its solve. source: as the user has it. dtype: asked for."""
    return {
        "ranking": k,
        "shape": list(source.shape),
        "asked_shape": list(source.shape),
        "unassigned_cost": None if gated is None else gated.prices_fingerprint(),
        "dtype": str(source.dtype),
        "asked_dtype": _name(dtype),
        "maximize": maximize,
        "fingerprint": _fingerprint(source),
    }


def _fingerprint(source: CostSource) -> str | None:
    """Return the source's fingerprint, or None with a warning."""
    if isinstance(source, Fingerprinted):
        return source.fingerprint()
    _log.warning(
        "checkpoint: %s has no fingerprint; whether the costs are still the same when"
        " the solve is continued cannot be checked",
        type(source).__name__,
    )
    return None


def _digest(counts: Array | None) -> str | None:
    """Return a digest of whole numbers; None without any."""
    return None if counts is None else hashlib.blake2b(counts.tobytes(), digest_size=8).hexdigest()


def _name(dtype: Any) -> str | None:
    return None if dtype is None else str(np.dtype(dtype))
