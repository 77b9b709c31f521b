"""Jobs with an assignment: what it costs, a proved bound of the optimum, and the gap between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import bigsap
from bigsap import preview
from bigsap.summary import certified_result
from bigsap_server.costs.build import Resolver
from bigsap_server.problems import HttpProblem

_PLACE = "/assignment/col4row"


def proved(
    asked: Mapping[str, Any],
    source: bigsap.CostSource,
    options: Mapping[str, Any],
    resolver: Resolver,
    solved: Callable[[], bigsap.Result],
) -> bigsap.Result:
    """Return the assignment of a request as a result, with its certificate.

    options: of ``bigsap.solve``. solved: solves the problem, for prices if there are none.

    A solve that ends at its time limit leaves a weaker bound, and a job that can be resumed. Raises
    HttpProblem if it is not an assignment of allowed pairs, CertificateError if cancelled.
    """
    arrays = {
        name: None if asked[name] is None else resolver.array(asked[name], f"/assignment/{name}")
        for name in ("col4row", "v", "v_low")
    }
    col4row, (n, m) = np.asarray(arrays["col4row"]), source.shape
    problem = {name: options[name] for name in ("maximize", "unassigned_cost", "capacity")}
    several, partial = problem["capacity"], problem["unassigned_cost"] is not None
    counts = None if several is None else preview.check_counts(several, m, "capacity")
    found = None
    try:
        preview.check_assignment(col4row, (n, m), counts, partial=partial)
        found = solved() if arrays["v"] is None else None
        certificate = bigsap.certify(
            source,
            col4row,
            arrays["v"] if found is None else found,
            arrays["v_low"],
            dtype=options["dtype"],
            threads=options["threads"],
            pairs=options["certify"] == "pairs",
            callback=options["callback"],
            cancel=options["cancel"],
            **problem,
        )
    except bigsap.CertificateError as error:
        if options["cancel"].is_set():
            raise
        raise HttpProblem("invalid-assignment", str(error), pointer=_PLACE) from error
    status = bigsap.Status.IMPRECISE
    if certificate.gap is not None and certificate.gap <= options["gap"]:
        status = bigsap.Status.GAP_REACHED
    elif found is not None and found.status == bigsap.Status.TIME_LIMIT:
        status = bigsap.Status.TIME_LIMIT
    stats = {} if found is None else {**found.stats, "solved_fun": found.fun}
    return certified_result(certificate, col4row, m, status=status, stats=stats, **problem)
