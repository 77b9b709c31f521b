"""Costs whose rows are divided among several devices."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from bigsap.sources.base import RowDuals
from bigsap.sources.cuda.code import source_code
from bigsap.sources.cuda.device_memory import moved
from bigsap.sources.cuda.placed import MatrixOnDevice, OnDevice, Placeable
from bigsap.sources.cuda.slabs import Divided, SlabsOnDevices, slab_bounds
from bigsap.types import Array, Tick


class RowsOnDevices(Divided):
    """A matrix of which each device holds a block of rows: those are the transpose's columns."""

    _blocks: list[tuple[Any, int]] | None = None

    @cached_property
    def _columns(self) -> SlabsOnDevices:
        return SlabsOnDevices(self.source, self.devices, self._limit, self._tick, turned=not self.turned)

    def blocks(self, tick: Callable[[], None] | None = None) -> list[tuple[Any, int]]:
        """Return the blocks, each a source on its device, and the number of its first row.

        tick: as for ``SlabsOnDevices.slabs``.
        """
        if self._blocks is None:
            self._blocks = self._made(tick)
        return self._blocks

    def _made(self, tick: Callable[[], None] | None) -> list[tuple[Any, int]]:
        source = self.source
        if not isinstance(source, MatrixOnDevice):
            slabs: list[Any] = self._columns.slabs(tick)
            return [(slab.source.transposed(), slab.start) for slab in slabs]
        array, made = source.array.T if self.turned else source.array, []
        bounds = slab_bounds(self.shape[0], len(self.devices))
        for device, (start, stop) in zip(self.devices, pairwise(bounds), strict=False):
            part = moved(array[start:stop], source.device, device, "a block of rows")
            made.append((MatrixOnDevice(part), start))
        return made

    @property
    def copied_bytes(self) -> int:
        """Bytes of costs that were copied from the host."""
        return self._columns.copied_bytes

    def row_minima(
        self, matching: Array | None, prices: Array, low: Array | None, maximize: bool, tick: Tick
    ) -> RowDuals | None:
        """Make the certificate's pass: each device processes its rows."""
        found = []
        for block, start in self.blocks(lambda: tick(0)):
            own = None if matching is None else matching[start : start + block.shape[0]]
            of_block = block.row_minima(own, prices, low, maximize, lambda k, at=start: tick(at + k))
            if of_block is None:
                return None
            found.append(of_block)
        high, matched = (np.concatenate([parts[k] for parts in found]) for k in (0, 3))
        mids = [np.zeros(parts[0].size) if parts[1] is None else parts[1] for parts in found]
        rounded = any(parts[1] is not None for parts in found)
        return high, np.concatenate(mids) if rounded else None, None, matched


def is_matrix(source: Any) -> bool:
    """Return whether costs are looked up, so that their rows can be copied to devices."""
    if isinstance(source, MatrixOnDevice):
        return True
    return not isinstance(source, (OnDevice, Placeable)) and source_code(source) is None
