"""The row cache of costs that a device has no room for, in the memory of that device.

Which rows are resident, and which one goes next, is the business of ``bigsap.row_cache``; here
are the slots, and the way of rows into them. The rows of an evaluation may come in any
order: those that are resident come first, so that none of them is evicted by one that is
not. The policy goes over all of them, one after another, before any is read. Then the
resident ones are evaluated from their slots; only after these come the others, a panel
at a time, of which those are copied into their slots that still own one at the end. So
nothing is overwritten that is still to be read, and nothing copied that would be evicted
before anybody reads it. Where no row of the evaluation is without a slot in the end, which
is usual for the few that searches ask for, the others are copied first and all are
evaluated together. In between slots and policy disagree: whatever leaves an evaluation
before its end empties the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.errors import DeviceMemoryError
from bigsap.row_cache import ABSENT, HITS, RowCache, Rows, RowTable, claim, touch
from bigsap.sources.base import Array
from bigsap.sources.cuda.code import DeviceCode, matrix_code
from bigsap.sources.cuda.device_kernels import Kernels, load_cupy
from bigsap.sources.cuda.device_memory import PANEL_BYTES, bring, empty, free_bytes, naming_bytes, panels
from bigsap.sources.cuda.placed import StreamedToDevice

#: A panel takes this share of the bytes that rows may take, until it is as large as others.
_PANEL_PART = 8
#: Left free for batches and their lists, where no limit says what rows may take.
_WORK_BYTES = 512 << 20
#: Threads of a block: SIDE in kernels_rows.cu.
_SIDE = 256

#: Evaluates rows: code and words of costs on the device, the rows' ids, and where each lies
#: among the rows of that code.
Evaluate = Callable[[DeviceCode, Any, Array, Array], None]


def shares(room: int, row_bytes: int) -> tuple[int, int]:
    """Of ``room`` bytes for rows: those of a panel, at least one row, and those of slots."""
    panel = max(row_bytes, min(PANEL_BYTES, room // _PANEL_PART))
    return panel, max(0, room - panel)


@kernel(nrt=True)
def use_rows(t: RowTable, found: Array, missing: Array, sweeping: bool) -> None:
    """Move the policy's lists as if these rows were read one after another.

    found: ids of resident rows; missing: of others, none twice.
    """
    for k in range(found.size):
        if sweeping:
            t.head[HITS] += 1
        else:
            touch(t, t.slot_of_row[found[k]])
    for k in range(missing.size):
        claim(t, missing[k], sweeping)


class DeviceRows:
    """Rows of a streamed source: some in slots of device memory, the others in panels.

    Slots are taken at the first evaluation: what ``limit`` or free memory leave beside a
    panel, and no more than ``cache`` allows. Without room for one there are none, and every
    row is copied each time. Raises OptionError for a ``cache`` smaller than a row.
    copied_bytes: of costs copied to the device.
    """

    def __init__(self, source: StreamedToDevice) -> None:
        self.source, self.device = source, source.device
        self.row_bytes = max(1, source.shape[1]) * source.dtype.itemsize
        cache = source.cache or RowCache()
        room = max(free_bytes(self.device) - _WORK_BYTES, free_bytes(self.device) // 2)
        if source.limit is not None:
            room = min(room, source.limit)
        self._panel_bytes, left = shares(room, self.row_bytes)
        asked = cache.budget(left)
        if cache.bytes is not None:
            self._policy_for(asked, cache)  # complains of too little
        self._cache, self._budget = cache, min(left, asked)
        self._rows: Rows | None = None
        self._slots: Any = None
        self._closed = self._budget < self.row_bytes
        self._hits = self._misses = 0  # of tables left behind
        self.copied_bytes = 0

    def _policy_for(self, budget: int, cache: RowCache) -> Rows:
        source = self.source
        return Rows.cached(source.shape, source.dtype, cache, budget, elsewhere=True)

    # -- what is counted ------------------------------------------------------------

    @property
    def policy(self) -> str:
        """The policy's name, ``"none"`` without slots."""
        return "none" if self._rows is None else self._rows.policy

    @property
    def n_slots(self) -> int:
        return 0 if self._rows is None else self._rows.n_slots

    @property
    def bytes(self) -> int:
        """Bytes of costs that slots hold."""
        return self.n_slots * self.row_bytes

    @property
    def hits(self) -> int:
        """Rows evaluated from their slots."""
        return self._hits + (0 if self._rows is None else self._rows.hits)

    @property
    def misses(self) -> int:
        """Rows fetched."""
        return self._misses + (0 if self._rows is None else self._rows.misses)

    # -- slots ----------------------------------------------------------------------

    def _open(self) -> bool:
        """Whether there are slots; takes as many as the device has room for."""
        while self._slots is None and not self._closed:
            if self._rows is None:
                self._rows = self._policy_for(self._budget, self._cache)
            n_slots, m = self.n_slots, self.source.shape[1]
            try:
                self._slots = empty((n_slots, m), self.source.dtype, "the row cache")
            except DeviceMemoryError:
                self._leave()
                self._budget = n_slots // 2 * self.row_bytes
                self._closed = n_slots < 2
        return not self._closed

    def _leave(self) -> None:
        """Give table and slots back; what they counted stays."""
        if self._rows is not None:
            self._hits, self._misses = self.hits, self.misses
        self._rows, self._slots = None, None

    def empty(self) -> None:
        """No row is resident any more. Slots are given back until the next evaluation."""
        if self._rows is not None:
            self._rows.empty()
        self._slots = None

    # -- evaluations ----------------------------------------------------------------

    def go_over(
        self,
        rows: Array,
        most: int,
        tick: Callable[[], None],
        kernels: Callable[[DeviceCode], Kernels],
        evaluate: Evaluate,
    ) -> None:
        """Bring all ``rows``, none of them twice, before ``evaluate``; current device: ours.

        most: rows of one call. kernels: compiled around a code. Where the device has no room
        for the work beside the slots, the slots are given up and the rows come once more.
        """
        if self._open():
            try:
                with naming_bytes():
                    for given in self._through_slots(rows, most, tick, kernels):
                        evaluate(*given)
                return
            except DeviceMemoryError:
                self._leave()
                self._closed = True
            except BaseException:
                self.empty()
                raise
        self._misses += rows.size
        with naming_bytes():
            for panel, ids in self._in_panels(rows, tick):
                for given in self._panel_in_batches(panel, ids, most):
                    evaluate(*given)

    def _through_slots(
        self, rows: Array, most: int, tick: Callable[[], None], kernels: Callable[[DeviceCode], Kernels]
    ) -> Iterator[tuple[DeviceCode, Any, Array, Array]]:
        """Hits from their slots, misses from panels; misses are then put into their slots, or
        before, where all can be."""
        assert self._rows is not None
        table = self._rows.table
        slots = table.slot_of_row[rows]
        found, missing = rows[slots != ABSENT], rows[slots == ABSENT]
        # More rows than there are slots are a sweep, as the first evaluation of all rows is:
        # they would push each other out, and leave nothing of what was there.
        use_rows(table, found, missing, rows.size > self.n_slots)
        together = bool((table.slot_of_row[rows] != ABSENT).all())
        if not together:
            yield from self._in_batches(self._slots, found, slots[slots != ABSENT], most)
        for panel, ids in self._in_panels(missing, tick):
            if not together:
                yield from self._panel_in_batches(panel, ids, most)
            self._keep(panel, table.slot_of_row[ids], kernels)
        if together:
            yield from self._in_batches(self._slots, rows, table.slot_of_row[rows], most)

    def _in_panels(self, rows: Array, tick: Callable[[], None]) -> Iterator[tuple[Any, Array]]:
        """Device arrays and the rows that they hold; each is used again for the next rows."""
        if not rows.size:
            return
        panel = self._panel(rows.size)
        for start, costs in panels(self.source, rows, tick, self._panel_bytes):
            bring(panel[: len(costs)], costs)
            self.copied_bytes += costs.nbytes
            yield panel, rows[start : start + len(costs)]

    def _panel(self, n_rows: int) -> Any:
        """Room for as many of these rows as a panel has, fewer where the device has none."""
        while True:
            height = max(1, min(n_rows, self._panel_bytes // self.row_bytes))
            shape = (height, self.source.shape[1])
            try:
                return empty(shape, self.source.dtype, "a panel of rows")
            except DeviceMemoryError:
                if height == 1:
                    raise
                self._panel_bytes = height // 2 * self.row_bytes

    def _in_batches(
        self, costs: Any, ids: Array, places: Array, most: int
    ) -> Iterator[tuple[DeviceCode, Any, Array, Array]]:
        """What ``evaluate`` takes for rows at these places of an array on the device."""
        m = self.source.shape[1]
        code = matrix_code(self.source.dtype, int(costs.data.ptr), m, 1, m)
        words = load_cupy().asarray(np.array(code.words, np.int64))
        for first in range(0, ids.size, most):
            some = slice(first, first + most)
            yield code, words, ids[some], places[some]

    def _panel_in_batches(
        self, panel: Any, ids: Array, most: int
    ) -> Iterator[tuple[DeviceCode, Any, Array, Array]]:
        return self._in_batches(panel, ids, np.arange(ids.size, dtype=np.int32), most)

    def _keep(self, panel: Any, slots: Array, kernels: Callable[[DeviceCode], Kernels]) -> None:
        """Copy rows of a panel into the slots that they own. slots: of each row, or ABSENT."""
        mine = np.flatnonzero(slots != ABSENT).astype(np.int32)
        m = self.source.shape[1]
        for code, words, into, places in self._in_batches(panel, slots[mine], mine, mine.size or 1):
            kernels(code).get("bigsap_keep")(
                (min(64, -(-m // _SIDE)), min(places.size, 4096)),
                (_SIDE,),
                (
                    words,
                    load_cupy().asarray(places),
                    load_cupy().asarray(into),
                    np.int32(places.size),
                    np.int32(m),
                    self._slots,
                ),
            )
