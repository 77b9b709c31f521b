"""Answer of a stopped solve of few columns: the assignment at hand, and a bound."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from bigsap.engine.core.incumbent import row_floors
from bigsap.errors import BigsapError
from bigsap.options import Options
from bigsap.problem import Problem
from bigsap.proof.certificate import Certificate
from bigsap.proof.exact import ceiling, down, exact_sum, expansion
from bigsap.proof.weights import weighted
from bigsap.run.deadline import Deadline, Late
from bigsap.run.few_columns_problem import Wanted
from bigsap.strategies.capacities import Balance
from bigsap.strategies.capacity_closing import Placed, floor_of, placed
from bigsap.types import Array


@dataclass(frozen=True)
class Known:
    """Facts of an answer without a certificate; None where unknown.

    fun, bound: in the user's sense. costs: signed costs of each row's column, or of each column's row
    with demands. u, v: duals in the minimising sense.
    """

    fun: Any = None
    costs: Array | None = None
    bound: Any = None
    u: Array | None = None
    v: Array | None = None


NOTHING = Known()


def cost_of(wanted: Wanted, sign: int, own: Array) -> tuple[Any, Array]:
    """Return the sum and the costs, in the user's sense, of signed costs."""
    costs = sign * own
    if wanted.integer:
        costs = costs.astype(np.int64)
    return exact_sum(costs) + (0 if wanted.integer else 0.0), costs


@dataclass(frozen=True)
class Closing:
    """The end of a solve that was stopped.

    prove: makes the certificate of signed costs' columns and prices; its tick raises ``Late``.
    """

    wanted: Wanted
    options: Options
    deadline: Deadline
    prove: Callable[[Array | None, Callable[[], None]], Certificate]

    def late(self) -> bool:
        """Whether the grace period is over."""
        try:
            self.deadline.tick()
        except Late:
            return True
        return False

    def answer(
        self, balance: Balance | None, found: Array | None
    ) -> tuple[Array | None, Certificate | None, Known]:
        """Return the column of each row, its proof if there was time for one, and what is known else.

        found: the columns, if the search had ended.
        """
        place: Placed | None = None
        known = NOTHING
        if balance is not None:
            with suppress(BigsapError):
                place = (
                    placed(balance, self.late, self.wanted.owners())
                    if found is None
                    else Placed(*balance.column_costs())
                )
            if place is not None:
                known = Known(*cost_of(self.wanted, balance.problem.sign, place.costs))
        column = None if place is None else place.column
        if not self.options.certify:
            return column, None, known
        certificate = None
        if balance is not None:
            with suppress(Late, BigsapError):
                certificate = self.prove(column, self.deadline.tick)
        lower = self._lower(balance)
        if certificate is None or (lower.bound is not None and self._above(lower.bound, certificate.bound)):
            return column, None, Known(known.fun, known.costs, lower.bound, lower.u, lower.v)
        return column, certificate, known

    def _above(self, bound: Any, other: Any) -> bool:
        """Whether a bound is better than another, in the user's sense."""
        return bool(bound < other if self.options.maximize else bound > other)

    def _lower(self, balance: Balance | None) -> Known:
        """Return the bound that the search's last pass over all rows proved, or that of the costs' range."""
        sign, few = (-1 if self.options.maximize else 1), self.wanted.n_few
        if balance is None:
            return self._floor_of_range(sign)
        floor = floor_of(balance)
        if floor is None:
            return NOTHING
        most = self.wanted.capacity
        beyond = most is not None and ((most > self.wanted.shape[0]) & (floor.v[:few] != 0)).any()
        # The costs of open places are floats.
        bound = math.ceil(floor.bound) if self.wanted.integer else floor.bound
        bound = sign * bound + (0 if self.wanted.integer else 0.0)
        if floor.v[few:].any() or beyond:  # the bound is true, but not the sum of the user's duals
            return Known(bound=bound)
        many = floor.least[: self.wanted.n_many]
        if self.wanted.demand is None:
            return Known(bound=bound, u=many, v=floor.v[:few])
        return Known(bound=bound, u=self.wanted.at_most_prices(floor.v[:few]), v=many)

    def _floor_of_range(self, sign: int) -> Known:
        wanted, (n, m) = self.wanted, self.wanted.shape
        source = wanted.source if wanted.gated is None else wanted.gated.source
        problem = Problem(source, self.options.maximize)
        floors = row_floors(problem)
        if floors is None:
            return NOTHING
        u = floors.astype(np.float64)
        if problem.integer and (u.astype(object) != floors.astype(object)).any():
            return NOTHING
        if wanted.gated is not None:
            u = np.minimum(u, sign * wanted.gated.prices.astype(np.float64))
        counts = np.ones(n, np.int64) if wanted.demand is None else wanted.demand
        bound = (ceiling if problem.integer else down)(expansion(*weighted(u, counts)))
        return Known(bound=sign * bound + (0 if problem.integer else 0.0), u=u, v=np.zeros(m))
