"""Dense engine on a device: the same state and answers as on the CPU, with other kernels.

``DeviceEngine`` is an ``Engine`` whose sweeps and phases run on one device, or on several with a
slab of the columns each. Between launches the state lies on the host as usual, so that methods,
checkpoints and the conclusion of a stopped solve need no special cases. A launch copies prices and
matching to the device, works for a time slice without the host, and copies them back.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.pair_costs import cheap_total
from bigsap.engine.core.team import Team
from bigsap.engine.cuda.shares import DevicePart, Exchange
from bigsap.engine.cuda.wait import ABORT_FLAG, AT_POSITION, AT_SCANS, Wait
from bigsap.engine.rows.rectangular import NEXT_ROW
from bigsap.engine.rows.row_engine import Engine
from bigsap.engine.rows.sweep import Survey
from bigsap.errors import BigsapError
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.row_cache import Rows
from bigsap.sources.cuda.device_kernels import load_cupy
from bigsap.sources.cuda.slabs import DeviceSlab, SlabsOnDevices
from bigsap.types import Array

#: Approximate length of a launch, which ends at the end of a search; displays and listeners are
#: updated between launches.
_SLICE_SECONDS = 0.25
#: How often a kernel polls the host's stop flag.
_POLL_SECONDS = 0.001
#: Scans of one search that are recorded in shared memory; further ones go to device memory.
_NOTES = 2048
_NOTE_BYTES = 16
#: Rows per strip in the kernels that read the matrix by columns.
_STRIP = 128

# As in kernels_agree.cu and kernels_post.cu.
W_POSITION, W_STATUS, W_SCANS, W_DROPS, W_SETTLED, W_SURPLUS, W_ROOT, W_VIRTUAL_SCANS = range(8)
V_CAP, V_DROPS = range(2)
S_DONE, S_YIELD, S_INFEASIBLE, S_STOPPED, S_LOST = range(5)


class DeviceEngine(Engine):
    """``Engine`` on the devices that hold, or compute, the problem's costs.

    Has at least as many columns as rows: sources on a device provide their transpose. Device memory
    besides the costs: some vectors.
    """

    def __init__(
        self, problem: Problem, rows: Rows, team: Team, monitor: Monitor, price: np.dtype[Any]
    ) -> None:
        super().__init__(problem, rows, team, monitor, price)
        source: Any = problem.source
        m = problem.shape[1]
        slabs = source.slabs() if isinstance(source, SlabsOnDevices) else [DeviceSlab(source, 0, m)]
        self.cupy = load_cupy()
        basic = {
            "PRICE_IS_INT": int(price.kind == "i"),
            "SIGN": problem.sign,
            "VIRTUAL": int(problem.n_virtual_rows > 0),
            "DEVICES": len(slabs),
        }
        self.parts = [DevicePart(slab, m, basic) for slab in slabs]
        self.exchange = Exchange(self.parts)
        self._wait = Wait(self.parts[0].device)
        self._code = slabs[0].source.code()

    # -- sweeps ---------------------------------------------------------------------

    def sweep(self, survey: Survey, order: Array, *, backward: bool, first: bool) -> None:
        """Sweep over ``order`` at the current prices; see ``Engine.sweep``."""
        rows = np.ascontiguousarray(order[::-1] if backward else order, np.int32)
        self._order, self.sweeping = rows, True
        self._survey(survey, first)
        if first:
            self._column_minima(survey)
        self._pick(survey, rows)
        self._order = np.empty(0, S.ID)
        self.known.add_duals(survey.low, self.state.v)
        self.known.add_picks(survey.pick, survey.pick_cost)
        self._report()
        self.monitor.tick()

    def _survey(self, survey: Survey, first: bool) -> None:
        """Compute each row's smallest ``c - v``, and its second smallest or probed cost."""
        cupy, terms = self.cupy, self.terms
        n = self.problem.shape[0]
        judge = np.int32(first and not self._code.trusted)
        found, events = [], []
        for part in self.parts:
            with part.here():
                low, second = cupy.empty(n, self.price), cupy.empty(n, self.price)
                bad = cupy.full(1, n, np.int32)
                # A column of another slab is outside this one, where nothing is found.
                probe = cupy.asarray(survey.probe - part.start) if first else np.intp(0)
                part.batch.get("bigsap_survey")(
                    (min(n, 1 << 14),),
                    (256,),
                    (
                        part.source.words(),
                        np.int32(part.width),
                        cupy.arange(n, dtype=np.int32),
                        np.int32(n),
                        cupy.asarray(part.columns(self.state.v)),
                        probe,
                        terms.lowest,
                        terms.highest,
                        judge,
                        low,
                        second,
                        bad,
                    ),
                )
                found.append((low, second, bad))
                events.append(self._wait.mark())
        self._settle(events)
        here = []
        for part, arrays in zip(self.parts, found, strict=True):
            with part.here():
                here.append([a.get() for a in arrays])
        worst = min(int(bad[0]) for _, _, bad in here)
        if worst < n:
            self.reader.complain(worst)
        survey.low[:], survey.second[:] = here[0][0], here[0][1]
        for low, second, _ in here[1:]:
            merge_minima(survey.low, survey.second, low, second, probed=first)

    def _column_minima(self, survey: Survey) -> None:
        """Compute each column's smallest and second smallest ``c - low``."""
        cupy = self.cupy
        n = self.problem.shape[0]
        strips = -(-n // _STRIP)
        for part in self.parts:
            with part.here():
                m, wide = np.int32(part.width), -(-part.width // 256)
                parts = cupy.empty((2, strips, part.width), self.price)
                least = cupy.empty((2, part.width), self.price)
                part.batch.get("bigsap_columns")(
                    (wide, strips),
                    (256,),
                    (
                        part.source.words(),
                        np.int32(n),
                        m,
                        cupy.asarray(survey.low),
                        np.int32(_STRIP),
                        parts[0],
                        parts[1],
                    ),
                )
                part.batch.get("bigsap_merge")(
                    (wide,), (256,), (np.int32(strips), m, parts[0], parts[1], least[0], least[1])
                )
                found = least.get()
            part.columns(survey.least)[:], part.columns(survey.runner_up)[:] = found

    def _pick(self, survey: Survey, rows: Array) -> None:
        cupy = self.cupy
        n = self.problem.shape[0]
        given, found = [], []
        for part in self.parts:
            with part.here():
                pick, cost = cupy.full(n, -1, np.int32), cupy.full(n, self.infinity, self.price)
                words = cupy.zeros(8, np.int64)
                given.append(
                    (
                        part.source.words(),
                        np.int32(part.width),
                        cupy.asarray(rows),
                        np.int32(n),
                        cupy.asarray(part.columns(self.state.v)),
                        pick,
                        cost,
                        cupy.zeros(part.width, np.int32),
                        words,
                    )
                )
                found.append((pick, cost))
        while self._launch("bigsap_picks", 0, given, 8) != S_DONE:
            pass
        survey.pick[:], survey.pick_cost[:] = S.FREE, self.infinity
        for part, (pick, cost) in zip(self.parts, found, strict=True):
            # Only the device that has the column knows the row's pick.
            with part.here():
                np.maximum(survey.pick, pick.get(), out=survey.pick)
                np.minimum(survey.pick_cost, cost.get(), out=survey.pick_cost)

    def undercut(self, pick: Array, rank_of_column: Array, order: Array) -> None:
        """Lower prices backwards through the picks; see ``Engine.undercut``."""
        cupy = self.cupy
        rows = np.ascontiguousarray(order[::-1], np.int32)
        self._order, self.sweeping = rows, True
        given = []
        for part in self.parts:
            with part.here():
                there = [
                    cupy.asarray(a) for a in (rows, pick, *map(part.columns, (rank_of_column, self.state.v)))
                ]
                given.append(
                    (
                        part.source.words(),
                        np.int32(part.width),
                        there[0],
                        np.int32(rows.size),
                        there[1],
                        there[2],
                        there[3],
                        cupy.zeros(8, np.int64),
                    )
                )
        while self._launch("bigsap_undercut", 0, given, 7) != S_DONE:
            pass
        for part, args in zip(self.parts, given, strict=True):
            with part.here():
                part.columns(self.state.v)[:] = args[6].get()
        self._report()

    # -- phases ---------------------------------------------------------------------

    def phase(self, order: Array, *, backward: bool, epsilon: float) -> bool:
        """Match all rows of ``order``; see ``Engine.phase``."""
        cupy, st = self.cupy, self.state
        m = self.problem.shape[1]
        rows = np.ascontiguousarray(order[::-1] if backward else order, np.int32)
        self._order, self.sweeping = rows, False
        words, values = np.zeros(8, np.int64), np.zeros(2, self.price)
        words[W_POSITION], words[W_SURPLUS] = st.at.position, st.at.surplus
        words[W_SCANS], words[W_DROPS] = st.at.rows_scanned, st.at.n_drops
        words[W_VIRTUAL_SCANS] = st.at.virtual_scans
        values[V_CAP], values[V_DROPS] = st.at.cap, st.at.drops
        given = []
        for part in self.parts:
            with part.here():
                given.append(
                    (
                        part.source.words(),
                        np.int32(part.width),
                        cupy.asarray(rows),
                        np.int32(rows.size),
                        cupy.asarray(part.columns(st.v)),
                        cupy.asarray(part.columns(st.row_of_column)),
                        cupy.asarray(st.reference),
                        self.price.type(epsilon),
                        np.int32(self.problem.n_virtual_rows),
                        cupy.asarray(values),
                        cupy.asarray(words),
                        part.spill,
                        np.int64(part.spill_size),
                        cupy.empty(m + 1, np.int32),
                    )
                )
        while True:
            raised: BaseException | None = None
            try:
                status = self._launch("bigsap_search", _NOTES, given, 10)
            except Lost:
                raise
            except BaseException as error:  # noqa: BLE001 - raised again below
                raised, status = error, S_STOPPED
            there = self._bring_back(given)
            if raised is not None:
                raise raised
            if status == S_INFEASIBLE:
                with self.parts[0].here():
                    found = given[0][13][: int(there[W_SETTLED])].get()
                found = found[st.row_of_column[found] >= 0]
                st.settled[: found.size] = found
                st.at.n_settled, st.at.stage = found.size, NEXT_ROW
                return False
            self._report()
            if status == S_DONE:
                break
            self.monitor.tick()
        cost = cheap_total(self.problem, self.rows, st.column_of_row, self.monitor.tick)
        self.known.see_phase(st.column_of_row, cost)
        self.known.tell(self.monitor)
        return True

    def _bring_back(self, given: list[tuple[Any, ...]]) -> Array:
        """Copy the state of the last launch, between two searches, to the host; return its words."""
        st = self.state
        for part, args in zip(self.parts, given, strict=True):
            with part.here():
                part.columns(st.v)[:] = args[4].get()
                part.columns(st.row_of_column)[:] = args[5].get()
        # The state is the same on all devices.
        with self.parts[0].here():
            values, words = given[0][9].get(), given[0][10].get()
        st.column_of_row[:] = S.FREE
        columns = np.flatnonzero(st.row_of_column >= 0)
        st.column_of_row[st.row_of_column[columns]] = columns
        st.at.position, st.at.surplus = words[W_POSITION], words[W_SURPLUS]
        st.at.rows_scanned, st.at.n_drops = words[W_SCANS], words[W_DROPS]
        st.at.virtual_scans, st.at.root = words[W_VIRTUAL_SCANS], words[W_ROOT]
        st.at.stage, st.at.group_settled = NEXT_ROW, 0
        st.at.cap, st.at.drops = values[V_CAP], values[V_DROPS]
        found: Array = words
        return found

    # -- launches -------------------------------------------------------------------

    def _launch(self, name: str, notes: int, given: list[tuple[Any, ...]], words: int) -> int:
        """Run one slice of a kernel of the groups; return its status. Raises the exception that stopped it.

        given: each part's arguments; the one with index ``words`` holds the words.
        """
        shared = notes * _NOTE_BYTES
        # Loading a kernel may wait for running ones: load all of them first.
        kernels = [part.kernel(name, shared) for part in self.parts]
        for part in self.parts:
            with part.here():
                part.board[:] = 0
        self.exchange.clear()
        if len(self.parts) > 1:
            for part in self.parts:
                part.synchronize()
        events: list[Any] = []
        try:
            for part, kernel, args in zip(self.parts, kernels, given, strict=True):
                tail: tuple[Any, ...] = (
                    np.int64(part.cycles * _SLICE_SECONDS),
                    np.int64(part.cycles * _POLL_SECONDS),
                    self._wait.address,
                    part.board,
                    part.post,
                )
                if notes:
                    tail = (*tail, np.int32(notes))
                with part.here():
                    kernel((part.group,), (part.threads,), (*args, *tail), shared_mem=shared)
                    events.append(self._wait.mark())
        except BaseException:
            # Groups already running wait for letters that will never be written.
            self._wait.flags[ABORT_FLAG] = 1
            self._wait.until_done(lambda: None, events)
            raise
        raised = self._wait.until_done(self._serve, events)
        statuses = []
        for part, args in zip(self.parts, given, strict=True):
            with part.here():
                statuses.append(int(args[words][W_STATUS]))
        if len(set(statuses)) > 1 or S_LOST in statuses:
            raise Lost(
                f"devices {[part.device for part in self.parts]} lost each other in {name}"
                f" (exchange through {self.exchange.way} memory, states {statuses})"
            )
        if raised is not None:
            raise raised
        return statuses[0]

    def _serve(self) -> None:
        """Report progress and check the limits while a kernel runs."""
        flags, progress = self._wait.flags, self.monitor.progress
        if not self.sweeping:
            progress.assigned = int(flags[AT_POSITION]) + self.n_kept
            self._count(max(self.rows_scanned, int(flags[AT_SCANS])), self.rows_evaluated)
        self.monitor.tick()

    def _settle(self, events: list[Any]) -> None:
        raised = self._wait.until_done(self.monitor.tick, events)
        if raised is not None:
            raise raised

    @property
    def rows_evaluated(self) -> int:
        """Rows of a matrix count once; computed rows count each time they are computed."""
        n = self.problem.shape[0]
        return n if self._code.lookup else n + self.rows_scanned


class Lost(BigsapError):
    """Raised when cooperating devices lose contact; the state is then invalid."""


def merge_minima(low: Array, second: Array, more: Array, more_second: Array, *, probed: bool) -> None:
    """Merge the smallest and second smallest of two slabs, into ``low`` and ``second``.

    probed: the second arrays hold a cost that one of the slabs has, infinity elsewhere.
    """
    if probed:
        np.minimum(second, more_second, out=second)
    else:
        middle = np.maximum(low, more)
        second[:] = np.minimum(np.minimum(second, more_second), middle)
    np.minimum(low, more, out=low)
