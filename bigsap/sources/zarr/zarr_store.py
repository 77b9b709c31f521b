"""Costs in zarr stores (formats 2 and 3): ``from_zarr`` reads, ``rechunk`` writes."""

from __future__ import annotations

import os
import secrets
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from bigsap.errors import BigsapError, OptionError, StoreError, level_of_caller, whole
from bigsap.sources.arrays.matrix import ArraySource, from_npy
from bigsap.sources.base import CostSource, Prefetching
from bigsap.sources.packed import unpacked
from bigsap.sources.zarr.chunk_layout import Layout, describe, import_zarr, open_array
from bigsap.sources.zarr.decoded import DecodedZarrSource
from bigsap.sources.zarr.raw import RawZarrSource
from bigsap.system import replace as replace_file

#: ``rechunk`` makes chunks of about this size: zarr advises 1 MB or more.
CHUNK_BYTES = 4 << 20


def from_zarr(path_or_array: Any) -> CostSource:
    """Return costs in a zarr array, format 2 or 3.

    path_or_array: path of a local store (or a URL that ``zarr.open`` accepts), or a ``zarr.Array``,
    which must be 2-D and of real numbers.

    Uncompressed local chunks and shards are copied from maps (up to 64 at a time, others are read),
    and an array of a single such chunk is mapped and scanned in place, as ``from_npy`` does; all
    other arrays are decoded by zarr, a row of chunks at a time, one ahead of the reader. Chunks
    that split columns work, slowly, with a ``UserWarning`` that names ``bigsap rechunk``.

    Raises ``StoreError`` if there is no array, its metadata is damaged or a codec is unknown;
    later, if a chunk is damaged or missing. Missing chunks of an array whose ``fill_value`` is inf
    are forbidden pairs. ``ShapeError`` and ``DtypeError`` as for arrays. Opening is O(1).

    CF attributes, as xarray writes them: ``scale_factor`` and ``add_offset`` are applied (costs are
    then float64). Values are missing by ``_FillValue``, ``missing_value`` or a valid range (or, in
    format 2, the fill value of an array with dimension names); they are InvalidCostError when read;
    ``as_source(path, missing="forbid")`` forbids such pairs.
    """
    return open_zarr(path_or_array, forbid=False)


def open_zarr(path_or_array: Any, *, forbid: bool) -> CostSource:
    """Open a zarr array as ``from_zarr`` does.

    forbid: missing values become NaN.
    """
    layout = describe(*open_array(path_or_array))
    if layout.columns_split > 1 and 0 not in layout.shape:
        warnings.warn(
            f"{layout.name} is cut into {layout.columns_split} chunks of {layout.chunk[1]} "
            "columns, and every row needs all of them; `bigsap rechunk SOURCE TARGET` writes a "
            "copy in row chunks that is many times faster to solve",
            UserWarning,
            stacklevel=level_of_caller(),
        )
    return _source(layout, forbid=forbid)


def _source(layout: Layout, *, forbid: bool = False) -> CostSource:
    packing = layout.packing
    if forbid and packing is not None:
        layout = replace(layout, absent_allowed=bool(packing.missing(layout.filled).any()))
    return unpacked(_stored(layout), packing, forbid=forbid)


def _stored(layout: Layout) -> CostSource:
    """Return the fastest source for the stored numbers."""
    if 0 in layout.shape:
        return ArraySource(np.empty(layout.shape, layout.stored), layout.name)
    if not layout.raw or layout.root is None:
        return DecodedZarrSource(layout)
    return _mapped(layout, layout.root) or RawZarrSource(layout)


def _mapped(layout: Layout, root: Path) -> ArraySource | None:
    """Return the array in place, if it is one single raw chunk; None otherwise."""
    (n_rows, n_columns), (height, width) = layout.shape, layout.chunk
    if layout.shards is not None or height < n_rows or width < n_columns:
        return None
    file = root / layout.key((0, 0))
    try:
        size = file.stat().st_size
    except OSError:
        return None  # missing: RawZarrSource handles that
    expected = height * width * layout.stored.itemsize
    if size != expected:
        raise layout.damaged((0, 0), f"the file has {size} bytes instead of {expected}")
    mapped = np.memmap(file, layout.stored, "r", 0, layout.chunk)
    return ArraySource(mapped[:n_rows, :n_columns], layout.name)


def rechunk(
    source_path: str | os.PathLike[str],
    target_path: str | os.PathLike[str],
    rows: int | None = None,
    compress: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Copy costs into a zarr (v3) array of whole-row chunks, the layout solved fastest.

    source_path: ``.npy`` file or zarr array. target_path: local path, not yet there.
    rows: rows a chunk; by default as many as make about 4 MiB. compress: with zarr's
    default codec (smaller, slower to read) instead of none. progress: called with
    (rows written, rows in all).

    Values are copied unchanged, in the dtype that kernels scan (``base.scannable``).
    The target appears under its name only when it is complete. Returns its path.
    Raises ``OptionError`` for a target that exists or ``rows`` < 1, ``StoreError``
    when reading or writing fails. Time O(n m); memory a few chunks.
    """
    source_file = os.fspath(source_path)
    target = Path(target_path)
    if rows is not None and (whole(rows) is None or rows < 1):
        raise OptionError(f"rows must be a positive integer, got {rows!r}")
    if "://" in os.fspath(target_path):
        raise OptionError(f"the target must be a local path, got {os.fspath(target_path)!r}")
    if os.path.lexists(target):
        raise OptionError(f"{os.fspath(target)!r} exists already")
    zarr = import_zarr()
    if source_file.endswith(".npy"):
        source: CostSource = from_npy(source_file)
    else:
        source = _source(describe(*open_array(source_file)))
    partial = target.with_name(f".{target.name}.{secrets.token_hex(6)}.partial")
    try:
        _copy(zarr, source, partial, rows, compress, progress)
        if os.path.lexists(target):
            raise OptionError(f"{os.fspath(target)!r} has appeared meanwhile")
        replace_file(partial, target)
    except BigsapError:
        raise
    except Exception as error:
        raise StoreError(
            f"{os.fspath(target)!r} cannot be written: {type(error).__name__}: {error}"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return target


def _copy(
    zarr: Any,
    source: CostSource,
    path: Path,
    rows: int | None,
    compress: bool,
    progress: Callable[[int, int], None] | None,
) -> None:
    n_rows, n_columns = source.shape
    row_bytes = max(1, n_columns * source.dtype.itemsize)
    height = min(rows or max(1, CHUNK_BYTES // row_bytes), max(1, n_rows))
    array = zarr.create_array(
        store=path,
        shape=source.shape,
        dtype=source.dtype,
        chunks=(height, max(1, n_columns)),
        compressors="auto" if compress else None,
        # With NaN a lost chunk cannot be mistaken for costs.
        fill_value=np.nan if source.dtype.kind == "f" else 0,
        config={"write_empty_chunks": True},
    )
    block = np.empty((height, n_columns), source.dtype)
    for start in range(0, n_rows, height):
        stop = min(start + height, n_rows)
        source.read(np.arange(start, stop), slice(0, n_columns), block[: stop - start])
        if isinstance(source, Prefetching):
            source.prefetch(stop)
        array[start:stop, :] = block[: stop - start]
        if progress is not None:
            progress(stop, n_rows)
