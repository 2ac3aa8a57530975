"""POST /playground/shadow: what the shadow release replies to a search, to show it beside the current release."""

import asyncio

from starlette.requests import Request
from starlette.responses import Response

from taugate.errors import InputError
from taugate.retrieval.query import Query
from taugate.retrieval.release.reader import Release
from taugate.service.api.playground.questions import shadow_release
from taugate.service.api.queries import to_query
from taugate.service.api.schemas import SearchFields
from taugate.service.errors import Invalid
from taugate.service.http.operation import Operation
from taugate.service.http.replies import json_reply
from taugate.service.lifecycle.serving import Serving
from taugate.service.pipeline.forms import search_fields
from taugate.service.settings import Settings


def shadow_operation(settings: Settings, serving: Serving) -> Operation:
    """Return the operation, which is charged like a search. Its searches do not count as traffic."""
    one_at_a_time = asyncio.Semaphore(1)  # the shadow has one thread; searches of the current release come first

    async def search_shadow(request: Request, body: SearchFields) -> Response:
        """Search the shadow release, without caches, metrics and drift detection."""
        release = shadow_release(serving)
        if len(body.query) > settings.requests.max_query_chars:
            raise Invalid(f"query: over {settings.requests.max_query_chars} characters (TAUGATE_MAX_QUERY_CHARS)")
        if body.k is not None and body.k > settings.requests.max_k:
            raise Invalid(f"k: {body.k} is over {settings.requests.max_k} (TAUGATE_MAX_K)")
        try:
            query = to_query(body, release)
            async with one_at_a_time:
                return json_reply(await asyncio.to_thread(_search, release, query))
        except InputError as error:
            raise Invalid(str(error)) from error

    return Operation("playground_shadow", search_shadow, None)


def _search(release: Release, query: Query) -> dict[str, object]:
    retriever = release.retriever
    tokens = retriever.tokens([query.text])
    (answer,) = retriever.answer([query.as_read(tokens[0])], retriever.embed(tokens))
    documents = answer.read(release.documents)
    manifest = release.manifest
    return search_fields(answer, documents, release=manifest.release_id, state=manifest.state)
