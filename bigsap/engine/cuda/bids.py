"""Rounds of the auction on the device that holds the costs; see ``kernels_bids.cu``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.engine.core.state import FREE
from bigsap.engine.cuda import kernel_texts
from bigsap.engine.cuda.row_kernels import row_kernels, values_of
from bigsap.engine.cuda.wait import run_in_launches
from bigsap.problem import Problem
from bigsap.sources.cuda.device_kernels import load_cupy, on
from bigsap.types import Array

#: Threads of a block, and limit of blocks that search the range of costs.
_SIDE, _BLOCKS = 256, 1 << 14
# Words of the kernel, and values that say why a launch ended.
_COUNT, _BIDS, _STOP, _BARRIER, _WORDS, _YIELD = 0, 3, 4, 16, 32, 2


class DeviceBids:
    """Bidding on a device; see ``strategies.baselines.auction.HostBids``."""

    def __init__(self, problem: Problem, price: np.dtype[Any], look: Callable[[], None]) -> None:
        self.source: Any = problem.source
        self.price, self._look, self.shape = price, look, problem.shape
        self._range = row_kernels(problem, price, kernel_texts.BIDS, _SIDE).get("bigsap_range")
        self._bids = row_kernels(problem, price, kernel_texts.BIDS, _SIDE, together=True).get("bigsap_bids")

    def range(self) -> Array:
        """Return the range of costs, see ``HostBids``; without an allowed cost, the limits of the type."""
        with on(self.source.device):
            ends = load_cupy().asarray(np.array([np.iinfo(np.uint64).max, 0], np.uint64))
            args = (self.source.words(), *map(np.int32, self.shape), ends)
            self._range((min(self.shape[0], _BLOCKS),), (_SIDE,), args)
            return values_of(ends.get(), self.price)

    def bid(self, v: Array, spread: Any, epsilon: Any, floor: Any, most: int) -> tuple[Array, int]:
        """Run the auction; see ``HostBids``."""
        cupy, (n, m) = load_cupy(), self.shape
        with on(self.source.device):
            words = cupy.zeros(_WORDS, np.int64)
            words[_COUNT] = n
            prices, row_of_column = cupy.asarray(v), cupy.full(m, FREE, np.int32)
            # After the words: free rows, wishes, offers; of columns the lowest offers, winners, rows.
            args = (
                self.source.words(),
                np.int32(n),
                np.int32(m),
                prices,
                spread,
                epsilon,
                floor,
                np.int64(most),
                words,
                cupy.arange(2 * n, dtype=np.int32),
                cupy.empty(n, np.int32),
                cupy.empty(n, self.price),
                cupy.full(m, np.iinfo(np.uint64).max, np.uint64),
                cupy.full(m, n, np.int32),
                row_of_column,
            )

            def over() -> bool:
                last = int(words[_STOP]) != _YIELD
                words[_STOP] = words[_BARRIER] = 0
                return last

            run_in_launches(self.source.device, self._bids, _SIDE, args, self._look, over)
            v[:] = prices.get()
            return row_of_column.get(), int(words[_BIDS])
