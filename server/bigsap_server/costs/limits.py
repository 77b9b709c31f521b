"""Limits of the size of costs: the solver's, and the operator's."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import bigsap
from bigsap import preview
from bigsap_server.problems import HttpProblem


def check_shape(shape: tuple[int, ...], settings: Mapping[str, Any], pointer: str = "/shape") -> None:
    """Raise HttpProblem ``over-limit`` for costs that are too large for this service or for the solver.

    Nothing is built of a shape before this check.
    """
    (n, m), limits = shape, settings["limits"]
    for name, size in (("rows", n), ("columns", m), ("pairs", n * m)):
        if size > limits[name]:
            raise over(f"{size} {name}; at most {limits[name]} are allowed", pointer)
    try:
        preview.check_shape((n, m))
    except bigsap.ShapeError as error:
        raise over(str(error), pointer) from error


def check_array(shape: tuple[int, ...], pointer: str) -> None:
    """Raise HttpProblem for an array with more lines than a solve takes, which may have no entries."""
    try:
        preview.check_shape((max(shape, default=0), 0))
    except bigsap.ShapeError as error:
        raise over(f"the shape {list(shape)} is beyond the limits of the solver", pointer) from error


def limit_process(**most: int) -> None:
    """Limit what this process may take, where the system can: ``DATA`` bytes, ``CPU`` seconds, ...

    Mapped files do not count among ``DATA``. What exceeds a limit fails its job, not the machine.
    """
    if sys.platform != "win32":
        try:
            import resource
        except ImportError:  # a Python built without it
            return
        for name, value in most.items():
            kind = getattr(resource, f"RLIMIT_{name}")
            hard = resource.getrlimit(kind)[1]
            resource.setrlimit(kind, (value if hard == resource.RLIM_INFINITY else min(value, hard), hard))


def over(detail: str, pointer: str) -> HttpProblem:
    """Return the problem of a limit that is exceeded at ``pointer``."""
    return HttpProblem("over-limit", detail, pointer=pointer)
