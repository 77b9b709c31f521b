"""Results of trees grown on a device."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from bigsap.types import Array, Tick

#: Entries of a list on a device: one for each lane of a warp.
KEEP = 32
# Why a device has stopped. EVENT: a list has ended. LIMIT: too many levels for too few matches.
# BROKEN: a path without end, which only costs that change lead to. TOO_FAR: times beyond 31 bits.
# Of the classical method: BETWEEN two stages; BAD: an invalid cost.
DONE, YIELD, EVENT, INFEASIBLE, LIMIT, BROKEN, TOO_FAR, BETWEEN, BAD = range(9)


@dataclass(frozen=True)
class KeptLists:
    """Lists of the rows.

    ids, costs: int32 (n_rows, KEEP), sizes, theta: int32 (n_rows,); theta 2**31 - 1: the list has
    every column. low: int64 (n_rows,) the base of a row's costs.
    """

    ids: Array
    costs: Array
    sizes: Array
    theta: Array
    low: Array


@dataclass(frozen=True)
class Grown:
    """State in which a device stopped.

    status: reason. v: int64 (n_columns,) prices; column_of_row: ID (n_rows,). counts: see
    ``strategies.trees.COUNTS``. lists: None if all rows are matched. Prices and costs are in
    units of 2.0**-shift.
    """

    status: int
    v: Array
    column_of_row: Array
    counts: dict[str, int]
    lists: KeptLists | None
    shift: int

    def real(self, units: Array, price: np.dtype[Any]) -> Array:
        """Convert units to costs, exactly: they fit the 53 bits of float64."""
        return np.ldexp(units.astype(price), -self.shift) if self.shift else units.astype(price)


class Grower(Protocol):
    """Device that grows trees; see ``engine.cuda.device_forest.DeviceForest``."""

    def grow(self, enough: int, tick: Callable[[], None], assigned: Tick) -> Grown | None: ...


class Classical(Protocol):
    """Device that solves by zeros as bits; see ``engine.cuda.device_classical.DeviceClassical``."""

    counts: dict[str, int]

    def begin(self, v: Array | None) -> bool: ...

    def go_on(
        self, bits: Array, u: Array, v: Array, column_of_row: Array, counts: dict[str, int]
    ) -> None: ...

    def run(self, serve: Callable[[], None], heard: Callable[[bool], None]) -> int: ...

    def left(self) -> int: ...

    def bad_row(self) -> int: ...

    def zeros(self) -> Array: ...

    def duals(self) -> tuple[Array, Array]: ...

    def matching(self) -> Array: ...

    def forest(self) -> Array: ...
