"""The engine for lists on a device: where the lists are, and phases in rounds of searches."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.core.team import Team
from bigsap.engine.gpu.batch import Matching, Tally, match
from bigsap.engine.gpu.device_pool import DevicePool
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.lists.store import Wave
from bigsap.monitor import Monitor
from bigsap.problem import Problem
from bigsap.sources.base import Array
from bigsap.sources.device.device_kernels import load_cupy, on

#: Longest list that bigsap_select can sort.
MOST_ENTRIES = 1000


class RoundsEngine(ListEngine):
    """``ListEngine`` whose phases run in rounds on a device, where it says so.

    Lists then stay on the device, prices and matching too while rounds go on. The host's
    are older, but always of one moment: old lists and thresholds are valid under later prices.
    What needs the newest lists brings them first.
    """

    #: Lists in device memory, while there are any; whether they, and the host's, are the newest.
    pool: DevicePool | None = None
    newest_there, newest_here = False, True
    #: Whether the device evaluates into the pool; and whether it is just doing so.
    _in_rounds = _hosts_turn = False
    _busy = False
    _before = 0
    _state: Matching | None = None

    def __init__(
        self, problem: Problem, team: Team, monitor: Monitor, price: np.dtype[Any], k: int,
        seed: int,
    ) -> None:  # fmt: skip
        super().__init__(problem, team, monitor, price, k, seed)
        self.device = 0
        self._square = False
        self.tally = Tally()

    @property
    def in_rounds(self) -> bool:
        """Whether lists stay on the device, where rounds of searches use them."""
        return self._square and not self.limited

    def bring_lists(self) -> None:
        if not self.newest_here and not self._busy and self.pool is not None:
            with on(self.device):
                self.pool.give(self.lists)
            self.newest_here = True

    def _send_lists(self) -> DevicePool:
        """The pool on the device, which is from now on what evaluations write to."""
        if self.pool is None:
            self.pool = DevicePool(self.lists)
            self.newest_there = False
        if not self.newest_there:
            self.pool.take(self.lists)
            self.newest_there = True
        return self.pool

    def list_minima(self) -> Array:
        self.bring_lists()
        return super().list_minima()

    def greedy_gap(self, order: Array) -> float:
        self.bring_lists()
        return super().greedy_gap(order)

    def stale_rows(self) -> Array:
        if not self.in_rounds or not self.newest_there or self.pool is None:
            return super().stale_rows()
        with on(self.device):
            state = self._on_device()
            state.take(self)
            return state.stale_rows(self.pool)

    def _on_device(self) -> Matching:
        if self._state is None:
            self._state = Matching(self.device, self.v.size, self.price)
        return self._state

    def phase(self, order: Array, *, backward: bool, epsilon: float, postpone: float) -> bool:
        if not self.in_rounds:
            return super().phase(order, backward=backward, epsilon=epsilon, postpone=postpone)
        if self.wave is not None:
            self.finish_wave()
        order = order[::-1] if backward else order
        # What earlier rounds, or searches before a restart, have matched, stays so.
        ahead = order[self.column_of_row[order] == S.FREE]
        at = self.frontier.at
        self.roots = ahead[:0]
        at.position = at.n_abandoned = at.n_requests = 0
        self.frontier.requested[:] = 0
        self._before = self.n_kept + order.size - ahead.size
        with on(self.device):
            state, pool = self._on_device(), self._send_lists()
            state.take(self)
            self._in_rounds = True
            try:
                left = match(self, state, pool, ahead, epsilon, postpone, self.tally)
                state.give(self)
            finally:
                self._in_rounds = False
        self.n_kept = self._before + ahead.size - left.size
        self._tick()
        if not left.size:
            return True
        self.bring_lists()
        self.newest_there, self._hosts_turn = False, True
        try:
            return super().phase(left, backward=False, epsilon=epsilon, postpone=postpone)
        finally:
            self._hosts_turn = False

    @property
    def rounds(self) -> dict[str, int]:
        return asdict(self.tally) if self.tally.rounds else {}

    def standing(self) -> Array:
        # The host searches for what rounds leave: an order that no checkpoint knows.
        return super().standing() if not self.in_rounds else self.roots[:0]

    def between_rounds(self, done: int) -> None:
        """Make the host's state the device's, and look at the clock."""
        assert self._state is not None
        self._state.give(self)
        self.monitor.progress.assigned = self._before + done
        self._count(self.rows_scanned, self.rows_evaluated)
        self.monitor.tick()

    def evaluate_there(self, rows: Array, reached: Array) -> bool:
        """Evaluate rows that rounds asked for.

        reached: bool (k,) those that get longer lists if their thresholds do not grow.
        False when a list would be longer than the device can make it: the host goes on.
        """
        assert self.pool is not None
        if int(self.lists.width[rows].max()) > MOST_ENTRIES:
            return False
        there = load_cupy().asarray(rows)
        before = self.pool.theta[there]
        self.evaluate(rows)
        stuck = rows[reached & (self.pool.theta[there] <= before).get()]
        if not stuck.size:
            return True
        if 2 * int(self.lists.width[stuck].max()) > MOST_ENTRIES:
            return False
        self._widen(stuck)
        self.pool.follow(self.lists, stuck)
        self.evaluate(stuck)
        return True

    def _stuck(self, wave: Wave) -> Wave | None:
        if wave.before.size:
            self.bring_lists()
            self.newest_there = False  # some lists are about to move
        return super()._stuck(wave)
