"""POST /v1/vector_stores/{id}/search: OpenAI's search of a vector store, for its SDKs, LiteLLM and other clients."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, get_args

import orjson
from fastapi import FastAPI, Request
from fastapi.responses import Response
from pydantic import BaseModel, BeforeValidator, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from taugate.retrieval.documents.filters import Filter
from taugate.service.access.authorization import VECTOR_STORE_PATH
from taugate.service.access.rate_limit import RateLimiter
from taugate.service.api.bodies import add_json_route
from taugate.service.api.dialects.results import FilterValue, combined, condition, dialect_score, negated, tightened
from taugate.service.api.openapi import errors, replies
from taugate.service.api.replies import EncodedJsonResponse, json_reply
from taugate.service.api.schemas import WHOLE_NUMBER, QueryText, SearchFields, require_text
from taugate.service.api.search import CURRENT, SearchRoutes
from taugate.service.errors import Invalid
from taugate.service.pipeline.reply import SearchForm
from taugate.service.settings import MAX_QUERIES

_MAX_RESULTS = 50  # as OpenAI has it
_Scalar = str | int | float | bool
_Comparison = Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin"]
_Compound = Literal["and", "or"]
_TYPES = ", ".join((*get_args(_Comparison), *get_args(_Compound)))
V = TypeVar("V")

# pydantic's own messages would repeat what the caller sent, and name the members of a union one by one.


def _kind(asked: object) -> str | None:
    named = asked.get("type") if isinstance(asked, dict) else None
    return "comparison" if named in get_args(_Comparison) else "compound" if named in get_args(_Compound) else None


def _name_untranslatable(asked: V) -> V:
    """Check that a filter on a field is one that can be translated; one on no field is left to `_BY_TYPE`."""
    field = asked.get("key") if isinstance(asked, dict) else None
    if isinstance(field, str) and _kind(asked) is None:
        raise PydanticCustomError("filter_type", "{field}: " + _UNTRANSLATABLE, {"field": field[:40]})
    return asked


_UNTRANSLATABLE = f"this filter cannot be translated; use {_TYPES}"
_BY_TYPE = Discriminator(_kind, custom_error_type="filter_type", custom_error_message=_UNTRANSLATABLE)


def _require_queries(asked: V) -> V:
    texts = [asked] if isinstance(asked, str) else asked
    if not isinstance(texts, list) or not texts or not all(isinstance(each, str) for each in texts):
        raise PydanticCustomError("query", "give a text, or a list of texts")
    if len(texts) > MAX_QUERIES:
        raise PydanticCustomError("query", "{sent} texts, at most {most}", {"sent": len(texts), "most": MAX_QUERIES})
    for each in texts:
        require_text(each)
    return asked


_Queries = QueryText | Annotated[list[QueryText], Field(min_length=1, max_length=MAX_QUERIES)]


class _Lenient(BaseModel):
    """Fields that this API does not know are passed over: clients of others grow fields of their own."""

    model_config = ConfigDict(extra="ignore", strict=True, allow_inf_nan=False)


class ComparisonFilter(_Lenient):
    """A comparison of one attribute, which is a metadata field, with a value."""

    type: _Comparison
    key: str
    value: FilterValue


class CompoundFilter(_Lenient):
    """Filters of which all hold, or at least one."""

    type: _Compound
    filters: Annotated[list["_AnyFilter"], Field(min_length=1)]


_AnyFilter = Annotated[
    Annotated[ComparisonFilter, Tag("comparison")] | Annotated[CompoundFilter, Tag("compound")],
    _BY_TYPE,
    BeforeValidator(_name_untranslatable),
]


class RankingOptions(_Lenient):
    """`score_threshold` drops further results; it never lets one through that τ drops."""

    score_threshold: float | None = Field(default=None, ge=0, le=1)


class VectorStoreQuery(_Lenient):
    """A search of a vector store. `max_num_results` defaults to the K that the threshold was calibrated at."""

    query: Annotated[_Queries, BeforeValidator(_require_queries)]
    filters: _AnyFilter | None = None
    max_num_results: Annotated[int, Field(ge=1, le=_MAX_RESULTS), WHOLE_NUMBER] | None = None
    ranking_options: RankingOptions | None = None


class Content(BaseModel):
    """A part of a result: its text."""

    type: Literal["text"]
    text: str


class VectorStoreResult(BaseModel):
    """A passage that was kept. `file_id` is its id, `query_id` that of the reply, for /feedback."""

    file_id: str
    filename: str
    score: float = Field(ge=0)
    attributes: dict[str, _Scalar]
    content: list[Content]
    query_id: str


class VectorStoreResults(BaseModel):
    """The passages that were kept; `reason` says why there are none. `query_id` is null for several queries.

    `truncated` says that a query was cut off.
    """

    object: Literal["vector_store.search_results.page"]
    search_query: list[str]
    data: list[VectorStoreResult]
    has_more: bool
    next_page: None
    reason: str | None
    query_id: str | None
    release: str
    truncated: bool = Field(default=False, description="there and true if a query is longer than the encoder reads")


def add_openai_route(app: FastAPI, searching: SearchRoutes, limiter: RateLimiter) -> None:
    """Add the route to an application.

    Args:
        app: Gets the route.
        searching: Answers it as /search is answered.
        limiter: Of keys.
    """

    async def search_vector_store(request: Request, body: VectorStoreQuery) -> Response:
        """Search the release in service: `current`, or its id. The calibrated threshold is always in force."""
        queries = [body.query] if isinstance(body.query, str) else body.query
        store = request.path_params["vector_store_id"]
        missing = "there is no such vector store; name `current`, or the id of the release in service (GET /release)"
        wanted = None if body.filters is None else _filters(body.filters)
        searches = [
            SearchFields.model_construct(query=query, k=body.max_num_results, filter=wanted) for query in queries
        ]
        threshold = (None if body.ranking_options is None else body.ranking_options.score_threshold) or None
        if len(queries) > 1:
            found = await searching.answer_dialect(request, searches, SearchForm(), store, missing)
            return json_reply(_page(queries, [orjson.loads(each) for each in found], threshold))
        (page,) = await searching.answer_dialect(request, searches, _Page(queries[0], threshold), store, missing)
        return EncodedJsonResponse(page)

    parameter = {"name": "vector_store_id", "in": "path", "required": True, "schema": {"type": "string"}}
    add_json_route(
        app,
        VECTOR_STORE_PATH,
        VectorStoreQuery,
        search_vector_store,
        limiter.charge,
        tags=["dialects"],
        responses=replies(200, VectorStoreResults) | errors(400, 404, 413, 422, 429, 500, 503, 504),
        openapi_extra={"parameters": [parameter | {"example": CURRENT}]},
    )


def _filters(asked: ComparisonFilter | CompoundFilter) -> Filter:
    try:
        return _translated(asked)
    except PydanticCustomError as error:
        raise Invalid(f"filters: {error.message()}") from error


def _translated(asked: ComparisonFilter | CompoundFilter) -> Filter:
    if isinstance(asked, CompoundFilter):
        return combined([_translated(each) for each in asked.filters], any_of=asked.type == "or")
    match asked.type:
        case "eq" if not isinstance(asked.value, list):
            return condition(asked.key, asked.value)
        case "ne" if not isinstance(asked.value, list):
            return negated(condition(asked.key, asked.value))
        case "in" | "nin" if isinstance(asked.value, list):
            found = condition(asked.key, asked.value)
            return found if asked.type == "in" else negated(found)
        case "gt" | "gte" | "lt" | "lte":
            return condition(asked.key, {asked.type: asked.value})
    needs = "a list" if asked.type in {"in", "nin"} else "one value, not a list"
    raise Invalid(f"filters: {asked.key[:40]}: {asked.type} needs {needs}")


@dataclass(frozen=True, slots=True)
class _Page:
    """OpenAI's form of the reply to one query.

    Attributes:
        threshold: As for `tightened`.
    """

    query: str
    threshold: float | None

    def write(self, reply: dict[str, Any]) -> dict[str, Any]:
        return _page([self.query], [reply], self.threshold)


def _page(queries: Sequence[str], found: Sequence[dict[str, Any]], threshold: float | None) -> dict[str, Any]:
    """Merge the replies to several queries: each is cut alone, and a passage that several found has its best score."""
    best: dict[str, tuple[float, dict[str, Any], str]] = {}
    reasons = []
    for reply in found:
        results, reason = tightened(reply, threshold)
        reasons.append(reason)
        for result in results:
            score = dialect_score(result)
            if result["id"] not in best or score > best[result["id"]][0]:
                best[result["id"]] = score, result, reply["query_id"]
    ranked = list(best.values())  # of one query in the order of /search, which is that of similarity
    if len(found) > 1:
        most = max(reply["considered"] for reply in found)
        ranked = sorted(ranked, key=lambda each: -each[0])[:most]
    return {
        "object": "vector_store.search_results.page",
        "search_query": list(queries),
        "data": [_result(*each) for each in ranked],
        "has_more": False,
        "next_page": None,
        "reason": None if ranked else reasons[0],
        "query_id": found[0]["query_id"] if len(found) == 1 else None,
        "release": found[0]["release"],
        **({"truncated": True} if any("truncated" in reply for reply in found) else {}),
    }


def _result(score: float, result: dict[str, Any], query_id: str) -> dict[str, Any]:
    return {
        "file_id": result["id"],
        "filename": result["title"] or result["document_id"],
        "score": score,
        "attributes": {
            name: ", ".join(value) if isinstance(value, list) else value
            for name, value in result["metadata"].items()
            if value is not None
        },
        "content": [{"type": "text", "text": result["text"]}],
        "query_id": query_id,
    }
