"""State of a run over the phases, independent of how rows are scanned."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Self

from bigsap.types import Array


@dataclass
class PhaseRun:
    """State of a run over the phases.

    order: ID, the rows in the order in which the phases visit them. epsilon: of the current phase.
    scanned: rows scanned before it. spent: seconds spent on it before ``clock``. phases: records of the
    finished ones. hidden: see ``Outcome``.
    """

    order: Array
    epsilon: float = 0.0
    scanned: int = 0
    spent: float = 0.0
    clock: float = field(default_factory=time.perf_counter)
    phases: list[dict[str, Any]] = field(default_factory=list)
    hidden: float = 0.0

    @property
    def seconds(self) -> float:
        """Return the seconds spent on the current phase, including those before a resumption."""
        return self.spent + time.perf_counter() - self.clock

    def kept(self) -> dict[str, Any]:
        """Return plain values and arrays, all but the clock."""
        own = {name: value for name, value in vars(self).items() if name != "clock"}
        return {**own, "spent": self.seconds}

    @classmethod
    def continued(cls, saved: dict[str, Any]) -> Self:
        """Return the run saved by ``kept``; other keys of ``saved`` are ignored."""
        names = set(cls.__dataclass_fields__) - {"clock"}
        return cls(**{name: saved[name] for name in names if name in saved})
