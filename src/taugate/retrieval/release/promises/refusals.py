"""Promises of the rule that refuses queries as a whole: certified by unanswerable queries, or stated of ρ."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from taugate.retrieval.release.promises.promise import (
    NOTHING,
    Evidence,
    Measured,
    Promise,
    StatedRecords,
    percent_at_most,
)
from taugate.retrieval.release.refusal_records import (
    ErrorLimit,
    QuestionKind,
    RefusalRecord,
    RefusedQuestions,
    RequestedLimits,
)

_QUESTIONS: dict[QuestionKind, str] = {
    "off_topic": "off-topic questions",
    "request": "short requests",
    "unanswerable": "unanswerable queries",
}


@dataclass(frozen=True)
class LimitedError(Promise):
    """At most a share of the unanswerable queries gets a result, or of the answerable ones is refused.

    Attributes:
        limits: Both limits.
        place: 0 for the first error, 1 for the second.
        stated: Its limit; if none was requested, it was only found.
    """

    limits: RequestedLimits
    place: int
    stated: ErrorLimit

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
    """ρ refuses most questions of a kind that no document answers.

    Attributes:
        record: The default refusal.
        kind: The kind.
    """

    record: RefusalRecord
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
    """ρ refuses at most a share of the right answers.

    Attributes:
        record: The default refusal.
    """

    record: RefusalRecord

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
