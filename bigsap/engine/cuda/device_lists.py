"""Engine for compressed rows with evaluations on a device.

``DeviceListEngine`` evaluates batches of rows in two kernels (``kernels_lists.cu``). The lists are
copied to the host, which searches. Rows that a search requests one by one are evaluated by the host
if bounds make that cheap, at once on the device if matrix products do; otherwise they are collected
and evaluated together on the device.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from bigsap import policy
from bigsap.engine.core.precision import refuse_large
from bigsap.engine.core.team import Team
from bigsap.engine.cuda import kernel_texts
from bigsap.engine.cuda.products import products_of
from bigsap.engine.cuda.row_cache import DeviceRows
from bigsap.engine.cuda.wait import Wait
from bigsap.engine.lists.bounded_evaluation import run_evaluations
from bigsap.engine.lists.list_engine import ListEngine
from bigsap.engine.lists.products import useful_products
from bigsap.engine.lists.store import Wave
from bigsap.problem import Problem
from bigsap.progress import Monitor
from bigsap.sources.cuda.code import DeviceCode
from bigsap.sources.cuda.device_kernels import Kernels, compiled, load_cupy, on
from bigsap.sources.cuda.device_memory import empty
from bigsap.sources.cuda.placed import ComputedOnDevice, OnDevice, StreamedToDevice
from bigsap.types import Array

#: Threads of a block, and distance between two columns of a group: SIDE in kernels_rows.cu.
SIDE = 256
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


def group_of(column: Array, size: int) -> Array:
    """Return the group that holds a column; see bigsap_tiles."""
    return column // (SIDE * size) * SIDE + column % SIDE


def columns_of(group: Array, size: int) -> Array:
    """Return the columns of a group, (..., size), including those beyond the matrix."""
    first = group // SIDE * (SIDE * size) + group % SIDE
    return np.asarray(first)[..., None] + np.arange(size) * SIDE


class _Entries(NamedTuple):
    """Lists of some rows: ids and costs (rows, k); their sizes, thresholds, and columns opened (rows,)."""

    ids: Any
    costs: Any
    sizes: Any
    theta: Any
    opened: Any

    @staticmethod
    def n_bytes(count: int, k: int) -> int:
        """Return the bytes they take together."""
        return count * (12 * k + 20)

    @classmethod
    def in_bytes(cls, data: Any, count: int, k: int, price: np.dtype[Any]) -> _Entries:
        """Return their arrays in one of bytes, so that all are copied at once."""
        wide, narrow = data[: count * (8 * k + 16)], data[count * (8 * k + 16) :].view(np.int32)
        costs, theta = wide.view(price)[: count * k], wide.view(price)[count * k : count * (k + 1)]
        opened, ids, sizes = wide.view(np.uint64)[count * (k + 1) :], narrow[: count * k], narrow[count * k :]
        return cls(ids.reshape(count, k), costs.reshape(count, k), sizes, theta, opened)


class DeviceListEngine(ListEngine):
    """``ListEngine`` whose evaluations of many rows run on a device.

    Device memory besides the costs: the current batch, some hundred megabytes at most.
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
        with on(self.device):
            form = source.code().product if isinstance(source, OnDevice) and self.price.kind == "f" else None
            self._products = products_of(form)
        if isinstance(source, ComputedOnDevice) and self.from_fill and self._products is None:
            self.products = useful_products(source.host, self.terms, seed, team)
        if not self.blocks.offset.size and (self.from_fill or problem.shape[1] > _SHORT):
            self.immediate = self.by_products
        self.gather = 0 if self.immediate else _GATHER
        self.waves_are_cheap = self._products is not None
        self._judged = isinstance(source, OnDevice) and source.code().trusted
        self._relative = not self.from_fill
        self._looked = np.zeros(problem.shape[0], bool)

    def _kernels(self, code: DeviceCode, with_free: bool) -> Kernels:
        settings = {
            "SPAN": self.span,
            "ROWS": ROWS,
            "WITH_FREE": int(with_free),
            "WIDTH": code.width,
            "PRICE_IS_INT": int(self.price.kind == "i"),
            "SIGN": self.problem.sign,
            "PHI": 0 if self._products is None else self._products.phi,
        }
        return compiled(self.device, code, kernel_texts.ROWS, tuple(sorted(settings.items())))

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
        if width.max(initial=0) > MOST_ENTRIES:
            counts = self.lists.counts
            counts.next_item, counts.bad_row = 0, -1
            evaluator = self.evaluator(self.slots, self.scratches)
            self.team.run_claims(run_evaluations, rows, False, v, self.open_price, evaluator, self.lists)
            counts.evaluations += rows.size
            return int(counts.bad_row)
        with on(self.device):
            for k in np.unique(width).tolist():
                self._evaluate_there(rows[width == k], int(k), v, within=True)
        return -1

    def _evaluate_there(self, rows: Array, k: int, shown: Array, *, within: bool = False) -> None:
        """Evaluate lists of k entries under prices ``shown``. within: a search, which must not be stopped."""
        cupy = load_cupy()
        source = self.problem.source
        m = self.terms.n_columns
        # If every column is free, the best free one is the best of all.
        with_free = bool((self.open_price != shown).any())
        v = cupy.asarray(shown)
        offered = cupy.asarray(self.open_price) if with_free else v
        groups = -(-m // (SIDE * self.span)) * SIDE
        most = max(ROWS, min(_PAIRS // m, _BYTES // (4 * groups)))
        if self._products is not None:
            most = min(most, self._products.rows_at_once())
        if isinstance(source, OnDevice):
            for start in range(0, rows.size, most):
                part = rows[start : start + most]
                given = (part, part, k, v, offered, with_free)
                self._batch_there(source.code(), source.words(), *given, within=within)
            return
        assert self.cache is not None

        def evaluate(code: DeviceCode, words: Any, ids: Array, places: Array) -> None:
            self._batch_there(code, words, ids, places, k, v, offered, with_free)

        self.cache.go_over(
            rows, most, self.monitor.tick, lambda code: self._kernels(code, with_free), evaluate
        )

    def _batch_there(
        self,
        code: DeviceCode,
        words: Any,
        rows: Array,
        places: Array,
        k: int,
        v: Any,
        offered: Any,
        with_free: bool,
        *,
        within: bool = False,
    ) -> None:
        """Evaluate the lists of ``rows``, whose costs are at ``places`` of the code's rows."""
        cupy = load_cupy()
        kernels = self._kernels(code, with_free)
        ids = cupy.asarray(np.stack((places, rows)).astype(np.int32))
        self._first_look(kernels, words, rows, ids[0])
        found = self._lists_there(kernels, words, rows, ids, k, v, offered, with_free)
        if not within:
            raised = self._wait.until_done(self.monitor.tick)
            if raised is not None:
                raise raised
        entries = _Entries.in_bytes(found.get(), rows.size, k, self.price)
        counts = self.lists.counts
        counts.evaluations += rows.size
        counts.pairs += rows.size * self.terms.n_columns + int(entries.opened.sum())
        self._store(rows, entries)
        if not within:
            self._tick()

    def _lists_there(
        self,
        kernels: Kernels,
        words: Any,
        rows: Array,
        ids: Any,
        k: int,
        v: Any,
        offered: Any,
        with_free: bool,
    ) -> Any:
        """Launch an evaluation; return a device array, the bytes of ``_Entries``.

        ids: (2, rows), where the rows' costs are, and the rows.
        """
        cupy = load_cupy()
        m, count = self.terms.n_columns, rows.size
        chunks = -(-m // (SIDE * self.span))
        groups = chunks * SIDE
        lows = empty((count, groups), np.float32, "group minima")
        free_shape = (count, chunks) if with_free else (1, 1)
        free_low, free_at = cupy.empty(free_shape, self.price), cupy.empty(free_shape, np.int32)
        products, slack, reference = self._products, np.intp(0), self.lists.reference[rows]
        bounds: tuple[Any, ...] = (np.intp(0), np.intp(0), np.intp(0), np.float64(0.0))
        given: tuple[Any, ...]
        if products is None:
            reference = cupy.asarray(reference)
            grid = (chunks, -(-count // ROWS))
            given = (words, np.int32(m), ids[0], np.int32(count), reference, v, offered, np.int32(groups))
            kernels.get("bigsap_tiles")(grid, (SIDE,), (*given, lows, free_low, free_at))
        else:
            reference, slack = cupy.asarray(np.stack((reference, products.slack(rows, reference, self.v))))
            norms = (products.row_norms, products.column_norms, np.float64(products.gamma))
            bounds = (products.of(ids[0]), *norms)
            given = (bounds[0], np.int32(m), ids[0], np.int32(count), *norms)
            given = (*given, reference, v, offered, np.int32(groups), lows, free_low)
            kernels.get("bigsap_product_tiles")((chunks, count), (SIDE,), given)
        found = cupy.empty(_Entries.n_bytes(count, k), np.uint8)
        entries = _Entries.in_bytes(found, count, k, self.price)
        kernels.get("bigsap_select", 64 << 10)(
            (count,),
            (SIDE,),
            (
                words,
                np.int32(m),
                ids[0],
                ids[1],
                np.int32(count),
                reference,
                v,
                offered,
                np.int32(groups),
                lows,
                slack,
                *bounds,
                np.int32(chunks),
                free_low,
                free_at,
                np.int32(k),
                np.uint32(self.seed & 0xFFFFFFFF),
                entries.ids,
                entries.costs,
                entries.sizes,
                entries.theta,
                entries.opened,
            ),
            shared_mem=4 * (groups + _LIST),
        )
        return found

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

    def _store(self, rows: Array, entries: _Entries) -> None:
        lists = self.lists
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
