"""POST /search and POST /search/batch, which share one implementation."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from taugate.errors import InputError, NoEncoder
from taugate.retrieval.comparability import NotComparable
from taugate.retrieval.exploration import Exploration
from taugate.retrieval.index.passages import Fields
from taugate.retrieval.query import Query
from taugate.service.api.queries import to_query
from taugate.service.api.schemas import BatchRequest, BatchResponse, SearchFields, SearchRequest, SearchResponse
from taugate.service.errors import Invalid, NotFound, VectorNeeded
from taugate.service.http.caller import current_caller, while_connected
from taugate.service.http.openapi import judging_link
from taugate.service.http.operation import Operation
from taugate.service.http.replies import EncodedJsonResponse
from taugate.service.lifecycle.active import ActiveRelease
from taugate.service.lifecycle.serving import Serving
from taugate.service.metrics import Metrics
from taugate.service.pipeline.forms import ReplyForm, SearchForm
from taugate.service.pipeline.record import SearchRecord
from taugate.service.settings import Settings

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.release.reader import Release

# Whether a reply was in this process's memory (Server Timing, W3C), for people who look at a single search.
_CACHED, _SEARCHED = {"Server-Timing": "cache;desc=hit"}, {"Server-Timing": "cache;desc=miss"}
CURRENT = "current"  # means the active release, in APIs whose requests name a store or knowledge base


class SearchHandlers:
    """The handlers of the two endpoints, and what the dialects share with them."""

    def __init__(self, settings: Settings, serving: Serving, metrics: Metrics) -> None:
        self._settings, self._serving, self._metrics = settings, serving, metrics

    @property
    def fields(self) -> Fields:
        """The metadata fields of the active release.

        Raises:
            NotReady: If no release is loaded.
        """
        return self._serving.active.release.fields

    async def search(self, request: Request, body: SearchRequest) -> Response:
        """Search for the top-K documents that pass the calibrated threshold. If none does, the reply says why."""
        active = self._serving.active
        with active.in_flight:
            (reply,), searched = await self._answer(request, [read_search(body, active, self._settings)], active)
        return EncodedJsonResponse(reply, headers=_SEARCHED if searched else _CACHED)

    def is_known(self, body: SearchRequest) -> bool:
        """Return whether the reply to a search is in memory; raises as `search`, unless it has to wait."""
        active = self._serving.active
        return active.search.is_cached(active.search.key(*read_search(body, active, self._settings)))

    async def search_batch(self, request: Request, body: BatchRequest) -> Response:
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
        self, request: Request, searches: Sequence[SearchFields], form: ReplyForm, release: str, missing: str
    ) -> list[bytes]:
        """Run searches requested in a dialect (the API of another product) under the same limits; returns JSON replies.

        Exploration is off, because the dialects cannot mark a result as below the threshold.

        Raises:
            NotFound: With the message `missing`, if `release`, an id or `current`, is not the active one.
        """
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
        caller, search = current_caller.get(), active.search
        keyed = [(search.key(query, form), query, form) for query, form in searches]
        records = [search.cached(key) for key, _, _ in keyed]
        missing = [query for query, record in zip(keyed, records, strict=True) if record is None]
        computed = iter(await while_connected(request, search.records(missing)) if missing else [])
        drift = active.drift_report(caller.filter)
        replies = []
        for (query, _), cached in zip(searches, records, strict=True):
            record = cached or next(computed)
            query_id = caller.reply_id()
            self._notify(query, query_id, record, active)
            replies.append(record.to_json(query_id, drift))
            if len(searches) > 1:  # yield to other requests: a batch of cached replies does not await anything else
                await asyncio.sleep(0)
        return replies, len(missing)

    def _notify(self, query: Query, query_id: str, record: SearchRecord, active: ActiveRelease) -> None:
        """Record a reply in the metrics, and pass it to drift detection and the shadow, which do not change it."""
        self._metrics.observe_reply(len(record.results), record.considered, record.reason, record.explored)
        if record.not_comparable is NotComparable.TRUNCATED:
            self._metrics.queries_truncated.inc()
        if active.drift is not None:
            active.drift.observe(query_id, query, record, current_caller.get().key_name)
        if self._serving.shadowing.active is not None:
            self._serving.shadowing.active.offer(query)


def search_operations(handlers: SearchHandlers) -> list[Operation]:
    """Return the operations of the two endpoints."""
    search = Operation("search", handlers.search, SearchResponse, described={"links": judging_link("")})
    search.is_known = handlers.is_known
    return [
        search,
        Operation(
            "search_batch", handlers.search_batch, BatchResponse, described={"links": judging_link("/responses/0")}
        ),
    ]


def read_search(
    request: SearchRequest, active: ActiveRelease, settings: Settings, *, name: str = ""
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
    """Return whether the calibrated threshold alone decides, over all documents.

    Judgements of other results would not show whether that threshold is right.
    """
    return query.threshold is None and query.group_by is None and not (query.filter or query.permitted)


def read_query(request: SearchFields, release: "Release", settings: Settings, *, name: str = "") -> Query:
    """Convert the fields of a request to the caller's query; `name` is a prefix of field names in messages.

    Raises:
        Invalid: If a field exceeds a limit or does not fit the release.
        VectorNeeded: If the query is a text alone, and the release has no encoder.
    """
    check_limits(request.query or "", request.k, settings, name)
    try:
        return to_query(request, release, current_caller.get().filter)
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
