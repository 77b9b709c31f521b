"""The event stream of a job (server-sent events), continued over lost connections."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, Any

from bigsap.client.http import _MISSING, Patience, Transport, path_of, unreachable

if TYPE_CHECKING:
    import httpx


def events(transport: Transport, job_id: str, after: int) -> Iterator[dict[str, Any]]:
    """Yield the events of a job that follow event number ``after``, see ``Client.events``.

    Raises UnreachableError after ``patience`` seconds without an answer.
    """
    try:
        import httpx
        from httpx_sse import EventSource
    except ImportError as error:
        raise ImportError(_MISSING) from error
    path = f"{path_of('jobs', job_id)}/events"
    # The service sends a comment every few seconds, so silence means a lost connection.
    timeout = httpx.Timeout(30.0)
    patience = Patience(transport.patience)

    def connect() -> httpx.Response:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        request = transport.http.build_request("GET", path, headers=headers, timeout=timeout)
        answer = transport.http.send(request, stream=True)
        if answer.status_code >= 300:
            answer.read()
        return answer

    while True:
        with closing(transport.persist(connect, patience=patience)) as answer:
            if answer.status_code == 204:  # the job has ended, without further events
                return
            # Without an end event the service is stopping, and may return.
            lost: Exception = OSError("the event stream was cut off")
            try:
                for event in EventSource(answer).iter_sse():
                    if event.event == "end":
                        return
                    if not event.data:  # it only sets the time until reconnection
                        continue
                    if event.id:
                        after = int(event.id)
                    yield json.loads(event.data)
            except httpx.TransportError as error:
                lost = error
            if answer.num_bytes_downloaded:
                patience.renew()
        patience.spend(unreachable(transport.url, lost))
