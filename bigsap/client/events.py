"""The event stream of a job (server-sent events), continued over lost connections."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from bigsap.client.http import _MISSING, Transport, refusal, unreachable


def events(transport: Transport, job_id: str, after: int) -> Iterator[dict[str, Any]]:
    """See ``Client.events``. Raises UnreachableError after ``patience`` seconds of silence."""
    try:
        import httpx
        from httpx_sse import EventSource
    except ImportError as error:
        raise ImportError(_MISSING) from error
    # The service sends a comment every few seconds, so that silence means a lost connection.
    timeout = httpx.Timeout(30.0)
    lost: float | None = None
    pause = 0.1
    while True:
        headers = {"Accept": "text/event-stream", "Last-Event-ID": str(after)}
        path = f"/v1/jobs/{job_id}/events"
        try:
            with transport.http.stream("GET", path, headers=headers, timeout=timeout) as answer:
                if answer.status_code >= 300:
                    answer.read()
                    raise refusal(answer)
                if answer.status_code == 204:  # over, and nothing more to tell
                    return
                for event in EventSource(answer).iter_sse():
                    lost, pause = None, 0.1
                    if event.event == "end":
                        return
                    if not event.data:  # only tells how soon to connect again
                        continue
                    if event.id:
                        after = int(event.id)
                    yield json.loads(event.data)
            # Without an end: the service is stopping, and may come back.
            lost = time.monotonic() if lost is None else lost
            if time.monotonic() - lost + pause > transport.patience:
                raise unreachable(transport.url, OSError("the event stream was cut off"))
        except httpx.TransportError as error:
            now = time.monotonic()
            lost = now if lost is None else lost
            if now - lost + pause > transport.patience:
                raise unreachable(transport.url, error) from error
        time.sleep(pause)
        pause = min(2 * pause, 5.0)
