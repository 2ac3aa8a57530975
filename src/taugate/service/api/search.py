"""POST /search and POST /search/batch: one path for both."""

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
from taugate.service.api.replies import EncodedJsonResponse
from taugate.service.api.request_context import permitted, reply_id, request_key
from taugate.service.api.schemas import BatchRequest, BatchResponse, SearchFields, SearchRequest, SearchResponse
from taugate.service.errors import ClientGone, Invalid, NotFound, TooLarge
from taugate.service.lifecycle.serving import ActiveRelease, Serving
from taugate.service.metrics import Metrics
from taugate.service.pipeline.reply import Reply, ReplyForm, SearchForm, SearchTask
from taugate.service.settings import Settings

Result = TypeVar("Result")

CURRENT = "current"  # stands for the release in service, where another API names one
# Seconds. What is answered sooner costs less than a task that watches for its caller to leave.
_SOON = 0.05
_STATUSES = (400, 413, 422, 429, 500, 503, 504)


class SearchRoutes:
    """The two routes. Replies are built once, from our own values, and not validated a second time."""

    def __init__(self, settings: Settings, serving: Serving, metrics: Metrics, limiter: RateLimiter) -> None:
        """settings: limits of a request; serving: has the active release; metrics: count replies; limiter: of keys."""
        self._settings, self._serving, self._metrics, self._limiter = settings, serving, metrics, limiter

    @property
    def fields(self) -> Fields:
        """The metadata fields of the release in service.

        Raises:
            NotReady: As Serving.active.
        """
        return self._serving.active.release.fields

    async def search(self, request: Request, body: SearchRequest) -> Response:
        """The top-K documents of a query that pass the calibrated threshold, or the reason why none does."""
        active = self._serving.active
        with active.in_flight:
            task = search_task(body, active, self._settings, permitted(request.scope))
            (reply,) = await self._answer(request, [task], active)
        return EncodedJsonResponse(reply)

    async def search_batch(self, request: Request, body: BatchRequest) -> Response:
        """Several searches under the same admission rules as single ones, answered in their order."""
        most = self._settings.requests.max_batch
        if len(body.queries) > most:
            raise TooLarge(f"{len(body.queries)} queries, at most {most} per request (TAUGATE_MAX_BATCH)")
        active = self._serving.active
        with active.in_flight:
            allowed = permitted(request.scope)
            tasks = [
                search_task(each, active, self._settings, allowed, name=f"queries.{position}.")
                for position, each in enumerate(body.queries)
            ]
            replies = await self._answer(request, tasks, active)
        return EncodedJsonResponse(b'{"responses":[' + b",".join(replies) + b"]}")

    async def answer_dialect(
        self, request: Request, searches: Sequence[SearchFields], form: ReplyForm, release: str, missing: str
    ) -> list[bytes]:
        """Answer searches that came through another API, under the same admission rules; returns the replies, as JSON.

        None explores: those APIs have no word for a result below the threshold.

        Args:
            searches: What is asked, translated.
            form: In which the replies are written.
            release: The id of the release that is asked for, or `current`.
            missing: The message where another one is in service.

        Raises:
            NotFound: For that, and what the other routes raise.
        """
        most = self._settings.requests.max_batch
        if len(searches) > most:
            raise TooLarge(f"{len(searches)} queries, at most {most} per request (TAUGATE_MAX_BATCH)")
        active = self._serving.active
        with active.in_flight:
            if release not in {CURRENT, active.release_id}:
                raise NotFound(missing)
            allowed = permitted(request.scope)
            tasks = [active.search.task(read_query(each, active, self._settings, allowed), form) for each in searches]
            return await self._answer(request, tasks, active)

    async def _answer(self, request: Request, tasks: Sequence[SearchTask], active: ActiveRelease) -> list[bytes]:
        """Pay for the searches, take what is remembered, work out the rest, and send each under an id of its own."""
        await self._limiter.charge_more(request_key(request.scope), len(tasks) - 1)
        remembered = [active.search.remembered(task) for task in tasks]
        missing = [task for task, reply in zip(tasks, remembered, strict=True) if reply is None]
        worked_out = iter(await while_connected(request, active.search.replies(missing)) if missing else [])
        allowed = permitted(request.scope)
        drift = active.drift_report(allowed)
        sent = []
        for task, known in zip(tasks, remembered, strict=True):
            reply = known or next(worked_out)
            query_id = reply_id(allowed)
            self._notify(reply.query_as_read(task.query), query_id, reply, active, request_key(request.scope))
            sent.append(reply.to_json(query_id, drift))
            if len(tasks) > 1:  # other requests have their turn: a batch of known replies waits for nothing else
                await asyncio.sleep(0)
        return sent

    def _notify(self, query: Query, query_id: str, reply: Reply, active: ActiveRelease, key: ApiKey | None) -> None:
        """Notify metrics, drift and the shadow of a reply that goes out. None of them changes it."""
        self._metrics.observe_reply(reply.kept, reply.considered, reply.reason, reply.explored)
        if reply.truncated:
            self._metrics.queries_truncated.inc()
        if active.drift is not None:
            active.drift.observe(query_id, query, reply, None if key is None else key.name)
        if self._serving.shadowing.active is not None:
            self._serving.shadowing.active.offer(query)


def add_search_routes(
    app: FastAPI, settings: Settings, serving: Serving, metrics: Metrics, limiter: RateLimiter
) -> SearchRoutes:
    """Add the routes to an application, and return them; for the other parameters see SearchRoutes."""
    routes = SearchRoutes(settings, serving, metrics, limiter)
    described = replies(200, SearchResponse, links=judging("")) | errors(*_STATUSES)
    add_json_route(app, "/search", SearchRequest, routes.search, limiter.charge, tags=["search"], responses=described)
    described = replies(200, BatchResponse, links=judging("/responses/0")) | errors(*_STATUSES)
    add_json_route(
        app, "/search/batch", BatchRequest, routes.search_batch, limiter.charge, tags=["search"], responses=described
    )
    return routes


def search_task(
    request: SearchRequest, active: ActiveRelease, settings: Settings, allowed: Filter, *, name: str = ""
) -> SearchTask:
    """Turn a request into a search of the active release; the parameters and errors are those of `read_query`."""
    query = read_query(request, active, settings, allowed, name=name)
    share = settings.drift.explore_share
    if share and request.explore and _may_explore(query):
        query = replace(query, exploration=Exploration(share, active.release_id))
    return active.search.task(query, SearchForm(request.include_text))


def _may_explore(query: Query) -> bool:
    """Tell whether the calibrated threshold decides over all documents: only then is there something to learn of it."""
    return query.threshold is None and query.group_by is None and not (query.filter or query.permitted)


def read_query(
    request: SearchFields, active: ActiveRelease, settings: Settings, allowed: Filter, *, name: str = ""
) -> Query:
    """Turn the fields of a request into a query.

    Args:
        active: Has the release.
        settings: Have the limits.
        allowed: The filter of the caller's key.
        name: Goes before the fields that messages name, for one of a batch.

    Raises:
        Invalid: For what is over a limit or does not fit the release.
    """
    if len(request.query) > settings.requests.max_query_chars:
        raise Invalid(f"{name}query: over {settings.requests.max_query_chars} characters (TAUGATE_MAX_QUERY_CHARS)")
    k = active.release.manifest.policy.k if request.k is None else request.k
    if k > settings.requests.max_k:
        raise Invalid(f"{name}k: {k} is over {settings.requests.max_k} (TAUGATE_MAX_K)")
    if request.min_results > k:
        raise Invalid(f"{name}min_results: {request.min_results} is over k, which is {k}")
    if request.group_by is not None and active.release.retriever.passages.remote:
        raise Invalid(f"{name}group_by: the documents are in an engine, where results cannot be grouped; leave it out")
    if request.filter:
        try:
            active.release.fields.check_kinds(request.filter)
        except InputError as error:
            raise Invalid(f"{name}filter: {error}") from error
    return Query(request.query, k, request.threshold, request.min_results, request.filter, allowed, request.group_by)


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of `work`, which is cancelled when the connection closes.

    The request's body has to be read: what the connection says next is that it is closed.

    Raises:
        ClientGone: Then.
    """
    caller = asyncio.current_task()
    assert caller is not None  # noqa: S101 (for the type checker: a coroutine runs in a task)
    watching: asyncio.Task[None] | None = None
    answered = False

    def cancel_work(closed: asyncio.Task[None]) -> None:
        # The connection may close just as the work finishes; then nothing is cancelled any more.
        if not closed.cancelled() and not answered:
            caller.cancel()

    def watch() -> None:
        nonlocal watching
        watching = asyncio.ensure_future(_closed(request))
        watching.add_done_callback(cancel_work)

    later = asyncio.get_running_loop().call_later(_SOON, watch)
    try:
        return await work
    except asyncio.CancelledError:
        if watching is not None and watching.done() and not caller.uncancel():
            raise ClientGone("the connection was closed before there was an answer") from None
        raise
    finally:
        answered = True
        later.cancel()
        if watching is not None:
            watching.cancel()


async def _closed(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
