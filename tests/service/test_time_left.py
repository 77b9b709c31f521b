"""The time left that the service tells: right to a factor of three, or nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from bigsap_server.jobs.eta import Pace

import bigsap

ROWS = 8000


#: Solves as they went: how long the phases before the last took; the last phase's unassigned
#: rows of ``ROWS``, by the seconds since it began; when the search and the certificate were over.
SOLVES = {
    "lognormal": (
        [0.3, 0.68, 0.25, 0.59, 0.29, 1.16, 0.64],
        {0.28: 4073, 0.89: 1903, 1.52: 872, 2.1: 458, 2.64: 156, 3.22: 58, 3.54: 34, 3.84: 16, 4.14: 5},
        (4.41, 4.42),
    ),
    "disjoint": ([1.7], {0.33: 361, 0.63: 6, 0.98: 1}, (1.2, 1.25)),
    "costly proof": ([6.0, 4.0], {1.0: 2400, 2.0: 600, 3.0: 80, 4.0: 4}, (5.0, 9.0)),
}
BEFORE_SEARCH = 5.0


def progress(phase: int, epsilon: float, assigned: int, seconds: float, stage: str = "search"):
    return bigsap.Progress(
        n_rows=ROWS,
        n_columns=ROWS,
        phase=phase,
        epsilon=epsilon,
        assigned=assigned,
        rows_evaluated=ROWS,
        seconds=seconds,
        stage=stage,
    )


def solve(name: str) -> Iterator[tuple[bigsap.Progress, float]]:
    """What a solve tells, and how much time is really left."""
    phases, last, (over, proved) = SOLVES[name]
    total = BEFORE_SEARCH + sum(phases) + proved
    now, phase = BEFORE_SEARCH, 0
    yield bigsap.Progress(n_rows=ROWS, n_columns=ROWS, seconds=now / 2), total - now / 2
    for phase, length in enumerate(phases, 1):
        for share in (0.0, 0.4, 0.8):
            assigned = 0 if phase == 1 and not share else ROWS - 10
            seconds = now + share * length
            yield progress(phase, 0.2**phase, assigned, seconds), total - seconds
        now += length
    phase += 1
    yield progress(phase, 0.0, ROWS - 10, now), total - now
    for seconds, free in last.items():
        yield progress(phase, 0.0, ROWS - free, now + seconds), total - now - seconds
    yield progress(phase, 0.0, ROWS, now + over, "certificate"), proved - over


@pytest.mark.parametrize("name", SOLVES)
def test_within_a_factor_of_three_or_nothing(name: str) -> None:
    phases, last, (_, proved) = SOLVES[name]
    pace, told = Pace(proof_reads_all=name == "costly proof"), 0
    for seen, left in solve(name):
        pace.see(seen)
        eta = pace.report()["eta_s"]
        if seen.epsilon or seen.stage != "search" or seen.phase < 2:
            assert eta is None
        elif eta is not None:
            told += 1
            floor = 0.05 * (sum(phases) + proved)  # towards the end a moment more or less
            assert left / 3 - floor <= eta <= 3 * left + floor, (seen, eta, left)
    assert told == len(last)


def test_nothing_is_told_in_the_only_phase() -> None:
    pace = Pace()
    for step in range(20):
        pace.see(progress(1, 0.0, ROWS * step // 20, 1.0 + step))
        assert pace.report()["eta_s"] is None


def test_nothing_is_told_while_no_row_is_matched() -> None:
    pace = Pace()
    pace.see(progress(1, 0.1, 0, 1.0))
    pace.see(progress(2, 0.0, ROWS - 5, 2.0))
    for seconds in (3.0, 4.0):
        pace.see(progress(2, 0.0, ROWS - 5, seconds))  # those of the phase before
        assert pace.report()["eta_s"] is None
    for seconds in range(5, 40):
        pace.see(progress(2, 0.0, ROWS - 7, float(seconds)))
    assert pace.report()["eta_s"] is None


def test_a_resumed_solve_has_seen_no_phase_yet() -> None:
    pace = Pace()
    pace.see(progress(3, 0.0, 500, 2.0))
    pace.see(progress(3, 0.0, 600, 3.0))
    assert pace.report()["eta_s"] is None
