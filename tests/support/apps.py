"""The application in this process: behind a test client, or behind a real socket."""

from __future__ import annotations

import socket
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from bigsap_server.api.app import stop_waiting
from bigsap_server.api.middleware import Admission
from bigsap_server.settings import Limits, Settings

from gate import HANG_S, until

with warnings.catch_warnings():
    # It would rather have a successor of httpx, which is not among our dependencies.
    warnings.simplefilter("ignore")
    from starlette.testclient import TestClient

__all__ = ["TestClient", "served", "settings_in"]


def settings_in(folder: Path, limits: dict[str, Any] | None = None, **given: Any) -> Settings:
    """Settings of a service whose jobs run on a thread of this process."""
    own = {"data": folder, "executor": "inline", "workers": 1, "plugins": ["gated"], "heartbeat_s": 0.1}
    return Settings(limits=Limits(**(limits or {})), **(own | given))


@contextmanager
def served(app: Admission) -> Iterator[str]:
    """The application behind a real socket, on a thread; yields its address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    listener.listen(64)
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="on", timeout_graceful_shutdown=2
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, args=([listener],), daemon=True)
    thread.start()
    until(lambda: server.started or not thread.is_alive())
    assert thread.is_alive()
    yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    stop_waiting(app)
    server.should_exit = True
    thread.join(HANG_S)
    listener.close()
    assert not thread.is_alive()
