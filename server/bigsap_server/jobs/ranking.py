"""Jobs with ``k_best``: the k best assignments, after the solve."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

import bigsap
from bigsap.k_best import best_after
from bigsap_server.problems import HttpProblem

#: Outcomes of a solve that a ranking can follow.
RANKED = (bigsap.Status.OPTIMAL, bigsap.Status.IMPRECISE, bigsap.Status.INFEASIBLE)


class RankingStopped(Exception):
    """Raised by ``check`` to end a ranking; the message says why."""


def ranked(
    result: bigsap.Result,
    source: bigsap.CostSource,
    k: int,
    options: Mapping[str, Any],
    check: Callable[[], object],
) -> bigsap.Assignments:
    """Return the k best assignments. options: of ``bigsap.solve``, whose result this is.

    check: called several times a second. Raises what it raises, HttpProblem for integer costs beyond int64,
    which no array holds, and OverflowRiskError.
    """
    given = {name: options[name] for name in ("unassigned_cost", "dtype", "threads")}
    found = best_after(result, source, k, check=check, **given)
    if found.costs.dtype == np.dtype(object):
        detail = "costs of the assignments lie beyond int64, in which they are kept"
        raise HttpProblem("invalid-cost", detail, pointer="/k_best")
    return found
