"""A client of the BigSAP service, and a temporary local service.

Names are imported at first use: command line and errors need none of the costs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bigsap.client.http import JobFailedError, ServiceError, UnreachableError, UploadError
    from bigsap.client.jobs import Client, Job

__all__ = ["Client", "Job", "JobFailedError", "ServiceError", "UnreachableError", "UploadError"]


def __getattr__(name: str) -> Any:
    if name in ("http", "jobs"):
        return import_module(f"bigsap.client.{name}")
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from bigsap.client import jobs

    return getattr(jobs, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
