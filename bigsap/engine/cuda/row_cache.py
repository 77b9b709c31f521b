"""Row cache in device memory, for costs that do not fit the device.

``bigsap.row_cache`` decides which rows are resident and which is evicted; this module has the
slots and the copies. The rows of an evaluation may come in any order, so resident rows come first
and no other row evicts them. The policy processes all of them, one after another, before any is
read. Then the resident rows are evaluated from their slots. Only after that come the others, a
panel at a time; those that still own a slot at the end are copied into it. So no row is overwritten
before it is read, and none is copied that would be evicted before use. If every row of the
evaluation owns a slot at the end, as is usual for the few rows that searches request, the missing
ones are copied first and all are evaluated together. In between, slots and policy disagree: an
evaluation that ends early therefore empties the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.errors import DeviceMemoryError
from bigsap.row_cache import ABSENT, HITS, RowCache, Rows, RowTable, claim, touch
from bigsap.sources.cuda.code import DeviceCode, matrix_code
from bigsap.sources.cuda.device_kernels import Kernels, load_cupy
from bigsap.sources.cuda.device_memory import PANEL_BYTES, bring, empty, free_bytes, naming_bytes, panels
from bigsap.sources.cuda.placed import StreamedToDevice
from bigsap.types import Array

#: A panel takes this share of the bytes for rows, up to its usual size.
_PANEL_PART = 8
#: Memory left free for batches and their lists, if no limit for rows is given.
_WORK_BYTES = 512 << 20
#: Threads of a block: SIDE in kernels_rows.cu.
_SIDE = 256

#: Evaluates rows: code and words of costs on the device, the rows' ids, and the index of each
#: among the rows of that code.
Evaluate = Callable[[DeviceCode, Any, Array, Array], None]


def shares(room: int, row_bytes: int) -> tuple[int, int]:
    """Split ``room`` bytes for rows: those of a panel, at least one row, and those of slots."""
    panel = max(row_bytes, min(PANEL_BYTES, room // _PANEL_PART))
    return panel, max(0, room - panel)


@kernel(nrt=True)
def use_rows(t: RowTable, found: Array, missing: Array, sweeping: bool) -> None:
    """Update the policy's lists as if these rows were read one after another.

    found: ids of resident rows; missing: of others, without repeats.
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

    Slots are allocated at the first evaluation: as many as ``limit`` or free memory leave beside a
    panel, and ``cache`` allows. Without room for one there are none, and every row is copied each
    time. Raises OptionError for a ``cache`` smaller than a row.
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
            self._policy_for(asked, cache)  # raises if this is too little
        self._cache, self._budget = cache, min(left, asked)
        self._rows: Rows | None = None
        self._slots: Any = None
        self._closed = self._budget < self.row_bytes
        self._hits = self._misses = 0  # of earlier tables
        self.copied_bytes = 0

    def _policy_for(self, budget: int, cache: RowCache) -> Rows:
        source = self.source
        return Rows.cached(source.shape, source.dtype, cache, budget, elsewhere=True)

    # -- counters -------------------------------------------------------------------

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
        """Rows copied to the device."""
        return self._misses + (0 if self._rows is None else self._rows.misses)

    # -- slots ----------------------------------------------------------------------

    def _open(self) -> bool:
        """Allocate as many slots as the device has room for; return whether there are any."""
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
        """Free table and slots; the counters stay."""
        if self._rows is not None:
            self._hits, self._misses = self.hits, self.misses
        self._rows, self._slots = None, None

    def empty(self) -> None:
        """Remove all rows. Slots are freed until the next evaluation."""
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
        """Pass all ``rows``, without repeats, to ``evaluate``; our device must be the current one.

        most: rows of one call. kernels: compiled around a code. If the device has no room for the
        work beside the slots, the slots are freed and the rows are evaluated again.
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
        """Yield hits from their slots and misses from panels.

        Misses are copied into their slots after evaluation, or before it if all fit.
        """
        assert self._rows is not None
        table = self._rows.table
        slots = table.slot_of_row[rows]
        found, missing = rows[slots != ABSENT], rows[slots == ABSENT]
        # More rows than slots, as in the first evaluation of all rows, count as a sweep:
        # otherwise they would evict each other and all previous rows.
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
        """Yield device arrays and the rows they hold; each array is reused for the next rows."""
        if not rows.size:
            return
        panel = self._panel(rows.size)
        for start, costs in panels(self.source, rows, tick, self._panel_bytes):
            bring(panel[: len(costs)], costs)
            self.copied_bytes += costs.nbytes
            yield panel, rows[start : start + len(costs)]

    def _panel(self, n_rows: int) -> Any:
        """Allocate a panel for as many of these rows as possible, fewer if device memory is short."""
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
        """Yield the arguments of ``evaluate`` for rows at these places of a device array."""
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
