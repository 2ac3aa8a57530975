"""The state of a release: whether its threshold can be relied on, and how its documents have changed."""

from typing import Literal

from pydantic import Field

from taugate.release.evidence import EvidenceRecord, Interval, Record
from taugate.release.names import STATEMENTS

# Provisional: too little evidence. Inherited: τ is of other documents, and not shown to hold. Adjusted: τ was given.
State = Literal["calibrated", "provisional", "inherited", "adjusted"]


class CertifiedLoss(Record):
    """A certified limit of the share of answerable queries that lose their answer, whether dropped or refused."""

    max_loss: float = Field(description="largest share of the answerable queries that lose their answer")
    confidence: float = Field(description="confidence of that limit")


def certified_loss(
    state: str | None, statement: str | None, tau: float | None, max_loss: float | None, confidence: float | None
) -> CertifiedLoss | None:
    """Return the loss that a release certifies, from its state and the record of its policy; None if it does not.

    A limit on average has no confidence, and one of generated questions does not hold for those of people.
    """
    limit = STATEMENTS.get(statement or "")
    if state != "calibrated" or limit is None or limit.on_average:
        return None
    if tau is None or max_loss is None or confidence is None:
        return None
    return CertifiedLoss(max_loss=max_loss, confidence=confidence)


def state_in_words(state: str, certified: CertifiedLoss | None) -> str:
    """Return the state as every screen shows it, such as "certified 2 %"."""
    return state if certified is None else f"certified {100 * certified.max_loss:.4g} %"


class ErasureRecord(Record):
    """An erasure: the release copies another release without some documents, and keeps its figures."""

    release: str  # id of the copied release
    documents: int = Field(ge=1)  # number of calibrated documents that are erased, including earlier erasures
    # Recall of an approximate index, which is rebuilt, as in IndexRecord but over the golden queries.
    recall: float | None = None


class UpdateRecord(Record):
    """An update: the release has the documents of a newer corpus and the threshold of an earlier release."""

    parent: str  # id of the previously current release, whose threshold and relevance model were kept
    calibrated: str  # id of the release that chose them: the parent, unless the parent is an update too
    # Number of documents of that release; None in releases of older versions.
    documents: int | None = Field(default=None, ge=1)
    updates: int = Field(ge=1)  # number of updates since that release, including this one
    added: int
    changed: int
    removed: int
    queries: int  # number of queries that both releases can answer
    evidence: EvidenceRecord  # unit of evidence among these queries
    # The policy's metric at τ of the parent minus that of this release, for the average unit, with limits that are
    # one-sided at the confidence.
    loss: Interval
    margin: float  # largest allowed loss
    confidence: float
    holds: bool  # whether the loss is shown to be smaller, and no promise is withdrawn
    forced: bool  # whether promotion was requested regardless


class WithdrawnRecord(Record):
    """A promise that is not shown to hold for the documents of a release, although an earlier release made it."""

    promise: str
    words: str  # what was promised, as one sentence
    reason: str  # what was measured instead, or why nothing could be
