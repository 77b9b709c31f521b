"""The part that sources with a filler have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from bigsap.sources.base import Fill, Waiting
from bigsap.types import Array, Ids


class Filled(ABC):
    """A source that is read by its filler; a check may end the read of many rows."""

    shape: tuple[int, int]

    def __init__(self) -> None:
        self._waiting = Waiting()

    @abstractmethod
    def fill(self) -> Fill | None:
        """Return the compiled filler; None in a source that cannot be compiled."""

    def read(self, rows: Ids, columns: slice, out: Array) -> None:
        """Fill ``out[k, :]`` with ``cost[rows[k], columns]``."""
        from bigsap.sources.compiled import read_by_fill

        fill = self.fill()
        assert fill is not None
        read_by_fill(fill, self.shape, rows, columns, out, look=self._waiting.look)

    def while_waiting(self, check: Callable[[], None] | None) -> None:
        """Have ``check`` called several times a second during a read of this thread."""
        self._waiting.check = check
