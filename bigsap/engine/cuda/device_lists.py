"""Engine for compressed rows with evaluations on a device.

``DeviceListEngine`` evaluates batches of rows in two kernels (``kernels_lists.cu``). The lists are
copied to the host, which searches. Rows that a search requests one by one are evaluated by the host
if bounds make that cheap, at once on the device if matrix products do; otherwise they are collected
and evaluated together on the device.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np

from bigsap import policy
from bigsap.engine.core.precision import refuse_large
from bigsap.engine.core.team import Team
from bigsap.engine.cuda import kernel_texts
from bigsap.engine.cuda.batch import SIDE, Batch, Entries
from bigsap.engine.cuda.few_rows import TOGETHER, FewRows
from bigsap.engine.cuda.products import largest_price, products_of
from bigsap.engine.cuda.row_cache import DeviceRows
from bigsap.engine.cuda.wait import Wait
from bigsap.engine.lists.bounded_evaluation import run_evaluations
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.lists.products import useful_products
from bigsap.engine.lists.store import Wave
from bigsap.errors import DeviceMemoryError
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources.cuda.code import DeviceCode
from bigsap.sources.cuda.device_kernels import Kernels, compiled, load_cupy, on
from bigsap.sources.cuda.device_memory import empty, give_back, pinned
from bigsap.sources.cuda.placed import ComputedOnDevice, OnDevice, StreamedToDevice
from bigsap.types import Array

#: Rows that a block of bigsap_tiles processes together.
ROWS = 8
#: Limit of groups of a row: their minima must fit into shared memory.
_MOST_GROUPS = 8192
_LEAST_SPAN = 8
#: Limit of groups that can wait to be opened, see bigsap_select.
_LIST = 1024
#: Pairs, and bytes of group minima, of one batch: some hundredths of a second of work.
_PAIRS = 1 << 36
_BYTES = 256 << 20
#: Rows of up to this many columns are evaluated by the host when a search requests one.
_SHORT = 1 << 15
#: Scans for which a waiting search continues, see ``Rules``.
_GATHER = 64
#: Dynamic shared memory of bigsap_select, of which it uses less: with 33 KB of its own 89 KB, which devices
#: since the V100 (but not T4) have.
_SELECT_BYTES = 56 << 10
#: Guesses a hit where they take no time: without limit once one of the first was of use.
_FREE = 1 << 30
#: Longest list that bigsap_select can sort.
MOST_ENTRIES = 1000
#: Rows per strip of the transform.
_STRIP = 256


def span(n_columns: int) -> int:
    """Return the columns per group: a power of two that limits the number of groups of a row."""
    size = _LEAST_SPAN
    while -(-n_columns // (SIDE * size)) * SIDE > _MOST_GROUPS:
        size *= 2
    return size


class _Begun(NamedTuple):
    """A batch that the device works on: its rows, their lists in pinned memory, and when it is done."""

    rows: Array
    found: Entries
    done: Any


class DeviceListEngine(ListEngine):
    """``ListEngine`` whose evaluations of many rows run on a device.

    Device memory besides the costs: the current batch, up to 1.5 GB, and ``FewRows``.
    """

    def __init__(
        self, problem: Problem, team: Team, monitor: Monitor, price: np.dtype[Any], k: int, seed: int
    ) -> None:
        super().__init__(problem, team, monitor, price, k, seed)
        source = problem.source
        assert isinstance(source, (OnDevice, StreamedToDevice))
        self.device = source.device
        #: Cache for rows of costs that do not fit the device.
        self.cache = DeviceRows(source) if isinstance(source, StreamedToDevice) else None
        if self.blocks.offset.size and self.blocks.low.shape[0] > policy.FEW_COORDINATES:
            super().drop_bounds()
        self.span = span(problem.shape[1])
        self._wait = Wait(self.device)
        #: Rows of the last waves that were evaluated by products of float16, and the costs computed for them;
        #: and whether these decide what multiplies.
        self._by_half, self._judges_half = np.zeros(2, np.int64), True
        with on(self.device):
            self._products = None
            if isinstance(source, ComputedOnDevice) and self.price.kind == "f":
                self._products = products_of(source)
        if isinstance(source, ComputedOnDevice) and self.from_fill and self._products is None:
            self.products = useful_products(source.host, self.terms, seed, team)
        if not self.blocks.offset.size and (self.from_fill or problem.shape[1] > _SHORT):
            self.immediate = self.by_products
        self.gather = 0 if self.immediate else _GATHER
        self.waves_are_cheap = self._products is not None
        if self.waves_are_cheap:
            self.together, self.guesses = TOGETHER, _FREE
        self._judged = isinstance(source, OnDevice) and source.code().trusted
        self._relative = not self.from_fill
        self._looked = np.zeros(problem.shape[0], bool)
        self._few: FewRows | None = None
        #: Whether the host's products were sought, which only lists too long for the device need.
        self._asked_host = False

    def _kernels(self, code: DeviceCode, with_free: bool) -> Kernels:
        settings = {
            "SPAN": self.span,
            "ROWS": ROWS,
            "WITH_FREE": int(with_free),
            "WIDTH": code.width,
            "PRICE_IS_INT": int(self.price.kind == "i"),
            "SIGN": self.problem.sign,
            "PHI": 0 if self._products is None else self._products.phi,
            "HALF_INNER": int(self._products is not None and self._products.half),
        }
        return compiled(self.device, code, kernel_texts.ROWS, tuple(sorted(settings.items())))

    def release(self) -> None:
        """Free what evaluations need on the device, at the end of the search."""
        n_bytes = 0 if self._products is None else self._products.n_bytes
        self._products = self._few = None
        with on(self.device):
            give_back(n_bytes)

    def drop_bounds(self) -> None:
        """Keep the bounds, which the host uses for rows requested by a search.

        They were judged by the device's evaluations, which read whole rows.
        """

    def go_through(self, wave: Wave) -> None:
        """Evaluate all rows of a wave; after a restart too."""
        rows = wave.rows
        width = self.lists.width[rows]
        for k in np.unique(width).tolist():
            some = rows[width == k]
            if k > MOST_ENTRIES:
                super().go_through(Wave(some, self.lists.theta[:0]))
            else:
                with on(self.device):
                    self._evaluate_there(some, int(k), self.v)
        wave.done = (rows.size, 0)

    def _judge_half(self) -> None:
        """Multiply in float64 from now on, where bounds by float16 exclude too little."""
        n_rows, n_computed = self._by_half.tolist()
        if n_rows < self.lists.size.size // policy.DEVICE_HALF_ROWS:
            return  # a few hard rows say nothing of the others
        allowed = policy.DEVICE_HALF_LEFT * self.terms.n_columns + policy.DEVICE_HALF_COSTS
        if n_computed <= allowed * n_rows:
            return
        source = self.problem.source
        assert isinstance(source, ComputedOnDevice)
        self._judges_half = False
        with on(self.device):
            self._products = self._few = None  # their memory is used again
            with suppress(DeviceMemoryError):
                self._products = products_of(source, half=False)
            # After the error, which holds what was copied. Bounds by float16 are slow there, and as valid.
            if self._products is None:
                self._products = products_of(source)

    @property
    def by_products(self) -> bool:
        """Whether rows that a search asks for are evaluated by matrix products, there or here."""
        if self._products is None or not self.from_fill or self.blocks.offset.size:
            return super().by_products
        return self._products.useful(self.problem.sign)

    def evaluate_by_products(self, rows: Array, v: Array) -> int:
        """Evaluate rows that a search asks for under prices ``v``."""
        width = self.lists.width[rows]
        if self._products is None:
            return super().evaluate_by_products(rows, v)
        wide = width > MOST_ENTRIES
        if wide.any():
            bad = self._evaluate_wide(rows[wide], v)
            if bad >= 0:
                return bad
            rows, width = rows[~wide], width[~wide]
        with on(self.device):
            for k in np.unique(width).tolist():
                some = rows[width == k]
                for start in range(0, some.size, TOGETHER):
                    self._evaluate_few(some[start : start + TOGETHER], int(k), v)
        return -1

    def _evaluate_wide(self, rows: Array, v: Array) -> int:
        """Evaluate rows whose lists are too long for the device; return as ``evaluate_by_products``."""
        if not self._asked_host:
            self._asked_host, source = True, self.problem.source
            host = source.host if isinstance(source, ComputedOnDevice) else None
            self.products = useful_products(host, self.terms, self.seed, self.team)
        if self.products is not None:
            return super().evaluate_by_products(rows, v)
        counts = self.lists.counts
        counts.next_item, counts.bad_row = 0, -1
        evaluator = self.evaluator(self.slots, self.scratches)
        self.team.run_claims(run_evaluations, rows, False, v, self.open_price, evaluator, self.lists)
        counts.evaluations += rows.size
        return int(counts.bad_row)

    def _evaluate_few(self, rows: Array, k: int, shown: Array) -> None:
        """Evaluate lists of k entries of up to ``TOGETHER`` rows; limits are not looked at."""
        source, products = self.problem.source, self._products
        assert isinstance(source, OnDevice)
        assert products is not None
        groups, chunks = self._groups()
        if self._few is None:
            self._few = FewRows(self.terms.n_columns, groups, chunks, MOST_ENTRIES, self.price, products.item)
        with_free = bool((self.open_price != shown).any())
        kernels = self._kernels(source.code(), with_free)
        reference = self.lists.reference[rows]
        slack = products.slack(rows, reference, largest_price(self.v))
        offered = self.open_price if with_free else None
        batch = self._few.send(rows, reference, slack, shown, offered, k)
        products.few(batch.ids[0, : rows.size], batch.inner[: rows.size])
        self._launch(kernels, source.words(), batch, rows.size, k)
        self._store(rows, self._few.fetch(batch, rows.size, k))

    def _groups(self) -> tuple[int, int]:
        """Return the number of groups of a row, and of chunks of them."""
        chunks = -(-self.terms.n_columns // (SIDE * self.span))
        return chunks * SIDE, chunks

    def _evaluate_there(self, rows: Array, k: int, shown: Array) -> None:
        """Evaluate lists of k entries under prices ``shown``."""
        cupy = load_cupy()
        source = self.problem.source
        m = self.terms.n_columns
        # If every column is free, the best free one is the best of all.
        with_free = bool((self.open_price != shown).any())
        v = cupy.asarray(shown)
        offered = cupy.asarray(self.open_price) if with_free else v
        groups, _ = self._groups()
        most = max(ROWS, min(_PAIRS // m, _BYTES // (4 * groups)))
        if self._by_half[0] >= self.lists.size.size:
            self._by_half[:] = 0
        largest = largest_price(self.v) if self._products is not None else 0.0

        def begin(code: DeviceCode, words: Any, ids: Array, places: Array) -> _Begun:
            return self._begin(code, words, ids, places, k, v, offered, with_free, largest)

        if isinstance(source, OnDevice):
            parts = self._parts(rows, most)
            self._in_turn(begin(source.code(), source.words(), part, part) for part in parts)
            return
        assert self.cache is not None
        self.cache.go_over(
            rows,
            most,
            self.monitor.tick,
            lambda code: self._kernels(code, with_free),
            lambda *given: self._finish(begin(*given)),
        )

    def _parts(self, rows: Array, most: int) -> Iterator[Array]:
        """Yield the rows of each batch, at most so many, as the products are when it begins."""
        start = 0
        while start < rows.size:
            step = most if self._products is None else min(most, self._products.rows_at_once())
            yield rows[start : start + step]
            start += step

    def _in_turn(self, batches: Iterator[_Begun]) -> None:
        """Store the lists of each batch while the device works on the next."""
        before: _Begun | None = None
        try:
            for batch in batches:
                if before is not None:
                    self._finish(before)
                before = batch
            if before is not None:
                self._finish(before)
        finally:
            # After an error too: copies to pinned memory must end before it is used again.
            load_cupy().cuda.get_current_stream().synchronize()

    def _begin(
        self,
        code: DeviceCode,
        words: Any,
        rows: Array,
        places: Array,
        k: int,
        v: Any,
        offered: Any,
        with_free: bool,
        largest: float,
    ) -> _Begun:
        """Launch the evaluation of ``rows``, whose costs are at ``places`` of the code's rows.

        Its arrays on the device are free when this returns: what comes later in the stream may
        overwrite them. largest: size of a price.
        """
        cupy = load_cupy()
        kernels, count = self._kernels(code, with_free), rows.size
        ids = cupy.asarray(np.stack((places, rows)).astype(np.int32))
        self._first_look(kernels, words, rows, ids[0])
        groups, chunks = self._groups()
        free_shape = (count, chunks) if with_free else (1, 1)
        reference: Any = self.lists.reference[rows]
        slack: Any = np.intp(0)
        inner: Any = np.intp(0)
        if self._products is None:
            reference = cupy.asarray(reference)
        else:
            slack = self._products.slack(rows, reference, largest)
            reference, slack = cupy.asarray(np.stack((reference, slack)))
            inner = self._products.of(ids[0])
        batch = Batch(
            ids,
            reference,
            slack,
            v,
            offered,
            lows=empty((count, groups), np.float32, "group minima"),
            free_low=cupy.empty(free_shape, self.price),
            free_at=cupy.empty(free_shape, np.int32),
            inner=inner,
            found=cupy.empty(Entries.n_bytes(count, k), np.uint8),
        )
        self._launch(kernels, words, batch, count, k)
        found = batch.found.get(out=pinned(batch.found.nbytes), blocking=False)
        return _Begun(rows, Entries.in_bytes(found, count, k, self.price), self._wait.mark())

    def _finish(self, batch: _Begun) -> None:
        """Wait for a batch and store its lists."""
        raised = self._wait.until_done(self.monitor.tick, [batch.done])
        if raised is not None:
            raise raised
        self._store(batch.rows, batch.found)
        if self._judges_half and self._products is not None and self._products.half:
            self._judge_half()
        self._tick()

    def _launch(self, kernels: Kernels, words: Any, batch: Batch, count: int, k: int) -> None:
        """Launch the evaluation of a batch of ``count`` rows."""
        m, n_rows, products = np.int32(self.terms.n_columns), np.int32(count), self._products
        n_groups, n_chunks = self._groups()
        there, names = batch.ids
        groups, prices = np.int32(n_groups), (batch.reference, batch.v, batch.offered)
        bounds: tuple[Any, ...] = (np.intp(0), np.intp(0), np.float64(0.0), np.float64(0.0))
        given: tuple[Any, ...]
        if products is None:
            given = (words, m, there, n_rows, *prices, groups, batch.lows, batch.free_low, batch.free_at)
            kernels.get("bigsap_tiles")((n_chunks, -(-count // ROWS)), (SIDE,), given)
        else:
            norms, errors = (products.row_norms, products.column_norms), (products.gamma, products.least)
            bounds = (*norms, *map(np.float64, errors))
            given = (batch.inner, m, there, n_rows, *bounds, *prices, groups, batch.lows, batch.free_low)
            kernels.get("bigsap_product_tiles")((n_chunks, count), (SIDE,), given)
        found = Entries.in_bytes(batch.found, count, k, self.price)
        costs = (words, m, there, names, n_rows, *prices, groups, batch.lows, batch.slack)
        free = (np.int32(n_chunks), batch.free_low, batch.free_at)
        lists = (np.int32(k), np.uint32(self.seed & 0xFFFFFFFF), found.ids, found.costs, found.sizes)
        kernels.get("bigsap_select", _SELECT_BYTES)(
            (count,),
            (SIDE,),
            (*costs, batch.inner, *bounds, *free, *lists, found.theta, found.opened),
            shared_mem=4 * (n_groups + _LIST),
        )

    def _first_look(self, kernels: Kernels, words: Any, rows: Array, there: Any) -> None:
        """Check the costs of rows never evaluated before, and set their references."""
        new = (self.lists.theta[rows] == -self.infinity) & ~self._looked[rows]
        self._looked[rows] = True
        if not new.any() or (self._judged and not self._relative):
            return
        cupy = load_cupy()
        count = int(new.sum())
        places = there[cupy.asarray(np.flatnonzero(new))]
        low, second = cupy.empty(count, self.price), cupy.empty(count, self.price)
        bad = cupy.full(1, np.iinfo(np.int32).max, np.int32)
        kernels.get("bigsap_survey")(
            (min(count, 1 << 14),),
            (SIDE,),
            (
                words,
                np.int32(self.terms.n_columns),
                places,
                np.int32(count),
                cupy.zeros(self.terms.n_columns, self.price),
                np.intp(0),
                self.terms.lowest,
                self.terms.highest,
                np.int32(1),
                low,
                second,
                bad,
            ),
        )
        first = int(bad[0])
        if first < np.iinfo(np.int32).max:
            row = int(rows[np.flatnonzero(there.get() == first)[0]])
            self._complain_of(row)
        if self._relative:
            least = low.get()
            finite = (least < self.infinity) & (least > -self.infinity)
            self.lists.reference[rows[new][finite]] = least[finite]

    def _complain_of(self, row: int) -> None:
        costs = np.empty((1, self.terms.n_columns), self.problem.source.dtype)
        self.problem.source.read(np.array([row]), slice(0, self.terms.n_columns), costs)
        self.problem.check_row(row, costs[0])
        if self.bounded_costs:
            refuse_large(self.problem, row, costs[0], self.limit, usual=self.price.kind == "f")
        self.complain(row)

    def _store(self, rows: Array, entries: Entries) -> None:
        lists, counts = self.lists, self.lists.counts
        n_computed = int(entries.opened.sum())
        counts.evaluations += rows.size
        counts.pairs += rows.size * self.terms.n_columns + n_computed
        self._by_half += rows.size, n_computed
        starts, (ids, costs) = lists.start[rows], entries[:2]
        k = ids.shape[1]
        if rows.size and (np.diff(starts) == k).all():
            where = slice(int(starts[0]), int(starts[0]) + k * rows.size)
            lists.ids[where], lists.costs[where] = ids.ravel(), costs.ravel()
        else:
            places = starts[:, None] + np.arange(k)
            lists.ids[places], lists.costs[places] = ids, costs
        lists.size[rows], lists.theta[rows] = entries.sizes, entries.theta


def device_transform(problem: Problem, rows: Array, u: Array, price: np.dtype[Any]) -> Array:
    """Compute ``v[j] = min over rows of (c[i, j] - u[i])`` on the device that holds the costs."""
    cupy = load_cupy()
    source: Any = problem.source
    m, code = problem.shape[1], source.code()
    settings = {
        "SPAN": _LEAST_SPAN,
        "ROWS": ROWS,
        "WITH_FREE": 0,
        "WIDTH": code.width,
        "PRICE_IS_INT": int(price.kind == "i"),
        "SIGN": problem.sign,
    }
    with on(source.device):
        kernels = compiled(source.device, code, kernel_texts.ROWS, tuple(sorted(settings.items())))
        strip = max(_STRIP, -(-rows.size // 512))
        strips = -(-rows.size // strip)
        parts = empty((strips, m), price, "first prices")
        least, unused = cupy.empty(m, price), cupy.empty(m, price)
        wide = -(-m // SIDE)
        kernels.get("bigsap_transform")(
            (wide, strips),
            (SIDE,),
            (
                source.words(),
                cupy.asarray(rows.astype(np.int32)),
                np.int32(rows.size),
                np.int32(m),
                cupy.asarray(u.astype(price)),
                np.int32(strip),
                parts,
            ),
        )
        kernels.get("bigsap_merge")(
            (wide,), (SIDE,), (np.int32(strips), np.int32(m), parts, parts, least, unused)
        )
        found: Array = least.get()
        return found
