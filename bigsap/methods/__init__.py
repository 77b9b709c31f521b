"""The methods: short orchestrations over the engine that read like their papers."""

from __future__ import annotations

from bigsap.methods import ssp
from bigsap.methods.outcome import Outcome

#: What ``solve`` can be asked for by name.
METHODS = ("ssp", "compressed", "hungarian")

__all__ = ["METHODS", "Outcome", "ssp"]
