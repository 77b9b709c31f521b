"""Preparation of a device's rows before trees grow: range of costs, initial prices, lists."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from bigsap.engine.cuda import kernel_texts
from bigsap.engine.trees.device_result import KEEP
from bigsap.sources.cuda.device_kernels import compiled, load_cupy, on
from bigsap.sources.cuda.device_memory import empty

#: Largest range of costs, as in kernels_forest_rows.cu: times stay below three times this.
RANGE = 1 << 29
_STRIP = 256
_MOST_BLOCKS = 1 << 16
#: Limit in bits of a cost in units: sums of two fit 64 bits.
_BITS = 61
#: Limit of the shift: 2.0**shift must be neither subnormal nor infinite.
_SHIFTS = 1000
#: Value in kernels_forest_rows.cu that means no exponent.
_NO_NUMBER = 5000


class Reading:
    """Rows of a matrix on one device, and the results computed from them there.

    source: an ``OnDevice``; first: the number of its first row. After ``find_ends``: low, int64,
    each row's least signed cost in units; ends, int64 (2,), the smallest and the largest of all
    costs; v: int32 (n_columns,) prices of the columns. The rest is computed only if these ends are
    less than RANGE apart. All arrays lie on the device.
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
        """Set the unit of costs to 2**-shift."""
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
        """Return the exponents of the lowest bit set in any cost, and above the highest; on the device."""
        with on(self.device):
            ends = load_cupy().asarray(np.array([_NO_NUMBER, -_NO_NUMBER], np.int32))
            self._launch("bigsap_unit", self._grid(), ends)
        return ends

    def find_ends(self, lowered: bool) -> None:
        """Compute each row's least cost, and the smallest and the largest of all.

        lowered: whether prices are to be computed; otherwise they are 0.
        """
        limits = np.iinfo(np.int64)
        with on(self.device):
            self.low = empty((int(self.rows),), np.int64, "row minima")
            self.v = empty((int(self.columns),), np.int32, "prices")
            self.ends = load_cupy().asarray(np.array([limits.max, limits.min]))
            price = np.int32(np.iinfo(np.int32).max if lowered else 0)
            self._launch("bigsap_row_ends", self._grid(), self.low, self.ends, price, self.v)

    def lower_prices(self) -> None:
        """Lower the prices to the minimum over these rows of the cost minus the row's least."""
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
        """Make the lists of these rows: ids, costs, sizes, thresholds, and the rows' duals."""
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
    """Set a common unit 2**-shift for all and return the shift.

    None without such a unit: costs are infinite, NaN, or too far apart. For integers the unit is 1.
    """
    if not readings[0].real:
        return 0
    exponents = [reading.exponents() for reading in readings]
    ends = np.array([there.get() for there in exponents])
    low, high = int(ends[:, 0].min()), int(ends[:, 1].max())
    if low == _NO_NUMBER:
        low, high = 0, 0  # all costs are 0
    if high >= _NO_NUMBER or high - low > _BITS or abs(low) > _SHIFTS:
        return None
    for reading in readings:
        reading.unit(-low)
    return -low


def gathered(readings: Sequence[Reading], n: int) -> tuple[Any, ...]:
    """Return the lists of all rows on the first device; without copies if there is only one."""
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
