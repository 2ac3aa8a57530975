"""POST /feedback: whether a result answered its query."""

import asyncio

import orjson
from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import Response
from prometheus_client.exposition import choose_encoder
from starlette.routing import Route

from taugate.service.access.access import permitted
from taugate.service.access.rate import Spending
from taugate.service.api.body import add_json_route
from taugate.service.api.json_reply import json_bytes, json_reply
from taugate.service.api.openapi import errors, replies
from taugate.service.api.schemas import FeedbackRequest, FeedbackResponse, Health, ReleaseResponse, ReloadResponse
from taugate.service.errors import ApiError, Invalid, NotReady
from taugate.service.lifecycle.reloading import Reloading
from taugate.service.lifecycle.serving import Serving
from taugate.service.metrics import Metrics
from taugate.service.runtime.ids import may_judge


def admin_routes(reloading: Reloading) -> APIRouter:
    """Routes for whoever runs the service."""
    router = APIRouter(prefix="/admin", tags=["operations"])

    @router.post("/reload", responses=replies(200, ReloadResponse) | errors(409, 503))
    async def reload(request: Request) -> ReloadResponse:
        """Put the current release into service, after its golden queries were answered as recorded.

        Answered when it is; until then, and where it cannot be served, the one before goes on.
        """
        await request.body()  # none is needed, but a client that has not sent all of it is waited for only so long
        turn = await reloading.reload()
        status = "unchanged" if turn.release == turn.previous else "loaded"
        return ReloadResponse(status=status, release=turn.release, previous=turn.previous, shadow=turn.shadow)

    return router


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
        return Health(status="ready", release=serving.active.release_id)

    @router.get("/release", responses=replies(200, ReleaseResponse) | errors(503))
    async def release() -> ReleaseResponse:
        """The release in service, with its manifest."""
        loaded = serving.active.release
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


_STATUSES = (400, 404, 413, 422, 500, 503)


def add_feedback_route(app: FastAPI, serving: Serving, metrics: Metrics, spending: Spending) -> None:
    """The route, answered 202: what is judged is counted within seconds."""

    async def feedback(request: Request, body: FeedbackRequest) -> Response:
        """Tell whether a result answered its query; the same judgement counts once, however often it is sent."""
        drift = serving.active.drift
        if drift is None:
            raise Invalid("traffic is not watched here (TAUGATE_DRIFT is false), so that nobody asks for judgements")
        try:
            if not may_judge(permitted(request.scope), body.query_id):
                raise drift.feedback.unknown()
            new = await drift.feedback.judge(body.query_id, body.document_id, relevant=body.relevant)
        except ApiError:
            metrics.feedback.labels("unknown").inc()
            raise
        outcome = ("relevant" if body.relevant else "irrelevant") if new else "repeated"
        metrics.feedback.labels(outcome).inc()
        return json_reply({"status": "accepted" if new else "repeated"}, 202)

    described = replies(202, FeedbackResponse) | errors(*_STATUSES)
    add_json_route(
        app,
        "/feedback",
        FeedbackRequest,
        feedback,
        spending.charge,
        status_code=202,
        tags=["search"],
        responses=described,
    )
