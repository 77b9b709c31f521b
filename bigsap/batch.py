"""solve_many(): solve a batch of problems, each in one thread; small arrays in compiled code."""

from __future__ import annotations

import copy
import inspect
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Literal, overload

import numpy as np

from bigsap import policy
from bigsap.engine.core.team import check_threads
from bigsap.errors import CertificateError, InputError, OptionError, quiet, quiet_thread
from bigsap.memory import usable_memory
from bigsap.progress import guarded
from bigsap.result import Result
from bigsap.run.small_arrays import suits
from bigsap.run.small_batches import solve_batch
from bigsap.solve import solve
from bigsap.sources.missing import parted

# Options that a batch does not accept, and the alternatives.
_REFUSED = {
    "progress": "count the results of smaller batches",
    "checkpoint": "one file cannot hold many problems",
}


@overload
def solve_many(
    costs: Iterable[Any],
    *,
    threads: int | None = ...,
    maximize: bool = ...,
    errors: Literal["raise"] = ...,
    **options: Any,
) -> list[Result]: ...


@overload
def solve_many(
    costs: Iterable[Any],
    *,
    threads: int | None = ...,
    maximize: bool = ...,
    errors: Literal["return"],
    **options: Any,
) -> list[Result | Exception]: ...


@quiet
def solve_many(
    costs: Iterable[Any],
    *,
    threads: int | None = None,
    maximize: bool = False,
    errors: str = "raise",
    **options: Any,
) -> list[Any]:
    """Solve many problems at once; return the results in the order of the problems.

    costs: an iterable of anything ``solve`` accepts: a list of matrices, an array
        (k, n, m), a generator. A generator is advanced by the calling thread, at most
        a few problems a thread ahead of the oldest unfinished one.
    threads: problems solved at a time; None: the cores available. Each is solved by one
        thread; for few large problems call ``solve``, which shares one among threads.
    errors: ``"raise"``: the first problem, in order, that cannot be solved ends the
        batch; ``"return"``: the list holds its exception in its place.
    options: of ``solve``, the same for every problem. ``callback`` is called from
        several threads. Without ``memory_limit`` the threads share the machine's memory evenly.

    Arrays (k, n, m) and lists of arrays, of any shapes, of up to 2**20 costs a problem are solved
    one after the other by compiled code, with the same results as ``solve``, if no option but
    ``maximize``, ``certify`` and ``seed`` is given. The fields of such a result are computed on
    first access.

    Each result is the same as ``solve`` returns for that problem, also for an infeasible one.
    Raises OptionError for the batch's own options and TypeError for an unknown one. If a problem
    raises an ``InputError`` or CertificateError, an error of the same type is raised, with its row
    and column, a message that begins with ``problem k:``, and the original as its cause; any other
    error is raised unchanged, with a note that names the problem. Errors of ``costs`` itself are
    raised unchanged.
    """
    n_threads = check_threads(threads)
    if errors not in ("raise", "return"):
        raise OptionError(f'errors must be "raise" or "return", got {errors!r}')
    for name, reason in _REFUSED.items():
        if options.get(name):
            raise OptionError(f"solve_many takes no {name}=: {reason}")
    if isinstance(costs, (str, bytes, os.PathLike)) or not isinstance(costs, Iterable):
        raise OptionError(
            f"solve_many needs an iterable of costs, got {type(costs).__name__}; for one problem call solve"
        )
    options = {**options, "maximize": maximize, "threads": 1}
    # Check option names first: a misspelt option is an error of the call, not of each problem.
    inspect.signature(solve).bind(None, **options)
    found = _at_once(costs, options, n_threads)
    if found is not None:
        return _completed(found, costs, errors == "return", options)
    share = None
    if options.get("memory_limit") is None:
        share = max(1, usable_memory() // n_threads)
    pool = ThreadPoolExecutor(n_threads, "bigsap-many", quiet_thread)
    left = threading.Event()

    def one(cost: Any) -> Result:
        with guarded(lambda: _leave(left)):
            return _one(cost, share, options)

    try:
        return list(_in_order(pool, costs, n_threads * policy.BATCH_AHEAD, errors == "return", one))
    except BaseException:
        # The other results are not returned: abandon running problems, drop queued ones.
        left.set()
        raise
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


class _Left(BaseException):
    """Raised to end a solve whose result is no longer needed."""


def _leave(left: threading.Event) -> None:
    if left.is_set():
        raise _Left


def _at_once(costs: Any, options: dict[str, Any], n_threads: int) -> list[Result | None] | None:
    """Return the results of small arrays without special options; None if that does not apply."""
    if not isinstance(costs, (np.ndarray, list, tuple)):
        return None
    seed, certify = options.get("seed", 0), options.get("certify", True)
    if options.keys() - {"maximize", "threads", "seed", "certify"}:
        return None
    if type(seed) is not int or seed < 0 or certify not in (True, False, "pairs"):
        return None
    return solve_batch(costs, bool(options["maximize"]), n_threads, bool(certify))


def _completed(
    found: list[Result | None], costs: Any, keep: bool, options: dict[str, Any]
) -> list[Result | Exception]:
    """Solve the rest one by one: bad costs, and problems that need the general method."""
    results: list[Result | Exception] = []
    for number, result in enumerate(found):
        if result is not None:
            results.append(result)
            continue
        try:
            results.append(solve(costs[number], **options))
        except Exception as error:
            if not keep:
                raise _named(error, number) from error
            results.append(error)
    return results


def _in_order(
    pool: ThreadPoolExecutor, costs: Iterable[Any], ahead: int, keep: bool, one: Callable[[Any], Result]
) -> Iterator[Result | Exception]:
    problems = iter(costs)
    waiting: deque[Future[Result]] = deque()
    for number in itertools.count():
        for cost in itertools.islice(problems, ahead - len(waiting)):
            waiting.append(pool.submit(one, cost))
        if not waiting:
            return
        try:
            yield waiting.popleft().result()
        except Exception as error:
            if not keep:
                raise _named(error, number) from error
            yield error


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
