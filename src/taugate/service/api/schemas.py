"""Pydantic models of requests and replies (docs/api.md), from which openapi.json is generated."""

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, FailFast, Field, WithJsonSchema
from pydantic_core import PydanticCustomError

from taugate.errors import InputError, NoEncoder
from taugate.policy.names import PolicyKind
from taugate.release.encoder import MAX_DIMENSIONS
from taugate.release.state import CertifiedLoss, State
from taugate.retrieval.documents.filter_schema import FilterField
from taugate.retrieval.documents.filters import Filter
from taugate.retrieval.documents.store import MetadataValue
from taugate.retrieval.documents.visible_text import has_visible_text
from taugate.retrieval.query import MATCHED_WORDS, NOT_COMPARABLE, GroupBy, Parts, Query, Reason, Stage
from taugate.retrieval.vectors import vector_bytes
from taugate.service.settings import MAX_QUERIES

if TYPE_CHECKING:  # loads FAISS, which a service that only cuts results does not need
    from taugate.retrieval.reader import Release


# Far above any limit, so that no error message repeats a larger number.
_MAX_INT = 2**31 - 1
TOO_LARGE = "too_large"
RELEASE_ID = "id of the release"
PROVISIONAL = (
    "`provisional` if the threshold rests on too little evidence, `inherited` if it is of other documents and is not "
    "shown to hold for these, `adjusted` if it was given"
)
CERTIFIED = "the loss that is certified for this reply; absent if none is"
MAX_FLOAT32 = 3.4028234663852886e38  # scores are float32, and so are the thresholds they are compared with


def require_text(text: str) -> str:
    """Refuse a query without a visible character. The parser has already refused halves of surrogate pairs."""
    if not has_visible_text(text):
        raise PydanticCustomError("blank", "a query needs text")
    return text


class StrictRequest(BaseModel):
    """Base of requests that may have no other fields and no other types."""

    model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)


def _accept_integral_float(value: object) -> object:
    """Convert 3.0 to 3: in JSON Schema it is an integer, and some languages write it for 3."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


WHOLE_NUMBER = BeforeValidator(_accept_integral_float)  # placed after the bounds, so that JSON Schema has the bounds
_Count = Annotated[int, Field(ge=0, le=_MAX_INT), WHOLE_NUMBER]
K = Annotated[int, Field(ge=1, le=_MAX_INT), WHOLE_NUMBER]


def examples(*bodies: dict[str, Any]) -> ConfigDict:
    """Return the configuration of a model with examples for openapi.json."""
    return ConfigDict(json_schema_extra={"examples": [*bodies]})


# `pattern` is weaker than the validation: ECMAScript has no short name for invisible characters.
QueryText = Annotated[
    str, AfterValidator(require_text), WithJsonSchema({"type": "string", "minLength": 1, "pattern": r"\S"})
]


_Vector = Annotated[list[float], Field(min_length=1, max_length=MAX_DIMENSIONS, fail_fast=True)]


class SearchFields(StrictRequest):
    """The fields that decide which results a search returns."""

    query: QueryText | None = Field(
        default=None, description="text to search for; may be left out if there is a `vector`"
    )
    vector: _Vector | None = Field(
        default=None,
        description="vector of the query, by the model that made those of the documents; for releases that were "
        "calibrated on vectors, or with `accept-vectors`; beside it, a `query` is needed for shared words in the "
        "score, and for a second stage",
    )
    k: K | None = Field(
        default=None, description="number of results to consider: passages, or documents with `group_by`"
    )
    filter: FilterField = Field(default=None, description="conditions on metadata, all of which must hold")
    min_results: _Count = Field(
        default=0, description="return at least this many results, even if they score below the threshold"
    )
    threshold: float | None = Field(
        default=None,
        ge=-MAX_FLOAT32,
        le=MAX_FLOAT32,
        description="use this threshold instead of the calibrated one; ignored if the first of two stages replies",
    )
    group_by: GroupBy | None = Field(
        default=None, description="`document`: `k` counts documents, each represented by its best chunk"
    )


class SearchRequest(SearchFields):
    """A query. `k` defaults to the K that the threshold was calibrated for."""

    model_config = examples(
        {"query": "How long does a permit take?"},
        {"query": "What does it cost?", "k": 3, "threshold": 0.25, "min_results": 1, "include_text": False},
        {"query": "Who answers?", "filter": {"category": ["permits", "fees"], "year": {"gte": 2019, "lt": 2026}}},
        {"query": "What does the contract say?", "group_by": "document"},
    )

    include_text: bool = Field(default=True, description="whether results include title and text")
    explore: bool = Field(
        default=True,
        description="whether a few results below the threshold may be returned, if exploration is on "
        "(TAUGATE_EXPLORE_SHARE)",
    )
    explain: bool = Field(
        default=False, description="whether results include the parts of their scores and the words that match"
    )


def limit_batch(value: object) -> object:
    """Count queries before validating any, so that a body full of tiny items cannot block the event loop."""
    if isinstance(value, list) and len(value) > MAX_QUERIES:
        raise PydanticCustomError(TOO_LARGE, "more queries than any batch may have")
    return value


def _accept_text(value: object) -> object:
    """Convert a string to a search request that has only a query."""
    return {"query": value} if isinstance(value, str) else value


_Item = Annotated[SearchRequest, BeforeValidator(_accept_text, json_schema_input_type=QueryText | SearchRequest)]


class BatchRequest(StrictRequest):
    """Several queries at once, each a string or a whole search request."""

    model_config = examples({"queries": ["How long does a permit take?", {"query": "What does it cost?", "k": 3}]})

    queries: Annotated[list[_Item], Field(min_length=1), FailFast(), BeforeValidator(limit_batch)]


class Result(BaseModel):
    """A returned passage: a whole document, or a chunk of one."""

    id: str = Field(description="id of the passage")
    document_id: str = Field(description="id of its document; equal to `id` for a whole document")
    rank: int = Field(ge=1, description="position among all results considered, from 1")
    score: float = Field(
        description="similarity to the query: the cosine, or the sum of `parts` if there are two; or the score of a "
        "second stage"
    )
    first_stage_score: float | None = Field(
        default=None, description="score of the first stage; present if a second stage ranked the results"
    )
    relevance: float | None = Field(
        ge=0, le=1, description="probability that the passage is relevant; null if the release does not model relevance"
    )
    below_threshold: bool = Field(
        description="true if the result did not pass the threshold, or the query was refused; it is returned because "
        "of `min_results` or `explored`"
    )
    explored: bool = Field(
        default=False,
        description="true if the result is returned to learn whether the threshold drops answers; absent if false",
    )
    parts: Parts | None = Field(default=None, description="the parts of `score`; present if `explain` is true")
    matched_words: list[str] | None = Field(default=None, description=MATCHED_WORDS)
    title: str | None = Field(description="title of the document; null if it has none, or texts were not requested")
    text: str | None = Field(description="text of the passage; null if texts were not requested")
    metadata: dict[str, MetadataValue] = Field(description="metadata of the document")


class LossBounds(BaseModel):
    """95 % bounds of the answers that τ or ρ lose, as a share of the answerable queries; they hold at all times."""

    lower: float = Field(ge=0, le=1)
    upper: float = Field(ge=0, le=1)


class Drift(BaseModel):
    """Drift alarms. While one is on, the guarantees of the calibration do not hold for this traffic."""

    alarm: bool = Field(description="true if an alarm is on")
    signals: list[str] = Field(description="active alarms, named as in `taugate_drift_alarm{signal}`")
    loss: LossBounds | None = Field(default=None, description="live loss; absent until drawn queries are judged")


class Refusal(BaseModel):
    """The score of the query as a whole, and ρ: a query that scores below ρ is refused, with no result."""

    score: float = Field(description="score of the query as a whole")
    rho: float = Field(description="threshold ρ that it is compared with")


class SearchResults(BaseModel):
    """The results that passed the threshold. `reason` says why `results` is empty."""

    results: list[Result] = Field(description="the results, best first")
    threshold: float | None = Field(description="threshold in force; null if there is none")
    policy: PolicyKind = Field(description="kind of value that is compared with `threshold`")
    calibrated: bool = Field(description="true if a calibrated threshold was applied, and every result passed it")
    calibration: State = Field(description=PROVISIONAL)
    certified: CertifiedLoss | None = Field(default=None, description=CERTIFIED)
    not_comparable: str | None = Field(default=None, description=NOT_COMPARABLE)
    truncated: bool = Field(
        default=False,
        description="true if the query is longer than the encoder can read: only its beginning was searched for, and "
        "`calibrated` is false; absent if false",
    )
    approximate: bool = Field(
        default=False,
        description="true if an engine searched its graph within a filter: a document that belongs in the top k may be "
        "missing; absent if false",
    )
    stage: Stage | None = Field(
        default=None,
        description="`second` if the second stage ranked the results; `first` if it was not in time or failed, so that "
        "scores and `threshold` are the first stage's; absent if the release has one stage",
    )
    considered: int = Field(ge=0, description="number of results before the threshold was applied")
    dropped: int = Field(ge=0, description="number of results below the threshold")
    best_score: float | None = Field(description="highest score, kept or not; null without a result")
    reason: Reason | None = Field(description="why `results` is empty; null if it is not")
    refusal: Refusal | None = Field(
        default=None, description="absent if the release refuses no query as a whole, or `threshold` was given"
    )
    release: str = Field(description=RELEASE_ID)


class SearchResponse(SearchResults):
    """The results that passed the threshold. `reason` says why `results` is empty."""

    drift: Drift
    query_id: str = Field(pattern="^[0-9a-f]{32}$", description="id of this reply, for /feedback")


class BatchResponse(BaseModel):
    """Replies to a batch, in request order."""

    responses: list[SearchResponse]


def to_query(request: SearchFields, release: "Release", permitted: Filter = ()) -> Query:
    """Return the query of a release that a request stands for; `permitted` says which documents the caller may see.

    Raises:
        NoEncoder: If the query is a text alone, and the release has no encoder.
        InputError: If fields contradict each other or do not fit the release. The message starts with the field.
    """
    k = release.manifest.policy.k if request.k is None else request.k
    if request.min_results > k:
        raise InputError(f"min_results: {request.min_results} is over k, which is {k}")
    if request.group_by is not None and release.retriever.passages.remote:
        raise InputError("group_by: the documents are in an engine, where results cannot be grouped; leave it out")
    if request.filter:
        try:
            release.fields.check_kinds(request.filter)
        except InputError as error:
            raise InputError(f"filter: {error}") from error
    return Query(
        request.query or "",
        k,
        request.threshold,
        request.min_results,
        request.filter,
        permitted,
        request.group_by,
        vector=_vector(request, release),
    )


def _vector(request: SearchFields, release: "Release") -> bytes | None:
    """Return the vector of a query as in `Query`; None if it is to be encoded."""
    manifest, needs_words = release.manifest, release.retriever.needs_words
    dimension = manifest.encoder.model_dimension
    if request.vector is None:
        if request.query is None:
            raise InputError("query: Field required" if manifest.reads_texts else "vector: Field required")
        if not manifest.reads_texts:
            beside = ", beside its text" if needs_words else ""
            raise NoEncoder(
                "query: the release has no encoder, because it was calibrated on vectors; send the vector of the query "
                f"as `vector`, {dimension} numbers by the same model{beside}"
            )
        return None
    if not manifest.reads_vectors:
        raise InputError(
            "vector: the release encodes queries itself; send `query`, or calibrate with accept-vectors = true"
        )
    if needs_words and request.query is None:
        raise InputError("query: the score of this release depends on words, too; send the text beside the vector")
    added = bytes(4 * (manifest.encoder.dimension - dimension))  # the zero that `extended` adds for inner products
    return vector_bytes(request.vector, dimension) + added
