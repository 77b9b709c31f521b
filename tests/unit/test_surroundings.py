"""Where people call from: loops, threads, pools of processes, notebooks, event loops.

Each prints its time; bounds are loose, for machines that do much else.
"""

from __future__ import annotations

import ast
import asyncio
import io
import linecache
import multiprocessing
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import bigsap
from gate import HANG_S, Gated

optimize = pytest.importorskip("scipy.optimize")


def problem(seed: int, n: int = 40, m: int | None = None) -> np.ndarray:
    return np.random.default_rng(seed).random((n, m or n))


def optimum(cost: np.ndarray) -> float:
    rows, columns = optimize.linear_sum_assignment(cost)
    return float(cost[rows, columns].sum())


@pytest.fixture(autouse=True)
def warm() -> None:
    bigsap.linear_sum_assignment(problem(0))
    bigsap.solve(problem(0), threads=2)


@pytest.mark.parametrize("n", [3, 10, 50])
def test_linear_sum_assignment_in_a_loop(n):
    costs = [problem(k, n) for k in range(100)]
    before = set(threading.enumerate())
    found = [bigsap.linear_sum_assignment(cost) for cost in costs]
    assert set(threading.enumerate()) <= before
    for cost, (rows, columns) in zip(costs, found, strict=True):
        assert cost[rows, columns].sum() == pytest.approx(optimum(cost), rel=1e-12)


@pytest.mark.parametrize("inner", [1, 2])
def test_solve_from_four_threads(inner):
    costs = [problem(k, 60, 60 + k % 3 * 10) for k in range(24)]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda cost: bigsap.solve(cost, threads=inner), costs))
    for cost, result in zip(costs, found, strict=True):
        assert result.status == "optimal"
        assert result.fun == pytest.approx(optimum(cost), rel=1e-12)


def attempt(seed: int) -> tuple[float, str]:
    result = bigsap.solve(problem(seed), threads=1 + seed % 2)
    return float(result.fun or 0), str(result.status)


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("way", ["fork", "spawn"])
def test_a_pool_of_processes(way):
    """After solves with several threads in this process."""
    if way not in multiprocessing.get_all_start_methods():
        pytest.skip(f"no {way} here")
    with multiprocessing.get_context(way).Pool(2) as pool:
        solved = pool.map_async(attempt, range(6)).get(timeout=HANG_S)
        pairs = pool.map_async(bigsap.linear_sum_assignment, [problem(9)]).get(timeout=HANG_S)
    assert [fun for fun, _ in solved] == pytest.approx([optimum(problem(k)) for k in range(6)])
    assert {status for _, status in solved} == {"optimal"}
    rows, columns = pairs[0]
    assert problem(9)[rows, columns].sum() == pytest.approx(optimum(problem(9)))


class Cells:
    """Runs cells as a notebook does: in an event loop, stderr a stream without a file."""

    def __init__(self) -> None:
        self.names: dict[str, Any] = {"__name__": "__main__", "problem": problem}
        self.shown = io.StringIO()

    async def run(self, text: str) -> None:
        name = f"<cell {len(linecache.cache)}>"
        linecache.cache[name] = len(text), None, text.splitlines(keepends=True), name
        code = compile(text, name, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        result = eval(code, self.names)
        if asyncio.iscoroutine(result):
            await result


CELLS = [
    "import asyncio, numpy as np, bigsap\ncost = problem(1)\n",
    "res = bigsap.solve(cost, progress=True)\n",
    "x, y = np.random.default_rng(2).random((2, 40))\n",
    "by = bigsap.solve(lambda i, j: abs(x[i] - y[j]), shape=(40, 40))\n",
    "later = await asyncio.to_thread(bigsap.solve, cost, progress=True)\n",
    "many = await asyncio.gather(*(asyncio.to_thread(bigsap.solve, cost) for _ in range(3)))\n",
    "text = repr(res); drawn = dict(res)\n",
]


def test_cells_of_a_notebook(monkeypatch):
    cells = Cells()
    monkeypatch.setattr(sys, "stderr", cells.shown)

    async def notebook() -> None:
        for cell in CELLS:
            await cells.run(cell)

    asyncio.run(notebook())
    names = cells.names
    expected = optimum(problem(1))
    for result in (names["res"], names["later"], *names["many"]):
        assert result.fun == pytest.approx(expected, rel=1e-12)
    x, y = names["x"], names["y"]
    assert names["by"].fun == pytest.approx(optimum(np.abs(x[:, None] - y)), rel=1e-12)
    assert "40/40" in cells.shown.getvalue()
    assert "optimal" in names["text"]


def test_an_event_loop_goes_on_and_can_cancel(gate):
    """``cancel=`` is how a solve in a thread is ended; see examples/in_asyncio.py."""

    source = Gated(problem(0, 400), gate, 100)

    async def main() -> tuple[bigsap.Result, int]:
        cancel = threading.Event()
        work = asyncio.create_task(asyncio.to_thread(bigsap.solve, source, cancel=cancel))
        turns = 0
        while turns < 10 or not gate.waiting:
            await asyncio.sleep(0.02)
            turns += 1
        cancel.set()
        return await asyncio.wait_for(work, HANG_S), turns

    result, turns = asyncio.run(main())
    assert result.status == "cancelled"
    assert turns >= 10


@pytest.mark.parametrize("threads", [1000, 10**9])
def test_more_threads_than_anybody_has(threads):
    from bigsap.engine.core import team

    cost = problem(3, 200)
    result = bigsap.solve(cost, threads=threads, method="ssp")
    assert result.fun == pytest.approx(optimum(cost), rel=1e-12)
    assert result.stats["threads"] == team.useful_threads(10**6, 200)
    alone = bigsap.solve(cost, threads=1, method="ssp")
    assert result.stats["rows_scanned"] == alone.stats["rows_scanned"]
