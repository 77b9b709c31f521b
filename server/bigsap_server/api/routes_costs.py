"""Routes for the catalogue of cost kinds, and for checking a cost spec without a job."""

from __future__ import annotations

from contextlib import suppress
from typing import Annotated, Any

import anyio
from fastapi import APIRouter, Query
from fastapi.responses import Response
from starlette.concurrency import run_in_threadpool

from bigsap_server.api import schemas
from bigsap_server.api.bodies import StrictRoute
from bigsap_server.api.context import Reader, Service, Submitter, TheService
from bigsap_server.api.schemas import answer
from bigsap_server.costs.build import plugin_of
from bigsap_server.costs.request import CheckRequest
from bigsap_server.costs.sandbox import check_apart
from bigsap_server.costs.specs import MEMBERS
from bigsap_server.costs.validate import validate_costs
from bigsap_server.problems import HttpProblem

router = APIRouter(prefix="/v1", tags=["costs"], route_class=StrictRoute, responses=schemas.PROBLEM_RESPONSES)


@router.get("/cost-types", summary="Types of costs", response_model=schemas.CostTypes)
@router.get("/kernels", summary="Types of costs, by a former name", response_model=schemas.CostTypes)
async def cost_types(service: TheService, caller: Reader) -> Response:
    """Every type of cost spec with its JSON Schema, an example, and whether it is enabled."""
    return answer(await run_in_threadpool(_catalogue, service))


def _catalogue(service: Service) -> schemas.CostTypes:
    settings = service.settings
    enabled = {
        "http_rows": bool(settings.http_rows_hosts),
        "plugin": bool(settings.plugins),
        "npy": bool(settings.zarr_uris),
        "zarr": bool(settings.stores or settings.zarr_uris),
    }
    kinds = []
    for name, member in MEMBERS.items():
        schema = member.model_json_schema()
        if "$ref" in schema:  # members that contain costs refer to themselves
            schema = {**schema["$defs"][member.__name__], "$defs": schema["$defs"]}
        kinds.append(
            {
                "type": name,
                "description": (member.__doc__ or "").strip(),
                "enabled": enabled.get(name, True),
                "example": member.model_config["json_schema_extra"]["examples"][0],  # type: ignore[index]
                "schema": schema,
            }
        )
    return schemas.CostTypes(cost_types=kinds, kernels=kinds, plugins=_plugins(settings.plugins))


def _plugins(enabled: list[str]) -> list[dict[str, Any]]:
    found = []
    for name in enabled:
        with suppress(HttpProblem):  # not installed
            plugin = plugin_of(name, enabled)
            words, schema = (plugin.__doc__ or "").strip(), plugin.Params.model_json_schema()
            found.append({"name": name, "description": words, "schema": schema})
    return found


@router.post("/costs:check", summary="Compile and sample a cost spec", response_model=schemas.Check)
async def check(
    body: CheckRequest,
    service: TheService,
    caller: Submitter,
    sample: Annotated[bool, Query(description="false: validate only, compile nothing")] = True,
) -> Response:
    """Validate the spec, then compile it and read a few rows, in a process of its own."""
    resolver = service.resolver(caller)
    order = body.model_dump(mode="json")
    found = await run_in_threadpool(validate_costs, order["cost"], resolver, body.shape, body.maximize)
    if not sample:
        return answer(schemas.Check(ok=True, shape=found.shape, dtype=found.dtype))
    try:
        service.checks.acquire_on_behalf_of_nowait(marker := object())
    except anyio.WouldBlock:
        raise HttpProblem(
            "too-many-requests", "other checks are under way", headers={"Retry-After": "2"}
        ) from None
    try:
        settings = service.settings
        sampled = await run_in_threadpool(
            check_apart, order, settings.data, service.plain, settings.limits.check_s
        )
    finally:
        service.checks.release_on_behalf_of(marker)
    return answer(schemas.Check(**sampled))
