"""Validation of what is given beside the costs: starts, prices, counts, an assignment.

The library makes the checks, of arrays that are small enough to be read; of others only the sizes
are known. The worker makes them all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import bigsap
from bigsap import preview
from bigsap_server.costs.build import Resolver, below, invalid
from bigsap_server.problems import from_error


@dataclass(frozen=True)
class Given:
    """The arrays of a normalised request. most_bytes: larger ones are not read."""

    request: Mapping[str, Any]
    resolver: Resolver
    most_bytes: int

    def check_choices(self) -> None:
        """Refuse members that do not go together, whatever the shape is. Raises HttpProblem."""
        options, asked = self.request["options"], self.request["assignment"]
        if self.request["spread"] and (options["capacity"] is not None or options["demand"] is not None):
            raise invalid("is not valid with capacity or demand: the search runs in one worker", "/spread")
        if asked is None:
            return
        for name, used in (
            ("objective", options["objective"] != "sum"),
            ("demand", options["demand"] is not None),
        ):
            if used:
                why = preview.NOT_CERTIFIED[name]
                raise invalid(f"is not valid with an assignment to certify: {why}", f"/options/{name}")
        for name in ("warm_start", "spread"):
            if asked["v"] is not None and self.request[name]:
                raise invalid("is not valid with prices v: there is no solve", f"/{name}")

    def check(self, shape: tuple[int, int]) -> None:
        """Validate the arrays for costs of this shape. Raises HttpProblem."""
        (n, m), options = shape, self.request["options"]
        prices = self.small(options["unassigned_cost"], n, "/options/unassigned_cost")
        if prices is not None:
            with answered("/options/unassigned_cost"):
                preview.check_unassigned_cost(prices, n, options["maximize"])
        counts = {}
        for name, size in (("capacity", m), ("demand", n)):
            counts[name] = self.small(options[name], size, f"/options/{name}")
            if counts[name] is not None:
                with answered(f"/options/{name}"):
                    counts[name] = preview.check_counts(counts[name], size, name)
        self._check_start(shape)
        self._check_assignment(shape, counts["capacity"])

    def small(self, ref: Any, size: int, pointer: str) -> Any:
        """Return the array of a reference, None if it is large. Raises HttpProblem unless it has ``size``."""
        if ref is None or isinstance(ref, (int, float)):
            return ref
        facts = self.resolver.facts(ref, pointer)
        if facts.shape != (size,):
            raise invalid(f"needs shape {[size]}, got {list(facts.shape)}", pointer)
        return self.resolver.array(ref, pointer) if facts.nbytes <= self.most_bytes else None

    def _check_start(self, shape: tuple[int, int]) -> None:
        start = self.request["warm_start"] or {}
        if start.get("v") is None:
            return
        v = self.small(start["v"], shape[1], "/warm_start/v")
        if v is not None:
            with answered("/warm_start/v"):
                preview.check_warm_start(v, shape)
        pairs = self.small(start["col4row"], shape[0], "/warm_start/col4row")
        if pairs is not None:
            with answered("/warm_start/col4row"):
                preview.check_warm_start((np.zeros(shape[1]), pairs), shape)

    def _check_assignment(self, shape: tuple[int, int], capacity: Any) -> None:
        asked, options = self.request["assignment"], self.request["options"]
        if asked is None:
            return
        found = {
            name: self.small(asked[name], size, f"/assignment/{name}")
            for name, size in (("col4row", shape[0]), ("v", shape[1]), ("v_low", shape[1]))
        }
        for name in ("v", "v_low"):
            if found[name] is not None:
                with answered(f"/assignment/{name}"):
                    preview.check_prices(found[name], shape[1])
        if found["col4row"] is not None and (options["capacity"] is None) == (capacity is None):
            partial = options["unassigned_cost"] is not None
            with answered("/assignment/col4row"):
                preview.check_assignment(found["col4row"], shape, capacity, partial=partial)


@contextmanager
def answered(pointer: str) -> Iterator[None]:
    """Convert the library's errors to a problem at ``pointer``, or at the row that they name."""
    try:
        yield
    except bigsap.CertificateError as error:
        raise invalid(str(error), pointer) from error
    except bigsap.BigsapError as error:
        row = getattr(error, "row", None)
        raise from_error(error, pointer if row is None else below(pointer, row)) from error
