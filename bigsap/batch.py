"""solve_many(): solve a batch of problems, each in one thread; small arrays in compiled code."""

from __future__ import annotations

import copy
import inspect
import itertools
import os
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import cache, partial
from typing import Any

import numpy as np

from bigsap import policy
from bigsap.batch_result import Batch
from bigsap.engine.core.team import check_threads
from bigsap.engine.small.search import INFEASIBLE
from bigsap.errors import (
    CertificateError,
    DtypeError,
    InputError,
    OptionError,
    bound_call,
    flag,
    one_of,
    quiet,
    quiet_thread,
)
from bigsap.memory import usable_memory
from bigsap.progress import guarded
from bigsap.result import Result
from bigsap.run.batch_problems import BatchProblems, batch_problems
from bigsap.run.device_batches import DeviceAnswers, solve_there
from bigsap.run.small_arrays import suits
from bigsap.run.small_batches import SmallAnswers, solve_batch
from bigsap.solve import solve
from bigsap.sources.missing import column_names, parted
from bigsap.sources.sparse.sparse_costs import looks_sparse
from bigsap.sources.tensors import handed_over, is_tensor, like, on_host, speaks_dlpack
from bigsap.types import Array

_NAMES = inspect.signature(solve).parameters.keys() - {"cost"}

# Options that a batch does not accept, and the alternatives.
_REFUSED = {
    "progress": "count the results of smaller batches",
    "checkpoint": "one file cannot hold many problems",
}


@quiet
def solve_many(
    costs: Iterable[Any],
    *,
    rows: Any = None,
    columns: Any = None,
    unassigned_cost: Any = None,
    device: str = "cpu",
    threads: int | None = None,
    maximize: bool = False,
    errors: str = "raise",
    **options: Any,
) -> Batch:
    """Solve many problems at once; return the results in the order of the problems.

    costs: an iterable of anything ``solve`` accepts: an array (k, n, m), a list of matrices, a
        generator. A generator is advanced by the calling thread, at most a few problems a thread
        ahead of the oldest unfinished one.
    rows, columns: (k,) whole numbers, the true sizes of padded problems: problem p is
        ``costs[p][:rows[p], :columns[p]]``, and what lies outside is never read. For arrays and
        lists of matrices.
    unassigned_cost: see ``solve``; a number, (k,) one a problem, or (k, n) or a list of vectors, one
        a row.
    device: ``"cpu"``; or a device, see ``solve``. Small problems, arrays of one number type, are solved
        and proved there in one launch, and the arrays of the batch stay there; others one after the other.
    threads: problems solved at a time, each by one thread; with a ``device`` the threads of each
        problem. None: the cores available. For few large problems call ``solve``, which shares
        one among several threads.
    errors: ``"raise"``: the first problem, in order, that cannot be solved ends the
        batch; ``"return"``: its exception takes the place of its result.
    options: of ``solve``, the same for every problem. ``callback`` is called from
        several threads. Without ``memory_limit`` the threads share the machine's memory evenly.

    Returns a ``Batch``: a sequence of results, each the same as ``solve`` returns for that problem,
    also for an infeasible one, and the answers as arrays.

    Costs of another library that speaks DLPack (torch, JAX, CuPy), one array or a list of them: the
    arrays of the batch are of that library, on its device; the results hold numpy's. Host memory is
    read in place; costs on a device are copied to the host, once, unless ``device`` names a device. Of
    number types that numpy lacks, such as bfloat16, a wider copy is made. Gradients are ignored.

    Arrays (k, n, m), and arrays in lists, of up to 2**20 costs a problem are solved
    one after the other by compiled code, if no option but ``maximize``, ``certify`` and ``seed`` is
    given. The fields of such a result are computed on first access.

    Raises OptionError, ShapeError and DtypeError for the batch's own options and TypeError for an
    unknown one. If a problem raises an ``InputError`` or CertificateError, an error of the same type
    is raised, with its row and column, a message that begins with ``problem k:``, and the original as
    its cause; any other error is raised unchanged, with a note that names the problem. Errors of
    ``costs`` itself are raised unchanged.
    """
    if threads is not None:
        check_threads(threads)
    n_threads = cache(partial(check_threads, threads))  # few small arrays need no look at the system
    maximize = flag(maximize, "maximize")
    if not one_of(errors, ("raise", "return")):
        raise OptionError(f'errors must be "raise" or "return", got {errors!r}')
    for name, reason in _REFUSED.items():
        if getattr(options.get(name), "ndim", 0) or options.get(name):
            raise OptionError(f"solve_many takes no {name}=: {reason}")
    if speaks_dlpack(costs) and not is_tensor(costs):  # no shape, no library to give the answers to
        costs = on_host(costs)
    iterable = is_tensor(costs) or isinstance(costs, Iterable)
    alone = looks_sparse(costs)
    if alone and len(getattr(costs, "shape", ())) > 2:
        costs, alone = list(costs), False
    alone = alone or isinstance(costs, (str, bytes, os.PathLike, Mapping, np.matrix))
    alone = alone or (hasattr(costs, "ndim") and not costs.ndim) or column_names(costs) is not None
    if alone or not iterable:
        raise OptionError(
            f"solve_many needs an iterable of costs, got {type(costs).__name__}; for one problem call solve"
        )
    options = {**options, "maximize": maximize, "threads": 1}
    host = one_of(device, ("cpu",))
    if not host:  # its kernels wait for each other, and need its memory: one problem at a time
        options |= {"device": device, "threads": n_threads()}
        n_threads = cache(partial(check_threads, 1))
    # Check option names first: a misspelt option is an error of the call, not of each problem.
    if not options.keys() <= _NAMES:
        bound_call("solve_many", solve, None, **options)
    costs, give = _seen(costs, host)
    give = give if host else _given_there(give)
    problems = batch_problems(costs, rows, columns, unassigned_cost)
    answers = _at_once(problems, options, n_threads)
    found = _one_by_one(problems, answers, options, n_threads, errors == "return")
    return _batch(problems, answers, found, maximize, give)


def _seen(costs: Any, host: bool) -> tuple[Any, Callable[[Array], Any] | None]:
    """Return costs as numpy arrays, and what turns the answers into arrays of the user's library.

    host: False to leave them on their device.
    """
    if isinstance(costs, memoryview):
        costs = np.asarray(costs)
    if is_tensor(costs):
        return (on_host(costs) if host else costs), like(costs)
    if isinstance(costs, (list, tuple)) and costs and is_tensor(costs[0]):
        seen = [_on_host(one) if host and is_tensor(one) else one for one in costs]
        return seen, like(costs[0])
    return costs, None


def _given_there(give: Callable[[Array], Any] | None) -> Callable[[Any], Any]:
    """Return what turns answers, of which some are on a device, into arrays of the user's library."""

    def given(array: Any) -> Any:
        if isinstance(array, np.ndarray) and not is_tensor(array):
            return array if give is None else give(array)
        return on_host(array) if give is None else handed_over(array, give)

    return given


def _on_host(tensor: Any) -> Any:
    """Return one problem's tensor as a numpy array; unchanged if that fails: ``solve`` says why."""
    try:
        return on_host(tensor)
    except DtypeError:
        return tensor


def _at_once(
    problems: BatchProblems, options: dict[str, Any], n_threads: Callable[[], int]
) -> SmallAnswers | DeviceAnswers | None:
    """Return the answers of small arrays without special options; None if that does not apply."""
    seed, certify = options.get("seed", 0), options.get("certify", True)
    if options.keys() - {"maximize", "threads", "seed", "certify", "device"} or np.ndim(certify):
        return None
    if type(seed) is not int or seed < 0 or certify not in (True, False, "pairs"):
        return None

    def solve_empty(place: int) -> Result:
        return solve(problems.cost(place), **options, **problems.options(place))

    if "device" in options:
        return solve_there(problems, options["device"], bool(options["maximize"]), bool(certify), solve_empty)
    if not isinstance(problems.costs, (np.ndarray, list, tuple)):
        return None
    return solve_batch(problems, bool(options["maximize"]), n_threads, bool(certify), solve_empty)


def _one_by_one(
    problems: BatchProblems,
    answers: SmallAnswers | DeviceAnswers | None,
    options: dict[str, Any],
    given: Callable[[], int],
    keep: bool,
) -> dict[int, Result | Exception]:
    """Return the results of the problems without an answer, each found by ``solve``.

    Bad costs, and problems that need the general method. keep: exceptions too.
    """
    if answers is None:
        left = ((place, cost) for place, cost in enumerate(problems.each()))
    else:
        places = np.flatnonzero(answers.statuses > INFEASIBLE).tolist()
        if not places:
            return {}
        left = ((place, problems.cost(place)) for place in places)
    share, n_threads = None, given()
    if "device" not in options and options.get("memory_limit") is None:
        share = max(1, usable_memory() // n_threads)
    pool = ThreadPoolExecutor(n_threads, "bigsap-many", quiet_thread)
    leaving = threading.Event()

    def one(place: int, cost: Any) -> Result:
        with guarded(lambda: _leave(leaving)):
            return _one(cost, share, {**options, **problems.options(place)})

    try:
        return dict(_in_order(pool, left, min(n_threads * policy.BATCH_AHEAD, sys.maxsize), keep, one))
    except BaseException:
        # The other results are not returned: abandon running problems, drop queued ones.
        leaving.set()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def _batch(
    problems: BatchProblems,
    answers: SmallAnswers | DeviceAnswers | None,
    found: dict[int, Result | Exception],
    maximize: bool,
    give: Callable[[Array], Any] | None,
) -> Batch:
    if answers is None:
        shapes = np.array([getattr(one, "shape", (0, 0)) for one in found.values()], np.intp).reshape(-1, 2)
    else:
        shapes = answers.shapes.astype(np.intp)
        for place, other in found.items():
            shapes[place] = getattr(other, "shape", shapes[place])
    n, m = shapes.max(axis=0).tolist() if len(shapes) else (0, 0)
    if len(getattr(problems.costs, "shape", ())) == 3:
        n, m = problems.costs.shape[1:]
    whole = getattr(getattr(problems.costs, "dtype", None), "kind", "f") in "biu"
    return Batch(shapes, (n, m), found, maximize=maximize, answers=answers, give=give, whole=whole)


class _Left(BaseException):
    """Raised to end a solve whose result is no longer needed."""


def _leave(left: threading.Event) -> None:
    if left.is_set():
        raise _Left


def _in_order(
    pool: ThreadPoolExecutor,
    problems: Iterator[tuple[int, Any]],
    ahead: int,
    keep: bool,
    one: Callable[[int, Any], Result],
) -> Iterator[tuple[int, Result | Exception]]:
    """Yield numbers and results of numbered problems."""
    waiting: deque[tuple[int, Future[Result]]] = deque()
    while True:
        for place, cost in itertools.islice(problems, ahead - len(waiting)):
            waiting.append((place, pool.submit(one, place, cost)))
        if not waiting:
            return
        place, future = waiting.popleft()
        try:
            yield place, future.result()
        except Exception as error:
            if not keep:
                raise _named(error, place) from error
            yield place, error


def _one(cost: Any, share: int | None, options: dict[str, Any]) -> Result:
    """Solve one problem, with a share of the memory unless it is too small to matter."""
    array = cost
    if isinstance(cost, (list, tuple)):
        with suppress(InputError):  # ragged, or not numbers: ``solve`` raises the right error
            array, missing = parted(cost, "costs")
            array = cost if missing is not None else array
    if suits(array):
        return solve(array, **options)
    if share is not None:
        options = {**options, "memory_limit": share}
    return solve(cost, **options)


def _named(error: Exception, number: int) -> Exception:
    """Return the error to raise for problem ``number``."""
    if isinstance(error, (CertificateError, InputError)):
        named = copy.copy(error)  # keeps its row, column, ...
        named.args = (f"problem {number}: {error}",)
        return named
    error.add_note(f"in problem {number} of solve_many")
    return error
