"""A result as text for people, and as a record for programs."""

from __future__ import annotations

import decimal
import enum
import math
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from bigsap.proof.claim import Claim


def shown(text: object) -> str:
    """Return untrusted text for a terminal: one line, without control characters.

    Characters that are neither printable nor a space (line breaks, escape sequences, marks that
    change the direction of writing) are escaped as in Python.
    """
    found = str(text)
    if found.isprintable():
        return found
    return "".join(c if c.isprintable() or unicodedata.category(c) == "Zs" else _escaped(c) for c in found)


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def result_text(result: Claim) -> str:
    """Return several aligned lines: outcome, numbers, effort. No line break at the end."""
    return align(result_lines(result))


def result_lines(result: Claim) -> Iterator[tuple[str, str]]:
    """Yield (label, value) pairs; unknown values are left out."""
    stats = result.stats
    n_rows, n_columns = result.shape
    yield "status", f"{result.status}: {result.message}".rstrip(": ")
    yield "n", f"{n_rows:,} x {n_columns:,}"
    if result.fun is not None:
        yield "cost", number(result.fun)
    if result.bound is not None:
        yield "bound", bound_text(result.bound, result.fun, above=result.maximize)
    if result.gap is not None:
        yield "gap", gap_text(result.gap, result.fun)
    if "bottleneck" in stats:
        yield "largest cost" if not result.maximize else "smallest cost", number(stats["bottleneck"])
    elif len(result.violator):
        count = len(result.violator)
        rows = "1 row" if count == 1 else f"{count:,} rows"
        yield "violator", f"{rows} whose allowed columns are too few"
    if "rows_evaluated" in stats:
        evaluated = int(stats["rows_evaluated"])
        share = f" ({evaluated / n_rows:.2f} per row)" if n_rows else ""
        yield "rows evaluated", f"{evaluated:,}{share}"
        if n_rows and "pairs_evaluated" in stats:
            pairs = int(stats["pairs_evaluated"])
            whole = n_rows * result.shape[1]
            yield "pairs evaluated", f"{pairs:,} ({pairs / max(1, whole):.2f} of the matrix)"
    if "rows_scanned" in stats:
        yield "rows scanned", f"{int(stats['rows_scanned']):,}"
    rate = hit_rate(stats)
    if rate is not None:
        yield "cache hit rate", f"{rate:.1%}"
    elif stats.get("method") == "compressed":
        yield "cache hit rate", "none needed: rows are kept as lists"
    if "seconds" in stats:
        yield "seconds", seconds_text(stats["seconds"])
    if "peak_bytes" in stats:
        yield "peak memory", bytes_text(stats["peak_bytes"])
    if "method" in stats:
        threads = int(stats["threads"]) if "threads" in stats else None
        crew = "" if threads is None else f", {threads} thread{'s' if threads != 1 else ''}"
        yield "method", f"{stats['method']}{crew}"


def align(lines: Iterator[tuple[str, str]] | list[tuple[str, str]]) -> str:
    """Return text with labels in one column and values in the next, escaped by ``shown``."""
    pairs = [(shown(label), shown(value)) for label, value in lines]
    width = max((len(label) for label, _ in pairs), default=0)
    return "\n".join(f"{label.ljust(width)}  {value}" for label, value in pairs)


def hit_rate(stats: Mapping[str, Any]) -> float | None:
    """Return the hit rate of the row cache; None if it was never used."""
    if "cache_hits" not in stats or "cache_misses" not in stats:
        return None
    touches = int(stats["cache_hits"]) + int(stats["cache_misses"])
    return int(stats["cache_hits"]) / touches if touches else None


def number(value: float) -> str:
    """Return a number as text: integers in full, others with 12 significant digits."""
    if isinstance(value, (int, np.integer)) or (
        math.isfinite(value) and value == int(value) and abs(value) < 2**53
    ):
        return f"{int(value):,}"
    return f"{value:.12g}"


def bound_text(bound: float, fun: float | None, *, above: bool) -> str:
    """Return a proved bound as text: what is shown is a bound, too, unless it is the cost itself.

    above: whether it is an upper bound.
    """
    nearest = number(bound)
    exact = isinstance(bound, int) or not math.isfinite(bound) or float(nearest.replace(",", "")) == bound
    return nearest if exact or bound == fun else _rounded(bound, 12, above=above)


def gap_text(gap: float, fun: float | None) -> str:
    """Return the gap as text, rounded up, with its share of the cost if that is meaningful."""
    if gap == 0 or not math.isfinite(gap):
        return f"{gap:.3g}"
    shown = _rounded(gap, 3, above=True)
    if not fun:
        return shown
    up = decimal.Context(prec=2, rounding=decimal.ROUND_CEILING)
    share = float(up.divide(decimal.Decimal(gap), decimal.Decimal(fun).copy_abs()))
    return f"{shown} ({share:.1e} of the cost)"


def _rounded(value: float, digits: int, *, above: bool) -> str:
    """Return a finite number with so many significant digits, rounded up or down."""
    side = decimal.ROUND_CEILING if above else decimal.ROUND_FLOOR
    nearest = f"{value:.{digits}g}"
    if float(nearest) == value:
        return nearest
    near = decimal.Context(prec=digits, rounding=side).create_decimal(decimal.Decimal(value))
    return f"{float(near):.{digits}g}"


def seconds_text(seconds: Any) -> str:
    """Return ``stats["seconds"]`` as text: the total, then the stages."""
    if not isinstance(seconds, Mapping):
        return f"{float(seconds):.2f}"
    stages = {str(k): float(v) for k, v in seconds.items()}
    total = stages.pop("total", None)
    if total is None:
        total = sum(stages.values())
    parts = ", ".join(f"{name} {value:.2f}" for name, value in stages.items())
    return f"{total:.2f} ({parts})" if parts else f"{total:.2f}"


def bytes_text(size: float) -> str:
    """Return a byte size in binary units."""
    size = float(size)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(size) < 1024:
            return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"


def result_record(result: Claim) -> dict[str, Any]:
    """Return the result without its arrays, ready for ``json.dumps``."""
    record = {
        "status": result.status,
        "success": result.success,
        "message": result.message,
        "n_rows": result.shape[0],
        "n_columns": result.shape[1],
        "maximize": result.maximize,
        "fun": result.fun,
        "bound": result.bound,
        "gap": result.gap,
        "nit": result.nit,
        "violator": result.violator,
        "stats": result.stats,
    }
    return {key: plain(value) for key, value in record.items()}


def plain(value: Any) -> Any:
    """Return ``value`` in JSON types; infinities and NaN become null."""
    if isinstance(value, enum.Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return plain(value.tolist())
    if isinstance(value, (list, tuple, set)):
        return [plain(item) for item in value]
    if isinstance(value, np.generic):
        return plain(value.item())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int, str)):
        return value
    return str(value)
