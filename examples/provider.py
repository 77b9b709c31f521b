"""A row provider in FastAPI: the reference for BigSAP's wire format (see `bigsap.from_http`).

    uvicorn provider:app --app-dir examples --port 8731
    python -c "import bigsap; bigsap.from_http('http://127.0.0.1:8731/costs', (2000, 3000), 'f8')"

Costs here are walking times between points of a city, computed when they are asked for.
Replace `Walks` by whatever knows your costs; nothing of this file needs BigSAP.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from fastapi import FastAPI, HTTPException, Request
from fastapi.responses import StreamingResponse

MAX_ROWS = 1024


class Costs(Protocol):
    """What `create_app` serves: rows of a matrix, and a text that changes when they do."""

    shape: tuple[int, int]
    dtype: np.dtype[Any]
    fingerprint: str

    def row(self, i: int) -> np.ndarray: ...


class Walks:
    """Seconds on foot along a street grid, from every start to every goal."""

    def __init__(self, n_starts: int, n_goals: int, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        self.starts = rng.uniform(0, 10_000, (n_starts, 2))  # metres
        self.goals = rng.uniform(0, 10_000, (n_goals, 2))
        self.shape = (n_starts, n_goals)
        self.dtype = np.dtype("<f8")
        # A hash of everything the costs depend on.
        content = self.starts.tobytes() + self.goals.tobytes()
        self.fingerprint = hashlib.sha256(content).hexdigest()

    def row(self, i: int) -> np.ndarray:
        return np.abs(self.goals - self.starts[i]).sum(axis=1) / 1.4


def create_app(costs: Costs, path: str = "/costs") -> FastAPI:
    """GET describes the costs, POST gives rows; `app.state.rows_served` counts them."""
    app = FastAPI(title="Row provider")
    app.state.rows_served = 0
    n_rows, n_columns = costs.shape
    labels = {"BigSAP-Fingerprint": costs.fingerprint, "BigSAP-Dtype": costs.dtype.str}

    @app.get(path)
    async def describe() -> dict[str, Any]:
        return {
            "shape": costs.shape,
            "dtype": costs.dtype.str,
            "fingerprint": costs.fingerprint,
            "max_rows": MAX_ROWS,
        }

    @app.post(path)
    async def rows(request: Request) -> StreamingResponse:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > 8 * MAX_ROWS:
                raise HTTPException(413, f"at most {MAX_ROWS} rows a request")
        if len(body) == 0 or len(body) % 8:
            raise HTTPException(422, "the body must be row ids of 8 bytes")
        ids = np.frombuffer(bytes(body), "<i8")
        if ids.min() < 0 or ids.max() >= n_rows:
            raise HTTPException(422, f"row ids go from 0 to {n_rows - 1}")
        length = ids.size * (8 + n_columns * costs.dtype.itemsize)

        def records() -> Iterator[bytes]:  # runs in a thread, beside the event loop
            for i in ids:
                row = np.ascontiguousarray(costs.row(int(i)), costs.dtype)
                app.state.rows_served += 1
                yield i.tobytes() + row.tobytes()

        return StreamingResponse(
            records(), media_type="application/octet-stream", headers=labels | {"Content-Length": str(length)}
        )

    return app


app = create_app(Walks(2000, 3000))
