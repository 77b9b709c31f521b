"""A client of the BigSAP service, and a temporary local service."""

from __future__ import annotations

from bigsap.client.jobs import Client, Job, JobFailedError, ServiceError, UnreachableError, UploadError

__all__ = ["Client", "Job", "JobFailedError", "ServiceError", "UnreachableError", "UploadError"]
