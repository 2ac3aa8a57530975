"""The record of what refuses queries as a whole, and how many questions that no document answers get a result."""

from collections.abc import Mapping
from typing import Literal, Self

from pydantic import Field, FiniteFloat, model_validator
from pydantic_core import PydanticCustomError

from taugate.release.evidence import MAX_FLOAT32, EvidenceRecord, Interval, Record
from taugate.release.names import STATEMENTS
from taugate.storage.files import Json

QuestionKind = Literal["off_topic", "request", "near_miss", "unanswerable"]


class ErrorLimit(Record):
    """A limit on one of the two errors of refusing queries."""

    asked: float | None = None  # requested limit of the share; None without one
    upper: float  # limit that holds with the joint confidence
    found: float  # share among the certifying queries
    queries: int  # number of certifying queries
    queries_needed: int | None = None  # smallest number of queries that can certify `asked` if none is an error
    evidence: EvidenceRecord

    @property
    def promised(self) -> float:
        """The requested limit, else the one that was found."""
        return self.upper if self.asked is None else self.asked


class ScoreCandidate(Record):
    """A candidate score for refusing queries, measured on queries that it was not fitted on."""

    name: str
    auroc: float  # probability that an answerable query's score is above an unanswerable one's; ties count half
    # Share of the unanswerable queries that are answered at the threshold that refuses the requested share of
    # answerable ones.
    answered: float
    # Standard error of `answered`, by document; None in releases that compare two scores only.
    standard_error: float | None = None


class TradeOff(Record):
    """A trade-off between the two errors: upper limits that hold with the joint confidence for this pair alone."""

    empty: float  # share of answerable queries that are refused
    answered: float  # smallest share of unanswerable queries that are answered then


class RequestedLimits(Record):
    """Limits on both errors of refusing queries, and how ρ was chosen for them."""

    answered: ErrorLimit  # limit of the share of unanswerable queries that are answered
    refused: ErrorLimit  # limit of the share of answerable queries that are refused
    confidence: float  # joint confidence of both limits
    guarantee: str  # the guarantee as one plain sentence
    # Upper limit of the share of answerable queries refused at the smallest ρ that certifies the limit of answers; None
    # if no ρ does.
    least_empty: float | None = None
    candidates: list[ScoreCandidate]
    tradeoff: list[TradeOff]  # trade-offs by ascending share of refused queries


class RefusedQuestions(Record):
    """How many questions of one kind, none of which the corpus answers, get no result."""

    queries: int = Field(ge=1)
    refused: int = Field(ge=0)  # number of these that get no result, whether refused as a whole or cut
    lower: float  # one-sided 95 % lower limit of the refused share
    # Unit of evidence; None in releases of earlier versions if each question is its own unit.
    evidence: EvidenceRecord | None = None
    uncertified: int | None = None  # number that would be refused if no loss were certified; None if none is

    @property
    def answered(self) -> float:
        """Share of the questions that get a result."""
        return (self.queries - self.refused) / self.queries


class DoubledCorpus(Record):
    """What is expected of ρ if the corpus doubles with documents like those of today; a forecast, without a limit."""

    documents: int  # number of documents then
    rho: float  # ρ that a calibration would choose
    refused: float  # share of the questions about other subjects that the present ρ refuses


class RefusalRecord(Record):
    """A query whose score is below rho, compared in float32, gets no result.

    By default, rho comes from the questions without an answer that ship with Taugate, and from the user's unanswerable
    queries if there are any; near misses are only counted. With limits on both errors, the user's queries certify it.
    """

    score: str | None = None  # name of the score; None if no query is refused as a whole
    # Threshold of the score; None without a score. The evidence then counts what the cut leaves without a result.
    rho: FiniteFloat | None = None
    certified: bool = False  # whether limits were requested, and hold
    provisional: bool = False  # whether there were too few labelled queries to limit the share of lost answers
    # How many questions are refused, by their kind. Those about other subjects and short requests are the easy cases,
    # so their shares are optimistic.
    evidence: dict[QuestionKind, RefusedQuestions] = Field(default_factory=dict)
    # Share of the queries with a relevant document in their top K that are refused, with its one-sided limits; None if
    # limits were requested, and if nothing is refused.
    lost: Interval | None = None
    left_out: int = 0  # number of off-topic questions that the documents seem to answer, and that do not count
    limits: RequestedLimits | None = None  # the requested limits; None without any
    # What is expected if the corpus doubles; None if ρ was not chosen by default for a corpus.
    doubled: DoubledCorpus | None = None

    @model_validator(mode="after")
    def _rho_is_a_float32(self) -> Self:
        if self.rho is not None and abs(self.rho) > MAX_FLOAT32:
            raise PydanticCustomError("rho", "rho is beyond float32, in which it is compared")
        if (self.score is None) != (self.rho is None):
            raise PydanticCustomError("rho", "score and rho are given together or not at all")
        return self

    @property
    def threshold(self) -> tuple[str, float] | None:
        """The name of the score and ρ; None if no query is refused as a whole."""
        return None if self.score is None or self.rho is None else (self.score, self.rho)

    @property
    def is_default(self) -> bool:
        """Whether ρ is the default one, which no limits were requested for."""
        return self.rho is not None and self.limits is None

    def comes_on_top(self, statement: str | None) -> bool:
        """Whether refused queries come on top of a limit on lost answers, which a statement says of the cut alone."""
        cut_alone = self.limits is not None or (statement is not None and STATEMENTS[statement].of_cut_alone)
        return self.rho is not None and cut_alone


class _AnsweredQuestions(Record):
    """The questions without an answer that get a result, as schema 2 counts them."""

    asked: QuestionKind
    queries: int = Field(ge=1, le=2**53)
    answered: float = Field(ge=0, le=1)
    upper: float
    evidence: EvidenceRecord


def refusal_of_schema_2(manifest: Mapping[str, Json]) -> dict[str, Json] | None:
    """Convert the three records of schema 2, `abstention`, `refusal` and `no_answer`, into one.

    None if it has none of them. The manifest may be the record of its first stage. Raises ValidationError if
    `no_answer` is not such a record; the others are checked as a part of the manifest.
    """
    of_limits, by_default, counted = (_object(manifest, name) for name in ("abstention", "refusal", "no_answer"))
    record: dict[str, Json] = {}
    if of_limits:
        record = {"score": of_limits.pop("score", None), "rho": of_limits.pop("tau", None)}
        record["certified"] = of_limits.pop("certified", False)
        for name, before in (("answered", "answered_unanswerable"), ("refused", "empty_answerable")):
            of_limits[name] = of_limits.pop(before, None)
        record["limits"] = of_limits
    elif by_default:
        kinds = {kind: by_default.pop(kind, None) for kind in ("off_topic", "request", "near_miss", "unanswerable")}
        record = {**by_default, "evidence": {kind: value for kind, value in kinds.items() if value is not None}}
    if counted and "evidence" not in record:
        share = _AnsweredQuestions.model_validate(counted)
        refused = share.queries - round(share.answered * share.queries)
        questions = {"queries": share.queries, "refused": refused, "lower": 1 - share.upper}
        record["evidence"] = {share.asked: {**questions, "evidence": counted.get("evidence")}}
    return record or None


def _object(manifest: Mapping[str, Json], name: str) -> dict[str, Json]:
    value = manifest.get(name)
    return {**value} if isinstance(value, dict) else {}
