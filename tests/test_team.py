"""How long threads of a team wait for one another before they offer their cores to others."""

from __future__ import annotations

import numpy as np
import pytest

from bigsap.engine.core import state as S
from bigsap.engine.core.atomics import LONG_SPINS, PATIENCE, SPINS, cross, new_barrier
from bigsap.engine.core.team import Team, available_threads
from bigsap.native.kernel import kernel


@pytest.mark.parametrize(("threads", "cores", "spins"), [(1, 1, LONG_SPINS), (2, 2, LONG_SPINS),
                         (3, 2, SPINS), (8, 64, LONG_SPINS)])  # fmt: skip
def test_a_team_with_a_core_each_waits_longer(threads, cores, spins):
    assert new_barrier(threads, cores)[PATIENCE] == spins


def test_states_have_barriers_for_this_machine():
    for threads in (1, available_threads(), available_threads() + 1):
        state = S.allocate(5, 70, np.dtype(np.float64), threads, 0)
        fits = threads <= available_threads()
        assert state.barrier[PATIENCE] == (LONG_SPINS if fits else SPINS)


@kernel
def _turns(thread: int, n_threads: int, barrier: np.ndarray, sums: np.ndarray) -> int:
    """Each thread adds to its own sum what the one beside it had after the turn before."""
    for turn in range(200):
        before, after = turn % 2, 1 - turn % 2
        sums[after, thread] = sums[before, (thread + 1) % n_threads] + 1
        cross(barrier, n_threads)
    return 0


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_nobody_passes_a_barrier_alone(threads):
    sums = np.zeros((2, threads), np.int64)
    barrier = new_barrier(threads, available_threads())
    with Team(threads) as team:
        assert team.run(_turns, barrier, sums) == 0
    assert (sums[0] == 200).all()
