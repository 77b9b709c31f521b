"""A solve with capacities where few columns take many rows: searches from column to column."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from bigsap import checkpoint, policy
from bigsap.checkpoint import BEST, Saved
from bigsap.engine.core.compilation import report_compilation
from bigsap.engine.core.team import Team, check_threads, useful_threads
from bigsap.errors import OverflowRiskError
from bigsap.memory import peak_bytes
from bigsap.options import Options
from bigsap.problem import Problem
from bigsap.progress import Monitor, Snapshot, Stopped
from bigsap.proof.capacities import certify_capacities, certify_demand
from bigsap.proof.certificate import Certificate, certify_infeasible
from bigsap.proof.exact import two_sum
from bigsap.proof.unassigned import certify_gated
from bigsap.result import Result, Status, pairs_of
from bigsap.run.checkpoints import add_best
from bigsap.run.conclude import explain
from bigsap.run.deadline import Deadline
from bigsap.run.few_columns_problem import Wanted, at_hand, transposed, with_open_places
from bigsap.run.few_columns_stopped import NOTHING, Closing, Known, cost_of
from bigsap.run.small_arrays import WITHOUT_LISTS
from bigsap.run.stats import last_report
from bigsap.sources.clipped import ClippedCosts
from bigsap.strategies import ON_COLUMNS
from bigsap.strategies.capacities import Balance, Balanced, TooLarge
from bigsap.strategies.capacity_closing import floor_of, keep_minima
from bigsap.strategies.work import on_columns
from bigsap.types import Array


def solve_few_columns(
    wanted: Wanted,
    options: Options,
    monitor: Monitor,
    saved: Saved | None = None,
    problem_facts: dict[str, Any] | None = None,
) -> Result | None:
    """Return the result; None for integers that this way cannot sum exactly.

    saved: the checkpoint to continue. problem_facts: what identifies the problem in a checkpoint.
    """
    solve = _Contracted(wanted, options, monitor)
    if problem_facts is not None:
        dtype = str((wanted.source if wanted.gated is None else wanted.gated).dtype)
        turned = wanted.demand is not None
        facts = identity_on_columns(problem_facts, options, dtype, wanted.gated, turned)
        solve.fingerprint = facts["fingerprint"]
        if saved is not None and facts["fingerprint"] is None:  # the costs may have changed since
            saved = replace(saved, best={})
        solve.resumed = open_checkpoint(facts, options.checkpoint, monitor, saved)
        if saved is not None:
            solve.snapshot, solve.earlier = saved.snapshot, saved.best
            low, high = saved.best.get("bound"), saved.best.get("fun")
            monitor.update_bounds(*((high, low) if options.maximize else (low, high)))
    try:
        with report_compilation():
            return solve.result()
    finally:
        monitor.save = None


class _Contracted:
    """One such solve."""

    def __init__(self, wanted: Wanted, options: Options, monitor: Monitor) -> None:
        self.wanted, self.options, self.monitor = wanted, options, monitor
        self.sign = -1 if options.maximize else 1
        n, m = wanted.shape
        monitor.progress.n_rows, monitor.progress.n_columns = n, m
        few = options.threads is None and n * m < policy.CONTRACTED_TEAM_COSTS
        self.threads = 1 if few else useful_threads(check_threads(options.threads), max(n, m))
        self.seconds = {"start": 0.0, "search": 0.0, "certificate": 0.0}
        self.balance: Balance | None = None
        self.status = Status.OPTIMAL
        self.pairs_read = self.refined = self.resumed = 0
        self.snapshot: Snapshot = {}
        self.fingerprint: str | None = None  # of the costs, in checkpoints
        self.earlier: dict[str, Any] = {}  # the best fun and its columns, and bound, of attempts before
        self.reported: Array | None = None  # prices whose bound the listeners know
        self.first: tuple[Array, Certificate] | None = None  # proved before it is refined

    def result(self) -> Result | None:
        clock = time.perf_counter()
        found: Balanced | None = None
        with Team(self.threads) as team:
            try:
                self.monitor.tick(report=True)
                problem, capacity, price = self._problem()
                start = self.wanted.start if self.wanted.demand is None else None
                if start is not None and price is not None:
                    start = np.append(start, 0.0)
                self.balance = Balance(
                    problem, capacity, price, start, team, self.monitor.tick, self.options.seed
                )
                self.seconds["start"] = time.perf_counter() - clock
                found = self._searched(self.balance)
                self.seconds["search"] = time.perf_counter() - clock - self.seconds["start"]
                if found.violator.size:
                    return self._infeasible(found.violator)
                return self._concluded(found, self._proved(found))
            except TooLarge:
                return None
            except Stopped as stop:
                self.status = Status(stop.reason)
                return self._stopped(found)
            finally:
                self.monitor.bounds = None

    def _searched(self, balance: Balance) -> Balanced:
        """Search, from the checkpoint if there is one."""
        if self.monitor.can_stop:
            keep_minima(balance)
            self.monitor.bounds = self._tell
        if self.snapshot:
            balance.restore(self.snapshot)
        with self.monitor.saving(balance.snapshot):
            return balance.run(self.monitor.save_phase)

    def _tell(self) -> None:
        """Tell listeners the bound of a pass over all rows."""
        assert self.balance is not None
        if self.balance.passed is self.reported or self.balance.n_passed < self.balance.n_rows:
            return
        self.reported = self.balance.passed
        floor = floor_of(self.balance) if self.options.certify else None
        if floor is not None:
            low, high = (None, -floor.bound) if self.options.maximize else (floor.bound, None)
            self.monitor.update_bounds(low, high)

    def _problem(self) -> tuple[Problem, Array, Array | None]:
        """Return costs that kernels can read, capacities, and the price of a further column."""
        wanted = self.wanted
        owner = wanted.owners()
        if wanted.demand is not None and owner is not None:
            try:
                source = with_open_places(wanted, self.monitor.tick)
            except OverflowRiskError:
                raise TooLarge from None
            rows = source.shape[0]
            problem = Problem(source, self.options.maximize, transposed=True)
            return problem, np.append(wanted.demand, rows - int(wanted.demand.sum())), np.zeros(rows)
        if wanted.demand is not None:
            free = wanted.shape[1] - int(wanted.demand.sum())
            source = at_hand(transposed(wanted.source, self.monitor.tick), self.monitor.tick)
            problem = Problem(source, self.options.maximize, transposed=True)
            return problem, np.append(wanted.demand, free), np.zeros(wanted.shape[1])
        assert wanted.capacity is not None
        n = wanted.shape[0]
        given = wanted.source if wanted.gated is None else wanted.gated.source
        problem = Problem(at_hand(given, self.monitor.tick), self.options.maximize)
        capacity = np.minimum(wanted.capacity, n)
        if wanted.gated is None:
            return problem, capacity, None
        return problem, np.append(capacity, n), self.sign * wanted.gated.prices.astype(np.float64)

    # -- the proof ------------------------------------------------------------------------------

    def _proved(self, found: Balanced) -> Certificate | None:
        if not self.options.certify:
            return None
        chosen = self._chosen(found.column)
        first = self._certificate(chosen, *self._column_prices(found.v), self.monitor.tick)
        if first.gap is None or first.gap <= self.options.gap or isinstance(first.fun, int):
            return first
        if first.optimal and first.clear:
            return first
        # Rounding of prices, or of a choice between paths: once more, exactly.
        assert self.balance is not None
        self.refined, self.first = 1, (chosen, first)
        before = found.column.copy()
        v, low = self.balance.exact_prices()
        again = self._certificate(self._chosen(found.column), *self._column_prices(v, low), self.monitor.tick)
        if (again.gap or 0) < first.gap:
            return again
        found.column[:] = before
        return first

    def _certificate(self, chosen: Array | None, v: Array, low: Array | None, tick: Any) -> Certificate:
        """Certify the column of each row; with demands the row of each column."""
        clock = time.perf_counter()
        wanted = self.wanted
        self.monitor.progress.stage = "certificate"
        ways: dict[str, Any] = {"threads": self.threads, "pairs": self.options.certify == "pairs"}
        ways["tick"] = lambda _: tick()
        try:
            if wanted.gated is not None and wanted.demand is None:
                return certify_gated(wanted.gated, chosen, v, low, capacity=wanted.capacity, **ways)
            ways["maximize"] = self.options.maximize
            if wanted.demand is not None:
                pairs = None if chosen is None else pairs_of(chosen, wanted.shape[1], None, wanted.demand)
                rows, columns = (None, None) if pairs is None else (pairs["row_ind"], pairs["col_ind"])
                return certify_demand(
                    wanted.source, wanted.demand, rows, columns, v, low, gated=wanted.gated, **ways
                )
            assert wanted.capacity is not None
            return certify_capacities(wanted.source, wanted.capacity, chosen, v, low, **ways)
        finally:
            self.seconds["certificate"] += time.perf_counter() - clock

    def _chosen(self, column: Array) -> Array:
        """Return the column of each row, -1 for the further column; with demands the row of each column."""
        column = column[: self.wanted.n_many]
        return np.where(column < self.wanted.n_few, column, -1).astype(np.intp)

    def _column_prices(self, v: Array, low: Array | None = None) -> tuple[Array, Array | None]:
        """Return the prices of the user's columns, minimising sense, and their low parts."""
        if self.wanted.demand is None:
            m = self.wanted.shape[1]
            return v[:m], None if low is None else low[:m]
        assert self.balance is not None
        u, rest = two_sum(v[:-1], -v[-1])
        if low is not None:
            rest = rest + (low[:-1] - low[-1])
        column, own = self.balance.column_costs()
        taken = np.flatnonzero(column < u.size)
        prices, parts = np.zeros(column.size), np.zeros(column.size)
        high, part = two_sum(own[taken], -u[column[taken]])
        high, part = two_sum(high, part - rest[column[taken]])
        above = high + part > 0
        prices[taken], parts[taken] = np.where(above, 0.0, high), np.where(above, 0.0, part)
        prices, parts = prices[: self.wanted.n_many], parts[: self.wanted.n_many]
        return prices, parts if parts.any() and not self.balance.problem.integer else None

    # -- results --------------------------------------------------------------------------------

    def _concluded(self, found: Balanced, certificate: Certificate | None) -> Result:
        chosen = self._chosen(found.column)
        if certificate is not None:
            if certificate.optimal and (certificate.clear or self.status == Status.OPTIMAL):
                self.status = Status.OPTIMAL
            elif self.status == Status.OPTIMAL:
                within = (certificate.gap or 0) <= self.options.gap
                self.status = Status.GAP_REACHED if within else Status.IMPRECISE
        known = self._unproved(found) if certificate is None else NOTHING
        return self._result(chosen, certificate, known)

    def _infeasible(self, violator: Array) -> Result:
        wanted = self.wanted
        if wanted.demand is not None:
            # Columns of the transpose that have too many places: rows whose columns are too few.
            violator = self._rows_short()
        if self.options.certify:
            certify_infeasible(
                wanted.source,
                violator,
                maximize=self.options.maximize,
                threads=self.threads,
                capacity=wanted.capacity,
                demand=wanted.demand,
            )
        self.status = Status.INFEASIBLE
        return self._result(None, None, violator=violator)

    def _rows_short(self) -> Array:
        """Return the rows that lack columns: those that the search has not reached.

        Of rows whose places may stay open, all are open then: they have no part in it.
        """
        assert self.balance is not None
        short = self.balance.c.seen[: self.wanted.shape[0]] == 0
        gated = self.wanted.gated
        return np.flatnonzero(short if gated is None else short & np.isinf(gated.prices))

    def _stopped(self, found: Balanced | None) -> Result:
        """Return the best assignment known, and a bound."""
        chosen: Array | None
        certificate: Certificate | None
        if self.first is not None:
            chosen, certificate, known = *self.first, NOTHING
        else:
            deadline = Deadline(self.monitor.grace(), lambda: self.monitor.cancelled)
            closing = Closing(self.wanted, self.options, deadline, self._proof_of_stopped)
            column = None if found is None else found.column
            column, certificate, known = closing.answer(self.balance, column)
            chosen = None if column is None else self._chosen(column)
        optimal = certificate is not None and certificate.optimal and certificate.clear
        if optimal:
            self.status = Status.OPTIMAL
        else:
            chosen, certificate, known = self._with_earlier(chosen, certificate, known)
        result = self._result(chosen, certificate, known)
        if self.options.checkpoint is not None:
            answer = {} if result.fun is None else {"fun": result.fun, "chosen": chosen}
            bound = {} if result.bound is None else {"bound": result.bound}
            best = self.earlier | answer | bound
            parts = {BEST + name: part for name, part in best.items()}
            add_best(self.options.checkpoint, self.fingerprint, parts)
        return result

    def _with_earlier(
        self, chosen: Array | None, certificate: Certificate | None, known: Known
    ) -> tuple[Array | None, Certificate | None, Known]:
        """Return the answer with what attempts before have found, where that is better."""
        fun, bound = (known.fun, known.bound) if certificate is None else (certificate.fun, certificate.bound)
        old, sign = self.earlier, self.sign
        cheaper = "fun" in old and (fun is None or sign * old["fun"] < sign * fun)
        closer = "bound" in old and (bound is None or sign * old["bound"] > sign * bound)
        closer = closer and bool(self.options.certify)
        if cheaper:
            chosen, fun = old["chosen"], old["fun"]
        if not cheaper and not closer:
            return chosen, certificate, known
        # The duals are those of another bound, or of none.
        return chosen, None, Known(fun, None if cheaper else known.costs, old["bound"] if closer else bound)

    def _proof_of_stopped(self, column: Array | None, tick: Callable[[], None]) -> Certificate:
        """Return a certificate at the prices at hand."""
        balance = self.balance
        assert balance is not None
        v, low = np.zeros(self.wanted.shape[1]), None
        if self.wanted.demand is None or balance.searching_all:
            v, low = self._column_prices(balance.prices())
        elif balance.n_passed == balance.n_rows and balance.c.least.size:
            v = balance.c.least[: self.wanted.n_many]
        return self._certificate(None if column is None else self._chosen(column), v, low, tick)

    def _result(
        self,
        chosen: Array | None,
        certificate: Certificate | None,
        known: Known = NOTHING,
        violator: Array | None = None,
    ) -> Result:
        """Return the result of a certificate, or else of what is known."""
        wanted, (n, m) = self.wanted, self.wanted.shape
        costs = known.costs if certificate is None else certificate.matched
        result = Result.from_assignment(
            None if wanted.demand is not None else chosen,
            known.v,
            certificate,
            shape=(n, m),
            status=self.status,
            message=None if violator is None else explain(violator, wanted.demand),
            maximize=self.options.maximize,
            stats=self._stats(),
            nit=0 if self.balance is None else len(self.balance.levels),
            violator=() if violator is None else violator,
            fun=known.fun,
            bound=known.bound,
            u=known.u,
        )
        pairs = pairs_of(
            np.full(m if wanted.demand is not None else n, -1, np.intp) if chosen is None else chosen,
            m,
            wanted.capacity,
            wanted.demand,
        )
        if costs is not None and (wanted.demand is None or certificate is None):
            costs = costs[pairs["row_ind" if wanted.demand is None else "col_ind"]]
        gate = None if wanted.gated is None else wanted.gated.prices
        result = replace(
            result,
            **pairs,
            costs=costs if len(pairs["row_ind"]) else None,
            capacity=wanted.capacity,
            demand=wanted.demand,
            unassigned_cost=gate,
        )
        if gate is not None and result.fun is not None:
            if wanted.demand is None:
                result.stats["unassigned_rows"] = n - len(result.row_ind)
            else:
                result.stats["open_places"] = int(wanted.demand.sum()) - len(result.row_ind)
        last_report(self.monitor, result)
        return result

    def _unproved(self, found: Balanced) -> Known:
        """Return cost and duals of the search, where there is no certificate."""
        assert self.balance is not None
        column, own = self.balance.column_costs()
        fun, costs = cost_of(self.wanted, self.sign, own)
        many, few = (own - found.v[column])[: self.wanted.n_many], found.v[: self.wanted.n_few]
        if self.wanted.demand is None:
            return Known(fun, costs, u=many, v=few)
        u = self.wanted.at_most_prices(few - found.v[-1])
        return Known(fun, costs, u=u, v=np.minimum(many + found.v[-1], 0.0))

    def _stats(self) -> dict[str, Any]:
        """Return the same fields as ``stats.solve_stats``."""
        levels = [] if self.balance is None else self.balance.levels
        pairs = sum(level["pairs"] for level in levels)
        n, m = self.wanted.shape
        return {
            "method": ON_COLUMNS,
            "why": "few columns take many rows each",
            "threads": self.threads,
            "device": "cpu",
            "source": type(self.wanted.source).__name__,
            "evaluated_by": getattr(self.wanted.source, "evaluated_by", None),
            "transposed": self.wanted.demand is not None,
            "price": "float64",
            "resumed": self.resumed,
            "warm_started": self.wanted.start is not None,
            "rows_evaluated": -(-pairs // max(1, min(n, m))),
            "pairs_evaluated": pairs,
            "certificate_pairs": self.pairs_read,
            "proof": None,
            "proof_bounds": 0,
            "rows_scanned": sum(level["searches"] for level in levels),
            "expected": on_columns((n, m)).counts(),
            **WITHOUT_LISTS,
            "trees": {},
            "auction": {},
            "refined": self.refined,
            "first_prices": "levels" if self.wanted.start is None else "warm",
            "phases": [],
            "capacities": "contracted",
            "levels": levels,
            "gaps": self.monitor.gaps,
            "seconds": {**self.seconds, "total": self.monitor.seconds},
            "peak_bytes": peak_bytes(),
        }


def identity_on_columns(
    problem_facts: dict[str, Any], options: Options, dtype: str, gated: ClippedCosts | None, transposed: bool
) -> dict[str, Any]:
    """Return plain values that are equal for two solves if one may continue the other.

    problem_facts: of ``fingerprint.identity_with_counts``.
    """
    return {
        **problem_facts,
        "unassigned_cost": None if gated is None else gated.prices_fingerprint(),
        "dtype": dtype,
        "maximize": options.maximize,
        "method": ON_COLUMNS,
        "asked_method": options.method,
        "epsilon": options.epsilon,
        "seed": int(options.seed),
        "start": options.start,
        "variant": options.variant,
        "transposed": transposed,
        "price": "float64",
        "grid": 0.0,
    }


def open_checkpoint(
    facts: dict[str, Any], path: str | os.PathLike[str] | None, monitor: Monitor, saved: Saved | None
) -> int:
    """Refuse a checkpoint of another solve, and let the monitor write further ones to ``path``.

    Returns how many times the solve has been resumed. Raises CheckpointError or OSError.
    """
    resumed = 0
    if saved is not None:
        saved.refuse_unless(facts)
        resumed = int(saved.facts.get("resumed", 0)) + 1
    facts = {**facts, "resumed": resumed}
    if path is None:
        return resumed
    checkpoint.begin(path, facts, saved)

    best = {} if saved is None else {BEST + name: part for name, part in saved.best.items()}

    def save(snapshot: Snapshot) -> None:
        checkpoint.write(path, {**facts, "saved_after": monitor.seconds}, {**snapshot, **best})

    monitor.save = save
    return resumed
