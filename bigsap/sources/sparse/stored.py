"""Sparse costs on the disk: files of ``scipy.sparse.save_npz``, and zarr groups of CSR arrays.

Arrays that lie uncompressed in an archive are mapped, so that they may be larger than memory.
"""

from __future__ import annotations

import json
import os
import struct
import zipfile
from numbers import Real
from pathlib import Path
from typing import Any

import numpy as np

from bigsap.errors import BigsapError, StoreError
from bigsap.sources.sparse.sparse_costs import SparseCosts, from_csr, listed_pairs, sparse_shape
from bigsap.types import Array

#: Names of an archive's or group's arrays by format.
_LINES = ("indptr", "indices", "data")
#: The part of a local file header in a zip archive before its two variable fields.
_HEADER = struct.Struct("<26xHH")


def from_npz(path: str | os.PathLike[str], *, forbid: bool = False) -> SparseCosts:
    """Return the sparse costs in a file of ``scipy.sparse.save_npz``: csr, csc or coo.

    With ``compressed=False`` its arrays are mapped and read from the disk as they are needed. Raises
    StoreError for a damaged file or one of another kind, and as ``sparse``. forbid: see ``listed_pairs``.
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
    files. The arrays are read into memory. Raises StoreError if something is missing or damaged, and as
    ``sparse``. forbid: see ``listed_pairs``.
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
        arrays = [np.asarray(group[name][...]) for name in _LINES]
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
            array: Array = np.lib.format.read_array(f, allow_pickle=False)
            return array
    with Path(path).open("rb") as f:
        f.seek(info.header_offset)
        extra = _HEADER.unpack(f.read(_HEADER.size))
        f.seek(info.header_offset + _HEADER.size + sum(extra))
        version = np.lib.format.read_magic(f)
        first = version == (1, 0)
        read = np.lib.format.read_array_header_1_0 if first else np.lib.format.read_array_header_2_0
        shape, fortran, dtype = read(f)
        return np.memmap(path, dtype, "r", f.tell(), shape, "F" if fortran else "C")
