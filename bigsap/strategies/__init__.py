"""Solution methods: short orchestrations over the engine that follow their papers."""

from __future__ import annotations

from bigsap.strategies import whole_rows
from bigsap.strategies.outcome import Outcome

#: Values of the option ``method`` of ``solve``.
METHODS = ("ssp", "compressed", "hungarian", "auction")
#: Methods that evaluate rows into lists.
ON_LISTS = ("compressed", "hungarian")
#: What "auto" means for sparse costs.
ON_ENTRIES = "sparse"
#: What "auto" means for few columns that take many rows each.
ON_COLUMNS = "contracted"

__all__ = ["METHODS", "ON_COLUMNS", "ON_ENTRIES", "ON_LISTS", "Outcome", "whole_rows"]
