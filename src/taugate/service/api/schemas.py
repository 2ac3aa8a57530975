"""The models of requests and replies (docs/api.md), from which openapi.json is made."""

from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    FailFast,
    Field,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from taugate.retrieval.documents.filter_schema import FilterField
from taugate.retrieval.documents.store import MetadataValue
from taugate.retrieval.documents.visible_text import has_visible_text
from taugate.retrieval.explanation import Rule
from taugate.retrieval.policy.policy import PolicyKind
from taugate.retrieval.query import GroupBy, Reason
from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.records import State
from taugate.service.settings import MAX_QUERIES

# Far above any limit: a message about a larger number does not repeat it.
_MAX_INT = 2**31 - 1
TOO_LARGE = "too_large"
_PROVISIONAL = "`provisional`: too little evidence stands behind the threshold"
_MAX_FLOAT32 = 3.4028234663852886e38  # scores are float32, and so is what they are compared with


def require_text(text: str) -> str:
    """Refuse a query without a visible character. The parser has refused halves of surrogate pairs already."""
    if not has_visible_text(text):
        raise PydanticCustomError("blank", "a query needs text")
    return text


class _Request(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def _accept_integral_float(value: object) -> object:
    """Convert 3.0 to 3: it is an integer in JSON Schema, and what some languages write for 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE_NUMBER = BeforeValidator(_accept_integral_float)  # behind the bounds of an integer, so that JSON Schema has them
_Count = Annotated[int, Field(ge=0, le=_MAX_INT), WHOLE_NUMBER]
_K = Annotated[int, Field(ge=1, le=_MAX_INT), WHOLE_NUMBER]


def _examples(*examples: dict[str, Any]) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [*examples]})


# `pattern` says less than is validated: ECMAScript has no short name for the characters that nobody sees.
QueryText = Annotated[
    str, AfterValidator(require_text), WithJsonSchema({"type": "string", "minLength": 1, "pattern": r"\S"})
]


class SearchFields(_Request):
    """The fields that decide which results a search keeps."""

    query: QueryText
    k: _K | None = Field(default=None, description="results considered: passages, or documents with group_by")
    filter: FilterField = Field(default=None, description="conditions on metadata, all of which hold")
    min_results: _Count = Field(default=0, description="return at least so many, even below the threshold")
    threshold: float | None = Field(
        default=None, ge=-_MAX_FLOAT32, le=_MAX_FLOAT32, description="in place of the calibrated one"
    )
    group_by: GroupBy | None = Field(
        default=None, description="`document`: `k` counts documents, and each is shown by its best chunk"
    )


class SearchRequest(SearchFields):
    """One query. `k` defaults to the K that the threshold was calibrated at."""

    model_config = _examples(
        {"query": "How long does a permit take?"},
        {"query": "What does it cost?", "k": 3, "threshold": 0.25, "min_results": 1, "include_text": False},
        {"query": "Who answers?", "filter": {"category": ["permits", "fees"], "year": {"gte": 2019, "lt": 2026}}},
        {"query": "What does the contract say?", "group_by": "document"},
    )

    include_text: bool = Field(default=True, description="whether results carry title and text")
    explore: bool = Field(
        default=True, description="whether a few results below the threshold may be shown, where the service explores"
    )


def _limit_batch(value: object) -> object:
    """Count queries before any is validated: a body full of tiny items must not hold the event loop."""
    if isinstance(value, list) and len(value) > MAX_QUERIES:
        raise PydanticCustomError(TOO_LARGE, "more queries than any batch may have")
    return value


def _accept_text(value: object) -> object:
    """Convert a text to a request with nothing but its query."""
    return {"query": value} if isinstance(value, str) else value


_Item = Annotated[SearchRequest, BeforeValidator(_accept_text, json_schema_input_type=QueryText | SearchRequest)]


class BatchRequest(_Request):
    """Several queries at once, each a text or a whole search request."""

    model_config = _examples({"queries": ["How long does a permit take?", {"query": "What does it cost?", "k": 3}]})

    queries: Annotated[list[_Item], Field(min_length=1), FailFast(), BeforeValidator(_limit_batch)]


class Result(BaseModel):
    """One passage that was kept: a whole document, or a chunk of one.

    `document_id`: the document that the passage belongs to, which is `id` for a whole document; `rank`: its place among
    all that were considered, from 1; `relevance`: the probability that it is relevant, null where the release has no
    model of it.
    """

    id: str
    document_id: str
    rank: int = Field(ge=1)
    score: float
    relevance: float | None = Field(ge=0, le=1)
    below_threshold: bool = Field(
        description="true where it did not pass the threshold, or the query was refused: `min_results` keeps it, or "
        "`explored` says why it is shown"
    )
    explored: bool = Field(
        default=False, description="true where it is shown to learn whether the threshold drops answers; else absent"
    )
    title: str | None
    text: str | None
    metadata: dict[str, MetadataValue]


class Drift(BaseModel):
    """Drift alarms. While one is on, what the calibration states does not hold for this traffic."""

    alarm: bool
    signals: list[str] = Field(description="the alarms that are on, as in `taugate_drift_alarm{signal}`")


class LiveDrift(Drift):
    """Drift alarms, and the overlap of the latest queries of the process that answers.

    The same at calibration is in `manifest.metrics`. Each is null while too little was seen.
    """

    coe: Interval | None = Field(description="COE of documents that were judged relevant")
    coe_expected: Interval | None = Field(description="of the calibration's correct documents, against live queries")
    roe: Interval | None = Field(description="ROE of random documents")


class SearchResponse(BaseModel):
    """The documents that were kept, and the threshold they passed. `reason` says why `results` is empty."""

    results: list[Result]
    threshold: float | None
    policy: PolicyKind
    calibrated: bool = Field(description="true where a calibrated threshold was in force, and every result passed it")
    calibration: State = Field(description=_PROVISIONAL)
    truncated: bool = Field(
        default=False,
        description="there and true if the query is longer than the encoder reads: the results are of its beginning, "
        "and `calibrated` is false",
    )
    approximate: bool = Field(
        default=False,
        description="there and true where an engine searched within a filter: a document that belongs among the first "
        "k may be missing, as that search goes through a graph",
    )
    considered: int = Field(ge=0)
    dropped: int = Field(ge=0)
    best_score: float | None
    reason: Reason | None
    release: str
    drift: Drift
    query_id: str = Field(pattern="^[0-9a-f]{32}$")


class BatchResponse(BaseModel):
    """Replies to a batch, in the order of its queries."""

    responses: list[SearchResponse]


class ExplainRequest(SearchFields):
    """A search, and a document of which to explain what the search does with it."""

    model_config = _examples({"query": "How long does a permit take?", "document_id": "permit-002"})

    document_id: str = Field(min_length=1, max_length=1024, description="of a chunk, or of a document")


class ExplainResponse(BaseModel):
    """What a search does with one document.

    Where the filter of the key hides the document, nothing else is told of it, and `rule` is `key_filter`.
    """

    document_id: str
    id: str | None = Field(
        description="the chunk that is explained: the one that the search returns, else the most similar"
    )
    rank: int | None = Field(ge=1, description="exact, among all that the filters leave")
    ranked: int | None = Field(ge=1, description="how many have a rank")
    score: float | None
    relevance: float | None = Field(ge=0, le=1)
    policy: PolicyKind
    compared: float | None = Field(description="what the policy compares with `threshold`")
    threshold: float | None
    kept: bool
    rule: Rule = Field(description="what became of the document; any but `kept` and `min_results` drops it")
    why: str = Field(description="the same in a sentence for people, with how near the document was")
    truncated: bool | None = Field(description="the document's text is longer than the encoder reads")
    query_truncated: bool = Field(default=False, description="the query is longer than the encoder reads")
    filtered: bool = Field(description="the filter of the request or of the key leaves it out")
    release: str


_ONE_OF_BOTH = "give either query_id or query: the id of the reply that is judged, or the text that was searched for"


class FeedbackRequest(_Request):
    """A judgement by a user or a language model: whether a result answers its query.

    The result is one of the reply with the id `query_id`, or of a search for `query` now.
    """

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [
                {"query_id": "0" * 32, "document_id": "permit-002", "relevant": True},
                {"query": "How long does a permit take?", "document_id": "permit-002", "relevant": True},
            ],
            "oneOf": [
                {"required": ["query_id"], "properties": {"query_id": {"type": "string"}, "query": {"type": "null"}}},
                {"required": ["query"], "properties": {"query": {"type": "string"}, "query_id": {"type": "null"}}},
            ],
        }
    )

    query_id: Annotated[str, Field(min_length=1, max_length=64)] | None = Field(
        default=None, description="of the reply that showed the document"
    )
    query: QueryText | None = Field(
        default=None, description="in place of `query_id`: what was searched for, without other fields of a search"
    )
    document_id: str = Field(min_length=1, max_length=1024)
    relevant: bool

    @model_validator(mode="after")
    def _names_one_reply(self) -> Self:
        if (self.query_id is None) == (self.query is None):
            raise PydanticCustomError("one_of_both", _ONE_OF_BOTH)
        return self


class FeedbackResponse(BaseModel):
    """The judgement was accepted, or is `repeated`: known already, so that it does not count again."""

    status: Literal["accepted", "repeated"]


class ReleaseResponse(BaseModel):
    """The release in service: its id and state, when it was loaded, the precision of its encoder, and its manifest.

    `shadow`: the release that is tried beside it; `drift`: null where traffic is not watched.
    """

    release: str
    calibration: State = Field(description=_PROVISIONAL)
    shadow: str | None
    loaded_at: str = Field(json_schema_extra={"format": "date-time"})
    precision: Literal["float32", "int8"]
    drift: LiveDrift | None
    manifest: dict[str, Any]


class CurvePoint(BaseModel):
    """A threshold, and what a cut at it does to the calibration queries."""

    tau: float = Field(description="what the policy compares with: similarity, its share of the best, or relevance")
    kept: float = Field(ge=0, le=1, description="share of the top-K results of all calibration queries that reach it")
    loss: float = Field(
        ge=0,
        le=1,
        description="share of the answerable calibration queries with a relevant document in their top-K, and none in "
        "what is kept of it",
    )


_Quantiles = Annotated[list[float], Field(min_length=101, max_length=101)]


class ReferenceResponse(BaseModel):
    """The calibration of the release in service, as a picture shows it.

    `topk`, `correct` and `random` are percentiles 0 to 100 of the similarities of calibration queries with their top-K,
    with the most similar relevant document and with a random document.
    """

    release: str
    policy: PolicyKind
    threshold: float | None = Field(description="of the policy; null where it keeps everything")
    queries: int = Field(ge=1, description="answerable calibration queries")
    k: int = Field(ge=1, description="results of each")
    topk: _Quantiles
    correct: _Quantiles
    random: _Quantiles
    curve: list[CurvePoint] = Field(
        description="by rising threshold, at most 203 points; empty for the policy `probability` of a release that "
        "does not keep the relevance of its calibration queries"
    )


class ReloadResponse(BaseModel):
    """The release in service now and the one before; `unchanged`: it was the current one already.

    `shadow`: the release that is tried beside it.
    """

    status: Literal["loaded", "unchanged"]
    release: str
    previous: str
    shadow: str | None


class Health(BaseModel):
    """The state of the process; `release` is its id once one is loaded."""

    status: Literal["alive", "ready"]
    release: str | None = None


class ErrorDetail(BaseModel):
    """An error: a stable code, a message for people, and the id under which the log has the request."""

    code: str
    message: str
    request_id: str


class ErrorResponse(BaseModel):
    """The body of every error."""

    error: ErrorDetail
