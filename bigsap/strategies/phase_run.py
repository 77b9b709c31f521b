"""What a run over the phases knows of itself, whatever scans its rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any, Self

from bigsap.sources.base import Array


@dataclass
class PhaseRun:
    """order: ID, the rows as the phases visit them. epsilon: of the phase at hand. scanned: rows
    scanned before it; spent: seconds spent on it before ``clock``. phases: records of those that
    are finished."""

    order: Array
    epsilon: float = 0.0
    scanned: int = 0
    spent: float = 0.0
    clock: float = field(default_factory=time.perf_counter)
    phases: list[dict[str, Any]] = field(default_factory=list)

    @property
    def seconds(self) -> float:
        """Seconds spent on the phase at hand, before a resumption too."""
        return self.spent + time.perf_counter() - self.clock

    def kept(self) -> dict[str, Any]:
        """Plain values and arrays, all but the clock."""
        own = {name: value for name, value in vars(self).items() if name != "clock"}
        return {**own, "spent": self.seconds}

    @classmethod
    def continued(cls, saved: dict[str, Any]) -> Self:
        """The run that was ``kept``, whatever else is ``saved`` with it."""
        names = set(cls.__dataclass_fields__) - {"clock"}
        return cls(**{name: saved[name] for name in names if name in saved})
