"""The FastAPI application. Nothing is read or loaded at import."""

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import FastAPI

from taugate.service.access.authorization import Authorizer
from taugate.service.access.rate_limit import RateLimiter
from taugate.service.api.bodies import BodyLimits
from taugate.service.api.dialects.dify import add_dify_route
from taugate.service.api.dialects.openai import add_openai_route
from taugate.service.api.explain import add_explain_route
from taugate.service.api.feedback import add_feedback_route
from taugate.service.api.guard import Guard
from taugate.service.api.head import HeadAsGet
from taugate.service.api.openapi import describe, operation_id
from taugate.service.api.playground.routes import add_playground_routes
from taugate.service.api.replies import add_error_handlers
from taugate.service.api.request_context import RequestContext
from taugate.service.api.routes import add_openapi_route, operations_routes
from taugate.service.api.search import add_search_routes
from taugate.service.lifecycle.loading import Load
from taugate.service.lifecycle.reloading import Reloading
from taugate.service.lifecycle.serving import Serving
from taugate.service.metrics import Metrics
from taugate.service.runtime.logs import count_dropped_lines
from taugate.service.runtime.traces import Tracer
from taugate.service.settings import Settings


def create_app(settings: Settings, load_release: Load | None = None, *, accept_when_ready: bool = False) -> FastAPI:
    """Make an application that loads the current release when it starts. Its state has `serving` and `metrics`.

    Args:
        settings: Settings of the service.
        load_release: Function that opens a release folder, given the number of encoder threads and the precision; by
            default one that trusts the keys in the settings.
        accept_when_ready: Accept connections only once a release is loaded, or cannot be loaded yet because its engine
            is down. For a process that shares its socket with others, which can reply in the meantime.
    """
    metrics = Metrics()
    count_dropped_lines(metrics.log_dropped.inc)
    authorizer, limiter = Authorizer(settings, metrics), RateLimiter(settings, metrics)
    serving = Serving(settings, metrics, authorizer, load_release)
    reloading = Reloading(serving, authorizer.reload, settings.lifecycle.reload_seconds)
    tracer = None if settings.telemetry.otlp_endpoint is None else Tracer(settings.telemetry.otlp_endpoint)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(serving.start())
        reloading.start()
        if accept_when_ready:
            await serving.attempted.wait()
        try:
            async with authorizer.watching():
                yield
        finally:
            serving.give_up()
            await loading
            await reloading.stop()
            await serving.stop()
            await limiter.close()
            if tracer is not None:
                tracer.close()

    app = FastAPI(
        title="taugate",
        version=version("taugate"),
        description="Retrieval with a calibrated similarity threshold. Every GET path also supports HEAD, with the "
        "same status and headers.",
        lifespan=lifespan,
        openapi_url=None,  # service/api/routes.py has the route
        docs_url=None,  # the interactive page would load its scripts from another host
        redoc_url=None,
        # FastAPI's own spans would hold paths and query strings of all clients; service/runtime/traces.py omits them.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        redirect_slashes=False,  # a redirect would repeat the host of the client's Host header
        generate_unique_id_function=operation_id,
    )
    app.openapi = functools.partial(describe, app, settings)  # type: ignore[method-assign]  # as FastAPI suggests
    app.state.serving, app.state.metrics = serving, metrics
    searching = add_search_routes(app, settings, serving, metrics, limiter)
    for dialect in settings.requests.dialect_names:
        {"openai": add_openai_route, "dify": add_dify_route}[dialect](app, searching, limiter)
    add_explain_route(app, settings, serving, limiter)
    add_feedback_route(app, settings, serving, metrics, limiter)
    app.include_router(operations_routes(serving, reloading.reload, metrics))
    add_openapi_route(app)
    if settings.listen.has_playground:
        add_playground_routes(app)
    add_error_handlers(app)
    # Each is called by the one below it.
    app.add_middleware(HeadAsGet)
    app.add_middleware(BodyLimits, settings=settings)
    app.add_middleware(Guard, authorizer=authorizer, metrics=metrics, settings=settings)
    app.add_middleware(RequestContext, metrics=metrics, tracer=tracer)
    return app


def openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document of an application with default settings, as in docs/openapi.json."""
    return create_app(Settings(releases=Path("releases"))).openapi()
