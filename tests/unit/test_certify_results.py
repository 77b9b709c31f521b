"""``certify`` with a result's prices, its end by ``cancel``, and certificates as results."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import bigsap
from bigsap.errors import CertificateError, OptionError
from bigsap.result import Status
from bigsap.summary import arrays_of, certified_result, result_of, summary_of
from gate import Gate, Gated

RNG = np.random.default_rng(31)
COST = RNG.random((6, 8))


@pytest.mark.parametrize("maximize", [False, True])
def test_prices_of_a_result_are_taken_in_its_sense(maximize: bool) -> None:
    best = bigsap.solve(COST, maximize=maximize)
    certificate = bigsap.certify(COST, best.col4row, best, maximize=maximize)
    assert certificate.optimal
    assert certificate.pairs + certificate.bounds == COST.size  # one pass: the sign is not tried
    swapped = best.col4row.copy()
    swapped[[0, 1]] = swapped[[1, 0]]
    assert not bigsap.certify(COST, swapped, best, maximize=maximize).optimal
    with pytest.raises(OptionError, match="another shape or sense"):
        bigsap.certify(COST, best.col4row, best, maximize=not maximize)
    with pytest.raises(OptionError, match="another shape or sense"):
        bigsap.certify(COST[:, :7], best.col4row, best, maximize=maximize)


def test_a_result_without_prices_bounds_by_zeros() -> None:
    best = bigsap.solve(COST)
    nothing = bigsap.Result.from_assignment(best.col4row, None, shape=best.shape, status=Status.CANCELLED)
    assert np.isnan(nothing.v).all()
    certificate = bigsap.certify(COST, best.col4row, nothing)
    assert certificate.bound == bigsap.certify(COST, best.col4row, np.zeros(8)).bound <= best.fun


def test_cancel_ends_a_pass_that_waits(tmp_path) -> None:
    gate, cancel = Gate(tmp_path / "gate"), threading.Event()
    best = bigsap.solve(COST)
    gate.reached = cancel.set
    with pytest.raises(CertificateError, match="nothing is proved"):
        bigsap.certify(Gated(COST, gate, after=3), best.col4row, best, cancel=cancel)
    stages = set()
    gate.open()
    source = Gated(COST, gate)
    bigsap.certify(
        source, best.col4row, best, callback=lambda progress: stages.add(progress.stage), callback_every=0
    )
    assert stages == {"certificate"}


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("given", [{}, {"unassigned_cost": 0.3}, {"capacity": 2}])
def test_a_certificate_as_a_result_verifies_itself(maximize: bool, given: dict) -> None:
    best = bigsap.solve(COST, maximize=maximize, **given)
    other = best.col4row.copy()
    rows = np.flatnonzero(other >= 0)[:2]
    if rows.size == 2:
        other[rows] = other[rows[::-1]]
    for col4row in (best.col4row, other):
        certificate = bigsap.certify(COST, col4row, best, maximize=maximize, **given)
        status = Status.OPTIMAL if certificate.optimal else Status.IMPRECISE
        made = certified_result(
            certificate, col4row, 8, status=Status.IMPRECISE, maximize=maximize, stats={"x": 1}, **given
        )
        assert (made.status, made.success) == (status, certificate.optimal)
        assert (made.fun, made.bound, made.gap) == (certificate.fun, certificate.bound, certificate.gap)
        assert made.col4row.tolist() == col4row.tolist()
        again = result_of(summary_of(made, 1), arrays_of(made).__getitem__)
        proved = again.verify(COST)
        assert (proved.fun, proved.bound) == (made.fun, made.bound)
        assert again.stats["proof"] == certificate.by


@pytest.mark.parametrize("maximize", [False, True])
def test_prices_of_a_result_are_not_rounded_by_a_shift(maximize: bool) -> None:
    """Its own bound is proved where the prices' sizes differ so much that a shift would lose digits."""
    rows, columns = np.divmod(np.arange(20), 4)
    for seed in (21, 44, 54, 72):
        rng = np.random.default_rng(seed)
        wide = rng.random((5, 4)) * rng.choice([1e299, 1.0, 1e-300], (5, 4), p=[0.1, 0.4, 0.5])
        costs = wide.ravel() * (-1 if maximize else 1)
        source = bigsap.sparse((rows, columns, costs))
        best = bigsap.solve(source, maximize=maximize)
        assert best.status == Status.OPTIMAL
        certificate = bigsap.certify(source, best, best, maximize=maximize)
        assert (certificate.optimal, certificate.bound) == (True, best.bound)
        assert bigsap.certify(source, best, maximize=maximize).optimal
