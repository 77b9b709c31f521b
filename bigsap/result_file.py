"""Files of results: ``.npz`` with the facts as JSON, written whole or not at all, no pickles."""

from __future__ import annotations

import errno
import json
import os
import secrets
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from bigsap.errors import StoreError

FORMAT = "bigsap-result"
VERSION = 1

T = TypeVar("T")


def write(path: str | os.PathLike[str], meta: Mapping[str, Any], arrays: Mapping[str, Any]) -> None:
    """Write exactly ``path``: beside the target, then renamed."""
    target = Path(path)
    meta = {"format": FORMAT, "version": VERSION, **meta}
    text = np.array(json.dumps(meta, default=_plain).encode("ascii"))
    temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
    if not target.parent.is_dir():
        where = os.fspath(target.parent)
        raise FileNotFoundError(errno.ENOENT, "the folder does not exist", where)
    try:
        with open(temporary, "xb") as file:
            np.savez(file, meta=text, **arrays)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, target)
    except OSError as error:
        if error.filename == os.fspath(temporary):
            error.filename, error.filename2 = os.fspath(target), None
        raise
    finally:
        temporary.unlink(missing_ok=True)


def read(path: str | os.PathLike[str], build: Callable[[dict[str, Any], Any], T]) -> T:
    """What ``build`` makes of the facts and of the file's arrays, which it reads by name.

    Raises FileNotFoundError, or StoreError naming the file where it is damaged or something else,
    or where ``build`` finds that what it holds does not fit.
    """
    try:
        with open(path, "rb") as file:
            loaded = np.load(file, allow_pickle=False)
            if isinstance(loaded, np.ndarray):
                raise ValueError("it holds a single array")
            with loaded as parts:
                meta = json.loads(bytes(parts["meta"][()]))
                if meta["format"] != FORMAT or meta["version"] != VERSION:
                    raise ValueError(f"format {meta['format']!r} version {meta['version']!r}")
                return build(meta, parts)
    except (zipfile.BadZipFile, EOFError, KeyError, TypeError, ValueError) as error:
        raise StoreError(f"{os.fspath(path)}: not a BigSAP result file: {error}") from error
    except (NotImplementedError, RuntimeError, OverflowError, zlib.error) as error:
        raise StoreError(f"{os.fspath(path)}: damaged BigSAP result: {error}") from error


def plain_number(value: Any) -> Any:
    """A Python number; numpy scalars are no JSON."""
    return value.item() if isinstance(value, np.generic) else value


def _plain(value: Any) -> Any:
    """What json cannot write by itself, among the things that stats may hold."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)
