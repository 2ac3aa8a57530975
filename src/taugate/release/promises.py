"""The promises of a release: limits that its manifest states, each of which can be asked again on other documents.

What every promise is: a limit in words, measured again by some evidence, and withdrawn by name if it does not hold. One
rule stands above all: what is measured worse than promised, or cannot be measured, is not certified.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from taugate.release.evidence import Certificate, StrataRecord, StratumRecord
from taugate.release.manifest import Manifest
from taugate.release.outcome_records import PolicyRecord
from taugate.release.records import CalibrationRecord
from taugate.release.refusal_records import ErrorLimit, QuestionKind, RefusalRecord, RefusedQuestions, RequestedLimits
from taugate.release.search_records import FirstStageRecord, SecondStageRecord
from taugate.release.state import WithdrawnRecord

# Guarantee of a record whose promise was withdrawn.
NOTHING = "Nothing is certified: what was promised is not shown to hold for these documents."
_ROUNDING = 1e-9  # of a limit that was certified exactly

# By what is limited (`Certificate.limit`): the name, and what happens to at most a share of the queries.
_LIMITS = {
    "accuracy": ("loss", "At most {} of the answerable queries lose their answer to the threshold."),
    "ndcg": ("loss", "NDCG is at most {} lower than without the threshold."),
    "empty": ("empty", "At most {} of the answerable queries are left without a result by the threshold."),
}

_QUESTIONS: dict[QuestionKind, str] = {
    "off_topic": "off-topic questions",
    "request": "short requests",
    "unanswerable": "unanswerable queries",
}
_FIRST_STAGE = "first stage: "  # before the names of its promises


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
    """A share that was measured again."""

    share: float
    upper: float  # what has to be within the promised limit: a confidence limit for what was certified, else the share
    queries: int | None  # number of queries or questions; None if unknown


@dataclass(frozen=True)
class Promise(ABC):
    """A promise of a release: at most a share of some queries goes wrong."""

    name: str
    words: str  # what is promised, as one sentence
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


@dataclass(frozen=True)
class LimitedLoss(Promise):
    """At most a share of a metric, or of the queries, is lost at τ."""

    policy: PolicyRecord
    place: int  # place of the limit among the policy's certificates

    @classmethod
    def of(cls, records: StatedRecords) -> Iterator[Promise]:
        """Yield the promises of a policy: none if nothing is certified."""
        policy = records.policy
        if policy.tau is not None and policy.statement is not None and policy.certified is None:
            for place, certificate in enumerate(policy.certificates):
                name, words = _LIMITS[certificate.limit]
                yield cls(name, words.format(percent_at_most(certificate.most)), certificate.most, policy, place)

    def measured(self, evidence: Evidence) -> Measured | None:
        """Certify the same limit again."""
        certificates = evidence.losses(self.policy)
        if certificates is None:
            return None
        certificate = certificates[self.place]
        return Measured(certificate.loss, certificate.bound, certificate.queries)

    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """Mark the policy as not certified."""
        return replace(records, policy=records.policy.model_copy(update={"certified": False, "guarantee": NOTHING}))


@dataclass(frozen=True)
class LimitedStratumLoss(Promise):
    """The limit on the loss also holds for the documents with one value of a field, with a filter on it and without."""

    policy: PolicyRecord
    strata: StrataRecord
    stratum: StratumRecord  # the stratum; several values together if its value is None

    @classmethod
    def of(cls, records: StatedRecords) -> Iterator[Promise]:
        """Yield the promises of the strata with a threshold."""
        strata, policy = records.strata, records.policy
        for stratum in () if strata is None else (*strata.strata, strata.others):
            if strata and stratum and (stratum.tau, stratum.tau_without_filter) != (None, None):
                values = strata.other_values if stratum.value is None else [stratum.value]
                named = f"{strata.field} {', '.join(map(str, values))}"
                words = f"The limit of the loss also holds for {named}."
                yield cls(f"stratum {named}", words, policy.certificates[0].most, policy, strata, stratum)

    def measured(self, evidence: Evidence) -> Measured | None:
        """Certify every limit of the policy again, at both thresholds of the stratum."""
        certificates = evidence.stratum(self.policy, self.strata, self.stratum)
        if not certificates:
            return None if certificates is None else Measured(0.0, 0.0, 0)
        worst = max(certificates, key=lambda certificate: certificate.bound - certificate.most)
        return Measured(worst.loss, self.limit + worst.bound - worst.most, worst.queries)

    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """Take the thresholds of the stratum away, so that no reply within its filter is calibrated."""
        if records.strata is None:
            return records
        taken = self.stratum.model_copy(update={"tau": None, "tau_without_filter": None})
        strata, remaining = (
            [taken if stratum == self.stratum else stratum for stratum in column]
            for column in (records.strata.strata, [records.strata.others])
        )
        return replace(records, strata=records.strata.model_copy(update={"strata": strata, "others": remaining[0]}))


@dataclass(frozen=True)
class LimitedError(Promise):
    """At most a share of the unanswerable queries gets a result, or of the answerable ones is refused."""

    limits: RequestedLimits
    place: int  # 0 for the first error, 1 for the second
    stated: ErrorLimit  # its limit; if none was requested, it was only found

    @classmethod
    def of(cls, records: StatedRecords) -> Iterator[Promise]:
        """Yield the promises of a certified rule."""
        refusal = records.refusal
        if refusal is None or refusal.limits is None or not refusal.certified:
            return
        limits = refusal.limits
        errors = (
            ("answered", "unanswerable queries get a result", limits.answered),
            ("refused", "answerable queries are refused", limits.refused),
        )
        for place, (name, outcome, limit) in enumerate(errors):
            share = limit.promised
            yield cls(name, f"At most {percent_at_most(share)} of the {outcome}.", share, limits, place, limit)

    def measured(self, evidence: Evidence) -> Measured | None:
        """Certify a requested limit again; one that was only found has to be no smaller than the share."""
        limit = evidence.errors(self.limits)[self.place]
        if limit is None:
            return None
        return Measured(limit.found, limit.found if self.stated.asked is None else limit.upper, limit.queries)

    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """Mark the rule as not certified: both of its limits are one statement."""
        if records.refusal is None or records.refusal.limits is None:
            return records
        limits = records.refusal.limits.model_copy(update={"guarantee": NOTHING})
        return replace(records, refusal=records.refusal.model_copy(update={"certified": False, "limits": limits}))


@dataclass(frozen=True)
class AnsweredQuestions(Promise):
    """ρ refuses most questions of a kind that no document answers."""

    record: RefusalRecord  # the default refusal
    kind: QuestionKind

    @classmethod
    def of(cls, records: StatedRecords) -> Iterator[Promise]:
        """Yield the promises of ρ about the kinds that choose it; near misses are only counted."""
        for kind, questions in _QUESTIONS.items():
            counted = _counted(records.refusal, kind)
            if records.refusal is not None and records.refusal.is_default and counted and counted.lower > 0:
                words = f"At most {percent_at_most(1 - counted.lower)} of the {questions} get a result."
                yield cls(f"{questions} refused", words, 1 - counted.lower, records.refusal, kind)

    def measured(self, evidence: Evidence) -> Measured | None:
        """Count the questions again; the share that gets a result has to be within the limit stated before."""
        counted = _counted(evidence.refusal(self.record), self.kind)
        if counted is None:
            return None
        share = 1 - counted.refused / counted.queries
        return Measured(share, share, counted.queries)

    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """Say that the share is unknown, unless the questions were counted again."""
        counted = self.record.evidence[self.kind]
        if records.refusal is None or _counted(records.refusal, self.kind) != counted:
            return records
        evidence = records.refusal.evidence | {self.kind: counted.model_copy(update={"lower": 0.0})}
        return replace(records, refusal=records.refusal.model_copy(update={"evidence": evidence}))


def _counted(record: RefusalRecord | None, kind: QuestionKind) -> RefusedQuestions | None:
    return None if record is None else record.evidence.get(kind)


@dataclass(frozen=True)
class LimitedLostAnswers(Promise):
    """ρ refuses at most a share of the right answers."""

    record: RefusalRecord  # the default refusal

    @classmethod
    def of(cls, records: StatedRecords) -> Iterator[Promise]:
        """Yield the promise of ρ, if it limits anything."""
        refusal = records.refusal
        if refusal is not None and refusal.lost is not None and (share := refusal.lost.upper) < 1:
            words = f"At most {percent_at_most(share)} of the right answers are refused."
            yield cls("answers refused", words, share, refusal)

    def measured(self, evidence: Evidence) -> Measured | None:
        """Measure the share again, which has to be within the limit stated before."""
        again = evidence.refusal(self.record)
        lost = None if again is None else again.lost
        return None if lost is None else Measured(lost.mean, lost.mean, None)

    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """Say that the share is unknown, unless it was measured again."""
        lost = self.record.lost
        if lost is None or records.refusal is None or records.refusal.lost != lost:
            return records
        unknown = lost.model_copy(update={"lower": 0.0, "upper": 1.0})
        return replace(records, refusal=records.refusal.model_copy(update={"lost": unknown}))


_KINDS = (LimitedLoss, LimitedStratumLoss, LimitedError, AnsweredQuestions, LimitedLostAnswers)


def promises(records: StatedRecords) -> Iterator[Promise]:
    """Yield every promise of a release, or of its first stage."""
    for kind in _KINDS:
        yield from kind.of(records)


def stated(manifest: Manifest | FirstStageRecord, strata: StrataRecord | None = None) -> StatedRecords:
    """Take the records that promise from a manifest, or from a first stage."""
    return StatedRecords(manifest.policy, manifest.refusal, strata)


def ask_promises(
    promised: StatedRecords, evidence: Evidence, new: StatedRecords | None = None
) -> tuple[StatedRecords, list[WithdrawnRecord]]:
    """Ask every promise; returns the new records without the withdrawn ones, and why each of these is withdrawn.

    `new` are the records of the new release; None if they are the same.
    """
    records, withdrawn = new or promised, []
    for promise in promises(promised):
        if (record := promise.ask(evidence)) is not None:
            withdrawn.append(record)
            records = promise.withdraw(records)
    return records, withdrawn


def ask_first_stage(
    promised: SecondStageRecord, evidence: Evidence, new: SecondStageRecord
) -> tuple[SecondStageRecord, list[WithdrawnRecord]]:
    """Ask the promises of the first stage of two, which are in the record of the second; see `ask_promises`."""
    records, withdrawn = ask_promises(stated(promised.first), evidence, stated(new.first))
    update = {name: value for name, value in vars(records).items() if name in FirstStageRecord.model_fields}
    named = [record.model_copy(update={"promise": f"{_FIRST_STAGE}{record.promise}"}) for record in withdrawn]
    return new.model_copy(update={"first": new.first.model_copy(update=update)}), named


def all_withdrawn(parent: Manifest, withdrawn: Sequence[WithdrawnRecord]) -> list[WithdrawnRecord]:
    """Return what is withdrawn by this release or before, each promise once."""
    return [*{record.promise: record for record in (*(parent.withdrawn or ()), *withdrawn)}.values()]


def inherited_calibration(parent: Manifest) -> CalibrationRecord | None:
    """Return the evidence of a release, as that of one that has withdrawn promises."""
    return parent.calibration and parent.calibration.model_copy(update={"state": "inherited"})
