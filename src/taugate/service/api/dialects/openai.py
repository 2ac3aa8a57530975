"""POST /v1/vector_stores/{id}/search: OpenAI's search of a vector store, for its SDKs, LiteLLM and other clients."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, TypeVar, get_args

from pydantic import BaseModel, BeforeValidator, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError
from starlette.requests import Request
from starlette.responses import Response

from taugate.release.manifest import Manifest
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.store import Document
from taugate.retrieval.query import Answer
from taugate.service.api.dialects import results as shared
from taugate.service.api.schemas import WHOLE_NUMBER, QueryText, SearchFields, require_text
from taugate.service.api.search import CURRENT, SearchHandlers
from taugate.service.errors import Invalid
from taugate.service.http.exchange import EncodedJsonResponse, json_reply
from taugate.service.http.operation import Operation
from taugate.service.pipeline.record import QUERY_ID_FIELD, Written
from taugate.service.settings import MAX_QUERIES
from taugate.storage.files import Json

_MAX_RESULTS = 50  # as OpenAI has it
_Scalar = str | int | float | bool
_Comparison = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
_Compound = Literal["and", "or"]
_BOUNDS = ("gt", "gte", "lt", "lte")
_TYPES = ", ".join((*get_args(_Comparison), *get_args(_Compound)))
V = TypeVar("V")

# pydantic's own messages would repeat the caller's input, and name the members of a union one by one.


def _kind(value: object) -> str | None:
    kind = value.get("type") if isinstance(value, dict) else None
    return "comparison" if kind in get_args(_Comparison) else "compound" if kind in get_args(_Compound) else None


def _check_translatable(value: V) -> V:
    """Check that a filter on a field can be translated, and name the field if not. Others are left to `_BY_TYPE`."""
    field = value.get("key") if isinstance(value, dict) else None
    if isinstance(field, str) and _kind(value) is None:
        raise PydanticCustomError("filter_type", "{field}: " + _UNTRANSLATABLE, {"field": field[:40]})
    return value


_UNTRANSLATABLE = f"this filter cannot be translated; use {_TYPES}"
_BY_TYPE = Discriminator(_kind, custom_error_type="filter_type", custom_error_message=_UNTRANSLATABLE)


def _require_queries(value: V) -> V:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or not all(isinstance(text, str) for text in texts):
        raise PydanticCustomError("query", "give a text, or a list of texts")
    if len(texts) > MAX_QUERIES:
        raise PydanticCustomError("query", "{sent} texts, at most {limit}", {"sent": len(texts), "limit": MAX_QUERIES})
    for text in texts:
        require_text(text)
    return value


_Queries = QueryText | Annotated[list[QueryText], Field(min_length=1, max_length=MAX_QUERIES)]


class ComparisonFilter(shared.Lenient):
    """A comparison of an attribute, which is a metadata field, with a value."""

    type: _Comparison
    key: str
    value: shared.FilterValue


class CompoundFilter(shared.Lenient):
    """Filters, all or at least one of which must hold."""

    type: _Compound
    filters: Annotated[list["_AnyFilter"], Field(min_length=1)]


_AnyFilter = Annotated[
    Annotated[ComparisonFilter, Tag("comparison")] | Annotated[CompoundFilter, Tag("compound")],
    _BY_TYPE,
    BeforeValidator(_check_translatable),
]


class RankingOptions(shared.Lenient):
    """`score_threshold` can only drop further results; it never keeps one that τ drops."""

    score_threshold: float | None = Field(default=None, ge=0, le=1)


class VectorStoreQuery(shared.Lenient):
    """A search of a vector store. `max_num_results` defaults to the K that the threshold was calibrated for."""

    query: Annotated[_Queries, BeforeValidator(_require_queries)]
    filters: _AnyFilter | None = None
    max_num_results: Annotated[int, Field(ge=1, le=_MAX_RESULTS), WHOLE_NUMBER] | None = None
    ranking_options: RankingOptions | None = None


class Content(BaseModel):
    """Text of a result."""

    type: Literal["text"]
    text: str


class VectorStoreResult(BaseModel):
    """A returned passage. `file_id` is the id of the passage; `query_id` is the id of the reply, for /feedback."""

    file_id: str
    filename: str
    score: float = Field(ge=0)
    attributes: dict[str, _Scalar]
    content: list[Content]
    query_id: str


class VectorStoreResults(BaseModel):
    """The returned passages. `reason` says why there are none. `query_id` is null for several queries.

    `truncated` means that a query was too long for the encoder.
    """

    object: Literal["vector_store.search_results.page"]
    search_query: list[str]
    data: list[VectorStoreResult]
    has_more: bool
    next_page: None
    reason: str | None
    query_id: str | None
    release: str
    truncated: bool = Field(
        default=False, description="present and true if a query is longer than the encoder can read"
    )


def openai_operation(searching: SearchHandlers) -> Operation:
    """Return the operation; `searching` runs its searches like those of /search."""

    async def search_vector_store(request: Request, body: VectorStoreQuery) -> Response:
        """Search the release in service, named `current` or by its id. The calibrated threshold always applies."""
        queries = [body.query] if isinstance(body.query, str) else body.query
        store = request.path_params["vector_store_id"]
        missing = "there is no such vector store; name `current`, or the id of the release in service (GET /release)"
        query_filter = None if body.filters is None else _filters(body.filters)
        searches = [
            SearchFields.model_construct(query=query, k=body.max_num_results, filter=query_filter) for query in queries
        ]
        threshold = (None if body.ranking_options is None else body.ranking_options.score_threshold) or None
        if len(queries) == 1:
            (page,) = await searching.answer_dialect(request, searches, _Page(queries[0], threshold), store, missing)
            return EncodedJsonResponse(page)
        parts = await searching.answer_dialect(request, searches, _Part("", threshold), store, missing)
        return json_reply(_merged(queries, [_PartReply.model_validate_json(part) for part in parts]))

    parameter = {"name": "vector_store_id", "in": "path", "required": True, "schema": {"type": "string"}}
    return Operation(
        "search_vector_store",
        search_vector_store,
        VectorStoreResults,
        queries=lambda body: 1 if isinstance(body.query, str) else len(body.query),
        openapi_extra={"parameters": [parameter | {"example": CURRENT}]},
    )


def _filters(node: ComparisonFilter | CompoundFilter) -> Filter:
    try:
        return _translated(node)
    except PydanticCustomError as error:
        raise Invalid(f"filters: {error.message()}") from error


def _translated(node: ComparisonFilter | CompoundFilter) -> Filter:
    if isinstance(node, CompoundFilter):
        return shared.combined_filter([_translated(child) for child in node.filters], any_of=node.type == "or")
    if node.type in _BOUNDS:
        return shared.parsed_condition(node.key, {node.type: node.value})
    takes_list = node.type in {"in", "nin"}
    if isinstance(node.value, list) is not takes_list:
        needs = "a list" if takes_list else "one value, not a list"
        raise Invalid(f"filters: {node.key[:40]}: {node.type} needs {needs}")
    translated = shared.parsed_condition(node.key, node.value)
    return shared.negated(translated) if node.type in {"ne", "nin"} else translated


@dataclass(frozen=True, slots=True)
class _Page:
    """OpenAI's format of the reply to one query; `threshold` is that of `tightened`."""

    query: str
    threshold: float | None

    def write(self, answer: Answer, documents: Sequence[Document], manifest: Manifest) -> Mapping[str, Written]:
        results, reason = shared.tightened(answer, documents, self.threshold)
        return {
            "object": "vector_store.search_results.page",
            "search_query": [self.query],
            "data": [_result(document, score) for document, score in results],
            "has_more": False,
            "next_page": None,
            "reason": reason,
            "query_id": QUERY_ID_FIELD,
            "release": manifest.release_id,
            **({"truncated": True} if answer.truncated else {}),
        }


class _Part(_Page):
    """The reply to one of several queries, with the number of results that were considered."""

    def write(self, answer: Answer, documents: Sequence[Document], manifest: Manifest) -> Mapping[str, Written]:
        return {**super().write(answer, documents, manifest), "considered": answer.considered}


class _PartReply(VectorStoreResults):
    considered: int


def _merged(queries: list[str], parts: Sequence[_PartReply]) -> dict[str, Json]:
    """Merge the replies to several queries: each applies τ itself, and a passage in several has its best score."""
    best: dict[str, VectorStoreResult] = {}
    for result in (result for part in parts for result in part.data):
        if result.file_id not in best or result.score > best[result.file_id].score:
            best[result.file_id] = result
    ranked = sorted(best.values(), key=lambda result: -result.score)[: max(part.considered for part in parts)]
    merged = VectorStoreResults.model_validate(
        parts[0].model_dump()
        | {"search_query": queries, "data": ranked, "reason": None if ranked else parts[0].reason, "query_id": None}
        | {"truncated": any(part.truncated for part in parts)}
    )
    return merged.model_dump(exclude=None if merged.truncated else {"truncated"})


def _result(document: Document, score: float) -> Written:
    return {
        "file_id": document.id,
        "filename": document.title or document.document_id,
        "score": score,
        "attributes": {
            name: ", ".join(value) if isinstance(value, list) else value
            for name, value in document.metadata.items()
            if value is not None
        },
        "content": [{"type": "text", "text": document.text}],
        "query_id": QUERY_ID_FIELD,
    }
