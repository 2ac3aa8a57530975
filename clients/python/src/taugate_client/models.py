"""Models of requests and replies, with the fields that docs/api.md describes.

Replies are frozen. Unknown fields are ignored, so a newer service does not break this version.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol, Required, TypeAlias, TypedDict, TypeVar

from taugate_client.errors import UnexpectedReply

Scalar: TypeAlias = str | int | float | bool
# {"field": condition}, all of which must hold; also {"$or": [filter, …]} and {"$not": filter}.
Filter: TypeAlias = Mapping[str, "Scalar | Sequence[Scalar] | Mapping[str, Any] | Sequence[Filter]"]  # Any: JSON
Calibration: TypeAlias = Literal["calibrated", "provisional"]


class ExplainOptions(TypedDict, total=False):
    """The options that decide which results a search returns. Omitted ones have the service's defaults.

    Attributes:
        k: Number of results to consider; the calibrated K by default.
        filter: Conditions on the metadata of documents.
        threshold: Replaces the calibrated τ, in units of the release's policy; 0.0 is a threshold.
        min_results: Return at least this many results, even if they score below the threshold.
        group_by: `"document"` returns one chunk per document.
    """

    k: int | None
    filter: Filter | None
    threshold: float | None
    min_results: int
    group_by: Literal["document"] | None


class SearchOptions(ExplainOptions, total=False):
    """The options of a search.

    Attributes:
        include_text: False omits titles and texts from the reply.
        explore: False excludes the few results below the threshold that a service may return to have them judged.
        explain: True adds the parts of each score, and the words that match, to the results.
    """

    include_text: bool
    explore: bool
    explain: bool


class SearchRequest(SearchOptions, total=False):
    """A query of a batch, with options."""

    query: Required[str]


class Model(Protocol):
    """Any of the dataclasses below."""

    __dataclass_fields__: ClassVar[dict[str, Any]]  # Any: as in typeshed


M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a score, which is their sum in float32.

    Attributes:
        cosine: Cosine similarity to the query.
        lexical: Weighted share of words in common, None if the score has no lexical part.
    """

    cosine: float
    lexical: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A passage: a whole document, or a chunk of one.

    Attributes:
        id: Id of the passage.
        document_id: Id of its document; equal to `id` for a whole document.
        rank: Position before the threshold was applied, from 1.
        score: Similarity to the query: the cosine or, if the release has a lexical part, the sum of `parts`.
        relevance: Probability that the passage is relevant, None if the release does not model it.
        below_threshold: The passage did not pass the threshold; it is returned because of `min_results` or exploration.
        title: Title of the document, None if it has none or texts were not requested.
        text: Text of the passage, None if texts were not requested.
        metadata: Metadata of the document.
        explored: Returned below the threshold on purpose, so that such results are judged, too.
        parts: Parts of the score, None unless `explain` was requested.
        matched_words: Words of the query that the passage contains, None unless `parts` has a lexical part.
    """

    id: str
    document_id: str
    rank: int
    score: float
    relevance: float | None
    below_threshold: bool
    title: str | None
    text: str | None
    metadata: Mapping[str, Scalar | Sequence[str] | None]
    explored: bool = False
    parts: Parts | None = None
    matched_words: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class Drift:
    """Drift alarms, named in `signals`. While `alarm` is true, the guarantees of the calibration may not hold."""

    alarm: bool
    signals: Sequence[str]


@dataclass(frozen=True, slots=True)
class Refusal:
    """The score of the query as a whole, and ρ: a query that scores below ρ is refused, with no result."""

    score: float
    rho: float


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the bounds of its 95 % interval."""

    mean: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class LiveDrift:
    """Drift alarms, and the overlap measured on the latest queries of the process that replies.

    The manifest has the values at calibration. A value is None while there is too little traffic to measure it.

    Attributes:
        alarm: Whether an alarm is on.
        signals: Names of the active alarms.
        coe: COE of documents judged relevant.
        coe_expected: COE expected from the correct documents of the calibration.
        roe: ROE of random documents.
    """

    alarm: bool
    signals: Sequence[str]
    coe: Interval | None
    coe_expected: Interval | None
    roe: Interval | None


@dataclass(frozen=True, slots=True)
class SearchResponse:
    """The results that passed the threshold, best first, or the reason why there are none.

    Attributes:
        results: The results.
        threshold: τ, None if the policy is `none`.
        policy: Kind of value that is compared with τ.
        calibrated: The calibrated threshold was applied, and its evidence covers this search.
        calibration: `provisional` if the threshold rests on too little evidence.
        considered: Number of results before the threshold was applied.
        dropped: Number of results below the threshold.
        best_score: Highest score, kept or not.
        reason: `all_below_threshold`, `unanswerable`, `unreadable` or `no_documents_match_filter` if `results` is
            empty.
        release: Id of the release.
        drift: Drift alarms.
        query_id: Id of this reply, for `feedback`.
        approximate: An engine searched within a filter, and may have missed a result.
        truncated: The query is longer than the encoder can read, and only its beginning was searched for.
        refusal: None if the release refuses no query as a whole.
    """

    results: Sequence[Result]
    threshold: float | None
    policy: str
    calibrated: bool
    calibration: Calibration
    considered: int
    dropped: int
    best_score: float | None
    reason: str | None
    release: str
    drift: Drift
    query_id: str
    approximate: bool = False
    truncated: bool = False
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class ExplainResponse:
    """Why a document is, or is not, among the results of a search. Fields that a filter hides are None.

    Attributes:
        document_id: Id of the document.
        id: Id of the chunk that is explained.
        rank: Exact rank, from 1.
        ranked: Number of passages that have a rank.
        score: Similarity to the query: the cosine or, if the release has a lexical part, the sum of `parts`.
        relevance: Probability that the passage is relevant, None if the release does not model it.
        policy: Kind of value that is compared with τ.
        compared: Value that the policy compares with `threshold`.
        threshold: τ, None if the policy is `none`.
        kept: The search returns the passage.
        rule: The reason as a word.
        why: The reason as a sentence.
        truncated: The text is longer than the encoder can read.
        filtered: A filter excludes the document.
        release: Id of the release.
        query_truncated: The query is longer than the encoder can read.
        parts: Parts of the score, None if it has no lexical part.
        matched_words: Words of the query that the passage contains, None if `parts` is.
    """

    document_id: str
    id: str | None
    rank: int | None
    ranked: int | None
    score: float | None
    relevance: float | None
    policy: str
    compared: float | None
    threshold: float | None
    kept: bool
    rule: str
    why: str
    truncated: bool | None
    filtered: bool
    release: str
    query_truncated: bool = False
    parts: Parts | None = None
    matched_words: Sequence[str] | None = None


@dataclass(frozen=True, slots=True)
class FeedbackResponse:
    """Outcome of a judgement: `accepted`, or `repeated` if it was received before and does not count again."""

    status: str


@dataclass(frozen=True, slots=True)
class ReleaseResponse:
    """The release in service.

    Attributes:
        release: Id of the release.
        calibration: `provisional` if the threshold rests on too little evidence.
        shadow: Id of the shadow release, None if there is none.
        loaded_at: Time at which the release was loaded, in ISO 8601.
        precision: Precision of the encoder.
        manifest: Manifest of the release.
        drift: Alarms and live overlap, None if drift detection is off or the service is an older version.
    """

    release: str
    calibration: Calibration
    shadow: str | None
    loaded_at: str
    precision: str
    manifest: Mapping[str, Any]  # Any: the manifest has its own schema
    drift: LiveDrift | None = None


def read(model: type[M], body: object) -> M:
    """Build a model from parsed JSON, and ignore unknown fields.

    Raises:
        UnexpectedReply: If `body` is not an object, or lacks a field.
    """
    if not isinstance(body, Mapping):
        raise UnexpectedReply(f"expected a JSON object for {model.__name__}, got {type(body).__name__}")
    missing = [field.name for field in fields(model) if field.default is MISSING and field.name not in body]
    if missing:
        raise UnexpectedReply(f"the reply lacks {', '.join(missing)}: is this the URL of a Taugate service?")
    return model(**{field.name: body[field.name] for field in fields(model) if field.name in body})


def read_search(body: object) -> SearchResponse:
    """Build the reply to a search from parsed JSON.

    Raises:
        UnexpectedReply: If the JSON does not have the expected form.
    """
    reply = read(SearchResponse, body)
    results: object = reply.results  # unchecked JSON
    if not isinstance(results, list):
        raise UnexpectedReply("the results are not a list: is this the URL of a Taugate service?")
    refusal = None if reply.refusal is None else read(Refusal, reply.refusal)
    drift = read(Drift, reply.drift)
    return replace(reply, results=tuple(map(_read_result, results)), drift=drift, refusal=refusal)


def read_explanation(body: object) -> ExplainResponse:
    """Build the reply of /explain from parsed JSON.

    Raises:
        UnexpectedReply: If the JSON does not have the expected form.
    """
    reply = read(ExplainResponse, body)
    return reply if reply.parts is None else replace(reply, parts=read(Parts, reply.parts))


def _read_result(body: object) -> Result:
    result = read(Result, body)
    return result if result.parts is None else replace(result, parts=read(Parts, result.parts))


def read_release(body: object) -> ReleaseResponse:
    """Build the reply of /release from parsed JSON.

    Raises:
        UnexpectedReply: If the JSON does not have the expected form.
    """
    reply = read(ReleaseResponse, body)
    if reply.drift is None:
        return reply
    live = read(LiveDrift, reply.drift)
    intervals = (live.coe, live.coe_expected, live.roe)
    coe, expected, roe = (interval and read(Interval, interval) for interval in intervals)
    return replace(reply, drift=replace(live, coe=coe, coe_expected=expected, roe=roe))
