"""In an event loop: a solve that leaves the loop free, and that Ctrl-C or a deadline ends.

`asyncio.to_thread` cannot stop its thread: Ctrl-C, or whoever cancels the task, would wait for
the end of the solve. With `cancel=` it ends within a second, and has the best assignment known by
then and what is proved of it.

    python examples/in_asyncio.py                # ends by itself
    python examples/in_asyncio.py --seconds 0.5  # ends after half a second; or with Ctrl-C
    python examples/in_asyncio.py --full         # n = 30,000

Measured on 2 shared cores: n = 30,000 (full size) in 6 s from start to end, 275 MiB, with 310 turns
of the loop; a solve that is ended is back within a second.
"""

from __future__ import annotations

import argparse
import asyncio
import threading
from typing import Any

import numpy as np

import bigsap


async def solve(cost: Any, cancel: threading.Event, **options: Any) -> bigsap.Result:
    """`bigsap.solve` in a thread; when this task is cancelled, the best that is known then."""
    work = asyncio.ensure_future(asyncio.to_thread(bigsap.solve, cost, cancel=cancel, **options))
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        cancel.set()
        return await work


async def main(n: int, seconds: float | None, seed: int = 0) -> bigsap.Result:
    rng = np.random.default_rng(seed)
    points = bigsap.points(rng.random((n, 2)), 2 + rng.random((n, 2)))
    cancel = threading.Event()
    if seconds is not None:
        asyncio.get_running_loop().call_later(seconds, cancel.set)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0.01)
            turns += 1

    beside = asyncio.create_task(others())
    print(f"solving {n:,} x {n:,}; Ctrl-C ends it", flush=True)
    result = await solve(points, cancel)
    beside.cancel()
    cost = "unknown" if result.fun is None else f"{result.fun:,.3f}"
    gap = "unknown" if result.gap is None else f"{result.gap:.2g}"
    print(
        f"asyncio: n = {n:,}, {result.status}, cost {cost}, gap {gap}; the loop had {turns} turns meanwhile"
    )
    return result


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, default=3_000)
    parser.add_argument("--seconds", type=float, help="end after so long")
    parser.add_argument("--full", action="store_true", help="n = 30,000")
    chosen = parser.parse_args()
    asyncio.run(main(30_000 if chosen.full else chosen.n, chosen.seconds))
