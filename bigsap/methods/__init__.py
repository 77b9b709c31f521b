"""The methods: short orchestrations over the engine that read like their papers."""

from __future__ import annotations

from bigsap.methods import ssp
from bigsap.methods.outcome import Outcome

#: What ``solve`` can be asked for by name.
METHODS = ("ssp", "compressed", "hungarian", "auction")
#: Those that evaluate rows into lists.
ON_LISTS = ("compressed", "hungarian")

__all__ = ["METHODS", "ON_LISTS", "Outcome", "ssp"]
