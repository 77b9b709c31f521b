"""Classical Hungarian method (Kuhn and Munkres): zeros, trees on them, dual updates.

As in Date and Nagi (2016, section 2.2) and Lopes et al. (2019), with slacks computed from costs
and duals: after a dual update only rows of the least slack are read again, for their new zeros.
A baseline for comparison with the trees of ``strategies.trees``, which need no bits.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.changed import changed
from bigsap.engine.core.record import numbers, record, set_numbers
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.trees import device_result, first_pairs
from bigsap.engine.trees import zeros as Z
from bigsap.engine.trees.reduction import column_minima
from bigsap.errors import CheckpointError
from bigsap.problem import Problem
from bigsap.sources.base import read_while
from bigsap.strategies.list_run import ListSettings, ListSolve
from bigsap.strategies.outcome import Outcome, moved, phase_record
from bigsap.strategies.placement import device_classical
from bigsap.strategies.start.samples import Counts
from bigsap.strategies.start.warm import Warm, fitting
from bigsap.types import Array

#: See ``strategies.trees.COUNTS``.
COUNTS = ("stages", "paths", "levels", "clock_steps", "expansions")

_FIRST_PAIRS = 1 << 20
_SLICE_SECONDS = 0.1
_READ_BYTES = 32 << 20
#: Zeros and words of them processed between two checks of the clock.
_ZEROS = 1 << 25
#: Arrays stored in a checkpoint, between two stages.
_KEPT = ("bits", "u", "v")


class Passes:
    """Passes over rows by all threads, in slices of a tenth of a second."""

    def __init__(self, problem: Problem, setting: ListSettings, engine: ListEngine) -> None:
        self.problem, self.team, self.monitor = problem, setting.team, setting.monitor
        self.engine = engine
        self.in_place = engine.immediate and not engine.from_fill
        m = problem.shape[1]
        self._batch = max(1, _FIRST_PAIRS // m)
        self._most = max(1, _READ_BYTES // (m * problem.source.dtype.itemsize))

    def column_minima(self) -> Array | None:
        """See ``engine.trees.reduction``."""
        look = self.monitor.look
        return column_minima(self.problem, self.team, self.engine.price, lambda _: look())

    def zeros(self, rows: Array, z: Z.Zeros) -> None:
        """Compute the rows' duals and zeros, and validate their costs."""
        terms = self.engine.terms
        self._over(rows, z, Z.run_zeros, terms.lowest, terms.highest, self.engine.infinity, True)

    def slacks(self, rows: Array, z: Z.Zeros) -> None:
        """Compute the rows' least slacks over columns not reached."""
        self._over(rows, z, Z.run_slacks, self.engine.infinity)

    def tight(self, rows: Array, z: Z.Zeros) -> None:
        """Find new zeros of the rows with the least slack of all."""
        self._over(rows, z, Z.run_tight)

    def _over(self, rows: Array, z: Z.Zeros, kernel: Callable[..., int], *args: Any) -> None:
        engine, m = self.engine, self.problem.shape[1]
        start = 0
        while start < rows.size:
            size = self._batch if self.in_place else min(self._batch, self._most)
            part, slots = rows[start : start + size], engine.slots
            clock = time.perf_counter()
            if not self.in_place:
                slots = np.empty((part.size, m), self.problem.source.dtype)
                read_while(self.problem.source, self.monitor.look, part, slice(0, m), slots)
                limit = engine.limit if engine.bounded_costs else None
                for row, costs in zip(part.tolist(), slots, strict=True):
                    self.problem.check_row(row, costs)
                    engine.check_size(row, costs, limit)
            z.at.next_item = 0
            self.team.run(kernel, part, not self.in_place, slots, engine.terms.sign, *args, z)
            if z.at.bad_row >= 0:
                return
            seconds = max(time.perf_counter() - clock, 1e-6)
            if part.size == size:
                ratio = min(4.0, _SLICE_SECONDS / seconds)
                self._batch = max(1, int(self._batch * ratio))
            start += part.size
            self.monitor.look()


def solve_classical(
    problem: Problem,
    setting: ListSettings,
    solved: ListSolve,
    engine: ListEngine,
    saved: dict[str, Any],
    phases: list[dict[str, Any]],
    warm: Warm | None,
) -> Outcome:
    """Solve by zeros stored as bits. engine: holds the matching and the costs' arithmetic.

    O(n**2 m) worst case for reading rows at dual updates, each of some rows. Memory: n * m / 8
    bytes. Stored in checkpoints between two stages: bits, duals, matching. Costs on a device are
    solved there.
    """
    ends = engine.terms.lowest, engine.terms.highest
    there = device_classical(problem, setting.arithmetic.price, ends)
    if there is not None:
        return _solve_there(there, setting, solved, engine, saved, phases, warm)
    clock = time.perf_counter()
    n, m = problem.shape
    monitor, infinity, price = setting.monitor, engine.infinity, setting.arithmetic.price
    pairs = engine.column_of_row, engine.row_of_column
    z = Z.zeros(n, m, price, setting.team.n_threads)
    z.at.bad_row = -1
    passes = Passes(problem, setting, engine)
    everything = np.arange(n, dtype=S.ID)
    n_roots, between, place = 0, False, np.zeros(1, np.int64)

    def kept() -> dict[str, Any]:
        if not between:
            return {}
        own = {f"zeros_{name}": getattr(z, name) for name in _KEPT}
        return {**own, **_kept(engine, solved, z.at, n_roots)}

    def tell() -> None:
        made = {name: int(getattr(z.at, name)) for name in COUNTS}
        # Instead of lists that end: the rows read by dual updates.
        solved.trees = {"roots": n_roots, **made, "list_events": int(z.at.passes)}
        monitor.progress.assigned = int((engine.column_of_row >= 0).sum())

    def go_over(rows: Array, one_pass: Callable[[Array, Z.Zeros], None]) -> None:
        solved.counts.add(Counts(rows.size, rows.size * m))
        one_pass(rows, z)
        if z.at.bad_row >= 0:
            engine.complain(int(z.at.bad_row))
        monitor.reached(0, solved.counts.rows)

    with monitor.saving(kept):
        if saved:
            n_roots = _continued(engine, z, saved)
            solved.first_prices = saved["first_prices"]
            solved.counts.add(Counts(**saved["counts"]))
        else:
            if warm is not None and n == m:
                z.v[:] = fitting(engine, warm.v, setting.arithmetic.grid)
                solved.first_prices = "warm"
            elif n == m:
                v = passes.column_minima()
                if v is not None:
                    z.v[:], solved.first_prices = v, "columns"
                    solved.counts.add(Counts(n, n * m))
            go_over(everything, passes.zeros)
            at = np.array([first_pairs.free_rows(pairs[0], z), 0, 0])
            while not first_pairs.star_bits(*pairs, z, at, _ZEROS):
                monitor.look()
            matched = np.flatnonzero(pairs[0] >= 0)
            engine.match_cost[matched] = z.u[matched] + z.v[pairs[0][matched]]
            n_roots = n - matched.size
        seconds = {"start": time.perf_counter() - clock, "search": 0.0}
        clock, begun = time.perf_counter(), z.v.copy()
        progress = monitor.progress
        progress.stage, progress.phase, progress.epsilon = "search", 1, 0.0
        feasible = True
        # An iteration of the inner loop reaches a column, one of the outer loop matches a row.
        while feasible and Z.plant_bits(pairs[0], z):
            engine.v[:], between = z.v, True
            tell()
            monitor.tick()
            between = False
            while feasible:
                while not Z.grow_bits(pairs[1], z, place, _ZEROS):
                    monitor.look()
                if z.at.n_leaves:
                    break
                stale = z.frontier[: Z.stale_rows(z)].copy()
                z.at.passes += stale.size
                go_over(stale, passes.slacks)
                count = Z.tight_rows(infinity, z)
                feasible = count > 0
                if feasible:
                    go_over(z.frontier[:count].copy(), passes.tight)
                    setting.team.run(Z.run_forget, z)
                    Z.update_duals(z)
                    tell()
                    monitor.look()
            if feasible and not Z.flip_bits(*pairs, engine.match_cost, z):
                raise changed("an augmenting path had no end")
        engine.v[:] = z.v
        tell()
        seconds["search"] = time.perf_counter() - clock
        phases.append(_phase(solved, seconds["search"], moved(begun, z.v)))
        if not feasible:
            rows = np.sort(z.rows[: z.at.n_rows]).astype(np.intp)
            return Outcome(None, engine.v, rows, phases, seconds)
        between = True
        Z.plant_bits(pairs[0], z)
        monitor.save_now()
        return Outcome(engine.column_of_row.copy(), engine.v, phases=phases, seconds=seconds)


def _phase(solved: ListSolve, seconds: float, prices_moved: int | None) -> dict[str, Any]:
    """Return the record of the search: it reads rows for their zeros, and scans none."""
    return phase_record(0.0, seconds, rows_scanned=0, prices_moved=prices_moved, **solved.trees)


def _kept(engine: ListEngine, solved: ListSolve, at: Z.ZerosStanding, n_roots: int) -> dict[str, Any]:
    """Return the state for a checkpoint other than zeros and duals."""
    return {
        "zeros_words": numbers(at, Z.ZerosStanding)["words"],
        "n_roots": n_roots,
        "column_of_row": engine.column_of_row,
        "match_cost": engine.match_cost,
        "first_prices": solved.first_prices,
        "counts": vars(solved.counts),
    }


def _continued(engine: ListEngine, z: Z.Zeros, saved: dict[str, Any]) -> int:
    """Restore a checkpoint; return the rows left by the first stars."""
    there = {name: saved[f"zeros_{name}"] for name in _KEPT}
    here = {name: getattr(z, name) for name in _KEPT}
    there["words"], here["words"] = saved["zeros_words"], numbers(z.at, Z.ZerosStanding)["words"]
    for name in ("column_of_row", "match_cost"):
        there[name], here[name] = saved[name], getattr(engine, name)
    for name, array in here.items():
        if array.dtype != there[name].dtype or array.shape != there[name].shape:
            raise CheckpointError(f"the checkpoint's {name} does not fit")
        array[:] = there[name]
    set_numbers(z.at, Z.ZerosStanding, there)
    z.at.bad_row = -1
    matched = np.flatnonzero(engine.column_of_row >= 0)
    engine.row_of_column[engine.column_of_row[matched]] = matched
    return int(saved["n_roots"])


def _solve_there(
    there: device_result.Classical,
    setting: ListSettings,
    solved: ListSolve,
    engine: ListEngine,
    saved: dict[str, Any],
    phases: list[dict[str, Any]],
    warm: Warm | None,
) -> Outcome:
    """Solve on the device that holds the costs, from the beginning or between two stages."""
    clock = time.perf_counter()
    n, m = engine.problem.shape
    monitor, progress = setting.monitor, setting.monitor.progress
    at = record(Z.ZerosStanding, setting.arithmetic.price)
    between, gone_over = False, 0

    def hear(is_between: bool) -> None:
        """Record the state after a launch."""
        nonlocal between, gone_over
        between, counts = is_between, there.counts
        rows = counts["passes"] + counts["tight_rows"] - gone_over
        gone_over += rows
        solved.counts.add(Counts(rows, rows * m))
        u, engine.v[:] = there.duals()
        engine.column_of_row[:] = there.matching()
        matched = np.flatnonzero(engine.column_of_row >= 0)
        if is_between and not counts["paths"]:
            counts["roots"] = n - matched.size  # the launch may have ended before it counted them
        columns = engine.column_of_row[matched]
        engine.row_of_column[columns] = matched
        engine.match_cost[matched] = u[matched] + engine.v[columns]
        for name in (*COUNTS, "passes"):
            setattr(at, name, counts[name])
        made = {name: counts[name] for name in ("roots", *COUNTS)}
        solved.trees = {**made, "list_events": counts["passes"]}
        progress.assigned = n - there.left()
        monitor.reached(0, solved.counts.rows)

    def serve() -> None:
        nonlocal between
        if between:
            monitor.tick()
        else:
            monitor.look()
        between = False

    def kept() -> dict[str, Any]:
        if not between:
            return {}
        u, v = there.duals()
        own = {"zeros_bits": there.zeros(), "zeros_u": u, "zeros_v": v}
        return {**own, **_kept(engine, solved, at, there.counts["roots"])}

    with monitor.saving(kept):
        if saved:
            z = Z.zeros(n, m, setting.arithmetic.price, 1)
            roots = _continued(engine, z, saved)
            counts = {name: int(getattr(z.at, name)) for name in (*COUNTS, "passes")}
            there.go_on(z.bits, z.u, z.v, engine.column_of_row, {**counts, "roots": roots, "tight_rows": 0})
            gone_over = counts["passes"]
            solved.first_prices = saved["first_prices"]
            solved.counts.add(Counts(**saved["counts"]))
        else:
            v = None
            if warm is not None and n == m:
                v = fitting(engine, warm.v, setting.arithmetic.grid)
                solved.first_prices = "warm"
            passes = 1
            if there.begin(v):
                solved.first_prices, passes = "columns", 2
            solved.counts.add(Counts(passes * n, passes * n * m))
        progress.stage, progress.phase, progress.epsilon = "search", 1, 0.0
        why = there.run(serve, hear)
        if why == device_result.BAD:
            engine.complain(there.bad_row())
        if why == device_result.BROKEN:
            raise changed("an augmenting path had no end")
        hear(why == device_result.DONE)
        seconds = {"start": 0.0, "search": time.perf_counter() - clock}
        phases.append(_phase(solved, seconds["search"], None))
        if why == device_result.INFEASIBLE:
            return Outcome(None, engine.v, there.forest(), phases, seconds)
        monitor.save_now()
        return Outcome(engine.column_of_row.copy(), engine.v, phases=phases, seconds=seconds)
