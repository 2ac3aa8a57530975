"""POST /search and POST /search/batch: one path for both."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from fastapi import FastAPI, Request
from fastapi.responses import Response

from taugate.errors import InputError
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.retriever import Query
from taugate.service.access.access import permitted
from taugate.service.access.rate import Spending
from taugate.service.api.body import add_json_route
from taugate.service.api.json_reply import json_bytes
from taugate.service.api.openapi import errors, judging, replies
from taugate.service.api.schemas import BatchRequest, BatchResponse, SearchRequest, SearchResponse
from taugate.service.errors import ClientGone, Invalid, TooLarge
from taugate.service.lifecycle.serving import Serving
from taugate.service.metrics import Metrics
from taugate.service.pipeline.answering import Answering, Search
from taugate.service.pipeline.reply import Reply
from taugate.service.runtime.ids import reply_id
from taugate.service.settings import Settings

Result = TypeVar("Result")

# Seconds. What is answered sooner costs less than a task that watches for its caller to leave.
_SOON = 0.05


async def while_connected(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`, which is cancelled when the connection closes. Raises ClientGone then.

    The request's body has to be read: what the connection says next is that it is closed.
    """
    caller = asyncio.current_task()
    assert caller is not None  # noqa: S101 (for the type checker: a coroutine runs in a task)
    watching: asyncio.Task[None] | None = None

    def watch() -> None:
        nonlocal watching
        watching = asyncio.ensure_future(_closed(request))
        watching.add_done_callback(lambda closed: closed.cancelled() or caller.cancel())

    later = asyncio.get_running_loop().call_later(_SOON, watch)
    try:
        return await work
    except asyncio.CancelledError:
        if watching is not None and watching.done() and not caller.uncancel():
            raise ClientGone("the connection was closed before there was an answer") from None
        raise
    finally:
        later.cancel()
        if watching is not None:
            watching.cancel()


async def _closed(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


_STATUSES = (400, 413, 422, 429, 500, 503, 504)


def add_search_routes(app: FastAPI, settings: Settings, serving: Serving, metrics: Metrics, spending: Spending) -> None:
    """The two routes. Replies are built once, from our own values, and not validated a second time."""

    async def answer(request: Request, searches: list[Search], answering: Answering) -> list[bytes]:
        await spending.charge_more(request.scope, len(searches) - 1)
        known = [answering.known(search) for search in searches]
        unknown = [search for search, reply in zip(searches, known, strict=True) if reply is None]
        worked_out = iter(await while_connected(request, work_out(unknown, answering)) if unknown else [])
        replies = [reply or next(worked_out) for reply in known]
        allowed = permitted(request.scope)
        drift, named = answering.drift(allowed), []
        for search, reply in zip(searches, replies, strict=True):
            query_id = reply_id(allowed)
            metrics.observe_reply(reply.kept, reply.considered, reply.reason)
            if answering.watch is not None:
                answering.watch.seen(query_id, search.query.text, reply)
            serving.shadowing.seen(search.query)
            named.append(reply.named(query_id, drift))
            if len(searches) > 1:  # other requests have their turn: a batch of known replies waits for nothing else
                await asyncio.sleep(0)
        return named

    async def work_out(searches: list[Search], answering: Answering) -> list[Reply]:
        async with serving.admission.admitted(len(searches)):
            if len(searches) == 1:  # without a task of its own
                return [await answering.reply(searches[0])]
            return await asyncio.gather(*(answering.reply(search) for search in searches))

    async def search(request: Request, body: SearchRequest) -> Response:
        """The top-K documents of a query that pass the calibrated threshold, or the reason why none does."""
        answering = serving.answering
        with answering.users:
            (reply,) = await answer(
                request, [_search(body, "", answering, settings, permitted(request.scope))], answering
            )
        return json_bytes(reply)

    async def search_batch(request: Request, body: BatchRequest) -> Response:
        """Several searches under the same admission rules as single ones, answered in their order."""
        if len(body.queries) > settings.requests.max_batch:
            raise TooLarge(
                f"{len(body.queries)} queries, at most {settings.requests.max_batch} a request (TAUGATE_MAX_BATCH)"
            )
        answering = serving.answering
        with answering.users:
            allowed = permitted(request.scope)
            searches = [
                _search(each, f"queries.{position}.", answering, settings, allowed)
                for position, each in enumerate(body.queries)
            ]
            replies = await answer(request, searches, answering)
        return json_bytes(b'{"responses":[' + b",".join(replies) + b"]}")

    described = replies(200, SearchResponse, links=judging("")) | errors(*_STATUSES)
    add_json_route(app, "/search", SearchRequest, search, spending.charge, tags=["search"], responses=described)
    described = replies(200, BatchResponse, links=judging("/responses/0")) | errors(*_STATUSES)
    add_json_route(
        app, "/search/batch", BatchRequest, search_batch, spending.charge, tags=["search"], responses=described
    )


def _search(request: SearchRequest, name: str, answering: Answering, settings: Settings, allowed: Filter) -> Search:
    """A request as a search, within the limits and what its key is permitted. Raises Invalid.

    name: which of a batch it is.
    """
    if len(request.query) > settings.requests.max_query_chars:
        raise Invalid(f"{name}query: over {settings.requests.max_query_chars} characters (TAUGATE_MAX_QUERY_CHARS)")
    release = answering.engine.release
    k = release.manifest.policy.k if request.k is None else request.k
    if k > settings.requests.max_k:
        raise Invalid(f"{name}k: {k} is over {settings.requests.max_k} (TAUGATE_MAX_K)")
    if request.min_results > k:
        raise Invalid(f"{name}min_results: {request.min_results} is over k, which is {k}")
    try:
        release.metadata.check(request.filter or ())
    except InputError as error:
        raise Invalid(f"{name}filter: {error}") from error
    query = Query(request.query, k, request.threshold, request.min_results, request.filter, allowed)
    return answering.search(query, include_text=request.include_text)
