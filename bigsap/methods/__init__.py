"""The methods: short orchestrations over the engine that read like their papers."""

from __future__ import annotations

from collections.abc import Callable

from bigsap.methods import ssp
from bigsap.methods.outcome import Outcome

METHODS: dict[str, Callable[..., Outcome]] = {"ssp": ssp.run}

__all__ = ["METHODS", "Outcome"]
