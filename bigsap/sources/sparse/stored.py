"""Sparse costs on the disk: files of ``scipy.sparse.save_npz``, and zarr groups of CSR arrays.

Arrays that lie uncompressed in an archive are mapped, so that they may be larger than memory. So
are the others once they are unpacked, into a file without a name, if they are large.
"""

from __future__ import annotations

import json
import math
import os
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from numbers import Real
from pathlib import Path
from typing import Any, cast

import numpy as np

from bigsap import policy
from bigsap.errors import BigsapError, StoreError
from bigsap.memory import usable_memory
from bigsap.sources.sparse.sparse_costs import SparseCosts, from_csr, listed_pairs, sparse_shape
from bigsap.types import Array

#: Names of an archive's or group's arrays by format.
_LINES = ("indptr", "indices", "data")
#: The part of a local file header in a zip archive before its two variable fields.
_HEADER = struct.Struct("<26xHH")
#: Bytes that are unpacked at a time.
_AT_ONCE = 1 << 24


def from_npz(path: str | os.PathLike[str], *, forbid: bool = False) -> SparseCosts:
    """Return the sparse costs in a file of ``scipy.sparse.save_npz``: csr, csc or coo.

    With ``compressed=False`` its arrays are mapped and read from the disk as they are needed. Others are
    read into memory, or, if they are large, unpacked into a temporary file. Raises StoreError for a
    damaged file or one of another kind, and as ``sparse``. forbid: see ``listed_pairs``.
    """
    what = f"the file {os.fspath(path)!r}"
    try:
        with zipfile.ZipFile(path) as archive:
            names = {name.removesuffix(".npy") for name in archive.namelist()}
            if not {"format", "shape", "data"} <= names:
                raise StoreError(f"{what} is not of scipy.sparse.save_npz: it has {sorted(names)}")
            form = _member(archive, path, "format").item()
            form = form.decode("ascii") if isinstance(form, bytes) else str(form)
            shape = _stored_shape(_member(archive, path, "shape"), what)
            if form in ("csr", "csc"):
                arrays = [_member(archive, path, name) for name in _LINES]
            elif form == "coo":
                arrays = [_member(archive, path, name) for name in ("row", "col", "data")]
            else:
                raise StoreError(f"{what} holds format {form!r}; save it as csr, csc or coo")
    except FileNotFoundError:
        raise StoreError(f"{what} does not exist") from None
    except BigsapError:
        raise
    except Exception as error:
        # zipfile, zlib and numpy raise a dozen kinds of errors for damaged archives.
        raise StoreError(f"{what} is not a readable .npz file: {error}") from error
    return _of_format(form, arrays, shape, forbid)


def from_zarr_group(group: Any, what: str, *, forbid: bool = False) -> SparseCosts:
    """Return the sparse costs in a zarr group: arrays indptr, indices and data.

    Its attribute ``shape`` has the size, and ``encoding-type`` may say ``csc_matrix``, as in anndata's
    files. The arrays are read into memory, or, if they are large, into a temporary file. Raises
    StoreError if something is missing or damaged, and as ``sparse``. forbid: see ``listed_pairs``.
    """
    try:
        missing = [name for name in _LINES if not hasattr(group.get(name), "dtype")]
        shape = group.attrs.get("shape")
        if missing or shape is None:
            raise StoreError(
                f"{what} is a group without {', '.join(missing) or 'an attribute shape of two numbers'};"
                " sparse costs need the arrays indptr, indices and data, and the attribute shape"
            )
        size = _stored_shape(shape, what)
        form = "csc" if str(group.attrs.get("encoding-type", "")).startswith("csc") else "csr"
        held = [group[name] for name in _LINES]
        large = _are_large(sum(array.nbytes for array in held))
        arrays = [_unpacked(array) if large else np.asarray(array[...]) for array in held]
    except BigsapError:
        raise
    except Exception as error:
        # zarr and its codecs raise many kinds of errors for damaged stores.
        raise StoreError(f"{what} is not a readable zarr group: {error}") from error
    return _of_format(form, arrays, size, forbid)


def is_zarr_group(folder: Path) -> bool:
    """Return whether a folder is a zarr group, not an array."""
    if (folder / ".zgroup").is_file():
        return True
    file = folder / "zarr.json"
    if not file.is_file():
        return False
    try:
        return bool(json.loads(file.read_text(encoding="utf-8")).get("node_type") == "group")
    except (OSError, ValueError, AttributeError):
        return False


def open_zarr_group(folder: Path, *, forbid: bool = False) -> SparseCosts:
    """Return the sparse costs in a zarr group on the disk, see ``from_zarr_group``."""
    import zarr

    what = f"the folder {os.fspath(folder)!r}"
    try:
        group = zarr.open_group(folder, mode="r")
    except Exception as error:
        # As above: damaged metadata.
        raise StoreError(f"{what} is not a readable zarr group: {error}") from error
    return from_zarr_group(group, what, forbid=forbid)


def _stored_shape(given: Any, what: str) -> tuple[int, int]:
    """Return a stored shape, or raise StoreError if it is not two whole numbers. Raises as ``sparse``."""
    sizes = given.tolist() if isinstance(given, np.ndarray) else given
    listed = isinstance(sizes, (list, tuple)) and len(sizes) == 2
    if not listed or not all(isinstance(n, Real) and n % 1 == 0 for n in sizes):
        raise StoreError(
            f"{what} has the shape {sizes!r}, not two whole numbers; a cost matrix has 2 dimensions"
        )
    return sparse_shape(sizes, what)


def _of_format(form: str, arrays: list[Array], shape: tuple[int, int], forbid: bool) -> SparseCosts:
    if form == "coo":
        return listed_pairs((arrays[0], arrays[1], arrays[2]), shape=shape, forbid=forbid)
    start, ids, costs = arrays
    if form == "csr":
        return from_csr(start, ids, costs, shape, forbid=forbid)
    return from_csr(start, ids, costs, shape[::-1], turned=True, forbid=forbid).transposed()


def _member(archive: zipfile.ZipFile, path: str | os.PathLike[str], name: str) -> Array:
    """Return an array of an archive, mapped if it is neither compressed nor small."""
    info = archive.getinfo(f"{name}.npy")
    if info.compress_type != zipfile.ZIP_STORED or info.file_size < 1 << 16:
        with archive.open(info) as f:
            if _are_large(sum(one.file_size for one in archive.infolist())):
                return _streamed(f)
            array: Array = np.lib.format.read_array(f, allow_pickle=False)
            return array
    with Path(path).open("rb") as f:
        f.seek(info.header_offset)
        extra = _HEADER.unpack(f.read(_HEADER.size))
        begin = info.header_offset + _HEADER.size + sum(extra)
        f.seek(begin)
        shape, fortran, dtype = _header(f)
        if f.tell() - begin + math.prod(shape) * dtype.itemsize > info.file_size:
            raise ValueError(f"{name}.npy is cut off")
        return np.memmap(path, dtype, "r", f.tell(), shape, "F" if fortran else "C")


def _header(f: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Read the head of a ``.npy`` file: shape, whether in Fortran's order, and dtype."""
    first = np.lib.format.read_magic(f) == (1, 0)
    read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(f)
    if dtype.hasobject:  # bytes of a file would be taken for addresses
        raise ValueError("an array of Python objects is never loaded")
    return shape, fortran, dtype


def _are_large(n_bytes: int) -> bool:
    return n_bytes > policy.UNPACKED_IN_MEMORY * usable_memory()


def _streamed(f: Any) -> Array:
    """Return the array of a ``.npy`` file that can only be read from its beginning to its end."""
    shape, _, dtype = _header(f)  # vectors have one order

    def part(start: int, stop: int) -> Array:
        return np.frombuffer(f.read((stop - start) * dtype.itemsize), dtype, stop - start)

    return _into_file(shape, dtype, 1, part)


def _unpacked(array: Any) -> Array:
    layout = getattr(array, "shards", None) or array.chunks or (1,)
    return _into_file(array.shape, array.dtype, layout[0], lambda start, stop: np.asarray(array[start:stop]))


def _into_file(
    shape: tuple[int, ...], dtype: np.dtype[Any], unit: int, part: Callable[[int, int], Array]
) -> Array:
    """Return a vector that lies in a file without a name, which goes with it; written part by part.

    unit: entries that are decoded together; no part has some of them only. TMPDIR says where the file is.
    Vectors without entries, and what is no vector, stay in memory.
    """
    if len(shape) != 1 or not shape[0]:
        return part(0, math.prod(shape)).reshape(shape)
    unit = max(1, unit)
    step = unit * max(1, _AT_ONCE // (unit * dtype.itemsize))
    with _with_room():
        file = tempfile.TemporaryFile(prefix="bigsap-", buffering=0)  # noqa: SIM115 - closed below
    with file:
        for start in range(0, shape[0], step):
            found: Any = np.ascontiguousarray(part(start, min(start + step, shape[0])), dtype)
            left = memoryview(found.view(np.uint8))
            # Not through the map: on a full disk its pages would end the process.
            with _with_room():
                while left:
                    left = left[file.write(left) :]
        with _with_room():
            mapped: Any = np.memmap(file, dtype, "r", shape=shape)
    mapped.filename = None  # on Windows it has one, by which no other process can open it
    return cast(Array, mapped)


@contextmanager
def _with_room() -> Iterator[None]:
    """Raise StoreError where a temporary file cannot be made or written."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"costs of this size are unpacked into a temporary file: {error}; set TMPDIR to a folder on a"
            " disk with room for them"
        ) from error
