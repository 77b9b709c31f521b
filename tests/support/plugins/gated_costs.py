"""The plugin ``gated``: distances between points apart, by rows that wait at a gate."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

sys.path.append(str(Path(__file__).parent.parent))

from gate import Gate, Gated, apart


class Params(BaseModel):
    """gate: its folder. after: rows that are read before."""

    gate: str
    n: int
    after: int = 0


def gated(params: Params, shape: tuple[int, int] | None) -> Any:
    """Rows that wait for a test."""
    return Gated(apart(params.n), Gate(params.gate), params.after)


gated.Params = Params  # type: ignore[attr-defined]
