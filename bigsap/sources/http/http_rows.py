"""Rows from a remote provider over HTTP: ``from_http``.

The wire format
===============

A provider is one http or https address that answers two requests. It can be written in
any language from this page; ``examples/provider.py`` is one.

**1. GET: the description.** Status 200, ``Content-Type: application/json``, at most
64 KiB, no ``Content-Encoding``; a JSON object::

    {"shape": [1000, 2000], "dtype": "<f8", "fingerprint": "3f9a...", "max_rows": 64}

``shape``: [n_rows, n_columns]. ``dtype``: the type of one cost, little-endian, one of
``<f8 <f4 <f2 <i8 <i4 <i2 |i1 <u8 <u4 <u2 |u1`` (IEEE 754 floats, two's complement
integers; the digit counts bytes). ``fingerprint``: 1 to 256 printable ASCII characters
without spaces that change whenever any cost, the shape or the dtype changes (a hash, a
version number, a modification time). ``max_rows`` (optional): the most rows one request may
ask for. Other keys are ignored.

**2. POST: rows.** The body is k >= 1 row ids, each a signed 64-bit little-endian integer,
ascending and distinct, 0 <= id < n_rows, with ``Content-Type: application/octet-stream``.
The answer has status 200 and

- ``Content-Type: application/octet-stream``, no ``Content-Encoding``,
- ``BigSAP-Fingerprint``: the fingerprint of the data that these rows were taken from,
- ``BigSAP-Dtype``: the dtype of these costs, spelt as in the description,
- ``Content-Length`` (recommended, or chunked transfer): k * (8 + n_columns * itemsize),
- a body of k records in the order asked, each the row's id (signed 64-bit, little-endian)
  followed at once by its n_columns costs, little-endian, nothing between records.

A forbidden pair is ``+inf`` (``-inf`` when maximising). The same request may be repeated,
and several come at once, on connections kept open.

**3. Errors.** 408, 425, 429 and any 5xx mean *retry*; ``Retry-After`` (seconds or a
date) is honoured up to 30 s. A broken connection or a timeout is retried too.
Any other status ends the solve, redirects included: they are refused, so that rows only
come from the user's address. An answer of another length, type, dtype, id or fingerprint
ends it too. Authentication is done by headers (``headers=``) or by the connection
(``client=``).
"""

from __future__ import annotations

import math
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from bigsap.errors import BigsapError, DtypeError, OptionError, ShapeError, SourceError, StoreError, number
from bigsap.notebook import Shown
from bigsap.sources.base import CostSource
from bigsap.sources.convert import check_rows, convert, cost_dtype, cost_shape
from bigsap.sources.http.fetcher import Fetcher, Ticket
from bigsap.sources.http.wire import Abandoned, Wire, name_rows
from bigsap.sources.http.wire_format import WIRE_DTYPES, Description, agree, digest
from bigsap.types import Array, Ids

#: A request asks for about this many bytes unless ``block_rows`` says otherwise.
BLOCK_BYTES = 1 << 20

_MOST_IN_FLIGHT = 64


def from_http(
    url: str,
    shape: Sequence[int],
    dtype: Any,
    *,
    headers: Mapping[str, str] | None = None,
    timeout: float = 30.0,
    retries: int = 4,
    in_flight: int = 4,
    block_rows: int | None = None,
    client: Any = None,
) -> CostSource:
    """Return costs whose rows a remote provider computes or stores.

    url: http or https address of the provider; the wire format that it must implement is in
        ``help(bigsap.sources.http.http_rows)``.
    shape, dtype: expected of the provider; requested from it at once, and compared.
    headers: sent with every request (tokens); never repeated in an error.
    timeout: seconds for one attempt at one request; all attempts and pauses of a
        request together take at most (retries + 1) * timeout.
    retries: further attempts after broken connections, timeouts, 408, 425, 429 and 5xx, with
        pauses that double from 0.1 s to 5 s, shortened at random by up to a half.
    in_flight: requests at a time, each on a connection that is kept open.
    block_rows: rows in one request at most; by default about 1 MiB of them. Rows read one
        after another, upwards or downwards, are fetched ahead of the reader: never more
        than have been read that way, and at most in_flight * block_rows. A row read out
        of order costs exactly that row.
    client: a ``httpx.Client`` of your own (certificates, proxies, authentication); not
        closed with the source.

    Raises ``OptionError`` for bad arguments or without httpx, ``ShapeError`` and ``DtypeError`` if
    the provider has another shape or dtype, ``StoreError`` if the address is not a provider,
    ``SourceError`` if it cannot be reached. Later, ``read`` raises ``StoreError`` for a damaged
    answer, a redirect, a status such as 404, or changed data, which a retry would not change, and
    ``SourceError`` when all attempts have failed. All name rows and address. Memory: 2 * in_flight
    * block_rows rows. Close it, or use it in a ``with`` statement; a source that is
    garbage-collected closes itself.
    """
    n_rows, n_columns = cost_shape(shape, "shape=")
    wire_dtype = _wire_dtype(dtype)
    if 8 + n_columns * wire_dtype.itemsize > np.iinfo(np.intc).max:
        raise ShapeError(f"a row of {n_columns} costs of {wire_dtype} exceeds 2 GiB, the most that is sent")
    seconds = number(timeout)
    if seconds is None or not 0 < seconds < math.inf:
        raise OptionError(f"timeout must be a positive number of seconds, got {timeout!r}")
    _check_count("retries", retries, 0, 1000)
    _check_count("in_flight", in_flight, 1, _MOST_IN_FLIGHT)
    if block_rows is not None:
        _check_count("block_rows", block_rows, 1, None)
    wire = Wire(url, headers, float(seconds), retries, in_flight, client)
    fetcher = Fetcher(wire.rows, wire.close, in_flight)
    try:
        known = _result(fetcher, fetcher.demand(wire.describe), wire, None, "the description")
        agree(known, (n_rows, n_columns), wire_dtype, wire.shown)
    except BaseException:
        fetcher.close(0.2)
        raise
    wire.expect(known)
    height = block_rows or max(1, BLOCK_BYTES // wire.record.itemsize)
    fetcher.block_rows = max(1, min(height, n_rows or 1, known.max_rows or height))
    return HttpSource(wire, fetcher, known)


class HttpSource(Shown):
    """Rows of a provider, fetched in blocks, several at a time, ahead of sequential readers.

    ``read`` and ``prefetch`` may be called from any thread.
    """

    def __init__(self, wire: Wire, fetcher: Fetcher, known: Description) -> None:
        self.shape = known.shape
        self.dtype = cost_dtype(known.dtype, wire.shown)
        self._wire = wire
        self._fetcher = fetcher
        self._known = known
        self._local = threading.local()
        self._lock = threading.Lock()
        self._n_delivered = 0
        # First and last row of the last read of consecutive rows, and the number read in sequence.
        self._last: tuple[int, int] = (-2, -2)
        self._direction = 0
        self._streak = 0
        weakref.finalize(self, fetcher.shut)

    def __repr__(self) -> str:
        return f"from_http({self._wire.shown!r}, {self.shape}, {self._known.dtype.str!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the arguments: connections belong to one process."""
        wire, fetcher = self._wire, self._fetcher
        if not wire._own:
            raise TypeError(
                "from_http with a client of your own cannot be pickled, copied or sent to the"
                " workers of a cluster: the client's connections are this process's"
            )
        again = partial(
            from_http,
            headers=dict(wire._headers),
            timeout=wire._timeout,
            retries=wire._retries,
            in_flight=fetcher.in_flight,
            block_rows=fetcher.block_rows,
        )
        return again, (wire.url, self.shape, self._known.dtype)

    def __enter__(self) -> HttpSource:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the threads and close the connections. Later reads are errors."""
        self._fetcher.close()

    def address(self) -> tuple[str, str, bool]:
        """Return the provider's address and dtype, and whether requests carry headers of the user's."""
        return self._wire.url, self._known.dtype.str, self._wire.has_headers

    @property
    def counts(self) -> dict[str, int]:
        """Counters of requests and received rows.

        requests, retries: sent to the provider. rows, bytes: received. rows_unused: fetched ahead
        and not yet read.
        """
        wire, rows = self._wire, self._fetcher.n_rows
        return {
            "requests": wire.n_requests,
            "retries": wire.n_retries,
            "rows": rows,
            "rows_unused": rows - self._n_delivered,
            "bytes": wire.n_bytes,
        }

    def fingerprint(self) -> str:
        """Return a digest of the provider's shape, dtype and fingerprint, without a request."""
        return digest(self._known)

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        """Have ``check`` called some twenty times a second while a read of this thread waits.

        An exception that it raises ends the read at once and abandons its requests. None: no more
        checks.
        """
        self._local.check = check

    def prefetch(self, row: int) -> None:
        """Fetch ``row``, which will probably be needed soon. Returns at once, never raises."""
        if 0 <= row < self.shape[0] and self._wire.changed is None:
            self._fetcher.hint([int(row)])

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with ``cost[rows[k], columns]``; whole rows are sent, each once."""
        check_rows(rows, self.shape[0])
        if self._wire.changed is not None:
            raise StoreError(f"{self._wire.shown}: {self._wire.changed}")
        if rows.size == 0 or columns.start == columns.stop:
            return
        order = np.argsort(rows, kind="stable")
        ordered = rows[order].astype(np.int64)
        wanted = np.unique(ordered)
        fetcher, height = self._fetcher, self._fetcher.block_rows
        held, missing = fetcher.claim(wanted)
        blocks = deque(missing[k : k + height] for k in range(0, missing.size, height))
        asked: deque[Ticket] = deque()

        def place(ticket: Ticket, ids: Array) -> None:
            costs = ticket.value["cost"][:, columns]
            for row, at in zip(ids, np.searchsorted(ticket.ids, ids), strict=True):
                first, last = np.searchsorted(ordered, [row, row + 1])
                for k in order[first:last]:
                    convert(costs[at : at + 1], out[k : k + 1], np.array([row]), columns.start)
            with self._lock:
                self._n_delivered += ids.size

        try:
            self._refill(blocks, asked)
            self._look_ahead(rows)
            for ticket, found in held:
                ids = np.array(found, np.int64)
                if self._arrived(ticket):
                    place(ticket, ids)
                else:
                    blocks.append(ids)
            while asked or blocks:
                self._refill(blocks, asked)
                ticket = asked[0]
                self._value(ticket)
                place(ticket, ticket.ids)
                asked.popleft()
        except BaseException:
            fetcher.abandon([*asked, *(ticket for ticket, _ in held)])
            raise

    def _refill(self, blocks: deque[Array], asked: deque[Ticket]) -> None:
        """Keep a few demanded requests in flight."""
        while blocks and len(asked) < self._fetcher.in_flight:
            asked.append(self._fetcher.demand_rows(blocks.popleft()))

    def _check(self) -> Callable[[], None] | None:
        check: Callable[[], None] | None = getattr(self._local, "check", None)
        return check

    def _arrived(self, ticket: Ticket) -> bool:
        """Wait for rows fetched ahead; return False if that failed and they must be requested."""
        done = self._fetcher.wait(ticket, self._wire.patience, self._check())
        return done and ticket.error is None

    def _value(self, ticket: Ticket) -> Any:
        return _result(self._fetcher, ticket, self._wire, self._check(), name_rows(ticket.ids))

    def _look_ahead(self, rows: Ids) -> None:
        """Fetch rows ahead in the direction of the last reads, if there is one.

        As many rows as were read in that direction, so that no more than half of the fetched rows
        can be useless, and at most the fetcher's capacity.
        """
        fetcher, first, last = self._fetcher, int(rows[0]), int(rows[-1])
        with self._lock:
            low, high = min(first, last), max(first, last)
            run = high - low + 1 == rows.size and bool((abs(np.diff(rows)) == 1).all())
            direction = (low == self._last[1] + 1) - (high == self._last[0] - 1) if run else 0
            goes_on = direction != 0 and direction * self._direction >= 0
            if not goes_on and self._streak and self._direction:
                fetcher.forget_hints()
            self._direction = direction
            self._streak = self._streak + rows.size if goes_on else rows.size * run
            self._last = (low, high) if run else (-2, -2)
            if not goes_on:
                return
            window = min(self._streak, fetcher.capacity)
            # Refill in blocks, not row by row.
            if window - fetcher.n_ahead < max(1, window // fetcher.in_flight):
                return
            if direction > 0:
                ahead = range(high + 1, min(high + 1 + window, self.shape[0]))
            else:
                ahead = range(low - 1, max(low - 1 - window, -1), -1)
        fetcher.hint(ahead)


def _result(fetcher: Fetcher, ticket: Ticket, wire: Wire, check: Callable[[], None] | None, what: str) -> Any:
    """Return the answer to a demanded request; raise a new error on failure."""
    # Slightly longer than the request's own limit: only a peer that sends single bytes of a header
    # can exceed its own timeouts.
    if not fetcher.wait(ticket, wire.patience + 1.0, check):
        ticket.stop.set()
        raise SourceError(f"{what} from {wire.shown}: no complete answer within {wire.patience:g} s")
    error = ticket.error
    if error is None:
        return ticket.value
    if isinstance(error, BigsapError):
        raise type(error)(*error.args)
    if isinstance(error, Abandoned):
        raise SourceError(f"{what} from {wire.shown}: this source is closed")
    raise SourceError(f"{what} from {wire.shown}: {type(error).__name__}") from error


def _wire_dtype(dtype: Any) -> np.dtype[Any]:
    if dtype is None:  # numpy would read None as float64
        raise DtypeError("dtype=None; say what the provider sends")
    try:
        given = np.dtype(dtype)
    except TypeError:
        raise DtypeError(f"dtype={dtype!r} is no numpy dtype") from None
    for known in WIRE_DTYPES.values():
        if given.kind == known.kind and given.itemsize == known.itemsize:
            return known
    names = ", ".join(known.name for known in WIRE_DTYPES.values())
    raise DtypeError(f"dtype={given} cannot be sent; a provider has one of {names}")


def _check_count(name: str, value: Any, least: int, most: int | None) -> None:
    wrong = isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < least
    if wrong or (most is not None and value > most):
        limits = f">= {least}" if most is None else f"from {least} to {most}"
        raise OptionError(f"{name} must be an integer {limits}, got {value!r}")
