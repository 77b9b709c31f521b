"""The certificate's pass over costs on a device, and its check against the host.

The device computes row duals and assigned costs by code of its own; a sample of rows is
then read through the source and computed with numpy. A source without a host side
(an array in device memory) is sampled through copies of its rows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.errors import CertificateError
from bigsap.sources.base import Array
from bigsap.sources.device.device_kernels import compiled, load_cupy, on

#: Rows in one launch: a fraction of a second of work.
_PAIRS = 1 << 34
#: Rows of a block at a time, as in kernels_proof.cu.
_TOGETHER = 4
#: Rows that the host computes as well, of so many pairs about, but some in any case: more would
#: take longer than the device's pass.
SAMPLE, _SAMPLED_PAIRS, _LEAST_SAMPLE = 64, 1 << 15, 4
#: How far the two may differ where a formula holds functions that round differently.
_TOLERANCE = 1e-13


def row_minima(
    source: Any, pieces: list[tuple[Any, int, int]], matching: Array | None, prices: Array,
    maximize: bool, tick: Callable[[int], None],
) -> tuple[Array, Array] | None:  # fmt: skip
    """u (n,) and matched (n,) as in ``bigsap.proof.row_minima.row_minima``.

    source: reads rows. pieces: sources on devices, each with the columns of its slab.
    None when a row holds an invalid cost, or a finite row an infinite dual, or integer sums
    might leave int64: the host's pass then says which. Raises CertificateError when the
    host computes something else for a row of the sample, or a pair is forbidden.
    """
    n = source.shape[0]
    integer = prices.dtype.kind == "i"
    if integer and source.dtype.itemsize == 8:
        return None
    matched = np.zeros(n, np.int64 if source.dtype.kind in "iu" else np.float64)
    u: Array | None = None
    for piece, start, stop in pieces:
        here = None
        if matching is not None:
            inside = (matching >= start) & (matching < stop)
            here = np.where(inside, matching - start, -1).astype(np.int32)
        found = _minima(piece, here, prices[start:stop], maximize, tick)
        if found is None:
            return None
        u = found[0] if u is None else np.minimum(u, found[0])
        if matching is not None:
            matched[inside] = found[1][inside]
    if u is None or (not integer and not np.isfinite(u).all()):
        return None
    if matching is not None and not np.isfinite(matched).all():
        row = int(np.argmin(np.isfinite(matched)))
        raise CertificateError(f"the assignment uses the forbidden pair ({row}, {matching[row]})")
    _check(source, matching, prices, maximize, u, matched)
    return u, matched


def _minima(
    source: Any, columns: Array | None, prices: Array, maximize: bool, tick: Callable[[int], None]
) -> tuple[Array, Array] | None:
    """The least ``c - v`` of each row and the cost at its column; None for an invalid cost.

    source: on one device. columns: int32 (n,), -1 for none.
    """
    n, m = source.shape
    cupy = load_cupy()
    code = source.code()
    integer = prices.dtype.kind == "i"
    settings = (
        ("PRICE_IS_INT", int(integer)), ("SIGN", -1 if maximize else 1), ("WIDTH", code.width),
    )  # fmt: skip
    u, costs = np.empty(n, prices.dtype), np.zeros(n, source.dtype)
    with on(source.device):
        kernel = compiled(source.device, code, "proof", settings).get("bigsap_proof")
        there = cupy.asarray(prices)
        matching = np.intp(0) if columns is None else cupy.asarray(columns)
        step = max(1, min(n, _PAIRS // max(1, m)))
        for first in range(0, n, step):
            k = min(step, n - first)
            low, bad = cupy.empty(k, prices.dtype), cupy.zeros(1, np.int32)
            cost = cupy.zeros(k, source.dtype)
            kernel(
                (min(-(-k // _TOGETHER), 1 << 16),), (256,),
                (source.words(), np.int32(m), np.int32(first), np.int32(k), there, matching,
                 low, cost, bad),
            )  # fmt: skip
            u[first : first + k] = low.get()
            if bad.get()[0]:
                return None
            costs[first : first + k] = cost.get()
            tick(first + k)
    return u, costs


def _check(
    source: Any, matching: Array | None, prices: Array, maximize: bool, u: Array, matched: Array
) -> None:
    """Compute a sample of the rows on the host; replaces nothing, raises when they differ."""
    n, m = source.shape
    count = min(n, SAMPLE, max(_LEAST_SAMPLE, _SAMPLED_PAIRS // m))
    rows = np.unique(np.linspace(0, n - 1, count).astype(np.intp))
    costs = np.empty((rows.size, m), source.dtype)
    source.read(rows, slice(0, m), costs)
    signed = costs.astype(prices.dtype)
    signed = (-signed if maximize else signed) - prices
    exact = source.code().exact
    for row, given, reduced in zip(rows.tolist(), costs, signed, strict=True):
        same = [(u[row], reduced.min())]
        if matching is not None and matching[row] >= 0:
            same.append((matched[row], given[matching[row]]))
        size = 1.0 if prices.dtype.kind == "i" else float(np.abs(prices).max() + abs(u[row]) + 1)
        allowed = 0.0 if exact or prices.dtype.kind == "i" else _TOLERANCE * size
        for device, host in same:
            if abs(float(device) - float(host)) > allowed:
                raise CertificateError(
                    f"row {row}: the device computes {device}, the host {host}; the certificate"
                    " cannot rest on the device's costs"
                )
