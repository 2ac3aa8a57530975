"""Requests and replies of the API (docs/api.md). These models are what openapi.json is made from."""

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field
from pydantic_core import PydanticCustomError

from retrieval.documents import Scalar
from retrieval.policy import PolicyKind
from retrieval.retriever import Reason
from service.filter_schema import FilterField

# Far above any limit: what is larger is told so in a few words instead of being repeated.
_LARGEST_INT = 2**31 - 1
MOST_QUERIES = 1024  # what TAUGATE_MAX_BATCH may be set to
TOO_LARGE = "too_large"
_LARGEST_FLOAT32 = 3.4028234663852886e38  # scores are float32, and so is what they are compared with


def _query_text(text: str) -> str:
    """Not blank; that it is Unicode, without halves of surrogate pairs, the parser has seen to."""
    if not text.strip():
        raise PydanticCustomError("blank", "a query needs text")
    return text


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


QueryText = Annotated[str, AfterValidator(_query_text)]


class SearchRequest(_Request):
    """One query. `k` defaults to the K that the threshold was calibrated at."""

    query: QueryText
    k: int | None = Field(default=None, ge=1, le=_LARGEST_INT, description="documents considered")
    filter: FilterField = Field(default=None, description="conditions on metadata, all of which hold")
    min_results: int = Field(
        default=0, ge=0, le=_LARGEST_INT, description="return at least so many, even below the threshold"
    )
    threshold: float | None = Field(
        default=None, ge=-_LARGEST_FLOAT32, le=_LARGEST_FLOAT32, description="in place of the calibrated one"
    )
    include_text: bool = Field(default=True, description="whether results carry title and text")


def _few(value: object) -> object:
    """Counted before any item is looked at: a body full of tiny items must not hold the event loop."""
    if isinstance(value, list) and len(value) > MOST_QUERIES:
        raise PydanticCustomError(TOO_LARGE, "more queries than any batch may have")
    return value


def _as_request(value: object) -> object:
    """A text is a request with nothing but its query."""
    return {"query": value} if isinstance(value, str) else value


_Item = Annotated[SearchRequest, BeforeValidator(_as_request, json_schema_input_type=str | SearchRequest)]


class BatchRequest(_Request):
    """Several queries at once, each a text or a whole search request."""

    queries: Annotated[list[_Item], Field(min_length=1), FailFast(), BeforeValidator(_few)]


class Result(BaseModel):
    """One kept document.

    `rank`: its place in the uncut list, from 1; `relevance`: the probability that it is relevant, null where the
    release has no model of it.
    """

    id: str
    rank: int
    score: float
    relevance: float | None
    title: str | None
    text: str | None
    metadata: dict[str, Scalar]


class SearchResponse(BaseModel):
    """What was kept, and what it was measured against. `reason` says why `results` is empty."""

    results: list[Result]
    threshold: float | None
    policy: PolicyKind
    calibrated: bool
    considered: int
    dropped: int
    best_score: float | None
    reason: Reason | None
    release: str
    query_id: str


class BatchResponse(BaseModel):
    """Replies in the order of the queries."""

    responses: list[SearchResponse]


class FeedbackRequest(_Request):
    """Whether a result of a reply answers its query, as a user or a language model judges."""

    query_id: str = Field(min_length=1, max_length=64)
    document_id: str = Field(min_length=1, max_length=1024)
    relevant: bool


class FeedbackResponse(BaseModel):
    """`repeated`: it was known already, and does not count again."""

    status: Literal["accepted", "repeated"]


class ReleaseResponse(BaseModel):
    """The release in service: its id, when it was loaded, the precision of the encoder in use, and its manifest.

    `shadow`: the release that is tried beside it.
    """

    release: str
    shadow: str | None
    loaded_at: str
    precision: Literal["float32", "int8"]
    manifest: dict[str, Any]


class ReloadResponse(BaseModel):
    """The release in service now and the one before; `unchanged`: it was the current one already.

    `shadow`: the release that is tried beside it.
    """

    status: Literal["loaded", "unchanged"]
    release: str
    previous: str
    shadow: str | None


class Health(BaseModel):
    """State of the process; `release` once one is loaded."""

    status: Literal["alive", "ready"]
    release: str | None = None


class ErrorDetail(BaseModel):
    """A stable code, a message for people, and the id under which the log knows the request."""

    code: str
    message: str
    request_id: str


class ErrorResponse(BaseModel):
    """The body of every error."""

    error: ErrorDetail
