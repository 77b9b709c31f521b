"""Kernels in which a block processes one row of the costs at a time, and initial prices from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.cuda import kernel_texts
from bigsap.problem import Problem
from bigsap.sources.cuda.device_kernels import KernelFiles, Kernels, compiled, load_cupy, on
from bigsap.types import Array

_SIDE, _STRIP, _MOST_BLOCKS = 256, 256, 1 << 16
#: Pairs of one launch.
_PAIRS = 1 << 33


def row_kernels(
    problem: Problem,
    price: np.dtype[Any],
    files: KernelFiles,
    side: int,
    *,
    together: bool = False,
    **settings: int,
) -> Kernels:
    """Return kernels in which a block processes one row.

    side: threads of a block. together: blocks wait for one another, so there may not be more than
    run at a time. settings: further macros.
    """
    source: Any = problem.source
    code = source.code()
    macros = {
        "PRICE_IS_INT": int(price.kind == "i"),
        "SIDE": side,
        "SIGN": problem.sign,
        "WIDTH": code.width,
        **settings,
    }
    return compiled(source.device, code, files, tuple(macros.items()), cooperative=together)


def values_of(keys: Array, price: np.dtype[Any]) -> Array:
    """Convert the order-preserving keys (uint64) of kernels_price.cu to prices."""
    top = np.uint64(1 << 63)
    if price.kind == "i":
        return (keys ^ top).view(np.int64)
    return np.where(keys & top, keys ^ top, ~keys).view(np.float64)


def column_minima(problem: Problem, price: np.dtype[Any]) -> Any:
    """Return P (n_columns,) on the device of the costs; the result of ``engine.trees.reduction``."""
    cupy = load_cupy()
    source: Any = problem.source
    n, m = problem.shape
    kernels = row_kernels(problem, price, kernel_texts.COLUMNS, _SIDE)
    least_of_rows, columns_least, prices = map(
        kernels.get, ("bigsap_rows_least", "bigsap_columns_least", "bigsap_prices")
    )
    words = source.words()
    with on(source.device):
        u, v = cupy.empty(n, price), cupy.empty(m, price)
        most = max(1, _PAIRS // m)
        for first in range(0, n, most):
            count = min(most, n - first)
            part = (words, np.int32(m), np.int32(first), np.int32(count), u)
            least_of_rows((min(count, _MOST_BLOCKS),), (_SIDE,), part)
        least = cupy.full(m, np.iinfo(np.uint64).max, np.uint64)
        args = (words, np.int32(m), np.int32(n), np.int32(_STRIP), u, least)
        columns_least((-(-m // _SIDE), -(-n // _STRIP)), (_SIDE,), args)
        prices((-(-m // _SIDE),), (_SIDE,), (np.int32(m), S.infinity(price), least, v))
        return v
