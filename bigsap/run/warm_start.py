"""``warm_start=``: validation of the user's value, and conversion to the oriented problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.errors import InputError, OptionError
from bigsap.problem import Problem
from bigsap.proof.minima import minima
from bigsap.proof.row_minima import Prices
from bigsap.proof.unassigned import one_to_one
from bigsap.result import Result
from bigsap.sources.missing import is_vector, mask_of, parted
from bigsap.strategies.orientation import inverse
from bigsap.strategies.start.warm import Warm
from bigsap.types import Array

# Differences of prices must not overflow float64.
_FARTHEST = float(np.finfo(np.float64).max) / 16


@dataclass(frozen=True)
class GivenStart:
    """The user's start, validated, in the user's sense and orientation.

    Column prices v (m,), the column of each row (n,) where known, and a result's row prices u (n,),
    which are validated on use.
    """

    v: Array
    u: Array | None
    col4row: Array | None

    @property
    def reach(self) -> float:
        """The largest size of a price."""
        given = [x for x in (self.v, self.u) if x is not None and x.size]
        return max((max(float(x.max()), -float(x.min())) for x in given), default=0.0)

    def oriented(self, given: Problem, problem: Problem, tick: Callable[[], None], threads: int) -> Warm:
        """Return the start of ``problem``, which is ``given`` or its transpose, signed.

        If the transpose is solved and only column prices are known, one pass over the costs computes
        row prices from them.
        """
        pairs = self.col4row
        if not problem.transposed:
            return Warm(self.v * problem.sign, pairs)
        pairs = None if pairs is None else inverse(pairs, given.shape[1])
        if self.u is not None:
            return Warm(_prices(self.u, given.shape[0]) * problem.sign, pairs)
        return Warm(_row_prices(given, self.v, tick, threads), pairs)


def parse_warm_start(value: Any, given: Problem, *, several: bool = False) -> GivenStart | None:
    """Validate ``warm_start=`` without reading costs.

    value: None, a ``Result``, column prices (m,), or a pair of prices and ``col4row``
    (n,), all in the user's sense and of the user's shape. several: a column may take several rows.
    Raises OptionError when it does not fit the problem.
    """
    if value is None:
        return None
    n, m = given.shape
    if isinstance(value, Result):
        if value.shape != given.shape or value.maximize != given.maximize:
            raise OptionError(
                f"warm_start is the result of a {_words(value.shape, value.maximize)}, this is a"
                f" {_words(given.shape, given.maximize)}"
            )
        try:
            v = _prices(value.v, m)
        except OptionError as error:
            raise OptionError(f"warm_start is a result without prices (status {value.status})") from error
        pairs = one_to_one(value)
        return GivenStart(v, value.u, None if pairs is None else _pairs(pairs, n, m))
    if isinstance(value, tuple) and len(value) == 2 and is_vector(value[0]):
        return GivenStart(_prices(value[0], m), None, _pairs(value[1], n, m, several))
    return GivenStart(_prices(value, m), None, None)


def unmasked_start(value: Any) -> Any:
    """Return ``warm_start=`` unchanged; raise OptionError for masked values.

    A conversion to an array would expose the values under the mask.
    """
    for part in value if isinstance(value, tuple) else (value,):
        mask = mask_of(part)
        if mask is not None and mask.any():
            _whole(part, "prices, and columns of rows")
    return value


def _words(shape: tuple[int, int], maximize: bool) -> str:
    return f"{shape[0]} x {shape[1]} problem, {'maximised' if maximize else 'minimised'}"


def _prices(value: Any, m: int) -> Array:
    prices = _whole(value, f"{m} prices")
    if prices.shape != (m,) or (m and prices.dtype.kind not in "biuf"):
        raise OptionError(
            f"warm_start needs {m} prices, one a column, got {prices.dtype} of shape {prices.shape}"
        )
    whole = prices.dtype.kind == "i"
    prices = prices.astype(np.int64 if whole else np.float64)
    if not whole and not np.abs(prices).max(initial=0) <= _FARTHEST:  # NaN fails, too
        raise OptionError(f"warm_start needs finite prices between -{_FARTHEST:.3g} and {_FARTHEST:.3g}")
    if whole and m and max(-int(prices.min()), int(prices.max())) > 2**61:
        raise OptionError("warm_start has prices beyond the range of exact integers")
    return prices


def _whole(value: Any, what: str) -> Array:
    if type(value) is np.ndarray:
        return value
    try:
        array, missing = parted(value, "warm_start")
    except InputError as error:
        raise OptionError(f"warm_start needs {what}: {error}") from error
    if missing is not None:
        where = [int(k) for k in np.argwhere(missing)[0]]
        raise OptionError(f"warm_start needs {what}; it is masked, None or NA at {where}")
    return array


def _pairs(value: Any, n: int, m: int, several: bool = False) -> Array:
    pairs = _whole(value, f"the columns of {n} rows as integers")
    if pairs.shape != (n,) or (n and pairs.dtype.kind not in "iu"):
        raise OptionError(
            f"warm_start needs the columns of {n} rows as integers, got {pairs.dtype} of shape {pairs.shape}"
        )
    if n and not -1 <= pairs.min() <= pairs.max() < m:
        raise OptionError(f"warm_start assigns a column outside 0 to {m - 1}")
    pairs = pairs.astype(np.intp)  # large unsigned numbers would wrap
    if not several and np.bincount(pairs + 1)[1:].max(initial=0) > 1:
        raise OptionError("warm_start assigns a column twice")
    return pairs


def _row_prices(given: Problem, v: Array, tick: Callable[[], None], threads: int) -> Array:
    """Return signed row duals at these column prices: the best prices of the transposed problem."""
    n = given.shape[0]
    signed = v.astype(np.float64) * given.sign
    if 0 in given.shape:
        return np.zeros(n)
    found, _ = minima(
        given.source, None, Prices(signed), given.maximize, threads, 1 << 20, lambda _rows: tick()
    )
    u = found.high
    finite = np.isfinite(u)
    return np.where(finite, u, u[finite].max() if finite.any() else 0.0)
