"""Structured logs: one JSON object a line on stderr, with request and job ids."""

from __future__ import annotations

import contextvars
import json
import logging
import sys
import time
from typing import Any

#: Fields that every record of the present request or job carries.
context: contextvars.ContextVar[dict[str, Any] | None] = contextvars.ContextVar(
    "bigsap_log_context", default=None
)
_PLAIN = set(logging.makeLogRecord({}).__dict__) | {"message", "asctime", "taskName"}


class JsonFormatter(logging.Formatter):
    """A record as one line of JSON; ``extra=`` fields become members."""

    def format(self, record: logging.LogRecord) -> str:
        """The line, without a line break."""
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        found: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        found |= context.get() or {}
        found |= {k: v for k, v in record.__dict__.items() if k not in _PLAIN}
        if record.exc_info:
            found["exception"] = self.formatException(record.exc_info)
        return json.dumps(found, default=str)


def configure(level: str) -> None:
    """Send everything of the service and of uvicorn to stderr as JSON, from ``level`` on."""
    for name in ("bigsap_server", "bigsap", "uvicorn", "uvicorn.error", "distributed"):
        # One handler each: Dask changes the level of those that it finds on its logger.
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(JsonFormatter())
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.propagate = False
    logging.getLogger("bigsap_server").setLevel(level.upper())
    logging.getLogger("bigsap").setLevel(level.upper())
    logging.getLogger("uvicorn").setLevel(max(logging.INFO, getattr(logging, level.upper())))
    # Its own lines about every worker are for those who debug it.
    logging.getLogger("distributed").setLevel(logging.WARNING)
    # The gate writes access lines, with ids.
    logging.getLogger("uvicorn.access").handlers = []
    logging.getLogger("uvicorn.access").propagate = False
