"""Strategy for sparse costs: bids and shortest paths on complete lists."""

from __future__ import annotations

import time
from functools import partial

import numpy as np

from bigsap.problem import Problem
from bigsap.progress import Stopped
from bigsap.proof.exact import exact_sum
from bigsap.proof.tightness import UNIT
from bigsap.row_cache import parse_bytes
from bigsap.run.certify import prove_now, within_gap
from bigsap.run.run import Run
from bigsap.strategies import Outcome
from bigsap.strategies.sparse import SparseSearch
from bigsap.strategies.sparse_pairs import check_infinities, sparse_part
from bigsap.strategies.work import Work, on_pairs
from bigsap.types import Tick


class SparseRows:
    """Strategy of ``strategies.sparse``. Never declines."""

    def expects(self, run: Run) -> Work | None:
        """Return None unless the costs are sparse."""
        listed = sparse_part(run.problem.source)
        return None if listed is None else on_pairs(run.problem.shape, listed.entries().columns.size)

    def attempt(self, run: Run) -> Outcome:
        clock = time.perf_counter()
        check_infinities(run.problem)

        def count(scans: int) -> None:
            run.sparse_scans = scans

        return searched(run, run.problem, clock, count, plain=not run.options.epsilon)


def searched(run: Run, problem: Problem, clock: float, count: Tick, *, plain: bool = False) -> Outcome:
    """Return the outcome of a search of sparse costs. If it is stopped, the current matching is available.

    clock: when it began. count: takes the number of scans.
    """
    search = SparseSearch(
        problem,
        run.arithmetic,
        run.monitor,
        plain=plain,
        warm=run.warm(),
        enough=partial(enough, run),
        room=order_room(run),
    )
    try:
        search.run(run.snapshot)
    except Stopped:
        run.standing = search.column_of_row(), search.prices()
        raise
    finally:
        count(search.scans)
        run.seconds["search"] += time.perf_counter() - clock
        run.phases += search.phases
    v = search.prices()
    if search.violator.size:
        return Outcome(None, v, search.violator)
    run.standing = search.column_of_row(), v
    return Outcome(*run.standing)


def order_room(run: Run) -> int | None:
    """Return the bytes of ``memory_limit`` that an order may take: half; None without a limit."""
    limit = run.options.memory_limit
    return None if limit is None else parse_bytes(limit, "memory_limit") // 2


def enough(run: Run, search: SparseSearch) -> bool:
    """Return whether the matching of an auction is within the requested gap, and remember it."""
    costs = search.complete_cost()
    if costs is None:
        return False
    if run.known.active:
        total = sum(int(c) for c in costs.tolist()) if run.problem.integer else exact_sum(costs)
        error = 0.0 if run.problem.integer else 4 * UNIT * float(np.abs(costs).sum())
        run.known.see_phase(search.column_of_row(), total, exact=run.problem.integer, error=error)
        run.known.tell(run.monitor)
    if run.options.gap <= 0:
        return False
    within_gap(run, prove_now(run, search.column_of_row(), search.prices()))
    return run.proved is not None
