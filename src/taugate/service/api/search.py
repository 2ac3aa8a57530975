"""POST /search and /search/batch, which share one implementation, POST /explain, and POST /feedback."""

import asyncio
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from taugate.errors import InputError, NoEncoder
from taugate.retrieval.index.top_k import Fields
from taugate.retrieval.query import Explanation, Exploration, NotComparable, Query, UnknownDocument
from taugate.service.access.authorization import ApiKey
from taugate.service.api import schemas
from taugate.service.errors import Forbidden, Invalid, NotFound, VectorNeeded
from taugate.service.http.exchange import EncodedJsonResponse, current_caller, json_reply, may_judge, while_connected
from taugate.service.http.operation import Operation
from taugate.service.lifecycle.active import ActiveRelease
from taugate.service.lifecycle.serving import Serving
from taugate.service.metrics import Metrics
from taugate.service.pipeline.record import ReplyForm, SearchForm, SearchRecord, ShownReply
from taugate.service.settings import Settings

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.reader import Release


# Whether a reply was in this process's memory (Server Timing, W3C), for people who look at a single search.
_CACHED, _SEARCHED = {"Server-Timing": "cache;desc=hit"}, {"Server-Timing": "cache;desc=miss"}
CURRENT = "current"  # means the active release, in APIs whose requests name a store or knowledge base


def read_search(
    request: schemas.SearchRequest, active: ActiveRelease, settings: Settings, *, name: str = ""
) -> tuple[Query, SearchForm]:
    """Return the query of a request and the form of its reply; parameters and errors are those of `read_query`."""
    query = read_query(request, active.release, settings, name=name)
    if request.explain:
        query = replace(query, with_parts=True)
    share = settings.drift.explore_share
    if share and request.explore and _may_explore(query):
        query = replace(query, exploration=Exploration(share, active.release_id))
    return query, SearchForm(request.include_text)


def _may_explore(query: Query) -> bool:
    """Return whether the calibrated threshold alone decides, over all documents."""
    # Judgements of other results would not show whether that threshold is right.
    return query.threshold is None and query.group_by is None and not (query.filter or query.permitted)


def read_query(request: schemas.SearchFields, release: "Release", settings: Settings, *, name: str = "") -> Query:
    """Convert the fields of a request to the caller's query; `name` is a prefix of field names in messages."""
    check_limits(request.query or "", request.k, settings, name)
    try:
        return schemas.to_query(request, release, current_caller.get().filter)
    except NoEncoder as error:
        raise VectorNeeded(f"{name}{error}") from error
    except InputError as error:
        raise Invalid(f"{name}{error}") from error


def check_limits(query: str, k: int | None, settings: Settings, name: str) -> None:
    """Raise Invalid if a query is too long or k is too large; `name` is a prefix of field names in messages."""
    if len(query) > settings.requests.max_query_chars:
        raise Invalid(f"{name}query: over {settings.requests.max_query_chars} characters (TAUGATE_MAX_QUERY_CHARS)")
    if k is not None and k > settings.requests.max_k:  # the loader has checked K of the release
        raise Invalid(f"{name}k: {k} is over {settings.requests.max_k} (TAUGATE_MAX_K)")


class ExplainRequest(schemas.SearchFields):
    """A search, and the document to explain."""

    model_config = schemas.examples({"query": "How long does a permit take?", "document_id": "permit-002"})

    document_id: str = Field(min_length=1, max_length=1024, description="id of a chunk or of a document")


class ExplainResponse(Explanation):
    """Why a document is, or is not, among the results of a search.

    If the filter of the key hides the document, `rule` is `key_filter`, and nothing else about it is revealed.
    """

    release: str = Field(description=schemas.RELEASE_ID)


class FeedbackRequest(schemas.StrictRequest):
    """A judgement by a user or a language model of whether a result answers its query.

    The result is from the reply with the id `query_id`, or from a search for `query`.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"query_id": "0" * 32, "document_id": "permit-002", "relevant": True},
                {"query": "How long does a permit take?", "document_id": "permit-002", "relevant": True},
            ],
            "oneOf": [
                {"required": ["query_id"], "properties": {"query_id": {"type": "string"}, "query": {"type": "null"}}},
                {"required": ["query"], "properties": {"query": {"type": "string"}, "query_id": {"type": "null"}}},
            ],
        }
    )

    query_id: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="id of the reply that contained the document"
    )
    query: schemas.QueryText | None = Field(
        default=None, description="instead of `query_id`: the text that was searched for, without other search fields"
    )
    document_id: str = Field(min_length=1, max_length=1024)
    relevant: bool

    @model_validator(mode="after")
    def _names_one_reply(self) -> Self:
        if (self.query_id is None) == (self.query is None):
            message = "give either query_id or query: the id of the reply to judge, or the text that was searched for"
            raise PydanticCustomError("one_of_both", message)
        return self


class FeedbackResponse(BaseModel):
    """Outcome of a judgement: `accepted`, or `repeated` if it was received before and does not count again."""

    status: Literal["accepted", "repeated"]


class SearchHandlers:
    """The handlers of searches, explanations and judgements, and what the dialects share with them."""

    def __init__(self, settings: Settings, serving: Serving, metrics: Metrics) -> None:
        self._settings, self._serving, self._metrics = settings, serving, metrics

    @property
    def fields(self) -> Fields:
        """The metadata fields of the active release."""
        return self._serving.active.release.fields

    async def search(self, request: Request, body: schemas.SearchRequest) -> Response:
        """Search for the top-K documents that pass the calibrated threshold. If none does, the reply says why."""
        active = self._serving.active
        with active.in_flight:
            (reply,), searched = await self._answer(request, [read_search(body, active, self._settings)], active)
        return EncodedJsonResponse(reply, headers=_SEARCHED if searched else _CACHED)

    def is_known(self, body: schemas.SearchRequest) -> bool:
        """Return whether the reply to a search is in memory; raises as `search`, unless it has to wait."""
        active = self._serving.active
        return active.search.is_cached(active.search.key(*read_search(body, active, self._settings)))

    async def search_batch(self, request: Request, body: schemas.BatchRequest) -> Response:
        """Run several searches. Results come back in request order; limits apply per query."""
        active = self._serving.active
        with active.in_flight:
            searches = [
                read_search(search, active, self._settings, name=f"queries.{position}.")
                for position, search in enumerate(body.queries)
            ]
            replies, _ = await self._answer(request, searches, active)
        return EncodedJsonResponse(b'{"responses":[' + b",".join(replies) + b"]}")

    async def answer_dialect(
        self, request: Request, searches: Sequence[schemas.SearchFields], form: ReplyForm, release: str, missing: str
    ) -> list[bytes]:
        """Run searches of a dialect, the API of another product, under the same limits; returns JSON replies."""
        # Exploration is off, because the dialects cannot mark a result as below the threshold.
        active = self._serving.active
        with active.in_flight:
            if release not in {CURRENT, active.release_id}:
                raise NotFound(missing)
            queries = [(read_query(search, active.release, self._settings), form) for search in searches]
            replies, _ = await self._answer(request, queries, active)
            return replies

    async def _answer(
        self, request: Request, searches: Sequence[tuple[Query, ReplyForm]], active: ActiveRelease
    ) -> tuple[list[bytes], int]:
        """Run the searches that are not cached; returns every reply as JSON with a new id, and how many were run."""
        caller = current_caller.get()
        records, run = await self._records(request, searches, active)
        drift = active.drift_report(caller.filter)
        replies = []
        for (query, _), record in zip(searches, records, strict=True):
            query_id = caller.reply_id()
            self._notify(query, query_id, record, active)
            replies.append(record.to_json(query_id, drift))
            if len(searches) > 1:  # yield to other requests: a batch of cached replies does not await anything else
                await asyncio.sleep(0)
        return replies, run

    async def _records(
        self, request: Request, searches: Sequence[tuple[Query, ReplyForm]], active: ActiveRelease
    ) -> tuple[list[SearchRecord], int]:
        """Return the record of each search, and how many were not in memory."""
        search = active.search
        keyed = [(search.key(query, form), query, form) for query, form in searches]
        cached = [search.cached(key) for key, _, _ in keyed]
        missing = [query for query, record in zip(keyed, cached, strict=True) if record is None]
        computed = iter(await while_connected(request, search.records(missing)) if missing else [])
        return [record or next(computed) for record in cached], len(missing)

    def _notify(self, query: Query, query_id: str, record: SearchRecord, active: ActiveRelease) -> None:
        """Record a reply in the metrics, and pass it to drift detection and the shadow, which do not change it."""
        self._metrics.observe_reply(len(record.results), record.considered, record.reason, record.explored)
        if record.not_comparable is NotComparable.TRUNCATED:
            self._metrics.queries_truncated.inc()
        if active.drift is not None:
            active.drift.observe(query_id, query, record, current_caller.get().key_name)
        if self._serving.shadowing.active is not None:
            self._serving.shadowing.active.offer(query)

    async def explain(self, request: Request, body: ExplainRequest) -> Response:
        """Explain a document's rank for a query, the rule that keeps or drops it, and its distance to the threshold."""
        # Neither drift detection nor shadow, caches, query log and result metrics count it as traffic.
        active = self._serving.active
        with active.in_flight:
            query = read_query(body, active.release, self._settings)
            try:
                explanation = await while_connected(request, active.search.explain(query, body.document_id))
            except UnknownDocument as error:
                raise NotFound(f"document_id: {error}") from error
            except InputError as error:
                raise Invalid(str(error)) from error
        return json_reply(explanation.to_reply(active.release_id))

    async def feedback(self, request: Request, body: FeedbackRequest) -> Response:
        """Judge whether a result answered its query. A judgement that is sent several times counts once."""
        active = self._serving.active
        if active.drift is None:
            raise Invalid("feedback is off, because drift detection is off (TAUGATE_DRIFT is false)")
        feedback, permitted = active.drift.feedback, current_caller.get().filter
        with active.in_flight:
            try:
                if body.query_id is None:
                    query_id, shown = await self._shown_by_search(request, str(body.query), active)
                elif may_judge(permitted, body.query_id, self._serving.access.secrets(permitted)):
                    query_id = body.query_id
                    feedback, shown = await feedback.find(query_id)
                else:
                    raise feedback.unknown()
                key, relevant = current_caller.get().key_name, body.relevant
                is_new = await feedback.judge(
                    query_id, shown, body.document_id, relevant=relevant, key=key, query=body.query
                )
            except (NotFound, Invalid):
                self._metrics.feedback.labels("unknown").inc()
                raise
        outcome = ("relevant" if body.relevant else "irrelevant") if is_new else "repeated"
        self._metrics.feedback.labels(outcome).inc()
        return json_reply({"status": "accepted" if is_new else "repeated"}, 202)

    async def _shown_by_search(self, request: Request, text: str, active: ActiveRelease) -> tuple[str, ShownReply]:
        """Search with the permissions of the key; returns an id in place of a reply's, and what the search shows."""
        # Neither drift detection nor shadow, query log and result metrics count this search as traffic.
        key = current_caller.get().key
        if key is not None and "search" not in key.scopes:
            raise Forbidden("this API key lacks the scope search, which feedback on a query needs; send a query_id")
        query, form = read_search(schemas.SearchRequest(query=text), active, self._settings)
        (record,), _ = await self._records(request, [(query, form)], active)
        return _id_of_search(key, query.text), ShownReply.of(query, record)

    def operations(self) -> list[Operation]:
        """Return the operations; feedback is 202, because a judgement is counted within a few seconds, not at once."""
        return [
            Operation("search", self.search, schemas.SearchResponse, judged="", is_known=self.is_known),
            Operation("search_batch", self.search_batch, schemas.BatchResponse, judged="/responses/0"),
            Operation("explain", self.explain, ExplainResponse),
            Operation("feedback", self.feedback, FeedbackResponse),
        ]


def _id_of_search(key: ApiKey | None, query: str) -> str:
    """Return an id that stands for a reply's, equal in every replica, so that a judgement counts once per key."""
    owner = None if key is None else (key.name, key.filter)
    return hashlib.sha256(f"{owner!r}{query}".encode()).hexdigest()[:32]  # digits, as the id of a reply has
