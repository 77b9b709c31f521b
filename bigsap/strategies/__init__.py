"""The methods: short orchestrations over the engine that read like their papers."""

from __future__ import annotations

from bigsap.strategies import whole_rows
from bigsap.strategies.outcome import Outcome

#: What ``solve`` can be asked for by name.
METHODS = ("ssp", "compressed", "hungarian", "auction")
#: Those that evaluate rows into lists.
ON_LISTS = ("compressed", "hungarian")

__all__ = ["METHODS", "ON_LISTS", "Outcome", "whole_rows"]
