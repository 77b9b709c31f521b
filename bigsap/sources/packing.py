"""The meaning of stored numbers by the attributes of their array: the CF conventions.

``scale_factor`` and ``add_offset`` (values are stored * scale + offset), ``_FillValue`` and
``missing_value`` (markers of missing values), ``valid_min``, ``valid_max``, ``valid_range`` (values
outside are missing). xarray, netCDF and HDF5 write them beside the numbers; a reader of the numbers
alone would take packed numbers and markers for values.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from bigsap.errors import DtypeError, SourceError, StoreError

_Array: TypeAlias = npt.NDArray[Any]

_NUMBERS = ("scale_factor", "add_offset", "valid_min", "valid_max")


@dataclass(frozen=True)
class Packing:
    """The packing of stored numbers by their attributes.

    markers: stored values that mean *missing*, with the attribute that defines them; low, high:
    stored values outside of these are missing.
    """

    name: str
    scale: float = 1.0
    offset: float = 0.0
    markers: tuple[tuple[float | int, str], ...] = ()
    low: float | int | None = None
    high: float | int | None = None

    @property
    def scaled(self) -> bool:
        """Whether values differ from the stored numbers."""
        return (self.scale, self.offset) != (1.0, 0.0)

    def missing(self, stored: _Array) -> _Array:
        """Return where the numbers of a block are missing."""
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

    def unpack(self, stored: _Array, out: _Array) -> None:
        """Write the values of stored numbers as floats; values beyond the float range become inf."""
        out[...] = stored
        with np.errstate(over="ignore", invalid="ignore"):
            out *= self.scale
            out += self.offset

    def why(self, value: Any) -> str:
        """Return the reason, as text, why a stored number is missing."""
        for marker, attribute in self.markers:
            if value == marker or (value != value and marker != marker):
                return f"{self.name} has {attribute} = {marker}"
        return f"{value} lies outside the valid range of {self.name}"


def packing_of(
    attributes: Mapping[str, Any], dtype: np.dtype[Any], name: str, *, fill: Any = None
) -> Packing | None:
    """Return the packing of numbers stored as ``dtype``, or None if they are the values.

    fill: a further marker of missing values, None if there is none. Raises StoreError for an
    invalid attribute, DtypeError for ``_Unsigned``.
    """
    unsigned = attributes.get("_Unsigned")
    if str(unsigned).lower() == "true" and dtype.kind == "i":
        raise DtypeError(
            f"{name} has the attribute _Unsigned: its {dtype} stand for unsigned integers; decode"
            " them (xarray.open_dataset does) and pass the result"
        )
    numbers = {key: _one(attributes[key], dtype, key, name) for key in _NUMBERS if key in attributes}
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


# -- objects ---------------------------------------------------------------------------

#: Packages whose arrays have such attributes.
_LABELLING = ("h5netcdf", "h5py", "netCDF4", "xarray", "zarr")

#: netCDF's default fill values of unwritten data, by dtype (NC_FILL of netcdf.h).
_NETCDF_FILL = {
    "i2": -32767,
    "i4": -2147483647,
    "i8": -9223372036854775806,
    "u2": 65535,
    "u4": 4294967295,
    "u8": 18446744073709551614,
    "f4": float(np.float32(9.9692099683868690e36)),
    "f8": 9.9692099683868690e36,
}


def labelled(obj: Any) -> bool:
    """Return whether an object is an array with attributes: h5py, netCDF4, xarray, zarr."""
    if type(obj).__module__.partition(".")[0] not in _LABELLING:
        return False
    try:
        return all(hasattr(obj, name) for name in ("shape", "dtype", "__getitem__"))
    except Exception as error:
        raise SourceError(
            f"{type(obj).__module__}.{type(obj).__qualname__} does not tell its shape,"
            f" {type(error).__name__}: {error}; is its file closed? Keep it open until the solve is"
            " done, or pass a copy, dataset[:]"
        ) from error


def packing_told(obj: Any, name: str) -> Packing | None:
    """Return the packing of a ``labelled`` object's numbers, or None if they are the values.

    Raises StoreError and DtypeError as ``packing_of`` does.
    """
    try:
        dtype = np.dtype(obj.dtype)
    except TypeError:  # a pandas array within xarray
        return None
    if dtype.kind not in "biuf":
        return None
    if callable(getattr(obj, "ncattrs", None)):
        return packing_of(_left_by_netcdf(obj, dtype, name), dtype, name)
    given = getattr(obj, "attrs", None)
    attributes = dict(given) if isinstance(given, Mapping) else {}
    root, fill = type(obj).__module__.partition(".")[0], None
    if root == "xarray":
        if {"scale_factor", "add_offset"} & set(getattr(obj, "encoding", None) or {}):
            # The values are unpacked already, but these attributes refer to packed numbers.
            for key in ("valid_min", "valid_max", "valid_range"):
                attributes.pop(key, None)
    elif root == "zarr":
        if obj.metadata.zarr_format == 2 and "_ARRAY_DIMENSIONS" in attributes:
            # xarray writes the fill value instead of the attribute _FillValue.
            fill = obj.fill_value
    elif "_FillValue" not in attributes:
        fill = _NETCDF_FILL.get(dtype.str[1:])
        if getattr(obj, "fillvalue", None) != fill:
            fill = None
    return packing_of(attributes, dtype, name, fill=fill)


def _left_by_netcdf(variable: Any, dtype: np.dtype[Any], name: str) -> dict[str, Any]:
    """Return the attributes that a netCDF4 variable does not apply itself, by its settings."""
    masks, scales = getattr(variable, "mask", True), getattr(variable, "scale", True)
    attributes = {key: variable.getncattr(key) for key in variable.ncattrs()}
    if masks:
        kept = () if scales else ("scale_factor", "add_offset", "_Unsigned")
        return {key: attributes[key] for key in kept if key in attributes}
    if scales and {"scale_factor", "add_offset", "_Unsigned"} & set(attributes):
        raise StoreError(
            f"{name} applies its scale but not what its attributes say of missing values:"
            " call set_auto_mask(True) on it"
        )
    if dtype.str[1:] in _NETCDF_FILL:
        attributes.setdefault("_FillValue", _NETCDF_FILL[dtype.str[1:]])
    return attributes


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
    """Return the numbers of an attribute: one, a list, an array; text if they come from JSON."""
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
    """Parse ``NaN``, ``-Infinity``, ``0x7fc00000`` (the bits of a float), ``1.5``, ``-999``."""
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
    """Parse a little-endian double in base 64: xarray's format of floats in zarr format 3."""
    try:
        bits = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return float(struct.unpack("<d", bits)[0]) if len(bits) == 8 else None


_READERS: tuple[Callable[[str, np.dtype[Any]], float | int | None], ...] = (_plain_text, _base64_text)


def _as_stored(value: Any, dtype: np.dtype[Any]) -> float | int:
    """Return a marker in the stored numbers' precision: rounded as they are."""
    if isinstance(value, np.generic):
        value = value.item()
    if dtype.kind == "f":
        with np.errstate(over="ignore"):
            return float(dtype.type(value))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def labels_of(cost: Any) -> dict[str, tuple[int, npt.NDArray[Any]]]:
    """Return the labels that an xarray has for its rows and columns: name, axis, and one label each."""
    if type(cost).__module__.partition(".")[0] != "xarray" or len(getattr(cost, "dims", ())) != 2:
        return {}
    coordinates = getattr(cost, "coords", {})  # a Variable has none
    return {
        str(name): (axis, np.array(coordinates[name].values))
        for axis, name in enumerate(cost.dims)
        if name in coordinates
    }
