"""The time left that the service tells: nothing at first, then right to a factor of three."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bigsap_server.jobs.pace import Pace

import bigsap

ROWS = 1000


def solve(
    phases: list[float], start: float, proof: float, late: float
) -> Iterator[tuple[bigsap.Progress, float]]:
    """What a solve tells, and how much time is really left.

    phases: seconds of each. late: the last tenth of a phase's rows take this share of it.
    """
    total = start + sum(phases) + proof
    yield bigsap.Progress(n_rows=ROWS, n_columns=ROWS, seconds=start / 2), total - start / 2
    now, assigned = start, 0
    for k, length in enumerate(phases):
        epsilon = 0.0 if k == len(phases) - 1 else 0.2**k
        for step in range(20):
            share = step / 20
            if step:  # the first report of a phase has the rows of the one before
                quick = (1 - late) or 1e-9
                done = 0.9 * share / quick if share < quick else 1 - 0.1 * (1 - share) / late
                assigned = int(ROWS * min(1.0, done))
            seconds = now + share * length
            yield bigsap.Progress(
                n_rows=ROWS, n_columns=ROWS, phase=k + 1, epsilon=epsilon, assigned=assigned,
                rows_evaluated=2 * ROWS, seconds=seconds, stage="search",
            ), total - seconds  # fmt: skip
        assigned = ROWS
        now += length
    yield bigsap.Progress(
        n_rows=ROWS, n_columns=ROWS, phase=len(phases), assigned=ROWS, seconds=now,
        stage="certificate",
    ), proof  # fmt: skip


# As phases went: disjoint points in the plane, points in a square, random costs; see the issue's
# 13 seconds that were announced as half a second.
SOLVES = {
    "disjoint": ([3.1, 1.8, 1.1, 0.5, 0.3], 3.8, 1.6, 0.5),
    "geometric": ([1.5, 1.2, 0.5], 0.6, 0.5, 0.6),
    "random": ([0.1, 0.04, 0.04, 0.06], 0.2, 0.07, 0.1),
    "ssp": ([0.42, 0.46, 0.41, 0.44, 0.18, 0.13, 0.08], 0.4, 0.05, 0.3),
    "even": ([10.0, 10.0, 10.0, 5.0], 10.0, 2.0, 0.1),
    "hard": ([10.0, 4.0, 2.0, 1.0], 2.0, 0.5, 0.9),
}


@pytest.mark.parametrize("name", SOLVES)
def test_within_a_factor_of_three(name: str) -> None:
    pace, told = Pace(), 0
    for progress, left in solve(*SOLVES[name]):
        pace.see(progress)
        eta = pace.report()["eta_s"]
        if progress.phase < 2 or progress.stage == "certificate":
            assert eta is None
            continue
        told += 1
        assert eta is not None
        floor = 0.05 * sum(SOLVES[name][0])  # towards the end a moment more or less
        assert left / 3 - floor <= eta <= 3 * left + floor, (progress.phase, eta, left)
    assert told == 20 * (len(SOLVES[name][0]) - 1)


def test_nothing_is_told_in_the_only_phase() -> None:
    pace = Pace()
    for progress, _ in solve([30.0], 1.0, 1.0, 0.9):
        pace.see(progress)
        assert pace.report()["eta_s"] is None


def test_a_resumed_solve_has_seen_no_phase_yet() -> None:
    pace = Pace()
    state = bigsap.Progress(
        n_rows=ROWS, n_columns=ROWS, phase=3, epsilon=0.1, assigned=500, rows_evaluated=ROWS,
        seconds=2.0, stage="search",
    )  # fmt: skip
    pace.see(state)
    assert pace.report()["eta_s"] is None
