"""Server process of the service, which also starts the workers."""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable
from functools import partial
from types import FrameType

import uvicorn

from bigsap_server import logs
from bigsap_server.api.app import create_app, reload, stop_waiting
from bigsap_server.api.middleware import Admission
from bigsap_server.jobs.model import StoreUnavailable
from bigsap_server.jobs.store import JobStore
from bigsap_server.settings import Settings

_log = logging.getLogger("bigsap_server")

# Seconds after which connections are closed at a stop. Open event streams and long polls end by themselves,
# unless the client reads too slowly.
_GOODBYE_S = 5
#: Idle connections are kept longer than by clients (httpx 5 s, our own less): if both closed at the same
#: time, a request could meet a connection that is just being closed.
KEEP_ALIVE_S = 20


class _Server(uvicorn.Server):
    """Server that prints its address once it listens."""

    def __init__(
        self, config: uvicorn.Config, app: Admission, address: str, again: Callable[[], Settings]
    ) -> None:
        super().__init__(config)
        self._app, self._said, self._again = app, address, again
        self.hung_up: list[int] = []

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """End streams and long polls first, because uvicorn waits for open connections.

        A second signal ends the process: uvicorn would go on to wait for running jobs.
        """
        if self.should_exit:
            signal.signal(sig, signal.SIG_DFL)
            signal.raise_signal(sig)
        stop_waiting(self._app)
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            if threading.current_thread() is threading.main_thread():
                reload_at_hangup(self._app, self._again)
                if self.hung_up:
                    _reload(self._app, self._again)
            print(f"BigSAP serves at {self._said}", flush=True)


def serve(settings: Settings, again: Callable[[], Settings] | None = None) -> int:
    """Serve until SIGTERM or Ctrl-C; return the exit code: 0, or 1 when it could not begin.

    Prints ``BigSAP serves at http://HOST:PORT`` once it does. On SIGTERM running jobs write
    a checkpoint and continue at the next start with the same data directory; a second signal
    ends the process at once, and the next start recovers from that too. again: reads the settings
    anew, for SIGHUP, which takes keys and what else can be changed (``settings.RELOADED``).
    """
    hung_up: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()
    if in_main and hasattr(signal, "SIGHUP"):  # while it starts: reload once it has
        signal.signal(signal.SIGHUP, lambda sig, frame: hung_up.append(sig))
    logs.configure(settings.log_level)
    listener = store = None
    try:
        settings.check_stores()
        listener = _listen(settings.host, settings.port)
        store = JobStore(settings.data / "jobs.sqlite")
        app = create_app(settings, store)
    except (ValueError, OSError, StoreUnavailable) as error:
        for opened in (listener, store):
            if opened is not None:
                opened.close()
        print(f"bigsap serve: {error}", file=sys.stderr)
        return 1
    try:
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=bool(settings.proxies),
            forwarded_allow_ips=settings.proxies,
            lifespan="on",
            timeout_keep_alive=KEEP_ALIVE_S,
            timeout_graceful_shutdown=_GOODBYE_S,
        )
        server = _Server(config, app, _address(settings.host, listener), again or Settings)
        server.hung_up = hung_up
        # uvicorn raises a signal again when it has stopped, which must then have no effect. Before uvicorn
        # handles signals, a signal must stop the start.
        if in_main:
            for name in ("SIGTERM", "SIGBREAK"):  # the latter on Windows, by which a parent asks
                if hasattr(signal, name):
                    signal.signal(getattr(signal, name), partial(_stop, server))
        server.run(sockets=[listener])
        return 0 if server.started else 1
    except KeyboardInterrupt:
        return 0  # uvicorn has stopped gracefully and passes the signal on
    finally:
        listener.close()
        store.close()


def _stop(server: _Server, sig: int, frame: FrameType | None) -> None:
    if not server.should_exit:
        server.handle_exit(sig, frame)


def reload_at_hangup(app: Admission, again: Callable[[], Settings]) -> None:
    """Reload keys and settings at each SIGHUP. Called on the loop, which then calls the handler.

    A handler of ``signal`` would run in the middle of a request, and log as a part of it.
    """
    if hasattr(signal, "SIGHUP"):  # Windows has none: restart the service there
        asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, _reload, app, again)


def _reload(app: Admission, again: Callable[[], Settings]) -> None:
    try:
        reload(app, again())
    except (ValueError, OSError) as error:
        _log.error("the settings stay as they were: %s", error)
    else:
        _log.info("keys and settings are reloaded")


def _listen(host: str, port: int) -> socket.socket:
    flags = socket.AI_PASSIVE
    listener = None
    try:
        found = socket.getaddrinfo(host, port, 0, socket.SOCK_STREAM, socket.IPPROTO_TCP, flags)
        family, kind, protocol, _, address = found[0]
        # The protocol must be named: asyncio disables Nagle's algorithm only for sockets that are marked as
        # TCP, and with it every answer would wait 40 ms for an acknowledgement.
        listener = socket.socket(family, kind, protocol)
        if sys.platform != "win32":  # where it would let another program take the port as well
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
        return listener
    except OSError as error:
        if listener is not None:
            listener.close()
        raise OSError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error


def _address(host: str, listener: socket.socket) -> str:
    port = listener.getsockname()[1]
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{port}"
