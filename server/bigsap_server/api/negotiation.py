"""Request headers for negotiation: Accept, Prefer, entity tags, Range."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from typing import Any

from starlette.datastructures import MutableHeaders

from bigsap_server.problems import HttpProblem


def accepted(header: str | None, offers: Sequence[str]) -> str:
    """Return the offered media type with the highest quality in ``Accept``; the first among equals.

    Raises HttpProblem ``not-acceptable`` when none is acceptable.
    """
    if header is None or not header.strip():
        return offers[0]
    ranges: dict[str, float] = {}
    for item in header[:2000].split(","):
        kind, *parameters = (part.strip().lower() for part in item.split(";"))
        given = next((part[2:] for part in parameters if part.startswith("q=")), "1")
        quality = float(given) if re.fullmatch(r"(?=.*\d)\d*\.?\d*", given, re.ASCII) else 0.0
        ranges[kind] = max(quality, ranges.get(kind, 0.0))

    def quality_of(offer: str) -> float:
        """Return the quality of the most specific range that matches."""
        kinds = (offer, offer.partition("/")[0] + "/*", "*/*")
        return next((ranges[kind] for kind in kinds if kind in ranges), 0.0)

    best = max(offers, key=quality_of)
    if not quality_of(best):
        raise HttpProblem("not-acceptable", f"this can be had as {', '.join(offers)}")
    return best


def preferred_wait(header: str | None) -> float | None:
    """Return the seconds of ``Prefer: wait=N`` (RFC 7240), None if absent or invalid."""
    wanted = r"(?:^|[,;\s])wait\s*=\s*\"?([0-9]{1,9})\"?\s*(?:$|[,;])"
    found = re.search(wanted, header or "", re.IGNORECASE)
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
    headers = MutableHeaders(scope=scope)
    wanted = satisfiable(headers.get("range"), size)
    if wanted is None:
        del headers["range"], headers["if-range"]
    else:
        headers["range"] = wanted
