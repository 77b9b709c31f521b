"""The data that all blocks of a wave need (prices), and their changes between waves.

Each worker is sent the whole once, and then changes: a bit for each item that tells whether it
changed, and the differences of those that did. A version's serial number identifies its content in
the whole solve, so a worker can check whether it has the version that the changes apply to. If not,
it declines.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsap.types import Array

#: Tasks carry the changes if they take at most one part in so many of the whole: data sent with
#: every block stay well below its lists.
_SMALL = 32


@dataclass
class Base:
    """A version that tasks depend on.

    future: its future on a worker, once a task was sent. doubtful: whether a late worker may be the
    only one that has it.
    """

    values: Array
    serial: int
    future: Any = None
    doubtful: bool = False


@dataclass
class Line:
    """Versions of the same data.

    serials: of the whole solve. there: the number and content of the version that each worker was
    sent last without a task. base: the version that tasks were sent last.
    """

    serials: Iterator[int]
    there: dict[str, tuple[int, Array]] = field(default_factory=dict)
    base: Base | None = None

    def version(self, values: Array) -> Shared:
        """Return the next version."""
        return Shared(values, next(self.serials), self)


@dataclass
class Shared:
    """One version. values: an array; of unsigned integers if it has other versions."""

    values: Array
    serial: int
    line: Line
    _made: dict[int, Array] = field(default_factory=dict)

    def followed_by(self, values: Array) -> Shared:
        """Return the next version; workers are sent the changes only."""
        return self.line.version(values)

    def changes(self, serial: int, values: Array) -> Array:
        """Return the changes that make this version of another one."""
        if serial not in self._made:
            self._made[serial] = changes(values, self.values)
        return self._made[serial]

    def message(self, seat: str) -> tuple[int | None, int, Array | None]:
        """Return the message that brings a worker to this version without a task.

        It is the number of the version that the changes apply to (None: the whole is sent), the
        number of this version, and the changes or the whole (None: the worker has it).
        """
        serial, values = self.line.there.get(seat, (None, self.values))
        if serial is None:
            return None, self.serial, self.values
        if serial == self.serial:
            return serial, serial, None
        return serial, self.serial, self.changes(serial, values)

    def based(self) -> tuple[Base, Array | None]:
        """Return the base version and the changes that tasks are sent.

        The base is a version that workers have, if the changes since are small; else this
        version, without changes.
        """
        base = self.line.base
        if base is not None and base.serial == self.serial:
            return base, None
        if base is not None:
            since = self.changes(base.serial, base.values)
            if since.nbytes * _SMALL <= self.values.nbytes:
                return base, since
        base = self.line.base = Base(self.values, self.serial)
        return base, None


def changes(old: Array, new: Array) -> Array:
    """Return the changes from ``old`` to ``new`` for ``applied``, as uint8.

    Both hold unsigned integers of the same type. Bits of a price that changed a little differ in
    their last bytes. So the first bytes of all differences are stored together, then all second
    ones, and so on: each group gets an entropy code of its own.
    """
    moved = old != new
    step = new[moved] - old[moved]  # modulo 2^64, of floats' bits as well
    top = step.dtype.type(8 * step.itemsize - 1)
    one = step.dtype.type(1)
    folded = (step << one) ^ (step.dtype.type(0) - (step >> top))
    packer = zlib.compressobj(6, zlib.DEFLATED, -15, 9, zlib.Z_HUFFMAN_ONLY)
    planes = folded.view(np.uint8).reshape(-1, step.itemsize).T
    text = b""
    for part in (np.packbits(moved), *planes):
        text += packer.compress(part.tobytes()) + packer.flush(zlib.Z_SYNC_FLUSH)
    return np.frombuffer(text + packer.flush(), np.uint8)


def applied(old: Array, since: Array) -> Array:
    """Return the new version, as a new array; the inverse of ``changes``."""
    text = np.frombuffer(zlib.decompress(since.tobytes(), -15), np.uint8)
    head = -(-old.size // 8)
    moved = np.unpackbits(text[:head], count=old.size).astype(bool)
    planes = text[head:].reshape(old.itemsize, -1)
    folded = np.ascontiguousarray(planes.T).view(old.dtype).reshape(-1)
    one = old.dtype.type(1)
    step = (folded >> one) ^ (old.dtype.type(0) - (folded & one))
    new = old.copy()
    new[moved] += step
    return new


def n_bytes(args: Any) -> int:
    """Return the total bytes of the arrays among arguments."""
    if isinstance(args, np.ndarray):
        return args.nbytes
    return sum(map(n_bytes, args)) if isinstance(args, tuple) else 0
