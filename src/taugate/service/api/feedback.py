"""POST /feedback: a judgement of a search result, identified by the id of its reply or by the query text."""

import hashlib
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from taugate.service.access.keys import ApiKey
from taugate.service.api.schemas import QueryText, SearchRequest, StrictRequest
from taugate.service.api.search import read_search
from taugate.service.errors import Forbidden, Invalid, NotFound
from taugate.service.http.caller import current_caller, while_connected
from taugate.service.http.ids import may_judge
from taugate.service.http.operation import Operation
from taugate.service.http.replies import json_reply
from taugate.service.lifecycle.active import ActiveRelease
from taugate.service.lifecycle.serving import Serving
from taugate.service.metrics import Metrics
from taugate.service.pipeline.record import ShownReply
from taugate.service.settings import Settings

_ID_DIGITS = 32  # length of the id of a reply


_ONE_OF_BOTH = "give either query_id or query: the id of the reply to judge, or the text that was searched for"


class FeedbackRequest(StrictRequest):
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
    query: QueryText | None = Field(
        default=None, description="instead of `query_id`: the text that was searched for, without other search fields"
    )
    document_id: str = Field(min_length=1, max_length=1024)
    relevant: bool

    @model_validator(mode="after")
    def _names_one_reply(self) -> Self:
        if (self.query_id is None) == (self.query is None):
            raise PydanticCustomError("one_of_both", _ONE_OF_BOTH)
        return self


class FeedbackResponse(BaseModel):
    """Outcome of a judgement: `accepted`, or `repeated` if it was received before and does not count again."""

    status: Literal["accepted", "repeated"]


class FeedbackHandler:
    """Finds the reply that a judgement refers to, and passes both to the release in service."""

    def __init__(self, settings: Settings, serving: Serving, metrics: Metrics) -> None:
        self._settings, self._serving, self._metrics = settings, serving, metrics

    async def feedback(self, request: Request, body: FeedbackRequest) -> Response:
        """Judge whether a result answered its query. A judgement that is sent several times counts once."""
        active = self._serving.active
        if active.drift is None:
            raise Invalid("feedback is off, because drift detection is off (TAUGATE_DRIFT is false)")
        feedback, permitted = active.drift.feedback, current_caller.get().filter
        with active.in_flight:
            try:
                if body.query_id is None:
                    query_id, shown = await self._search(request, str(body.query), active)
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

    async def _search(self, request: Request, text: str, active: ActiveRelease) -> tuple[str, ShownReply]:
        """Search with the permissions of the key; returns an id in place of a reply's, and what the search shows.

        This search does not count as traffic: drift detection, shadow, query log and result metrics ignore it.

        Raises:
            Forbidden: If the key may not search, because the reply would reveal whether a search returns the document.
        """
        key = current_caller.get().key
        if key is not None and "search" not in key.scopes:
            raise Forbidden("this API key lacks the scope search, which feedback on a query needs; send a query_id")
        query, form = read_search(SearchRequest(query=text), active, self._settings)
        search = active.search
        key_of_reply = search.key(query, form)
        record = search.cached(key_of_reply)
        if record is None:
            (record,) = await while_connected(request, search.records([(key_of_reply, query, form)]))
        return _id_of_search(key, query.text), ShownReply.of(query, record)


def feedback_operation(settings: Settings, serving: Serving, metrics: Metrics) -> Operation:
    """Return the operation. It replies 202, because a judgement is counted within a few seconds, not at once."""
    handler = FeedbackHandler(settings, serving, metrics).feedback
    return Operation("feedback", handler, FeedbackResponse)


def _id_of_search(key: ApiKey | None, query: str) -> str:
    """Return an id that stands for a reply's, equal in every replica, so that a judgement counts once per key."""
    owner = None if key is None else (key.name, key.filter)
    return hashlib.sha256(f"{owner!r}{query}".encode()).hexdigest()[:_ID_DIGITS]
