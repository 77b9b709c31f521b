"""Context of routes: the parts of a running service, and the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Annotated, Any
from weakref import WeakValueDictionary

import anyio
from fastapi import Depends, Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer
from starlette.concurrency import run_in_threadpool

from bigsap_server.api.service_metrics import Metrics
from bigsap_server.auth import Caller, Keys, Scope
from bigsap_server.costs.build import Resolver
from bigsap_server.jobs.events import Notifier
from bigsap_server.jobs.model import JobRow
from bigsap_server.jobs.store import JobStore
from bigsap_server.jobs.supervisor import Supervisor
from bigsap_server.settings import Settings
from bigsap_server.uploads.store import ArrayStore

# Uploads sealed at a time: each is a file that is read whole.
_SEALS = 4


@dataclass
class Service:
    """Parts of a running service. ``plain``: the settings as workers get them.

    seals, sealing: locks of arrays that are being sealed, and the threads that do it.
    """

    settings: Settings
    plain: dict[str, Any] = field(repr=False)
    store: JobStore
    supervisor: Supervisor
    arrays: ArrayStore
    notifier: Notifier
    metrics: Metrics
    keys: Keys
    checks: anyio.CapacityLimiter
    seals: WeakValueDictionary[str, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    sealing: anyio.CapacityLimiter = field(default_factory=lambda: anyio.CapacityLimiter(_SEALS))

    @property
    def root(self) -> str:
        """Path prefix of this service as clients see it."""
        return self.settings.root_path

    def resolver(self, caller: Caller) -> Resolver:
        return Resolver(self.settings.data, self.plain, caller.sees)

    async def job(self, job_id: str, caller: Caller) -> JobRow:
        """Return the job, if the caller may see it."""
        recent = self.store.recent.job(job_id)
        if recent is not None and caller.sees in (None, recent.owner):
            return recent
        return await run_in_threadpool(self.store.get, job_id, caller.sees)


# Dependencies are coroutines, although they do not wait: the framework would run functions in threads, and
# the two thread switches would take most of the time of a poll.
async def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


_bearer = HTTPBearer(auto_error=False, description="A key, where the service has keys")
_header = APIKeyHeader(name="X-API-Key", auto_error=False, description="The same, shorter")


def _with_one_of(*scopes: Scope) -> Callable[..., Awaitable[Caller]]:
    """Return a dependency for a route's caller, who needs one of these scopes."""

    async def judged(
        request: Request, _: Annotated[Any, Security(_bearer)], __: Annotated[Any, Security(_header)]
    ) -> Caller:
        caller: Caller = request.state.caller
        caller.require(*scopes)
        return caller

    return judged


#: Parameters of routes. Admission has found the caller; these check its scopes.
TheService = Annotated[Service, Depends(_service)]
Reader = Annotated[Caller, Depends(_with_one_of("read"))]
Submitter = Annotated[Caller, Depends(_with_one_of("submit"))]
ReaderOrSubmitter = Annotated[Caller, Depends(_with_one_of("read", "submit"))]
