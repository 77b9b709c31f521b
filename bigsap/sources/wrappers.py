"""Sources that wrap other sources, each adding one feature."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from bigsap.errors import DtypeError
from bigsap.sources.base import (
    SCANNABLE,
    CostSource,
    Fingerprinted,
    Grouped,
    Prefetching,
    Reading,
    Sparse,
    Transposable,
    in_sense,
    range_of,
    read_rows,
)
from bigsap.sources.convert import CONVERSION_BYTES, convert, fingerprint_of
from bigsap.types import Array, Ids


class Counted:
    """Counts the reads of a source, from any number of threads.

    It has no ability but ``read``, so that every access is counted.

    calls: reads; rows: rows read, whole or partial; pairs: costs read; per_row: int64 (n_rows,),
    reads of each row. Failed reads count too.
    """

    def __init__(self, source: CostSource) -> None:
        self._source = source
        self._lock = threading.Lock()
        self.shape = source.shape
        self.dtype = source.dtype
        self.reset()

    def __repr__(self) -> str:
        return f"Counted({self._source!r}, calls={self.calls}, rows={self.rows})"

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            return {**vars(self), "_lock": None, "per_row": self.per_row.copy()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state, _lock=threading.Lock())

    def reset(self) -> None:
        """Reset all counts to zero."""
        with self._lock:
            self.calls = 0
            self.rows = 0
            self.pairs = 0
            self.per_row: Array = np.zeros(self.shape[0], np.int64)

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        legal = rows[(rows >= 0) & (rows < self.shape[0])]
        with self._lock:
            self.calls += 1
            self.rows += len(rows)
            self.pairs += len(rows) * (columns.stop - columns.start)
            np.add.at(self.per_row, legal, 1)
        self._source.read(rows, columns, out)


def converted(source: CostSource, dtype: Any) -> CostSource:
    """Return the same costs as another scannable dtype; ``source`` itself if it has it.

    A cost that the dtype cannot hold (a fraction or an infinity as an integer, a number out of
    range) is an ``InvalidCostError`` when it is read; floats round. Raises ``DtypeError`` unless
    ``dtype`` is in ``SCANNABLE``.
    """
    try:
        target = np.dtype(dtype)
    except TypeError:
        raise DtypeError(f"dtype={dtype!r} is no numpy dtype") from None
    if target not in SCANNABLE:
        names = ", ".join(str(d) for d in SCANNABLE)
        raise DtypeError(f"dtype={target} cannot be scanned; choose one of {names}")
    if isinstance(source, Sparse):
        return source.as_dtype(target)
    if target == source.dtype:
        return source
    return (_ConvertedGroups if is_grouped(source) else Converted)(source, target)


def is_grouped(source: CostSource) -> bool:
    """Return whether a source reads rows in groups, ahead of time."""
    return isinstance(source, Grouped) and isinstance(source, Prefetching)


class Converted(Reading):
    """The costs of a source as another dtype. See ``converted``.

    swapped: these are the transpose of the given costs, whose rows and columns errors name.
    """

    swapped = False

    def __init__(self, source: CostSource, dtype: np.dtype[Any]) -> None:
        self.source = source
        self.shape = source.shape
        self.dtype = dtype

    def __repr__(self) -> str:
        return f"Converted({self.source!r}, dtype={self.dtype})"

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        width = columns.stop - columns.start
        step = max(1, CONVERSION_BYTES // max(1, width * self.source.dtype.itemsize))
        for k in range(0, len(rows), step):
            some = rows[k : k + step]
            values = np.empty((len(some), width), self.source.dtype)
            read_rows(self.source, some, columns, values)
            convert(values, out[k : k + step], some, columns.start, swapped=self.swapped)

    def cost_range(self) -> tuple[float, float] | None:
        """Return the source's range, rounded as its costs are."""
        ends = range_of(self.source)
        if ends is None or self.dtype.kind != "f":
            return None
        with np.errstate(over="ignore"):
            return float(self.dtype.type(ends[0])), float(self.dtype.type(ends[1]))

    def in_sense(self, maximize: bool) -> CostSource:
        """Return the costs that the source has in a problem of this sense, converted."""
        given = in_sense(self.source, maximize)
        return self if given is self.source else converted(given, self.dtype)

    def transposed(self) -> CostSource | None:
        other = self.source.transposed() if isinstance(self.source, Transposable) else None
        return None if other is None else self._across(Converted(other, self.dtype))

    def _across(self, other: Converted) -> Converted:
        other.swapped = not self.swapped
        return other

    def fingerprint(self) -> str:
        """Return the source's own fingerprint and the dtype; takes no longer than the source's."""
        if isinstance(self.source, Fingerprinted):
            return self.source.fingerprint() + self.dtype.str[1:].encode().hex()
        return fingerprint_of(self)


class Groups:
    """Part of costs made of a source that reads rows in groups, ahead of time: passes both on to it."""

    source: Any

    def rows_together(self, row: int) -> tuple[int, int]:
        start, stop = self.source.rows_together(row)
        return int(start), int(stop)

    def prefetch(self, row: int) -> None:
        self.source.prefetch(row)


class _ConvertedGroups(Groups, Converted):
    """Converted costs of a source that reads rows in groups, ahead of time."""
