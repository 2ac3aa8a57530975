"""Routes for operators: probes, metrics, the release in service, its reload, and openapi.json."""

from collections.abc import Awaitable, Callable

import orjson
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from prometheus_client.exposition import choose_encoder
from starlette.routing import Route

from taugate.service.access.authorization import REFERENCE_PATH
from taugate.service.api.openapi import errors, replies
from taugate.service.api.replies import EncodedJsonResponse
from taugate.service.api.schemas import Health, LiveDrift, ReleaseResponse
from taugate.service.drift.watch import DriftWatch
from taugate.service.errors import NotReady
from taugate.service.lifecycle.reference import ComputedOnce, ReferenceResponse
from taugate.service.lifecycle.serving import ReloadResponse, Serving
from taugate.service.metrics import Metrics


def operations_routes(
    serving: Serving, reload_release: Callable[[], Awaitable[ReloadResponse]], metrics: Metrics
) -> APIRouter:
    """Make the routes for operators, probes and scrapers.

    Args:
        serving: Holder of the release in service.
        reload_release: Function that puts the current release into service.
        metrics: Metrics that /metrics shows.
    """
    router = APIRouter(tags=["operations"])
    exposition = {kind: {"schema": {"type": "string"}} for kind in ("text/plain", "application/openmetrics-text")}

    @router.get("/livez", response_model_exclude_none=True, responses=replies(200, Health) | errors())
    async def livez() -> Health:
        """Liveness probe: the process responds, also while a release is being loaded."""
        return Health(status="alive")

    @router.get("/readyz", responses=replies(200, Health) | errors(503))
    async def readyz() -> Health:
        """Readiness probe: a release is loaded and verified, and its engine, if any, is responding.

        Verified means that its golden queries return the recorded results.
        """
        return Health(status="ready", release=serving.ready.release_id)

    @router.get("/release", responses=replies(200, ReleaseResponse) | errors(503))
    async def release() -> ReleaseResponse:
        """Get the release in service and its manifest."""
        active = serving.active
        loaded, watch = active.release, active.drift
        manifest = loaded.manifest
        if serving.loaded_at is None:
            raise NotReady("the release is being loaded")
        return ReleaseResponse(
            release=manifest.release_id,
            calibration=manifest.state,
            shadow=serving.shadowing.release_id,
            loaded_at=serving.loaded_at.isoformat(),
            precision=loaded.precision,
            drift=None if watch is None else _live_drift(watch),
            manifest=manifest.model_dump(),
        )

    @router.get(REFERENCE_PATH, responses=replies(200, ReferenceResponse) | errors(503))
    async def reference() -> Response:
        """Get the similarity distributions at calibration, and what other thresholds would keep and lose."""
        return EncodedJsonResponse(await serving.active.reference.get())

    @router.get(
        "/metrics",
        operation_id="metrics",
        response_class=Response,
        responses=replies(200, None, content=exposition) | errors(),
    )
    async def prometheus(request: Request) -> Response:
        """Get the metrics in Prometheus's text format, or in OpenMetrics if the scraper accepts it."""
        encode, content_type = choose_encoder(request.headers.get("accept", ""))
        return Response(encode(metrics.scrape()), headers={"Content-Type": content_type})

    @router.post("/admin/reload", responses=replies(200, ReloadResponse) | errors(409, 503))
    async def reload(request: Request) -> ReloadResponse:
        """Put the current release into service, if its golden queries return the recorded results.

        Returns once the new release is active. Until then, or if it cannot be loaded, the previous release keeps
        serving.
        """
        await request.body()  # not used, but must be received within the deadline of clients
        return await reload_release()

    return router


def _live_drift(watch: DriftWatch) -> LiveDrift:
    overlap = watch.overlap
    return LiveDrift(**orjson.loads(watch.report), coe=overlap.coe, coe_expected=overlap.expected_coe, roe=overlap.roe)


def add_openapi_route(app: FastAPI) -> None:
    """Add GET /openapi.json. The document is serialized once, because any client may request it often."""
    document = ComputedOnce(lambda: orjson.dumps(app.openapi()))  # takes some 25 ms

    async def openapi(request: Request) -> Response:
        request.scope["route"] = route
        return EncodedJsonResponse(await document.get())

    route = Route("/openapi.json", openapi)
    app.router.routes.append(route)
