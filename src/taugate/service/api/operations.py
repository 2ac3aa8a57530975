"""Handlers for operators: probes, metrics, the release in service, its reload, and openapi.json."""

from collections.abc import Awaitable, Callable
from typing import Any, Literal

import orjson
from fastapi import FastAPI
from prometheus_client.exposition import choose_encoder
from pydantic import BaseModel, Field
from starlette.requests import Request
from starlette.responses import Response

from taugate.release.evidence import Interval
from taugate.release.state import CertifiedLoss, State
from taugate.service.api.schemas import PROVISIONAL, RELEASE_ID, Drift
from taugate.service.drift.watch import DriftWatch
from taugate.service.http.exchange import EncodedJsonResponse, current_caller, model_reply
from taugate.service.http.operation import Operation
from taugate.service.lifecycle.active import ComputedOnce, ReferenceResponse
from taugate.service.lifecycle.serving import ReloadResponse, Serving
from taugate.service.metrics import Metrics


class LiveDrift(Drift):
    """Drift alarms, and the overlap measured on the latest queries of the process that replies.

    The values at calibration are in `manifest.metrics`. A value is null while there is too little traffic to measure
    it.
    """

    coe: Interval | None = Field(description="COE of documents judged relevant")
    coe_expected: Interval | None = Field(
        description="COE expected from the correct documents of the calibration, against live queries"
    )
    roe: Interval | None = Field(description="ROE of random documents")


class ReleaseResponse(BaseModel):
    """The release in service: its id and state, when it was loaded, the precision of its encoder, and its manifest."""

    release: str = Field(description=RELEASE_ID)
    calibration: State = Field(description=PROVISIONAL)
    certified: CertifiedLoss | None = Field(default=None, description="the certified loss; null if none is")
    shadow: str | None = Field(description="id of the shadow release; null if there is none")
    loaded_at: str = Field(
        json_schema_extra={"format": "date-time"}, description="time at which the release was loaded, in ISO 8601"
    )
    precision: Literal["float32", "bfloat16", "int8"] | None = Field(
        description="precision of the encoder; null if the release has none"
    )
    drift: LiveDrift | None = Field(description="alarms and live overlap; null if drift detection is off")
    manifest: dict[str, Any] = Field(description="the manifest of the release, see docs/calibration.md")


class Health(BaseModel):
    """The state of the process.

    `release` is the id of the loaded release, if there is one; `warning` says if it leaves little memory.
    """

    status: Literal["alive", "ready"]
    release: str | None = None
    warning: str | None = None


class OperatorHandlers:
    """Replies to operators, probes and scrapers."""

    def __init__(self, serving: Serving, reload: Callable[[], Awaitable[ReloadResponse]], metrics: Metrics) -> None:
        self._serving, self._reload, self._metrics = serving, reload, metrics

    async def livez(self, request: Request) -> Response:
        """Liveness probe: the process responds, also while a release is being loaded."""
        return model_reply(Health(status="alive"), exclude_none=True)

    async def readyz(self, request: Request) -> Response:
        """Readiness probe: a release is loaded and verified, and its engine, if any, is responding.

        Verified means that its golden queries return the recorded results.
        """
        active = self._serving.ready
        ready = Health(status="ready", release=active.release_id, warning=active.memory_warning)
        return model_reply(ready, exclude_none=True)

    async def release(self, request: Request) -> Response:
        """Get the release in service and its manifest."""
        serving, active = self._serving, self._serving.active
        manifest = active.watched.manifest
        return model_reply(
            ReleaseResponse(
                release=manifest.release_id,
                calibration=manifest.state,
                certified=manifest.certified,
                shadow=serving.shadowing.release_id,
                loaded_at=active.loaded_at.isoformat(),
                precision=None if active.pipeline is None else active.pipeline.release.precision,
                drift=None if active.drift is None else _live_drift(active.drift),
                manifest=manifest.model_dump(),
            )
        )

    async def reference(self, request: Request) -> Response:
        """Get the similarity distributions at calibration, and what other thresholds would keep and lose."""
        return EncodedJsonResponse(await self._serving.active.reference.get())

    async def prometheus(self, request: Request) -> Response:
        """Get the metrics in Prometheus's text format, or in OpenMetrics if the scraper accepts it."""
        encode, content_type = choose_encoder(current_caller.get().headers.get(b"accept", b"").decode("latin-1"))
        return Response(encode(self._metrics.scrape()), headers={"Content-Type": content_type})

    async def reload(self, request: Request) -> Response:
        """Put the current release into service, if its golden queries return the recorded results.

        Returns once the new release is active. Until then, or if it cannot be loaded, the previous release keeps
        serving.
        """
        await request.body()  # not used, but must be received within the deadline of clients
        return model_reply(await self._reload())

    def operations(self) -> list[Operation]:
        """Return the operations of the handlers."""
        exposition = {kind: {"schema": {"type": "string"}} for kind in ("text/plain", "application/openmetrics-text")}
        described: dict[str, Any] = {"summary": "Prometheus", "response_class": Response}
        return [
            Operation("livez", self.livez, Health),
            Operation("readyz", self.readyz, Health),
            Operation("release", self.release, ReleaseResponse),
            Operation("reference", self.reference, ReferenceResponse),
            Operation("metrics", self.prometheus, None, described={"content": exposition}, **described),
            Operation("reload", self.reload, ReloadResponse),
        ]


def openapi_operation(app: FastAPI) -> Operation:
    """Return the operation of openapi.json, which is serialized once, because any client may request it often."""
    document = ComputedOnce(lambda: orjson.dumps(app.openapi()))  # takes some 25 ms

    async def openapi(request: Request) -> Response:
        return EncodedJsonResponse(await document.get())

    return Operation("openapi", openapi, None)


def _live_drift(watch: DriftWatch) -> LiveDrift:
    overlap = watch.overlap
    return LiveDrift(**orjson.loads(watch.report), coe=overlap.coe, coe_expected=overlap.expected_coe, roe=overlap.roe)
