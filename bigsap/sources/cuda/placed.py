"""Costs that device kernels read: matrices in device memory, and computed ones.

A source *on a device* is an ordinary ``CostSource`` (rows are copied to the host when read) that
also gives device kernels the address of its costs, or code that computes them. CuPy is imported
when the first of them is made.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Protocol, runtime_checkable

import numpy as np

from bigsap import policy
from bigsap.errors import DeviceMemoryError, DtypeError, OptionError
from bigsap.sources.base import (
    SCANNABLE,
    Ability,
    CostSource,
    Fill,
    Fillable,
    Fingerprinted,
    Reading,
    Resident,
    RowDuals,
    Selectable,
    Separable,
    Separation,
    Transposable,
    range_of,
)
from bigsap.sources.convert import check_rows, cost_shape, fingerprint_of
from bigsap.sources.cuda.code import DeviceCode, PairCode, matrix_code, source_code
from bigsap.sources.cuda.device_kernels import PAIRS, TILES, compiled, load_cupy, on
from bigsap.sources.cuda.device_memory import (
    PANEL_BYTES,
    bring,
    copy_of,
    empty,
    free_bytes,
    no_room,
    panels,
    pinned,
)
from bigsap.types import Array, Ids, Tick


def device_numbers(device: str | Sequence[str]) -> tuple[int, ...]:
    """Return ``"cuda"``, ``"cuda:1"``, ``"cuda:0,1"`` or a sequence of such names as numbers.

    OptionError for anything else.
    """
    names = [device] if isinstance(device, str) else device
    numbers: list[int] = []
    for name in names if isinstance(names, (list, tuple)) else [None]:
        found = None
        if isinstance(name, str):
            found = re.fullmatch(r"cuda(?::(\d{1,3}(?:,\d{1,3})*))?", name)
        if found is None:
            break
        numbers += map(int, (found.group(1) or "0").split(","))
    else:
        if numbers:
            return tuple(numbers)
    raise OptionError(f"device must be 'cpu', 'auto', 'cuda', 'cuda:N' or 'cuda:N,M,...', got {device!r}")


#: Pairs from which on a device computes costs of many dimensions sooner than the host.
_MANY_PAIRS = 4096
#: Coordinates that are widened at a time.
_WIDENED = 1 << 25
#: Rows and columns of a block of bigsap_gather_tiles.
_TILE = (16, 512)


@runtime_checkable
class OnDevice(Protocol, metaclass=Ability):
    """Costs that kernels of one device can read."""

    device: int
    shape: tuple[int, int]

    def code(self) -> DeviceCode:
        """Return the code with which device kernels are compiled."""
        ...

    def words(self) -> Any:
        """Return the code's words in device memory, int64."""
        ...


class PlacedPoints:
    """Points (k, d) in device memory, whose parts are given as float64, to be read only.

    divisors: (k, 2), see ``PointSource.divisors``, or None.
    """

    def __init__(self, points: Any, divisors: Any) -> None:
        self._points, self._divisors, self.shape = points, divisors, points.shape

    def __getitem__(self, some: slice) -> Any:
        part = self._points[some].astype(np.float64, copy=False)
        if self._divisors is not None:
            for k in range(2):
                part = part / self._divisors[some, k, None]
        return part

    def mean(self) -> Any:
        """Return their mean (d,)."""
        if self._divisors is None:
            return self._points.mean(axis=0, dtype=np.float64)
        total: Any = 0.0
        step = max(1, _WIDENED // max(1, self.shape[1]))
        for start in range(0, self.shape[0], step):
            total = total + self[start : start + step].sum(axis=0)
        return total / max(1, self.shape[0])


class _Device:
    """Base class of the sources on a device.

    device: its number. host: the source of the costs, which then reads rows and gives its own
    properties; None if there is none.
    """

    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def __init__(self, device: int, host: CostSource | None) -> None:
        self.device = device
        self.host: Any = host
        self._words: Any = None
        self._kept: list[Any] = []

    def code(self) -> DeviceCode:
        raise NotImplementedError

    def words(self) -> Any:
        """Return the code's words in device memory; arrays among them are copied there once."""
        if self._words is None:
            cupy = load_cupy()
            words, kept = np.zeros(max(1, len(self.code().words)), np.int64), []
            with on(self.device):
                for k, word in enumerate(self.code().words):
                    if isinstance(word, float):
                        words.view(np.float64)[k] = word
                    elif isinstance(word, (int, np.integer)):
                        words[k] = word
                    else:
                        there = _placed(word)
                        kept.append(there)
                        words[k] = there.data.ptr
                # Together, so that a copy that found no room leaves nothing behind.
                self._kept, self._words = kept, cupy.asarray(words)
        return self._words

    def points(self) -> tuple[PlacedPoints, PlacedPoints]:
        """Return the points of a code with a product form: of rows and columns."""
        self.words()
        rows, columns, *others = self._kept
        product = self.code().product
        assert product is not None
        of_rows, of_columns = (None, None) if product.inner else others[1:] or (None, None)
        turned = columns if product.by_point else columns.T
        return PlacedPoints(rows, of_rows), PlacedPoints(turned, of_columns)

    def product_terms(self) -> tuple[Any, Any]:
        """Return the terms (n,) and (m,) of a code whose costs are inner products plus these."""
        self.words()
        _, _, of_rows, of_columns = self._kept
        return of_rows, of_columns

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        # A row of many dimensions takes the host some hundred times as long; the bits are the same.
        many = self.code().product is not None and self.code().exact
        if self.host is not None and not (many and out.size >= _MANY_PAIRS):
            self.host.read(rows, columns, out)
            return
        check_rows(rows, self.shape[0])
        width = columns.stop - columns.start
        if not width or not len(rows):
            return
        with on(self.device):
            step = max(1, PANEL_BYTES // (width * self.dtype.itemsize))
            for first in range(0, len(rows), step):
                costs = self.computed(rows[first : first + step], columns)
                out[first : first + step] = costs.get()

    def computed(self, rows: Ids, columns: slice) -> Any:
        """Return ``cost[rows][:, columns]`` in device memory; launched, perhaps not yet computed.

        The device must be CuPy's current one.
        """
        cupy, code = load_cupy(), self.code()
        there = cupy.asarray(np.asarray(rows, np.int32))
        count, width = there.size, columns.stop - columns.start
        costs = empty((count, width), self.dtype, "rows of costs")
        some = (np.int32(columns.start), np.int32(width), costs)
        if code.product is not None and count >= _TILE[0] // 2:
            d = np.int32(code.product.weights.size)
            grid = (-(-count // _TILE[0]), -(-width // _TILE[1]))
            kernel = compiled(self.device, code, TILES, ()).get("bigsap_gather_tiles")
            kernel(grid, (256,), (self.words(), there, np.int32(count), d, *some))
        else:
            grid = (min(64, -(-width // 256)), min(count, 4096))
            kernel = compiled(self.device, code, PAIRS, ()).get("bigsap_gather")
            kernel(grid, (256,), (self.words(), there, np.int32(count), *some))
        return costs

    def row_minima(
        self, matching: Array | None, prices: Array, low: Array | None, maximize: bool, tick: Tick
    ) -> RowDuals | None:
        """Make the certificate's pass, see ``bigsap.proof.row_minima``; None if the host must make it."""
        from bigsap.sources.cuda.device_proof import row_minima

        pieces = [(self, 0, self.shape[1])]
        return row_minima(self, pieces, matching, prices, low, maximize, tick)

    def bounded_minima(
        self, matching: Array | None, prices: Array, low: Array | None, maximize: bool, tick: Tick
    ) -> tuple[RowDuals, int] | None:
        """Make the certificate's pass by bounds, see ``BoundedMinimised``."""
        from bigsap.sources.cuda.device_proof import bounded_minima

        return bounded_minima(self, matching, prices, low, maximize, tick)

    def fill(self) -> Fill | None:
        return self.host.fill() if isinstance(self.host, Fillable) else None

    def separable(self) -> Separation | None:
        return self.host.separable() if isinstance(self.host, Separable) else None

    def cost_range(self) -> tuple[float, float] | None:
        return None if self.host is None else range_of(self.host)

    def fingerprint(self) -> str:
        if isinstance(self.host, Fingerprinted):
            return self.host.fingerprint()
        return fingerprint_of(self)


def _placed(word: Any) -> Any:
    """Return an array in the device's memory, in C order; in place if it is there already."""
    if not isinstance(word, np.ndarray) or word.flags.c_contiguous:
        return copy_of(word, "the points")
    # Turned there, a part at a time.
    there, turned = empty(word.shape, word.dtype, "the points"), word.T
    step = max(1, PANEL_BYTES // max(1, turned[:1].nbytes))
    for start in range(0, turned.shape[0], step):
        there[:, start : start + step] = copy_of(turned[start : start + step], "the points").T
    return there


class MatrixOnDevice(_Device):
    """A matrix in device memory. array: CuPy (n, m) of a scannable dtype, any strides.

    copied_bytes: of costs that were copied from the host for it.
    """

    def __init__(self, array: Any, host: CostSource | None = None) -> None:
        super().__init__(int(array.device.id), host)
        self.array = array
        self.copied_bytes = 0 if host is None else int(array.nbytes)
        self.shape = cost_shape(array.shape, "the device array")
        self.dtype = np.dtype(array.dtype)
        size = self.dtype.itemsize
        strides = [int(s) // size for s in array.strides]
        self._code = matrix_code(self.dtype, int(array.data.ptr), strides[0], strides[1], self.shape[1])

    def __repr__(self) -> str:
        return f"MatrixOnDevice({self.shape}, {self.dtype}, cuda:{self.device})"

    def __reduce__(self) -> tuple[Any, ...]:
        return MatrixOnDevice, (self.array, self.host)

    def code(self) -> DeviceCode:
        """Return the code of the matrix in place."""
        return self._code

    def resident(self) -> Array | None:
        """Return the host's matrix, if the costs were copied from one."""
        matrix = self.host.resident() if isinstance(self.host, Resident) else None
        return matrix if self.shape[0] <= self.shape[1] else None

    def transposed(self) -> MatrixOnDevice:
        """Return the transpose, in the same memory."""
        return MatrixOnDevice(self.array.T, Turned(self.host) if self.host else None)

    def select(self, rows: Ids, columns: Ids) -> MatrixOnDevice:
        """Return a copy of these rows and columns, in device memory."""
        cupy = load_cupy()
        nbytes = len(rows) * len(columns) * self.dtype.itemsize
        with on(self.device):
            there = [cupy.asarray(np.asarray(ids, np.int64)) for ids in (rows, columns)]
            try:
                part = self.array[cupy.ix_(*there)]
            except cupy.cuda.memory.OutOfMemoryError as error:
                raise no_room("a part of the costs", nbytes) from error
        return MatrixOnDevice(part)


class Turned(Reading):
    """A host source read by columns: the origin of the transpose of a copied matrix."""

    def __init__(self, source: CostSource) -> None:
        self.source = source
        n, m = source.shape
        self.shape, self.dtype = (m, n), source.dtype

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        other = self.source
        step = max(1, PANEL_BYTES // max(1, self.shape[0] * self.dtype.itemsize))
        for first in range(columns.start, columns.stop, step):
            ids = np.arange(first, min(first + step, columns.stop))
            block = np.empty((ids.size, self.shape[0]), self.dtype)
            other.read(ids, slice(0, self.shape[0]), block)
            out[:, first - columns.start : first - columns.start + ids.size] = block[:, rows].T


class ComputedOnDevice(_Device):
    """Costs computed pair by pair in device kernels."""

    def __init__(
        self, shape: tuple[int, int], device: int, code: DeviceCode | PairCode, host: CostSource | None = None
    ) -> None:
        super().__init__(device, host)
        self.shape = shape
        self._pair = code if isinstance(code, PairCode) else None
        self._code = code.code() if isinstance(code, PairCode) else code
        self.dtype = self._code.dtype

    def __repr__(self) -> str:
        return f"ComputedOnDevice({self.host or self.shape}, cuda:{self.device})"

    def code(self) -> DeviceCode:
        return self._code

    def transposed(self) -> CostSource | None:
        n, m = self.shape
        if isinstance(self.host, Transposable):
            other = self.host.transposed()
            return None if other is None else place(other, self.device, None)
        if self._pair is None:
            return None
        return ComputedOnDevice((m, n), self.device, self._pair.turned())

    def select(self, rows: Ids, columns: Ids) -> CostSource | None:
        if isinstance(self.host, Selectable):
            part = self.host.select(rows, columns)
            return None if part is None else place(part, self.device, None)
        if self._pair is None:
            return None
        shape = (len(rows), len(columns))
        return ComputedOnDevice(shape, self.device, self._pair.part(rows, columns))


def multiplies_there(source: CostSource) -> bool:
    """Return whether a device makes lists of a source's rows by matrix products."""
    return isinstance(source, ComputedOnDevice) and source.code().product is not None


def many_coordinates_there(source: CostSource) -> bool:
    """Return whether a device computes costs of so many coordinates that one row takes the host long."""
    if not isinstance(source, ComputedOnDevice):
        return False
    product = source.code().product
    return product is not None and product.weights.size >= policy.DEVICE_KEPT_COORDINATES


def bring_all(source: CostSource, out: Array, n_threads: int, done: Tick) -> None:
    """Compute all costs on the device, and copy them to ``out`` (n, m), with the host's bits.

    Two panels of pinned memory: while threads copy one to its place, the device makes the other.
    done: called with the number of rows in place; its exceptions end the copy. O(n m d); raises
    DeviceMemoryError where a panel finds no room.
    """
    assert isinstance(source, ComputedOnDevice)
    n, m = source.shape
    height = max(1, min(n, PANEL_BYTES // (m * source.dtype.itemsize)))
    with on(source.device), ThreadPoolExecutor(n_threads) as pool:
        nbytes = height * m * source.dtype.itemsize
        sides = [pinned(nbytes).view(source.dtype).reshape(height, m) for _ in range(2)]
        copies: list[Future[None]] = []
        for turn, start in enumerate(range(0, n, height)):
            stop = min(n, start + height)
            panel = sides[turn % 2][: stop - start]
            source.computed(np.arange(start, stop), slice(0, m)).get(out=panel)
            for copy in copies:
                copy.result()
            done(start)
            cuts = np.linspace(0, stop - start, n_threads + 1).astype(np.intp).tolist()
            copies = [
                pool.submit(np.copyto, out[start + a : start + b], panel[a:b])
                for a, b in itertools.pairwise(cuts)
            ]
        for copy in copies:
            copy.result()
    done(n)


class ReadByHost(Reading):
    """Costs for devices whose rows the host reads from ``whole``. source: as given, whose reads may wait."""

    source: CostSource
    whole: CostSource
    shape: tuple[int, int]
    dtype: np.dtype[Any]

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        self.whole.read(rows, columns, out)

    def resident(self) -> Array | None:
        """Return the host's matrix, if it has one."""
        return self.whole.resident() if isinstance(self.whole, Resident) else None

    def fingerprint(self) -> str:
        return self.whole.fingerprint() if isinstance(self.whole, Fingerprinted) else fingerprint_of(self)


class StreamedToDevice(ReadByHost):
    """Costs larger than device memory: their rows are copied to the device when read.

    source: on the host. limit: bytes that rows may take of the device, None: the free memory.
    cache: a ``RowCache`` with the share of these bytes for rows that stay on the device, and the
    policy of which rows stay; None: all bytes that rows in transfer leave, and the policy by their
    number.
    """

    def __init__(self, source: CostSource, device: int, limit: int | None = None, cache: Any = None) -> None:
        self.source = self.whole = source
        self.device, self.limit, self.cache = device, limit, cache
        self.shape, self.dtype = source.shape, source.dtype

    def __repr__(self) -> str:
        return f"StreamedToDevice({self.source!r}, cuda:{self.device})"

    def transposed(self) -> StreamedToDevice | None:
        other = self.source.transposed() if isinstance(self.source, Transposable) else None
        if other is None:
            return None
        return StreamedToDevice(other, self.device, self.limit, self.cache)


@runtime_checkable
class Placeable(Protocol, metaclass=Ability):
    """Costs that only a device can compute."""

    def on_device(self, device: int) -> ComputedOnDevice:
        """Return the costs for kernels of this device."""
        ...


def seen_on_device(cost: Any) -> Any:
    """Return an array in device memory (CuPy, DLPack, ``__cuda_array_interface__``) as one of CuPy's.

    By DLPack where there is a choice: the other interface of torch does not name the stream whose
    work must be waited for.
    """
    cupy = load_cupy()
    if isinstance(cost, cupy.ndarray):
        return cost
    if hasattr(cost, "__dlpack__"):
        try:
            return cupy.from_dlpack(cost)
        except (BufferError, RuntimeError, TypeError, ValueError):
            if not hasattr(cost, "__cuda_array_interface__"):
                raise
    return cupy.asarray(cost)


def device_array(cost: Any) -> MatrixOnDevice:
    """Return a matrix in device memory, in place."""
    array = seen_on_device(cost)
    if array.dtype == np.bool_:
        array = array.view(np.uint8)
    if np.dtype(array.dtype) not in SCANNABLE:
        names = ", ".join(str(d) for d in SCANNABLE)
        raise DtypeError(f"the device array has dtype {array.dtype}; device kernels take {names}")
    cost_shape(array.shape, "the device array")
    return MatrixOnDevice(array)


def place(
    source: CostSource,
    device: int,
    limit: int | None,
    tick: Callable[[], None] | None = None,
    cache: Any = None,
) -> CostSource:
    """Return the costs as a source that kernels of the device can read.

    Computed costs are computed there; costs in device memory are used in place; others are copied
    to the device if they fit in its free memory and in ``limit`` bytes. Otherwise their rows are
    streamed when read, see ``StreamedToDevice``.
    """
    if isinstance(source, OnDevice):
        if source.device != device:
            raise OptionError(f"the costs lie on cuda:{source.device}, but device is 'cuda:{device}'")
        return source
    if isinstance(source, Placeable):
        return source.on_device(device)
    code = source_code(source)
    if code is not None:
        return ComputedOnDevice(source.shape, device, code, source)
    room = free_bytes(device)
    if needed_bytes(source) <= (room if limit is None else min(limit, room)):
        with suppress(DeviceMemoryError):  # free memory may be fragmented, or taken since
            return _copied(source, device, tick or (lambda: None))
    return StreamedToDevice(source, device, limit, cache)


def needed_bytes(source: CostSource) -> int:
    """Return the bytes of the whole matrix."""
    return math.prod(source.shape) * source.dtype.itemsize


def _copied(source: CostSource, device: int, tick: Callable[[], None]) -> MatrixOnDevice:
    """Copy the costs to device memory, in panels of rows from pinned memory."""
    n, m = source.shape
    with on(device):
        array = empty((n, m), source.dtype, "the costs")
        for start, panel in panels(source, np.arange(n), tick):
            bring(array[start : start + len(panel)], panel)
    return MatrixOnDevice(array, source)
