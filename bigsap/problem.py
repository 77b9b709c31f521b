"""The problem that a method solves: a source, a sense, and forbidden pairs.

A method always minimises *signed* costs, ``sign * cost`` with sign -1 under ``maximize``. +infinity
(signed) forbids a pair; NaN and -infinity (signed) are errors. With n_rows < n_columns the missing
rows are *virtual*, of constant cost; with more rows than columns the missing columns are.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bigsap.errors import InvalidCostError
from bigsap.sources.base import CostSource, Transposable, integral
from bigsap.sources.convert import refuse_long_sides
from bigsap.types import Array


@dataclass(frozen=True)
class Problem:
    """A source of costs, and whether they are minimised or maximised.

    transposed: whether rows and columns are exchanged with respect to the user's, so that messages
    can name the user's row and column.
    """

    source: CostSource
    maximize: bool = False
    transposed: bool = False

    def __post_init__(self) -> None:
        refuse_long_sides(self.shape)

    @property
    def shape(self) -> tuple[int, int]:
        n, m = self.source.shape
        return int(n), int(m)

    @property
    def given_shape(self) -> tuple[int, int]:
        """The shape with the user's rows first, for messages."""
        return self.shape[::-1] if self.transposed else self.shape

    @property
    def sign(self) -> int:
        return -1 if self.maximize else 1

    @property
    def n_virtual_rows(self) -> int:
        return max(0, self.shape[1] - self.shape[0])

    @property
    def n_virtual_columns(self) -> int:
        return max(0, self.shape[0] - self.shape[1])

    @property
    def is_square(self) -> bool:
        return self.shape[0] == self.shape[1]

    @property
    def integer(self) -> bool:
        return integral(self.source)

    def transpose(self) -> Problem | None:
        """Return the same problem with rows and columns exchanged; None if that is slow."""
        if not isinstance(self.source, Transposable):
            return None
        other = self.source.transposed()
        return None if other is None else Problem(other, self.maximize, not self.transposed)

    def check_row(self, row: int, costs: Array) -> None:
        """Raise InvalidCostError if a row of costs (n_columns,) is invalid.

        It is if it holds NaN or the infinity that does not mean *forbidden*; the error names the
        first such column.
        """
        if costs.dtype.kind != "f":
            return
        wrong = np.inf if self.maximize else -np.inf
        bad = np.isnan(costs) | (costs == wrong)
        if bad.any():
            self.complain(row, int(bad.argmax()), costs[bad.argmax()])

    def complain(self, row: int, column: int, value: float) -> None:
        """Raise InvalidCostError for the cost of one pair."""
        i, j = (column, row) if self.transposed else (row, column)
        allowed = "-inf (forbidden)" if self.maximize else "+inf (forbidden)"
        raise InvalidCostError(
            f"matrix contains invalid numeric entries: cost[{i}, {j}] is {value};"
            f" costs must be finite or {allowed}",
            i,
            j,
        )
