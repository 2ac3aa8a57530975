"""POST /search and POST /search/batch: one path for both."""

import uuid
from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import Response

from retrieval.errors import InputError
from retrieval.retriever import Answer, Query
from service.callers import while_connected
from service.engine import Engine, Found
from service.errors import Invalid, TooLarge
from service.json_reply import json_reply
from service.metrics import Metrics
from service.schemas import BatchRequest, BatchResponse, ErrorResponse, SearchRequest, SearchResponse
from service.serving import Serving
from service.settings import Settings

_STATUSES = (400, 413, 422, 429, 500, 503, 504)
_ERRORS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorResponse} for status in _STATUSES}


def search_routes(settings: Settings, serving: Serving, metrics: Metrics) -> APIRouter:
    """The two routes. Replies are built once, from our own values, and not validated a second time."""
    router = APIRouter(tags=["search"])

    async def answer(requests: list[SearchRequest], names: Iterable[str]) -> list[dict[str, Any]]:
        engine = serving.engine
        queries = [_query(request, name, engine, settings) for request, name in zip(requests, names, strict=False)]
        found = await engine.search(queries)
        for each in found:
            metrics.observe_answer(each.answer)
        release = engine.release.manifest.release_id
        return [_reply(request, each, release) for request, each in zip(requests, found, strict=True)]

    @router.post("/search", response_model=None, responses={200: {"model": SearchResponse}, **_ERRORS})
    async def search(request: Request, body: SearchRequest) -> Response:
        """The top-K documents of a query that pass the calibrated threshold, or the reason why none does."""
        (reply,) = await while_connected(request, answer([body], [""]))
        return json_reply(reply)

    @router.post("/search/batch", response_model=None, responses={200: {"model": BatchResponse}, **_ERRORS})
    async def search_batch(request: Request, body: BatchRequest) -> Response:
        """Several searches under the same admission rules as single ones, answered in their order."""
        if len(body.queries) > settings.max_batch:
            raise TooLarge(f"{len(body.queries)} queries, at most {settings.max_batch} a request (TAUGATE_MAX_BATCH)")
        names = (f"queries.{position}." for position in range(len(body.queries)))
        return json_reply({"responses": await while_connected(request, answer(body.queries, names))})

    return router


def _query(request: SearchRequest, name: str, engine: Engine, settings: Settings) -> Query:
    """A request as a query, within the limits. Raises Invalid; `name` says which of a batch it is."""
    if len(request.query) > settings.max_query_chars:
        raise Invalid(f"{name}query: over {settings.max_query_chars} characters (TAUGATE_MAX_QUERY_CHARS)")
    k = engine.release.manifest.policy.k if request.k is None else request.k
    if k > settings.max_k:
        raise Invalid(f"{name}k: {k} is over {settings.max_k} (TAUGATE_MAX_K)")
    if request.min_results > k:
        raise Invalid(f"{name}min_results: {request.min_results} is over k, which is {k}")
    try:
        engine.release.metadata.check(request.filter or ())
    except InputError as error:
        raise Invalid(f"{name}filter: {error}") from error
    return Query(request.query, k, request.threshold, request.min_results, request.filter)


def _reply(request: SearchRequest, found: Found, release: str) -> dict[str, Any]:
    answer, text = found.answer, request.include_text
    results = [
        {
            "id": document.id,
            "rank": rank,
            "score": score,
            "relevance": relevance,
            "title": document.title if text else None,
            "text": document.text if text else None,
            "metadata": document.metadata,
        }
        for document, rank, score, relevance in zip(
            found.documents, answer.ranks.tolist(), answer.scores.tolist(), _relevance(answer), strict=True
        )
    ]
    return {
        "results": results,
        "threshold": answer.threshold,
        "policy": answer.policy,
        "calibrated": answer.calibrated,
        "considered": answer.considered,
        "dropped": answer.considered - len(results),
        "best_score": answer.best_score,
        "reason": answer.reason,
        "release": release,
        "query_id": uuid.uuid4().hex,
    }


def _relevance(answer: Answer) -> list[float] | list[None]:
    """One for each result; null where the release has no model of it."""
    return [None] * len(answer.scores) if answer.relevance is None else answer.relevance.tolist()
