"""What a release says of queries that have no answer: who is refused, with which limits, and how many are answered."""

from typing import Literal, Self

import numpy as np
from pydantic import FiniteFloat, model_validator
from pydantic_core import PydanticCustomError

from taugate.retrieval.release.evidence import EvidenceRecord
from taugate.retrieval.release.interval import Record


class ErrorLimit(Record):
    """One of the two errors of refusing queries.

    asked: the largest share that was asked for, None where none was; upper: the share that holds with the record's
    confidence; found: that among the queries that certify it; queries_needed: fewer cannot certify `asked`, even with
    no error among them.
    """

    asked: float | None
    upper: float
    found: float
    queries: int
    queries_needed: int | None
    evidence: EvidenceRecord


class ScoreCandidate(Record):
    """A score that was considered.

    auroc: probability that an answerable query's is above an unanswerable one's, ties count half; answered: share of
    the unanswerable queries answered at the threshold that refuses the asked share of answerable ones, with its
    standard error; on queries that the score was not fitted on.
    """

    name: str
    auroc: float
    answered: float
    standard_error: float


class TradeOff(Record):
    """The smallest share of unanswerable queries answered that goes with a largest share of answerable ones refused.

    Both are upper limits, with the record's confidence for this pair by itself.
    """

    empty: float
    answered: float


class AbstentionRecord(Record):
    """The policy by which a query as a whole is refused, where its score is below tau in float32.

    score: which score it is; certified: whether every limit asked for is; confidence: of both errors together;
    guarantee: one plain sentence; least_empty: upper limit of the share of answerable queries refused at the smallest
    tau that certifies the limit on answers, None where none does; candidates: the scores considered; tradeoff: by share
    refused, ascending.
    """

    score: str
    tau: FiniteFloat
    certified: bool
    answered_unanswerable: ErrorLimit
    empty_answerable: ErrorLimit
    confidence: float
    guarantee: str
    least_empty: float | None
    candidates: list[ScoreCandidate]
    tradeoff: list[TradeOff]

    @model_validator(mode="after")
    def _tau_is_a_float32(self) -> Self:
        if abs(self.tau) > float(np.finfo(np.float32).max):
            raise PydanticCustomError("tau", "tau is beyond float32, in which it is compared")
        return self


class NoAnswerRecord(Record):
    """How many queries without an answer in the corpus still get a result, by what is in force.

    asked: labelled unanswerable queries, or the off-topic ones that come with Taugate, which are the easy cases:
    answered is then an optimistic estimate. upper: one-sided 95 % limit of it.
    """

    asked: Literal["unanswerable", "off_topic"]
    queries: int
    answered: float
    upper: float
    evidence: EvidenceRecord
