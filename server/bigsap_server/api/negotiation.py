"""Request headers for negotiation: Accept, Prefer, entity tags, Range."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from typing import Any

from bigsap_server.problems import HttpProblem


def accepted(header: str | None, offers: Sequence[str]) -> str:
    """Return the offered media type with the highest quality in ``Accept``; the first among equals.

    Raises HttpProblem ``not-acceptable`` when none is acceptable.
    """
    if header is None or not header.strip():
        return offers[0]
    ranges = []
    for item in header[:2000].split(","):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        quality = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    quality = float(parameter[2:])
                except ValueError:
                    quality = 0.0
        ranges.append((kind, quality))
    best, offer = 0.0, None
    for candidate in offers:
        quality = _quality(candidate, ranges)
        if quality > best:
            best, offer = quality, candidate
    if offer is None:
        raise HttpProblem("not-acceptable", f"this can be had as {', '.join(offers)}")
    return offer


def _quality(offer: str, ranges: Sequence[tuple[str, float]]) -> float:
    """Return the quality of the most specific range that matches."""
    whole, part = offer.lower(), offer.partition("/")[0].lower() + "/*"
    found, specific = 0.0, -1
    for kind, quality in ranges:
        level = {whole: 2, part: 1, "*/*": 0}.get(kind, -1)
        if level > specific or (level == specific >= 0 and quality > found):
            found, specific = quality, level
    return found


def preferred_wait(header: str | None) -> float | None:
    """Return the seconds of ``Prefer: wait=N`` (RFC 7240), None if absent or invalid."""
    found = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?([0-9]{1,9})\"?\s*(?:$|[,;])", header or "")
    return float(found.group(1)) if found else None


def matches(header: str | None, tag: str) -> bool:
    """Return whether ``If-None-Match`` names the entity tag (weak comparison)."""
    if header is None:
        return False
    tags = [item.strip().removeprefix("W/") for item in header.split(",")]
    return "*" in tags or tag in tags


def required(header: str | None) -> set[str] | None:
    """Return the entity tags of ``If-Match``; None if any will do."""
    tags = None if header is None else {item.strip() for item in header.split(",")}
    return None if tags is None or "*" in tags else tags


def satisfiable(header: str | None, size: int) -> str | None:
    """Return the Range header without unsatisfiable parts; None where it is to be ignored.

    RFC 9110: an invalid header is ignored, and one satisfiable part is enough.
    Raises HttpProblem ``range-not-satisfiable`` when there is none.
    """
    found = re.fullmatch(r"bytes\s*=\s*(\d{0,18}-\d{0,18}(?:\s*,\s*\d{0,18}-\d{0,18}){0,7})", header or "")
    if found is None:
        return None
    parts = []
    for item in found.group(1).split(","):
        first, _, last = item.strip().partition("-")
        if (not first and not last) or (first and last and int(first) > int(last)):
            return None
        if int(first) < size if first else int(last) > 0 and size > 0:
            parts.append(f"{first}-{last}")
    if not parts:
        raise HttpProblem(
            "range-not-satisfiable", f"there are {size} bytes", headers={"Content-Range": f"bytes */{size}"}
        )
    return "bytes=" + ",".join(parts)


def narrow_range(scope: MutableMapping[str, Any], size: int) -> None:
    """Reduce a request's Range to the satisfiable parts for ``size`` bytes.

    Starlette would answer the rest, and headers to be ignored, with errors of its own.
    """
    given = [value for name, value in scope["headers"] if name == b"range"]
    wanted = satisfiable(given[0].decode("latin-1"), size) if given else None
    dropped = (b"range", b"if-range") if wanted is None else (b"range",)
    kept = [pair for pair in scope["headers"] if pair[0] not in dropped]
    scope["headers"] = kept if wanted is None else [*kept, (b"range", wanted.encode())]
