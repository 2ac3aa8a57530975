"""The FastAPI application. Nothing is read or loaded at import.

`python -m taugate.service.app docs/openapi.json` writes the OpenAPI document.
"""

import asyncio
import functools
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path

import orjson
from fastapi import FastAPI

from taugate.plugins import load_all
from taugate.service.access.admission import Admission
from taugate.service.access.authorization import Authorizer
from taugate.service.api.dialects.dify import dify_operation
from taugate.service.api.dialects.openai import openai_operation
from taugate.service.api.gate import GateHandlers
from taugate.service.api.operations import OperatorHandlers, openapi_operation
from taugate.service.api.pages import Page, docs_operations, no_playground
from taugate.service.api.search import SearchHandlers
from taugate.service.http.exchange import RequestLog
from taugate.service.http.middleware import Operations, RequestSteps
from taugate.service.http.operation import ENDPOINTS, Operation, describe
from taugate.service.lifecycle.loading import Load
from taugate.service.lifecycle.serving import Reloading, Serving
from taugate.service.metrics import Metrics
from taugate.service.runtime.logs import Tracer, count_dropped_lines
from taugate.service.settings import Part, Settings
from taugate.storage.files import Json

_DIALECTS: Mapping[str, Callable[[SearchHandlers], Operation]] = {"openai": openai_operation, "dify": dify_operation}


def create_app(settings: Settings, load_release: Load | None = None, *, accept_when_ready: bool = False) -> FastAPI:
    """Make an application that loads the current release when it starts; its state has `serving`, `metrics`, `steps`.

    With `accept_when_ready` it accepts connections only once a release is loaded, or cannot be loaded yet because its
    engine is down: for a process that shares its socket with others, which can reply in the meantime.
    """
    metrics = Metrics()
    count_dropped_lines(metrics.log_dropped.inc)
    authorizer, admission = Authorizer(settings, metrics), Admission(settings, metrics.queue_depth.set)
    serving = Serving(settings, metrics, authorizer, admission, load_release)
    reloading = Reloading(serving, authorizer.reload, settings.lifecycle.reload_seconds)
    tracer = None if settings.telemetry.otlp_endpoint is None else Tracer(settings.telemetry.otlp_endpoint)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        loading, watching = asyncio.create_task(serving.start()), asyncio.create_task(authorizer.watch_file())
        reloading.start()
        if accept_when_ready:
            await serving.attempted.wait()
        try:
            yield
        finally:
            watching.cancel()
            serving.give_up()
            await loading
            await reloading.stop()
            await serving.stop()
            await admission.rates.close()
            if tracer is not None:
                tracer.close()

    app = FastAPI(
        title="taugate",
        version=version("taugate"),
        description="Retrieval with a calibrated similarity threshold. Every GET path also supports HEAD, with the "
        "same status and headers.",
        lifespan=lifespan,
        openapi_url=None,  # service/api/operations.py has the handler
        docs_url=None,  # FastAPI's page would load its scripts from another host; service/api/docs has ours
        redoc_url=None,
        # FastAPI's own spans would hold paths and query strings of all clients; service/runtime/logs.py omits them.
        telemetry={"tracing": False, "metrics": False, "logs": False, "auto_configure": False},
    )
    app.openapi = functools.partial(describe, app, settings)  # type: ignore[method-assign]  # as FastAPI suggests
    app.state.serving, app.state.metrics = serving, metrics
    pages: list[tuple[str, Page]] = [*load_all("pages")] if settings.listen.has_playground else []
    shown = [operation for _, page in pages for operation in page(settings, serving)]
    parts: set[Part] = {*settings.requests.dialect_names}
    if shown:
        parts.add("playground")
    searching = SearchHandlers(settings, serving, metrics)
    operations = [
        *searching.operations(),
        *(_DIALECTS[name](searching) for name in settings.requests.dialect_names),
        *GateHandlers(settings, serving, metrics).operations(),
        *OperatorHandlers(serving, reloading.reload, metrics).operations(),
        openapi_operation(app),
        *docs_operations(app, serving, None if shown else no_playground(settings.listen)),
        *shown,
    ]
    operations.sort(key=lambda operation: [*ENDPOINTS].index(operation.name))
    app.router.routes += operations  # FastAPI describes them; `RequestSteps` finds and calls them
    log = RequestLog(metrics, tracer)
    # Without FastAPI's own middleware: `RequestSteps` replies to every error, and each layer costs every request time.
    app.state.steps = RequestSteps(app.router, Operations(operations, parts), settings, authorizer, admission, log)
    app.middleware_stack = app.state.steps
    return app


def openapi_document() -> dict[str, Json]:
    """Return the OpenAPI document of an application with default settings, as in docs/openapi.json."""
    return create_app(Settings(releases=Path("releases"))).openapi()


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(orjson.dumps(openapi_document(), option=orjson.OPT_INDENT_2) + b"\n")
