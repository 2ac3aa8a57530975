"""/gate, /gate/batch and /gate/golden: cut the results of another retriever, and check that it is the same."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

import orjson
from pydantic import BaseModel, BeforeValidator, ConfigDict, FailFast, Field
from pydantic.dataclasses import dataclass
from starlette.requests import Request
from starlette.responses import Response

from taugate.drift.observations import hashed
from taugate.errors import InputError
from taugate.policy.names import PolicyKind
from taugate.release.state import CertifiedLoss, State
from taugate.retrieval.gate import MAX_RESULTS, MAX_SCORES, GateReply, ScoredResult
from taugate.retrieval.golden import GoldenResults, compare, grown_store
from taugate.retrieval.query import GateReason, Query
from taugate.service.api import schemas
from taugate.service.api.search import check_limits
from taugate.service.errors import Invalid, NotFound, OtherRetriever
from taugate.service.http.exchange import EncodedJsonResponse, current_caller, model_reply
from taugate.service.http.operation import Operation
from taugate.service.lifecycle.active import ActiveRelease
from taugate.service.lifecycle.serving import Serving
from taugate.service.metrics import Metrics
from taugate.service.pipeline.record import gate_record
from taugate.service.settings import Settings
from taugate.storage.files import Json

_Score = Annotated[float, Field(ge=-schemas.MAX_FLOAT32, le=schemas.MAX_FLOAT32)]

# Results that are cut in less than a millisecond, and tell lists apart.
_FEW_RESULTS = 1000


def _as_text(value: object) -> object:
    """Convert a number to text: many engines have numbers as ids."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_Text = Annotated[str, Field(min_length=1, max_length=1024)]
_Id = Annotated[_Text, BeforeValidator(_as_text, json_schema_input_type=_Text | int)]


# With slots, a result takes a quarter of the memory of a model: a body has up to ten thousand.
@dataclass(frozen=True, slots=True, config=ConfigDict(strict=True, allow_inf_nan=False, extra="ignore"))
class ScoredResultFields(ScoredResult):
    """A result of the retriever. Other fields, such as a text, are ignored."""

    id: _Id = Field(description="id of the document; a whole number is read as text")
    score: _Score = Field(description="score of the retriever, on the scale that was calibrated")
    scores: Annotated[dict[str, _Score | None], Field(max_length=MAX_SCORES)] | None = Field(
        default=None, description="further scores by name, if they were calibrated; null for a missing one"
    )


class GateRequest(schemas.StrictRequest):
    """The results of the retriever for a query, best first. `k` defaults to the K of the calibration.

    `query` does not change the reply. It is logged, and equal queries count once for drift.
    """

    model_config = schemas.examples(
        {
            "query": "How long does a permit take?",
            "results": [
                {"id": "permit-002", "score": 0.0325, "scores": {"bm25": 14.2, "cosine": 0.71}},
                {"id": "permit-017", "score": 0.0161, "scores": {"bm25": 9.8, "cosine": None}},
            ],
        }
    )

    query: schemas.QueryText | None = Field(default=None, description="text of the query")
    results: Annotated[list[ScoredResultFields], Field(max_length=MAX_RESULTS), FailFast()]
    k: schemas.K | None = Field(default=None, description="number of results to consider")


class GateBatchRequest(schemas.StrictRequest):
    """Results for several queries, each with the fields of /gate."""

    queries: Annotated[list[GateRequest], Field(min_length=1), FailFast(), BeforeValidator(schemas.limit_batch)]


class GoldenAnswer(schemas.StrictRequest):
    """What the retriever returns for a golden question, as deep as live requests."""

    query_id: str
    results: Annotated[list[ScoredResultFields], Field(max_length=MAX_RESULTS), FailFast()]


class GoldenRequest(schemas.StrictRequest):
    """Results for all golden questions."""

    queries: Annotated[list[GoldenAnswer], Field(min_length=1), FailFast(), BeforeValidator(schemas.limit_batch)]


class GoldenQuestion(BaseModel):
    """A question of the calibration."""

    query_id: str = Field(description="id of the query in the run")
    query: str | None = Field(description="its text; null if the run did not have it")


class GoldenResponse(BaseModel):
    """The golden questions. Send them to the retriever, and its results to POST /gate/golden."""

    queries: list[GoldenQuestion]
    release: str = Field(description=schemas.RELEASE_ID)


class GoldenCheckResponse(BaseModel):
    """The retriever is the one that was calibrated. Otherwise the reply is 409 `other_retriever`."""

    score: str = Field(description="what moved furthest beside its tolerance: `score`, or the name of a component")
    moved: float = Field(description="how far a quarter of its values moved at least")
    tolerance: float = Field(description="how far they may move")
    recorded: int = Field(ge=1, description="number of recorded results")
    returned: int = Field(ge=0, description="number of these that the retriever still returns")
    release: str = Field(description=schemas.RELEASE_ID)


class KeptResultFields(BaseModel):
    """A result that passed the threshold."""

    id: str = Field(description="id of the document")
    rank: int = Field(ge=1, description="rank by score among all results, from 1")
    score: float = Field(description="its score, as it was sent")
    relevance: float | None = Field(
        ge=0, le=1, description="probability that it is relevant; null if the release does not model relevance"
    )


class GateResponse(BaseModel):
    """The results that passed the threshold. `reason` says why `results` is empty."""

    results: list[KeptResultFields] = Field(description="the results, best first")
    threshold: float | None = Field(description="threshold in force; null if there is none")
    policy: PolicyKind = Field(description="kind of value that is compared with `threshold`")
    calibrated: bool = Field(description="true if the certificate of the threshold covers these results")
    why_not: str | None = Field(
        description="why `calibrated` is false, null if it is true: `fewer_than_k`, `not_sorted`, "
        "`outside_calibrated_range`, `missing_score:NAME`, `other_k`, `no_threshold`, or `calibration`"
    )
    calibration: State = Field(description=schemas.PROVISIONAL)
    certified: CertifiedLoss | None = Field(default=None, description=schemas.CERTIFIED)
    considered: int = Field(ge=0, description="number of results before the threshold was applied")
    dropped: int = Field(ge=0, description="number of results below the threshold")
    best_score: float | None = Field(description="score of the best result, kept or not; null without a result")
    reason: GateReason | None = Field(description="why `results` is empty; null if it is not")
    refuses: bool = Field(description="whether a rule refuses queries as a whole; if false, off-topic ones get results")
    refusal: schemas.Refusal | None = Field(
        default=None, description="absent if the release refuses no query as a whole"
    )
    release: str = Field(description=schemas.RELEASE_ID)
    drift: schemas.Drift
    query_id: str = Field(pattern="^[0-9a-f]{32}$", description="id of this reply, for /feedback")


class GateBatchResponse(BaseModel):
    """Replies to a batch, in request order."""

    responses: list[GateResponse]


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
        """Cut the results of a query, and count them; returns the reply as JSON. `name` is a prefix of fields."""
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

    def operations(self) -> list[Operation]:
        """Return the operations of the handlers."""
        return [
            Operation("gate", self.gate, GateResponse, judged=""),
            Operation("gate_batch", self.gate_batch, GateBatchResponse, judged="/responses/0"),
            Operation("golden", self.golden, GoldenResponse),
            Operation("golden_check", self.check_golden, GoldenCheckResponse),
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
        "dropped": reply.dropped,
        "best_score": reply.best_score,
        "reason": reply.reason,
        "refuses": reply.refuses,
        **({} if reply.refusal is None else {"refusal": reply.refusal._asdict()}),
        "release": active.release_id,
    }
