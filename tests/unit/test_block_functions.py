"""Functions of blocks: rows a call, matrix products in them, threads."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import threadpoolctl

import bigsap
from bigsap import blas
from bigsap.sources.functions import python_calls
from bigsap.sources.functions.called import multiplies_matrices

RNG = np.random.default_rng(21)


def cosine(rows: Any, out: Any, x: Any, y: Any) -> None:
    out[:] = 1.0 - x[rows] @ y.T


def vectors(n: int, d: int = 12) -> tuple[np.ndarray, np.ndarray]:
    x = RNG.normal(size=(n, d))
    y = x + 0.2 * RNG.normal(size=(n, d))
    return tuple(z / np.linalg.norm(z, axis=1)[:, None] for z in (x, y[RNG.permutation(n)]))  # type: ignore[return-value]


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every call takes no time, however busy the machine is."""
    monkeypatch.setattr(python_calls, "time", SimpleNamespace(perf_counter=lambda: 0.0))


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("n", [300, 1000])
def test_a_block_has_hundreds_of_rows(n: int) -> None:
    x, y = vectors(n)
    calls: Counter[int] = Counter()

    def block(rows: Any, out: Any) -> None:
        calls[len(rows)] += 1
        cosine(rows, out, x, y)

    found = bigsap.solve(block, shape=(n, n))
    assert found.status == "optimal"
    assert found.fun == pytest.approx(bigsap.solve(1.0 - x @ y.T).fun, rel=1e-12)
    del calls[1]  # the calls that find out how the function is called
    assert sum(calls.values()) == -(-n // 256)
    assert sum(size * count for size, count in calls.items()) == n


def helper(x: Any, y: Any) -> Any:
    return np.dot(x, y.T)


def by_helper(rows: Any, out: Any, x: Any, y: Any) -> None:
    out[:] = helper(x[rows], y)


def plain(rows: Any, out: Any, x: Any, y: Any) -> None:
    for k in range(rows.size):
        for j in range(out.shape[1]):
            out[k, j] = abs(x[rows[k], 0] - y[j, 0])


GLOBAL_COSTS = RNG.random((20, 15))


def of_a_global(rows: Any, out: Any) -> None:
    out[:] = GLOBAL_COSTS[rows]


def test_what_multiplies_matrices() -> None:
    def captured(rows: Any, out: Any) -> None:
        inner(rows, out)

    def inner(rows: Any, out: Any) -> None:
        cosine(rows, out, rows, rows)

    def recursive(k: int) -> int:
        return recursive(k - 1)

    for function in (cosine, by_helper, captured, lambda r, o: [np.einsum("ij,kj->ik", r, o) for _ in r]):
        assert multiplies_matrices(function), function
    for function in (plain, of_a_global, recursive, print, None, lambda r, o: o.fill(r.sum())):
        assert not multiplies_matrices(function), function


def test_such_functions_are_not_compiled() -> None:
    x, y = vectors(200)
    found = bigsap.solve(cosine, shape=(200, 200), args=(x, y))
    assert found.stats["evaluated_by"] == "python"
    assert bigsap.solve(plain, shape=(200, 200), args=(x, y)).stats["evaluated_by"] == "numba"


def test_the_library_of_products_has_one_thread_for_each_of_ours() -> None:
    x, y = vectors(700)
    seen: dict[str, list[int]] = {"one": [], "both": []}
    name = "one"

    def library() -> list[int]:
        # Others, such as scipy's own, may be loaded later: numpy does not multiply with them.
        return [pool["num_threads"] for pool in blas._controller().info()]

    def block(rows: Any, out: Any) -> None:
        seen[name].extend(library() if len(rows) > 1 else ())
        cosine(rows, out, x, y)

    with threadpoolctl.threadpool_limits(2, user_api="blas"):
        source = bigsap.from_function(block, (700, 700), kind="block", compiled=False)
        results = [bigsap.solve(source, threads=1)]
        name = "both"  # threads of ours read all rows, with one of the library's each
        results += [bigsap.solve(source, threads=2)]
        assert set(seen["one"]) == {1}
        assert seen["both"].count(1) >= 3
        assert set(library()) <= {1, 2}
    np.testing.assert_array_equal(results[0].col4row, results[1].col4row)
    assert results[0].fun == results[1].fun
    np.testing.assert_array_equal(results[0].v, results[1].v)
