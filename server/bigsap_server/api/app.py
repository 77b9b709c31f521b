"""ASGI application: assembly of its parts, and errors as problem documents."""

from __future__ import annotations

import asyncio
import logging
import mimetypes
import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import RedirectResponse, Response
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException as StarletteHTTPException
from starlette.routing import Match, Mount, Route
from starlette.types import Scope

import bigsap
from bigsap_server import logs
from bigsap_server.api import routes_arrays, routes_costs, routes_jobs, routes_results, routes_system
from bigsap_server.api.context import Service
from bigsap_server.api.middleware import Admission, response_of
from bigsap_server.api.service_metrics import Metrics
from bigsap_server.auth import Keys
from bigsap_server.costs.build import check_plugins
from bigsap_server.costs.specs import as_sent
from bigsap_server.files import sweep_scratch
from bigsap_server.jobs.events import Notifier
from bigsap_server.jobs.store import JobStore
from bigsap_server.jobs.supervisor import Supervisor, make_executor
from bigsap_server.jobs.webhooks import Webhooks
from bigsap_server.problems import PROBLEMS, HttpProblem, pointer_to
from bigsap_server.settings import Settings
from bigsap_server.uploads.store import ArrayStore

_log = logging.getLogger("bigsap_server")

PAGE = Path(__file__).parents[1] / "page"
_MOST_ERRORS = 20
#: Path parameters that name resources. A value that is not a valid name gives 404.
_IDS = {"job_id": "job", "array_id": "array", "name": "result"}
#: Slugs for the framework's errors, by status.
_SLUGS = {status: slug for slug, (status, _) in reversed([*PROBLEMS.items()])}

# Missing on some machines; without it browsers refuse the page's modules (nosniff).
mimetypes.add_type("text/javascript", ".js")
mimetypes.add_type("text/javascript", ".mjs")


_MODULES = (routes_jobs, routes_results, routes_arrays, routes_costs, routes_system)


def allowed_methods(path: str) -> set[str]:
    """Return the methods that any route has for a path."""
    found = {"GET"} if path == "/openapi.json" else set[str]()
    for module in _MODULES:
        for route in module.router.routes:
            if isinstance(route, Route) and route.path_regex.match(path):
                found |= route.methods or set()
    return found | {"HEAD"} if "GET" in found else found


class _Application(FastAPI):
    """FastAPI, whose document also describes problems."""

    def openapi(self) -> dict[str, Any]:
        return routes_system.describe(super().openapi())


class _Files(StaticFiles):
    """Static files of the page, revalidated on each request so that versions do not mix."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        """Return the file; 404 for missing files whatever the method, 405 only for existing ones."""
        if scope["method"] not in ("GET", "HEAD"):
            await super().get_response(path, {**scope, "method": "GET"})
        response = await super().get_response(path, scope)
        if isinstance(response, RedirectResponse):  # of a folder: the address outside a proxy is unknown
            response.headers["Location"] = f"./{scope['path'].rpartition('/')[2]}/"
        return response

    def file_response(self, *args: Any, **given: Any) -> Response:
        """Return the file with the revalidation header; unchanged files are answered 304."""
        response = super().file_response(*args, **given)
        response.headers["Cache-Control"] = "no-cache"
        return response


class _Page(Mount):
    """The page, at every path outside the API."""

    def __init__(self) -> None:
        super().__init__("/", _Files(directory=PAGE, html=True), name="page")

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """Match no path of the API, whatever the method: the API's routes check it."""
        path = scope.get("path", "")
        if path.startswith("/v1/") or allowed_methods(path):
            return Match.NONE, {}
        return super().matches(scope)


def create_app(settings: Settings, store: JobStore | None = None) -> Admission:
    """Return the application; ``store`` defaults to that of the settings.

    Its lifespan opens the data folder, starts the workers and stops them. Raises ValueError
    or OSError for an invalid keys file, and ValueError for a plugin that is not installed.
    The caller must call ``stop_waiting(app)`` when the process is asked to end, so that
    streams and long polls end.
    """
    keys = Keys.read(settings.keys, settings.limits)
    check_plugins(settings.plugins)
    metrics = Metrics()

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        settings.data.mkdir(parents=True, exist_ok=True)
        jobs = store
        if jobs is None:
            jobs = await anyio.to_thread.run_sync(JobStore, settings.data / "jobs.sqlite")
        await anyio.to_thread.run_sync(sweep_scratch, settings.data)
        notifier = Notifier(asyncio.get_running_loop())
        jobs.on_change(lambda job_id, job: notifier.wake(job_id))
        jobs.on_change(metrics.follow)
        webhooks = Webhooks(lambda: app.state.settings)
        jobs.on_change(webhooks.follow)
        supervisor = Supervisor(jobs, make_executor(settings), settings, keys)
        metrics.watch(jobs.counts, supervisor.workers, supervisor.memory, supervisor.held, settings.data)
        app.state.service = Service(
            settings=settings,
            plain=settings.model_dump(mode="json"),
            store=jobs,
            supervisor=supervisor,
            arrays=await anyio.to_thread.run_sync(ArrayStore, settings.data / "arrays"),
            notifier=notifier,
            metrics=metrics,
            keys=keys,
            checks=anyio.CapacityLimiter(settings.limits.checks),
        )
        webhooks.start()
        supervisor.start()
        expiring = asyncio.create_task(_expire_hourly(app.state.service))
        try:
            yield
        finally:
            expiring.cancel()
            notifier.close()
            await anyio.to_thread.run_sync(supervisor.stop)
            webhooks.stop()
            if store is None:
                jobs.close()

    app = _Application(
        title="BigSAP",
        version=bigsap.__version__,
        lifespan=lifespan,
        redirect_slashes=False,
        summary="Exact linear assignment when the cost matrix does not fit",
        # The framework's pages load scripts from other hosts; the service has a page of its own.
        docs_url=None,
        redoc_url=None,
        separate_input_output_schemas=False,
        servers=[{"url": settings.root_path}] if settings.root_path else None,
        exception_handlers=dict.fromkeys(
            (Exception, HttpProblem, RequestValidationError, StarletteHTTPException), _failed
        ),
    )
    app.state.settings = settings
    for module in _MODULES:
        app.include_router(module.router)
    if settings.page and (PAGE / "index.html").is_file():
        app.router.routes.append(_Page())
    trace(app)
    return Admission(app, keys, metrics, settings.root_path)


async def _expire_hourly(service: Service) -> None:
    while True:
        await expire(service)
        await asyncio.sleep(3600)


async def expire(service: Service) -> None:
    """Delete old jobs and uploaded arrays that are no longer used."""
    limits = service.settings.limits
    arrays = partial(service.arrays.expire, unused=service.store.unused)
    for name, days, delete in (
        ("jobs", limits.job_days, service.store.expire),
        ("arrays", limits.array_days, arrays),
    ):
        if days is None:
            continue
        try:
            gone = await anyio.to_thread.run_sync(delete, days * 86400)
        except (HttpProblem, OSError) as error:  # tried again an hour later
            _log.error("%s cannot expire: %s", name, error)
            continue
        if gone:
            _log.info("%d %s have expired", len(gone), name, extra={name: gone[:100]})


def reload(app: Admission, settings: Settings) -> Settings:
    """Take keys and those settings that a running service can; return the present ones.

    Must be called on the thread of the event loop. Raises ValueError or OSError, and then nothing
    has changed.
    """
    service: Service = app.app.state.service
    found = service.settings.reloaded(settings)
    found.check_stores()
    check_plugins(found.plugins)
    keys = Keys.read(found.keys, found.limits)
    if keys.required != service.keys.required:
        raise ValueError("a running service cannot begin or cease to ask for keys: restart it")
    service.keys.reload(keys)
    service.settings, service.plain = found, found.model_dump(mode="json")
    app.app.state.settings = found
    service.checks.total_tokens = found.limits.checks
    service.supervisor.reload(found)
    service.notifier.wake_all()  # streams of keys that are gone end
    logs.set_level(found.log_level)
    return found


def trace(app: FastAPI) -> None:
    """Have OpenTelemetry trace requests, if the extra ``otel`` is installed.

    Where traces go is set as OpenTelemetry has it: ``OTEL_EXPORTER_OTLP_ENDPOINT``, ...
    """
    try:
        from opentelemetry import trace as tracing
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
        from opentelemetry.instrumentation.fastapi import FastAPIInstrumentor
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ImportError:
        return
    if any(name.startswith("OTEL_EXPORTER_OTLP") for name in os.environ):
        provider = TracerProvider()
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        tracing.set_tracer_provider(provider)
    FastAPIInstrumentor.instrument_app(app, excluded_urls="healthz,readyz,metrics")


def stop_waiting(app: Admission) -> None:
    """End event streams and long polls now. May be called from any thread, at any time."""
    service: Service | None = getattr(app.app.state, "service", None)
    if service is not None:
        service.notifier.close()


async def _failed(request: Request, error: Exception) -> Response:
    """Answer with the problem document of an error."""
    path, request_id = request.url.path, (logs.context.get() or {}).get("request")
    # The framework raises unexpected errors again after the answer, and admission logs them.
    found = HttpProblem("internal", "an error in the service; it is in the log")
    if isinstance(error, HttpProblem):
        found = error
    elif isinstance(error, RequestValidationError):
        found = _from_validation(error.errors(), error.body)
    elif isinstance(error, StarletteHTTPException):
        inside = request.scope["path"]
        if error.status_code == 404 and inside.endswith("/") and allowed_methods(inside[:-1]):
            place = f"../{quote(inside.split('/')[-2])}?{request.url.query}".rstrip("?")
            return RedirectResponse(place)  # relative: the address outside a proxy is unknown
        slug = _SLUGS.get(error.status_code, "malformed-request")
        found = HttpProblem(slug, str(error.detail), headers=error.headers)
        if found.status == 405:
            methods = allowed_methods(path) or {"GET", "HEAD"}
            found.headers = {"Allow": ", ".join(sorted(methods))}
    if found.pointer:
        found.pointer = _pointer_as_sent(found.pointer, getattr(request, "_json", None))
    return response_of(found, request.app.state.settings.root_path + path, request_id)


def _from_validation(errors: Sequence[Any], body: Any) -> HttpProblem:
    """Return one problem for all validation errors; ``pointer`` is the first error's field."""
    for error in errors:
        if error["loc"][0] == "path" and error["loc"][-1] in _IDS:
            absent = f"there is no {_IDS[error['loc'][-1]]} {str(error['input'])[:100]}"
            return HttpProblem("not-found", absent)
    found = []
    for error in errors[:_MOST_ERRORS]:
        place, *path = error["loc"]
        detail = str(error["msg"]).removeprefix("Value error, ")[:500]
        if place == "body":
            found.append({"detail": detail, "pointer": _pointer(path, body)})
        else:
            found.append({"detail": detail, "parameter": ".".join(map(str, path))[:200]})
    first = found[0]
    where = first.get("pointer", first.get("parameter")) or "the body"
    return HttpProblem(
        "invalid-spec", f"{where}: {first['detail']}", pointer=first.get("pointer"), errors=found
    )


def _pointer(path: Sequence[Any], body: Any) -> str:
    """Return the JSON pointer of an error's location, without the names of union members."""
    parts: list[Any] = []
    here = body
    tagged = False
    for k, name in enumerate(path):
        part = as_sent(here, name)
        # At a union of costs the path contains the member's name, which may equal a key.
        at_cost = parts[-1:] == ["cost"] or parts[-2:-1] == ["terms"]
        if not tagged and isinstance(here, dict) and at_cost and part == here.get("type"):
            tagged = True
            continue
        inside = (isinstance(here, dict) and part in here) or (
            isinstance(here, list) and isinstance(part, int) and part < len(here)
        )
        if inside:
            here, tagged = here[part], False
            parts.append(part)
        elif (
            k == len(path) - 1
            and isinstance(here, dict)
            # A missing key, unless it is the tag of a member that was refused as a whole.
            and part not in (here.get("type"), "inline", "uploaded", "stored", "number")
        ):
            parts.append(part)
    return pointer_to(*parts)


def _pointer_as_sent(pointer: str, body: Any) -> str:
    """Return a pointer into the service's form of a request as a pointer into the body that was sent."""
    here, parts = body, []
    for part in pointer.split("/")[1:]:
        parts.append(as_sent(here, part))
        if isinstance(here, list):
            here = here[int(part)] if part.isdecimal() and int(part) < len(here) else None
        else:
            here = here.get(parts[-1]) if isinstance(here, dict) else None
    return "".join(f"/{part}" for part in parts)
