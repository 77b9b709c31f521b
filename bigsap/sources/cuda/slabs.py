"""Costs divided among several devices: each holds, or computes, a slab of the columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np

from bigsap.errors import DeviceMemoryError
from bigsap.sources.base import CostSource, RowDuals, Transposable
from bigsap.sources.cuda.code import DeviceCode, source_code
from bigsap.sources.cuda.device_kernels import on
from bigsap.sources.cuda.device_memory import bring, empty, free_bytes, moved, panels
from bigsap.sources.cuda.placed import (
    MatrixOnDevice,
    OnDevice,
    Placeable,
    ReadByHost,
    Turned,
    needed_bytes,
    place,
)
from bigsap.types import Array, Tick

#: Slabs begin at multiples of so many columns, so that rows of a slab are aligned.
ALIGNED = 16


def slab_bounds(n_columns: int, n_devices: int) -> list[int]:
    """Return the bounds of slabs: nearly equal, none empty, one for each device.

    Few columns make fewer slabs than devices.
    """
    width = -(-n_columns // n_devices)
    width = -(-width // ALIGNED) * ALIGNED
    bounds = [min(k * width, n_columns) for k in range(n_devices + 1)]
    return [0, *(b for a, b in pairwise(bounds) if b > a)]


@dataclass(frozen=True, eq=False)
class DeviceSlab:
    """Columns ``start`` to ``stop`` of the costs, as a source on one device."""

    source: OnDevice
    start: int
    stop: int


class Divided(ReadByHost):
    """Costs that are divided among devices.

    source: the costs as given. devices: their numbers; one that is named twice holds two parts.
    limit: bytes that a part may take of its device, None: the free memory. turned: use the
    transpose. Parts are made at first use.
    """

    def __init__(
        self,
        source: CostSource,
        devices: tuple[int, ...],
        limit: int | None,
        tick: Callable[[], None] | None = None,
        *,
        turned: bool = False,
    ) -> None:
        self.source, self.devices, self.turned = source, devices, turned
        self._limit, self._tick = limit, tick or (lambda: None)
        n, m = source.shape
        self.shape = (m, n) if turned else (n, m)
        self.dtype = source.dtype
        self.whole = source
        if turned:
            other = source.transposed() if isinstance(source, Transposable) else None
            self.whole = Turned(source) if other is None else other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.source!r}, cuda:{','.join(map(str, self.devices))})"

    def resident(self) -> Array | None:
        return super().resident() if self.shape[0] <= self.shape[1] else None

    def transposed(self) -> Self:
        """Return the transpose, in parts of its own columns or rows."""
        return type(self)(self.source, self.devices, self._limit, self._tick, turned=not self.turned)


class SlabsOnDevices(Divided):
    """Costs whose columns are divided among devices, in slabs."""

    _slabs: list[DeviceSlab] | None = None

    def slabs(self, tick: Callable[[], None] | None = None) -> list[DeviceSlab]:
        """Return the slabs, from the first column to the last. DeviceMemoryError names the bytes.

        tick: called while costs are copied; None: the one given with the costs.
        """
        if self._slabs is None:
            bounds = slab_bounds(self.shape[1], len(self.devices))
            if len(bounds) == 1:
                bounds = [0, 0]
            pieces = list(pairwise(bounds))
            tick = tick or self._tick
            self._slabs = self._copied(pieces, tick) if self._must_copy() else self._parts(pieces)
        return self._slabs

    def code(self) -> DeviceCode:
        """Return the code with which kernels of the first slab are compiled."""
        return self.slabs()[0].source.code()

    def _must_copy(self) -> bool:
        source = self.source
        return not isinstance(source, (OnDevice, Placeable)) and source_code(source) is None

    def _parts(self, pieces: list[tuple[int, int]]) -> list[DeviceSlab]:
        """Return slabs of costs in device memory, or computed there."""
        made = []
        rows = np.arange(self.shape[0])
        for device, (start, stop) in zip(self.devices, pieces, strict=False):
            if isinstance(self.source, MatrixOnDevice):
                there = self._part_of_array(self.source, device, start, stop)
                made.append(DeviceSlab(there, start, stop))
                continue
            whole: Any = self.source
            if isinstance(whole, Placeable):
                whole = whole.on_device(device)
            elif not isinstance(whole, OnDevice):
                whole = place(whole, device, None)
            if self.turned:
                whole = whole.transposed()
            part: Any = whole.select(rows, np.arange(start, stop))
            made.append(DeviceSlab(part, start, stop))
        return made

    def _part_of_array(self, source: MatrixOnDevice, device: int, start: int, stop: int) -> MatrixOnDevice:
        """Return columns of a device array: in place on its device, copied to any other."""
        array = source.array.T if self.turned else source.array
        part = array[:, start:stop]
        if device != source.device:
            self._refuse(device, int(part.nbytes))
            part = moved(part, source.device, device, "a slab of the costs")
        return MatrixOnDevice(part)

    def _copied(self, pieces: list[tuple[int, int]], tick: Callable[[], None]) -> list[DeviceSlab]:
        """Return slabs copied from the host; the transpose's are rows of the copied matrix."""
        source, n, m = self.source, *self.source.shape
        arrays = []
        for device, (start, stop) in zip(self.devices, pieces, strict=False):
            shape = (stop - start, m) if self.turned else (n, stop - start)
            self._refuse(device, shape[0] * shape[1] * self.dtype.itemsize)
            with on(device):
                arrays.append(empty(shape, self.dtype, "a slab of the costs"))
        if self.turned:
            for device, array, (start, stop) in zip(self.devices, arrays, pieces, strict=False):
                with on(device):
                    for first, panel in panels(source, np.arange(start, stop), tick):
                        bring(array[first : first + len(panel)], panel)
            return [
                DeviceSlab(MatrixOnDevice(array.T), *piece)
                for array, piece in zip(arrays, pieces, strict=True)
            ]
        for first, panel in panels(source, np.arange(n), tick):
            for device, array, (start, stop) in zip(self.devices, arrays, pieces, strict=False):
                with on(device):
                    part = np.ascontiguousarray(panel[:, start:stop])
                    bring(array[first : first + len(panel)], part)
        return [
            DeviceSlab(MatrixOnDevice(array), *piece) for array, piece in zip(arrays, pieces, strict=True)
        ]

    def _refuse(self, device: int, nbytes: int) -> None:
        """Raise DeviceMemoryError if a slab exceeds its limit: slabs are not streamed."""
        room = self._limit
        if room is None:
            room = free_bytes(device) // self.devices.count(device)
        if nbytes > room:
            raise DeviceMemoryError(
                f"a slab of the costs takes {nbytes} bytes of cuda:{device}, more than is free or"
                " memory_limit allows; name more devices",
                nbytes,
            )

    @property
    def copied_bytes(self) -> int:
        """Bytes of costs that were copied from the host."""
        return needed_bytes(self) if self._slabs and self._must_copy() else 0

    def row_minima(
        self, matching: Array | None, prices: Array, low: Array | None, maximize: bool, tick: Tick
    ) -> RowDuals | None:
        """Make the certificate's pass, see ``bigsap.proof.row_minima``; None if the host must make it."""
        from bigsap.sources.cuda.device_proof import row_minima

        pieces = [(slab.source, slab.start, slab.stop) for slab in self.slabs(lambda: tick(0))]
        return row_minima(self, pieces, matching, prices, low, maximize, tick)
