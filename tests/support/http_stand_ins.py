"""A proxy that cuts connections, and a server with prepared answers, on loopback."""

from __future__ import annotations

import json
import select
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Proxy:
    """Forwards connections to ``port``; each ends after ``most`` bytes of answers or requests."""

    def __init__(self, port: int) -> None:
        self.target = port
        self.most_down: int | None = None
        self.most_up: int | None = None
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._forward, args=(near,), daemon=True).start()

    def _forward(self, near: socket.socket) -> None:
        left = {"down": self.most_down, "up": self.most_up}
        with near, socket.create_connection(("127.0.0.1", self.target), 5) as far:
            while True:
                ready, _, _ = select.select([near, far], [], [], 30)
                if not ready:
                    return
                for end in ready:
                    other, way = (far, "up") if end is near else (near, "down")
                    try:
                        data = end.recv(4096)
                        if not data:
                            return
                        other.sendall(data)
                    except OSError:
                        return
                    if left[way] is not None:
                        left[way] -= len(data)
                        if left[way] <= 0:
                            return

    def close(self) -> None:
        self._listener.close()


@contextmanager
def stub(*answers: tuple[int, dict[str, str], Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """A server that gives these answers one after another, then the last for ever."""
    seen: list[dict[str, Any]] = []

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, headers, content = answers[min(len(seen), len(answers) - 1)]
            seen.append({"path": self.path, "headers": dict(self.headers), "body": body})
            if status == 0:  # no answer at all
                self.close_connection = True
                return
            text = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(text)), **headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(text)

        do_GET = do_POST = do_PUT = do_DELETE = _answer

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", seen
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
