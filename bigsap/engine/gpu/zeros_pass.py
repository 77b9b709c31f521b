"""The passes over costs of the classical Hungarian method, by the device that has them.

What grows and flips is the host's: each pass sends prices, covers and rows, and brings bits or
slacks back, as Date and Nagi (2016, section 5) do with several devices and a root.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.precision import Arithmetic
from bigsap.engine.hungarian.zeros import Zeros
from bigsap.problem import Problem
from bigsap.sources.base import Array
from bigsap.sources.device.device_kernels import Kernels, compiled, load_cupy, on
from bigsap.sources.device.placed import OnDevice

_SIDE = 256
_STRIP = 256
#: Bytes of bits that come back at a time, and pairs of one launch.
_BITS_BYTES = 64 << 20
_PAIRS = 1 << 33
_MOST_BLOCKS = 1 << 16


class DeviceZeros:
    """See ``methods.classical.HostPasses``, whose numbers these are.

    ends: signed costs are above the first and at most the second.
    """

    def __init__(
        self, problem: Problem, arithmetic: Arithmetic, ends: tuple[Any, Any],
        look: Callable[[], None],
    ) -> None:  # fmt: skip
        source: Any = problem.source
        assert isinstance(source, OnDevice)
        self.problem, self.price, self.ends, self._look = problem, arithmetic.price, ends, look
        self.source: Any = source
        self._kernels = row_kernels(problem, self.price, "zeros", _SIDE)

    def _launch(self, name: str, grid: tuple[int, ...], *args: Any) -> None:
        m = np.int32(self.problem.shape[1])
        self._kernels.get(name)(grid, (_SIDE,), (self.source.words(), m, *args))

    def _parts(self, rows: Array) -> list[Array]:
        m = self.problem.shape[1]
        most = max(1, min(_BITS_BYTES * 8 // m, _PAIRS // m))
        return [rows[k : k + most] for k in range(0, rows.size, most)]

    def column_minima(self) -> Array:
        """See ``engine.hungarian.reduction``, which gives the same."""
        cupy = load_cupy()
        n, m = self.problem.shape
        with on(self.source.device):
            u = cupy.empty(n, self.price)
            v, bad = cupy.zeros(m, self.price), cupy.full(1, n, np.int32)
            for part in self._parts(np.arange(n, dtype=np.int32)):
                self._launch(
                    "bigsap_zeros", _blocks(part), np.int32(0), cupy.asarray(part),
                    np.int32(part.size), v, *self.ends, S.infinity(self.price),
                    u[part[0] : part[-1] + 1], np.intp(0), bad,
                )  # fmt: skip
            least = cupy.full(m, np.iinfo(np.uint64).max, np.uint64)
            self._launch(
                "bigsap_columns_least", (-(-m // _SIDE), -(-n // _STRIP)), np.int32(n),
                np.int32(_STRIP), u, least,
            )  # fmt: skip
            keys: Array = least.get()
        self._look()
        v = values_of(keys, self.price)
        v[~(v < S.infinity(self.price))] = 0
        return v

    def zeros(self, rows: Array, z: Zeros) -> None:
        """See ``engine.hungarian.zeros.run_zeros``; ``z.at.bad_row`` for an invalid cost."""
        cupy = load_cupy()
        n, width = self.problem.shape[0], z.bits.shape[1]
        with on(self.source.device):
            v, bad = cupy.asarray(z.v), cupy.full(1, n, np.int32)
            for part in self._parts(rows):
                u = cupy.empty(part.size, self.price)
                bits = cupy.empty((part.size, 2 * width), np.int32)
                self._launch(
                    "bigsap_zeros", _blocks(part), np.int32(width), _ids(part),
                    np.int32(part.size), v, *self.ends, self.price.type(0), u, bits, bad,
                )  # fmt: skip
                z.u[part] = u.get()
                z.bits[part] = bits.get().view(np.uint64)
                self._look()
            found = int(bad.get()[0])
        if found < n:
            z.at.bad_row = found

    def slacks(self, rows: Array, z: Zeros) -> None:
        """See ``engine.hungarian.zeros.run_slacks``."""
        cupy = load_cupy()
        with on(self.source.device):
            v, reached = cupy.asarray(z.v), cupy.asarray(z.reached.view(np.int32))
            for part in self._parts(rows):
                low, arg = cupy.empty(part.size, self.price), cupy.empty(part.size, np.int32)
                self._launch(
                    "bigsap_slacks", _blocks(part), _ids(part), np.int32(part.size), v,
                    cupy.asarray(z.u[part]), reached, low, arg,
                )  # fmt: skip
                z.low[part], z.arg[part] = low.get(), arg.get()
                self._look()

    def tight(self, rows: Array, z: Zeros) -> None:
        """See ``engine.hungarian.zeros.run_tight``."""
        cupy = load_cupy()
        width = z.bits.shape[1]
        with on(self.source.device):
            v, reached = cupy.asarray(z.v), cupy.asarray(z.reached.view(np.int32))
            for part in self._parts(rows):
                bits = cupy.empty((part.size, 2 * width), np.int32)
                self._launch(
                    "bigsap_tight_bits", _blocks(part), np.int32(width), _ids(part),
                    np.int32(part.size), v, cupy.asarray(z.u[part]), cupy.asarray(z.low[part]),
                    reached, bits,
                )  # fmt: skip
                z.bits[part] |= bits.get().view(np.uint64)
                self._look()
        columns = z.arg[rows]
        z.bits[rows, columns >> 6] |= np.uint64(1) << (columns & 63).astype(np.uint64)


def row_kernels(
    problem: Problem, price: np.dtype[Any], file: str, side: int, *, together: bool = False
) -> Kernels:
    """Kernels of which a block goes through a row. side: its threads. together: blocks wait for one
    another; there may not be more than run at a time."""
    source: Any = problem.source
    code = source.code()
    settings = (
        ("PRICE_IS_INT", int(price.kind == "i")), ("SIDE", side), ("SIGN", problem.sign),
        ("WIDTH", code.width),
    )  # fmt: skip
    return compiled(source.device, code, file, settings, cooperative=together)


def _blocks(rows: Array) -> tuple[int]:
    return (min(rows.size, _MOST_BLOCKS),)


def _ids(rows: Array) -> Any:
    return load_cupy().asarray(rows.astype(np.int32))


def values_of(keys: Array, price: np.dtype[Any]) -> Array:
    """Prices of the order-preserving keys (uint64) of kernels_price.cu."""
    top = np.uint64(1 << 63)
    if price.kind == "i":
        return (keys ^ top).view(np.int64)
    return np.where(keys & top, keys ^ top, ~keys).view(np.float64)
