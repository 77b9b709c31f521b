"""Pass that finds tight pairs on a device that holds the costs; see ``engine.lists.tight``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.engine.core.state import BLOCK, ID
from bigsap.engine.lists.tight import PER_BLOCK, ROOM, Tight, valid_costs
from bigsap.problem import Problem
from bigsap.sources.base import Array
from bigsap.sources.cuda.device_kernels import compiled, load_cupy, on
from bigsap.sources.cuda.placed import OnDevice

#: Threads of a block, one warp per row: SIDE in kernels_rows.cu.
_SIDE = 256
_WARP = 32
#: Pairs of one launch: some hundredths of a second.
_PAIRS = 1 << 35
#: Limit of blocks of a launch that copies columns.
_BLOCKS = 1 << 14


class DevicePass:
    """Passes over the rows of a matrix on a device, with the interface of the host's pass.

    Minima and bounds are the same; of many tight pairs of a row it may keep others.
    """

    def __init__(self, problem: Problem, price: np.dtype[Any]) -> None:
        self.problem, self.price = problem, price
        source = problem.source
        assert isinstance(source, OnDevice)
        self.source: Any = source
        code = source.code()
        settings = {
            "SPAN": 8,
            "ROWS": 8,
            "WITH_FREE": 0,
            "WIDTH": code.width,
            "SIGN": problem.sign,
            "PRICE_IS_INT": int(price.kind == "i"),
            "ROOM": ROOM,
            "PER_BLOCK": PER_BLOCK,
            "BLOCK": BLOCK,
        }
        with on(self.source.device):
            self._kernels = compiled(self.source.device, code, "tight", tuple(sorted(settings.items())))

    def sweep(self, rows: Array, v: Array, tight: Tight, reached: Callable[[int], None]) -> None:
        """Find the tight pairs of these rows (ID); ``reached`` is called regularly with the number done."""
        cupy = load_cupy()
        m = self.problem.shape[1]
        lowest, highest = map(self.price.type, valid_costs(self.problem, self.price))
        most = max(1, _PAIRS // m)
        with on(self.source.device):
            prices = cupy.asarray(v)
            for start in range(0, rows.size, most):
                part = rows[start : start + most]
                count = part.size
                ids, sizes = cupy.empty((count, ROOM), np.int32), cupy.empty(count, np.int32)
                low, above = cupy.empty(count, self.price), cupy.empty(count, self.price)
                self._kernels.get("bigsap_tight")(
                    (-(-count * _WARP // _SIDE),),
                    (_SIDE,),
                    (
                        self.source.words(),
                        np.int32(m),
                        cupy.asarray(part),
                        np.int32(count),
                        prices,
                        lowest,
                        highest,
                        ids,
                        sizes,
                        low,
                        above,
                    ),
                )
                tight.ids[part], tight.size[part] = ids.get(), sizes.get()
                tight.low[part], tight.above[part] = low.get(), above.get()
                reached(count)

    def columns(self, columns: Array) -> tuple[Array, Array]:
        """Return costs (n_rows, k) of these columns (ID), and the index of each in them."""
        cupy = load_cupy()
        n = self.problem.shape[0]
        with on(self.source.device):
            out = cupy.empty((n, columns.size), self.source.dtype)
            self._kernels.get("bigsap_some_columns")(
                (min(_BLOCKS, -(-n * columns.size // _SIDE)),),
                (_SIDE,),
                (self.source.words(), np.int32(n), cupy.asarray(columns), np.int32(columns.size), out),
            )
            found: Array = out.get()
        return found, np.arange(columns.size, dtype=ID)

    def row(self, row: int) -> Array:
        """Return the costs of one row."""
        costs = np.empty((1, self.problem.shape[1]), self.source.dtype)
        self.source.read(np.array([row]), slice(0, costs.shape[1]), costs)
        return costs[0]
