"""The result of ``solve``: assignment, duals, bound; checking and saving it."""

from __future__ import annotations

import copy
import errno
import json
import math
import os
import secrets
import threading
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from bigsap.errors import OptionError, StoreError, check_path, flag, one_of, optional, quiet, whole
from bigsap.notebook import html_table
from bigsap.system import replace
from bigsap.types import Array

if TYPE_CHECKING:  # its kernels need numba, results do not
    from bigsap.proof.certificate import Certificate

FORMAT = "bigsap-result"
VERSION = 1

# Arrays that a result may lack.
_OPTIONAL = ("unassigned_cost", "u_low", "v_low", "costs", "capacity", "demand")
# Arrays of a file.
_ARRAYS = ("meta", "u", "v", "violator", "col4row", "row4col", *_OPTIONAL)

# If two threads read a result first, one computes its fields.
_COMPLETING = threading.RLock()


class Status(StrEnum):
    """The status of a solve. ``optimal`` and ``gap_reached`` count as success.

    optimal: the exact gap is at most 2**-50 of the sum of the assigned costs' sizes. imprecise: the
    gap is proved, but it is larger than that. gap_reached: it is at most the ``gap`` asked for.
    time_limit, cancelled: stopped. infeasible: forbidden pairs leave no complete assignment.
    """

    OPTIMAL = "optimal"
    IMPRECISE = "imprecise"
    GAP_REACHED = "gap_reached"
    TIME_LIMIT = "time_limit"
    CANCELLED = "cancelled"
    INFEASIBLE = "infeasible"


MESSAGES = {
    Status.OPTIMAL: "Optimal assignment found.",
    Status.IMPRECISE: "Assignment found; optimality proved only to within gap.",
    Status.GAP_REACHED: "The requested gap is reached.",
    Status.TIME_LIMIT: "The time limit was reached.",
    Status.CANCELLED: "The solve was cancelled.",
    Status.INFEASIBLE: "The cost matrix is infeasible.",
}


def _difference(fun: float, bound: float) -> float:
    """Return the largest possible difference between the bound and an exact cost that rounds to ``fun``."""
    difference = abs(fun - bound)
    if isinstance(difference, int) or not math.isfinite(difference):
        return difference
    # ``fun`` is the double nearest to the cost, and this difference is rounded, too.
    return math.nextafter(difference + math.ulp(fun) / 2, math.inf)


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """An assignment with its proof. Fields can also be read as ``res["fun"]``.

    row_ind, col_ind: (k,) intp, the assigned pairs, sorted by row, as scipy gives
        them; ``k = min(n, m)``, or 0 if no assignment is known.
    fun: total cost of the pairs, in the user's sense; an ``int`` for integer costs;
        None if no assignment is known.
    u, v: (n,) and (m,) float64 duals, cost units: ``u[i] + v[j] <= cost[i, j]`` for every pair
        (``>=`` when maximising), equality on the assigned pairs of an optimal result,
        ``sum(u) + sum(v) == bound`` up to rounding; on the longer side unassigned
        rows or columns have 0 and none exceeds 0 (none is below 0 when maximising).
        NaN where unknown. Without a certificate (``certify=False``) they are the duals of the
        search, and their feasibility is not proved; ``verify`` checks it.
    u_low, v_low: low parts of duals that are pairs of doubles, ``u + u_low``, ``v + v_low``; None
        if all are 0. With them the inequality holds for the exact sums.
    bound: exact lower bound of the cost of any assignment (upper bound when maximising);
        rounding it to a double only weakened it. None if unknown.
    gap: the exact cost less the exact bound, rounded up: ``|fun - bound|`` up to the rounding of
        these. None if one of them is unknown.
    status, success, message: how the solve ended.
    nit: number of phases.
    stats: counts and times. Among them ``pairs_evaluated`` and ``rows_scanned``, and ``expected``,
        the ``pairs`` and ``scans`` that were expected beforehand; ``gaps``: a record of
        ``seconds``, ``gap``, ``lower_bound`` and ``upper_bound`` each time that the gap
        between the proved bound and the best known assignment became smaller; ``refined``,
        how often the prices were refined because their gap was too large; and
        ``proof``, how it was made ("pairs", "bounds", or None: there is none), with
        ``certificate_pairs``, the pairs read, and ``proof_bounds``, the bounds computed.
    col4row: (n,) intp, the column of each row; row4col: (m,) intp, the row of each
        column; -1 = unassigned.
    violator: (k,) intp, rows whose allowed columns are too few; empty unless the
        status is ``infeasible``. With ``objective="bottleneck"``: rows with too few columns of
        costs below ``bottleneck`` (above it, maximising).
    maximize, shape: the problem's sense and ``(n, m)``.
    costs: (k,) int64 or float64, the costs of the pairs, in the order of ``row_ind``; None if not known.
    unassigned_cost: (n,) int64 or float64, the price of leaving a row unassigned; None
        if all rows had to be assigned. With it, ``fun`` and ``bound`` include the prices of
        unassigned rows, fewer than ``min(n, m)`` pairs may be assigned, and
        ``u[i] <= unassigned_cost[i]``, ``v[j] <= 0`` (``>=`` when maximising), equality
        for unassigned rows and 0 for unassigned columns.
    capacity: (m,) int64, how many rows each column may take, if that was given: ``col4row`` then
        names a column several times, ``row4col`` is None, and ``rows_of(j)`` lists a column's rows. v
        is one price a column, which counts ``capacity[j]`` times in the bound; 0 where room is left.
        Numbers beyond 2**31 - 2 count as that, here and in ``demand``.
    demand: (n,) int64, how many columns each row takes, if that was given: ``col4row`` is then None,
        ``pairs()`` lists the pairs. u is one price a row, which counts ``demand[i]`` times.
        With ``unassigned_cost`` each place of a row may stay open at the price, which counts in ``fun``.
    """

    row_ind: Array
    col_ind: Array
    fun: float | None
    u: Array
    v: Array
    bound: float | None
    gap: float | None
    status: Status
    success: bool
    message: str
    nit: int
    stats: dict[str, Any]
    col4row: Any
    row4col: Any
    violator: Array = field(default_factory=lambda: np.empty(0, dtype=np.intp))
    maximize: bool = False
    shape: tuple[int, int] = (0, 0)
    unassigned_cost: Array | None = None
    u_low: Array | None = None
    v_low: Array | None = None
    costs: Array | None = None
    capacity: Array | None = None
    demand: Array | None = None

    @classmethod
    def from_assignment(
        cls,
        col4row: npt.ArrayLike | None,
        v: npt.ArrayLike | None = None,
        certificate: Certificate | None = None,
        *,
        shape: tuple[int, int],
        status: Status,
        message: str | None = None,
        maximize: bool = False,
        stats: Mapping[str, Any] | None = None,
        nit: int = 0,
        violator: npt.ArrayLike = (),
        u: npt.ArrayLike | None = None,
        u_low: Array | None = None,
        v_low: Array | None = None,
        fun: float | None = None,
        bound: float | None = None,
        gap: float | None = None,
        costs: Array | None = None,
    ) -> Result:
        """Build a result from a method's output.

        col4row: (n,), or None if no assignment is known.
        v, u, v_low, u_low: duals in the minimising sense (of minus the cost when maximising).
        certificate: if given, fun, bound, gap, u and v are taken from it; else
            from the arguments, where NaN and None mean unknown.
        fun, bound: in the user's sense. gap: their difference, before any rounding. costs: (n,) of the
            rows' pairs.
        """
        n, m = shape
        sign = -1 if maximize else 1
        if col4row is None:
            columns = np.full(n, -1, dtype=np.intp)
        else:
            columns = np.array(col4row, dtype=np.intp)
        stats = dict(stats or {})
        if certificate is not None:
            stats["proof"], stats["proof_bounds"] = certificate.by, certificate.bounds
            fun, bound, gap = certificate.fun, certificate.bound, certificate.gap
            row_dual, column_dual = certificate.u, certificate.v
            row_low, column_low = certificate.u_low, certificate.v_low
        else:
            if fun is None or bound is None:
                gap = None
            elif gap is None:
                gap = _difference(fun, bound)
            row_low = None if u_low is None else sign * u_low
            column_low = None if v_low is None else sign * v_low
            row_dual = np.full(n, np.nan) if u is None else sign * np.asarray(u) + 0
            column_dual = np.full(m, np.nan) if v is None else sign * np.asarray(v) + 0
        row_ind, col_ind, row4col = views_of(columns, m)
        return cls(
            row_ind=row_ind,
            col_ind=col_ind,
            fun=fun,
            u=row_dual,
            v=column_dual,
            bound=bound,
            gap=gap,
            status=Status(status),
            success=status in (Status.OPTIMAL, Status.GAP_REACHED),
            message=MESSAGES[Status(status)] if message is None else message,
            nit=nit,
            stats=stats,
            col4row=columns,
            row4col=row4col,
            violator=np.array(violator, dtype=np.intp).reshape(-1),
            maximize=bool(maximize),
            shape=(int(n), int(m)),
            u_low=row_low,
            v_low=column_low,
            costs=costs if costs is None or row_ind.size == n else costs[row_ind],
        )

    @classmethod
    def later(
        cls, fields: Callable[[Any], dict[str, Any]], answer: Any, *, maximize: bool, shape: tuple[int, int]
    ) -> Result:
        """Return a result whose fields are computed on first access.

        fields: called once, with ``answer``; returns all fields. For small problems, which take less
        time to solve than to compute the fields.
        """
        result = object.__new__(cls)
        result.__dict__.update(maximize=maximize, shape=shape, _later=(fields, answer))
        return result

    def _complete(self) -> None:
        """Compute the fields unless that is done."""
        with _COMPLETING:
            later = self.__dict__.get("_later")
            if later is not None:
                fields, answer = later
                self.__dict__.update(fields(answer))
                del self.__dict__["_later"]

    def __getstate__(self) -> dict[str, Any]:
        """Return all fields, for pickles and copies."""
        self._complete()
        return self.__dict__

    if not TYPE_CHECKING:  # hidden from type checkers, so that unknown fields remain errors

        def __getattr__(self, name):
            """Compute the fields: this is called only for attributes that are not set yet."""
            if name in self.__dataclass_fields__:
                self._complete()
                if name in self.__dict__:
                    return self.__dict__[name]
            raise AttributeError(
                f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self
            )

    def __dir__(self) -> list[str]:
        """Return all names, also those of fields that are not computed yet."""
        return sorted({*super().__dir__(), *self.keys()})

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys():
            raise KeyError(name)
        return getattr(self, name)

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys())

    def __len__(self) -> int:
        return len(self.keys())

    def __contains__(self, name: object) -> bool:
        return name in self.keys()

    def __bool__(self) -> bool:
        """Return whether the solve succeeded."""
        return self.success

    def keys(self) -> list[str]:
        """Return the field names, so that ``dict(res)`` works."""
        return [f.name for f in fields(self)]

    def __repr__(self) -> str:
        n, m = self.shape
        sense = ", maximize" if self.maximize else ""
        return (
            f"<bigsap.Result {self.status} {n} x {m}{sense}: {len(self.row_ind)} pairs, "
            f"fun={self.fun!r}, bound={self.bound!r}, gap={self.gap!r}>"
        )

    def _repr_html_(self) -> str:
        from bigsap.display.text import result_lines

        return html_table("bigsap.Result", result_lines(self))

    @property
    def labels(self) -> dict[str, Array]:
        """Labels of the rows, then of the columns, by the name of their dimension.

        Those of the coordinates of an xarray that ``solve`` was given, else empty; not saved by ``save``.
        """
        return dict(self.__dict__.get("_labels", {}))

    def with_labels(self, labels: Mapping[str, tuple[int, Array]]) -> Result:
        """Return this result with labels: name, 0 for rows or 1 for columns, and one label each."""
        found = copy.copy(self)
        found.__dict__["_axes"] = {name: axis for name, (axis, _) in labels.items()}
        found.__dict__["_labels"] = {name: label for name, (_, label) in labels.items()}
        return found

    @property
    def certificate(self) -> str | None:
        """Kind of proof: "bounds", "pairs" (every pair was read), or None."""
        return self.stats.get("proof")

    @property
    def bottleneck(self) -> float | None:
        """The largest assigned cost (the smallest, maximising) of ``objective="bottleneck"``; else None."""
        return self.stats.get("bottleneck")

    def pairs(self, *, costs: bool = False) -> Array:
        """Return the assigned pairs as a (k, 2) intp array of (row, column), sorted by row.

        costs: return a (k,) structured array with the fields ``row``, ``column``, ``cost`` instead.
            Raises OptionError if the costs are not known (``costs`` is None), as in the results of a
            service.
        """
        if not flag(costs, "costs"):
            return np.column_stack((self.row_ind, self.col_ind))
        found = self._known_costs()
        pairs = np.empty(len(self.row_ind), [("row", np.intp), ("column", np.intp), ("cost", found.dtype)])
        pairs["row"], pairs["column"], pairs["cost"] = self.row_ind, self.col_ind, found
        return pairs

    def _known_costs(self) -> Array:
        if self.costs is not None:
            return self.costs
        if not len(self.row_ind):
            return np.empty(0)
        raise OptionError(
            "the costs of the pairs are not known: this result has none; read them at row_ind, col_ind"
        )

    def rows_of(self, column: int) -> Array:
        """Return the rows of a column, sorted: with ``capacity`` several, without at most one."""
        j = whole(column)
        if j is None or not 0 <= j < self.shape[1]:
            raise OptionError(f"column must be a whole number from 0 to {self.shape[1] - 1}, got {column!r}")
        rows: Array = self.row_ind[self.col_ind == j]
        return rows

    def to_dataframe(self, library: str = "pandas") -> Any:
        """Return a data frame of the assigned pairs: columns ``row``, ``column``, ``cost``, by row.

        With ``labels`` also a column for each, named as these, unless it has one of the three names.

        library: ``"pandas"`` or ``"polars"``; ImportError if it is not installed. Raises OptionError
        for another name, and if the costs are not known (see ``pairs``).
        """
        if not one_of(library, ("pandas", "polars")):
            raise OptionError(f'library must be "pandas" or "polars", got {library!r}')
        frames = optional(library, "Result.to_dataframe")
        table = {"row": self.row_ind, "column": self.col_ind, "cost": self._known_costs()}
        for name, labels in self.labels.items():
            ids = self.col_ind if self.__dict__["_axes"][name] else self.row_ind
            table.setdefault(name, labels[ids])
        return frames.DataFrame(table)

    @quiet
    def verify(
        self,
        cost: Any,
        *,
        shape: tuple[int, int] | None = None,
        args: tuple[Any, ...] = (),
        dtype: npt.DTypeLike | None = None,
        threads: int = 1,
        unassigned_cost: npt.ArrayLike | None = None,
        pairs: bool = False,
    ) -> Certificate:
        """Check every claim of this result, but for each pair's ``costs``, against the costs, from scratch.

        cost, shape, args, dtype, unassigned_cost: the problem, as given to ``solve``.
            Without ``unassigned_cost`` the prices recorded in the result are used.
        pairs: read every pair, also where bounds of the costs suffice. threads: of the pass.

        Returns the new certificate, or raises CertificateError that names the failing claim: the
        matching, its cost, the duals' feasibility, bound, gap and status, or the violating set of
        an infeasible problem. It is also raised for a result without duals, which does not prove
        its optimality. With ``v`` alone the pass computes ``u``.

        The check is exact. Costs computed by other code may differ in their last bits, so claims
        about real costs may differ from it by ``2**-50`` of the assigned costs' sizes; claims about
        integers must agree. Time O(n m), one pass; less if bounds of the costs exclude pairs.
        """
        from bigsap.sources import as_source
        from bigsap.sources.base import in_sense, intact_throughout

        count, pairs = whole(threads), flag(pairs, "pairs")
        if count is None or count < 1:
            raise OptionError(f"threads must be a positive integer, got {threads!r}")
        threads = count
        source = in_sense(as_source(cost, shape=shape, args=args, dtype=dtype), self.maximize)
        prices = self.unassigned_cost if unassigned_cost is None else unassigned_cost
        if self.capacity is not None or self.demand is not None:
            from bigsap.proof.capacities import verify_weighted

            with intact_throughout(source):
                return verify_weighted(self, source, prices, threads, pairs=pairs)
        if prices is not None:
            from bigsap.proof.unassigned import verify_gated

            return verify_gated(self, source, prices, threads, pairs=pairs)
        if self.bottleneck is not None:
            from bigsap.proof.bottleneck import verify_bottleneck

            with intact_throughout(source):
                return verify_bottleneck(self, source, self.bottleneck, threads)
        from bigsap.proof.verify import verify

        with intact_throughout(source):
            return verify(self, source, threads, pairs=pairs)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write an ``.npz`` file (exactly ``path``), atomically and without pickles.

        It is written beside the target, then renamed, so it appears complete or not at all.
        """
        check_path(path, "path")
        # Follow a link: the rename would replace the link itself.
        target = Path(os.path.realpath(path) if os.path.islink(path) else path)
        meta = {
            "format": FORMAT,
            "version": VERSION,
            "shape": list(self.shape),
            "maximize": self.maximize,
            "fun": _number(self.fun),
            "bound": _number(self.bound),
            "gap": _number(self.gap),
            "status": self.status.value,
            "message": self.message,
            "nit": int(self.nit),
            "stats": self.stats,
        }
        text = np.array(json.dumps(meta, default=_plain).encode("ascii"))
        gate: dict[str, Any] = {}
        for name in _OPTIONAL:
            if getattr(self, name) is not None:
                gate[name] = getattr(self, name)
        pairs = "col4row" if self.demand is None else "row4col"
        gate[pairs] = getattr(self, pairs)
        temporary = target.with_name(f".{target.name}.{secrets.token_hex(6)}.tmp")
        if not target.parent.is_dir():
            where = os.fspath(target.parent)
            raise FileNotFoundError(errno.ENOENT, "the folder does not exist", where)
        try:
            with open(temporary, "xb") as file:
                np.savez(file, meta=text, u=self.u, v=self.v, violator=self.violator, **gate)
                file.flush()
                os.fsync(file.fileno())
            replace(temporary, target)
        except OSError as error:
            if error.filename not in (None, os.fspath(temporary)):  # a full disk names no file
                raise
            reason = error.strerror or str(error)
            raise type(error)(error.errno, reason, os.fspath(target)) from error
        finally:
            temporary.unlink(missing_ok=True)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Result:
        """Read the file of ``save`` at ``path``.

        Raises FileNotFoundError, or StoreError with the file's name if it is damaged or not a
        result. Never unpickles.
        """
        try:
            with open(path, "rb") as file:
                return cls._read(file)
        except (zipfile.BadZipFile, AttributeError, EOFError, KeyError, TypeError, ValueError) as error:
            raise StoreError(f"{os.fspath(path)}: not a BigSAP result file: {error}") from error
        except (NotImplementedError, RuntimeError, OverflowError, MemoryError, zlib.error) as error:
            raise StoreError(f"{os.fspath(path)}: damaged BigSAP result: {error}") from error

    @classmethod
    def _read(cls, file: Any) -> Result:
        if not zipfile.is_zipfile(file):  # numpy would advise to unpickle it
            raise ValueError("it is no .npz file")
        file.seek(0)
        with np.load(file, allow_pickle=False) as parts:
            arrays = {name: parts[name] for name in _ARRAYS if name in parts}
        meta = json.loads(arrays["meta"].tobytes())
        if meta["format"] != FORMAT or meta["version"] != VERSION:
            raise ValueError(f"format {meta['format']!r} version {meta['version']!r}")
        n, m = meta["shape"]
        numbers = [meta[name] for name in ("fun", "bound", "gap") if meta[name] is not None]
        for value in (*numbers, meta["stats"].get("bottleneck", 0)):
            if type(value) not in (int, float) or math.isnan(value):
                raise ValueError("fun, bound, gap or bottleneck is no number")
        pairs, size, most = ("row4col", m, n) if "demand" in arrays else ("col4row", n, m)
        for kinds, lengths in (
            ("if", {"u": n, "v": m, "u_low": n, "v_low": m, "unassigned_cost": n}),
            ("i", {pairs: size, "capacity": m, "demand": n, "violator": arrays["violator"].size}),
        ):
            for name, length in lengths.items():
                _check_array(arrays, name, length, kinds)
        columns = arrays[pairs]
        if columns.size and not -1 <= columns.min() <= columns.max() < most:
            raise ValueError(f"{pairs} names a place outside the matrix")
        chosen = pairs_of(columns.astype(np.intp), m, arrays.get("capacity"), arrays.get("demand"))
        _check_array(arrays, "costs", len(chosen["row_ind"]), "if")
        chosen |= {name: arrays.get(name) for name in _OPTIONAL}
        status = Status(meta["status"])
        return cls(
            **chosen,
            fun=meta["fun"],
            u=arrays["u"],
            v=arrays["v"],
            bound=meta["bound"],
            gap=meta["gap"],
            status=status,
            success=status in (Status.OPTIMAL, Status.GAP_REACHED),
            message=str(meta["message"]),
            nit=int(meta["nit"]),
            stats=dict(meta["stats"]),
            violator=arrays["violator"].astype(np.intp),
            maximize=bool(meta["maximize"]),
            shape=(len(arrays["u"]), len(arrays["v"])),
        )

    def plot(self) -> Any:
        """Draw the course of the solve, as a ``matplotlib.figure.Figure``; no display is needed.

        Over the phases: epsilon (cost units), rows scanned per augmentation (1 in a problem whose
        rows do not compete) and prices moved; over time: the gap (cost units) if ``stats`` records
        it. Compare A1015, figures 1 and 3. ``res.plot().savefig("solve.png")`` saves it. Raises
        ImportError if matplotlib is missing.
        """
        from bigsap.display.figure import draw

        return draw(self)


# Defaults of a dataclass are attributes of the class, which would hide fields not computed yet.
for _name in _OPTIONAL:
    delattr(Result, _name)


def views_of(col4row: Array, m: int) -> tuple[Array, Array, Array]:
    """Return ``row_ind``, ``col_ind`` and ``row4col`` (m,) of the rows' columns."""
    (row_ind,) = np.nonzero(col4row >= 0)
    col_ind = col4row[row_ind]
    row4col = np.full(m, -1, dtype=np.intp)
    row4col[col_ind] = row_ind
    return row_ind, col_ind, row4col


def pairs_of(chosen: Array, m: int, capacity: Array | None, demand: Array | None) -> dict[str, Any]:
    """Return the fields of a result that name its pairs.

    chosen: the column of each row; with ``demand`` the row of each column. -1 = none.
    """
    if demand is not None:
        (columns,) = np.nonzero(chosen >= 0)
        columns = columns[np.argsort(chosen[columns], kind="stable")]
        return {"row_ind": chosen[columns], "col_ind": columns, "col4row": None, "row4col": chosen}
    row_ind, col_ind, row4col = views_of(chosen, m)
    given = None if capacity is not None else row4col
    return {"row_ind": row_ind, "col_ind": col_ind, "col4row": chosen, "row4col": given}


def _check_array(arrays: Mapping[str, Array], name: str, length: int, kinds: str) -> None:
    """Raise ValueError for an array of another length or kind of 64-bit numbers; it may be missing."""
    array = arrays.get(name)
    if array is not None and (
        array.shape != (length,) or array.dtype.kind not in kinds or array.dtype.itemsize != 8
    ):
        raise ValueError(f"{name} does not fit the shape")


def _number(value: Any) -> Any:  # numpy's are not valid in JSON
    return value.item() if isinstance(value, np.generic) else value


def _plain(value: Any) -> Any:
    """Return a JSON value for a value of stats that json cannot write."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tolist()
    if isinstance(value, (set, frozenset, tuple)):
        return list(value)
    return str(value)
