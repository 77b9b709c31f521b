"""Costs stored as packed numbers, by the attributes of the CF conventions. See ``packing``."""

from __future__ import annotations

from typing import Any

import numpy as np

from bigsap.errors import InvalidCostError
from bigsap.sources.base import CostSource, range_of, read_rows
from bigsap.sources.convert import CONVERSION_BYTES, convert, pair_at
from bigsap.sources.missing import refuse
from bigsap.sources.packing import Packing
from bigsap.sources.wrappers import Converted, Groups, is_grouped
from bigsap.types import Array, Ids


def unpacked(source: CostSource, packing: Packing | None, *, forbid: bool) -> CostSource:
    """Return the unpacked costs of the numbers of ``source``.

    forbid: missing ones become NaN, for ``WithoutMissing``; otherwise each is an error.
    """
    if packing is None:
        return source
    only_nan = not forbid and all(value != value for value, _ in packing.markers)
    plain = not packing.scaled and packing.low is None and packing.high is None
    if plain and only_nan and source.dtype.kind == "f":
        return source  # NaN is an error in any case
    dtype = source.dtype
    if packing.scaled or (forbid and dtype.kind != "f"):
        dtype = np.dtype(np.float64)
    kind = _UnpackedGroups if is_grouped(source) else Unpacked
    return kind(source, dtype, packing, forbid=forbid)


def without_missing(source: CostSource, *, maximize: bool) -> CostSource:
    """Return the costs of ``source`` with NaN (missing) replaced by forbidden pairs."""
    if source.dtype.kind != "f":
        return source
    return (_WithoutGroups if is_grouped(source) else WithoutMissing)(source, maximize=maximize)


class Unpacked(Converted):
    """Costs unpacked from stored numbers. See ``unpacked``."""

    def __init__(self, source: CostSource, dtype: np.dtype[Any], packing: Packing, *, forbid: bool) -> None:
        super().__init__(source, dtype)
        self._packing = packing
        self._forbid = forbid

    def __repr__(self) -> str:
        return f"Unpacked({self.source!r}, {self._packing})"

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        width, packing = columns.stop - columns.start, self._packing
        step = max(1, CONVERSION_BYTES // max(1, 8 * width))
        for k in range(0, len(rows), step):
            some, part = rows[k : k + step], out[k : k + step]
            stored = np.empty((len(some), width), self.source.dtype)
            self.source.read(some, columns, stored)
            missing = packing.missing(stored)
            if not self._forbid and missing.any():
                first = int(missing.any(axis=1).argmax())
                column = columns.start + int(missing[first].argmax())
                refuse(*pair_at(some[first], column, swapped=self.swapped), packing.why(stored[missing][0]))
            if packing.scaled:
                self._scale(stored, part, some, columns.start)
            else:
                convert(stored, part, some, columns.start, swapped=self.swapped)
            if self._forbid:
                part[missing] = np.nan

    def _scale(self, stored: Array, out: Array, rows: Ids, first_column: int) -> None:
        self._packing.unpack(stored, out)
        lost = ~np.isfinite(out) & np.isfinite(stored)
        if lost.any():
            k, p = np.argwhere(lost)[0]
            row, column = pair_at(rows[k], first_column + p, swapped=self.swapped)
            raise InvalidCostError(
                f"cost[{row}, {column}] = {stored[k, p]} * {self._packing.scale} +"
                f" {self._packing.offset} exceeds float64",
                row,
                column,
            )

    def cost_range(self) -> tuple[float, float] | None:
        """Return the range of the stored numbers, unpacked in the same way."""
        ends = range_of(self.source)
        if ends is None:
            return None
        low, high = (end * self._packing.scale + self._packing.offset for end in ends)
        return min(low, high), max(low, high)

    def transposed(self) -> CostSource | None:
        found = super().transposed()
        if not isinstance(found, Converted):
            return None
        return self._across(Unpacked(found.source, self.dtype, self._packing, forbid=self._forbid))

    def fingerprint(self) -> str:
        facts = f"{self._packing.scale!r},{self._packing.offset!r},{self._packing.markers!r}"
        return super().fingerprint() + facts.encode().hex()


class WithoutMissing(Converted):
    """Costs with missing ones forbidden. See ``without_missing``."""

    def __init__(self, source: CostSource, *, maximize: bool) -> None:
        super().__init__(source, source.dtype)
        self._maximize = maximize

    def __repr__(self) -> str:
        return f"WithoutMissing({self.source!r})"

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        read_rows(self.source, rows, columns, out)
        out[np.isnan(out)] = -np.inf if self._maximize else np.inf

    def cost_range(self) -> tuple[float, float] | None:
        """Return the source's range: forbidden costs are not finite."""
        return range_of(self.source)

    def transposed(self) -> CostSource | None:
        """Return the transpose, with missing costs forbidden; None if the source has none."""
        found = super().transposed()
        if not isinstance(found, Converted):
            return None
        return WithoutMissing(found.source, maximize=self._maximize)

    def fingerprint(self) -> str:
        return super().fingerprint() + ("fd" if self._maximize else "fc")


class _UnpackedGroups(Groups, Unpacked):
    """Unpacked costs of a source that reads rows in groups, ahead of time."""


class _WithoutGroups(Groups, WithoutMissing):
    """Costs with missing ones forbidden, of a source that reads rows in groups, ahead of time."""
