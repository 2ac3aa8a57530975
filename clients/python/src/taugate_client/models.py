"""What is sent to the service and what comes back, field by field as docs/api.md describes it.

Replies are frozen. Fields that this version does not know are left out, so a newer service does not break it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, ClassVar, Literal, Protocol, Required, TypeAlias, TypedDict, TypeVar

from taugate_client.errors import UnexpectedReply

Scalar: TypeAlias = str | int | float | bool
# {"field": condition}, all of which hold; also {"$or": [filter, …]} and {"$not": filter}.
Filter: TypeAlias = Mapping[str, "Scalar | Sequence[Scalar] | Mapping[str, Any] | Sequence[Filter]"]  # Any: JSON
Calibration: TypeAlias = Literal["calibrated", "provisional"]


class ExplainOptions(TypedDict, total=False):
    """The options of a search that decide which results it keeps. One that is left out has the service's default.

    Attributes:
        k: How many results the service considers; the calibrated K by default.
        filter: Which documents it searches, by their metadata.
        threshold: Replaces the calibrated τ, in units of the release's policy; 0.0 is a threshold.
        min_results: Return at least so many, even below the threshold.
        group_by: `"document"` returns one chunk a document.
    """

    k: int | None
    filter: Filter | None
    threshold: float | None
    min_results: int
    group_by: Literal["document"] | None


class SearchOptions(ExplainOptions, total=False):
    """The options of a search.

    Attributes:
        include_text: False leaves titles and texts out of the reply.
        explore: False keeps out the few results below the threshold that a service may show to have them judged.
    """

    include_text: bool
    explore: bool


class SearchRequest(SearchOptions, total=False):
    """A query of a batch that has options of its own."""

    query: Required[str]


class Model(Protocol):
    """Any of the dataclasses below."""

    __dataclass_fields__: ClassVar[dict[str, Any]]  # Any: what typeshed says of a dataclass


M = TypeVar("M", bound=Model)


@dataclass(frozen=True, slots=True)
class Result:
    """One passage: a whole document, or a chunk of one.

    Attributes:
        id: Of the passage and of its document, equal for a whole document.
        document_id: Of the passage and of its document, equal for a whole document.
        rank: Its place before the cut, from 1.
        score: Cosine similarity to the query.
        relevance: The probability that it is relevant, None if the release has no model for that.
        below_threshold: It did not pass; `min_results` keeps it, or exploration shows it.
        metadata: The document's own.
        explored: Shown below the threshold on purpose, so that people judge such results, too.
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


@dataclass(frozen=True, slots=True)
class Drift:
    """Drift alarms. While `alarm` is true, what was measured at calibration may not hold; `signals` names them."""

    alarm: bool
    signals: Sequence[str]


@dataclass(frozen=True, slots=True)
class Interval:
    """An estimate and the limits of its 95 % interval."""

    mean: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class LiveDrift:
    """Drift alarms, as in a reply, and the overlap of the latest queries of the process that answers.

    Attributes:
        coe: Of documents that were judged relevant.
        coe_expected: Of the calibration's correct documents.
        roe: Of random documents. Each is None while too little was seen. The manifest has the same at calibration.
    """

    alarm: bool
    signals: Sequence[str]
    coe: Interval | None
    coe_expected: Interval | None
    roe: Interval | None


@dataclass(frozen=True, slots=True)
class SearchResponse:
    """The results that passed the threshold, best first, and why there are none if there are none.

    Attributes:
        threshold: τ, None if the policy is `none`.
        policy: What is compared with it.
        calibrated: The calibrated threshold was in force, and its evidence covers this search.
        calibration: `provisional` if too little evidence stands behind it.
        considered: How many results there were before the cut, and how many of them it removed.
        dropped: How many results there were before the cut, and how many of them it removed.
        best_score: The highest similarity, kept or not.
        reason: `all_below_threshold`, `unanswerable`, `unreadable` or `no_documents_match_filter` if `results` is
            empty.
        query_id: Names this reply in `feedback`.
        approximate: An engine searched within a filter, and may have missed a result.
        truncated: The query is longer than the encoder reads, and the results are of its beginning.
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


@dataclass(frozen=True, slots=True)
class ExplainResponse:
    """What a search does with one document, and why.

    Attributes:
        rank: Its place, from 1, among so many.
        ranked: Its place, from 1, among so many.
        compared: What the policy compares with `threshold`.
        kept: The search returns it.
        rule: The reason as a word.
        why: The same as a sentence.
        truncated: The text is longer than the encoder's window.
        filtered: A filter leaves it out. What a filter hides is None.
        query_truncated: So is the query.
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


@dataclass(frozen=True, slots=True)
class FeedbackResponse:
    """`accepted`, or `repeated` for a judgement that the service knows already and does not count again."""

    status: str


@dataclass(frozen=True, slots=True)
class ReleaseResponse:
    """The release in service: its id, state and manifest, when it was loaded (ISO 8601), and its encoder's precision.

    Attributes:
        shadow: The release that is tried beside it, None if there is none.
        drift: Alarms and live overlap, None if the service does not watch traffic, or is too old to tell.
    """

    release: str
    calibration: Calibration
    shadow: str | None
    loaded_at: str
    precision: str
    manifest: Mapping[str, Any]  # Any: the manifest has a schema of its own
    drift: LiveDrift | None = None


def read(model: type[M], body: object) -> M:
    """Build a model from JSON and ignore fields that it does not have.

    Args:
        body: What was parsed.

    Raises:
        UnexpectedReply: If it is no object, or lacks a field.
    """
    if not isinstance(body, Mapping):
        raise UnexpectedReply(f"expected a JSON object for {model.__name__}, got {type(body).__name__}")
    missing = [each.name for each in fields(model) if each.default is MISSING and each.name not in body]
    if missing:
        raise UnexpectedReply(f"the reply lacks {', '.join(missing)}: is this the URL of a Taugate service?")
    return model(**{each.name: body[each.name] for each in fields(model) if each.name in body})


def read_search(body: object) -> SearchResponse:
    """Build the reply to a search.

    Args:
        body: JSON.

    Raises:
        UnexpectedReply: As `read` does.
    """
    reply = read(SearchResponse, body)
    results: object = reply.results  # whatever the JSON has
    if not isinstance(results, list):
        raise UnexpectedReply("the reply's results are no list: is this the URL of a Taugate service?")
    return replace(reply, results=tuple(read(Result, each) for each in results), drift=read(Drift, reply.drift))


def read_release(body: object) -> ReleaseResponse:
    """Build what /release says.

    Args:
        body: JSON.

    Raises:
        UnexpectedReply: As `read` does.
    """
    reply = read(ReleaseResponse, body)
    if reply.drift is None:
        return reply
    live = read(LiveDrift, reply.drift)
    coe, expected, roe = (each and read(Interval, each) for each in (live.coe, live.coe_expected, live.roe))
    return replace(reply, drift=replace(live, coe=coe, coe_expected=expected, roe=roe))
