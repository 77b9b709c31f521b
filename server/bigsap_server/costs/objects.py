"""Files at addresses that the operator allows: arrays read, results written, by fsspec.

Credentials are those that the scheme's library finds in the environment of server and workers:
requests and answers have none.
"""

from __future__ import annotations

import hashlib
import json
import logging
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from bigsap_server.costs.url_policy import check_uri
from bigsap_server.problems import HttpProblem, is_disk_full

_log = logging.getLogger("bigsap_server.objects")
_BLOCK = 8 << 20


def options_of(uri: str) -> dict[str, Any]:
    """Return fsspec's options for an address: redirects could lead anywhere."""
    return {"allow_redirects": False} if uri.startswith("http") else {}


def open_npy(uri: str, settings: Mapping[str, Any], pointer: str) -> np.ndarray[Any, Any]:
    """Return the array of a ``.npy`` file at an allowed address, copied to a file without a name.

    Raises HttpProblem: ``forbidden-address``, ``invalid-store``, ``over-limit``, ``source-failed``.
    """
    check_uri(uri, settings["zarr_uris"], pointer)
    try:
        import fsspec

        files, path = fsspec.url_to_fs(uri, **options_of(uri))
        with files.open(path, "rb") as remote:
            return _copied(remote, settings, pointer)
    except HttpProblem:
        raise
    except Exception as error:
        if is_disk_full(error):
            raise
        detail = "the array cannot be read"
        if isinstance(error, ImportError):
            detail += f": {error}"
        raise HttpProblem("source-failed", detail, pointer=pointer) from error


def _copied(remote: Any, settings: Mapping[str, Any], pointer: str) -> np.ndarray[Any, Any]:
    form, limit = np.lib.format, settings["limits"]["array_bytes"]
    try:
        # A header of version 1 has 64 KiB at most; only records need more.
        if form.read_magic(remote) != (1, 0):
            raise ValueError
        shape, fortran, dtype = form.read_array_header_1_0(remote)
    except (ValueError, EOFError):
        raise HttpProblem("invalid-store", "this is not a readable .npy file", pointer=pointer) from None
    if dtype.kind not in "biuf" or len(shape) != 2 or min(shape) < 0:
        raise HttpProblem("invalid-store", "this is not a matrix of real numbers", pointer=pointer)
    left = dtype.itemsize * shape[0] * shape[1]
    if left > limit:
        detail = f"the array has {left} bytes; at most {limit} are allowed"
        raise HttpProblem("over-limit", detail, pointer=pointer)
    if not left:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=_scratch(settings)) as file:
        while left:
            block = remote.read(min(left, _BLOCK))
            if not block:
                raise HttpProblem("invalid-store", "the .npy file is cut off", pointer=pointer)
            file.write(block)
            left -= len(block)
        file.flush()
        return np.memmap(file, dtype, "r", 0, shape, "F" if fortran else "C")


def put_result(
    result: bigsap.Result, summary: Mapping[str, Any], uri: str, name: str, settings: Mapping[str, Any]
) -> dict[str, Any]:
    """Write a result below an allowed address; return ``uri``, ``bytes`` and ``sha256``, or a ``problem``.

    ``NAME.npz`` is written first, as ``Result.save`` does, then ``NAME.json``: the summary and the
    digest. A store that fails does not fail the job, which keeps its result here.
    """
    place = f"{uri.rstrip('/')}/{name}"
    try:
        check_uri(place, settings["result_uris"], "/results")
        import fsspec

        files, path = fsspec.url_to_fs(place, **options_of(place))
        with tempfile.TemporaryDirectory(dir=_scratch(settings)) as folder:
            file = Path(folder) / "result.npz"
            result.save(file)
            with file.open("rb") as saved:
                digest = hashlib.file_digest(saved, "sha256").hexdigest()
            stored = {"uri": f"{place}.npz", "bytes": file.stat().st_size, "sha256": digest}
            files.put_file(str(file), f"{path}.npz")
        if files.size(f"{path}.npz") != stored["bytes"]:
            raise OSError("the store has another size than was written")
        files.pipe_file(f"{path}.json", json.dumps({**summary, "stored": stored}).encode())
    except Exception as error:  # noqa: BLE001 - any error of any store
        _log.warning("%s cannot be written: %s: %s", place, type(error).__name__, error)
        failed = HttpProblem("result-not-stored", f"{name}: {type(error).__name__}", pointer="/results")
        problem = error if isinstance(error, HttpProblem) else failed
        return {"uri": f"{place}.npz", "problem": problem.document()}
    return stored


def _scratch(settings: Mapping[str, Any]) -> Path:
    scratch = Path(settings["data"]) / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    return scratch
