"""POST /search and POST /search/batch, which share one implementation."""

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import Response

from taugate.errors import InputError
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.exploration import Exploration
from taugate.retrieval.index.passages import Fields
from taugate.retrieval.query import Query
from taugate.service.access.keys import ApiKey
from taugate.service.access.rate_limit import RateLimiter
from taugate.service.api.bodies import add_json_route
from taugate.service.api.openapi import errors, judging, replies
from taugate.service.api.queries import results_to_consider, to_query
from taugate.service.api.replies import EncodedJsonResponse
from taugate.service.api.request_context import permitted, reply_id, request_key
from taugate.service.api.schemas import BatchRequest, BatchResponse, SearchFields, SearchRequest, SearchResponse
from taugate.service.errors import ClientGone, Invalid, NotFound, TooLarge
from taugate.service.lifecycle.serving import ActiveRelease, Serving
from taugate.service.metrics import Metrics
from taugate.service.pipeline.forms import ReplyForm, SearchForm
from taugate.service.pipeline.record import SearchRecord
from taugate.service.settings import Settings

Result = TypeVar("Result")

CURRENT = "current"  # means the active release, in APIs whose requests name a store or knowledge base
# Only a request that takes longer than this gets a task that watches for its client to disconnect.
_WATCH_AFTER_SECONDS = 0.05
_STATUSES = (400, 413, 422, 429, 500, 503, 504)


class SearchRoutes:
    """The two routes. Replies are built from trusted values, so FastAPI does not validate them again."""

    def __init__(self, settings: Settings, serving: Serving, metrics: Metrics, limiter: RateLimiter) -> None:
        self._settings, self._serving, self._metrics, self._limiter = settings, serving, metrics, limiter

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
            search = read_search(body, active, self._settings, permitted(request.scope))
            (reply,) = await self._answer(request, [search], active)
        return EncodedJsonResponse(reply)

    async def search_batch(self, request: Request, body: BatchRequest) -> Response:
        """Run several searches. Results come back in request order; limits apply per query."""
        self._check_batch(len(body.queries))
        active = self._serving.active
        with active.in_flight:
            allowed = permitted(request.scope)
            searches = [
                read_search(search, active, self._settings, allowed, name=f"queries.{position}.")
                for position, search in enumerate(body.queries)
            ]
            replies = await self._answer(request, searches, active)
        return EncodedJsonResponse(b'{"responses":[' + b",".join(replies) + b"]}")

    async def answer_dialect(
        self, request: Request, searches: Sequence[SearchFields], form: ReplyForm, release: str, missing: str
    ) -> list[bytes]:
        """Run searches requested in a dialect (the API of another product) under the same limits; returns JSON replies.

        Exploration is off, because the dialects cannot mark a result as below the threshold.

        Args:
            request: The request, for its key and connection.
            searches: The translated requests.
            form: Format of the replies.
            release: Id of the requested release, or `current`.
            missing: Error message if another release is active.

        Raises:
            NotFound: If another release is active.
        """
        self._check_batch(len(searches))
        active = self._serving.active
        with active.in_flight:
            if release not in {CURRENT, active.release_id}:
                raise NotFound(missing)
            allowed = permitted(request.scope)
            queries = [read_query(search, active, self._settings, allowed) for search in searches]
            return await self._answer(request, [(query, form) for query in queries], active)

    def _check_batch(self, queries: int) -> None:
        limit = self._settings.requests.max_batch
        if queries > limit:
            raise TooLarge(f"{queries} queries, at most {limit} per request (TAUGATE_MAX_BATCH)")

    async def _answer(
        self, request: Request, searches: Sequence[tuple[Query, ReplyForm]], active: ActiveRelease
    ) -> list[bytes]:
        """Charge the searches to the rate limit, run those not cached, and return every reply as JSON with a new id."""
        # The route has already charged the first one.
        key = request_key(request.scope)
        await self._limiter.charge_more(key, len(searches) - 1)
        records = [active.search.cached(query, form) for query, form in searches]
        missing = [search for search, record in zip(searches, records, strict=True) if record is None]
        computed = iter(await while_connected(request, active.search.records(missing)) if missing else [])
        allowed = permitted(request.scope)
        drift = active.drift_report(allowed)
        replies = []
        for (query, _), cached in zip(searches, records, strict=True):
            record = cached or next(computed)
            query_id = reply_id(allowed)
            self._notify(query, query_id, record, active, key)
            replies.append(record.to_json(query_id, drift))
            if len(searches) > 1:  # yield to other requests: a batch of cached replies does not await anything else
                await asyncio.sleep(0)
        return replies

    def _notify(
        self, query: Query, query_id: str, record: SearchRecord, active: ActiveRelease, key: ApiKey | None
    ) -> None:
        """Record a reply in the metrics, and pass it to drift detection and the shadow, which do not change it."""
        self._metrics.observe_reply(len(record.results), record.considered, record.reason, record.explored)
        if record.truncated:
            self._metrics.queries_truncated.inc()
        if active.drift is not None:
            active.drift.observe(query_id, query, record, None if key is None else key.name)
        if self._serving.shadowing.active is not None:
            self._serving.shadowing.active.offer(query)


def add_search_routes(
    app: FastAPI, settings: Settings, serving: Serving, metrics: Metrics, limiter: RateLimiter
) -> SearchRoutes:
    """Add the routes to an application, and return them."""
    routes = SearchRoutes(settings, serving, metrics, limiter)
    described = replies(200, SearchResponse, links=judging("")) | errors(*_STATUSES)
    add_json_route(app, "/search", SearchRequest, routes.search, limiter.charge, tags=["search"], responses=described)
    described = replies(200, BatchResponse, links=judging("/responses/0")) | errors(*_STATUSES)
    add_json_route(
        app, "/search/batch", BatchRequest, routes.search_batch, limiter.charge, tags=["search"], responses=described
    )
    return routes


def read_search(
    request: SearchRequest, active: ActiveRelease, settings: Settings, allowed: Filter, *, name: str = ""
) -> tuple[Query, SearchForm]:
    """Return the query of a request and the form of its reply; parameters and errors are those of `read_query`."""
    query = read_query(request, active, settings, allowed, name=name)
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


def read_query(
    request: SearchFields, active: ActiveRelease, settings: Settings, allowed: Filter, *, name: str = ""
) -> Query:
    """Convert the fields of a request to a query.

    Args:
        request: Fields of a search, from `/search` or another route.
        active: The active release.
        settings: The limits.
        allowed: The filter of the caller's key.
        name: Prefix of field names in messages, for a query of a batch.

    Raises:
        Invalid: If a field exceeds a limit or does not fit the release.
    """
    if len(request.query) > settings.requests.max_query_chars:
        raise Invalid(f"{name}query: over {settings.requests.max_query_chars} characters (TAUGATE_MAX_QUERY_CHARS)")
    k = results_to_consider(request, active.release)
    if k > settings.requests.max_k:
        raise Invalid(f"{name}k: {k} is over {settings.requests.max_k} (TAUGATE_MAX_K)")
    try:
        return to_query(request, active.release, allowed)
    except InputError as error:
        raise Invalid(f"{name}{error}") from error


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of `work`, which is cancelled if the client closes the connection.

    The body of the request must have been read, so that the next ASGI message is the disconnect.

    Raises:
        ClientGone: If the connection was closed.
    """
    caller = asyncio.current_task()
    assert caller is not None  # noqa: S101 (for the type checker: a coroutine runs in a task)
    watching: asyncio.Task[None] | None = None
    answered = False

    def cancel_work(closed: asyncio.Task[None]) -> None:
        # The connection may close just as the work finishes; then there is nothing to cancel.
        if not closed.cancelled() and not answered:
            caller.cancel()

    def watch() -> None:
        nonlocal watching
        watching = asyncio.ensure_future(_closed(request))
        watching.add_done_callback(cancel_work)

    timer = asyncio.get_running_loop().call_later(_WATCH_AFTER_SECONDS, watch)
    try:
        return await work
    except asyncio.CancelledError:
        # `uncancel` returns how many other cancellations are pending.
        if watching is not None and watching.done() and not caller.uncancel():
            raise ClientGone("the connection was closed before the reply was ready") from None
        raise
    finally:
        answered = True
        timer.cancel()
        if watching is not None:
            watching.cancel()


async def _closed(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
