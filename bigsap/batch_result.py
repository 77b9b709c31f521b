"""``Batch``: the results of ``solve_many``, as arrays and as a sequence."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from typing import Any, Protocol, overload

import numpy as np

from bigsap.notebook import html_table
from bigsap.result import Result, Status
from bigsap.sources.tensors import is_tensor, on_host
from bigsap.types import Array

#: The status of a problem whose place holds an exception.
ERROR = "error"
_WIDEST = max(len(name) for name in (*Status, ERROR))


class Answers(Protocol):
    """Answers of problems that were solved together: as arrays, and one by one.

    The arrays have a line for each problem: -1, NaN and "" where it was not solved here. Tables may
    be on a device; ``write`` sets the first numbers of a line of them.
    """

    def result(self, place: int) -> Result: ...
    def table(self, axis: int, width: int) -> Any: ...
    def write(self, table: Any, place: int, line: Array) -> None: ...
    def numbers(self, name: str) -> Array: ...
    def statuses_told(self) -> Array: ...


class Batch(Sequence[Any]):
    """The results of ``solve_many``: a sequence of ``Result``, and the same answers as arrays.

    ``batch[p]`` is the result of problem p, made when it is asked for; with ``errors="return"`` it
    may be an exception. Its integers are exact where those of the arrays are floats. The arrays have
    one line a problem; N and M are the largest sizes. For costs in arrays of another library than
    numpy, see ``solve_many``, they are arrays of that library; of a copy or a pickle, numpy's.

    col4row: (k, N) intp, the column of each row; -1 = unassigned, or no row of the problem. None if rows
        take several columns (``demand``): see ``pairs``.
    row4col: (k, M) intp, the row of each column, likewise; None if columns take several rows
        (``capacity``).
    fun: (k,) total costs; int64 if all costs are integers, else float64, NaN where there is none.
    bound, gap: (k,) likewise; NaN without a certificate.
    status: (k,) strings, see ``Status``; "error" for an exception. Always an array of numpy.
    success: (k,) bool.
    maximize, shapes: the sense; (n, m) of each problem, (k, 2) intp.
    """

    def __init__(
        self,
        shapes: Array,
        widths: tuple[int, int],
        found: dict[int, Result | Exception],
        *,
        maximize: bool,
        answers: Answers | None = None,
        give: Callable[[Array], Any] | None = None,
        whole: bool = False,
    ) -> None:
        """Keep what was found.

        widths: N and M. found: the results and exceptions that are not in ``answers``. give:
        converts arrays to those of the user's library. whole: whether the costs of a batch without
        problems are integers.
        """
        self.maximize = maximize
        self.shapes = shapes
        self._widths = widths
        self._others = dict(found)
        self._made: dict[int, Any] = found
        self._answers = answers
        self._give = give
        self._whole = whole

    def __len__(self) -> int:
        return len(self.shapes)

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...

    def __getitem__(self, place: int | slice) -> Any:
        try:
            places = range(len(self))[place]
        except IndexError:
            raise IndexError(f"there is no problem {place} in a batch of {len(self)}") from None
        if isinstance(places, range):
            return [self[p] for p in places]
        found = self._made.get(places)
        if found is None and self._answers is not None:
            # If two threads ask first, both get the one that is kept.
            found = self._made.setdefault(places, self._answers.result(places))
        return found

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __eq__(self, other: object) -> bool:
        """Compare with any list of results: results are equal if they are the same object."""
        if not isinstance(other, (Batch, list)):
            return NotImplemented
        return len(self) == len(other) and all(a is b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        kinds, counts = np.unique(self.status, return_counts=True)
        counted = ", ".join(f"{count:,} {kind}" for kind, count in zip(kinds.tolist(), counts, strict=True))
        sense = ", maximize" if self.maximize else ""
        return f"<bigsap.Batch of {len(self):,}{sense}: {counted or 'empty'}>"

    def _repr_html_(self) -> str:
        names, counts = np.unique(self.status, return_counts=True)
        n, m = self._widths
        lines = [("problems", f"{len(self):,}"), ("largest sizes", f"{n:,} x {m:,}")]
        lines += [(str(name), f"{count:,}") for name, count in zip(names, counts.tolist(), strict=True)]
        lines.append(("assigned pairs", f"{len(self._pairs()):,}"))
        return html_table("bigsap.Batch", lines)

    def __getstate__(self) -> dict[str, Any]:
        """Return results without the arrays' memory, for pickles and copies."""
        return {
            "maximize": self.maximize,
            "shapes": self.shapes,
            "_widths": self._widths,
            "_others": dict(enumerate(self)),
            "_made": dict(enumerate(self)),
            "_answers": None,
            "_give": None,
            "_whole": self._whole,
        }

    @cached_property
    def col4row(self) -> Any:
        """(k, N) intp, the column of each row; None if rows take several."""
        return None if self._columns is None else self._given(self._columns)

    @cached_property
    def row4col(self) -> Any:
        """(k, M) intp, the row of each column; None if columns take several."""
        rows = self._table("row4col", 1)
        return None if rows is None else self._given(rows)

    @cached_property
    def fun(self) -> Any:
        """(k,) total costs."""
        return self._given(self._numbers("fun"))

    @cached_property
    def bound(self) -> Any:
        """(k,) proved bounds on the optima."""
        return self._given(self._numbers("bound"))

    @cached_property
    def gap(self) -> Any:
        """(k,) proved limits of ``|fun - bound|``."""
        return self._given(self._numbers("gap"))

    @cached_property
    def success(self) -> Any:
        """(k,) bool, whether the problem was solved."""
        return self._given(np.isin(self.status, (Status.OPTIMAL.value, Status.GAP_REACHED.value)))

    @cached_property
    def status(self) -> Array:
        """(k,) strings, how each solve ended."""
        if self._answers is None:
            found = np.empty(len(self), f"<U{_WIDEST}")
        else:
            found = self._answers.statuses_told().astype(f"<U{_WIDEST}")
        for place, other in self._others.items():
            found[place] = other.status.value if isinstance(other, Result) else ERROR
        return found

    def pairs(self) -> Any:
        """Return all assigned pairs as a (p, 3) intp array of problem, row, column, in this order."""
        return self._given(self._pairs())

    def _pairs(self) -> Array:
        if self._columns is not None:
            columns = on_host(self._columns) if is_tensor(self._columns) else self._columns
            problems, rows = np.nonzero(columns >= 0)
            return np.column_stack((problems, rows, columns[problems, rows]))
        found = [(place, one.pairs()) for place, one in enumerate(self) if isinstance(one, Result)]
        return np.concatenate([np.insert(pairs, 0, place, axis=1) for place, pairs in found])

    def _given(self, array: Any) -> Any:
        return array if self._give is None else self._give(array)

    @cached_property
    def _columns(self) -> Any:
        return self._table("col4row", 0)

    def _table(self, name: str, axis: int) -> Any:
        """Return a table of all problems; None if a result has no such line."""
        others = {place: one for place, one in self._others.items() if isinstance(one, Result)}
        if any(one[name] is None for one in others.values()):
            return None
        if self._answers is None:
            found = np.full((len(self), self._widths[axis]), -1, np.intp)
        else:
            found = self._answers.table(axis, self._widths[axis])
            for place, other in others.items():
                self._answers.write(found, place, other[name])
            return found
        for place, other in others.items():
            found[place, : other.shape[axis]] = other[name]
        return found

    def _numbers(self, name: str) -> Array:
        if self._answers is None:
            found = np.full(len(self), np.nan)
        else:
            found = self._answers.numbers(name)
        others = {p: getattr(other, name, None) for p, other in self._others.items()}
        if not len(self):
            return found.astype(np.int64) if self._whole else found
        if found.dtype.kind == "f" and len(others) == len(self) and all(map(_is_int64, others.values())):
            found = np.empty(len(self), np.int64)
        elif found.dtype.kind == "i" and not all(map(_is_int64, others.values())):
            found = found.astype(np.float64)
        for place, value in others.items():
            found[place] = np.nan if value is None else value
        return found


def _is_int64(value: Any) -> bool:
    return type(value) is int and -(2**63) <= value < 2**63
