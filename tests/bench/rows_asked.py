"""How many rows a zarr store and a remote provider are asked for by compressed rows.

``python tests/bench/rows_asked.py [n]`` solves the same matrices from a zarr store on the disk
(one row a chunk) and from a provider on loopback, by both methods. The counts are made outside
bigsap: chunks that the store hands out, rows that the provider is asked for. The certificate's
pass, n rows more, is part of them.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zarr

import bigsap

sys.path.insert(0, str(Path(__file__).parents[1] / "support"))
from zarr.storage import LocalStore, WrapperStore

from instances import CLASSES
from remote_provider import Provider


class Counting(WrapperStore):  # type: ignore[type-arg]
    """A store that counts the chunks it hands out."""

    chunks = 0

    async def get(self, key: str, *rest: Any, **named: Any) -> Any:
        """As the store's own."""
        Counting.chunks += "c/" in key
        return await self._store.get(key, *rest, **named)


@contextmanager
def served(kind: str, cost: np.ndarray) -> Iterator[tuple[Any, Any]]:
    """The matrix as a source of this kind, and what tells how many rows were asked for."""
    if kind == "provider":
        with Provider(cost) as provider, bigsap.from_http(provider.url, cost.shape, cost.dtype) as source:
            yield source, lambda: sum(map(len, provider.asked))
        return
    with tempfile.TemporaryDirectory() as folder:
        store = Counting(LocalStore(folder))
        array = zarr.create_array(store, shape=cost.shape, dtype=cost.dtype, chunks=(1, cost.shape[1]))
        array[:] = cost
        Counting.chunks = 0
        yield array, lambda: Counting.chunks


def main(n: int) -> None:
    """One line a class, source and method."""
    print("| class | n | source | method | rows asked | rows asked / n | seconds | optimal |")
    print("|---|---|---|---|---|---|---|---|")
    for name in ("random", "geometric", "disjoint"):
        cost = CLASSES[name](n, 0)
        for kind in ("zarr store", "provider"):
            for method in ("compressed", "ssp"):
                with served(kind, cost) as (source, asked):
                    clock = time.perf_counter()
                    result = bigsap.solve(source, method=method, threads=2, cache=64 * 8 * n)
                    seconds = time.perf_counter() - clock
                    count = asked()
                print(
                    f"| {name} | {n:,} | {kind} | {method} | {count:,} | {count / n:.1f}"
                    f" | {seconds:.1f} | {result.status} |",
                    flush=True,
                )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000)
