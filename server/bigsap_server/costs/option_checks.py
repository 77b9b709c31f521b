"""Checks for options and starts that ``bigsap.solve`` would refuse, as far as they are cheap.

Where possible the library itself checks, on costs without rows.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

import bigsap
from bigsap_server.costs import specs
from bigsap_server.costs.build import build
from bigsap_server.costs.request import JobRequest, Options
from bigsap_server.costs.resolver import Resolver, pointer_to_child
from bigsap_server.costs.validate import SMALL_BYTES, expect, invalid
from bigsap_server.problems import HttpProblem

# Methods that need at most as many rows as columns, or costs whose columns are as cheap as rows.
_WIDE_ONLY = ("hungarian", "auction")


def check_combination(options: Options) -> None:
    """Refuse a variant that the method does not have. Raises HttpProblem."""
    found = _objection(options.method, options.variant, options.start, options.epsilon)
    if found is not None:
        raise invalid(found, "/options/variant")


@cache
def _objection(method: str, variant: str, start: str, epsilon: bool) -> str | None:
    """Return the library's error message for options that are valid by themselves.

    Defaults are not checked: importing the library takes a second.
    """
    if (method, variant, start, epsilon) == ("auto", "auto", "auto", True):
        return None
    try:
        bigsap.solve(np.zeros((0, 0)), method=method, variant=variant, start=start, epsilon=epsilon)
    except bigsap.OptionError as error:
        return str(error)
    return None


def check_tall(request: JobRequest, resolver: Resolver, shape: tuple[int, int], devices: list[str]) -> None:
    """Refuse methods for wide costs where a matrix has more rows than columns and no cheap columns.

    Such a matrix is in a file, a store or at a provider. Raises HttpProblem.
    """
    options, cost = request.options, request.cost
    n, m = shape
    if options.method not in _WIDE_ONLY or not n > m > 0 or options.unassigned_cost is not None:
        return
    if options.device != "cpu" and devices != ["cpu"]:
        return  # a device that holds the costs gives columns
    if isinstance(cost, (specs.Matrix, specs.Zarr)):
        if getattr(cost, "uri", None) is not None or _gives_columns(cost, resolver, shape):
            return
    elif not isinstance(cost, specs.HttpRows):
        return
    raise invalid(
        f'method "{options.method}" needs no more rows than columns here; the shape is'
        f" {list(shape)}: solve the transpose",
        "/options/method",
    )


def _gives_columns(cost: Any, resolver: Resolver, shape: tuple[int, int]) -> bool:
    if isinstance(getattr(cost, "values", None), list):
        return True  # in memory
    source: Any = build(cost, resolver, list(shape), False, "/cost")
    turned = getattr(source, "transposed", None)
    return turned is not None and turned() is not None


def check_start(request: JobRequest, resolver: Resolver, shape: tuple[int, int]) -> None:
    """Validate the warm start's arrays and the costs of unassigned rows for a problem of this shape.

    For small arrays the contents are checked, for large ones only the sizes. Raises HttpProblem.
    """
    n, m = shape
    prices: Any = request.options.unassigned_cost
    start = request.warm_start
    pointer = "/options/unassigned_cost"
    if isinstance(prices, int):
        _check_size(abs(prices), pointer)
    elif prices is not None and not isinstance(prices, float):
        given = _small(prices, resolver, n, pointer)
        if given is not None:
            _check_unassigned(given, request.options.maximize, pointer)
    if start is None or start.v is None:
        return
    given = _small(start.v, resolver, m, "/warm_start/v")
    if given is not None:
        try:
            bigsap.solve(np.zeros((0, m)), warm_start=given)
        except bigsap.OptionError as error:
            raise invalid(str(error), "/warm_start/v") from error
    if start.col4row is not None:
        given = _small(start.col4row, resolver, n, "/warm_start/col4row")
        if given is not None:
            _check_columns(given, m, "/warm_start/col4row")


def _small(ref: Any, resolver: Resolver, size: int, pointer: str) -> np.ndarray[Any, Any] | None:
    """Return the array of a reference, None if it is large. Raises HttpProblem unless it has ``size``."""
    facts = resolver.facts(ref, pointer)
    expect(facts, (size,), pointer)
    return resolver.array(ref, pointer) if facts.nbytes <= SMALL_BYTES else None


def _check_unassigned(given: np.ndarray[Any, Any], maximize: bool, pointer: str) -> None:
    wrong = np.inf if maximize else -np.inf
    bad = np.isnan(given) | (given == wrong)
    if bad.any():
        row = int(bad.argmax())
        raise HttpProblem(
            "invalid-cost",
            f"the cost of row {row} is {given[row]}; it must be finite, or"
            f" {-wrong} for a row that must be assigned",
            pointer=pointer_to_child(pointer, row),
            row=row,
        )
    if given.dtype.kind in "iu" and given.size:
        _check_size(max(int(given.max()), -int(given.min())), pointer)


def _check_size(largest: int, pointer: str) -> None:
    if largest >= 2**62:
        raise HttpProblem("invalid-cost", f"{largest} in size; sums could leave int64", pointer=pointer)


def _check_columns(given: np.ndarray[Any, Any], m: int, pointer: str) -> None:
    """Raise unless the entries are -1 or columns from 0 to m - 1, none twice."""
    if not given.size:
        return
    if given.dtype.kind not in "iu":
        raise invalid(f"needs integers, got {given.dtype}", pointer)
    outside = (given < -1) | (given >= m)
    if outside.any():
        row = int(outside.argmax())
        raise invalid(
            f"row {row} has column {given[row]}; columns go from 0 to {m - 1}, and -1 is none",
            pointer_to_child(pointer, row),
        )
    columns, counts = np.unique(given[given >= 0], return_counts=True)
    if (counts > 1).any():
        raise invalid(f"has column {columns[counts > 1][0]} twice", pointer)
