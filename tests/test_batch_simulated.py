"""Rounds of searches on lists (``engine/gpu/batch.py``), run by ``tests/simulated``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsap
from bigsap.engine.gpu import batch as gpu_batch
from bigsap.engine.gpu import device_lists as gpu_lists
from bigsap.engine.gpu.batch import Matching
from bigsap.methods import compressed
from pairwise import pairwise
from test_device_simulated import optimum

pytestmark = pytest.mark.usefixtures("cupy")


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rounds, short lists and floods for small problems; few threads: they take turns."""
    monkeypatch.setattr(gpu_lists, "BATCH_ROWS", 8)
    monkeypatch.setattr(gpu_lists, "BATCH_NEEDS_BOUNDS", False)
    monkeypatch.setattr(compressed, "LIST_SIZE", 8)
    monkeypatch.setattr(gpu_batch, "FLOOD_THREADS", 64)
    monkeypatch.setattr(gpu_batch, "SHORT", (4,))


def problem(kind: str, n: int = 40) -> np.ndarray:
    g = np.random.default_rng(4)
    if kind == "random":
        return g.random((n, n))
    if kind == "ties":
        return g.integers(0, 5, (n, n))
    if kind == "twins":  # every row and column twice
        half = g.random((n // 2, n // 2))
        return np.tile(half, (2, 2))
    if kind == "constant":
        return np.ones((n, n))
    if kind == "large":
        return g.integers(0, 2**48, (n, n))
    x, y = g.random((n, 2)), g.random((n, 2))
    x[n // 2 :] += 1
    y[n // 2 :, 1] += 1
    y[: n // 2, 0] += 1
    squared = ((x[:, None] - y[None]) ** 2).sum(-1)
    if kind == "forbidden":
        squared[g.random((n, n)) < 0.4] = np.inf
    return squared


def solved(matrix: np.ndarray, **options: Any) -> bigsap.Result:
    return bigsap.solve(matrix, device="cuda", method="compressed", **options)


@pairwise(
    kind=["random", "ties", "twins", "constant", "large", "disjoint", "forbidden"],
    maximize=[False, True],
)
def test_agrees_with_scipy(kind: str, maximize: bool) -> None:
    matrix = problem(kind)
    if maximize:
        matrix = -matrix
    result = solved(matrix, maximize=maximize)
    assert result.status == "optimal"
    assert result.fun == pytest.approx(optimum(matrix, maximize), rel=1e-12)
    result.verify(matrix)
    rounds = result.stats["rounds"]
    if rounds:  # else tight pairs solved it
        assert rounds["left"] == 0
        assert rounds["kept"] <= rounds["scans"] == result.stats["rows_scanned"]


@pytest.mark.parametrize(
    ("lengths", "short", "flood"), [((2, 4), (2,), 6), ((1,), (1,), 40), ((64,), (), 40)]
)
def test_searches_that_outgrow_their_room(
    lengths: tuple[int, ...], short: tuple[int, ...], flood: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu_batch, "LENGTHS", lengths)
    monkeypatch.setattr(gpu_batch, "SHORT", short)
    monkeypatch.setattr(gpu_batch, "FLOOD", flood)
    matrix = problem("disjoint")
    result = solved(matrix)
    assert result.fun == pytest.approx(optimum(matrix), rel=1e-12)
    rounds = result.stats["rounds"]
    assert (rounds["left"] > 0) == (lengths != (64,))


def test_host_takes_over_when_rounds_do_not_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_batch, "_WINDOW", 1)
    monkeypatch.setattr(gpu_batch, "_LEAST_GAIN", 0)
    matrix = problem("disjoint")
    result = solved(matrix)
    assert result.fun == pytest.approx(optimum(matrix), rel=1e-12)
    assert result.stats["rounds"]["left"] > 0


def test_a_round_leaves_a_legal_state(monkeypatch: pytest.MonkeyPatch) -> None:
    usual = Matching.round
    seen = []

    def checked(self: Matching, *given: Any) -> Any:
        before, free = self.v.get(), self.open_price.get() == self.v.get()
        status = usual(self, *given)
        after, columns, rows = self.v.get(), self.column_of_row.get(), self.row_of_column.get()
        assert (after <= before).all()
        matched = np.flatnonzero(columns >= 0)
        assert np.array_equal(rows[columns[matched]], matched)
        assert (rows >= 0).sum() == matched.size
        assert np.array_equal(np.isinf(self.open_price.get()), rows >= 0)
        assert np.array_equal(after[rows < 0], before[rows < 0])  # free columns keep theirs
        assert free.sum() - (rows < 0).sum() == (status == gpu_batch.WON).sum()
        assert (self.claims.get() == np.uint64(2**64 - 1)).all()
        assert not self.falls.get().any()
        seen.append(status)
        return status

    monkeypatch.setattr(Matching, "round", checked)
    matrix = problem("disjoint")
    assert solved(matrix).fun == pytest.approx(optimum(matrix), rel=1e-12)
    statuses = set(np.concatenate(seen).tolist())
    assert {gpu_batch.WON, gpu_batch.LOST, gpu_batch.ASKS, gpu_batch.GREW} <= statuses


def test_the_answer_does_not_depend_on_the_warps(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = problem("disjoint")
    one = solved(matrix)
    # Five warps in place of two: rows are scanned in another order.
    monkeypatch.setattr(gpu_batch, "FLOOD_THREADS", 160)
    other = solved(matrix)
    assert np.array_equal(one.col4row, other.col4row)
    assert one.v.tobytes() == other.v.tobytes()
    assert one.stats["rows_scanned"] == other.stats["rows_scanned"]


def test_infeasible() -> None:
    matrix = problem("random")
    matrix[:10, 6:] = np.inf
    result = solved(matrix)
    assert result.status == "infeasible"
    assert set(result.violator) <= set(range(10))


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_a_checkpoint_between_rounds(
    device: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(gpu_batch, "_TICK_SECONDS", 0.0)
    matrix, path, asked = problem("disjoint"), tmp_path / "c", []

    def stop(progress: Any) -> None:
        asked.append(progress.assigned)
        if progress.stage == "search" and progress.phase == 2 and 0 < progress.assigned < 40:
            raise StopIteration

    part = solved(matrix, checkpoint=path, callback=stop, callback_every=0.0)
    assert part.status == "cancelled"
    assert part.bound <= optimum(matrix) <= part.fun
    whole = bigsap.resume(path, matrix, device=device)
    assert whole.stats["resumed"] == 1
    assert whole.fun == pytest.approx(optimum(matrix), rel=1e-12)


def test_unbalanced_problems_stay_with_the_host() -> None:
    matrix = problem("random")[:30]
    result = solved(matrix)
    assert result.fun == pytest.approx(optimum(matrix), rel=1e-12)
    assert result.stats["rounds"] == {}
