"""Costs that a service computes: solved over HTTP, each row asked for once.

Starts the provider of `provider.py` on this machine and solves against it, as one would
against a service elsewhere. Needs `pip install "bigsap[http]" fastapi uvicorn`.

    python examples/remote_rows.py [ROWS COLUMNS]      # 300 x 400
    python examples/remote_rows.py --full              # 5,000 x 6,000: 480 MB over the wire

Measured on 2 shared cores: 5,000 x 6,000 (full size) in 3.5 s, 240 MB in 288 requests;
300 x 400 in 1.4 s, 600 rows in 27 requests.
"""

from __future__ import annotations

import socket
import sys
import threading
import time

import uvicorn
from provider import Walks, create_app

import bigsap


def main(n_rows: int = 300, n_columns: int = 400) -> None:
    app = create_app(Walks(n_rows, n_columns))
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        url = f"http://127.0.0.1:{port}/costs"
        started = time.perf_counter()
        with bigsap.from_http(url, (n_rows, n_columns), "float64", in_flight=4) as cost:
            result = bigsap.solve(cost)
            seconds = time.perf_counter() - started
            print(f"status: {result.status}, total: {result.fun / 60:.0f} minutes on foot")
            print(f"gap: {result.gap:g}")
            print(f"rows evaluated by the solve: {result.stats['rows_evaluated']}")
            looked_at = result.stats["certificate_pairs"] // n_columns
            print(f"rows looked at by the certificate: {looked_at}")
            print(f"rows served by the provider: {app.state.rows_served}")
            print(f"requests: {cost.counts['requests']}")
            print(f"bytes received: {cost.counts['bytes']}")
            print(f"seconds: {seconds:.2f}")
    finally:
        server.should_exit = True
        thread.join()
        listener.close()


if __name__ == "__main__":
    main(*((5_000, 6_000) if "--full" in sys.argv[1:] else map(int, sys.argv[1:3])))
