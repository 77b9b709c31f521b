"""Resolution of references in a cost spec: uploaded arrays, files of stores, addresses.

Nothing here needs the web framework: workers resolve as the server does.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from bigsap_server.costs import specs
from bigsap_server.costs.chunk_limits import capped
from bigsap_server.costs.remote_stores import remote_zarr
from bigsap_server.costs.stores import (
    check_metadata,
    check_zarr_files,
    check_zarr_folder,
    file_bytes,
    jailed,
    v2_chunk_bytes,
)
from bigsap_server.costs.url_policy import check_uri
from bigsap_server.problems import HttpProblem, pointer_to, without_paths


@dataclass(frozen=True)
class Facts:
    """Facts about an array that need no reading. finite: None when unknown."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    finite: bool | None
    in_place: bool

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True)
class Resolver:
    """Resolver of arrays, stores and addresses of a spec.

    data: the service's folder. settings: as ``Settings.model_dump(mode="json")``. owner:
    only arrays of this key may be used; None: all.
    """

    data: Path
    settings: Mapping[str, Any]
    owner: str | None = None
    _known: dict[str, dict[str, Any]] = field(default_factory=dict, repr=False)

    def facts(self, ref: Any, pointer: str) -> Facts:
        """Return shape and dtype of an array reference. Raises HttpProblem."""
        if isinstance(ref, specs.Uploaded):
            meta = self._meta(ref.array, pointer)
            return Facts(tuple(meta["shape"]), np.dtype(meta["dtype"]), meta["finite"], False)
        array = self.array(ref, pointer)
        return Facts(array.shape, array.dtype, None, isinstance(ref, list))

    def array(self, ref: Any, pointer: str) -> np.ndarray[Any, Any]:
        """Return the array of a reference: mapped read-only, or made from inline numbers."""
        if isinstance(ref, list):
            return self._inline(ref, pointer)
        if isinstance(ref, specs.Uploaded):
            self._meta(ref.array, pointer)
            return _load(self.array_folder(ref.array) / "data.npy", pointer)
        file = jailed(self.settings["stores"], ref.store, ref.path, pointer)
        if not file.is_file():
            raise HttpProblem("invalid-store", "there is no .npy file at this path", pointer=pointer)
        return _load(file, pointer)

    def array_folder(self, array_id: str) -> Path:
        """Return the folder of an uploaded array."""
        return self.data / "arrays" / array_id

    def _inline(self, values: list[Any], pointer: str) -> np.ndarray[Any, Any]:
        limit = self.settings["limits"]["inline_numbers"]
        if sum(len(row) if isinstance(row, list) else 1 for row in values) > limit:
            raise HttpProblem(
                "over-limit",
                f"inline arrays may have {limit} numbers; upload larger ones (POST /v1/arrays)",
                pointer=pointer,
            )
        text = any(
            isinstance(value, str) for row in values for value in (row if isinstance(row, list) else (row,))
        )
        # numpy parses the text "Infinity" as infinity.
        return np.asarray(values, dtype=np.float64 if text else None)

    def _meta(self, array_id: str, pointer: str) -> dict[str, Any]:
        if array_id not in self._known:
            file = self.array_folder(array_id) / "meta.json"
            try:
                meta = json.loads(file.read_text(encoding="utf-8"))
            except (OSError, ValueError):
                meta = None
            if meta is None or (self.owner is not None and meta["owner"] != self.owner):
                raise HttpProblem("invalid-spec", f"there is no array {array_id}", pointer=pointer)
            if meta["sha256"] is None:
                raise HttpProblem("array-incomplete", f"the array {array_id} is not sealed", pointer=pointer)
            self._known[array_id] = meta
        return self._known[array_id]

    def zarr(self, spec: specs.Zarr, pointer: str) -> bigsap.CostSource:
        """Return a validated local folder or remote array that decodes at most its declared size."""
        limit = self.settings["limits"]["zarr_chunk_bytes"]
        if spec.uri is not None:
            check_uri(spec.uri, self.settings["zarr_uris"], pointer_to_child(pointer, "uri"))
            try:
                with capped(limit):
                    array, metadata, most = remote_zarr(spec.uri)
            except Exception as error:
                text = ""
                if isinstance(error, ImportError):
                    text = without_paths(f"{type(error).__name__}: {error}", self.settings)
                raise HttpProblem(
                    "source-failed", f"the array cannot be opened {text}".strip(), pointer=pointer
                ) from error
            check_metadata(metadata, limit, pointer)
            most.most = file_bytes(metadata)
            return bigsap.from_zarr(array)
        folder = self.zarr_folder(spec, pointer)
        check_zarr_folder(folder, limit, pointer)
        check_zarr_files(folder, pointer)
        with capped(v2_chunk_bytes(folder, pointer)):
            return bigsap.from_zarr(folder)

    def zarr_folder(self, spec: specs.Zarr, pointer: str) -> Path:
        """Return the local folder of a zarr spec, inside its store."""
        assert spec.store is not None
        assert spec.path is not None
        folder = jailed(self.settings["stores"], spec.store, spec.path, pointer)
        if not folder.is_dir():
            raise HttpProblem("invalid-store", "there is no zarr folder at this path", pointer=pointer)
        return folder


def pointer_to_child(pointer: str, *parts: object) -> str:
    """Return the pointer to a field below ``pointer``."""
    return pointer + pointer_to(*parts)


def _load(file: Path, pointer: str) -> np.ndarray[Any, Any]:
    try:
        array = np.load(file, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise HttpProblem("invalid-store", "this is no readable .npy file", pointer=pointer) from error
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biuf":
        raise HttpProblem("invalid-store", "this is no array of real numbers", pointer=pointer)
    return array
