"""POST /explain: why a document is, or is not, among the results of a search."""

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from taugate.errors import InputError
from taugate.retrieval.explained import Explanation, UnknownDocument
from taugate.service.api.schemas import RELEASE_ID, SearchFields, examples
from taugate.service.api.search import read_query
from taugate.service.errors import Invalid, NotFound
from taugate.service.http.caller import while_connected
from taugate.service.http.operation import Operation
from taugate.service.http.replies import json_reply
from taugate.service.lifecycle.serving import Serving
from taugate.service.settings import Settings


class ExplainRequest(SearchFields):
    """A search, and the document to explain."""

    model_config = examples({"query": "How long does a permit take?", "document_id": "permit-002"})

    document_id: str = Field(min_length=1, max_length=1024, description="id of a chunk or of a document")


class ExplainResponse(Explanation):
    """Why a document is, or is not, among the results of a search.

    If the filter of the key hides the document, `rule` is `key_filter`, and nothing else about it is revealed.
    """

    release: str = Field(description=RELEASE_ID)


def explain_operation(settings: Settings, serving: Serving) -> Operation:
    """Return the operation. It is authorized and charged like a search.

    Explanations do not count as traffic: drift detection, shadow, caches, query log and result metrics ignore them.
    """

    async def explain(request: Request, body: ExplainRequest) -> Response:
        """Explain a document's rank for a query, the rule that keeps or drops it, and its distance to the threshold."""
        active = serving.active
        with active.in_flight:
            query = read_query(body, active.release, settings)
            try:
                explanation = await while_connected(request, active.search.explain(query, body.document_id))
            except UnknownDocument as error:
                raise NotFound(f"document_id: {error}") from error
            except InputError as error:
                raise Invalid(str(error)) from error
        return json_reply(explanation.to_reply(active.release_id))

    return Operation("explain", explain, ExplainResponse)
