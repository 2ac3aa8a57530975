"""/gate, /gate/batch and /gate/golden: cut the results of another retriever, and check that it is the same."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict

import orjson
from starlette.requests import Request
from starlette.responses import Response

from taugate.drift.observations import hashed
from taugate.errors import InputError
from taugate.retrieval.gate import GateReply
from taugate.retrieval.golden_results import GoldenResults, compare, grown_store
from taugate.retrieval.query import Query
from taugate.service.api.gate_schemas import (
    GateBatchRequest,
    GateBatchResponse,
    GateRequest,
    GateResponse,
    GoldenCheckResponse,
    GoldenQuestion,
    GoldenRequest,
    GoldenResponse,
)
from taugate.service.api.search import check_limits
from taugate.service.errors import Invalid, NotFound, OtherRetriever
from taugate.service.http.caller import current_caller
from taugate.service.http.openapi import judging_link
from taugate.service.http.operation import Operation
from taugate.service.http.replies import EncodedJsonResponse, model_reply
from taugate.service.lifecycle.active import ActiveRelease
from taugate.service.lifecycle.serving import Serving
from taugate.service.metrics import Metrics
from taugate.service.pipeline.record import gate_record
from taugate.service.settings import Settings
from taugate.storage.json_values import Json

# Results that are cut in less than a millisecond, and tell lists apart.
_FEW_RESULTS = 1000


class GateHandlers:
    """The handlers of the endpoints."""

    def __init__(self, settings: Settings, serving: Serving, metrics: Metrics) -> None:
        self._settings, self._serving, self._metrics = settings, serving, metrics

    async def gate(self, request: Request, body: GateRequest) -> Response:
        """Keep the results of a retriever that pass the threshold that was calibrated on a run of it."""
        active = self._serving.active
        with active.in_flight:
            return EncodedJsonResponse(await self._answer(body, active))

    async def gate_batch(self, request: Request, body: GateBatchRequest) -> Response:
        """Cut the results of several queries. Replies come back in request order; limits apply per query."""
        active = self._serving.active
        with active.in_flight:
            replies = []
            for position, query in enumerate(body.queries):
                replies.append(await self._answer(query, active, name=f"queries.{position}."))
                query.results.clear()  # a few at a time, because freeing all of a large body takes milliseconds
                await asyncio.sleep(0)  # yield to other requests
        return EncodedJsonResponse(b'{"responses":[' + b",".join(replies) + b"]}")

    async def golden(self, request: Request) -> Response:
        """Get calibration questions that tell whether the retriever is still the one that was calibrated."""
        active = self._serving.active
        questions = [GoldenQuestion(query_id=question.query_id, query=question.query) for question in _golden(active)]
        return model_reply(GoldenResponse(queries=questions, release=active.release_id))

    async def check_golden(self, request: Request, body: GoldenRequest) -> Response:
        """Compare the results of the golden questions with those of the calibration."""
        active = self._serving.active
        live = {answer.query_id: answer.results for answer in body.queries}
        try:
            deviation = await asyncio.to_thread(compare, _golden(active), live)
            grown = await asyncio.to_thread(grown_store, _golden(active), live, active.gate.gate)
        except InputError as error:
            raise Invalid(str(error)) from error
        if deviation.objection is not None:
            raise OtherRetriever(f"{deviation.objection}: this is not the calibrated retriever; calibrate again")
        if grown is not None:
            raise OtherRetriever(f"{grown}: the store has changed; calibrate again")
        return model_reply(GoldenCheckResponse(**asdict(deviation), release=active.release_id))

    async def _answer(self, body: GateRequest, active: ActiveRelease, *, name: str = "") -> bytes:
        """Cut the results of a query, and count them; returns the reply as JSON. `name` is a prefix of fields.

        Raises:
            UnsupportedByRelease: If the release in service has documents of its own.
            Invalid: If a field exceeds a limit, or the results cannot be cut.
        """
        gate = active.gate.gate
        check_limits(body.query or "", body.k, self._settings, name)
        began = time.perf_counter()
        try:
            if len(body.results) > _FEW_RESULTS:
                reply = await asyncio.to_thread(gate.cut, body.results, body.k)
            else:
                reply = gate.cut(body.results, body.k)
        except InputError as error:
            raise Invalid(f"{name}{error}") from error
        self._metrics.observe_stage("gate", began, time.perf_counter())
        self._metrics.observe_reply(len(reply.results), reply.considered, reply.reason)
        caller = current_caller.get()
        query_id = caller.reply_id()
        if active.drift is not None:
            k = gate.policy.k if body.k is None else body.k
            query = Query(_counted_text(body), k)
            active.drift.observe(query_id, query, gate_record(query, reply), caller.key_name)
        drift = orjson.Fragment(active.drift_report(caller.filter))
        return orjson.dumps(_fields(reply, active) | {"drift": drift, "query_id": query_id})


def gate_operations(handlers: GateHandlers) -> list[Operation]:
    """Return the operations of the endpoints."""
    return [
        Operation("gate", handlers.gate, GateResponse, described={"links": judging_link("")}),
        Operation(
            "gate_batch", handlers.gate_batch, GateBatchResponse, described={"links": judging_link("/responses/0")}
        ),
        Operation("golden", handlers.golden, GoldenResponse),
        Operation("golden_check", handlers.check_golden, GoldenCheckResponse),
    ]


def _golden(active: ActiveRelease) -> Sequence[GoldenResults]:
    """Return the golden questions of a release; raises NotFound if it has none."""
    if not active.gate.golden:
        raise NotFound("the release has no golden questions: an earlier version wrote it; calibrate again")
    return active.gate.golden


def _counted_text(body: GateRequest) -> str:
    """Return the text of a query; without one a hash of its results, so that drift counts equal lists once."""
    return body.query or hashed("\n".join(f"{result.id} {result.score!r}" for result in body.results[:_FEW_RESULTS]))


def _fields(reply: GateReply, active: ActiveRelease) -> dict[str, Json]:
    """Return the fields of GateResponse, except those that depend on the request."""
    manifest = active.gate.manifest
    certified = manifest.certified if reply.calibrated else None
    return {
        "results": [kept._asdict() for kept in reply.results],
        "threshold": reply.threshold,
        "policy": reply.policy,
        "calibrated": reply.calibrated,
        "why_not": reply.why_not,
        "calibration": manifest.state,
        **({} if certified is None else {"certified": certified.model_dump()}),
        "considered": reply.considered,
        "dropped": reply.considered - len(reply.results),
        "best_score": reply.best_score,
        "reason": reply.reason,
        "refuses": reply.refuses,
        **({} if reply.refusal is None else {"refusal": reply.refusal._asdict()}),
        "release": active.release_id,
    }
