"""What machines ask: is it alive, is it ready, what does it serve, how is it doing, and what can it be asked."""

import asyncio

import orjson
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from prometheus_client.exposition import choose_encoder
from starlette.routing import Route

from taugate.service.api.described import errors, replies
from taugate.service.api.json_reply import json_bytes
from taugate.service.api.schemas import Health, ReleaseResponse
from taugate.service.errors import NotReady
from taugate.service.lifecycle.serving import Serving
from taugate.service.metrics import Metrics

_EXPOSITION = {kind: {"schema": {"type": "string"}} for kind in ("text/plain", "application/openmetrics-text")}


def infra_routes(serving: Serving, metrics: Metrics) -> APIRouter:
    """Routes for probes and scrapers."""
    router = APIRouter(tags=["operations"])

    @router.get("/livez", response_model_exclude_none=True, responses=replies(200, Health) | errors())
    async def livez() -> Health:
        """The process answers, also while a release is being loaded."""
        return Health(status="alive")

    @router.get("/readyz", responses=replies(200, Health) | errors(503))
    async def readyz() -> Health:
        """A release is loaded, verified, and answers its golden queries as recorded."""
        return Health(status="ready", release=serving.answering.engine.release.manifest.release_id)

    @router.get("/release", responses=replies(200, ReleaseResponse) | errors(503))
    async def release() -> ReleaseResponse:
        """The release in service, with its manifest."""
        loaded = serving.answering.engine.release
        manifest = loaded.manifest
        if serving.loaded_at is None:
            raise NotReady("the release is being loaded")
        return ReleaseResponse(
            release=manifest.release_id,
            shadow=serving.shadowing.release_id,
            loaded_at=serving.loaded_at.isoformat(),
            precision=loaded.precision,
            manifest=manifest.model_dump(),
        )

    @router.get("/metrics", response_class=Response, responses=replies(200, None, content=_EXPOSITION) | errors())
    async def prometheus(request: Request) -> Response:
        """Metrics in Prometheus's text format, or in OpenMetrics where the scraper accepts it."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics.exposed()), headers={"Content-Type": content_type})

    return router


def add_openapi_route(app: FastAPI) -> None:
    """The description of the API, written once: anybody may ask for it, and often, and FastAPI would write it anew."""
    description: asyncio.Future[bytes] | None = None

    async def openapi(request: Request) -> Response:
        nonlocal description
        request.scope["route"] = route
        if description is None:  # made for whoever asks first, in a thread, since it takes some 25 ms
            description = asyncio.ensure_future(asyncio.to_thread(lambda: orjson.dumps(app.openapi())))
        return json_bytes(await asyncio.shield(description))

    route = Route("/openapi.json", openapi)
    app.router.routes.append(route)
