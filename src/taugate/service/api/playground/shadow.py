"""POST /playground/shadow: what the shadow release replies to a search, to show it beside the current release."""

import asyncio
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response

from taugate.retrieval.query import Query
from taugate.service.api.playground.questions import shadow_release
from taugate.service.api.schemas import SearchFields
from taugate.service.api.search import read_query
from taugate.service.http.operation import Operation
from taugate.service.http.replies import json_reply
from taugate.service.lifecycle.serving import Serving
from taugate.service.pipeline.forms import search_fields
from taugate.service.settings import Settings
from taugate.storage.json_values import Json

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.release.reader import Release


def shadow_operation(settings: Settings, serving: Serving) -> Operation:
    """Return the operation, which is charged like a search. Its searches do not count as traffic."""
    one_at_a_time = asyncio.Semaphore(1)  # the shadow has one thread; searches of the current release come first

    async def search_shadow(request: Request, body: SearchFields) -> Response:
        """Search the shadow release, without caches, metrics and drift detection."""
        release = shadow_release(serving)
        query = read_query(body, release, settings)
        async with one_at_a_time:
            return json_reply(await asyncio.to_thread(_search, release, query))

    return Operation("playground_shadow", search_shadow, None)


def _search(release: "Release", query: Query) -> dict[str, Json]:
    (answer,) = release.retriever.search([query])
    documents = answer.read(release.documents)
    return search_fields(answer, documents, release.manifest)
