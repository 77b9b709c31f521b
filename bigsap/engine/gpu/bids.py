"""The auction's rounds on the device that the costs are on; see ``kernels_bids.cu``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.dense.bidding import Auction
from bigsap.engine.gpu.wait import Wait
from bigsap.engine.gpu.zeros_pass import values_of
from bigsap.problem import Problem
from bigsap.sources.base import Array
from bigsap.sources.device.device_kernels import compiled, load_cupy, on

_SIDE, _SECONDS = 256, 0.25
_USUAL_CLOCK, _USUAL_CHIPS = 2_000_000, 4
# Words of the kernel.
_STOP, _BARRIER, _WORDS, _YIELD = 3, 16, 32, 2


class DeviceBids:
    """See ``methods.auction.HostBids``."""

    def __init__(self, problem: Problem, price: np.dtype[Any], look: Callable[[], None]) -> None:
        source: Any = problem.source
        self.problem, self.source, self.price, self._look = problem, source, price, look
        self._settings = (
            ("PRICE_IS_INT", int(price.kind == "i")), ("SIDE", _SIDE), ("SIGN", problem.sign),
            ("WIDTH", source.code().width),
        )  # fmt: skip

    def _kernel(self, name: str, *, together: bool = False) -> Any:
        code = self.source.code()
        return compiled(self.source.device, code, "bids", self._settings, cooperative=together).get(
            name
        )

    def range(self) -> tuple[Array, int]:
        """The smallest and the largest allowed signed cost, keys' ends where there is none; the
        first row with an invalid cost, or how many rows there are."""
        cupy = load_cupy()
        n, m = map(np.int32, self.problem.shape)
        with on(self.source.device):
            ends = cupy.asarray(np.array([np.iinfo(np.uint64).max, 0], np.uint64))
            bad = cupy.full(1, n, np.int32)
            grid = (min(int(n), 1 << 14),)
            self._kernel("bigsap_range")(grid, (_SIDE,), (self.source.words(), n, m, ends, bad))
            return values_of(ends.get(), self.price), int(bad.get()[0])

    def bid(self, spread: Any, epsilon: Any, floor: Any, most: int, a: Auction) -> None:
        """Bid until no row is free, or it takes too long."""
        cupy = load_cupy()
        n, m = self.problem.shape
        with on(self.source.device):
            attributes = cupy.cuda.Device(self.source.device).attributes
            blocks = attributes.get("MultiProcessorCount", _USUAL_CHIPS)
            cycles = int(1000 * _SECONDS * attributes.get("ClockRate", _USUAL_CLOCK))
            wait = Wait(self.source.device)
            state = np.zeros(_WORDS, np.int32)
            state[0] = n
            words, free = cupy.asarray(state), cupy.zeros(2 * n, np.int32)
            free[:n] = cupy.arange(n, dtype=np.int32)
            least = cupy.full(m, np.iinfo(np.uint64).max, np.uint64)
            pairs = cupy.full(n, S.FREE, np.int32), cupy.full(m, S.FREE, np.int32)
            v, bids = cupy.asarray(a.v), cupy.zeros(1, np.uint64)
            args = (
                self.source.words(), np.int32(n), np.int32(m), spread, epsilon, floor,
                np.int64(most), words, free, cupy.zeros(n, np.int32), cupy.empty(n, self.price),
                least, cupy.full(m, n, np.int32), *pairs, v, bids, np.int64(cycles), wait.address,
            )  # fmt: skip
            kernel = self._kernel("bigsap_bids", together=True)
            while True:
                kernel((blocks,), (_SIDE,), args)
                raised = wait.until_done(self._look)
                if raised is not None:
                    raise raised
                if words.get()[_STOP] != _YIELD:
                    break
                words[_STOP] = words[_BARRIER] = 0
                self._look()
            a.column_of_row[:], a.v[:] = pairs[0].get(), v.get()
            a.at.bids = int(bids.get()[0])
