"""Trees of the Hungarian method on the device that holds the costs; see ``kernels_forest.cu``.

Of matrices of whole numbers with a range below 2**29. Lists are made, first stars chosen and
trees grown there, in one launch of at most a quarter of a second, or as many as it takes; the
host hears of the end. What the launch does not do (lists that end, times beyond 31 bits) is left to
the host's forest, with prices, matching and lists of that moment.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.gpu.wait import Wait
from bigsap.engine.hungarian.grown import DONE, KEEP, YIELD, Grown
from bigsap.problem import Problem
from bigsap.sources.device.device_kernels import compiled, load_cupy, on
from bigsap.sources.device.device_memory import empty
from bigsap.sources.device.placed import OnDevice

#: Largest range of costs: times stay below three times as much.
RANGE = 1 << 29
#: Threads of a block that goes through rows, and of one of the forest's.
_SIDE, _TEAM = 256, 512
#: Items from which all blocks work on a step: below, two barriers of the grid cost more.
WIDE = 4096
_STRIP = 256
_SECONDS = 0.25
_USUAL_CLOCK, _USUAL_CHIPS = 2_000_000, 4
_MOST_BLOCKS = 1 << 16

# Words of the forest, and why a launch has ended, as in kernels_forest.cu.
_N_WAITING, _SINGLE, _WHY, _BARRIER, _WORDS = 8, 18, 28, 64, 96
_COUNTS = {
    "roots": 25, "stages": 19, "paths": 20, "levels": 21, "clock_steps": 22, "expansions": 23,
    "list_events": 24,
}  # fmt: skip
_VECTORS = 16


class DeviceForest:
    """The Hungarian method on one device, for one problem."""

    def __init__(self, problem: Problem) -> None:
        source: Any = problem.source
        assert isinstance(source, OnDevice)
        self.problem, self.source = problem, source
        code = source.code()
        settings = {"KEEP": KEEP, "SIDE": _SIDE, "TEAM": _TEAM, "WIDE": WIDE, "WIDTH": code.width,
                    "SIGN": problem.sign}  # fmt: skip
        with on(self.source.device):
            chip = load_cupy().cuda.Device(self.source.device)
            attributes = chip.attributes
            self.n_blocks = attributes.get("MultiProcessorCount", _USUAL_CHIPS)
            self.cycles = int(1000 * _SECONDS * attributes.get("ClockRate", _USUAL_CLOCK))
            given = (self.source.device, code, "forest", tuple(sorted(settings.items())))
            self._kernels = compiled(*given)
            # Its blocks wait for one another; such modules may not have larger grids.
            self._together = compiled(*given, cooperative=True)

    def grow(
        self, enough: int, tick: Callable[[], None], assigned: Callable[[int], None]
    ) -> Grown | None:
        """Match all rows, or as many as can be; None for costs of too large a range.

        enough: levels without a sixty-fourth of the first roots being matched after which the
        rest is left. tick: asked now and then, between launches and while one runs; what it
        raises ends the launch. Costs O(n m) three times, memory 8 KEEP bytes a row and some
        twenty vectors.
        """
        cupy = load_cupy()
        n, m = self.problem.shape
        with on(self.source.device):
            words, blocks = self.source.words(), min(n, _MOST_BLOCKS)
            wait = Wait(self.source.device)
            limits = np.iinfo(np.int64)
            low = empty((n,), np.int64, "row minima")
            ends = cupy.asarray(np.array([limits.max, limits.min]))
            self._kernels.get("bigsap_row_ends")(
                (blocks,), (_SIDE,), (words, np.int32(n), np.int32(m), low, ends)
            )
            least, most = ends.get().tolist()
            if most - least >= RANGE:
                return None
            v = cupy.zeros(m, np.int32)
            if n == m:
                v = cupy.full(m, np.iinfo(np.int32).max, np.int32)
                wide = -(-m // (_SIDE * self.source.code().width))
                self._kernels.get("bigsap_column_least")(
                    (wide, -(-n // _STRIP)), (_SIDE,),
                    (words, np.int32(n), np.int32(m), np.int32(_STRIP), low, v),
                )  # fmt: skip
            ids, costs = empty((n, KEEP), np.int32, "lists"), empty((n, KEEP), np.int32, "lists")
            sizes, theta, u = (empty((n,), np.int32, "lists") for _ in range(3))
            self._kernels.get("bigsap_short_lists")(
                (blocks,), (_SIDE,),
                (words, np.int32(n), np.int32(m), low, v, ids, costs, sizes, theta, u),
            )  # fmt: skip
            span = max(n, m)
            room = empty((_VECTORS, span), np.int32, "trees")
            room[3, :n] = cupy.arange(n, dtype=np.int32)  # rows that want a star
            room[14] = np.iinfo(np.int32).max  # offers
            state = cupy.zeros(_WORDS, np.int32)
            state[_N_WAITING], state[_SINGLE] = n, 1
            key = cupy.full(m, np.iinfo(np.uint64).max, np.uint64)
            column_of_row = cupy.full(n, S.FREE, np.int32)
            row_of_column = cupy.full(m, S.FREE, np.int32)
            args = (
                state, room, key, np.int32(span), np.int32(n), np.int32(m), ids, costs, sizes,
                theta, u, v, column_of_row, row_of_column,
                np.int32(min(enough, np.iinfo(np.int32).max)), np.int64(self.cycles),
                wait.address,
            )  # fmt: skip
            while True:
                self._together.get("bigsap_forest")((self.n_blocks,), (_TEAM,), args)
                raised = wait.until_done(tick)
                told = state.get()
                assigned(n - int(told[15]) if told[11] else 0)
                if raised is not None:
                    raise raised
                if told[_WHY] != YIELD:
                    break
                state[_BARRIER] = 0
                tick()
            status = int(told[_WHY])
            lists = None
            if status != DONE:
                lists = ids.get(), costs.get(), sizes.get(), theta.get()
            counts = {name: int(told[at]) for name, at in _COUNTS.items()}
            return Grown(
                status, v.get().astype(np.int64), column_of_row.get().astype(S.ID), counts,
                low.get(), lists,
            )  # fmt: skip
