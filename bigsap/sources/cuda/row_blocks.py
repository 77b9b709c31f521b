"""Costs whose rows are divided among several devices."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np

from bigsap.sources.base import CostSource, Fingerprinted, Interruptible, Resident
from bigsap.sources.convert import fingerprint_of
from bigsap.sources.cuda.code import source_code
from bigsap.sources.cuda.device_memory import moved
from bigsap.sources.cuda.placed import MatrixOnDevice, OnDevice, Placeable
from bigsap.sources.cuda.slabs import SlabsOnDevices, slab_bounds
from bigsap.types import Array, Ids


class RowsOnDevices:
    """A matrix of which each device holds a block of rows.

    source, devices, limit: as for ``SlabsOnDevices``: the rows are the transpose's columns. Blocks
    are copied at first use.
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
        self._given = source, devices, limit, tick
        self._turned = turned
        self.devices = devices
        self._columns = SlabsOnDevices(source, devices, limit, tick, turned=not turned)
        self._whole = SlabsOnDevices(source, devices, limit, tick, turned=turned).whole
        self.shape = (self._columns.shape[1], self._columns.shape[0])
        self.dtype = source.dtype
        self._blocks: list[tuple[Any, int]] = []

    def __repr__(self) -> str:
        return f"RowsOnDevices({self._given[0]!r}, cuda:{','.join(map(str, self.devices))})"

    def blocks(self) -> list[tuple[Any, int]]:
        """Return the blocks, each a source on its device, and the number of its first row."""
        source: Any = self._given[0]
        if not self._blocks and isinstance(source, MatrixOnDevice):
            array = source.array.T if self._turned else source.array
            bounds = slab_bounds(self.shape[0], len(self.devices))
            for device, (start, stop) in zip(self.devices, pairwise(bounds), strict=False):
                part = moved(array[start:stop], source.device, device, "a block of rows")
                self._blocks.append((MatrixOnDevice(part), start))
        elif not self._blocks:
            for slab in self._columns.slabs():
                there: Any = slab.source
                self._blocks.append((there.transposed(), slab.start))
        return self._blocks

    @property
    def copied_bytes(self) -> int:
        """Bytes of costs that were copied from the host."""
        return self._columns.copied_bytes

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        self._whole.read(rows, columns, out)

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        if isinstance(self._given[0], Interruptible):
            self._given[0].while_waiting(check)

    def resident(self) -> Array | None:
        """Return the host's matrix, if the costs are copied from one."""
        matrix = self._whole.resident() if isinstance(self._whole, Resident) else None
        return matrix if self.shape[0] <= self.shape[1] else None

    def transposed(self) -> RowsOnDevices:
        """Return the transpose, in blocks of its own rows."""
        return RowsOnDevices(*self._given, turned=not self._turned)

    def fingerprint(self) -> str:
        if isinstance(self._whole, Fingerprinted):
            return self._whole.fingerprint()
        return fingerprint_of(self)

    def row_minima(
        self,
        matching: Array | None,
        prices: Array,
        low: Array | None,
        maximize: bool,
        tick: Callable[[int], None],
    ) -> tuple[Array, Array | None, Array | None, Array] | None:
        """Make the certificate's pass: each device processes its rows."""
        found = []
        for block, start in self.blocks():
            own = None if matching is None else matching[start : start + block.shape[0]]
            of_block = block.row_minima(own, prices, low, maximize, lambda k, at=start: tick(at + k))
            if of_block is None:
                return None
            found.append(of_block)
        high, matched = (np.concatenate([parts[k] for parts in found]) for k in (0, 3))
        mid = None if found[0][1] is None else np.concatenate([parts[1] for parts in found])
        return high, mid, None, matched


def is_matrix(source: Any) -> bool:
    """Return whether costs are looked up, so that their rows can be copied to devices."""
    if isinstance(source, MatrixOnDevice):
        return True
    return not isinstance(source, (OnDevice, Placeable)) and source_code(source) is None
