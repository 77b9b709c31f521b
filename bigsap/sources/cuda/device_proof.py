"""The certificate's pass over costs on a device, and its check on the host.

The device computes row duals and assigned costs with its own code; a sample of rows is then read
through the source and computed with numpy. A source without a host side (an array in device memory)
is sampled through copies of its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.errors import CertificateError, DeviceMemoryError
from bigsap.sources.base import RowDuals
from bigsap.sources.cuda.device_kernels import PROOF, compiled, load_cupy, on
from bigsap.sources.cuda.device_memory import naming_bytes
from bigsap.sources.cuda.product_proof import minima_by_products, pays
from bigsap.types import Array, Tick

#: Pairs in one launch: a fraction of a second of work.
_PAIRS = 1 << 34
#: Rows that a block processes together, as in kernels_proof.cu.
_TOGETHER = 4
#: Most rows that the host computes too, pairs of them in all, about, and the least rows: more would
#: take longer than the device's pass.
SAMPLE, _SAMPLED_PAIRS, _LEAST_SAMPLE = 64, 1 << 15, 4
#: Largest difference between the two if a formula has functions that round differently.
_TOLERANCE = 1e-13


#: A pass over a piece, see ``_minima``: least ``c - v`` of each row, in two parts, and assigned costs.
OfPiece = Callable[..., tuple[Array, Array, Array] | None]


def row_minima(
    source: Any,
    pieces: list[tuple[Any, int, int]],
    matching: Array | None,
    prices: Array,
    low: Array | None,
    maximize: bool,
    tick: Tick,
    of_piece: OfPiece | None = None,
) -> RowDuals | None:
    """Return the first fields of ``bigsap.proof.row_minima.RowMinima``, in two parts, and matched (n,).

    source: reads rows. pieces: sources on devices, each with the columns of its slab. of_piece: passes over
    a piece, ``_minima`` if None. None for
    prices with low parts, and if a row holds an invalid cost, or a finite row an infinite dual, or
    integer sums might leave int64: the host's pass then finds the reason. Raises CertificateError
    if the host computes another value for a row of the sample, or a pair is forbidden.
    """
    n = source.shape[0]
    integer = prices.dtype.kind == "i"
    if low is not None or (integer and source.dtype.itemsize == 8):
        return None
    matched = np.zeros(n, np.int64 if source.dtype.kind in "iu" else np.float64)
    u: Array | None = None
    rest: Array | None = None
    sample = _Sample(source, matching, prices, maximize)
    for piece, start, stop in pieces:
        here = None
        if matching is not None:
            inside = (matching >= start) & (matching < stop)
            here = np.where(inside, matching - start, -1).astype(np.int32)
        found = (of_piece or _minima)(piece, here, prices[start:stop], maximize, tick, sample.compute)
        if found is None:
            return None
        if u is None or rest is None:
            u, rest = found[0], found[1]
        else:
            better = (found[0] < u) | ((found[0] == u) & (found[1] < rest))
            u, rest = np.where(better, found[0], u), np.where(better, found[1], rest)
        if matching is not None:
            matched[inside] = found[2][inside]
    if u is None or (not integer and not np.isfinite(u).all()):
        return None
    if matching is not None and not np.isfinite(matched).all():
        row = int(np.argmin(np.isfinite(matched)))
        raise CertificateError(f"the assignment uses the forbidden pair ({row}, {matching[row]})")
    sample.compare(u, matched)
    return u, None if integer or rest is None or not rest.any() else rest, None, matched


def bounded_minima(
    source: Any, matching: Array | None, prices: Array, low: Array | None, maximize: bool, tick: Tick
) -> tuple[RowDuals, int] | None:
    """Return as ``row_minima`` from bounds by matrix products, and how many costs were computed.

    None where that does not pay, or the pass over all pairs must find the reason of an error.
    """
    if low is not None or not pays(source.code().product, source.shape, prices):
        return None
    computed = 0

    def of_piece(*given: Any) -> tuple[Array, Array, Array] | None:
        nonlocal computed
        try:
            with on(source.device), naming_bytes(), np.errstate(over="ignore", invalid="ignore"):
                found = minima_by_products(*given)
        except DeviceMemoryError:
            return None  # the pass over all pairs needs no room
        if found is None:
            return None
        computed = found[3]
        return found[:3]

    pieces = [(source, 0, source.shape[1])]
    found = row_minima(source, pieces, matching, prices, low, maximize, tick, of_piece)
    return None if found is None else (found, computed)


def _minima(
    source: Any,
    columns: Array | None,
    prices: Array,
    maximize: bool,
    tick: Tick,
    meanwhile: Callable[[], None],
) -> tuple[Array, Array, Array] | None:
    """Return the least ``c - v`` of each row, in two parts, and the cost at its column.

    None for an invalid cost. source: on one device. columns: int32 (n,), -1 for none. meanwhile:
    called while the device works. A transfer takes longer than a small matrix's pass, so there is
    only one in each direction.
    """
    n, m = source.shape
    cupy = load_cupy()
    code = source.code()
    integer = prices.dtype.kind == "i"
    settings = (("PRICE_IS_INT", int(integer)), ("SIGN", -1 if maximize else 1), ("WIDTH", code.width))
    u, rest, costs = np.empty(n, prices.dtype), np.empty(n), np.empty(n, source.dtype)
    with on(source.device):
        kernel = compiled(source.device, code, PROOF, settings).get("bigsap_proof")
        given = [prices] if columns is None else [prices, columns]
        there = cupy.asarray(np.concatenate([one.view(np.uint8) for one in given]))
        own_prices = there[: prices.nbytes].view(prices.dtype)
        matching = np.intp(0) if columns is None else there[prices.nbytes :].view(np.int32)
        step = max(1, min(n, _PAIRS // max(1, m)))
        for first in range(0, n, step):
            k = min(step, n - first)
            ends = 8 * k, 16 * k, 16 * k + k * source.dtype.itemsize
            bad_at = -(-ends[2] // 4) * 4
            found = cupy.zeros(bad_at + 4, np.uint8)
            low = found[: ends[0]].view(prices.dtype)
            below = found[ends[0] : ends[1]].view(np.float64)
            cost, bad = found[ends[1] : ends[2]].view(source.dtype), found[bad_at:].view(np.int32)
            kernel(
                (min(-(-k // _TOGETHER), 1 << 16),),
                (256,),
                (
                    source.words(),
                    np.int32(m),
                    np.int32(first),
                    np.int32(k),
                    own_prices,
                    matching,
                    low,
                    below,
                    cost,
                    bad,
                ),
            )
            meanwhile()
            here = found.get()
            if here[bad_at:].view(np.int32)[0]:
                return None
            u[first : first + k] = here[: ends[0]].view(prices.dtype)
            rest[first : first + k] = here[ends[0] : ends[1]].view(np.float64)
            costs[first : first + k] = here[ends[1] : ends[2]].view(source.dtype)
            tick(first + k)
    return u, rest, costs


class _Sample:
    """A sample of rows that the host computes too. O(m) each."""

    def __init__(self, source: Any, matching: Array | None, prices: Array, maximize: bool) -> None:
        n, m = source.shape
        count = min(n, SAMPLE, max(_LEAST_SAMPLE, _SAMPLED_PAIRS // m))
        self.rows = np.unique(np.linspace(0, n - 1, count).astype(np.intp))
        self.costs = np.empty((self.rows.size, m), source.dtype)
        source.read(self.rows, slice(0, m), self.costs)
        self.matching, self.prices, self.maximize = matching, prices, maximize
        self.exact = source.code().exact or prices.dtype.kind == "i"
        self.least: Array | None = None

    def compute(self) -> None:
        """Compute the rows' least ``c - v``, once."""
        if self.least is None:
            signed = self.costs.astype(self.prices.dtype)
            signed = np.negative(signed, out=signed) if self.maximize else signed
            signed -= self.prices
            self.least = signed.min(axis=1)

    def compare(self, u: Array, matched: Array) -> None:
        """Raise CertificateError if the device's values differ."""
        self.compute()
        assert self.least is not None
        found, wanted = [u[self.rows]], [self.least]
        size: Any = np.ones(self.rows.size)
        if not self.exact:
            size = np.abs(self.prices).max() + np.abs(found[0]) + 1
        allowed = 0.0 if self.exact else _TOLERANCE * size
        if self.matching is not None:
            columns = self.matching[self.rows]
            pairs = self.costs[np.arange(self.rows.size), columns]
            found.append(np.where(columns >= 0, matched[self.rows], 0))
            wanted.append(np.where(columns >= 0, pairs, 0))
        for device, host in zip(found, wanted, strict=True):
            differs = ~(np.abs(device.astype(np.float64) - host) <= allowed)
            if differs.any():
                at = int(differs.argmax())
                raise CertificateError(
                    f"row {self.rows[at]}: the device computes {device[at]}, the host {host[at]};"
                    " the certificate cannot rest on the device's costs"
                )
