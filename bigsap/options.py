"""The options of one solve, checked before any work is done."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from bigsap.engine.team import check_threads
from bigsap.errors import OptionError
from bigsap.memory import free_memory
from bigsap.methods import METHODS
from bigsap.rows import RowCache, parse_bytes


@dataclass(frozen=True, kw_only=True)
class Options:
    """See ``bigsap.solve``; raises OptionError for a value outside its range."""

    maximize: bool
    method: str
    epsilon: bool
    dtype: Any
    cache: RowCache | int | str | None
    memory_limit: int | str | None
    threads: int | None
    device: str
    gap: float
    checkpoint: str | os.PathLike[str] | None
    certify: bool
    seed: int

    def __post_init__(self) -> None:
        if self.method not in ("auto", *METHODS):
            raise OptionError(f"method must be one of {('auto', *METHODS)}, got {self.method!r}")
        if self.device not in ("cpu", "auto"):
            raise OptionError(
                f"device {self.device!r} is not available in this version, only 'cpu'"
            )
        if not isinstance(self.gap, (int, float)) or not self.gap >= 0:
            raise OptionError(f"gap must be a number >= 0, got {self.gap!r}")
        if self.gap > 0 and not self.certify:
            raise OptionError("gap needs the certificate: certify=False leaves it unknown")
        if isinstance(self.seed, bool) or not hasattr(self.seed, "__index__") or self.seed < 0:
            raise OptionError(f"seed must be an integer >= 0, got {self.seed!r}")
        if self.checkpoint is not None and not isinstance(self.checkpoint, (str, os.PathLike)):
            raise OptionError(f"checkpoint must be a path, got {self.checkpoint!r}")
        check_threads(self.threads)

    def cache_budget(self) -> int:
        """Bytes for rows. Raises OptionError for anything that is not a size."""
        limit = self.memory_limit
        total = free_memory() if limit is None else parse_bytes(limit, "memory_limit")
        if isinstance(self.cache, RowCache):
            return self.cache.budget(total // 4)
        return total // 4 if self.cache is None else parse_bytes(self.cache, "cache")
