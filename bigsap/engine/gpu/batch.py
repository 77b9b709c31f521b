"""Searches on lists from many rows at once, on the device that holds the lists.

A *round*: a warp for each of some free rows searches under prices and a matching that stand
still; those searches whose settled columns are disjoint take effect together
(``kernels_batch.cu``, where it is said why they may); rows whose thresholds were reached are
evaluated in one pass. Searches that lost, or asked, are begun again in a later round. A
search that outgrows its room waits for rounds of fewer, longer searches; what outgrows the
last ones is left to the host. Between rounds prices and matching are a legal state.

Nothing depends on which block runs when: what a search finds follows from the state before
its round, and who takes effect from what they found.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bigsap.engine.core import state as S
from bigsap.engine.gpu.device_pool import DevicePool
from bigsap.engine.lists import workspace as F
from bigsap.sources.base import Array
from bigsap.sources.device.code import DeviceCode
from bigsap.sources.device.device_kernels import Kernels, compiled, load_cupy
from bigsap.sources.device.device_memory import empty, free_bytes

# As in kernels_batch.cu.
LANES = 32
FOUND, ASKS, GREW, STUCK, WON, LOST = range(6)
STATUS, N_SETTLED, SCANS, _, _, STEPS = range(6)
_WORDS, _VALUES = 8, 4
_SIDE, _REACHED = 256, 2
#: Columns that a search may settle, from one kind of rounds to the next: by a warp where
#: epsilon is 0, else by a warp, and then by a block in stretches (``kernels_flood.cu``).
LENGTHS = (128, 1024, 8192, 65536)
SHORT, FLOOD = (128, 1024), 1 << 17
#: Threads of a flood's block, and the width of a stretch in epsilons: at 1 the searches of
#: 65,536 disjoint points took 16.4 s in place of 9.9 (H200).
FLOOD_THREADS = 512
STRETCH = 4.0
#: Columns that the words of floods can name.
_MOST_COLUMNS = (1 << 20) - 1
_NO_KEY = np.uint64(2**64 - 1)
#: Labelled columns for each that may be settled.
_ITEMS = 8
#: Most labelled columns: the smallest keys of each 32 fit into shared memory.
_MOST_ITEMS = 1 << 18
#: Most searches of a round; bytes that their room may take, and the share of what is free.
_MOST_SEARCHES = 4096
_BYTES = 4 << 30
_SHARE = 4
#: Turns in which claims are made: who loses to one that loses may still win.
_TURNS = 3
#: Fewer searches than this wait for those of the longer rounds.
_FEW = 48
#: What a round, a step of a warp and one of a flood cost, in scans of the host; how many of
#: these are judged at a time; and the worth of a scan that took effect.
_ROUND, _WARP_STEP, _FLOOD_STEP = 100, 2, 20
_WINDOW, _LEAST_GAIN = 300_000, 1
#: Seconds between two looks at the clock and the user's wishes.
_TICK_SECONDS = 0.1


@dataclass
class Tally:
    """What rounds did, over all phases of an engine.

    searches: begun. committed: roots that took effect. lost: searches whose columns another
    had; asked: that reached a threshold; grew: that outgrew their room. left: roots left to
    the host. scans: of all searches; kept: of those that took effect. chain: the steps (scans,
    or stretches of a flood) of the longest search of each round, summed.
    """

    rounds: int = 0
    searches: int = 0
    committed: int = 0
    lost: int = 0
    asked: int = 0
    grew: int = 0
    left: int = 0
    scans: int = 0
    kept: int = 0
    chain: int = 0


class _Room:
    """Where the searches of a round keep what they find; see ``bigsap_batch``, or, with
    ``flood``, ``bigsap_flood``."""

    def __init__(
        self, n: int, longest: int, price: np.dtype[Any], device: int, *, flood: bool
    ) -> None:
        self.longest, self.flood = min(longest, n), flood
        self.items = 2 * n + 4096 if flood else min(_ITEMS * longest, n, _MOST_ITEMS)
        wide = price.itemsize
        own = 12 * n + 16 * self.items if flood else self.items * (2 * wide + 8)
        nbytes = 4 * n + own + self.longest * (4 * wide + 8)
        allowed = min(_BYTES, free_bytes(device) // _SHARE)
        self.searches = int(max(1, min(_MOST_SEARCHES, allowed // nbytes)))

        def room(width: int, dtype: Any) -> Any:
            return empty((self.searches, width), dtype, "searches")

        self.place_of = room(n, np.int32)
        self.labels, self.costs = room(self.longest, price), room(self.longest, price)
        self.columns, self.parents = room(self.longest, np.int32), room(self.longest, np.int32)
        self.events = room(self.longest + 1, price)
        self.found, self.ends = room(_WORDS, np.int32), room(_VALUES, price)
        if flood:
            self.words = load_cupy().full((self.searches, n), _NO_KEY, np.uint64)
            self.front, self.behind = room(self.items, np.uint64), room(self.items, np.uint64)
            self.touched, self.h = room(n, np.int32), room(self.longest, price)
            self.shared = 0
        else:
            self.keys, self.item_costs = room(self.items, price), room(self.items, price)
            self.item_columns = room(self.items, np.int32)
            self.item_parents = room(self.items, np.int32)
            self.shared = 8 * (-(-self.items // LANES) + 1)


class Matching:
    """Prices and matching of a square problem in device memory, and rounds of searches.

    Device memory: some vectors, and the room of the searches at hand.
    """

    def __init__(self, device: int, n: int, price: np.dtype[Any]) -> None:
        cupy = load_cupy()
        self.cupy, self.device, self.n, self.price = cupy, device, n, price
        self.blocked = S.blocked_price(price)
        self.v, self.open_price = empty((n,), price, "prices"), empty((n,), price, "prices")
        self.match_cost = empty((n,), price, "the matching")
        self.column_of_row = empty((n,), np.int32, "the matching")
        self.row_of_column = empty((n,), np.int32, "the matching")
        self.requested = cupy.zeros(n, np.int32)
        self.falls = cupy.zeros(n, np.uint64)
        self.sums = empty((-(-n // _SIDE),), price, "prices")
        self.counts = empty((-(-n // _SIDE),), np.int32, "prices")
        self.claims = cupy.full(n, _NO_KEY, np.uint64)
        code = DeviceCode("", (), price, trusted=True)
        self._kernels: Kernels = compiled(
            device, code, "batch",
            (("PRICE_IS_INT", int(price.kind == "i")), ("THREADS", FLOOD_THREADS)),
        )  # fmt: skip

    def take(self, engine: Any) -> None:
        """Become what the host has."""
        for name in ("v", "open_price", "match_cost", "column_of_row", "row_of_column"):
            getattr(self, name).set(getattr(engine, name))

    def give(self, engine: Any) -> None:
        """Make the host's prices and matching what is here, all of it or nothing."""
        names = ("v", "open_price", "match_cost", "column_of_row", "row_of_column")
        found = [getattr(self, name).get() for name in names]
        engine.torn = True
        for name, values in zip(names, found, strict=True):
            getattr(engine, name)[:] = values
        engine.torn = False

    def stale_rows(self, pool: DevicePool) -> Array:
        """Rows whose threshold no longer lies above the best of their list."""
        stale = self.cupy.empty(self.n, np.int32)
        self._kernels.get("bigsap_stale")(
            (min(self.n, 1 << 15),), (LANES,),
            (np.int32(self.n), pool.ids, pool.costs, pool.start, pool.size, pool.theta, self.v,
             stale),
        )  # fmt: skip
        found: Array = np.flatnonzero(stale.get())
        return found

    def round(
        self, pool: DevicePool, room: _Room, roots: Array, epsilon: Any, postpone: Any,
        tally: Tally, at: F.SearchStanding,
    ) -> Array:  # fmt: skip
        """Search from these rows and put into effect what can be; the searches' statuses.

        at: of the frontier, where scans and drops are counted.
        """
        count = roots.size
        there = self.cupy.asarray(roots)
        grid, block = (count,), (LANES,)
        longest = np.int32(room.longest)
        lists = (there, pool.ids, pool.costs, pool.start, pool.size, pool.theta, self.v,
                 self.row_of_column, self.match_cost, np.int32(self.n), postpone)  # fmt: skip
        if room.flood:
            stretch = self.price.type(epsilon * STRETCH)
            self._kernels.get("bigsap_flood")(
                grid, (FLOOD_THREADS,),
                (*lists, stretch, np.int32(room.items), longest, room.words, room.place_of,
                 room.front, room.behind, room.touched, room.labels, room.costs, room.columns,
                 room.parents, room.h, room.events, room.found, room.ends, self.requested),
            )  # fmt: skip
        else:
            self._kernels.get("bigsap_batch", room.shared)(
                grid, block,
                (*lists, np.int32(room.items), longest, room.place_of, room.keys, room.item_costs,
                 room.item_columns, room.item_parents, room.labels, room.costs, room.columns,
                 room.parents, room.events, room.found, room.ends, self.requested),
                shared_mem=room.shared,
            )  # fmt: skip
        strict = np.int32(epsilon == 0)
        for _ in range(_TURNS):
            for name in ("bigsap_claim", "bigsap_decide", "bigsap_withdraw"):
                self._kernels.get(name)(
                    grid, block,
                    (room.found, room.columns, room.parents, longest, strict, self.claims),
                )  # fmt: skip
        self._kernels.get("bigsap_flip")(
            grid, block,
            (there, room.found, room.ends, room.columns, room.labels, room.costs, room.parents,
             longest, self.blocked, self.claims, self.falls, self.open_price, self.column_of_row,
             self.row_of_column, self.match_cost),
        )  # fmt: skip
        self._kernels.get("bigsap_lower")(
            (self.sums.size,), (_SIDE,),
            (np.int32(self.n), epsilon, self.falls, self.v, self.sums, self.counts),
        )  # fmt: skip
        found = room.found[:count].get()
        status: Array = found[:, STATUS]
        won = status == WON
        scans = found[:, SCANS].astype(np.int64)
        tally.rounds += 1
        tally.searches += count
        tally.committed += int(won.sum())
        tally.lost += int(((status == LOST) | (status == FOUND)).sum())
        tally.asked += int((status == ASKS).sum())
        tally.grew += int((status == GREW).sum())
        tally.scans += int(scans.sum())
        tally.kept += int(scans[won].sum())
        tally.chain += int(found[:, STEPS].max())
        at.scans += int(scans.sum())
        if won.any():
            at.n_drops += int(self.counts.get().sum())
            # In the order of the columns: the sum decides the next epsilon.
            at.drops += self.sums.get().sum()
        return status

    def asked_for(self) -> tuple[Array, Array]:
        """Rows to be evaluated, and of these, which thresholds were reached; asked for no more."""
        found = self.cupy.flatnonzero(self.requested)
        reached = (self.requested[found] == _REACHED).get()
        self.requested[found] = 0
        return found.get(), reached


class _Worth:
    """Whether rounds still pay, judged by counts, so that it never depends on the clock.

    All costs are in scans of the host (2 to 3 us).
    """

    def __init__(self) -> None:
        self.cost = self.gain = 0

    def go_on(self, before: Tally, now: Tally, *, flood: bool) -> bool:
        """Judge the last rounds, when there are enough of them."""
        steps = now.chain - before.chain
        self.cost += _ROUND + (_FLOOD_STEP if flood else _WARP_STEP) * steps
        self.gain += now.kept - before.kept
        if self.cost < _WINDOW:
            return True
        worth = _LEAST_GAIN * self.gain >= self.cost
        self.cost = self.gain = 0
        return worth


def match(
    engine: Any, state: Matching, pool: DevicePool, order: Array, epsilon: float, postpone: float,
    tally: Tally,
) -> Array:  # fmt: skip
    """Rounds until every row of ``order`` is matched; those that are left to the host.

    engine: evaluates rows on the device (``evaluate_there``) and serves the monitor
    (``between_rounds``).
    """
    kind = state.price.type
    f, left = engine.frontier, []
    queue = order.astype(np.int32)
    ticked = time.perf_counter()
    done, worth = 0, _Worth()
    kinds = [(longest, False) for longest in LENGTHS]
    if epsilon > 0 and state.n <= _MOST_COLUMNS:
        kinds = [*((longest, False) for longest in SHORT), (FLOOD, True)]
    for k, (longest, flood) in enumerate(kinds):
        last = k == len(kinds) - 1 or longest >= state.n
        if not queue.size:
            break
        room = _Room(state.n, longest, state.price, state.device, flood=flood)
        longer: list[Array] = []
        waiting = 0
        while queue.size and (last or not waiting or queue.size >= _FEW):
            roots, queue = queue[: room.searches], queue[room.searches :]
            before = replace(tally)
            status = state.round(pool, room, roots, kind(epsilon), kind(postpone), tally, f.at)
            won = int((status == WON).sum())
            done += won
            go_on = worth.go_on(before, tally, flood=flood)
            if (status == ASKS).any():
                go_on = engine.evaluate_there(*state.asked_for()) and go_on
            if not go_on:
                left.append(roots[status != WON])
                left += [*longer, queue]
                tally.left += sum(rows.size for rows in left)
                return np.concatenate(left)
            grew, stuck = status == GREW, status == STUCK
            if grew.any():
                longer.append(roots[grew])
                waiting += int(grew.sum())
            if stuck.any():
                left.append(roots[stuck])
            queue = np.concatenate([queue, roots[(status != WON) & ~grew & ~stuck]])
            now = time.perf_counter()
            if now - ticked > _TICK_SECONDS:
                ticked = now
                engine.between_rounds(done)
        queue = np.concatenate([*longer, queue])
        del room
        if last:
            break
    left.append(queue)
    rest = np.concatenate(left)
    tally.left += rest.size
    return rest
