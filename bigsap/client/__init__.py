"""The service seen from outside: a client, and a service of one's own for a while."""

from __future__ import annotations

from bigsap.client.jobs import Client, Job, JobFailedError, ServiceError, UnreachableError, UploadError

__all__ = ["Client", "Job", "JobFailedError", "ServiceError", "UnreachableError", "UploadError"]
