"""The contract between BigSAP and whatever costs come from.

A source has one required method, ``read``; every further ability is a small
protocol of its own, asked for with ``isinstance`` and never inside a loop.
Row-wise access is all the engine needs (A1015, section 4: "we only ever need to
access one row of the matrix at a time").
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from inspect import get_annotations
from typing import Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

Array: TypeAlias = npt.NDArray[Any]
Ids: TypeAlias = npt.NDArray[np.integer[Any]]
#: What a worker of a cluster makes of some rows: a function of a module, which goes there by name.
Task: TypeAlias = Callable[..., list[Array]]

# Packages whose sources write plain numbers.
_OURS = ("bigsap", "bigsap_server")

# Between two looks of ``Waiting``.
_LOOK_SECONDS = 0.02

#: Cost dtypes that kernels scan as they are. Every source's ``dtype`` is one of
#: these; other numeric dtypes are converted by the source (see ``scannable``).
SCANNABLE = tuple(np.dtype(t) for t in ("f8", "f4", "i8", "i4", "u1", "u2"))


_ProtocolType: Any = type(Protocol)


class Ability(_ProtocolType):  # type: ignore[misc]  # Python has no public name for the base
    """The type of protocols whose ``isinstance`` only looks for the names of their members.

    Python 3.11 takes 20 microseconds to find these names, each time; a solve asks some 25 times.
    """

    def __instancecheck__(cls, instance: object) -> bool:
        if not cls.__dict__.get("_is_protocol"):
            return bool(super().__instancecheck__(instance))
        members = cls.__dict__.get("_members")
        if members is None:
            # A protocol may be made of others.
            bases = [base for base in cls.__mro__ if base.__dict__.get("_is_protocol")]
            named = {name for base in bases for name in (*vars(base), *get_annotations(base))}
            members = cls._members = tuple(name for name in named if not name.startswith("_"))
        return all(getattr(instance, name, None) is not None for name in members)


class CostSource(Protocol):
    """Something that yields rows of the cost matrix.

    ``shape`` is ``(n_rows, n_columns)``; ``dtype`` one of ``SCANNABLE``.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """(n_rows, n_columns)."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the costs, one of ``SCANNABLE``."""
        ...

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with ``cost[rows[k], columns]``.

        rows: integer ids, shape (k,), any order, repeats allowed.
        columns: contiguous slice with explicit start and stop, step 1.
        out: (k, stop - start), dtype ``self.dtype``; rows are C-contiguous.
        Values are passed on unchecked: NaN and infinities are judged by the caller.
        Raises a ``SourceError`` that names the row when it cannot deliver.
        """
        ...


@runtime_checkable
class Resident(Protocol, metaclass=Ability):
    """The whole matrix lies in memory (or is mapped) and can be scanned in place."""

    def resident(self) -> Array | None:
        """The matrix as a C-contiguous 2-D array of ``dtype``, no copy.

        It may have more columns than ``shape`` says (a view of a wider matrix);
        the surplus must not be touched. None when this instance cannot.
        """
        ...


@runtime_checkable
class Transposable(Protocol, metaclass=Ability):
    """The source can also be asked by columns at about the same price."""

    def transposed(self) -> CostSource | None:
        """A source for the transposed matrix, or None when that would be slow."""
        ...


def _nothing() -> None:
    """What a pickled ``Fill`` becomes."""


@dataclass(frozen=True)
class Fill:
    """A C function that writes part of one row, callable without the interpreter.

    ``void fill(int64 context, int64 row, int64 start, int64 stop, int64 out)``
    writes ``cost[row, start:stop]`` to consecutive items of the source's dtype at
    address ``out``. It must be thread-safe and must not raise.
    ``keep`` holds whatever must outlive the addresses. ``in_parts``: a part of a row costs
    its share of the row, not all of it. ``pace``: (1,) int64, how many pairs the last call
    of ``read_by_fill`` found to fit.
    """

    address: int
    context: int
    keep: tuple[Any, ...]
    in_parts: bool = False
    pace: Array = field(default_factory=lambda: np.zeros(1, np.int64), compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Addresses are of one process: another one, and a copy, make their own."""
        return _nothing, ()


@runtime_checkable
class Fillable(Protocol, metaclass=Ability):
    """Rows can be computed by compiled code inside a kernel."""

    def fill(self) -> Fill | None:
        """The compiled filler, or None when this instance has none."""
        ...


@runtime_checkable
class Grouped(Protocol, metaclass=Ability):
    """Rows come in groups that cost no more than one of them (a decoded chunk)."""

    def rows_together(self, row: int) -> tuple[int, int]:
        """The half-open range of rows that one read of ``row`` decodes anyway."""
        ...


@runtime_checkable
class Prefetching(Protocol, metaclass=Ability):
    """The source can start reading before it is asked."""

    def prefetch(self, row: int) -> None:
        """``row`` will probably be read soon. Returns at once, never raises."""
        ...


@runtime_checkable
class Foreseeing(Protocol, metaclass=Ability):
    """Rows asked for one by one come with others that may be asked for next, at no more time."""

    @property
    def foresees(self) -> int:
        """How many others; 0: none."""
        ...

    def predict_slot(self, rows: Array) -> None:
        """Rows that may be asked for after the next one, the likeliest first."""
        ...


@runtime_checkable
class Fingerprinted(Protocol, metaclass=Ability):
    """The source can tell whether its data is still the same."""

    def fingerprint(self) -> str:
        """A short hex digest of shape, dtype and (cheaply sampled) content."""
        ...


def scannable(dtype: npt.DTypeLike) -> np.dtype[Any] | None:
    """The dtype a source of ``dtype`` should offer, or None if it is no real number.

    bool, i1, i2, u4 widen to the next scannable integer, f2 to f4; wider floats
    narrow to f8; u8 (range checked by the source) to i8; byte order becomes native.
    """
    d = np.dtype(dtype)
    if d.newbyteorder("=") in SCANNABLE:
        return d.newbyteorder("=")
    table = {"b1": "u1", "i1": "i4", "i2": "i4", "u4": "i8", "u8": "i8", "f2": "f4"}
    name = d.kind + str(d.itemsize)
    if name in table:
        return np.dtype(table[name])
    return np.dtype("f8") if d.kind == "f" else None


@runtime_checkable
class Selectable(Protocol, metaclass=Ability):
    """Some rows and columns of the source are a source of the same kind."""

    def select(self, rows: Ids, columns: Ids) -> CostSource | None:
        """``cost[rows][:, columns]`` as a source, None when that would cost too much.

        rows, columns: ids in any order, no repeats: permutations reorder the source.
        """
        ...


@dataclass(frozen=True)
class Separation:
    """``cost[i, j] = f(sum over k of scale[k] * phi(x[i, k], y[k, j]))``.

    x: float64 (n_rows, d), y: float64 (d, n_columns), scale: (d,), positive.
    kind: ``"square"`` phi = (x - y)**2, ``"absolute"`` phi = |x - y|, ``"product"``
    phi = x * y, all with f the identity; ``"root"``: the square root of ``square``;
    ``"largest"``: the largest ``absolute`` instead of the sum.
    """

    x: Array
    y: Array
    scale: Array
    kind: str


@runtime_checkable
class Separable(Protocol, metaclass=Ability):
    """Costs are a simple function of points, which bounds them over boxes of points."""

    def separable(self) -> Separation | None:
        """The points and the function, None when this instance has none."""
        ...


@runtime_checkable
class Ranged(Protocol, metaclass=Ability):
    """It is known between which numbers the costs lie, without reading them."""

    def cost_range(self) -> tuple[float, float] | None:
        """No finite cost is less than the first or more than the second; either may be
        infinite. None when nothing is known of this instance."""
        ...


def range_of(source: CostSource) -> tuple[float, float] | None:
    """What ``Ranged`` tells of any source; of unsigned integers the ends of their range."""
    if isinstance(source, Ranged):
        return source.cost_range()
    if np.dtype(source.dtype).kind == "u":
        return 0.0, float(np.iinfo(source.dtype).max)
    return None


@runtime_checkable
class Interruptible(Protocol, metaclass=Ability):
    """A read that waits (for a provider, say) can be left before it is done."""

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        """Call ``check`` many times a second while a read of this thread waits.

        Whatever it raises leaves the read. None: no more checks.
        """
        ...


@runtime_checkable
class Guarded(Protocol, metaclass=Ability):
    """What lies in place may be taken away: a mapped file can be truncated."""

    def intact(self) -> None:
        """Raise StoreError when it was: what was read may not have been there.

        Asked every tenth of a second while in use, and before results or errors count.
        """
        ...


@contextmanager
def intact_throughout(source: object) -> Iterator[None]:
    """Whatever comes of costs in place, result or error, counts only if none were lost."""
    if not isinstance(source, Guarded):
        yield
        return
    try:
        yield
    except ValueError:
        source.intact()
        raise
    source.intact()


class Waiting(threading.local):
    """The ``check`` of each thread, for a source that calls it between its rows or waits."""

    check: Callable[[], None] | None = None
    _looked = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        """Nothing of it belongs to a source that is pickled or copied."""
        return Waiting, ()

    def look(self) -> None:
        """Call it, when that was last done some time ago."""
        if self.check is not None:
            now = time.perf_counter()
            if now - self._looked >= _LOOK_SECONDS:
                self._looked = now
                self.check()


def read_rows(source: CostSource, rows: Ids, columns: slice, out: Array) -> None:
    """``source.read``; masked values that a user's own source writes are an error, not costs."""
    if type(source).__module__.partition(".")[0] not in _OURS:
        # By its name, so that kernels, which depend on what is imported here, do not on that.
        out = import_module("bigsap.sources.room").room_of(source, rows, columns, out)
    source.read(rows, columns, out)


def read_while(source: CostSource, check: Callable[[], None], rows: Ids, columns: slice, out: Array) -> None:
    """``source.read``, left as soon as ``check`` raises where the source allows that."""
    if not isinstance(source, Interruptible):
        read_rows(source, rows, columns, out)
        return
    source.while_waiting(check)
    try:
        read_rows(source, rows, columns, out)
    finally:
        source.while_waiting(None)


@runtime_checkable
class Crewed(Protocol, metaclass=Ability):
    """Rows are made by workers elsewhere, which can also make of them what is wanted."""

    @property
    def row_bytes(self) -> int:
        """What a row of costs takes."""
        ...

    def share(self, values: Array) -> Any:
        """Send what all rows of a wave need; what ``wave`` takes for it."""
        ...

    def wave(
        self,
        task: Task,
        rows: Array,
        *,
        kind: str,
        row_bytes: int,
        tick: Callable[[], None],
        shared: Any = None,
        args: Callable[[Array], tuple[Any, ...]] = lambda positions: (),
    ) -> Iterator[tuple[Array, Array]]:
        """Positions in ``rows`` and the bytes that ``task`` made of them, in no fixed order; see
        ``sources.cluster.workers``."""
        ...

    def show(
        self, rows: Array, take: Callable[[int, Array], None], tick: Callable[[], None] | None = None
    ) -> None:
        """Hand every row of costs to ``take(row, costs)`` as it arrives."""
        ...


@runtime_checkable
class Minimised(Protocol, metaclass=Ability):
    """A source that makes the certificate's pass by itself, by code of its own."""

    def row_minima(
        self,
        matching: Array | None,
        prices: Array,
        low: Array | None,
        maximize: bool,
        tick: Callable[[int], None],
    ) -> tuple[Array, Array | None, Array | None, Array] | None:
        """The first four fields of ``bigsap.proof.row_minima.RowMinima``, at prices with low
        parts; None where the host must do it."""
        ...
