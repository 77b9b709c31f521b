"""Headers in which clients say what they want: Accept, Prefer, entity tags, Range."""

from __future__ import annotations

import re
from collections.abc import Sequence

from bigsap_server.problems import HttpProblem


def accepted(header: str | None, offers: Sequence[str]) -> str:
    """The offered media type that ``Accept`` likes best; the first among equals.

    Raises HttpProblem ``not-acceptable`` when it likes none.
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
    """The quality of the most specific range that matches."""
    whole, part = offer.lower(), offer.partition("/")[0].lower() + "/*"
    found, specific = 0.0, -1
    for kind, quality in ranges:
        level = {whole: 2, part: 1, "*/*": 0}.get(kind, -1)
        if level > specific or (level == specific >= 0 and quality > found):
            found, specific = quality, level
    return found


def preferred_wait(header: str | None) -> float | None:
    """Seconds of ``Prefer: wait=N`` (RFC 7240), None without one that makes sense."""
    found = re.search(r"(?:^|[,;\s])wait\s*=\s*\"?([0-9]{1,9})\"?\s*(?:$|[,;])", header or "")
    return float(found.group(1)) if found else None


def matches(header: str | None, tag: str) -> bool:
    """Whether ``If-None-Match`` names the entity tag (weak comparison)."""
    if header is None:
        return False
    tags = [item.strip().removeprefix("W/") for item in header.split(",")]
    return "*" in tags or tag in tags


def check_range(header: str | None, size: int) -> bool:
    """Whether a Range header is to be honoured (RFC 9110: nonsense is ignored).

    Raises HttpProblem ``range-not-satisfiable``.
    """
    if header is None:
        return False
    found = re.fullmatch(
        r"bytes\s*=\s*(\d{0,18}-\d{0,18}(?:\s*,\s*\d{0,18}-\d{0,18}){0,7})", header
    )
    if found is None:
        return False
    satisfiable = False
    for item in found.group(1).split(","):
        first, _, last = item.strip().partition("-")
        if (not first and not last) or (first and last and int(first) > int(last)):
            return False
        satisfiable |= int(first) < size if first else int(last) > 0 and size > 0
    if not satisfiable:
        raise HttpProblem(
            "range-not-satisfiable", f"there are {size} bytes",
            headers={"Content-Range": f"bytes */{size}"},
        )  # fmt: skip
    return True
