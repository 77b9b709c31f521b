"""Jobs spread over several workers of the cluster: permission and time estimate.

The formula is that of docs/cluster.md.
"""

from __future__ import annotations

import math

from bigsap_server.costs.request import JobRequest
from bigsap_server.problems import HttpProblem
from bigsap_server.settings import Settings

#: Bytes a second received from all workers together: an assumption.
BYTES_A_SECOND = 5e8
#: Time of a wave of rows that searches wait for: two round trips, while half of the workers wait.
WAVE_SECONDS = 0.01
#: Rows of such a wave.
WAVE_ROWS = 32
#: Bytes returned for a row that is not returned whole.
LIST_BYTES = 1600


def has_cluster(settings: Settings) -> bool:
    """Return whether there are, as far as is known, several workers for a spread job."""
    if settings.executor == "inline":
        return False
    return settings.scheduler is not None or settings.default_workers > 1


def workers_asked(request: JobRequest, settings: Settings, most: int | None) -> bool | int:
    """Return ``spread`` for the job: False, True for all workers, or how many at most.

    most: the limit of the caller's key; None: no limit. Raises HttpProblem with the pointer to the
    field.
    """
    asked = request.spread
    if not asked:
        return False
    if not has_cluster(settings):
        has = "runs jobs in its own process" if settings.executor == "inline" else "has one worker"
        raise HttpProblem(
            "invalid-spec", f"there is no cluster to spread a job over: this service {has}", pointer="/spread"
        )
    if request.options.device == "cuda":
        raise HttpProblem(
            "invalid-spec", "a spread job is solved by the CPUs of its workers", pointer="/spread"
        )
    if most is None:
        return asked
    if most < 2 or (asked is not True and asked > most):
        allowed = "none" if most < 2 else f"at most {most}"
        number = "several" if asked is True else asked
        raise HttpProblem(
            "over-limit", f"{number} workers for one job; {allowed} are allowed", pointer="/spread"
        )
    return most if asked is True else asked


def workers_of(spread: bool | int, there: int) -> int:
    """Return how many of the existing workers such a job will have."""
    if not spread:
        return 1
    return max(1, there if spread is True else min(spread, there))


def spread_seconds(
    n: int, m: int, row_seconds: float, workers: int, *, asked: float, answered: float, whole: bool
) -> float:
    """Return the seconds that the rows of a spread solve take, without its search.

    asked: rows requested from the costs by workers. answered: rows returned by workers, including
    those that they have kept. whole: with whole rows; else with lists.
    """
    answer = 8 * m if whole else min(8 * m, LIST_BYTES)
    waves = 0 if whole else math.ceil(max(0.0, answered - n) / WAVE_ROWS)
    return asked * row_seconds / workers + answered * answer / BYTES_A_SECOND + WAVE_SECONDS * waves
