"""``solve`` and ``resume``: check options, open the source, climb the ladder."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import fields, replace
from functools import partial, wraps
from typing import Any, ParamSpec, TypeVar

import numpy.typing as npt

from bigsap import checkpoint as checkpoints
from bigsap import policy
from bigsap.display.progress_bar import Bar
from bigsap.engine.core.compilation import report_compilation
from bigsap.engine.core.precision import LargeCosts
from bigsap.engine.core.team import check_threads, useful_threads
from bigsap.errors import CheckpointError, OptionError, bound_call, check_path, flag, quiet
from bigsap.options import Options
from bigsap.problem import Problem
from bigsap.progress import Callback, Monitor
from bigsap.proof.unassigned import drop_clipped_pairs, extend_warm_start
from bigsap.result import Result
from bigsap.row_cache import RowCache
from bigsap.run.bottleneck import refuse_options, solve_bottleneck
from bigsap.run.conclude import in_whole_numbers, stands_for_whole
from bigsap.run.execute import execute, execute_short
from bigsap.run.ladder import has_short_way
from bigsap.run.on_capacities import refuse_with_capacities, solve_capacities
from bigsap.run.part_proof import duals_of
from bigsap.run.run import Run
from bigsap.run.small_call import begins, small_costs, solve_small_call
from bigsap.run.warm_start import GivenStart, parse_warm_start, unmasked_start
from bigsap.sources import as_source
from bigsap.sources.arrays.matrix import ArraySource
from bigsap.sources.base import CostSource, Guarded, in_sense, intact_throughout
from bigsap.sources.clipped import ClippedCosts, naming_prices
from bigsap.sources.cluster.costs import connect, spread_out, warn_of_little
from bigsap.sources.cuda.device_memory import naming_bytes
from bigsap.sources.cuda.placed import OnDevice, Placeable
from bigsap.sources.packing import labels_of
from bigsap.sources.sparse.by_rows import ByRows
from bigsap.sources.sparse.sparse_costs import SparseCosts
from bigsap.strategies import ON_COLUMNS, ON_ENTRIES
from bigsap.strategies.far_lines import near_costs, with_far_rows
from bigsap.strategies.orientation import orient
from bigsap.strategies.placement import is_short_for, leaves_host, place_costs, require_devices

_Given = ParamSpec("_Given")
_OPTIONS = tuple(field.name for field in fields(Options))
_T = TypeVar("_T")


def _asking_for_points(solve: Callable[_Given, Result]) -> Callable[_Given, Result]:
    """Return ``solve`` with an error that says what two arrays by position probably are."""

    @wraps(solve)
    def called(*args: _Given.args, **options: _Given.kwargs) -> Result:
        if len(args) > 1:
            raise TypeError(
                f"solve() takes 1 positional argument but {len(args)} were given: the costs; if they are"
                " two point sets, solve bigsap.points(x, y)"
            )
        return solve(*args, **options)

    return called


@_asking_for_points
@quiet
def solve(
    cost: Any,
    *,
    shape: Sequence[int] | None = None,
    args: Sequence[Any] = (),
    maximize: bool = False,
    objective: str = "sum",
    method: str = "auto",
    variant: str = "auto",
    epsilon: bool = True,
    dtype: npt.DTypeLike | None = None,
    cache: RowCache | int | str | None = None,
    memory_limit: int | str | None = None,
    threads: int | None = None,
    device: str | Sequence[str] = "cpu",
    warm_start: Any = None,
    unassigned_cost: npt.ArrayLike | None = None,
    capacity: npt.ArrayLike | None = None,
    demand: npt.ArrayLike | None = None,
    gap: float = 0.0,
    time_limit: float | None = None,
    callback: Callback | None = None,
    callback_every: float = 0.25,
    callback_rows: int | None = None,
    cancel: threading.Event | None = None,
    progress: bool = False,
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: float = 60.0,
    certify: bool | str = True,
    start: str = "auto",
    cluster: Any = None,
    seed: int = 0,
) -> Result:
    """Return the optimal assignment of rows to columns, with its proof.

    cost: anything ``as_source`` accepts: array, memmap, zarr array, path, callable
        (with ``shape`` and ``args``), ready-made source. ``inf`` (``-inf`` under
        ``maximize``) forbids a pair. ``min(n, m)`` pairs are assigned.
    shape, args, dtype: see ``as_source``: (n_rows, n_columns) and further arguments of a callable;
        the dtype to read costs as.
    maximize: True for the largest total.
    objective: ``"sum"``; or ``"bottleneck"``: the largest assigned cost is as small as possible (the
        smallest as large, under ``maximize``), and among these assignments the sum is optimal.
        ``Result.bottleneck`` is that cost, and ``violator`` the rows that prove it: see
        docs/bottleneck.md. Not with ``unassigned_cost``, ``gap``, ``cluster``, devices.
    method: ``"ssp"`` (Algorithm 1015), ``"compressed"`` (compressed rows: each row
        evaluated a few times instead of dozens), ``"hungarian"`` (trees from all free rows at
        once, for whole numbers of a small range; no more rows than columns, or costs that can be
        read by columns as cheaply), ``"auction"`` (bids, then "ssp" from their prices: a baseline;
        it needs all costs in memory: less of it, or of ``memory_limit``, is an OptionError), or
        ``"auto"``, which chooses one; ``stats`` records the choice and the reason.

        With "auto", arrays of up to 2**20 costs in memory, not mapped, and points and low rank of
        as many pairs, all of which are computed, are solved directly: ``stats["method"] ==
        "dense"``. One thread runs searches without epsilon whose data fit a cache, in less than a
        tenth of a second, always with a proof. So are square float64 arrays of up to 2**24 costs,
        minimised, whose rows hardly compete, judged by a sample. This does not apply with ``dtype``
        (unless it is the array's), ``epsilon=False``, ``start``, ``checkpoint`` or ``progress``,
        with ``memory_limit`` for a device, nor if it does not hold two copies (of points three). Problems
        that would need many searches, or whose proof would fail, are solved by the general methods.
        ``callback`` is called for one phase and at the end; a ``warm_start`` of as many rows as
        columns is where searches begin.
    variant: of ``"hungarian"``: ``"tree"``, alternating trees under a clock; ``"auto"``, the same
        after a trial of tight pairs, with searches row by row if trees take too long ("tree" does
        so too if ``memory_limit`` keeps lists short); ``"classical"``, zeros as bits, an eighth of
        a byte a pair: for comparison. Of ``"auction"``: ``"plain"``, one epsilon, or ``"scaled"``,
        falling ones (``"auto"``).
    epsilon: False for the plain method without epsilon phases.
    cache: budget for rows that are not in memory already, a ``RowCache`` or bytes.
        Default: a quarter of ``memory_limit``, or of the memory of the machine or container. If
        all rows of a slow source (Python, stores, providers) fit, each is read once. With
        ``device``: budget for rows kept on the device if not all of them fit; default:
        ``memory_limit`` less the panels. Rows of points of many dimensions are made by the
        device and kept by the host, within the same budget as without one.
    memory_limit: bytes the solve may take beyond the costs in memory.
    threads: None: the cores available, fewer for few columns. The answer does not depend on the
        number. Beyond the number of cores, or one thread for 64 columns, about 8 are used;
        ``stats["threads"]`` records the number.
    device: ``"cpu"``, ``"cuda"``, ``"cuda:1"``, or ``"auto"``: a GPU for large problems if
        there is one, except with ``unassigned_cost``. Needs CuPy,
        ``pip install "bigsap[gpu13]"``. Costs in memory are copied to the device if they need a
        search: what the CPU solves without one it solves first, with method "auto" and no other
        start, checkpoint or limit, and it searches matrices that are small for a device;
        ``stats["device"]`` names the place. If costs do not fit (``memory_limit`` then limits
        device memory), rows are copied when they are evaluated, as many as fit stay there, and the
        method is "compressed". Points, low rank, expressions and ``cuda_kernel`` are computed on the
        device. The optimum is the same, certified; of several optimal assignments another one may
        be found.
        ``"cuda:0,1"``, or ``["cuda:0", "cuda:1"]``: several devices, each with a slab of the
        columns and that part of the costs; with method "ssp", for matrices larger than
        the memory of one device (``memory_limit`` is for each). With "hungarian" each device has
        rows of a matrix.
    warm_start: where to start: a ``Result`` of a problem of the same shape and sense,
        column prices (m,), or a pair ``(v, col4row)``. Rows whose old pair is still tight keep
        it and only the others are searched for. Any start leads to an optimum.
    unassigned_cost: number, or (n,) one a row: a row may stay unassigned at this price, which
        counts in ``fun`` and ``bound``; ``inf`` (``-inf`` under ``maximize``): the row must be
        assigned. Solved exactly, as part of the problem. If few pairs cost less than their row's
        price only those are searched, with ``method="auto"`` or "compressed".
    capacity: whole number, or (m,) one a column: how many rows a column may take. Every row then
        takes one column, or the problem is infeasible; ``col4row`` names columns several times. See
        docs/capacities.md; not with ``cluster``, devices, ``"bottleneck"``.
    demand: whole number, or (n,) one a row: how many distinct columns a row takes; a column takes at
        most one row. ``Result.pairs`` lists the pairs. With ``unassigned_cost`` each place of a row
        may stay open at the row's price. Not with ``capacity`` above 1, nor with what it excludes.
    gap: stop once the assignment is proved to be this close to optimal, cost units;
        tested after each phase by a pass over the costs, if that is likely to succeed.
    time_limit: seconds; then the best assignment known is returned, with a valid bound if one can
        be proved in time: see *stopped early*.
    callback: called with a ``Progress`` at each phase, every ``callback_every`` seconds and,
        if ``callback_rows`` is given, each time that so many more rows were scanned or
        evaluated. The clock is read after each row that Python delivers, and every tenth of a
        second in compiled code. StopIteration ends the solve.
    progress: draw a bar on the terminal. Without it, a line on a terminal's stderr reports that
        kernels are compiled, which happens once (``BIGSAP_QUIET=1`` turns it off).
    cancel: an event; setting it, from any thread, ends the solve within a second, also while
        it waits for a provider or a store. ``asyncio.to_thread`` and Ctrl-C need it, see
        examples/in_asyncio.py. A cost function is interrupted between two rows, or single values,
        not within a call.
    checkpoint: a file to continue from after a crash or a stop, see ``resume``. It is
        replaced, atomically, at each phase, every ``checkpoint_every`` seconds and when
        the solve is stopped or interrupted. It holds each level that is solved, but not
        a level half solved, nor up to five sweeps of "ssp" before the first phase. With
        "compressed" it holds the lists too, some 1.6 KB a row, and not every phase is written if
        phases are shorter than a few times the writing. The file is kept after the solve. A file
        that is no checkpoint is not replaced: CheckpointError.
    certify: False skips the certificate, and computes ``fun`` only from costs that the search
        still holds; ``bound`` and ``gap`` are then None, ``u`` and ``v`` unchecked, and
        ``optimal`` is the search's word.
        ``"pairs"``: read every pair, also where bounds of the costs suffice;
        ``stats["proof"]`` records which.
    start: first prices: ``"levels"``, of exactly solved samples of a quarter of the rows and
        columns, a sixteenth, ...; ``"estimate"``, of the estimator of A1015 (section 3.4), with
        "ssp" the published method; ``"none"``, zero, but with "ssp" the estimator's; ``"auto"``
        decides by a sample. ``stats["first_prices"]`` names what was taken, None where a method
        has only its own. Without ``epsilon`` always zero.
    cluster: workers that evaluate rows: a ``distributed.Client``, the address of a scheduler, or
        ``"local"``, processes on this machine, one a core, for functions that hold the
        interpreter's lock. Workers build the costs once, from the function, path or address, keep
        rows, and send lists and duals; the search runs here. The result is the same, bit for bit.
        Compiled costs and mapped files are sent to workers only if that is faster. It pays if
        a row takes milliseconds; a ``PerformanceWarning`` reports that it did not.
        ``stats["cluster"]`` has the workers' counters. ``ClusterError`` if the scheduler is lost; a
        checkpoint then continues. Needs ``pip install "bigsap[cluster]"``; the CPU only.
    seed: of the row order; ties may be broken differently for another seed.

    Returns a ``Result``. An infeasible problem is a result with status ``infeasible`` and the
    violating rows. Raises ``InputError`` (a ValueError) for bad input, naming the first offending
    row and column; CertificateError if the costs do not prove the answer, which happens if they
    change between calls; OSError if a checkpoint cannot be written.

    *Stopped early* (status ``time_limit`` or ``cancelled``), the result has the cheapest assignment
    known: that of the last whole phase, of the current phase completed by free columns, or of the
    start. Cost and bound are computed within a grace period of half a second or, unless ``cancel``
    is set, a tenth of the time limit, if that is longer; without time for a pass over the costs the
    bound is the one that the start proved. A pass that finds a row without an allowed column leads
    to ``infeasible``. The final certificate counts as part of the solve: if it runs out of time,
    and cannot end in half of the grace period, the status is ``time_limit`` although the
    assignment may well be optimal. A solve stopped while costs are copied to a device is finished
    by the CPU, without writing a checkpoint. ``fun`` is None, and nothing assigned, only if no
    allowed assignment could be found and priced in time.
    ``bound`` is None only if the first sweep had not ended and no range of the costs is known
    beforehand. A range is known for points, low rank, unsigned integers, most expressions, and
    combinations of these.

    Time: O(scans * m / threads) plus the evaluation of absent rows; scans grow about as n**1.2 to
    n**1.36 with epsilon (A1015, table 1). Memory: the row cache plus, with ``ssp`` and
    ``start="estimate"``, eleven vectors of 8 bytes a row; about four more if the solve can be
    stopped. Levels take the costs of a sixteenth of the pairs for a matrix, and their lists.
    """
    asked = dict(locals())
    labels = labels_of(cost)
    result = _solve(asked.pop("cost"), asked, None)
    return result.with_labels(labels) if labels else result


@quiet
def resume(path: str | os.PathLike[str], cost: Any, **options: Any) -> Result:
    """Continue the solve whose checkpoint is at ``path``.

    cost: the same costs as before; sources with a fingerprint (arrays, files, stores, point
        sets) are compared with the fingerprint in the checkpoint.
    options: as for ``solve``. ``shape``, ``maximize``, ``objective``, ``method``, ``variant``,
        ``epsilon``, ``dtype``, ``start`` and ``seed`` are taken from the checkpoint unless given, and
        then must agree with it (``method="auto"`` does); ``unassigned_cost``, ``capacity`` and
        ``demand`` are part of the problem and must be given again; threads, cache and limits may
        differ (a checkpoint of a matrix with far rows and columns is continued in memory, without
        ``memory_limit``). Further checkpoints are written to ``path`` unless ``checkpoint`` names
        another file. ``time_limit`` counts from now; a ``warm_start`` matters only if the first phase
        had not begun.

    The result is the same, bit for bit, as without the interruption; if the cache or ``memory_limit``
    differs, it may be another optimal one. Raises FileNotFoundError if there is no checkpoint,
    CheckpointError (a ValueError) if it is damaged, foreign, of another version or of another
    problem; the file is left unchanged.
    """
    check_path(path, "path")
    saved = checkpoints.read(path)
    if saved.facts.get("ranking") is not None:
        raise CheckpointError(
            f"{saved.path}: the checkpoint is of a ranking, which bigsap.resume_k_best continues"
        )
    asked = asked_again("resume", saved, cost, options)
    labels = labels_of(cost)
    result = _solve(asked.pop("cost"), asked, saved)
    return result.with_labels(labels) if labels else result


def asked_again(
    function: str, saved: checkpoints.Saved, cost: Any, options: dict[str, Any]
) -> dict[str, Any]:
    """Return every argument of ``solve`` that continues a checkpoint: those given, else those in it.

    function: that was called.
    """
    facts = saved.facts
    if options.get("method", "auto") == "auto":  # with another cache it might choose another one
        options["method"] = facts.get("method", "auto")
    for name in ("maximize", "epsilon", "seed", "start"):
        if name in facts:
            options.setdefault(name, facts[name])
    options.setdefault("objective", facts.get("objective", "sum"))
    if options["method"] in (ON_ENTRIES, ON_COLUMNS):  # no options, but what "auto" means
        options["method"] = "auto"
    options.setdefault("variant", facts.get("variant", "auto"))
    options.setdefault("dtype", facts.get("asked_dtype"))
    options.setdefault("checkpoint", saved.path)
    if callable(cost) and not hasattr(cost, "shape"):
        options.setdefault("shape", facts.get("asked_shape"))
    bound = bound_call(function, solve, cost, **options)
    bound.apply_defaults()
    return bound.arguments


def solve_and(
    then: Callable[[Result | None, Monitor], _T],
    cost: Any,
    asked: dict[str, Any],
    saved: checkpoints.Saved | None = None,
    *,
    solved: bool = False,
) -> _T:
    """Return ``then(result, monitor)`` for the result of ``solve``, within the same limits and reports.

    then: calls the monitor's ``tick`` and handles ``Stopped``. The end is reported after it. asked: every
    option of ``solve`` by name, see ``_solve``; with ``progress`` the bar goes on, too. saved: the checkpoint
    to continue. solved: whether that is beyond the solve, which is left out; there is no result then.
    """
    monitor = _monitor(asked)
    if solved:  # what ``_solve`` would refuse
        Options(**{name: asked[name] for name in _OPTIONS})
    bar = Bar() if flag(asked["progress"], "progress") else None
    monitor.ends = False
    try:
        result = None
        if not solved:
            result = _solve(cost, {**asked, "monitor": monitor, "bar": bar}, saved)
        elif bar is not None:
            monitor.listeners.append(bar.update)
        with _compilation_shown(bar):
            found = then(result, monitor)
        monitor.ends = True
        monitor.progress.stage = "done"
        monitor.conclude()
        return found
    finally:
        if bar is not None:
            _close(bar, monitor)


def _compilation_shown(bar: Bar | None) -> AbstractContextManager[None]:
    return report_compilation() if bar is None else report_compilation(bar.say, bar.compiling)


def _close(bar: Bar, monitor: Monitor) -> None:
    bar.update(monitor.progress)
    bar.close()


def _monitor(asked: Mapping[str, Any]) -> Monitor:
    """Return the monitor for these options."""
    return Monitor(
        time_limit=asked["time_limit"],
        callback=asked["callback"],
        interval=asked["callback_every"],
        cancel=asked["cancel"],
        save_every=asked["checkpoint_every"],
        interval_rows=asked["callback_rows"],
    )


def _solve(cost: Any, asked: dict[str, Any], saved: checkpoints.Saved | None) -> Result:
    """Check the options, open the source, climb the ladder.

    asked: every option of ``solve`` by name; ``stands_for``: see ``Run``; ``monitor``: of the solve whose
    part this is, and ``bar``, if that has one. saved: the checkpoint to continue.
    """
    monitor = asked.get("monitor") or _monitor(asked)
    options = Options(**{name: asked[name] for name in _OPTIONS})
    asked["progress"] = flag(asked["progress"], "progress")
    source = as_source(cost, shape=asked["shape"], args=asked["args"], dtype=options.dtype)
    source = in_sense(source, options.maximize)
    if asked["capacity"] is not None or asked["demand"] is not None:
        refuse_with_capacities(asked, options)
        with intact_throughout(source):
            return solve_capacities(source, asked, options, monitor, _solve, saved)
    if options.objective == "bottleneck":
        refuse_options(asked, options)
        with intact_throughout(source):
            return solve_bottleneck(source, asked, options, monitor, _solve, saved)
    if asked["cluster"] is not None and options.device != "cpu":
        raise OptionError('cluster= evaluates rows on the CPUs of its workers: leave device="cpu"')
    source = _taken_by_rows(source, options)
    gated, plain, start = None, source, asked["warm_start"]
    if asked["unassigned_cost"] is not None:
        source = gated = ClippedCosts(source, asked["unassigned_cost"], maximize=options.maximize)
        start = extend_warm_start(unmasked_start(start), gated)
    warm = None if start is None else parse_warm_start(start, Problem(source, options.maximize))
    # The first rung is apart: a small array is solved before a general solve's state would be made.
    small = None
    if not asked["progress"] and saved is None and monitor.over is None:
        small = small_costs(plain, gated, options)
    if small is not None:
        require_devices(options.device)
        if asked["cluster"] is not None:
            with connect(asked["cluster"], duals_of):  # checked, and not needed: the bits are the same
                pass
        if begins(monitor, source.shape):
            points = None if isinstance(plain, ArraySource) else type(plain).__name__
            found = solve_small_call(small, gated, options, monitor, warm, points)
            if found is not None:
                return found
        else:
            small = None
    with naming_prices(gated), _shown(monitor, asked):
        result = _general(source, gated, asked, options, monitor, warm, saved)
    if small is not None and small.size <= policy.MOST_SMALL_COSTS:
        result.stats["why"] = "a small matrix that is hard for its size"
    if gated is not None:
        result = drop_clipped_pairs(result, gated)
    return in_whole_numbers(result, plain) if stands_for_whole(plain if gated is None else gated) else result


def _taken_by_rows(source: CostSource, options: Options) -> CostSource:
    """Return sparse costs as a source of rows if a method on rows was requested."""
    if not isinstance(source, SparseCosts) or options.method == "auto":
        return source
    return ByRows(source, maximize=options.maximize)


def _general(
    source: CostSource,
    gated: ClippedCosts | None,
    asked: dict[str, Any],
    options: Options,
    monitor: Monitor,
    warm: GivenStart | None,
    saved: checkpoints.Saved | None,
) -> Result:
    """Solve by the ladder of ``run.ladder``: place the costs, choose the threads, connect workers."""
    cluster = asked["cluster"]
    device, declined = options.device, False
    if _begins_here(source, options, monitor, saved):
        require_devices(device)
        if is_short_for(source, device):
            device = "cpu"
        elif has_short_way(orient(Problem(source, options.maximize))):
            found = _without_search(source, gated, options, monitor, warm, asked)
            if found is not None:
                return found
            declined = True
    by_rows = options.method == "hungarian"
    source = place_costs(source, device, options.memory_limit, monitor, options.cache, by_rows=by_rows)
    if monitor.ended:
        # Solved another way than the checkpoint's, if only for a moment: it stays as it is.
        saved, options = None, replace(options, checkpoint=None)
    given = Problem(source, options.maximize)
    problem = _begun(given, monitor)
    with intact_throughout(problem.source), naming_bytes(), connect(cluster, duals_of) as crew:
        copying = time.perf_counter()
        wants_near = cluster is None and _wants_near(options, monitor, saved)
        near = near_costs(problem, lambda: monitor.over is not None) if wants_near else None
        halted = wants_near and near is None and monitor.over is not None
        # No copy where memory is limited; nor with checkpoints, which may be continued with a limit.
        copied = options.memory_limit is None and saved is None and options.checkpoint is None
        if near is None and copied and not monitor.ended and monitor.over is None:
            problem = with_far_rows(problem)
        if crew is not None:
            problem = replace(problem, source=spread_out(problem.source, crew))
            monitor.progress.workers = crew.counts.by_worker
        threads = _threads(options.threads, problem.shape[1])
        of = asked.get("stands_for")
        run = partial(
            Run,
            given,
            problem,
            monitor,
            options,
            threads,
            warm,
            saved,
            gated=gated,
            crew=crew,
            stands_for=of,
            halted=halted,
            declined=declined,
        )
        first = run(near=near)
        if near is not None:
            first.seconds["start"] += time.perf_counter() - copying
        del near  # released before the proof
        result = None
        with suppress(LargeCosts):  # not of floats, so not of near costs
            result = execute(first)
        if result is None:  # after the handler, so that no error has LargeCosts as its context
            result = execute(run(large=True), large=True)
        if crew is not None:
            warn_of_little(problem.source, crew)
    return result


def _begun(given: Problem, monitor: Monitor) -> Problem:
    """Return the problem as it is solved, which the monitor reports and guards from now on."""
    problem = orient(given)
    if isinstance(problem.source, Guarded):
        monitor.guards.append(problem.source.intact)
    monitor.progress.n_rows, monitor.progress.n_columns = problem.shape
    return problem


@contextmanager
def _shown(monitor: Monitor, asked: dict[str, Any]) -> Iterator[None]:
    """Report compilation, and draw the bar that is given or asked for."""
    bar = asked.get("bar") or (Bar() if asked["progress"] else None)
    compiling = _compilation_shown(bar)
    if bar is not None:
        monitor.listeners.append(bar.update)
    try:
        with compiling:
            yield
    finally:
        if bar is not None and asked.get("bar") is None:
            _close(bar, monitor)


def _begins_here(
    source: CostSource, options: Options, monitor: Monitor, saved: checkpoints.Saved | None
) -> bool:
    """Return whether the host looks at its costs before they are taken to a device.

    Not if a method or start is named, with a checkpoint, which is of one search, nor with a limit on the
    device's memory.
    """
    free = options.method == "auto" and options.start == "auto" and options.epsilon
    kept = saved is not None or options.checkpoint is not None or options.memory_limit is not None
    there = isinstance(source, (OnDevice, Placeable))
    return free and not (kept or there or monitor.ended) and leaves_host(source, options.device)


def _without_search(
    source: CostSource,
    gated: ClippedCosts | None,
    options: Options,
    monitor: Monitor,
    warm: GivenStart | None,
    asked: dict[str, Any],
) -> Result | None:
    """Return the host's result for costs in its memory if no search is needed; else None."""
    given = Problem(source, options.maximize)
    problem = _begun(given, monitor)
    threads = _threads(options.threads, problem.shape[1])
    options = replace(options, device="cpu")
    with intact_throughout(problem.source):
        for large in (False, True):
            with suppress(LargeCosts):
                return execute_short(
                    Run(
                        given,
                        problem,
                        monitor,
                        options,
                        threads,
                        warm,
                        None,
                        gated=gated,
                        stands_for=asked.get("stands_for"),
                        large=large,
                    )
                )
    return None


def _wants_near(options: Options, monitor: Monitor, saved: checkpoints.Saved | None) -> bool:
    """Return whether costs without far lines would be searched in place of the given ones."""
    if options.memory_limit is not None or monitor.ended:
        return False
    if saved is not None and (saved.snapshot or "far_lines" in saved.facts):
        return "far_lines" in saved.facts
    return (options.method if saved is None else saved.facts.get("asked_method")) != "auction"


def _threads(asked: int | None, n_columns: int) -> int:
    """Return the number of threads: that asked for, or as many as the rows are long enough for."""
    most = max(1, n_columns // policy.COLUMNS_PER_THREAD) if asked is None else math.inf
    n_threads = 1 if most == 1 else int(min(most, check_threads(asked)))
    return useful_threads(n_threads, n_columns)
