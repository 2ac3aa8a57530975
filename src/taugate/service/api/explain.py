"""POST /explain: why a document is, or is not, among the results of a search."""

from fastapi import FastAPI, Request
from fastapi.responses import Response

from taugate.errors import InputError
from taugate.retrieval.explanation import UnknownDocument
from taugate.service.access.rate_limit import RateLimiter
from taugate.service.api.bodies import add_json_route
from taugate.service.api.openapi import errors, replies
from taugate.service.api.replies import json_reply
from taugate.service.api.request_context import permitted
from taugate.service.api.schemas import ExplainRequest, ExplainResponse
from taugate.service.api.search import read_query, while_connected
from taugate.service.errors import Invalid, NotFound
from taugate.service.lifecycle.serving import Serving
from taugate.service.settings import Settings


def add_explain_route(app: FastAPI, settings: Settings, serving: Serving, limiter: RateLimiter) -> None:
    """Add POST /explain, which is authorized and charged like a search.

    Explanations do not count as traffic: drift detection, shadow, caches, query log and result metrics ignore them.
    """

    async def explain(request: Request, body: ExplainRequest) -> Response:
        """Explain a document's rank for a query, the rule that keeps or drops it, and its distance to the threshold."""
        active = serving.active
        with active.in_flight:
            query = read_query(body, active, settings, permitted(request.scope))
            try:
                explanation = await while_connected(request, active.search.explain(query, body.document_id))
            except UnknownDocument as error:
                raise NotFound(f"document_id: {error}") from error
            except InputError as error:
                raise Invalid(str(error)) from error
        return json_reply(explanation.to_reply(active.release_id))

    add_json_route(
        app,
        "/explain",
        ExplainRequest,
        explain,
        limiter.charge,
        tags=["search"],
        responses=replies(200, ExplainResponse) | errors(400, 404, 413, 422, 429, 503, 504),
    )
