"""The application: settings in, routes and middleware out. Nothing is read or loaded at import."""

import asyncio
import functools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

from fastapi import FastAPI

from taugate.service.access.access import Access
from taugate.service.access.rate import Spending
from taugate.service.api.body import InHand
from taugate.service.api.connections import CONNECTIONS, Accounting, Connections
from taugate.service.api.guard import Guard
from taugate.service.api.openapi import describe, describe_access
from taugate.service.api.request_scope import RequestScope
from taugate.service.api.routes import add_feedback_route, add_openapi_route, admin_routes, infra_routes
from taugate.service.api.search import add_search_routes
from taugate.service.errors import install_handlers
from taugate.service.lifecycle.loading import Load
from taugate.service.lifecycle.reloading import Reloading
from taugate.service.lifecycle.serving import Serving
from taugate.service.metrics import Metrics
from taugate.service.runtime.logs import count_dropped
from taugate.service.runtime.traces import Tracer
from taugate.service.settings import Settings


def create_app(settings: Settings, load_release: Load | None = None, *, accept_when_ready: bool = False) -> FastAPI:
    """An application that loads the current release when it starts; `app.state.serving` is its state.

    load_release: opens a release folder with a number of encoder threads and an encoder of a precision, by default as
    the settings say whom to trust;
    accept_when_ready: takes no connection before there is a release, for a process that shares its socket with others,
    who would answer.
    """
    metrics = Metrics()
    count_dropped(metrics.log_dropped.inc)
    access, spending = Access(settings, metrics), Spending(settings, metrics)
    serving = Serving(settings, metrics, access, load_release)
    reloading = Reloading(serving, access.reload, settings.lifecycle.reload_seconds)
    connections = Connections(settings, metrics)
    tracer = None if settings.telemetry.otlp_endpoint is None else Tracer(settings.telemetry.otlp_endpoint)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, Any]]:
        loading = asyncio.create_task(serving.start())
        reloading.start()
        if accept_when_ready:
            await loading
        try:
            async with access.watching(), connections.looked_after():
                yield {CONNECTIONS: connections}
        finally:
            await loading
            await reloading.stop()
            await serving.stop()
            await spending.close()
            if tracer is not None:
                tracer.close()

    app = FastAPI(
        title="taugate",
        version=version("taugate"),
        description="Retrieval with a similarity threshold that was calibrated, not guessed.",
        lifespan=lifespan,
        openapi_url=None,  # service/api/routes.py has the route
        docs_url=None,  # the interactive page would load its scripts from elsewhere
        redoc_url=None,
        # FastAPI's own spans hold paths and query strings of anybody (service/runtime/traces.py has those without).
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
        redirect_slashes=False,  # a redirect would name the host that the client's header names
    )
    app.openapi = functools.partial(describe, app, settings)  # type: ignore[method-assign]  # as FastAPI suggests
    app.state.serving = serving
    app.state.access = access
    add_search_routes(app, settings, serving, metrics, spending)
    add_feedback_route(app, serving, metrics, spending)
    app.include_router(infra_routes(serving, metrics))
    add_openapi_route(app)
    app.include_router(admin_routes(reloading))
    describe_access(app)
    install_handlers(app)
    app.add_middleware(InHand, settings=settings)
    app.add_middleware(Guard, access=access, metrics=metrics, settings=settings)
    app.add_middleware(RequestScope, metrics=metrics, tracer=tracer)
    app.add_middleware(Accounting)
    return app
