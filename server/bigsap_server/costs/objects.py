"""Files at addresses that the operator allows: arrays read, results written, by fsspec.

Credentials are those that the scheme's library finds in the environment of server and workers:
requests and answers have none.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from bigsap_server.costs.limits import check_shape
from bigsap_server.costs.url_policy import check_uri
from bigsap_server.files import scratch
from bigsap_server.problems import HttpProblem, is_disk_full

_log = logging.getLogger("bigsap_server.objects")
_BLOCK = 8 << 20
#: Bytes in which the header of a ``.npy`` file ends; only that of records is longer.
_MOST_HEADER = 1 << 16
#: Most seconds that a store may take for a result, and those between two looks at whether it is wanted.
STORE_SECONDS, _LOOK_S = 900.0, 0.1


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
    limit = settings["limits"]["array_bytes"]
    try:
        shape, fortran, dtype, block = _header(remote)
    except (ValueError, EOFError):
        raise HttpProblem("invalid-store", "this is not a readable .npy file", pointer=pointer) from None
    if dtype.kind not in "biuf" or len(shape) != 2 or min(shape) < 0:
        raise HttpProblem("invalid-store", "this is not a matrix of real numbers", pointer=pointer)
    check_shape(shape, settings)
    left = dtype.itemsize * shape[0] * shape[1]
    if left > limit:
        detail = f"the array has {left} bytes; at most {limit} are allowed"
        raise HttpProblem("over-limit", detail, pointer=pointer)
    if not left:
        return np.empty(shape, dtype)
    with tempfile.TemporaryFile(dir=scratch(settings["data"])) as file:
        while left:
            left -= file.write(block[:left])
            if left and not (block := remote.read(min(left, _BLOCK))):
                raise HttpProblem("invalid-store", "the .npy file is cut off", pointer=pointer)
        file.flush()
        return np.memmap(file, dtype, "r", 0, shape, "F" if fortran else "C")


def _header(remote: Any) -> tuple[tuple[int, ...], bool, np.dtype[Any], bytes]:
    """Return shape, whether in Fortran's order, dtype, and the first data. Raises ValueError or EOFError."""
    # Of a few bytes alone: numpy reads the whole header before it looks at the size, which may be 4 GiB.
    begun = b""
    while len(begun) < _MOST_HEADER and (block := remote.read(_MOST_HEADER - len(begun))):
        begun += block
    form, file = np.lib.format, io.BytesIO(begun)
    version = form.read_magic(file)
    if version == (1, 0):
        return *form.read_array_header_1_0(file), file.read()
    if version not in ((2, 0), (3, 0)):
        raise ValueError
    # Version 3 differs in the names of fields alone, which no matrix of numbers has.
    return *form.read_array_header_2_0(file), file.read()


def put_result(
    result: bigsap.Result,
    summary: Mapping[str, Any],
    uri: str,
    name: str,
    folder: Path,
    settings: Mapping[str, Any],
    is_over: Callable[[], bool] = lambda: False,
    seconds: float = STORE_SECONDS,
) -> dict[str, Any]:
    """Write a result below an allowed address; return ``uri``, ``bytes`` and ``sha256``, or a ``problem``.

    ``NAME.npz`` is written first, as ``Result.save`` does, then ``NAME.json``: the summary and the
    digest. A store that fails does not fail the job, which keeps its result here. Nor does one that
    takes longer than ``seconds``: a thread writes, and is left alone then.

    folder: to save the file in before, which is removed; if the process dies, it goes with the job's other
    temporary folders. is_over: whether another attempt may be writing, or the result is no longer wanted;
    asked before each file and while waiting.
    """
    place = f"{uri.rstrip('/')}/{name}"
    try:
        check_uri(place, settings["result_uris"], "/results")
        folder.mkdir(parents=True)
        file = folder / "result.npz"
        result.save(file)
        with file.open("rb") as saved:
            digest = hashlib.file_digest(saved, "sha256").hexdigest()
        stored = {"uri": f"{place}.npz", "bytes": file.stat().st_size, "sha256": digest}
        document = json.dumps({**summary, "stored": stored}).encode()
        _apart(partial(_write, place, file, document), is_over, seconds)
    except Exception as error:  # noqa: BLE001 - any error of any store
        _log.warning("%s cannot be written: %s: %s", place, type(error).__name__, error)
        failed = HttpProblem("result-not-stored", f"{name}: {type(error).__name__}", pointer="/results")
        problem = error if isinstance(error, HttpProblem) else failed
        return {"uri": f"{place}.npz", "problem": problem.document()}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return stored


def _write(place: str, file: Path, document: bytes, check: Callable[[], None]) -> None:
    """Write both files to a store; ``check`` raises where no more may be written."""
    import fsspec

    files, path = fsspec.url_to_fs(place, **options_of(place))
    size = file.stat().st_size
    check()
    files.put_file(str(file), f"{path}.npz")
    if files.size(f"{path}.npz") != size:
        raise OSError("the store has another size than was written")
    check()
    files.pipe_file(f"{path}.json", document)


def _apart(write: Callable[[Callable[[], None]], None], is_over: Callable[[], bool], seconds: float) -> None:
    """Write in a thread, which is left alone if it takes longer than ``seconds``: TimeoutError.

    ``write`` is given a check that raises InterruptedError once the writing was left or is over.
    """
    left, done = threading.Event(), Future[None]()

    def check() -> None:
        if left.is_set() or is_over():
            raise InterruptedError("another attempt may be writing, or the job was cancelled")

    def run() -> None:
        try:
            write(check)
            done.set_result(None)
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            done.set_exception(error)

    threading.Thread(target=run, daemon=True, name="result-store").start()
    end = time.monotonic() + seconds
    try:
        while not wait([done], _LOOK_S).done:
            check()
            if time.monotonic() > end:
                raise TimeoutError(f"the store took more than {seconds:g} s")
    finally:
        left.set()
    done.result()
