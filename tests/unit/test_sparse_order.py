"""The order of sparse rows and columns: one for neighbours, none for random graphs, the same answers."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import scipy.spatial

import bigsap
from bigsap import policy
from bigsap.engine.sparse.ordering import local_ordering, ordered
from bigsap.strategies import sparse as strategy
from bigsap.strategies import sparse_pairs


def neighbours(n: int, k: int, rng: Any, *, sorted_: bool = False) -> scipy.sparse.csr_array:
    """Distances of points of a strip to their nearest of another sample, and planted pairs."""
    x, y = (rng.random((n, 2)) * [50, 1] for _ in range(2))
    x, y = x[np.argsort(x[:, 0])], y[np.argsort(y[:, 0])]
    near = scipy.spatial.cKDTree(y).query(x, k)[1]
    rows, columns = np.repeat(np.arange(n), k), near.ravel()
    pairs = np.unique(np.concatenate([rows * n + columns, np.arange(n) * (n + 1)]))
    rows, columns = pairs // n, pairs % n
    costs = ((x[rows] - y[columns]) ** 2).sum(1)
    if not sorted_:
        rows, columns = rng.permutation(n)[rows], rng.permutation(n)[columns]
    return scipy.sparse.csr_array((costs, (rows, columns)), (n, n))


@pytest.fixture
def order_all(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Problems of every size are looked at; whether an order was used, for each solve."""
    monkeypatch.setattr(policy, "SPARSE_ORDERED_ROWS", 10)
    found: list[bool] = []
    given = sparse_pairs.local_ordering

    def noted(*args: Any) -> Any:
        order = given(*args)
        found.append(order is not None)
        return order

    monkeypatch.setattr(sparse_pairs, "local_ordering", noted)
    return found


def test_the_order_is_a_permutation_that_puts_common_columns_near() -> None:
    a = neighbours(2000, 8, np.random.default_rng(0))
    a.indices = a.indices.astype(np.int32)
    start = a.indptr.astype(np.int64)
    order = local_ordering(start, a.indices, 2000)
    assert order is not None
    assert sorted(order.rows.tolist()) == sorted(order.columns.tolist()) == list(range(2000))
    assert (order.columns[order.place] == np.arange(2000)).all()
    again = scipy.sparse.csr_array(ordered(order, start, a.indices, a.data)[::-1], a.shape)
    assert (again.toarray() == a.toarray()[order.rows][:, order.columns]).all()
    spread = [np.abs(np.diff(np.sort(ids))).mean() for ids in np.split(again.indices, again.indptr[1:-1])]
    assert np.median(spread) < 40


def test_no_order_where_none_helps() -> None:
    rng = np.random.default_rng(1)
    local = neighbours(2000, 8, rng, sorted_=True)
    random = scipy.sparse.csr_array(
        (np.ones(16000), (np.repeat(np.arange(2000), 8), rng.integers(0, 2000, 16000))), (2000, 2000)
    )
    across = (
        neighbours(2000, 8, rng) + 1e-9 * scipy.sparse.eye_array(2000, format="csr")[rng.permutation(2000)]
    )
    alone = scipy.sparse.eye_array(2000, format="csr")
    full = scipy.sparse.csr_array(np.ones((200, 200)))
    none = scipy.sparse.csr_array((30, 30))
    for a in (local, random, across.tocsr(), alone, full, none):
        start, ids = a.indptr.astype(np.int64), a.indices.astype(np.int32)
        assert local_ordering(start, ids, a.shape[1]) is None


@pytest.mark.parametrize("maximize", [False, True])
@pytest.mark.parametrize("kind", ["float", "int64", "float32"])
def test_answers_are_those_without_an_order(order_all: list[bool], maximize: bool, kind: str) -> None:
    a = neighbours(1000, 8, np.random.default_rng(2))
    costs = np.rint(a.data * 1e6) if kind == "int64" else a.data
    a.data = (-costs if maximize else costs).astype(kind if kind != "float" else np.float64)
    found = bigsap.solve(bigsap.sparse(a), maximize=maximize)
    found.verify(bigsap.sparse(a))
    matrix = np.full(a.shape, -np.inf if maximize else np.inf)
    coo = a.tocoo()
    matrix[coo.row, coo.col] = coo.data
    assert found.status == "optimal"
    assert found.fun == bigsap.solve(matrix, maximize=maximize, method="ssp").fun
    warm = bigsap.solve(bigsap.sparse(a), maximize=maximize, warm_start=found)
    assert warm.fun == found.fun
    assert warm.stats["rows_scanned"] < found.stats["rows_scanned"]
    assert order_all == [True, True]


def test_wide_problems_and_rows_left_out(order_all: list[bool]) -> None:
    a = neighbours(1000, 8, np.random.default_rng(3))
    entries = bigsap.sparse(a)
    wide = bigsap.sparse(a[:900])
    for source, options in (
        (entries, {"unassigned_cost": 0.002}),
        (wide, {}),
        (wide, {"unassigned_cost": 0.01}),
    ):
        found = bigsap.solve(source, **options)
        assert found.status == "optimal"
        found.verify(source)
        policy.SPARSE_ORDERED_ROWS = 1 << 15
        assert found.fun == pytest.approx(bigsap.solve(source, **options).fun, rel=1e-12)
        policy.SPARSE_ORDERED_ROWS = 10
    assert order_all == [True] * 3


def test_infeasible_rows_have_their_own_numbers(order_all: list[bool]) -> None:
    a = neighbours(1000, 8, np.random.default_rng(4)).tolil()
    few = [17, 230, 402]
    for row in few:
        a[row] = 0
        a[row, [5, 900]] = [1.0, 2.0]
    found = bigsap.solve(bigsap.sparse(a.tocsr()))
    assert found.status == "infeasible"
    assert set(few) <= set(found.violator.tolist())
    assert order_all == [True]


def test_a_stopped_solve_continues_in_the_same_order(order_all: list[bool], tmp_path: Any) -> None:
    a = neighbours(3000, 8, np.random.default_rng(5))
    whole = bigsap.solve(bigsap.sparse(a))
    stop = threading.Event()

    def end(progress: Any) -> None:
        if progress.phase > 1:
            stop.set()

    stopped = bigsap.solve(
        bigsap.sparse(a), checkpoint=tmp_path / "c", callback=end, callback_every=0.0, cancel=stop
    )
    assert stopped.status == "cancelled"
    again = bigsap.resume(tmp_path / "c", bigsap.sparse(a))
    assert (again.fun, again.col4row.tolist()) == (whole.fun, whole.col4row.tolist())
    assert order_all == [True] * 3


@pytest.mark.some(3)
@pytest.mark.parametrize("ordered_first", [False, True])
@pytest.mark.parametrize(("wide", "phases"), [(False, 1), (False, 3), (True, 0)])
def test_a_solve_may_continue_in_another_order(
    ordered_first: bool, wide: bool, phases: int, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine with other memory, or another version, may choose another order."""
    a = neighbours(2000, 8, np.random.default_rng(7))
    source = bigsap.sparse(a[:1800] if wide else a)
    run_slice = strategy.SparseSearch._slice

    def short(search: Any, *given: Any, **options: Any) -> Any:
        search._budget = 4000
        return run_slice(search, *given, **options)

    monkeypatch.setattr(strategy.SparseSearch, "_slice", short)
    whole = bigsap.solve(source)
    stops = 0
    for slices in (1, 4, 30, 200):
        monkeypatch.setattr(policy, "SPARSE_ORDERED_ROWS", 10 if ordered_first else 1 << 15)
        stop, seen = threading.Event(), [0]

        def end(progress: Any, stop: Any = stop, seen: Any = seen, slices: int = slices) -> None:
            seen[0] += progress.phase > phases
            if seen[0] > slices:
                stop.set()

        path = tmp_path / f"c{slices}"
        stopped = bigsap.solve(source, checkpoint=path, callback=end, callback_every=0.0, cancel=stop)
        if stopped.status != "cancelled":
            continue
        stops += 1
        monkeypatch.setattr(policy, "SPARSE_ORDERED_ROWS", 1 << 15 if ordered_first else 10)
        again = bigsap.resume(path, source)
        assert again.status == "optimal"
        assert again.fun == pytest.approx(whole.fun, rel=1e-12)
        again.verify(source)
    assert stops


def test_a_memory_limit_holds_for_the_copy(order_all: list[bool]) -> None:
    a = neighbours(1000, 8, np.random.default_rng(8))
    given = bigsap.sparse(a)
    free = bigsap.solve(given)
    tight = bigsap.solve(given, memory_limit="64 KiB")
    assert order_all == [True]
    assert bigsap.solve(given, memory_limit="64 MiB").fun == free.fun == tight.fun
    assert order_all == [True, True]


def test_large_entries_are_not_copied(order_all: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    a = neighbours(1000, 8, np.random.default_rng(6))
    monkeypatch.setattr(sparse_pairs, "usable_memory", lambda: 8 * (a.nnz * 16 + 24 * 2001) - 1)
    assert bigsap.solve(bigsap.sparse(a)).status == "optimal"
    assert order_all == []
