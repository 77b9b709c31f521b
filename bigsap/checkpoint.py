"""Checkpoints: files from which a solve can continue after its process has died.

A file is, in order: ``MAGIC`` (8 bytes), the format's version and the header's length (two
little-endian uint32), the header (JSON: ``facts`` about the problem and the options, plain
``values`` of the method's snapshot, and name, dtype and shape of each array), the arrays' bytes,
and a blake2b digest (32 bytes) of all before it. So a lost or changed byte is detected, and nothing
is ever unpickled.

The content of a snapshot is defined by the method that made it; here it is a mapping of names to
arrays or JSON values. Names that begin with ``BEST`` are of the best assignment and bound so far, not of
the method's state.
"""

from __future__ import annotations

import glob
import hashlib
import json
import os
import secrets
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from bigsap.errors import CheckpointError
from bigsap.system import replace

MAGIC = b"BIGSAPCK"
BEST = "best_"
VERSION = 4
_DIGEST = 32
_HEAD = len(MAGIC) + 8
_CHUNK = 1 << 20

#: Facts that must agree between the interrupted solve and the one that continues it.
_NAMES = {
    "ranking": "a ranking of k =",
    "objective": "objective =",
    "unassigned_cost": "an unassigned_cost with the fingerprint",
    "capacity": "a capacity with the fingerprint",
    "demand": "a demand with the fingerprint",
    "shape": "a cost matrix of shape",
    "dtype": "costs of dtype",
    "maximize": "maximize =",
    "method": "method =",
    "epsilon": "epsilon =",
    "seed": "seed =",
    "start": "start =",
    "transposed": "transposed rows and columns =",
    "price": "arithmetic in",
    "grid": "a price grid of",
    "fingerprint": "costs with the fingerprint",
}


@dataclass(frozen=True)
class Saved:
    """A checkpoint as read. snapshot: empty if the search had not begun. best: by name, without ``BEST``."""

    path: Path
    facts: dict[str, Any]
    snapshot: dict[str, Any]
    best: dict[str, Any]

    def refuse_unless(self, facts: Mapping[str, Any]) -> None:
        """Raise CheckpointError, with the reason, unless the checkpoint belongs to the solve of ``facts``.

        Fingerprints are compared only if both sides have one.
        """
        for name, words in _NAMES.items():
            saved, here = self.facts.get(name), facts.get(name)
            if isinstance(here, tuple):
                here = list(here)
            if saved != here and not (name == "fingerprint" and None in (saved, here)):
                raise CheckpointError(
                    f"{self.path}: the checkpoint is of {words} {saved}, this solve of {here}"
                )
        if self.facts.get("far_lines") and not facts.get("far_lines"):
            raise CheckpointError(
                f"{self.path}: the search was of a copy of the costs without far lines: continue it on the"
                " host, without memory_limit and cluster"
            )


def write(path: str | os.PathLike[str], facts: Mapping[str, Any], snapshot: Mapping[str, Any]) -> None:
    """Replace the checkpoint at ``path``, atomically and durably.

    The file is written beside the target, flushed to the disk and renamed, so the path always holds
    the old checkpoint or the new one, complete, also if other processes write to it. Raises OSError
    with the path if the disk is full, the folder is missing, ...; the old checkpoint is then unchanged.
    """
    # Follow a link: the rename would replace the link itself.
    target = Path(os.path.realpath(path))
    # ``ascontiguousarray`` turns a 0-d array into a vector.
    given = {k: v for k, v in snapshot.items() if isinstance(v, np.ndarray)}
    arrays = {k: np.ascontiguousarray(v).reshape(v.shape) for k, v in given.items()}
    header = {
        "facts": dict(facts),
        "values": {k: v for k, v in snapshot.items() if k not in arrays},
        "arrays": [[k, a.dtype.str, list(a.shape)] for k, a in arrays.items()],
    }
    text = json.dumps(header, default=_plain).encode("ascii")
    digest = hashlib.blake2b(digest_size=_DIGEST)
    own = secrets.token_hex(4)
    temporary = target.with_name(f".{target.name}.{own}.tmp")
    try:
        # What a killed process left; or another process writes, whose checkpoint this one replaces.
        for left in target.parent.glob(f".{glob.escape(target.name)}.{'?' * len(own)}.tmp"):
            _discard(left)
        with open(temporary, "xb") as file:
            sizes = np.array([VERSION, len(text)], "<u4").tobytes()
            bodies: list[Any] = [a.reshape(-1).view(np.uint8).data for a in arrays.values()]
            for part in (MAGIC, sizes, text, *bodies):
                digest.update(part)
                file.write(part)
            file.write(digest.digest())
            file.flush()
            os.fsync(file.fileno())
        try:
            replace(temporary, target)
        except FileNotFoundError:
            if not target.parent.exists():
                raise  # else another process has begun to write since, and has removed it
        _sync_folder(target.parent)
    except OSError as error:
        _discard(temporary)
        reason = error.strerror or str(error)
        raise type(error)(
            error.errno, f"the checkpoint cannot be written: {reason}", os.fspath(path)
        ) from error
    except BaseException:
        _discard(temporary)
        raise


def begin(path: str | os.PathLike[str], facts: Mapping[str, Any], saved: Saved | None) -> None:
    """Write the first checkpoint of a solve: without a snapshot, or a copy of the one that it continues.

    Nothing if that one is at ``path``. Raises OSError as ``write``, CheckpointError as ``write_first``.
    """
    if saved is None:
        write_first(path, facts, {})
    elif Path(path) != saved.path:
        best = {BEST + name: part for name, part in saved.best.items()}
        write_first(path, saved.facts, saved.snapshot | best)


def write_first(path: str | os.PathLike[str], facts: Mapping[str, Any], snapshot: Mapping[str, Any]) -> None:
    """Do as ``write``. Raises CheckpointError if the file at ``path`` is no checkpoint: it would be lost."""
    if os.path.isfile(path):
        try:
            with open(path, "rb") as file:
                head = file.read(len(MAGIC))
        except OSError as error:
            reason = f"the file there cannot be read: {error.strerror}"
            raise type(error)(
                error.errno, f"the checkpoint cannot be written: {reason}", str(path)
            ) from error
        if head not in (b"", MAGIC):
            text = "is no BigSAP checkpoint, and would be replaced; name another file"
            raise CheckpointError(f"{os.fspath(path)}: {text}")
    write(path, facts, snapshot)


def read(path: str | os.PathLike[str]) -> Saved:
    """Read a file of ``write``; never change it.

    Raises FileNotFoundError, or CheckpointError if it is not a checkpoint, is of another version,
    truncated or otherwise damaged.
    """
    name = os.fspath(path)
    try:
        with open(path, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = _judge(file, size, name)
            # The checksum is right, so unexpected content was written like this.
            try:
                file.seek(_HEAD)
                header = json.loads(file.read(length))
                snapshot = dict(header["values"])
                for key, kind, shape in header["arrays"]:
                    values = np.empty(shape, np.dtype(kind))
                    if file.readinto(values.reshape(-1).view(np.uint8).data) != values.nbytes:
                        raise ValueError(f"{key} is cut short")
                    snapshot[key] = values
                facts = dict(header["facts"])
            except (ValueError, KeyError, TypeError) as error:
                raise CheckpointError(f"{name}: the checkpoint makes no sense: {error}") from error
    except FileNotFoundError:
        raise FileNotFoundError(2, "there is no checkpoint", name) from None
    names = [name for name in snapshot if name.startswith(BEST)]
    best = {name.removeprefix(BEST): snapshot.pop(name) for name in names}
    return Saved(Path(path), facts, snapshot, best)


def _judge(file: BinaryIO, size: int, name: str) -> int:
    """Return the length of the header. Raise CheckpointError if the file is not a whole checkpoint."""
    head = file.read(_HEAD)
    if not head or head[: len(MAGIC)] != MAGIC[: len(head)]:
        raise CheckpointError(f"{name}: this is no BigSAP checkpoint")
    if len(head) < _HEAD:
        raise CheckpointError(f"{name}: the checkpoint is truncated after {len(head)} bytes")
    version, length = (int(x) for x in np.frombuffer(head, "<u4", 2, len(MAGIC)))
    if version != VERSION:
        raise CheckpointError(
            f"{name}: the checkpoint has format {version}, this BigSAP reads format {VERSION};"
            " continue with the BigSAP that wrote it, or start anew"
        )
    digest = hashlib.blake2b(head, digest_size=_DIGEST)
    left = size - _HEAD - _DIGEST
    while left > 0 and (part := file.read(min(left, _CHUNK))):
        digest.update(part)
        left -= len(part)
    if left or file.read(_DIGEST + 1) != digest.digest():
        raise CheckpointError(
            f"{name}: the checkpoint is truncated or damaged: its {size} bytes do not match its checksum"
        )
    return length


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"{type(value).__name__} has no place in a checkpoint")


def _discard(temporary: Path) -> None:
    with suppress(OSError):  # report the first error
        temporary.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """Make a rename durable; some systems do not allow opening a folder."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        return
    try:
        with suppress(OSError):  # some network file systems refuse; the rename is done
            os.fsync(handle)
    finally:
        os.close(handle)
