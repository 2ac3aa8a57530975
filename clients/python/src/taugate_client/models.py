"""Models of requests and replies. Generated from docs/openapi.json by `make openapi`; do not edit.

Replies are frozen. A newer service may send further fields, which are ignored, and further values of a Literal.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from taugate_client.filters import Filter


class ExplainOptions(TypedDict, total=False):
    """The options that decide which results a search returns. Omitted ones have the service's defaults.

    Attributes:
        vector: Vector of the query, by the model that made those of the documents; for releases that were calibrated on
            vectors, or with `accept-vectors`; beside it, a `query` is needed for shared words in the score, and for a
            second stage.
        k: Number of results to consider: passages, or documents with `group_by`.
        filter: Conditions on metadata, all of which must hold.
        min_results: Return at least this many results, even if they score below the threshold.
        threshold: Use this threshold instead of the calibrated one; ignored if the first of two stages replies.
        group_by: `document`: `k` counts documents, each represented by its best chunk.
    """

    vector: Sequence[float] | None
    k: int | None
    filter: Filter | None
    min_results: int
    threshold: float | None
    group_by: Literal["document"] | None


class SearchOptions(ExplainOptions, total=False):
    """The options of a search.

    Attributes:
        include_text: Whether results include title and text.
        explore: Whether a few results below the threshold may be returned, if exploration is on
            (TAUGATE_EXPLORE_SHARE).
        explain: Whether results include the parts of their scores and the words that match.
    """

    include_text: bool
    explore: bool
    explain: bool


class SearchRequest(SearchOptions, total=False):
    """A query of a batch, with options."""

    query: str | None


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of a score, which is their sum in float32.

    Attributes:
        cosine: Cosine similarity of query and passage.
        lexical: Weighted share of words in common; None if the score has no lexical part.
    """

    cosine: float
    lexical: float | None = None


@dataclass(frozen=True, slots=True)
class Result:
    """A returned passage: a whole document, or a chunk of one.

    Attributes:
        id: Id of the passage.
        document_id: Id of its document; equal to `id` for a whole document.
        rank: Position among all results considered, from 1.
        score: Similarity to the query: the cosine, or the sum of `parts` if there are two; or the score of a second
            stage.
        relevance: Probability that the passage is relevant; None if the release does not model relevance.
        below_threshold: True if the result did not pass the threshold, or the query was refused; it is returned because
            of `min_results` or `explored`.
        title: Title of the document; None if it has none, or texts were not requested.
        text: Text of the passage; None if texts were not requested.
        metadata: Metadata of the document.
        first_stage_score: Score of the first stage; present if a second stage ranked the results.
        explored: True if the result is returned to learn whether the threshold drops answers.
        parts: The parts of `score`; present if `explain` is true.
        matched_words: Words of the query that the passage contains, as the query spells them; present beside
            `parts.lexical`.
    """

    id: str
    document_id: str
    rank: int
    score: float
    relevance: float | None
    below_threshold: bool
    title: str | None
    text: str | None
    metadata: Mapping[str, str | int | float | bool | Sequence[str] | None]
    first_stage_score: float | None = None
    explored: bool = False
    parts: Parts | None = None
    matched_words: Sequence[str] | None = None

    def __repr__(self) -> str:
        return f"Result(rank={self.rank}, score={self.score}, id={self.id!r}, title={self.title!r})"


@dataclass(frozen=True, slots=True)
class CertifiedLoss:
    """A certified limit of the share of answerable queries that lose their answer, whether dropped or refused.

    Attributes:
        max_loss: Largest share of the answerable queries that lose their answer.
        confidence: Confidence of that limit.
    """

    max_loss: float
    confidence: float


@dataclass(frozen=True, slots=True)
class Refusal:
    """The score of the query as a whole, and ρ: a query that scores below ρ is refused, with no result.

    Attributes:
        score: Score of the query as a whole.
        rho: Threshold ρ that it is compared with.
    """

    score: float
    rho: float


@dataclass(frozen=True, slots=True)
class LossBounds:
    """95 % bounds of the answers that τ or ρ lose, as a share of the answerable queries; they hold at all times."""

    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class Drift:
    """Drift alarms. While one is on, the guarantees of the calibration do not hold for this traffic.

    Attributes:
        alarm: True if an alarm is on.
        signals: Active alarms, named as in `taugate_drift_alarm{signal}`.
        loss: Live loss; absent until drawn queries are judged.
    """

    alarm: bool
    signals: Sequence[str]
    loss: LossBounds | None = None


@dataclass(frozen=True, slots=True)
class SearchResponse:
    """The results that passed the threshold. `reason` says why `results` is empty.

    Attributes:
        results: The results, best first.
        threshold: Threshold in force; None if there is none.
        policy: Kind of value that is compared with `threshold`.
        calibrated: True if a calibrated threshold was applied, and every result passed it.
        calibration: `provisional` if the threshold rests on too little evidence, `inherited` if it is of other
            documents and is not shown to hold for these, `adjusted` if it was given.
        considered: Number of results before the threshold was applied.
        dropped: Number of results below the threshold.
        best_score: Highest score, kept or not; None without a result.
        reason: Why `results` is empty; None if it is not.
        release: Id of the release.
        query_id: Id of this reply, for /feedback.
        certified: The loss that is certified for this reply; None if none is.
        not_comparable: Why drift detection and labels do not compare the reply with the calibration; None if they do.
        truncated: True if the query is longer than the encoder can read: only its beginning was searched for, and
            `calibrated` is false.
        approximate: True if an engine searched its graph within a filter: a document that belongs in the top k may be
            missing.
        stage: `second` if the second stage ranked the results; `first` if it was not in time or failed, so that scores
            and `threshold` are the first stage's; None if the release has one stage.
        refusal: None if the release refuses no query as a whole, or `threshold` was given.
    """

    results: Sequence[Result]
    threshold: float | None
    policy: Literal["similarity", "relative", "gap", "probability", "none"]
    calibrated: bool
    calibration: Literal["calibrated", "provisional", "inherited", "adjusted"]
    considered: int
    dropped: int
    best_score: float | None
    reason: Literal["all_below_threshold", "no_documents_match_filter", "unanswerable", "unreadable"] | None
    release: str
    drift: Drift
    query_id: str
    certified: CertifiedLoss | None = None
    not_comparable: str | None = None
    truncated: bool = False
    approximate: bool = False
    stage: Literal["first", "second"] | None = None
    refusal: Refusal | None = None

    def __len__(self) -> int:
        return len(self.results)

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    def __repr__(self) -> str:
        why = "" if self.reason is None else f", reason={self.reason!r}"
        kept = f"{len(self)} of {self.considered} results"
        return f"<SearchResponse: {kept}, threshold={self.threshold}, best_score={self.best_score}{why}>"


@dataclass(frozen=True, slots=True)
class BatchResponse:
    """Replies to a batch, in request order."""

    responses: Sequence[SearchResponse]


@dataclass(frozen=True, slots=True)
class ExplainResponse:
    """Why a document is, or is not, among the results of a search.

    If the filter of the key hides the document, `rule` is `key_filter`, and nothing else about it is revealed.

    Attributes:
        document_id: Id of the document.
        id: The chunk that is explained: the one that the search returns, else the one with the highest score.
        rank: Exact rank among all passages that the filters permit.
        ranked: Number of passages that have a rank.
        score: Similarity to the query: the cosine, or the sum of `parts` if there are two.
        relevance: Probability that the passage is relevant; None if the release does not model relevance.
        policy: Kind of value that is compared with `threshold`.
        compared: The value that the policy compares with `threshold`.
        threshold: Threshold in force; None if there is none.
        kept: True if the search returns the passage.
        rule: The rule that decided; every value except `kept` and `min_results` means dropped.
        why: The same as a sentence, including how near the document was.
        truncated: True if the document's text is longer than the encoder can read.
        filtered: True if the filter of the request or of the key excludes the document.
        release: Id of the release.
        first_stage_rank: Rank of the first stage; present if a second stage ranked the results.
        first_stage_score: Score of the first stage; present likewise.
        query_truncated: True if the query is longer than the encoder can read.
        not_comparable: Why drift detection and labels do not compare the reply with the calibration; None if they do.
        parts: The parts of `score`; None if it has no lexical part.
        matched_words: Words of the query that the passage contains, as the query spells them; present beside
            `parts.lexical`.
    """

    document_id: str
    id: str | None
    rank: int | None
    ranked: int | None
    score: float | None
    relevance: float | None
    policy: Literal["similarity", "relative", "gap", "probability", "none"]
    compared: float | None
    threshold: float | None
    kept: bool
    rule: Literal[
        "kept",
        "min_results",
        "threshold",
        "unanswerable",
        "unreadable",
        "rank",
        "chunk",
        "index",
        "filter",
        "key_filter",
    ]
    why: str
    truncated: bool | None
    filtered: bool
    release: str
    first_stage_rank: int | None = None
    first_stage_score: float | None = None
    query_truncated: bool = False
    not_comparable: str | None = None
    parts: Parts | None = None
    matched_words: Sequence[str] | None = None

    def __repr__(self) -> str:
        return f"<ExplainResponse: {self.why}>"


@dataclass(frozen=True, slots=True)
class FeedbackResponse:
    """Outcome of a judgement: `accepted`, or `repeated` if it was received before and does not count again."""

    status: Literal["accepted", "repeated"]


@dataclass(frozen=True, slots=True)
class KeptResult:
    """A result that passed the threshold.

    Attributes:
        id: Id of the document.
        rank: Rank by score among all results, from 1.
        score: Its score, as it was sent.
        relevance: Probability that it is relevant; None if the release does not model relevance.
    """

    id: str
    rank: int
    score: float
    relevance: float | None


@dataclass(frozen=True, slots=True)
class GateResponse:
    """The results that passed the threshold. `reason` says why `results` is empty.

    Attributes:
        results: The results, best first.
        threshold: Threshold in force; None if there is none.
        policy: Kind of value that is compared with `threshold`.
        calibrated: True if the certificate of the threshold covers these results.
        why_not: Why `calibrated` is false, None if it is true: `fewer_than_k`, `not_sorted`,
            `outside_calibrated_range`, `missing_score:NAME`, `other_k`, `no_threshold`, or `calibration`.
        calibration: `provisional` if the threshold rests on too little evidence, `inherited` if it is of other
            documents and is not shown to hold for these, `adjusted` if it was given.
        considered: Number of results before the threshold was applied.
        dropped: Number of results below the threshold.
        best_score: Score of the best result, kept or not; None without a result.
        reason: Why `results` is empty; None if it is not.
        refuses: Whether a rule refuses queries as a whole; if false, off-topic ones get results.
        release: Id of the release.
        query_id: Id of this reply, for /feedback.
        certified: The loss that is certified for this reply; None if none is.
        refusal: None if the release refuses no query as a whole.
    """

    results: Sequence[KeptResult]
    threshold: float | None
    policy: Literal["similarity", "relative", "gap", "probability", "none"]
    calibrated: bool
    why_not: str | None
    calibration: Literal["calibrated", "provisional", "inherited", "adjusted"]
    considered: int
    dropped: int
    best_score: float | None
    reason: Literal["no_results", "all_below_threshold", "unanswerable"] | None
    refuses: bool
    release: str
    drift: Drift
    query_id: str
    certified: CertifiedLoss | None = None
    refusal: Refusal | None = None


@dataclass(frozen=True, slots=True)
class Interval:
    """A mean with two limits, which are those of a 95 % interval unless a field says otherwise.

    Attributes:
        mean: Estimate.
        lower: Lower limit; for a bootstrap, the 2.5th percentile.
        upper: Upper limit; for a bootstrap, the 97.5th percentile.
    """

    mean: float
    lower: float
    upper: float


@dataclass(frozen=True, slots=True)
class LiveDrift:
    """Drift alarms, and the overlap measured on the latest queries of the process that replies.

    The values at calibration are in `manifest.metrics`. A value is None while there is too little traffic to measure
    it.

    Attributes:
        alarm: True if an alarm is on.
        signals: Active alarms, named as in `taugate_drift_alarm{signal}`.
        coe: COE of documents judged relevant.
        coe_expected: COE expected from the correct documents of the calibration, against live queries.
        roe: ROE of random documents.
        loss: Live loss; absent until drawn queries are judged.
    """

    alarm: bool
    signals: Sequence[str]
    coe: Interval | None
    coe_expected: Interval | None
    roe: Interval | None
    loss: LossBounds | None = None


@dataclass(frozen=True, slots=True)
class ReleaseResponse:
    """The release in service: its id and state, when it was loaded, the precision of its encoder, and its manifest.

    Attributes:
        release: Id of the release.
        calibration: `provisional` if the threshold rests on too little evidence, `inherited` if it is of other
            documents and is not shown to hold for these, `adjusted` if it was given.
        shadow: Id of the shadow release; None if there is none.
        loaded_at: Time at which the release was loaded, in ISO 8601.
        precision: Precision of the encoder; None if the release has none.
        manifest: The manifest of the release, see docs/calibration.md.
        certified: The certified loss; None if none is.
        drift: Alarms and live overlap; None if drift detection is off.
    """

    release: str
    calibration: Literal["calibrated", "provisional", "inherited", "adjusted"]
    shadow: str | None
    loaded_at: str
    precision: Literal["float32", "bfloat16", "int8"] | None
    manifest: Mapping[str, Any]
    certified: CertifiedLoss | None = None
    drift: LiveDrift | None = None

    def __repr__(self) -> str:
        return f"<ReleaseResponse: {self.release}, {self.calibration}, loaded at {self.loaded_at}>"
