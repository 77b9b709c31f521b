"""Solution methods: short orchestrations over the engine that follow their papers."""

from __future__ import annotations

from bigsap.strategies import whole_rows
from bigsap.strategies.outcome import Outcome

#: Values of the option ``method`` of ``solve``.
METHODS = ("ssp", "compressed", "hungarian", "auction")
#: Methods that evaluate rows into lists.
ON_LISTS = ("compressed", "hungarian")

__all__ = ["METHODS", "ON_LISTS", "Outcome", "whole_rows"]
