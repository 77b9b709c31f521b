"""Classical Hungarian method on the device that holds the costs; see ``kernels_classical.cu``.

Initial zeros, pairs, trees, dual updates and paths run in launches of at most a quarter of a second
each. The host is notified after each launch. Zeros, trees, duals and counts have the host's layout.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.cuda import kernel_texts
from bigsap.engine.cuda.row_kernels import column_minima, row_kernels
from bigsap.engine.cuda.wait import run_in_launches
from bigsap.engine.trees.device_result import BETWEEN, YIELD
from bigsap.problem import Problem
from bigsap.sources.cuda.device_kernels import load_cupy, on
from bigsap.sources.cuda.device_memory import empty
from bigsap.types import Array

#: Threads of a block, and number of items from which all blocks work on a step.
_TEAM = 1024
WIDE = 4096

# Words of the state and its steps, as in kernels_classical.cu.
_N_ROWS, _STEP, _ITEMS, _BAD_ROW, _WHY, _PLANTED, _BARRIER, _WORDS = 0, 10, 11, 13, 15, 16, 64, 96
_ZEROS, _PLANT = 1, 5
#: Counts: those of ``strategies.baselines.classical.COUNTS`` that the device keeps, and rows scanned by
#: dual updates for their least slack, and for new zeros.
COUNTS = ("roots", "stages", "paths", "levels", "clock_steps", "expansions", "passes", "tight_rows")
_VECTORS = 13


class DeviceClassical:
    """The classical method on one device, for one problem.

    counts: see ``COUNTS``, after the last launch. ends: signed costs are above the first and at most
    the second. Memory: n * m / 8 bytes, and fifteen vectors.
    """

    def __init__(self, problem: Problem, price: np.dtype[Any], ends: tuple[Any, Any]) -> None:
        cupy = load_cupy()
        source: Any = problem.source
        self.problem, self.price, self.device = problem, price, source.device
        n, m = problem.shape
        self.counts = dict.fromkeys(COUNTS, 0)
        width = 2 * -(-m // 64)
        settings = {"TEAM": _TEAM, "WIDE": WIDE}
        kernels = row_kernels(problem, price, kernel_texts.CLASSICAL, _TEAM, together=True, **settings)
        self._kernel = kernels.get("bigsap_classical")
        with on(self.device):
            self._state = cupy.zeros(_WORDS, np.int32)
            self._told: Array = np.zeros(_WORDS, np.int32)
            self._counts = cupy.zeros(len(COUNTS), np.int64)
            span = max(n, m)
            room = empty((_VECTORS, span), np.int32, "trees")
            room[0], room[1] = m, n  # no leaves, no claims
            room[2, :n] = cupy.arange(n, dtype=np.int32)  # rows waiting for an initial pair
            self._rows = room[4]
            self._bits = empty((n, width), np.uint32, "zeros")
            reached = empty((width,), np.uint32, "trees")
            self._u, low, self.v = (empty((k,), price, "duals") for k in (n, n, m))
            self._column_of_row, self._row_of_column = (cupy.full(k, S.FREE, np.int32) for k in (n, m))
            self._args = (
                source.words(),
                self._state,
                self._counts,
                cupy.zeros(1, np.uint64),
                room,
                np.int32(span),
                np.int32(n),
                np.int32(m),
                np.int32(width),
                self._bits,
                reached,
                self._u,
                low,
                self.v,
                self._column_of_row,
                self._row_of_column,
                *ends,
            )

    def begin(self, v: Array | None) -> bool:
        """Set initial prices; return whether that read the costs.

        v: the prices; None: the columns' reduction in a square problem, else 0.
        """
        n, m = self.problem.shape
        of_columns = v is None and n == m
        with on(self.device):
            if of_columns:
                self.v[:] = column_minima(self.problem, self.price)
            else:
                self.v[:] = 0 if v is None else load_cupy().asarray(v)
            self._state[:] = self._words_of(_ZEROS, planted=False)
        return of_columns

    def _words_of(self, step: int, *, planted: bool) -> Any:
        """Return the initial words; all blocks do the first step."""
        words = np.zeros(_WORDS, np.int32)
        words[_STEP], words[_ITEMS], words[_PLANTED] = step, WIDE, planted
        words[_BAD_ROW] = self.problem.shape[0]
        return load_cupy().asarray(words)

    def go_on(self, bits: Array, u: Array, v: Array, column_of_row: Array, counts: dict[str, int]) -> None:
        """Continue between two stages, from the results of ``zeros``, ``duals`` and ``matching``."""
        cupy = load_cupy()
        matched = np.flatnonzero(column_of_row >= 0)
        row_of_column = np.full(v.size, S.FREE, np.int32)
        row_of_column[column_of_row[matched]] = matched
        self.counts = dict(counts)
        with on(self.device):
            self._bits[:] = cupy.asarray(bits.view(np.uint32))
            self._u[:], self.v[:] = cupy.asarray(u), cupy.asarray(v)
            self._column_of_row[:] = cupy.asarray(column_of_row.astype(np.int32))
            self._row_of_column[:] = cupy.asarray(row_of_column)
            self._counts[:] = cupy.asarray(np.array([counts[name] for name in COUNTS]))
            self._state[:] = self._words_of(_PLANT, planted=True)

    def run(self, serve: Callable[[], None], heard: Callable[[bool], None]) -> int:
        """Solve; return the reason for the end: DONE, INFEASIBLE, BROKEN or BAD.

        BROKEN: an endless path. BAD: an invalid cost, see ``bad_row``. serve: called regularly while
        launches run; its exceptions end them. heard: called after each launch but the last, with True
        between two stages.
        """

        def over() -> bool:
            self._told = self._state.get()
            self.counts = dict(zip(COUNTS, self._counts.get().tolist(), strict=True))
            self._state[_BARRIER] = 0
            why = int(self._told[_WHY])
            if why in (YIELD, BETWEEN):
                heard(why == BETWEEN)
            return why not in (YIELD, BETWEEN)

        run_in_launches(self.device, self._kernel, _TEAM, self._args, serve, over)
        return int(self._told[_WHY])

    def bad_row(self) -> int:
        """Return a row with an invalid cost, after BAD."""
        return int(self._told[_BAD_ROW])

    def left(self) -> int:
        """Return the rows without a column when trees were last started; before that, all rows."""
        n = self.problem.shape[0]
        return self.counts["roots"] - self.counts["paths"] if self._told[_PLANTED] else n

    def zeros(self) -> Array:
        """Return a copy of ``engine.trees.zeros.Zeros.bits``, n * m / 8 bytes."""
        bits: Array = self._bits.get().view(np.uint64)
        return bits

    def duals(self) -> tuple[Array, Array]:
        """Return copies of u (n_rows,), v (n_columns,)."""
        return self._u.get(), self.v.get()

    def matching(self) -> Array:
        """Return a copy of the rows' columns so far, ID (n_rows,)."""
        columns: Array = self._column_of_row.get().astype(S.ID)
        return columns

    def forest(self) -> Array:
        """Return the rows of all trees, sorted."""
        rows = self._rows[: int(self._told[_N_ROWS])].get().astype(np.intp)
        return np.sort(rows)
