"""Webhooks: a signed message to an allowed address when a job has ended.

``X-BigSAP-Signature`` is ``sha256=`` and the HMAC of timestamp, a dot and the body with the
operator's secret. A message that is not answered by 2xx is sent again, after longer and longer
pauses. What is not delivered when the server stops is not sent again: clients that must not miss
an end look at the job as well.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import itertools
import json
import logging
import queue
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bigsap_server.costs.url_policy import check_host, pinned_async_client
from bigsap_server.jobs.model import FINISHED, JobRow
from bigsap_server.problems import HttpProblem
from bigsap_server.settings import Settings

if TYPE_CHECKING:
    import httpx

_log = logging.getLogger("bigsap_server.webhooks")

#: Seconds before each further try.
PAUSES = (1.0, 5.0, 30.0, 120.0, 600.0)
#: Seconds of a whole try, from the connection to the head of the answer.
_TIMEOUT_S = 10.0


def check_webhook(url: str, settings: Settings) -> tuple[str, int]:
    """Return host and port of an address. Raises HttpProblem for one that the operator has not allowed."""
    if settings.webhook_secret is None:
        raise HttpProblem("forbidden-address", "this service sends no webhooks", pointer="/webhook")
    return check_host(url, settings.webhook_hosts, "/webhook")


def signature(secret: str, stamp: str, body: bytes) -> str:
    """Return the value of ``X-BigSAP-Signature``."""
    return "sha256=" + hmac.new(secret.encode(), stamp.encode() + b"." + body, hashlib.sha256).hexdigest()


class Webhooks:
    """Sends messages on a thread of its own. settings: gives the present ones."""

    def __init__(self, settings: Callable[[], Settings]) -> None:
        self._settings = settings
        self._due: queue.PriorityQueue[tuple[float, int, int, dict[str, Any]]] = queue.PriorityQueue()
        self._count, self._stopping = itertools.count(), threading.Event()
        # Until when a receiver that gave no answer is left alone: as long as its last try took, so that
        # messages to others never wait for all of those to it.
        self._held: dict[str, float] = {}
        self._thread = threading.Thread(target=self._run, name="bigsap-webhooks", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop it, whatever is still to be sent."""
        self._stopping.set()
        self._put(0.0, 0, {})

    def follow(self, job_id: str, job: JobRow | None) -> None:
        """Send a message if the job has ended and asks for one. Returns at once."""
        if job is not None and job.state in FINISHED and job.spec.get("webhook"):
            brief = ("status", "objective", "bound", "gap")
            result = None if job.result is None else {name: job.result.get(name) for name in brief}
            same = {name: getattr(job, name) for name in ("id", "state", "attempt", "label", "problem")}
            self._put(0.0, 0, {"url": job.spec["webhook"], "body": {**same, "result": result}})

    def _put(self, due: float, tries: int, message: dict[str, Any]) -> None:
        self._due.put((due, next(self._count), tries, message))

    def _run(self) -> None:
        while True:
            due, _, tries, message = self._due.get()
            if self._stopping.is_set():
                return
            now, receiver = time.monotonic(), urlsplit(message["url"]).netloc
            if (held := self._held.get(receiver, 0.0)) > max(due, now):
                self._put(held, tries, message)
                continue
            wait = due - now
            if wait > 0:
                self._put(due, tries, message)
                self._stopping.wait(min(wait, 0.5))
                continue
            answer = self._send(message)
            after = time.monotonic()
            self._held[receiver] = after if answer else 2 * after - now
            job_id = message["body"]["id"]
            if 200 <= answer < 300:
                _log.info("webhook of %s delivered", job_id, extra={"job": job_id})
            elif tries < len(PAUSES):
                self._put(after + PAUSES[tries], tries + 1, message)
            else:
                _log.warning("webhook of %s given up: %s", job_id, answer, extra={"job": job_id})

    def _send(self, message: dict[str, Any]) -> int:
        """Return the status of the answer, 0 without one."""
        settings, body = self._settings(), json.dumps(message["body"]).encode()
        stamp = str(int(time.time()))
        try:
            host, port = check_webhook(message["url"], settings)  # the list may have changed
            headers = {
                "Content-Type": "application/json",
                "X-BigSAP-Timestamp": stamp,
                "X-BigSAP-Signature": signature(settings.webhook_secret or "", stamp, body),
            }
            return _post(message["url"], host, port, body, headers)
        except Exception as error:  # noqa: BLE001 - any error of the other side
            _log.info("webhook: %s: %s", type(error).__name__, error)
            return 0


def _post(url: str, host: str, port: int, body: bytes, headers: dict[str, str]) -> int:
    return asyncio.run(_posted(url, pinned_async_client(host, port, headers), body))


async def _posted(url: str, client: httpx.AsyncClient, body: bytes) -> int:
    """Return the status of the answer, whose body is not read. Raises TimeoutError."""
    # A limit of httpx would be one of each read, and a receiver may send a byte at a time.
    async with (
        asyncio.timeout(_TIMEOUT_S),
        client,
        client.stream("POST", url, content=body, timeout=None, follow_redirects=False) as answer,
    ):
        return answer.status_code
