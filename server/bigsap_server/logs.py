"""Structured logs: one JSON object a line on stderr, with request and job ids."""

from __future__ import annotations

import contextvars
import json
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

#: Fields added to every record of the present request or job.
context: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar(
    "bigsap_log_context", default=None
)
# Fields added to records of all threads, in a process that runs one job.
_ambient: dict[str, Any] = {}
# Standard fields, and uvicorn's second copy of its message for terminals.
_PLAIN = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName", "color_message"}


class JsonFormatter(logging.Formatter):
    """Formatter of a record as one line of JSON; ``extra=`` fields become members."""

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        found: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        found |= _ambient | (context.get() or {})
        found |= {k: v for k, v in record.__dict__.items() if k not in _PLAIN}
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)


def _matters(record: logging.LogRecord) -> bool:
    """Drop Dask's messages about every worker and about lost ones, which the service logs itself."""
    if record.name.split(".")[0] not in ("distributed", "tornado"):
        return True
    lost = record.name == "distributed.scheduler" and "marked as failed" in str(record.msg)
    return record.levelno >= logging.ERROR and not lost


def configure(level: str) -> None:
    """Send all logs of this process to stderr as JSON, the service's own from ``level`` on.

    For the server and for the workers that it starts. The only handler is the root logger's: if that
    has one, Dask adds none of its own (a second line for each record, in another format).
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter())
    handler.addFilter(_matters)
    logging.getLogger().handlers = [handler]
    for name in ("bigsap_server", "bigsap", "uvicorn", "uvicorn.error", "distributed", "py.warnings"):
        logger = logging.getLogger(name)
        logger.handlers, logger.propagate = [], True
    set_level(level)
    logging.getLogger("uvicorn").setLevel(max(logging.INFO, getattr(logging, level.upper())))
    # Admission writes access lines, with ids.
    logging.getLogger("uvicorn.access").handlers = []
    logging.getLogger("uvicorn.access").propagate = False
    logging.captureWarnings(True)


def set_level(level: str) -> None:
    """Set the lowest level of the service's own lines."""
    for name in ("bigsap_server", "bigsap"):
        logging.getLogger(name).setLevel(level.upper())


@contextmanager
def about(ambient: bool, **fields: Any) -> Iterator[None]:
    """Add ``fields`` to records; ``ambient``: to those of other threads as well."""
    token = context.set((context.get() or {}) | fields)
    if ambient:
        _ambient.update(fields)
    try:
        yield
    finally:
        context.reset(token)
        if ambient:
            _ambient.clear()
