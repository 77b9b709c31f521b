"""The row cache: the resident rows, their slots, and the choice of the row to evict.

A resident row is ``slots[slot_of_row[row], :]``; an absent row has slot ``ABSENT``. Two replacement
policies (A1015, section 4):

* SLRU, segmented least recently used (Karedla, Love and Wherry 1994): a new row
  enters *probation*; its first hit promotes it to *protected* (at most half of the
  slots), whose oldest row falls back to probation. O(1) a touch.
* LFU, least frequently used; counts are kept per row and survive eviction, ties go
  to the least recently used. O(log slots) a touch.

The policies are compiled (the only numba code outside the engine and the compiled sources): kernels
that compute absent rows themselves must evict without returning to Python, and the Python side must
update the same lists.

Sweeps over all rows would flush a cache smaller than the matrix. So a *sweeping* claim on a full
cache makes its row the next victim: the sweep then reuses one single slot.
"""

from __future__ import annotations

import ctypes
import re
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from bigsap.compile.decorator import kernel
from bigsap.errors import OptionError, whole
from bigsap.types import Array

ABSENT = -1
POLICIES = ("auto", "slru", "lfu")

# Policy codes in head[POLICY]; RESIDENT means that every row has its slot permanently.
RESIDENT, SLRU, LFU = 0, 1, 2

# Places in the int64 array ``head``.
(
    POLICY,
    N_SLOTS,
    N_USED,
    HITS,
    MISSES,
    CLOCK,
    PROTECTED_SIZE,
    PROTECTED_LIMIT,
    NEWEST,  # of probation; NEWEST + 1: of protected
    _NEWEST_PROTECTED,
    OLDEST,  # of probation; OLDEST + 1: of protected
    _OLDEST_PROTECTED,
    HEAD_WORDS,
) = range(13)


class RowTable(NamedTuple):
    """The arrays that kernels see. All ids are int32, -1 stands for none.

    slots: (n_slots, >= n_columns), the source's dtype.
    slot_of_row: (n_rows,). row_of_slot: (n_slots,), its inverse.
    SLRU: newer, older: (n_slots,) neighbours in the slot's list; segment: uint8
    (n_slots,), 0 probation, 1 protected.
    LFU: newer holds a binary heap of slots, older each slot's place in it; the heap's
    root has the smallest (uses of its row, tick). uses: int64 (n_rows,);
    tick: int64 (n_slots,).
    head: int64 (HEAD_WORDS,), see the module constants.
    """

    slots: Array
    slot_of_row: Array
    row_of_slot: Array
    newer: Array
    older: Array
    segment: Array
    uses: Array
    tick: Array
    head: Array


@kernel
def _unlink(t: RowTable, slot: int) -> None:
    s = t.segment[slot]
    newer, older = t.newer[slot], t.older[slot]
    if newer >= 0:
        t.older[newer] = older
    else:
        t.head[NEWEST + s] = older
    if older >= 0:
        t.newer[older] = newer
    else:
        t.head[OLDEST + s] = newer


@kernel
def _link_newest(t: RowTable, slot: int, s: int) -> None:
    first = t.head[NEWEST + s]
    t.segment[slot] = s
    t.newer[slot] = -1
    t.older[slot] = first
    t.head[NEWEST + s] = slot
    if first >= 0:
        t.newer[first] = slot
    else:
        t.head[OLDEST + s] = slot


@kernel
def _link_oldest(t: RowTable, slot: int, s: int) -> None:
    last = t.head[OLDEST + s]
    t.segment[slot] = s
    t.older[slot] = -1
    t.newer[slot] = last
    t.head[OLDEST + s] = slot
    if last >= 0:
        t.older[last] = slot
    else:
        t.head[NEWEST + s] = slot


@kernel
def _colder(t: RowTable, a: int, b: int) -> bool:
    """Return whether slot a is to be evicted before slot b (LFU)."""
    ca, cb = t.uses[t.row_of_slot[a]], t.uses[t.row_of_slot[b]]
    return ca < cb or (ca == cb and t.tick[a] < t.tick[b])


@kernel
def _settle(t: RowTable, place: int) -> None:
    """Restore the LFU heap after the key at ``place`` changed."""
    heap, place_of = t.newer, t.older
    slot = heap[place]
    while place > 0:
        parent = (place - 1) // 2
        if not _colder(t, slot, heap[parent]):
            break
        heap[place] = heap[parent]
        place_of[heap[place]] = place
        place = parent
    n = t.head[N_USED]
    while True:
        child = 2 * place + 1
        if child >= n:
            break
        if child + 1 < n and _colder(t, heap[child + 1], heap[child]):
            child += 1
        if not _colder(t, heap[child], slot):
            break
        heap[place] = heap[child]
        place_of[heap[place]] = place
        place = child
    heap[place] = slot
    place_of[slot] = place


@kernel
def touch(t: RowTable, slot: int) -> None:
    """Record a use of a resident row. O(1) with SLRU, O(log n_slots) with LFU."""
    t.head[HITS] += 1
    policy = t.head[POLICY]
    if policy == SLRU:
        if t.segment[slot] == 1:
            _unlink(t, slot)
            _link_newest(t, slot, 1)
            return
        if t.head[PROTECTED_LIMIT] == 0:
            _unlink(t, slot)
            _link_newest(t, slot, 0)
            return
        _unlink(t, slot)
        _link_newest(t, slot, 1)
        if t.head[PROTECTED_SIZE] < t.head[PROTECTED_LIMIT]:
            t.head[PROTECTED_SIZE] += 1
        else:
            demoted = t.head[OLDEST + 1]
            _unlink(t, demoted)
            _link_newest(t, demoted, 0)
    elif policy == LFU:
        t.head[CLOCK] += 1
        t.tick[slot] = t.head[CLOCK]
        t.uses[t.row_of_slot[slot]] += 1
        _settle(t, t.older[slot])


@kernel
def next_slot(t: RowTable) -> int:
    """Return the slot that ``claim`` would give a row now; -1 if every row has its own."""
    used = t.head[N_USED]
    if used < t.head[N_SLOTS]:
        return used
    policy = t.head[POLICY]
    if policy == RESIDENT:
        return -1
    return t.head[OLDEST] if policy == SLRU else t.newer[0]


@kernel
def claim(t: RowTable, row: int, sweeping: bool) -> int:
    """Give an absent row a slot, evicting another row if needed; the caller fills the slot.

    With ``sweeping`` on a full cache the row itself becomes the next victim.
    """
    t.head[MISSES] += 1
    policy = t.head[POLICY]
    slot = next_slot(t)
    full = t.head[N_USED] == t.head[N_SLOTS]
    if full:
        t.slot_of_row[t.row_of_slot[slot]] = ABSENT
        if policy == SLRU:
            _unlink(t, slot)
    else:
        t.head[N_USED] += 1
    t.row_of_slot[slot] = row
    t.slot_of_row[row] = slot
    if policy == SLRU:
        if full and sweeping:
            _link_oldest(t, slot, 0)
        else:
            _link_newest(t, slot, 0)
    elif policy == LFU:
        t.head[CLOCK] += 1
        if full and sweeping:
            # Colder than every other row at the same count: evicted next unless some row was used
            # less often.
            t.tick[slot] = -t.head[CLOCK]
            place = 0
        else:
            t.tick[slot] = t.head[CLOCK]
            t.uses[row] += 1
            place = 0
        if not full:
            place = slot
            t.newer[place] = slot
            t.older[slot] = place
        _settle(t, place)
    return slot


def parse_bytes(value: int | str, what: str = "a byte size") -> int:
    """Return ``"4GiB"``, ``"500 MB"``, ``"1e6"`` or an integer as a number of bytes.

    Raises OptionError for anything else, or for a negative size.
    """
    count = whole(value)
    if count is not None:
        size = count
    elif isinstance(value, str):
        match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+(?:[eE][0-9]+)?)\s*([kKmMgGtT]?)(i?)[bB]?\s*", value)
        if match is None:
            raise OptionError(f"{what} must look like 4GiB, 500MB or 1000000, got {value!r}")
        number, prefix, binary = match.groups()
        power = " kmgt".index(prefix.lower()) if prefix else 0
        try:
            size = int(float(number) * (1024 if binary else 1000) ** power)
        except OverflowError as error:
            raise OptionError(f"{what} is beyond all memory: {value!r}") from error
    else:
        raise OptionError(f"{what} must be an integer or a string, got {type(value).__name__}")
    if size < 0:
        raise OptionError(f"{what} must not be negative, got {value!r}")
    return size


@dataclass(frozen=True, slots=True)
class RowCache:
    """The memory that rows may take, and the policy of which rows to keep.

    bytes: an integer or a string such as ``"4GiB"``; None: a share of the machine's memory. policy:
    ``"slru"``, ``"lfu"`` or ``"auto"``, which takes LFU if at least a quarter of the rows fit and
    SLRU below (A1015, section 4). Raises OptionError for other values; ``solve`` raises it if the
    budget is smaller than one row.
    """

    bytes: int | str | None = None
    policy: str = "auto"

    def __post_init__(self) -> None:
        if self.bytes is not None:
            parse_bytes(self.bytes, "cache bytes")
        if self.policy not in POLICIES:
            raise OptionError(f"cache policy must be one of {POLICIES}, got {self.policy!r}")

    def budget(self, default: int) -> int:
        """Return the budget in bytes, ``default`` if none was given."""
        return default if self.bytes is None else parse_bytes(self.bytes)


def _alias(matrix: Array) -> Array:
    """Return the same memory as a plain writable array.

    numba compiles every kernel again for read-only arrays, which mapped files are; kernels never
    write to rows in place.
    """
    if matrix.flags.writeable or matrix.size == 0:
        return matrix.view(np.ndarray)
    memory = (ctypes.c_char * matrix.nbytes).from_address(matrix.ctypes.data)
    return np.ndarray(matrix.shape, matrix.dtype, buffer=memoryview(memory))


class Rows:
    """The resident rows of one solve: a RowTable and its policy.

    Memory: n_slots rows of costs, 4 bytes a row of the matrix, 12 to 20 a slot, and 8 more a row
    with LFU.
    """

    def __init__(self, table: RowTable, policy: str) -> None:
        self.table = table
        self.policy = policy
        self._keep: Array | None = None

    @classmethod
    def in_place(cls, matrix: Array) -> Rows:
        """Return a cache in which every row is resident where it lies: no copy, no policy."""
        n = matrix.shape[0]
        head = np.zeros(HEAD_WORDS, np.int64)
        head[N_SLOTS] = head[N_USED] = n
        ids = np.arange(n, dtype=np.int32)
        none = np.empty(0, np.int32)
        table = RowTable(
            _alias(matrix),
            ids,
            ids,
            none,
            none,
            np.empty(0, np.uint8),
            np.empty(0, np.int64),
            np.empty(0, np.int64),
            head,
        )
        rows = cls(table, "in place")
        rows._keep = matrix
        return rows

    @classmethod
    def cached(
        cls,
        shape: tuple[int, int],
        dtype: np.dtype[Any],
        cache: RowCache,
        budget: int,
        *,
        elsewhere: bool = False,
    ) -> Rows:
        """Return an empty cache of at most ``budget`` bytes of costs.

        elsewhere: the slots are not in this machine's memory; the caller has them. Raises
        OptionError if the budget is less than one row.
        """
        n, m = shape
        row_bytes = max(m, 1) * dtype.itemsize
        n_slots = min(n, budget // row_bytes)
        if n_slots < 1 and n > 0:
            raise OptionError(
                f"a cache of {budget} bytes does not hold one row of {m} columns ({row_bytes} bytes)"
            )
        policy = cache.policy
        if policy == "auto":
            policy = "lfu" if 4 * n_slots >= n else "slru"
        lfu = policy == "lfu"
        code = LFU if lfu else SLRU
        if n_slots == n:
            code = RESIDENT
        head = np.zeros(HEAD_WORDS, np.int64)
        head[POLICY] = code
        head[N_SLOTS] = n_slots
        head[PROTECTED_LIMIT] = n_slots // 2
        evicting = n_slots if code != RESIDENT else 0
        table = RowTable(
            slots=np.empty((0 if elsewhere else n_slots, m), dtype),
            slot_of_row=np.empty(n, np.int32),
            row_of_slot=np.full(n_slots, -1, np.int32),
            newer=np.full(evicting, -1, np.int32),
            older=np.full(evicting, -1, np.int32),
            segment=np.zeros(evicting if not lfu else 0, np.uint8),
            uses=np.zeros(n if lfu and code != RESIDENT else 0, np.int64),
            tick=np.zeros(evicting if lfu else 0, np.int64),
            head=head,
        )
        rows = cls(table, policy)
        rows.empty()
        return rows

    def empty(self) -> None:
        """Evict every row and reset its uses; hits and misses stay counted."""
        t, head = self.table, self.table.head
        t.slot_of_row[:], t.uses[:] = ABSENT, 0
        head[N_USED] = head[CLOCK] = head[PROTECTED_SIZE] = 0
        head[NEWEST : OLDEST + 2] = -1

    @property
    def n_slots(self) -> int:
        return int(self.table.head[N_SLOTS])

    @property
    def hits(self) -> int:
        """Number of uses of resident rows."""
        return int(self.table.head[HITS])

    @property
    def misses(self) -> int:
        """Number of rows fetched or computed into the cache."""
        return int(self.table.head[MISSES])

    @property
    def bytes(self) -> int:
        """Bytes of costs that the cache itself holds (0 if in place)."""
        return 0 if self.policy == "in place" else int(self.table.slots.nbytes)
