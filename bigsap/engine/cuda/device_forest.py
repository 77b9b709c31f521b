"""Trees of the Hungarian method on the device that holds the costs; see ``kernels_forest.cu``.

For matrices whose costs are multiples of a power of two, with a range below 2**29 of these units.
The device makes the lists, chooses the initial pairs and grows the trees, in launches of at most a
quarter of a second each; the host is notified at the end. Cases that the launch does not handle
(exhausted lists, times beyond 31 bits) go to the host's forest, with the present prices, matching
and lists.

Rows may be distributed over several devices (``sources.cuda.row_blocks``): each reads its own,
and the first grows the trees. Only minima are exchanged, so the result does not depend on the
number of devices.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.cuda import kernel_texts
from bigsap.engine.cuda.forest_rows import RANGE, Reading, common_unit, gathered
from bigsap.engine.cuda.wait import run_in_launches
from bigsap.engine.trees.device_result import DONE, KEEP, YIELD, Grown, KeptLists
from bigsap.problem import Problem
from bigsap.sources.cuda.code import DeviceCode
from bigsap.sources.cuda.device_kernels import compiled, load_cupy, on
from bigsap.sources.cuda.device_memory import empty
from bigsap.sources.cuda.placed import OnDevice
from bigsap.sources.cuda.row_blocks import RowsOnDevices
from bigsap.types import Array, Tick

#: Threads of a block that processes rows, and of one that processes the forest.
_SIDE, _TEAM = 256, 1024
#: Items from which all blocks work on a step: below, two barriers of the grid cost more.
WIDE = 4096

# Words of the forest, and values that say why a launch ended, as in kernels_forest.cu.
_LEFT, _WHY, _PLANTED, _BARRIER, _WORDS = 15, 28, 31, 64, 96
_COUNTS = {
    "roots": 25,
    "stages": 19,
    "paths": 20,
    "levels": 21,
    "clock_steps": 22,
    "expansions": 23,
    "list_events": 24,
}
_VECTORS = 16
#: The trees' kernel reads lists, never costs.
_NO_COSTS = DeviceCode("", (), np.dtype(np.int32), True)


class DeviceForest:
    """The Hungarian method for one problem, on one device or with rows on several."""

    def __init__(self, problem: Problem) -> None:
        source: Any = problem.source
        assert isinstance(source, (OnDevice, RowsOnDevices))
        self.problem = problem
        blocks = source.blocks() if isinstance(source, RowsOnDevices) else [(source, 0)]
        self.readings = [
            Reading(block, start, problem.shape[1], problem.sign, _SIDE) for block, start in blocks
        ]

    def grow(self, enough: int, tick: Callable[[], None], assigned: Tick) -> Grown | None:
        """Match all rows, or as many as possible; return None for unsuitable costs.

        Costs are unsuitable if their range is too large, or if they are not multiples of a power of
        two. enough: levels after which the rest is left to the host unless a sixty-fourth of the first
        roots was matched. tick: called regularly, between launches and while one runs; its exceptions
        end the launch. Time: O(n m) three times (four for real costs). Memory: 8 KEEP bytes a row and
        some twenty vectors.
        """
        n, m = self.problem.shape
        shift = common_unit(self.readings)
        if shift is None:
            return None
        for reading in self.readings:
            reading.find_ends(n == m)
        if n == m:
            for reading in self.readings:
                reading.lower_prices()
            self._share_prices()
        for reading in self.readings:
            reading.make_lists()
        # Read only after all kernels are queued: if the range is too large, the lists are discarded.
        ends = [reading.ends.get().tolist() for reading in self.readings]
        if max(most for _, most in ends) - min(least for least, _ in ends) >= RANGE:
            return None
        lists = gathered(self.readings, n)
        v = self.readings[0].v
        status, pairs, counts = self._trees(lists, v, enough, tick, assigned)
        left = None
        if status != DONE:
            ids, list_costs, sizes, theta = (one.get() for one in lists[:4])
            low = np.concatenate([reading.low.get() for reading in self.readings])
            left = KeptLists(ids, list_costs, sizes, theta, low)
        return Grown(status, v.get().astype(np.int64), pairs.get().astype(S.ID), counts, left, shift)

    def _share_prices(self) -> None:
        """Set every device's prices to the minimum over all; through the host, m numbers each."""
        if len(self.readings) == 1:
            return
        found = [reading.v.get() for reading in self.readings]
        least = np.minimum.reduce(found)
        for reading in self.readings:
            with on(reading.device):
                reading.v = load_cupy().asarray(least)

    def _trees(
        self, lists: tuple[Any, ...], v: Any, enough: int, tick: Callable[[], None], assigned: Tick
    ) -> tuple[int, Any, dict[str, int]]:
        """Grow the trees; return the reason for the end, the rows' columns (on the device), counts."""
        cupy = load_cupy()
        n, m = self.problem.shape
        device = self.readings[0].device
        ids, costs, sizes, theta, u = lists
        with on(device):
            # Blocks wait for one another, so these modules may not have larger grids.
            settings = (("KEEP", KEEP), ("TEAM", _TEAM), ("WIDE", WIDE))
            kernel = compiled(device, _NO_COSTS, kernel_texts.FOREST, settings, cooperative=True).get(
                "bigsap_forest"
            )
            span = max(n, m)
            room = empty((_VECTORS, span), np.int32, "trees")
            state = cupy.zeros(_WORDS, np.int32)
            key = empty((m,), np.uint64, "trees")
            column_of_row, row_of_column = (empty((k,), np.int32, "trees") for k in (n, m))
            args = (
                state,
                room,
                key,
                np.int32(span),
                np.int32(n),
                np.int32(m),
                ids,
                costs,
                sizes,
                theta,
                u,
                v,
                column_of_row,
                row_of_column,
                np.int32(min(enough, np.iinfo(np.int32).max)),
            )
            words: Array = np.zeros(_WORDS, np.int32)

            def over() -> bool:
                nonlocal words
                words = state.get()
                assigned(n - int(words[_LEFT]) if words[_PLANTED] else 0)
                state[_BARRIER] = 0
                return bool(words[_WHY] != YIELD)

            run_in_launches(device, kernel, _TEAM, args, tick, over)
        return int(words[_WHY]), column_of_row, {name: int(words[k]) for name, k in _COUNTS.items()}
