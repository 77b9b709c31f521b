"""What a device reads of its rows before trees grow: ends, first prices, lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigsap.engine.cuda import kernel_texts
from bigsap.engine.trees.device_result import KEEP
from bigsap.sources.cuda.device_kernels import compiled, load_cupy, on
from bigsap.sources.cuda.device_memory import empty

#: Largest range of costs, as in kernels_forest_rows.cu: times stay below three times as much.
RANGE = 1 << 29
_STRIP = 256
_MOST_BLOCKS = 1 << 16
#: Largest size of costs in their unit: sums of two are 64-bit numbers.
_BITS = 61
#: What 2.0**shift can be without being subnormal or infinite.
_SHIFTS = 1000
#: Stands for an exponent in kernels_forest_rows.cu.
_NO_NUMBER = 5000


class Reading:
    """Rows of a matrix on one device, and what has been found of them there.

    source: an ``OnDevice``; first: the number of its first row. After ``find_ends``: low, int64,
    each row's least signed cost in units; ends, int64 (2,), the smallest and the largest of all
    costs; v: int32 (n_columns,) prices of the columns. The rest is made where these ends are less
    than RANGE apart only. All of it lies on the device.
    """

    low: Any
    ends: Any
    v: Any
    lists: tuple[Any, ...]

    def __init__(self, source: Any, first: int, n_columns: int, sign: int, side: int) -> None:
        self.source, self.first, self.side = source, first, side
        self.device, self.code = int(source.device), source.code()
        self.rows, self.columns = np.int32(source.shape[0]), np.int32(n_columns)
        self.real = self.code.dtype.kind == "f"
        self._sign = sign
        self.unit(0)

    def unit(self, shift: int) -> None:
        """Count costs in units of 2**-shift from now on."""
        self.settings = (
            ("KEEP", KEEP),
            ("REAL", int(self.real)),
            ("SHIFT", shift),
            ("SIDE", self.side),
            ("SIGN", self._sign),
            ("WIDTH", self.code.width),
        )

    def _launch(self, name: str, grid: tuple[int, ...], *args: Any) -> None:
        kernel = compiled(self.device, self.code, kernel_texts.FOREST_ROWS, self.settings).get(name)
        kernel(grid, (self.side,), (self.source.words(), self.rows, self.columns, *args))

    def exponents(self) -> Any:
        """On the device: exponents of the lowest bit set in any cost, and beyond the highest."""
        with on(self.device):
            ends = load_cupy().asarray(np.array([_NO_NUMBER, -_NO_NUMBER], np.int32))
            self._launch("bigsap_unit", self._grid(), ends)
        return ends

    def find_ends(self, lowered: bool) -> None:
        """Each row's least cost; the smallest and the largest of all.

        lowered: whether prices are to be found, else they are 0.
        """
        limits = np.iinfo(np.int64)
        with on(self.device):
            self.low = empty((int(self.rows),), np.int64, "row minima")
            self.v = empty((int(self.columns),), np.int32, "prices")
            self.ends = load_cupy().asarray(np.array([limits.max, limits.min]))
            price = np.int32(np.iinfo(np.int32).max if lowered else 0)
            self._launch("bigsap_row_ends", self._grid(), self.low, self.ends, price, self.v)

    def lower_prices(self) -> None:
        """Prices: the least of what these rows' costs are beyond their rows' least."""
        wide = -(-int(self.columns) // (self.side * self.code.width))
        with on(self.device):
            self._launch(
                "bigsap_column_least",
                (wide, -(-int(self.rows) // _STRIP)),
                self.ends,
                np.int32(_STRIP),
                self.low,
                self.v,
            )

    def make_lists(self) -> None:
        """Lists of these rows: ids, costs, sizes, thresholds, and the rows' duals."""
        n = int(self.rows)
        with on(self.device):
            ids, costs = empty((n, KEEP), np.int32, "lists"), empty((n, KEEP), np.int32, "lists")
            sizes, theta, u = (empty((n,), np.int32, "lists") for _ in range(3))
            self.lists = ids, costs, sizes, theta, u
            self._launch(
                "bigsap_short_lists",
                self._grid(),
                self.ends,
                np.int32(self.first),
                self.low,
                self.v,
                *self.lists,
            )

    def _grid(self) -> tuple[int]:
        return (min(int(self.rows), _MOST_BLOCKS),)


def common_unit(readings: Sequence[Reading]) -> int | None:
    """Have all count in the same unit, 2**-shift; the shift. None where there is no such unit:
    costs that are infinite, no number, or too far apart. Integers count in ones."""
    if not readings[0].real:
        return 0
    exponents = [reading.exponents() for reading in readings]
    ends = np.array([there.get() for there in exponents])
    low, high = int(ends[:, 0].min()), int(ends[:, 1].max())
    if low == _NO_NUMBER:
        low, high = 0, 0  # all are 0
    if high >= _NO_NUMBER or high - low > _BITS or abs(low) > _SHIFTS:
        return None
    for reading in readings:
        reading.unit(-low)
    return -low


def gathered(readings: Sequence[Reading], n: int) -> tuple[Any, ...]:
    """The lists of all rows on the first device; of a single one as they are."""
    first = readings[0]
    if len(readings) == 1:
        return first.lists
    cupy = load_cupy()
    with on(first.device):
        whole = tuple(empty((n, *one.shape[1:]), np.int32, "lists of all rows") for one in first.lists)
    for reading in readings:
        with on(reading.device):
            cupy.cuda.get_current_stream().synchronize()
        with on(first.device):
            for all_rows, own in zip(whole, reading.lists, strict=True):
                all_rows[reading.first : reading.first + int(reading.rows)] = cupy.asarray(own)
            cupy.cuda.get_current_stream().synchronize()
    return whole
