"""What all blocks of a wave need (prices), and its changes from one wave to the next.

It goes to each worker whole once, and then as changes: a bit for each item that says whether it
changed, and the steps of those that did. The serial number of a version stands for its content
in the whole solve, so a worker knows whether it has what changes begin with; if not, it declines.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bigsap.sources.base import Array

#: Blocks of tasks carry the changes up to this share of the whole: what goes with every block
#: stays well below its lists.
_SMALL = 32


@dataclass
class Base:
    """A version that tasks depend on. future: of it on a worker, once a task was sent. doubtful:
    a worker that is late may be the only one that has it."""

    values: Array
    serial: int
    future: Any = None
    doubtful: bool = False


@dataclass
class Line:
    """Versions of the same thing. serials: of the whole solve. there: the number and the content
    that each worker was sent last without a task. base: the version that tasks were sent last."""

    serials: Iterator[int]
    there: dict[str, tuple[int, Array]] = field(default_factory=dict)
    base: Base | None = None

    def version(self, values: Array) -> Shared:
        """The next one."""
        return Shared(values, next(self.serials), self)


@dataclass
class Shared:
    """One version. values: an array, of unsigned integers if it has other versions."""

    values: Array
    serial: int
    line: Line
    _made: dict[int, Array] = field(default_factory=dict)

    def followed_by(self, values: Array) -> Shared:
        """The next version, of which workers are sent what has changed."""
        return self.line.version(values)

    def changes(self, serial: int, values: Array) -> Array:
        """What makes this version of another one."""
        if serial not in self._made:
            self._made[serial] = changes(values, self.values)
        return self._made[serial]

    def message(self, seat: str) -> tuple[int | None, int, Array | None]:
        """What a worker is sent without a task: the number that the changes begin with (None: it
        is the whole), that of this version, and the changes or the whole (None: it has it)."""
        serial, values = self.line.there.get(seat, (None, self.values))
        if serial is None:
            return None, self.serial, self.values
        if serial == self.serial:
            return serial, serial, None
        return serial, self.serial, self.changes(serial, values)

    def based(self) -> tuple[Base, Array | None]:
        """What tasks are sent: a version that is there already and the changes since, if these are
        few; else this version."""
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
    """uint8: what ``applied`` makes ``new`` of ``old`` with; unsigned integers of the same type.

    The bits of a price that changed a little differ in their last bytes. So first bytes of
    all steps stand together, then all second ones, ...: each kind has a code of its own.
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
    """The version that ``changes`` were made for; a new array."""
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
    """Of the arrays among arguments."""
    if isinstance(args, np.ndarray):
        return args.nbytes
    return sum(map(n_bytes, args)) if isinstance(args, tuple) else 0
