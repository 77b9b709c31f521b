"""A row provider on loopback that misbehaves on request. Written from the wire format alone."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import json
import socket
import struct
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

Fault = Callable[["Handler", np.ndarray], None]


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    timeout = 60

    def setup(self):
        super().setup()
        self.provider.connections += 1
        self.provider.sockets.append(self.connection)

    @property
    def provider(self) -> Provider:
        return self.server.provider

    def log_message(self, *_):
        pass

    def handle(self):
        with contextlib.suppress(OSError):  # the client left
            super().handle()

    def do_GET(self):
        self.provider.seen.append(("GET", time.monotonic(), dict(self.headers)))
        fault = self.provider.next_fault("GET")
        if fault is not None:
            fault(self, None)
            return
        self.send(json.dumps(self.provider.description()).encode(), "application/json")

    def do_POST(self):
        asked = self.rfile.read(int(self.headers["Content-Length"]))
        ids = np.frombuffer(asked, "<i8")
        provider = self.provider
        with provider.lock:
            provider.seen.append(("POST", time.monotonic(), dict(self.headers)))
            provider.active += 1
            provider.most_active = max(provider.most_active, provider.active)
            provider.asked.append(ids.tolist())
        try:
            time.sleep(provider.delay)
            fault = provider.next_fault("POST")
            if fault is not None:
                fault(self, ids)
                return
            with provider.lock:
                provider.served.update(ids.tolist())
            self.send_rows(provider.records(ids))
        finally:
            with provider.lock:
                provider.active -= 1

    def send_rows(self, body: bytes, **labels: str | None):
        self.send(body, "application/octet-stream", **(self.labels() | labels))

    def labels(self) -> dict[str, str | None]:
        return {
            "BigSAP_Fingerprint": self.provider.fingerprint,
            "BigSAP_Dtype": self.provider.cost.dtype.newbyteorder("<").str,
        }

    def send(self, body: bytes, kind: str | None, status: int = 200, **headers: str | None):
        self.send_head(status, {"Content_Type": kind, "Content_Length": str(len(body))} | headers)
        self.wfile.write(body)

    def send_head(self, status: int, headers: dict[str, str | None]):
        self.send_response(status)
        for name, value in headers.items():
            if value is not None:
                self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def drop(self, reset: bool = False):
        """Close the connection now, politely or not."""
        self.close_connection = True
        if reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.wfile.flush()
        self.connection.close() if reset else self.connection.shutdown(socket.SHUT_RDWR)


class Provider:
    """``with Provider(cost) as provider``: serves at ``provider.url``.

    faults["GET" or "POST"]: one per request, None for good behaviour; when they are used
    up, ``always`` of the method. served: how often each row went out in a good answer.
    """

    def __init__(self, cost: np.ndarray, max_rows: int | None = None, delay: float = 0.0) -> None:
        self.cost = cost
        self.max_rows = max_rows
        self.delay = delay
        content = cost.tobytes() + str(cost.shape).encode()
        self.fingerprint = hashlib.sha256(content).hexdigest()
        self.faults = {"GET": collections.deque(), "POST": collections.deque()}
        self.always: dict[str, Fault | None] = {"GET": None, "POST": None}
        self.served: collections.Counter[int] = collections.Counter()
        self.asked: list[list[int]] = []
        self.seen: list[tuple[str, float, dict[str, str]]] = []
        self.connections = self.active = self.most_active = 0
        self.sockets: list[socket.socket] = []
        self.lock = threading.Lock()
        self.released = threading.Event()

    def __enter__(self) -> Provider:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.server.block_on_close = False
        self.server.provider = self
        self.server.handle_error = lambda *_: None
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,))
        self.thread.start()
        self.host = f"127.0.0.1:{self.server.server_port}"
        self.url = f"http://{self.host}/rows"
        return self

    def __exit__(self, *_):
        self.released.set()
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        for connection in self.sockets:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def description(self) -> dict[str, object]:
        most = {} if self.max_rows is None else {"max_rows": self.max_rows}
        return {
            "shape": list(self.cost.shape),
            "dtype": self.cost.dtype.newbyteorder("<").str,
            "fingerprint": self.fingerprint,
        } | most

    def next_fault(self, method: str) -> Fault | None:
        with self.lock:
            queue = self.faults[method]
            return queue.popleft() if queue else self.always[method]

    def records(self, ids: np.ndarray) -> bytes:
        dtype = self.cost.dtype.newbyteorder("<")
        return b"".join(struct.pack("<q", i) + self.cost[i].astype(dtype).tobytes() for i in ids.tolist())

    def n_posts(self) -> int:
        return sum(method == "POST" for method, _, _ in self.seen)
