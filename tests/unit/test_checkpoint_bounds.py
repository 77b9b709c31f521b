"""Checkpoints: the bounds of the attempts before."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap import checkpoint, policy
from gate import Gated, gate  # noqa: F401
from instances import CLASSES
from killed import same, stop_after


@pytest.mark.some(2)
@pytest.mark.parametrize("method", ["ssp", "compressed"])
@pytest.mark.parametrize("maximize", [False, True])
def test_bounds_survive_a_resumption(tmp_path: Path, method: str, maximize: bool) -> None:
    """What was proved is not forgotten, and what is answered in the end is the same."""
    rng = np.random.default_rng(5)
    cost = bigsap.points(rng.random((900, 2)), rng.random((900, 2)), metric="euclidean")
    file, options = tmp_path / "c", {"threads": 1, "checkpoint_every": 0.0, "callback_every": 0.0}

    def stopped(solve, **given):
        event, seen = threading.Event(), []

        def look(progress):
            seen.append((progress.lower_bound, progress.upper_bound))
            if file.exists() and progress.phase >= 2:
                event.set()

        return solve(cancel=event, callback=look, **options, **given), seen

    first, _ = stopped(lambda **o: bigsap.solve(cost, method=method, maximize=maximize, checkpoint=file, **o))
    second, seen = stopped(lambda **o: bigsap.resume(file, cost, **o))
    assert (first.status, second.status) == ("cancelled", "cancelled")
    low, high = (first.fun, first.bound) if maximize else (first.bound, first.fun)
    assert seen[0][0] >= low
    assert seen[0][1] <= high
    assert second.gap <= first.gap
    assert second.fun >= first.fun if maximize else second.fun <= first.fun
    second.verify(cost)
    whole = bigsap.solve(cost, method=method, maximize=maximize, threads=1)
    assert same(bigsap.resume(file, cost, threads=1), whole)


@pytest.mark.parametrize("certify", [True, False])
def test_what_is_known_before_the_search_survives_a_resumption(
    certify,
    gate,  # noqa: F811
    tmp_path,
    monkeypatch,
):
    """The second attempt is stopped before it has a row."""
    cost, cancel, path = CLASSES["int10n"](60, seed=2), threading.Event(), tmp_path / "c"
    options = {"callback": stop_after(0), "callback_every": 0, "certify": certify}
    with monkeypatch.context() as patch:  # time enough for the answer, however busy the machine is
        patch.setattr("bigsap.progress._LEAST_GRACE", 60.0)
        first = bigsap.solve(Gated(cost, gate, after=10**6), checkpoint=path, **options)
    assert not checkpoint.read(path).snapshot
    gate.reached = cancel.set
    second = bigsap.resume(path, Gated(cost, gate), cancel=cancel, certify=certify)
    assert first.status == second.status == "cancelled"
    assert (second.bound, second.fun) == (first.bound, first.fun)
    assert np.array_equal(second.col4row, first.col4row)
    assert first.fun is not None


def test_bounds_of_costs_that_may_have_changed_are_not_believed(tmp_path: Path) -> None:
    """A function has no fingerprint."""
    rng = np.random.default_rng(6)
    matrix = rng.random((400, 400)) + 1
    event, file = threading.Event(), tmp_path / "c"

    def look(progress):
        if progress.phase >= 2:
            event.set()

    options = {"shape": matrix.shape, "callback_every": 0.0, "checkpoint_every": 0.0}
    first = bigsap.solve(
        lambda i: matrix[i], method="ssp", cancel=event, callback=look, checkpoint=file, **options
    )
    assert first.status == "cancelled"
    assert not checkpoint.read(file).best


@pytest.mark.parametrize("options", [{}, {"capacity": [50, 40, 20]}], ids=["square", "few columns"])
def test_bounds_of_costs_without_a_fingerprint_are_not_added_to_those_of_others(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No search begins, so the checkpoint is that of the first attempt."""
    monkeypatch.setattr(policy, "LEAST_CONTRACTED_COSTS", 0)
    shape, path = (110, 3) if options else (400, 400), tmp_path / "c"
    cost = np.random.default_rng(0).random(shape)

    class Nameless:
        dtype = np.dtype(np.float64)

        def __init__(self) -> None:
            self.shape = shape

        def cost_range(self) -> tuple[float, float]:
            return 5.0, 6.0

        def read(self, rows: Any, columns: slice, out: np.ndarray) -> None:
            out[:] = cost[rows, columns] + 5

    def stopped(run: Any, *given: Any) -> bigsap.Result:
        return run(*given, callback=stop_after(0), callback_every=0, **options)

    stopped(partial(bigsap.solve, checkpoint=path), cost)
    before = path.read_bytes()
    assert stopped(bigsap.resume, path, Nameless()).bound > 4 * len(cost)
    assert path.read_bytes() == before
    again = stopped(bigsap.resume, path, cost)
    assert again.status == "cancelled"
    assert again.bound is None or again.bound <= bigsap.solve(cost, **options).fun
    again.verify(cost)


def test_what_the_search_has_found_survives_several_interruptions(tmp_path):
    """Strategies may take an epsilon from it, so it is as in a solve without interruption."""
    source, path = CLASSES["disjoint"](150, seed=2), tmp_path / "c"
    stopped = bigsap.solve(source, method="ssp", checkpoint=path, callback=stop_after(4), callback_every=0)
    assert stopped.status == "cancelled"
    found = checkpoint.read(path).snapshot["found"]
    assert None not in found
    again = bigsap.resume(path, source, callback=stop_after(0), callback_every=0)
    assert again.status == "cancelled"
    cost, bound = checkpoint.read(path).snapshot["found"]
    assert cost <= found[0]
    assert bound >= found[1]
