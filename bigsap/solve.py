"""solve(): choose source, orientation, arithmetic and method; run; certify."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from bigsap.certificate import Certificate
from bigsap.certificate import certify as prove
from bigsap.engine.cpu import Engine
from bigsap.engine.precision import choose
from bigsap.engine.state import FREE
from bigsap.engine.team import Team, check_threads
from bigsap.errors import CertificateError, OptionError
from bigsap.methods import METHODS, Outcome
from bigsap.monitor import Callback, Monitor, Stopped
from bigsap.problem import Problem
from bigsap.progress import Bar
from bigsap.result import Result, Status
from bigsap.rows import RowCache, Rows, parse_bytes
from bigsap.sources import as_source
from bigsap.sources.base import Array, CostSource, Resident

# Fewer columns a thread than this are scanned faster by one thread alone: a barrier
# costs as much as about a thousand pairs.
_COLUMNS_PER_THREAD = 2048
# How often a matching that is not tight enough is repaired from its own prices.
_REPAIRS = 2


def solve(
    cost: Any,
    *,
    shape: Sequence[int] | None = None,
    args: Sequence[Any] = (),
    maximize: bool = False,
    method: str = "auto",
    epsilon: bool = True,
    dtype: npt.DTypeLike | None = None,
    cache: RowCache | int | str | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    device: str = "cpu",
    warm_start: Any = None,
    gap: float = 0.0,
    time_limit: float | None = None,
    callback: Callback | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    certify: bool = True,
    seed: int = 0,
) -> Result:
    """The optimal assignment of rows to columns, with its proof.

    cost: anything ``as_source`` accepts: array, memmap, zarr array, path, callable
        (with ``shape`` and ``args``), ready-made source. ``inf`` (``-inf`` under
        ``maximize``) forbids a pair. ``min(n, m)`` pairs are assigned.
    method: ``"ssp"`` (Algorithm 1015), or ``"auto"``, which chooses and says what in
        ``stats``. epsilon: False for the plain method without epsilon phases.
    cache: budget for rows that are not in memory already, a ``RowCache`` or bytes.
        Default: a quarter of ``memory_limit`` or of the free memory.
    memory_limit: bytes the solve may take beyond the costs in memory.
    threads: None: the cores available, fewer for few columns. Any number gives the
        same answer.
    warm_start: a ``Result`` or column prices (m,) to start from.
    gap: stop once the assignment is proved to be this close to optimal, cost units.
    time_limit: seconds; then the best assignment known, with a valid bound.
    callback: called with a ``Progress`` at each phase and a few times a second;
        StopIteration ends the solve. progress: draw a bar on the terminal.
    certify: False skips the certificate; ``bound`` and ``gap`` are then None.
    seed: of the row order; ties may be broken differently for another seed.

    Returns a ``Result``. An infeasible problem is a result with status ``infeasible``
    and the violating rows. Raises ``InputError`` (a ValueError) for bad input, naming
    the first offending row and column, and CertificateError when the costs do not
    bear out the answer, which happens when they change between calls.

    Time: O(scans * m / threads) plus the evaluation of absent rows; scans grow about
    as n**1.2 to n**1.36 with epsilon (A1015, table 1). Memory: the row cache plus about
    twelve vectors of 8 bytes a row and column.
    """
    monitor = Monitor(time_limit=time_limit, callback=callback)
    _check_options(method, device, checkpoint, gap)
    n_threads = check_threads(threads)
    budget = _cache_budget(cache, memory_limit)
    given = Problem(as_source(cost, shape=shape, args=args, dtype=dtype), bool(maximize))
    problem = _orient(given)
    monitor.progress.n_rows, monitor.progress.n_columns = problem.shape
    if threads is None:
        n_threads = min(n_threads, max(1, problem.shape[1] // _COLUMNS_PER_THREAD))
    bar = Bar() if progress else None
    if bar is not None:
        monitor.listeners.append(bar.update)
    try:
        return _Run(
            given, problem, monitor, n_threads, cache, budget,
            epsilon=bool(epsilon), gap=gap, certify=bool(certify), seed=seed,
            warm_prices=_warm_prices(warm_start, given, problem),
            method=method,
        ).result()  # fmt: skip
    finally:
        if bar is not None:
            bar.close()


def _check_options(method: str, device: str, checkpoint: Any, gap: float) -> None:
    if method not in ("auto", *METHODS):
        raise OptionError(f"method must be one of {('auto', *METHODS)}, got {method!r}")
    if device not in ("cpu", "auto"):
        raise OptionError(f"device {device!r} is not available in this version, only 'cpu'")
    if checkpoint is not None:
        raise OptionError("checkpoints are not available in this version")
    if not isinstance(gap, (int, float)) or not gap >= 0:
        raise OptionError(f"gap must be a number >= 0, got {gap!r}")


def free_memory() -> int:
    """Bytes this process may still take: free memory, or less under a cgroup limit."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        with open("/proc/meminfo") as lines:
            for line in lines:
                if line.startswith("MemAvailable:"):
                    free = int(line.split()[1]) * 1024
    except (OSError, ValueError, AttributeError):
        free = 4 << 30
    try:
        with (
            open("/sys/fs/cgroup/memory.max") as limit,
            open("/sys/fs/cgroup/memory.current") as used,
        ):
            free = min(free, int(limit.read()) - int(used.read()))
    except (OSError, ValueError):  # no cgroup, or "max"
        pass
    return max(free, 64 << 20)


def _cache_budget(cache: RowCache | int | str | None, memory_limit: int | str | None) -> int:
    """Bytes for rows. Raises OptionError for anything that is not a size."""
    total = free_memory() if memory_limit is None else parse_bytes(memory_limit, "memory_limit")
    if isinstance(cache, RowCache):
        return cache.budget(total // 4)
    return total // 4 if cache is None else parse_bytes(cache, "cache")


def _resident(problem: Problem) -> Array | None:
    source = problem.source
    return source.resident() if isinstance(source, Resident) else None


def _orient(problem: Problem) -> Problem:
    """The problem or its transpose: rows must be cheap, and the fewer the better.

    A matrix that lies in memory by columns is solved by its columns; a tall problem
    is transposed when the source gives columns as cheaply as rows.
    """
    if _resident(problem) is not None:
        return problem
    n, m = problem.shape
    other = problem.transpose()
    if other is None or (n <= m and _resident(other) is None):
        return problem
    return other


def _warm_prices(warm_start: Any, given: Problem, problem: Problem) -> Array | None:
    """First prices of the oriented, signed problem from a Result or column prices."""
    if warm_start is None:
        return None
    m = given.shape[1]
    prices = warm_start.v if isinstance(warm_start, Result) else warm_start
    if isinstance(warm_start, Result) and problem.transposed:
        prices, m = warm_start.u, given.shape[0]
    elif problem.transposed:
        raise OptionError("this problem is solved by columns: warm-start it from a Result")
    prices = np.asarray(prices, np.float64)
    if prices.shape != (m,) or not np.isfinite(prices).all():
        raise OptionError(f"warm_start needs {m} finite prices, got shape {prices.shape}")
    return prices * problem.sign


class _Run:
    """One call of ``solve``, from rows to result."""

    def __init__(
        self, given: Problem, problem: Problem, monitor: Monitor, n_threads: int,
        cache: RowCache | int | str | None, budget: int, *, epsilon: bool, gap: float,
        certify: bool, seed: int, warm_prices: Array | None, method: str,
    ) -> None:  # fmt: skip
        self.given, self.problem, self.monitor = given, problem, monitor
        self.n_threads, self.epsilon, self.gap = n_threads, epsilon, gap
        self.certify, self.seed, self.warm_prices = certify, seed, warm_prices
        self.why = "asked for"
        if method == "auto":
            method, self.why = "ssp", "the only method of this version"
        self.method = method
        self.engine: Engine | None = None
        self.stopped: Status | None = None
        self.seconds = {"start": 0.0, "search": 0.0, "certificate": 0.0}
        self.phases: list[dict[str, Any]] = []
        self.certificate_pairs = 0
        self.arithmetic = choose(problem)
        matrix = _resident(problem)
        if matrix is not None:
            self.rows = Rows.in_place(matrix)
        else:
            options = cache if isinstance(cache, RowCache) else RowCache()
            self.rows = Rows.cached(problem.shape, problem.source.dtype, options, budget)

    def result(self) -> Result:
        n, m = self.problem.shape
        if n == 0 or m == 0:
            empty = Outcome(np.full(n, -1, np.intp), np.zeros(m))
            return self._conclude(empty, self._prove(empty))
        with Team(self.n_threads) as team:
            engine = Engine(self.problem, self.rows, team, self.monitor, self.arithmetic.price)
            self.engine = engine
            try:
                outcome = self._search(engine)
            except Stopped as stop:
                outcome = self._incumbent(engine, Status(stop.reason))
            if outcome.violator.size or not self.certify:
                return self._conclude(outcome, None)
            return self._conclude(*self._certified(engine, outcome))

    def _search(self, engine: Engine) -> Outcome:
        outcome = METHODS[self.method](
            engine, epsilon=self.epsilon, seed=self.seed, grid=self.arithmetic.grid,
            warm_prices=self.warm_prices, enough=self._enough if self.gap > 0 else None,
        )  # fmt: skip
        self.phases += outcome.phases
        for stage, seconds in outcome.seconds.items():
            self.seconds[stage] += seconds
        return outcome

    def _enough(self, column_of_row: Array, v: Array) -> bool:
        """Whether a phase's matching is within the gap asked for."""
        certificate = self._prove(Outcome(column_of_row, v))
        if certificate.gap is not None and certificate.gap <= self.gap:
            self.stopped = Status.GAP_REACHED
            return True
        return False

    def _incumbent(self, engine: Engine, reason: Status) -> Outcome:
        """The matching so far, completed in row order: feasible unless pairs are forbidden."""
        self.stopped = reason
        engine.unsettle()
        st = engine.state
        column_of_row = np.maximum(st.column_of_row, FREE).astype(np.intp)
        m = self.problem.shape[1]
        open_rows = np.flatnonzero(column_of_row < 0)
        taken = np.zeros(m, bool)
        taken[column_of_row[column_of_row >= 0]] = True
        free = np.flatnonzero(~taken)
        k = min(open_rows.size, free.size)
        column_of_row[open_rows[:k]] = free[:k]
        return Outcome(column_of_row, st.v)

    def _prove(self, outcome: Outcome) -> Certificate:
        """Certify by code that shares nothing with the engine."""
        clock = time.perf_counter()
        self.monitor.progress.stage = "certificate"
        certificate = prove(
            self.problem.source, outcome.column_of_row, outcome.v,
            maximize=self.problem.maximize, threads=self.n_threads,
        )  # fmt: skip
        self.certificate_pairs += certificate.pairs
        self.seconds["certificate"] += time.perf_counter() - clock
        return certificate

    def _certified(self, engine: Engine, outcome: Outcome) -> tuple[Outcome, Certificate]:
        """Prove the outcome; a matching that is not tight is repaired from its prices."""
        if self.stopped is not None:
            try:
                return outcome, self._prove(outcome)
            except CertificateError:
                # The completed matching uses a forbidden pair: only the bound is known.
                bare = replace(outcome, column_of_row=None)
                return bare, self._prove(bare)
        certificate = self._prove(outcome)
        for _ in range(_REPAIRS):
            if certificate.optimal:
                return outcome, certificate
            outcome = METHODS[self.method](
                engine, epsilon=False, seed=self.seed, grid=self.arithmetic.grid,
                warm_prices=outcome.v.copy(), enough=None,
            )  # fmt: skip
            self.phases += outcome.phases
            certificate = self._prove(outcome)
        if not certificate.optimal:
            raise CertificateError(
                f"optimality is not borne out: the assignment may be off by {certificate.gap}"
                f" (cost {certificate.fun}, bound {certificate.bound}); do the costs change"
                " from one reading to the next?"
            )
        return outcome, certificate

    def _conclude(self, outcome: Outcome, certificate: Certificate | None) -> Result:
        """The result in the user's orientation."""
        problem = self.problem
        col4row, violator = outcome.column_of_row, outcome.violator
        fun, status = None, self.stopped or Status.OPTIMAL
        if violator.size:
            col4row, status = None, Status.INFEASIBLE
        elif certificate is None and col4row is not None:
            fun = total_cost(problem.source, col4row)
        if problem.transposed:
            if col4row is not None:
                inverse = np.full(self.given.shape[0], -1, np.intp)
                columns = np.flatnonzero(col4row >= 0)
                inverse[col4row[columns]] = columns
                col4row = inverse
            if certificate is not None:
                certificate = replace(certificate, u=certificate.v, v=certificate.u)
            if violator.size:
                violator = _rows_outside(problem, violator)
        if certificate is not None and certificate.optimal and certificate.fun is not None:
            status = Status.OPTIMAL
        message = None
        if violator.size:
            message = _explain(violator)
        return Result.from_assignment(
            col4row, None, certificate, shape=self.given.shape, status=status,
            message=message, maximize=problem.maximize, stats=self._stats(),
            nit=len(self.phases), violator=violator, fun=fun,
        )  # fmt: skip

    def _stats(self) -> dict[str, Any]:
        engine, rows = self.engine, self.rows
        m = self.problem.shape[1]
        evaluated = engine.rows_evaluated if engine is not None else 0
        return {
            "method": self.method,
            "why": self.why,
            "threads": self.n_threads,
            "device": "cpu",
            "source": type(self.given.source).__name__,
            "transposed": self.problem.transposed,
            "price": str(self.arithmetic.price),
            "rows_evaluated": evaluated,
            "pairs_evaluated": evaluated * m,
            "certificate_pairs": self.certificate_pairs,
            "rows_scanned": engine.rows_scanned if engine is not None else 0,
            "cache_policy": rows.policy,
            "cache_slots": rows.n_slots,
            "cache_bytes": rows.bytes,
            "cache_hits": rows.hits,
            "cache_misses": rows.misses,
            "phases": self.phases,
            "seconds": {**self.seconds, "total": self.monitor.seconds},
            "peak_bytes": peak_bytes(),
        }


def _rows_outside(problem: Problem, columns: Array) -> Array:
    """The rows that allow none of ``columns`` (rows of the transposed problem).

    When fewer rows allow them than there are such columns, these rows in turn have too
    few allowed columns: Hall's condition read from the other side.
    """
    source = problem.source
    m = problem.shape[1]
    reached = np.zeros(m, bool)
    costs = np.empty((1, m), source.dtype)
    for column in columns.tolist():
        source.read(np.array([column]), slice(0, m), costs)
        reached |= problem.sign * costs[0] < np.inf
    return np.flatnonzero(~reached)


def _explain(violator: Array) -> str:
    shown = ", ".join(map(str, violator[:8].tolist())) + (", ..." if violator.size > 8 else "")
    return (
        f"The cost matrix is infeasible: together, the {violator.size} rows [{shown}] have too"
        " few columns that are not forbidden."
    )


def total_cost(source: CostSource, col4row: Array) -> Any:
    """Exactly summed cost of an assignment; reads one pair a row."""
    one = np.empty((1, 1), source.dtype)
    total: list[Any] = []
    for row in np.flatnonzero(col4row >= 0).tolist():
        column = int(col4row[row])
        source.read(np.array([row]), slice(column, column + 1), one)
        total.append(one[0, 0].item())
    return sum(total) if source.dtype.kind in "iu" else math.fsum(total)


def peak_bytes() -> int:
    """Largest resident size of this process so far, in bytes (0 where unknown)."""
    try:
        import resource
    except ImportError:
        return 0
    scale = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * scale
