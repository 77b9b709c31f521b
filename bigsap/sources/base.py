"""The contract between BigSAP and sources of costs.

A source has one required method, ``read``; every further ability is a small protocol of its own,
tested with ``isinstance`` and never inside a loop. Row-wise access is all the engine needs (A1015,
section 4: "we only ever need to access one row of the matrix at a time").
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from inspect import get_annotations
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

from bigsap.types import Array, Ids, Tick

#: What a worker of a cluster makes of some rows: a function of a module, which goes there by name.
Task: TypeAlias = Callable[..., list[Array]]

#: The first four fields of ``bigsap.proof.row_minima.RowMinima``.
RowDuals: TypeAlias = tuple[Array, Array | None, Array | None, Array]

# Packages whose sources write plain numbers.
_OURS = ("bigsap", "bigsap_server")

# Seconds between two checks of ``Waiting``.
_LOOK_SECONDS = 0.02

#: Cost dtypes that kernels scan without conversion. Every source's ``dtype`` is one of these; other
#: numeric dtypes are converted by the source (see ``scannable``).
SCANNABLE = tuple(np.dtype(t) for t in ("f8", "f4", "i8", "i4", "u1", "u2"))


_ProtocolType: Any = type(Protocol)


class Ability(_ProtocolType):  # type: ignore[misc]  # Python has no public name for the base
    """The type of protocols whose ``isinstance`` tests only the names of their members.

    Python 3.11 takes 20 microseconds to find these names, each time; a solve needs them some 25
    times.
    """

    def __instancecheck__(cls, instance: object) -> bool:
        if not cls.__dict__.get("_is_protocol"):
            return bool(super().__instancecheck__(instance))
        members = cls.__dict__.get("_members")
        if members is None:
            # A protocol may inherit from others.
            bases = [base for base in cls.__mro__ if base.__dict__.get("_is_protocol")]
            named = {name for base in bases for name in (*vars(base), *get_annotations(base))}
            members = cls._members = tuple(name for name in named if not name.startswith("_"))
        return all(getattr(instance, name, None) is not None for name in members)


@runtime_checkable
class CostSource(Protocol, metaclass=Ability):
    """An object that yields rows of the cost matrix.

    ``shape`` is ``(n_rows, n_columns)``; ``dtype`` one of ``SCANNABLE``.
    """

    @property
    def shape(self) -> tuple[int, int]:
        """(n_rows, n_columns)."""
        ...

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the costs, one of ``SCANNABLE``."""
        ...

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with ``cost[rows[k], columns]``.

        rows: integer ids, shape (k,), any order, repeats allowed.
        columns: contiguous slice with explicit start and stop, step 1.
        out: (k, stop - start), dtype ``self.dtype``; rows are C-contiguous.

        Values are not checked here: the caller tests for NaN and infinities. Raises a
        ``SourceError`` that names the row if it cannot deliver.
        """
        ...


@runtime_checkable
class Resident(Protocol, metaclass=Ability):
    """The whole matrix lies in memory (or is mapped) and can be scanned in place."""

    def resident(self) -> Array | None:
        """Return the matrix as a C-contiguous 2-D array of ``dtype``, no copy.

        It may have more columns than ``shape`` (a view of a wider matrix); these must not be read
        or written. None if this instance has no such array.
        """
        ...


class Entries(NamedTuple):
    """The allowed pairs of a sparse source, by rows.

    start: int64 (n_rows + 1,): row i has the entries start[i] to start[i + 1] - 1. columns: int32 or
    int64, in any order within a row, none twice. costs: of one of ``SCANNABLE``; the infinity that
    forbids may occur. All read-only.
    """

    start: Array
    columns: Array
    costs: Array

    def rows(self) -> Array:
        """Return the row of each entry."""
        return np.repeat(np.arange(self.start.size - 1), np.diff(self.start))


@runtime_checkable
class Sparse(Protocol, metaclass=Ability):
    """Few pairs are allowed, and all of them are at hand."""

    def entries(self) -> Entries:
        """Return the allowed pairs."""
        ...

    def as_dtype(self, dtype: np.dtype[Any]) -> CostSource:
        """Return the same costs as another dtype; a cost that it cannot hold is an error."""
        ...


def integral(source: CostSource) -> bool:
    """Return whether costs are integers. Rows of a sparse source are floats: they need ``inf``."""
    dtype = source.entries().costs.dtype if isinstance(source, Sparse) else source.dtype
    return np.dtype(dtype).kind in "iu"


@runtime_checkable
class Transposable(Protocol, metaclass=Ability):
    """The source can also be read by columns at about the same cost."""

    def transposed(self) -> CostSource | None:
        """Return a source of the transposed matrix, or None if that would be slow."""
        ...


def _nothing() -> None:
    """Stand in for a pickled ``Fill``."""


@dataclass(frozen=True)
class Fill:
    """A C function that writes part of one row, callable without the interpreter.

    ``void fill(int64 context, int64 row, int64 start, int64 stop, int64 out)`` writes ``cost[row,
    start:stop]`` to consecutive items of the source's dtype at address ``out``. It must be
    thread-safe and must not raise. ``keep`` holds objects that must outlive the addresses.
    ``in_parts``: a part of a row costs its share of the row, not all of it. ``many``: writes parts of
    several rows with the same bits, sooner from ``several`` rows on: ``many(rows, start, stop, out)``; rows
    int64. ``pace``: (1,) int64, the number of pairs that the last call of ``read_by_fill`` found to fit.
    """

    address: int
    context: int
    keep: tuple[Any, ...]
    in_parts: bool = False
    many: Callable[[Array, int, int, Array], None] | None = None
    several: int = 2
    pace: Array = field(default_factory=lambda: np.zeros(1, np.int64), compare=False)

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle no addresses: another process, or a copy, makes its own."""
        return _nothing, ()


@runtime_checkable
class Fillable(Protocol, metaclass=Ability):
    """Rows can be computed by compiled code inside a kernel."""

    def fill(self) -> Fill | None:
        """Return the compiled filler, or None if this instance has none."""
        ...


@runtime_checkable
class Grouped(Protocol, metaclass=Ability):
    """Rows come in groups that cost no more than one of them (a decoded chunk)."""

    def rows_together(self, row: int) -> tuple[int, int]:
        """Return the half-open range of rows that one read of ``row`` decodes."""
        ...


@runtime_checkable
class Prefetching(Protocol, metaclass=Ability):
    """The source can start reading in advance."""

    def prefetch(self, row: int) -> None:
        """Prepare to read ``row``, which will probably be needed soon. Returns at once, never raises."""
        ...


@runtime_checkable
class Foreseeing(Protocol, metaclass=Ability):
    """A read of one row can fetch predicted rows with it, in the same time."""

    @property
    def foresees(self) -> int:
        """Number of predicted rows; 0: none."""
        ...

    def predict_slot(self, rows: Array) -> None:
        """Take rows that may be requested after the next one, the likeliest first."""
        ...


@runtime_checkable
class Fingerprinted(Protocol, metaclass=Ability):
    """The source can test whether its data is still the same."""

    def fingerprint(self) -> str:
        """Return a short hex digest of shape, dtype and (cheaply sampled) content."""
        ...


def scannable(dtype: npt.DTypeLike) -> np.dtype[Any] | None:
    """Return the dtype that a source of ``dtype`` should offer; None if it is not real.

    bool, i1, i2, u4 widen to the next scannable integer, f2 to f4; wider floats narrow to f8; u8
    (range checked by the source) to i8; byte order becomes native.
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
        """Return ``cost[rows][:, columns]`` as a source, None if that would cost too much.

        rows, columns: ids in any order, no repeats: permutations reorder the source.
        """
        ...


def sound_scales(scale: Array) -> bool:
    """Return whether bounds may multiply and divide by these numbers: positive, and neither
    infinite nor so small that bits are lost."""
    return bool(np.all((scale >= np.finfo(np.float64).tiny) & (scale < np.inf)))


@dataclass(frozen=True)
class Separation:
    """``cost[i, j] = f(sum over k of scale[k] * phi(x[i, k], y[k, j]))``.

    x: float64 (n_rows, d), y: float64 (d, n_columns), both float32 only if d is beyond
    ``policy.BOX_COORDINATES``. scale: (d,), sound (``sound_scales``).
    kind: ``"square"`` phi = (x - y)**2, ``"absolute"`` phi = |x - y|, ``"product"``
    phi = x * y, all with f the identity; ``"root"``: the square root of ``square``;
    ``"largest"``: the largest ``absolute`` instead of the sum. ``"chord"``: points of a sphere around 0,
    and the cost is the length of the arc between them. ``root`` is that of the chord, which is a lower
    bound, up to rounding of the points of some units of the radius. lost: times 1 + the sum of the
    scales, more than underflow takes from a cost or from a sum like it, before the root.
    """

    x: Array
    y: Array
    scale: Array
    kind: str
    lost: float = 2.0**-1000

    def hidden(self) -> float:
        """Return more than underflow adds to a bound, or takes from a cost."""
        hidden = self.lost * (1.0 + float(self.scale.sum()))
        return math.sqrt(hidden) if self.kind in ("root", "chord") else hidden


@runtime_checkable
class Separable(Protocol, metaclass=Ability):
    """Costs are a simple function of points, so they can be bounded over boxes of points."""

    def separable(self) -> Separation | None:
        """Return the points and the function, None if this instance has none."""
        ...


@runtime_checkable
class Limited(Protocol, metaclass=Ability):
    """Pairs that would cost more than a limit are forbidden."""

    def limit(self) -> float:
        """Return a number that no allowed pair costs more than; infinite if there is none."""
        ...


@runtime_checkable
class Sensed(Protocol, metaclass=Ability):
    """Whether a pair is forbidden, or invalid, depends on the sense of the problem."""

    def in_sense(self, maximize: bool) -> CostSource:
        """Return the costs as a problem of this sense sees them."""
        ...


def in_sense(source: CostSource, maximize: bool) -> CostSource:
    """Return a source as a problem of this sense sees it: see ``Sensed``."""
    return source.in_sense(maximize) if isinstance(source, Sensed) else source


def limit_of(source: CostSource) -> float:
    """Return the limit of a ``Limited`` source; infinite for others."""
    return source.limit() if isinstance(source, Limited) else math.inf


@runtime_checkable
class Ranged(Protocol, metaclass=Ability):
    """Bounds of the costs are known without reading them."""

    def cost_range(self) -> tuple[float, float] | None:
        """Return a lower and an upper bound of the finite costs.

        Either may be infinite. None if this instance has no bounds.
        """
        ...


def range_of(source: CostSource) -> tuple[float, float] | None:
    """Return the bounds of a ``Ranged`` source; for unsigned integers the range of their dtype."""
    if isinstance(source, Ranged):
        return source.cost_range()
    if np.dtype(source.dtype).kind == "u":
        return 0.0, float(np.iinfo(source.dtype).max)
    return None


@runtime_checkable
class Interruptible(Protocol, metaclass=Ability):
    """A read that waits (for a provider, say) can be abandoned."""

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        """Call ``check`` many times a second while a read of this thread waits.

        An exception that it raises ends the read. None: no more checks.
        """
        ...


class Reading:
    """A source that reads ``source``, whose reads may wait."""

    source: CostSource

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        """Pass the check on, see ``Interruptible``."""
        if isinstance(self.source, Interruptible):
            self.source.while_waiting(check)


@runtime_checkable
class Guarded(Protocol, metaclass=Ability):
    """Costs in place may become invalid: a mapped file can be truncated."""

    def intact(self) -> None:
        """Raise StoreError if costs became invalid: values read before may be wrong.

        Called every tenth of a second while in use, and before results or errors are reported.
        """
        ...


@contextmanager
def intact_throughout(source: object) -> Iterator[None]:
    """Raise StoreError at the end of the context if costs in place became invalid.

    It replaces the result, or the error, of the context: zeros in place of indices lead to any.
    """
    if not isinstance(source, Guarded):
        yield
        return
    try:
        yield
    except Exception:
        source.intact()
        raise
    source.intact()


class Waiting(threading.local):
    """The ``check`` of each thread, for a source that calls it between its rows or waits."""

    check: Callable[[], None] | None = None
    _looked = 0.0

    def __reduce__(self) -> tuple[Any, ...]:
        """Start without checks in a source that is pickled or copied."""
        return Waiting, ()

    def look(self) -> None:
        """Call ``check`` if enough time has passed since the last call."""
        if self.check is not None:
            now = time.perf_counter()
            if now - self._looked >= _LOOK_SECONDS:
                self._looked = now
                self.check()


def read_rows(source: CostSource, rows: Ids, columns: slice, out: Array) -> None:
    """Call ``source.read``; masked values that a user's own source writes are an error."""
    if type(source).__module__.partition(".")[0] not in _OURS:
        # Imported by name: kernels depend on this module's imports, and should not depend on that one.
        out = import_module("bigsap.sources.room").room_of(source, rows, columns, out)
    source.read(rows, columns, out)


def read_while(source: CostSource, check: Callable[[], None], rows: Ids, columns: slice, out: Array) -> None:
    """Call ``source.read``; end it as soon as ``check`` raises, if the source supports that."""
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
    """Rows are evaluated by workers, which can also compute results from them."""

    @property
    def row_bytes(self) -> int:
        """Bytes of a row of costs."""
        ...

    def share(self, values: Array) -> Any:
        """Send the data that all rows of a wave need; return the argument for ``wave``."""
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
        """Yield positions in ``rows`` with the bytes that the function ``name`` made of them.

        In no fixed order; see ``bigsap.sources.cluster.workers``.
        """
        ...

    def show(
        self, rows: Array, take: Callable[[int, Array], None], tick: Callable[[], None] | None = None
    ) -> None:
        """Pass every row of costs to ``take(row, costs)`` as it arrives."""
        ...


@runtime_checkable
class Minimised(Protocol, metaclass=Ability):
    """A source that makes the certificate's pass with its own code."""

    def row_minima(
        self, matching: Array | None, prices: Array, low: Array | None, maximize: bool, tick: Tick
    ) -> RowDuals | None:
        """Return the first four fields of ``bigsap.proof.row_minima.RowMinima``.

        Prices have low parts. None if the host must make the pass.
        """
        ...


@runtime_checkable
class BoundedMinimised(Protocol, metaclass=Ability):
    """A source that makes the certificate's pass with bounds that exclude most pairs."""

    def bounded_minima(
        self, matching: Array | None, prices: Array, low: Array | None, maximize: bool, tick: Tick
    ) -> tuple[RowDuals, int] | None:
        """Return what ``Minimised.row_minima`` returns, the same bits, and how many costs were computed.

        None where bounds do not pay.
        """
        ...
