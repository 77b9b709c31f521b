"""Uploaded arrays: received in blocks of rows, in any order, and sealed when complete.

``arrays/{id}/data.npy`` is written in place, block by block; ``meta.json`` lists the rows on the
disk and is replaced, atomically, after each block. A block that was refused or interrupted counts
as not received and changes nothing: a block of rows that exist already is written to a separate
file until it is complete. Of two blocks of the same rows the one that began last counts, and the
other writes nothing more. A sealed array never changes.
"""

from __future__ import annotations

import hashlib
import logging
import os
import re
import secrets
import shutil
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np

from bigsap.system import replace as replace_file
from bigsap_server.files import DELETED, aside, read_json, write_json
from bigsap_server.problems import HttpProblem
from bigsap_server.uploads.blocks import Block, Meta, disk, superseded, whole_rows

_log = logging.getLogger("bigsap_server.uploads")

_CHUNK = 1 << 20
_ID = re.compile(r"arr_[0-9a-f]{16}")
_TOKEN = re.compile(rf"([0-9]+\.[0-9]+)-({_ID.pattern})")


class ArrayStore:
    """Uploaded arrays in a folder. Methods block on the disk and may be called by any thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._creating = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}
        self._known: dict[str, Meta] = {}
        self._open: defaultdict[str, list[Block]] = defaultdict(list)
        self._sealing: set[str] = set()
        for place in sorted(folder.iterdir()):
            if place.name.startswith(DELETED):
                shutil.rmtree(place, ignore_errors=True)
            elif _ID.fullmatch(place.name):
                try:
                    self._known[place.name] = Meta(**read_json(place / "meta.json"))
                except (ValueError, TypeError):  # no whole record ever reached the disk
                    shutil.rmtree(place, ignore_errors=True)
                except OSError:
                    _log.exception("the record of upload %s cannot be read", place.name)

    def create(self, owner: str, dtype: str, shape: list[int], quota: tuple[int, int] | None = None) -> Meta:
        """Create an array without rows. Raises HttpProblem ``disk-full``.

        quota: most arrays and bytes of the owner, this array included; beyond them raises HttpProblem
        ``quota-exceeded``.
        """
        meta = Meta(f"arr_{secrets.token_hex(8)}", owner, dtype, shape, time.time())
        if shape[0] and not meta.row_bytes:
            meta.ranges.append([0, shape[0]])
        descr = np.lib.format.dtype_to_descr(np.dtype(dtype))
        header = {"descr": descr, "fortran_order": False, "shape": tuple(shape)}
        with self._creating:
            if quota is not None:
                (most, most_bytes), owned = quota, self.owned(owner)
                if len(owned) >= most:
                    detail = f"{most} arrays are allowed; delete some"
                    raise HttpProblem("quota-exceeded", detail, quota="arrays", limit=most)
                if sum(other.nbytes for other in owned) + meta.nbytes > most_bytes:
                    detail = f"{most_bytes} bytes of arrays are allowed; delete some"
                    raise HttpProblem("quota-exceeded", detail, quota="stored_bytes", limit=most_bytes)
            with disk():
                self.file(meta).parent.mkdir()  # fails for an array of the same name, which must stay
            try:
                with disk():
                    with self.file(meta).open("xb") as file:
                        np.lib.format.write_array_header_2_0(file, header)
                        meta = replace(meta, offset=file.tell())
                        file.truncate(meta.offset + meta.nbytes)
                        os.fsync(file.fileno())
                    self._write(meta)
            except BaseException:
                shutil.rmtree(self.folder / meta.id, ignore_errors=True)
                raise
        return meta

    def get(self, array_id: str, owner: str | None) -> Meta:
        """Return the record. Raises HttpProblem ``not-found``, also for another owner's array.

        Rows that an open block is about to replace count as missing.
        """
        return self._seen(self._current(array_id, owner))

    def _seen(self, meta: Meta) -> Meta:
        ranges = meta.ranges
        for block in list(self._open.get(meta.id, ())):
            ranges = without(ranges, block.start, block.stop)
        return meta if ranges == meta.ranges else replace(meta, ranges=ranges)

    def owned(self, owner: str | None) -> list[Meta]:
        """Return all arrays of an owner (None: of all owners), newest first."""
        known = list(self._known.values())
        found = [self._seen(m) for m in known if owner is None or m.owner == owner]
        return sorted(found, key=lambda m: (-m.created, m.id))

    def page(self, owner: str | None, size: int, token: str | None = None) -> tuple[list[Meta], str | None]:
        """Return up to ``size`` arrays, newest first, and the token of the next page or None.

        Raises HttpProblem for an invalid token.
        """
        found = self.owned(owner)
        if token is not None:
            given = _TOKEN.fullmatch(token)
            if given is None:
                raise HttpProblem("invalid-spec", "page_token is not one of this service")
            after = (-float(given[1]), given[2])
            found = [meta for meta in found if (-meta.created, meta.id) > after]
        last = found[size - 1] if len(found) > size else None
        return found[:size], None if last is None else f"{last.created!r}-{last.id}"

    def find(self, owner: str, dtype: str, shape: list[int], sha256: str) -> Meta | None:
        """Return a sealed array of the owner with these data, and count it as used now."""
        for meta in self.owned(owner):
            if (meta.dtype, meta.shape, meta.sha256) == (dtype, shape, sha256):
                self.touch(meta.id)
                return meta
        return None

    def touch(self, array_id: str) -> None:
        with suppress(OSError):
            os.utime(self.folder / array_id / "meta.json")

    def expire(self, seconds: float, unused: Callable[[str], AbstractContextManager[None]]) -> list[str]:
        """Delete arrays not used for so long, but those that ``unused`` raises for; return their ids.

        Those count as used now: their time begins when their last job has ended.
        """
        gone = []
        for array_id in list(self._known):
            with suppress(Exception):  # deleted meanwhile
                if (self.folder / array_id / "meta.json").stat().st_mtime < time.time() - seconds:
                    try:
                        self.delete(array_id, unused)
                        gone.append(array_id)
                    except HttpProblem:  # in use, or being received
                        self.touch(array_id)
        return gone

    def file(self, meta: Meta) -> Path:
        return self.folder / meta.id / "data.npy"

    def open_block(self, meta: Meta, start: int, nbytes: int | None) -> Block:
        """Begin to receive rows from ``start`` on; ``nbytes`` if known. Raises HttpProblem.

        Rows received before count as missing until this block is closed. Open blocks that
        have rows in common with this one are refused from now on. Without ``nbytes`` the block has all rows
        from ``start`` on; with it, a body whose size is not a number of whole rows of the array is refused
        at once.
        """
        with self._lock(meta.id):
            meta = self._current(meta.id)
            self._check_idle(meta.id)
            if meta.sealed is not None:
                raise HttpProblem("array-sealed", "a sealed array cannot be changed")
            if not 0 <= start < max(1, meta.shape[0]):
                raise HttpProblem("not-found", f"there is no row {start}: there are {meta.shape[0]} rows")
            stop = meta.shape[0]
            if nbytes is not None:
                stop = start + whole_rows(nbytes, stop - start, meta.row_bytes)
            # Rows without bytes always exist, and a block of them writes nothing.
            aside = meta.row_bytes > 0 and without(meta.ranges, start, stop) != meta.ranges
            with disk():
                block = Block(meta, self.file(meta), start, stop, aside=aside)
            others = self._open[meta.id]
            for other in [b for b in others if b.start < stop and start < b.stop]:
                other.supersede()
                others.remove(other)
            others.append(block)
            return block

    def close_block(self, meta: Meta, block: Block, whole: bool) -> Meta:
        """Close a block: record it if it was received ``whole``, else discard it.

        Raises HttpProblem unless it consists of whole rows.
        """
        rows = None
        try:
            if whole:
                rows = block.finish()
        finally:
            try:
                with self._lock(meta.id):
                    current = block in self._open[meta.id]
                    if current:
                        self._open[meta.id].remove(block)
                        meta = self._current(meta.id)
                        if rows is not None:
                            meta = self._received(meta, block, block.start + rows)
            finally:
                block.close()
        if whole and not current:
            raise superseded()
        return self._seen(meta)

    def _received(self, meta: Meta, block: Block, stop: int) -> Meta:
        """Record a whole block. Rows count as missing while they are being replaced."""
        with disk():
            if block.aside:
                block.claim()
                meta = replace(meta, ranges=without(meta.ranges, block.start, stop))
                self._write(meta)
                block.move()
            ranges = merged([*meta.ranges, [block.start, stop]])
            meta = replace(meta, ranges=ranges)
            self._write(meta)
        return meta

    def seal(self, array_id: str, expected: str | None) -> Meta:
        """Compute the hash and make the array immutable. Idempotent. Reads the whole file.

        Raises HttpProblem ``array-incomplete`` with the missing ranges, ``invalid-spec`` when the hash is
        not the expected one, ``array-in-use`` while another call does the same.
        """
        with self._lock(array_id):
            meta = self._current(array_id)
            self._check_idle(array_id)
            if meta.sealed is None:
                if self._open[array_id]:
                    # Perhaps what is left of a request whose connection was lost: it ends soon.
                    later = {"Retry-After": "1"}
                    raise HttpProblem("array-incomplete", "a block is still being received", headers=later)
                if missing := meta.missing():
                    raise HttpProblem("array-incomplete", "not all rows are received", missing=missing[:100])
            self._sealing.add(array_id)
        try:
            # Without the lock, for which requests would wait in threads that all requests share.
            if meta.sealed is None:
                sha256, finite = self._digest(meta)
                meta = replace(meta, sealed=time.time(), sha256=sha256, finite=finite)
            if expected is not None and expected.lower() != meta.sha256:
                raise HttpProblem("invalid-spec", f"the data has sha256 {meta.sha256}", pointer="/sha256")
            with disk():
                self._write(meta)
            return meta
        finally:
            self._sealing.discard(array_id)

    def _check_idle(self, array_id: str) -> None:
        if array_id in self._sealing:
            raise HttpProblem("array-in-use", "the array is being sealed; try again")

    def delete(self, array_id: str, unused: Callable[[str], AbstractContextManager[None]]) -> None:
        """Remove the array and its file.

        unused: context manager entered while the array is removed; raises when the array is in use.
        """
        place = self.folder / array_id
        gone = aside(place)
        with self._lock(array_id):
            self._current(array_id)
            self._check_idle(array_id)
            if self._open[array_id]:
                raise HttpProblem("array-in-use", "a block is still being received")
            with unused(array_id), disk():
                # A rename is fast, while removing many bytes takes time.
                try:
                    replace_file(place, gone)
                except PermissionError:  # on Windows, while a job reads it
                    raise HttpProblem("array-in-use", "the array is being read; try again") from None
                del self._known[array_id]
            del self._open[array_id]
        shutil.rmtree(gone, ignore_errors=True)
        self._locks.pop(array_id, None)

    def _digest(self, meta: Meta) -> tuple[str, bool]:
        """Return the hash of the data, and whether all of it is finite."""
        digest, finite, dtype = hashlib.sha256(), True, np.dtype(meta.dtype)
        with disk(), self.file(meta).open("rb") as file:
            file.seek(meta.offset)
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
                if dtype.kind == "f" and finite:
                    finite = bool(np.isfinite(np.frombuffer(chunk, dtype)).all())
        return digest.hexdigest(), finite

    def _current(self, array_id: str, owner: str | None = None) -> Meta:
        meta = self._known.get(array_id)
        if meta is None or owner not in (None, meta.owner):
            raise HttpProblem("not-found", "there is no such array")
        return meta

    def _write(self, meta: Meta) -> None:
        write_json(self.folder / meta.id / "meta.json", asdict(meta))
        self._known[meta.id] = meta

    def _lock(self, array_id: str) -> threading.Lock:
        return self._locks.setdefault(array_id, threading.Lock())


def merged(ranges: list[list[int]]) -> list[list[int]]:
    """Return the union as half-open ranges, ascending and disjoint."""
    found: list[list[int]] = []
    for start, stop in sorted(ranges):
        if found and start <= found[-1][1]:
            found[-1][1] = max(found[-1][1], stop)
        else:
            found.append([start, stop])
    return found


def without(ranges: list[list[int]], start: int, stop: int) -> list[list[int]]:
    """Return half-open ranges without the rows from ``start`` to ``stop``."""
    parts = []
    for first, last in ranges:
        parts += [[first, min(last, start)], [max(first, stop), last]]
    return [[first, last] for first, last in parts if first < last]
