"""Batches of small problems on a device: solved and proved in one launch, judged in exact arithmetic."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import bigsap
from adversarial import prices_of
from adversarial_costs import FAMILIES, matrix_of
from bigsap import policy
from bigsap.engine.cuda import small_batch
from bigsap.run import device_batches
from exact_judge import Truth, judge


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(40)


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads of a block take turns here."""
    monkeypatch.setattr(small_batch, "_SIDES", (64, 96, 128))


def judged(batch: Any, costs: Any, maximize: bool = False, prices: Any = None) -> int:
    """Judge every result and its line of the tables; how many were found by the one launch."""
    there = 0
    for place, (result, cost) in enumerate(zip(batch, costs, strict=True)):
        n, m = cost.shape
        price = prices[place] if isinstance(prices, list) else prices
        assert judge(Truth(cost, maximize, price), result).faults == []
        np.testing.assert_array_equal(batch.col4row[place, :n], result.col4row)
        np.testing.assert_array_equal(batch.row4col[place, :m], result.row4col)
        assert (batch.col4row[place, n:] == -1).all()
        assert (batch.row4col[place, m:] == -1).all()
        if result.stats["method"] == "dense" and result.stats["device"] == "cuda:0":
            result.verify(cost)
            there += 1
    return there


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("kind", ["f8", "f4", "i8", "i4", "u1", "u4"])
@pytest.mark.parametrize("shape", [(20, 30), (25, 25), (30, 12), (1, 4)])
def test_number_types_and_shapes(
    cupy: Any, rng: np.random.Generator, kind: str, shape: tuple[int, int], maximize: bool
) -> None:
    costs = rng.random((4, *shape)) if kind[0] == "f" else rng.integers(0, 60, (4, *shape))
    costs = costs.astype(kind)
    batch = bigsap.solve_many(costs, device="cuda", maximize=maximize)
    assert judged(batch, costs, maximize) == 4
    assert batch.fun.dtype == (np.float64 if kind[0] == "f" else np.int64)
    np.testing.assert_array_equal(batch.fun, [result.fun for result in batch])
    np.testing.assert_array_equal(batch.bound, [result.bound for result in batch])


def test_half_precision_is_read_as_single(cupy: Any, rng: np.random.Generator) -> None:
    costs = rng.random((2, 5, 6)).astype(np.float16)
    assert judged(bigsap.solve_many(costs, device="cuda"), costs.astype(np.float32)) == 2


@pytest.mark.parametrize("layout", ["by columns", "reversed", "every other"])
def test_costs_are_read_with_their_strides(cupy: Any, rng: np.random.Generator, layout: str) -> None:
    costs = rng.random((3, 14, 16))
    given = {
        "by columns": np.asfortranarray(costs),
        "reversed": costs[:, ::-1],
        "every other": costs[:, ::2, ::2],
    }[layout]
    assert judged(bigsap.solve_many(given, device="cuda"), given) == 3


def test_costs_on_the_device_stay_there(
    cupy: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_batches, "copy_of", None)
    costs = rng.random((3, 14, 16))
    for steps in (np.s_[:], np.s_[::-1, ::-1, ::-1], np.s_[:, ::2, 1::2], np.s_[1:, :, :5]):
        part = costs[steps]
        batch = bigsap.solve_many(cupy.asarray(costs)[steps], device="cuda")
        assert judged(batch, part) == len(part)
        batch = bigsap.solve_many(list(cupy.asarray(costs)[steps]), device="cuda")
        assert judged(batch, part) == len(part)


def test_padded_problems(cupy: Any, rng: np.random.Generator) -> None:
    rows, columns = [20, 3, 0, 7, 19, 20], [30, 2, 4, 0, 1, 20]
    costs = rng.random((6, 20, 30))
    costs[1, 3:] = costs[1, :, 2:] = np.nan
    batch = bigsap.solve_many(costs, rows=rows, columns=columns, device="cuda")
    assert judged(batch, [c[:n, :m] for c, n, m in zip(costs, rows, columns, strict=True)]) == 4
    assert batch.col4row.shape == (6, 20)
    assert batch.status.tolist() == ["optimal"] * 6


def test_lists_of_matrices(cupy: Any, rng: np.random.Generator) -> None:
    costs = [rng.random(shape) for shape in ((3, 4), (7, 2), (1, 1), (30, 60), (50, 50))]
    assert judged(bigsap.solve_many(costs, device="cuda"), costs) == 5
    mixed = [costs[0], costs[1].astype(np.float32)]
    assert judged(bigsap.solve_many(mixed, device="cuda"), mixed) == 0


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("shape", [(12, 20), (20, 20), (20, 5)])
def test_rows_that_may_stay_alone(
    cupy: Any, rng: np.random.Generator, shape: tuple[int, int], maximize: bool
) -> None:
    costs = rng.normal(size=(5, *shape))
    level = (1 if maximize else -1) * 1.5
    prices = [level + 0.2 * rng.normal(size=shape[0]) for _ in costs]
    prices[1][:3] = -np.inf if maximize else np.inf
    batch = bigsap.solve_many(costs, unassigned_cost=prices, device="cuda", maximize=maximize)
    assert judged(batch, costs, maximize, prices) == 5
    assert (batch.col4row == -1).any()


def test_problems_that_one_launch_does_not_solve(
    cupy: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Infeasible ones, hard ones, doubtful proofs, numbers that float64 rounds: by ``solve``."""
    costs = rng.random((5, 12, 12))
    costs[0, 3] = np.inf
    costs[1] += 1e9 * np.add.outer(rng.normal(size=12), rng.normal(size=12))
    batch = bigsap.solve_many(costs, device="cuda")
    assert judged(batch, costs) == 3
    assert batch.status.tolist() == ["infeasible", *["optimal"] * 4]
    large = 2**53 + rng.integers(0, 9, (2, 3, 3))
    assert judged(bigsap.solve_many(large, device="cuda"), large) == 0
    monkeypatch.setattr(policy, "BATCH_DEVICE_ROUNDS", 0)
    monkeypatch.setattr(policy, "BATCH_DEVICE_PAIRS", -(10**9))
    assert judged(bigsap.solve_many(costs[2:], device="cuda"), costs[2:]) == 0


@pytest.mark.parametrize("rounds", [0, 1])
def test_searches_without_bids(
    cupy: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    monkeypatch.setattr(policy, "BATCH_DEVICE_ROUNDS", rounds)
    for kind, prices in ((float, None), (int, None), (float, 0.1)):
        costs = (rng.random((3, 30, 40)) * 20).astype(kind)
        batch = bigsap.solve_many(costs, unassigned_cost=prices, device="cuda")
        assert judged(batch, costs, prices=prices) == 3


def test_rounding_raises_no_price_above_zero(cupy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "BATCH_DEVICE_ROUNDS", 0)
    cost = np.array([[9, 5, 5, 7, 5], [7, 1, 7, 5, 7], [5, 3, 0, 5, 9]]) / 10
    assert judged(bigsap.solve_many([cost], device="cuda"), [cost]) == 1


def test_invalid_costs_are_named(cupy: Any, rng: np.random.Generator) -> None:
    costs = rng.random((3, 4, 5))
    costs[1, 2, 3] = np.nan
    with pytest.raises(bigsap.InvalidCostError, match=r"problem 1: .*cost\[2, 3\]"):
        bigsap.solve_many(costs, device="cuda")
    costs[1, 2, 3] = -np.inf
    batch = bigsap.solve_many(costs, device="cuda", errors="return")
    assert batch.status.tolist() == ["optimal", "error", "optimal"]
    assert (batch.col4row[1] == -1).all()


def test_without_a_certificate(cupy: Any, rng: np.random.Generator) -> None:
    costs = rng.random((3, 9, 9))
    batch = bigsap.solve_many(costs, certify=False, device="cuda")
    assert np.isnan(batch.bound).all()
    assert batch[0].bound is None
    np.testing.assert_array_equal(batch.fun, bigsap.solve_many(costs).fun)


def test_a_block_has_room_for_its_problem(
    cupy: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = rng.random((2, 8, 9))
    monkeypatch.setattr(small_batch, "_SHARED", 20 * 8 + 33 * 9 + small_batch._OTHER)
    assert judged(bigsap.solve_many(costs, device="cuda"), costs) == 2
    monkeypatch.setattr(small_batch, "_SHARED", 20 * 8 + 33 * 9 + small_batch._OTHER - 1)
    assert judged(bigsap.solve_many(costs, device="cuda"), costs) == 0


@pytest.mark.parametrize("columns", [1460, 1490])
def test_shared_memory_beyond_the_usual_is_asked_for(
    cupy: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setattr(small_batch, "_SHARED", 64 << 10)
    costs = rng.random((1, 2, columns))
    assert judged(bigsap.solve_many(costs, device="cuda"), costs) == 1


def test_costs_of_large_problems_stay_where_they_are(
    cupy: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(policy, "MOST_SMALL_COSTS", 30)
    costs = [rng.random((5, 6)), rng.random((6, 6)), rng.random((2, 3))]
    brought = []
    usual = device_batches.copy_of
    monkeypatch.setattr(device_batches, "copy_of", lambda a, what: brought.append(a.size) or usual(a, what))
    assert judged(bigsap.solve_many(costs, device="cuda"), costs) == 2
    assert brought == [36]
    large = rng.random((2, 6, 7))
    assert judged(bigsap.solve_many(large, device="cuda"), large) == 0
    assert brought == [36]


@pytest.mark.parametrize("way", ["array", "list", "more rows"])
def test_a_batch_without_room_is_solved_one_by_one(
    cupy: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    costs: Any = rng.random((40, 20, 30))
    monkeypatch.setattr(cupy, "largest", costs.nbytes - 1)
    costs = costs.swapaxes(1, 2) if way == "more rows" else costs
    assert judged(bigsap.solve_many(list(costs) if way == "list" else costs, device="cuda"), costs) == 0


@pytest.mark.parametrize("shape", [(3, 4, 6), (3, 6, 4)])
def test_arrays_that_hide_values_or_lie_in_files(
    cupy: Any, rng: np.random.Generator, tmp_path: Path, shape: tuple[int, ...]
) -> None:
    costs = rng.random(shape)
    with pytest.raises(bigsap.InvalidCostError, match="missing"):
        bigsap.solve_many(np.ma.MaskedArray(costs, costs < 0.3), device="cuda")
    there = np.memmap(tmp_path / "costs", float, "w+", shape=shape)
    there[:] = costs
    assert judged(bigsap.solve_many(there, device="cuda"), costs) == 0


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("columns", [60, 200])
def test_blocks_of_all_sizes(cupy: Any, rng: np.random.Generator, count: int, columns: int) -> None:
    costs = rng.random((count, 30, columns)).astype(np.float32)
    assert judged(bigsap.solve_many(costs, device="cuda"), costs) == count


def test_other_options_and_devices_go_to_solve(
    cupy: Any, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: Any) -> None:
        raise AssertionError

    monkeypatch.setattr(device_batches, "batch_on_device", never)
    costs = rng.random((2, 5, 6))
    for options in ({"gap": 1.0}, {"method": "ssp"}):
        assert len(bigsap.solve_many(costs, device="cuda", **options)) == 2
    assert len(bigsap.solve_many(iter(costs), device="cuda")) == 2
    assert len(bigsap.solve_many(costs, device="auto")) == 2
    with pytest.raises(bigsap.OptionError, match="device"):
        bigsap.solve_many(costs, device="cuda:7")


def test_pickles_and_pairs(cupy: Any, rng: np.random.Generator) -> None:
    import pickle

    costs = rng.random((3, 4, 6))
    batch = bigsap.solve_many(costs, device="cuda")
    pairs = [[p, i, j] for p, result in enumerate(batch) for i, j in enumerate(result.col4row.tolist())]
    assert batch.pairs().tolist() == pairs
    again = pickle.loads(pickle.dumps(batch))
    assert json.dumps(again.fun.tolist()) == json.dumps(batch.fun.tolist())
    np.testing.assert_array_equal(again.col4row, batch.col4row)


@pytest.mark.some(1)
@pytest.mark.parametrize("part", range(4))
def test_numbers_made_to_be_got_wrong(cupy: Any, part: int) -> None:
    """Of all sizes, with ties, forbidden pairs, prices; results are optimal, or of ``solve``."""
    there = 0
    for number in range(part * 40, part * 40 + 40):
        rng = np.random.default_rng((40, number))
        maximize = bool(rng.random() < 0.3)
        n, m = (int(size) for size in rng.integers(1, 26, 2))
        _, cost = matrix_of(rng, n, m if rng.random() < 0.5 else n, maximize, FAMILIES)
        costs = [cost, cost[rng.permutation(n)]]
        prices = prices_of(rng, cost, maximize) if rng.random() < 0.3 else None
        given = [prices] * 2 if np.ndim(prices) else prices
        try:
            batch = bigsap.solve_many(costs, device="cuda", maximize=maximize, unassigned_cost=given)
        except bigsap.OverflowRiskError:
            continue
        there += judged(batch, costs, maximize, given)
    assert there > 40
