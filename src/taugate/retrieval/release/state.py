"""The state of a release: one word for whether its threshold can be relied on, and the loss that is certified."""

from typing import Literal

from pydantic import Field

from taugate.retrieval.release.evidence import Record
from taugate.retrieval.release.methods import STATEMENTS

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
    known = STATEMENTS.get(statement or "")
    if state != "calibrated" or known is None or known.on_average:
        return None
    if tau is None or max_loss is None or confidence is None:
        return None
    return CertifiedLoss(max_loss=max_loss, confidence=confidence)


def state_in_words(state: str, certified: CertifiedLoss | None) -> str:
    """Return the state as every screen shows it, such as "certified 2 %"."""
    return state if certified is None else f"certified {100 * certified.max_loss:.4g} %"
