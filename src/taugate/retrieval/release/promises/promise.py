"""What every promise is: a limit in words, measured again by some evidence, and withdrawn by name if it does not hold.

One rule stands above all: what is measured worse than promised, or cannot be measured, is not certified.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from taugate.retrieval.release.changed_documents import WithdrawnRecord
from taugate.retrieval.release.evidence import Certificate, StrataRecord, StratumRecord
from taugate.retrieval.release.outcome_records import PolicyRecord
from taugate.retrieval.release.refusal_records import ErrorLimit, RefusalRecord, RequestedLimits

# Guarantee of a record whose promise was withdrawn.
NOTHING = "Nothing is certified: what was promised is not shown to hold for these documents."
_ROUNDING = 1e-9  # of a limit that was certified exactly


@dataclass(frozen=True)
class StatedRecords:
    """The records of a release, or of its first stage, that make promises. Fields are as in the manifest."""

    policy: PolicyRecord
    refusal: RefusalRecord | None
    strata: StrataRecord | None = None


class Evidence(Protocol):
    """Measures limits again, each in the way of its calibration; None for what it cannot measure."""

    @property
    def silence(self) -> str:
        """Why it cannot measure a limit, as a clause."""
        ...

    def losses(self, policy: PolicyRecord) -> Sequence[Certificate] | None:
        """Measure what the policy loses at its τ, in the order of its certificates."""

    def stratum(
        self, policy: PolicyRecord, strata: StrataRecord, stratum: StratumRecord
    ) -> Sequence[Certificate] | None:
        """Measure what a stratum loses at the thresholds with and without its filter; none if it has no document."""

    def errors(self, limits: RequestedLimits) -> Sequence[ErrorLimit | None]:
        """Measure how many unanswerable queries get a result, and how many answerable ones are refused."""
        ...

    def refusal(self, record: RefusalRecord) -> RefusalRecord | None:
        """Count the questions of each kind that ρ refuses, and the right answers, None if they cannot be counted."""


@dataclass(frozen=True)
class Measured:
    """A share that was measured again.

    Attributes:
        share: The share.
        upper: What has to be within the promised limit: a confidence limit for what was certified, else the share.
        queries: Number of queries or questions; None if unknown.
    """

    share: float
    upper: float
    queries: int | None


@dataclass(frozen=True)
class Promise(ABC):
    """A promise of a release: at most a share of some queries goes wrong.

    Attributes:
        name: Short name, the same in every release.
        words: What is promised, as one sentence.
        limit: The promised limit.
    """

    name: str
    words: str
    limit: float

    @abstractmethod
    def measured(self, evidence: Evidence) -> Measured | None:
        """Measure the share again; None if the evidence cannot."""

    @abstractmethod
    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """Take the promise out of the records of a release."""

    def ask(self, evidence: Evidence) -> WithdrawnRecord | None:
        """Ask whether the promise holds; returns why it is withdrawn, None if it holds."""
        measured, reason = self.measured(evidence), evidence.silence
        if measured is not None:
            if measured.upper <= self.limit + _ROUNDING:
                return None
            on = "" if measured.queries is None else f"on {measured.queries:,} of them "
            at_most = "" if measured.upper == measured.share else f", and may be {percent_at_most(measured.upper)}"
            reason = f"{on}it is {100 * measured.share:.3g} %{at_most}"
        return WithdrawnRecord(promise=self.name, words=self.words, reason=reason)


def percent_at_most(share: float) -> str:
    """Write a share in percent as an upper limit, never rounded down."""
    return f"{math.ceil(round(1000 * share, 6)) / 10:g} %"
