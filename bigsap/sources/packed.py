"""Stored numbers that stand for others: the attributes of the CF conventions.

``scale_factor`` and ``add_offset`` (costs are stored * scale + offset), ``_FillValue`` and
``missing_value`` (what stands for a missing value), ``valid_min``, ``valid_max``, ``valid_range``
(what lies outside is missing). xarray, netCDF and HDF5 write them beside the numbers; whoever reads
the numbers alone takes packed ones, and markers, for costs.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.errors import DtypeError, InvalidCostError, StoreError
from bigsap.sources.base import Array, CostSource, Grouped, Ids, Prefetching, range_of, read_rows
from bigsap.sources.convert import CONVERSION_BYTES, convert
from bigsap.sources.missing import refuse_in
from bigsap.sources.wrappers import Converted

_NUMBERS = ("scale_factor", "add_offset", "valid_min", "valid_max")


@dataclass(frozen=True)
class Packing:
    """What attributes say of stored numbers. markers: stored values that mean *missing*, with the
    attribute that says so; low, high: what is stored outside of these is missing."""

    name: str
    scale: float = 1.0
    offset: float = 0.0
    markers: tuple[tuple[float | int, str], ...] = ()
    low: float | int | None = None
    high: float | int | None = None

    @property
    def scaled(self) -> bool:
        """Whether costs are other numbers than the stored ones."""
        return (self.scale, self.offset) != (1.0, 0.0)

    def missing(self, stored: Array) -> Array:
        """Where numbers of a block stand for missing values."""
        found = np.zeros(stored.shape, np.bool_)
        for value, _ in self.markers:
            if value != value:
                if stored.dtype.kind == "f":
                    found |= np.isnan(stored)
            else:
                found |= stored == value
        with np.errstate(invalid="ignore"):
            if self.low is not None:
                found |= stored < self.low
            if self.high is not None:
                found |= stored > self.high
        return found

    def why(self, value: Any) -> str:
        """Why a stored number is missing, for people."""
        for marker, attribute in self.markers:
            if value == marker or (value != value and marker != marker):
                return f"{self.name} has {attribute} = {marker}"
        return f"{value} lies outside the valid range of {self.name}"


def packing_of(
    attributes: Mapping[str, Any], dtype: np.dtype[Any], name: str, *, fill: Any = None
) -> Packing | None:
    """What CF attributes say of numbers stored as ``dtype``, or None: they are the costs.

    fill: a further value that stands for missing ones, None if there is none.
    Raises StoreError for an attribute that cannot be understood, DtypeError for ``_Unsigned``.
    """
    unsigned = attributes.get("_Unsigned")
    if str(unsigned).lower() == "true" and dtype.kind == "i":
        raise DtypeError(
            f"{name} has the attribute _Unsigned: its {dtype} stand for unsigned integers; decode"
            " them (xarray.open_dataset does) and pass the result"
        )
    numbers = {
        key: _one(attributes[key], dtype, key, name) for key in _NUMBERS if key in attributes
    }
    markers: dict[float | int, str] = {}
    for key in ("_FillValue", "missing_value"):
        if attributes.get(key) is not None:
            for value in _several(attributes[key], dtype, key, name):
                markers.setdefault(_as_stored(value, dtype), key)
    if fill is not None:
        markers.setdefault(_as_stored(fill, dtype), "fill_value")
    if attributes.get("valid_range") is not None:
        ends = _several(attributes["valid_range"], dtype, "valid_range", name)
        if len(ends) != 2:
            raise _strange("valid_range", attributes["valid_range"], name)
        numbers.setdefault("valid_min", ends[0])
        numbers.setdefault("valid_max", ends[1])
    found = Packing(
        name,
        float(numbers.get("scale_factor", 1.0)),
        float(numbers.get("add_offset", 0.0)),
        tuple(markers.items()),
        numbers.get("valid_min"),
        numbers.get("valid_max"),
    )
    if not np.isfinite([found.scale, found.offset]).all():
        raise StoreError(f"{name} has a scale_factor or add_offset that is not finite")
    return None if found == Packing(name) else found


def unpacked(source: CostSource, packing: Packing | None, *, forbid: bool) -> CostSource:
    """The costs that the numbers of ``source`` stand for.

    forbid: missing ones become NaN, for ``WithoutMissing``; otherwise each is an error.
    """
    if packing is None:
        return source
    only_nan = not forbid and all(value != value for value, _ in packing.markers)
    plain = not packing.scaled and packing.low is None and packing.high is None
    if plain and only_nan and source.dtype.kind == "f":
        return source  # NaN is an error wherever it comes from
    dtype = source.dtype
    if packing.scaled or (forbid and dtype.kind != "f"):
        dtype = np.dtype(np.float64)
    kind = _UnpackedGroups if _grouped(source) else Unpacked
    return kind(source, dtype, packing, forbid=forbid)


def without_missing(source: CostSource, *, maximize: bool) -> CostSource:
    """The costs of ``source`` with NaN, which stands for missing ones, forbidden."""
    if source.dtype.kind != "f":
        return source
    return (_WithoutGroups if _grouped(source) else WithoutMissing)(source, maximize=maximize)


def _grouped(source: CostSource) -> bool:
    return isinstance(source, Grouped) and isinstance(source, Prefetching)


class Unpacked(Converted):
    """Costs that packed numbers stand for. See ``unpacked``."""

    def __init__(
        self, source: CostSource, dtype: np.dtype[Any], packing: Packing, *, forbid: bool
    ) -> None:
        super().__init__(source, dtype)
        self._packing = packing
        self._forbid = forbid

    def __repr__(self) -> str:
        return f"Unpacked({self._source!r}, {self._packing})"

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with ``cost[rows[k], columns]``."""
        width, packing = columns.stop - columns.start, self._packing
        step = max(1, CONVERSION_BYTES // max(1, 8 * width))
        for k in range(0, len(rows), step):
            some, part = rows[k : k + step], out[k : k + step]
            stored = np.empty((len(some), width), self._source.dtype)
            self._source.read(some, columns, stored)
            missing = packing.missing(stored)
            if not self._forbid and missing.any():
                first = int(missing.any(axis=1).argmax())
                refuse_in(
                    missing[first : first + 1], int(some[first]), columns.start,
                    packing.why(stored[missing][0]),
                )  # fmt: skip
            if packing.scaled:
                self._scale(stored, part, some, columns.start)
            else:
                convert(stored, part, some, columns.start)
            if self._forbid:
                part[missing] = np.nan

    def _scale(self, stored: Array, out: Array, rows: Ids, first_column: int) -> None:
        out[...] = stored
        with np.errstate(over="ignore", invalid="ignore"):
            out *= self._packing.scale
            out += self._packing.offset
        lost = ~np.isfinite(out) & np.isfinite(stored)
        if lost.any():
            k, p = (int(x) for x in np.argwhere(lost)[0])
            row, column = int(rows[k]), first_column + p
            raise InvalidCostError(
                f"cost[{row}, {column}] = {stored[k, p]} * {self._packing.scale} +"
                f" {self._packing.offset} exceeds float64",
                row,
                column,
            )

    def cost_range(self) -> tuple[float, float] | None:
        """That of the stored numbers, unpacked as they are."""
        ends = range_of(self._source)
        if ends is None:
            return None
        low, high = (end * self._packing.scale + self._packing.offset for end in ends)
        return min(low, high), max(low, high)

    def transposed(self) -> CostSource | None:
        """The transpose, unpacked, where the source has one."""
        found = super().transposed()
        if not isinstance(found, Converted):
            return None
        return Unpacked(found._source, self.dtype, self._packing, forbid=self._forbid)

    def fingerprint(self) -> str:
        """The source's own, and what is made of its numbers."""
        facts = f"{self._packing.scale!r},{self._packing.offset!r},{self._packing.markers!r}"
        return super().fingerprint() + facts.encode().hex()


class WithoutMissing(Converted):
    """Costs whose missing ones are forbidden. See ``without_missing``."""

    def __init__(self, source: CostSource, *, maximize: bool) -> None:
        super().__init__(source, source.dtype)
        self._maximize = maximize

    def __repr__(self) -> str:
        return f"WithoutMissing({self._source!r})"

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with ``cost[rows[k], columns]``."""
        read_rows(self._source, rows, columns, out)
        out[np.isnan(out)] = -np.inf if self._maximize else np.inf

    def cost_range(self) -> tuple[float, float] | None:
        """That of the source: what is forbidden is not finite."""
        return range_of(self._source)

    def transposed(self) -> CostSource | None:
        """The transpose, with missing costs forbidden, where the source has one."""
        found = super().transposed()
        if not isinstance(found, Converted):
            return None
        return WithoutMissing(found._source, maximize=self._maximize)

    def fingerprint(self) -> str:
        """The source's own, and the sense."""
        return super().fingerprint() + ("fd" if self._maximize else "fc")


class _Groups:
    """What a source that reads rows in groups hands on."""

    _source: CostSource

    def rows_together(self, row: int) -> tuple[int, int]:
        """The half-open range of rows that one read of ``row`` decodes anyway."""
        grouped: Any = self._source
        start, stop = grouped.rows_together(row)
        return int(start), int(stop)

    def prefetch(self, row: int) -> None:
        """``row`` will probably be read soon."""
        ahead: Any = self._source
        ahead.prefetch(row)


class _UnpackedGroups(_Groups, Unpacked):
    """Unpacked costs of a source that reads rows in groups, ahead of time."""


class _WithoutGroups(_Groups, WithoutMissing):
    """The same of costs whose missing ones are forbidden."""


# -- attributes ------------------------------------------------------------------------


def _strange(key: str, value: Any, name: str) -> StoreError:
    return StoreError(
        f"{name} has an attribute {key} = {value!r}, which is not understood; decode the values"
        " (xarray.open_dataset does) and pass the result, or remove the attribute"
    )


def _one(value: Any, dtype: np.dtype[Any], key: str, name: str) -> float | int:
    found = _several(value, dtype, key, name)
    if len(found) != 1:
        raise _strange(key, value, name)
    return found[0]


def _several(value: Any, dtype: np.dtype[Any], key: str, name: str) -> list[float | int]:
    """The numbers of an attribute: one, a list, an array; of JSON they may be text."""
    if isinstance(value, np.ndarray):
        items = value.reshape(-1).tolist()
    else:
        items = list(value) if isinstance(value, (list, tuple)) else [value]
    return [_number(item, dtype, key, value, name) for item in items]


def _number(item: Any, dtype: np.dtype[Any], key: str, whole: Any, name: str) -> float | int:
    if isinstance(item, np.generic):
        item = item.item()
    if isinstance(item, (bool, int, float)):
        return item
    if isinstance(item, bytes):
        item = item.decode("ascii", "replace")
    if isinstance(item, str):
        for read in _READERS:
            found = read(item, dtype)
            if found is not None:
                return found
    raise _strange(key, whole, name)


def _plain_text(text: str, dtype: np.dtype[Any]) -> float | int | None:
    """``NaN``, ``-Infinity``, ``0x7fc00000`` (the bits of a float), ``1.5``, ``-999``."""
    try:
        if text.startswith("0x") and dtype.kind == "f":
            bits = bytes.fromhex(text[2:])
            return float(np.frombuffer(bits, dtype.newbyteorder(">"))[0])
        return int(text)
    except (ValueError, IndexError):
        pass
    try:
        return float(text)
    except ValueError:
        return None


def _base64_text(text: str, dtype: np.dtype[Any]) -> float | int | None:
    """A double, little endian, in base 64: how xarray writes floats into zarr format 3."""
    try:
        bits = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return float(struct.unpack("<d", bits)[0]) if len(bits) == 8 else None


_READERS: tuple[Callable[[str, np.dtype[Any]], float | int | None], ...] = (
    _plain_text,
    _base64_text,
)


def _as_stored(value: Any, dtype: np.dtype[Any]) -> float | int:
    """A marker as the stored numbers have it: rounded where these are."""
    if isinstance(value, np.generic):
        value = value.item()
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return float(dtype.type(value))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
