"""Jobs with ``k_best``: the k best assignments, after the solve."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

import bigsap
from bigsap.k_best import best_after
from bigsap_server.problems import HttpProblem

_OPTIONS = ("unassigned_cost", "dtype", "threads", "time_limit", "callback", "cancel", "checkpoint_every")


def ranked(
    result: bigsap.Result,
    source: bigsap.CostSource,
    k: int,
    options: Mapping[str, Any],
    progress: bigsap.Progress | None,
    settings: Mapping[str, Any],
    checkpoint: Path,
) -> bigsap.Assignments:
    """Return the k best assignments; those that are proved, if the ranking is stopped.

    options: of ``bigsap.solve``, whose result this is; the time limit that of the ranking. progress: of the
    solve. settings: of the job. checkpoint: the file that the ranking continues from, if it is of the same
    one, and writes. Raises CheckpointError if the costs are others than the file's, HttpProblem for
    integer costs beyond int64, which no array holds, OverflowRiskError, and OptionError where pairs to list
    need more than the memory allowed.
    """
    given = {name: options[name] for name in _OPTIONS}
    own = options["memory_limit"]
    limits = [settings["limits"]["memory_bytes"], settings.get("worker_memory_bytes")]
    limits.append(None if own is None else bigsap.RowCache(own).budget(0))
    given["memory_limit"] = min((limit for limit in limits if limit is not None), default=None)
    found = best_after(result, source, k, progress=progress, checkpoint=checkpoint, **given)
    if found.costs.dtype == np.dtype(object):
        detail = "costs of the assignments lie beyond int64, in which they are kept"
        raise HttpProblem("invalid-cost", detail, pointer="/k_best")
    return found
