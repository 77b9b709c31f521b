"""Routes for the service itself: capabilities, health and metrics."""

from __future__ import annotations

import platform
import shutil
from typing import Any

from fastapi import APIRouter
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from bigsap.info import version
from bigsap.option_table import OPTIONS
from bigsap_server.api import schemas
from bigsap_server.api.bodies import StrictRoute
from bigsap_server.api.context import Reader, Service, TheService
from bigsap_server.api.schemas import answer
from bigsap_server.api.service_metrics import MEDIA_TYPE
from bigsap_server.costs.request import Options
from bigsap_server.costs.specs import DTYPES, MEMBERS
from bigsap_server.problems import HttpProblem
from bigsap_server.settings import Settings

router = APIRouter(
    tags=["system"], route_class=StrictRoute, responses={503: schemas.problem_response("Not ready")}
)

# Responses of routes that require a key.
_KEYED: dict[int | str, dict[str, Any]] = {
    status: schemas.PROBLEM_RESPONSES[status] for status in (400, 401, 403, 429)
}
_CAPABILITIES = {**_KEYED, 422: schemas.PROBLEM_RESPONSES[422]}

# With less free space no job is accepted: checkpoints and results still have to fit.
_LEAST_FREE_BYTES = 64 << 20
_PACKAGES = ("bigsap", "numpy", "numba", "zarr", "dask", "distributed", "fastapi")


@router.get(
    "/v1/capabilities",
    summary="Limits, devices, versions",
    response_model=schemas.Capabilities,
    responses=_CAPABILITIES,
)
async def capabilities(service: TheService, caller: Reader) -> Response:
    """Abilities of this service and limits of the caller."""
    settings = service.settings
    return answer(
        schemas.Capabilities(
            versions={"python": platform.python_version(), **{name: version(name) for name in _PACKAGES}},
            api="v1",
            auth=service.keys.required,
            caller={"name": caller.owner, "scopes": sorted(caller.scopes), **caller.quotas},
            devices=list(settings.devices),
            workers=None if settings.scheduler else settings.default_workers,
            threads_per_job=settings.default_threads,
            spread=settings.has_cluster and caller.quotas["spread_workers"] not in (0, 1),
            methods=list(Options.model_json_schema()["properties"]["method"]["enum"]),
            options=_options(settings),
            costs=list(MEMBERS),
            dtypes=list(DTYPES),
            stores=sorted(settings.stores),
            plugins=list(settings.plugins),
            remote={
                "zarr": bool(settings.zarr_uris),
                "npy": bool(settings.zarr_uris),
                "http_rows": bool(settings.http_rows_hosts),
                "results": bool(settings.result_uris),
            },
            limits=settings.limits.model_dump(mode="json") | {"threads": settings.most_threads},
            checkpoint_s=settings.checkpoint_s,
            attempts=settings.attempts,
        )
    )


def _options(settings: Settings) -> list[schemas.OptionWords]:
    """Return the options that a request may have, from the table that all of BigSAP shares."""
    found = []
    ours = {
        "checkpoint_s": settings.checkpoint_s,
        "time_limit_s": settings.limits.time_limit_s,
        "threads": settings.default_threads,
    }
    for option in OPTIONS:
        choices = list(option.remote_choices or option.choices)
        if option.name == "device":
            choices = ["auto", *settings.devices]
        found.append(
            schemas.OptionWords(
                name=option.remote,
                label=option.label,
                help=option.remote_help.partition(": a number, or a .npy file")[0],
                kind="choice" if choices else option.kind,
                choices=choices,
                default=ours.get(option.remote, option.remote_default or option.default),
            )
        )
    return found


@router.get("/healthz", summary="Liveness", response_model=schemas.Health)
async def healthz() -> Response:
    """The process answers."""
    return answer(schemas.Health(status="ok"))


@router.get("/readyz", summary="Readiness", response_model=schemas.Health)
async def readyz(service: TheService) -> Response:
    """Whether jobs can be accepted and run: store, executor, disk."""
    checks = await run_in_threadpool(_checks, service)
    if all(checks.values()):
        return answer(schemas.Health(status="ready", checks=checks))
    failing = ", ".join(name for name, good in checks.items() if not good)
    raise HttpProblem("unavailable", f"not ready: {failing}", checks=checks, headers={"Retry-After": "2"})


def _checks(service: Service) -> dict[str, bool]:
    try:
        service.store.counts()
        store = True
    except Exception:  # noqa: BLE001 - any error means that the store does not work
        store = False
    try:
        disk = shutil.disk_usage(service.settings.data).free > _LEAST_FREE_BYTES
    except OSError:
        disk = False
    return {
        "store": store,
        "executor": service.supervisor.ready(),
        "disk": disk,
        "accepting": not service.notifier.stopping,
    }


@router.get(
    "/metrics",
    summary="Prometheus metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {}}}, **_KEYED},
)
async def metrics(service: TheService, caller: Reader) -> Response:
    """In the text format of Prometheus."""
    text: bytes = await run_in_threadpool(service.metrics.text)
    return Response(text, media_type=MEDIA_TYPE)


def describe(document: dict[str, Any]) -> dict[str, Any]:
    """Add to the OpenAPI document what the framework does not generate."""
    schema = schemas.ProblemDocument.model_json_schema(ref_template="#/components/schemas/{model}")
    document.setdefault("components", {}).setdefault("schemas", {})["ProblemDocument"] = schema
    for path in document["paths"].values():
        for operation in path.values():
            for status, response in operation.get("responses", {}).items():
                content = response.get("content", {})
                if str(status).startswith(("4", "5")) and "application/problem+json" in content:
                    # The framework adds its own error schema to the problem document.
                    response["content"] = {"application/problem+json": content["application/problem+json"]}
    return document
