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
from taugate.retrieval.release.records import AbstentionRecord, RefusalRecord

_QUESTIONS = {"off_topic": "off-topic questions", "request": "short requests", "unanswerable": "unanswerable queries"}


@dataclass(frozen=True)
class LimitedError(Promise):
    """At most a share of the unanswerable queries gets a result, or of the answerable ones is refused.

    Attributes:
        record: The rule that refuses queries.
        place: 0 for the first error, 1 for the second.
        requested: Whether the limit was requested, and so certified; else it was found.
    """

    record: AbstentionRecord
    place: int
    requested: bool

    @classmethod
    def of(cls, records: StatedRecords) -> Iterator[Promise]:
        """Yield the promises of a certified rule."""
        record = records.abstention
        if record is None or not record.certified:
            return
        errors = (
            ("answered", "unanswerable queries get a result", record.answered_unanswerable),
            ("refused", "answerable queries are refused", record.empty_answerable),
        )
        for place, (name, outcome, limit) in enumerate(errors):
            share = limit.upper if limit.asked is None else limit.asked
            yield cls(
                name,
                f"At most {percent_at_most(share)} of the {outcome}.",
                share,
                record,
                place,
                limit.asked is not None,
            )

    def measured(self, evidence: Evidence) -> Measured | None:
        """Certify a requested limit again; one that was only found has to be no smaller than the share."""
        limit = evidence.errors(self.record)[self.place]
        if limit is None:
            return None
        return Measured(limit.found, limit.upper if self.requested else limit.found, limit.queries)

    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """Mark the rule as not certified: both of its limits are one statement."""
        update = {"certified": False, "guarantee": NOTHING}
        return replace(records, abstention=records.abstention and records.abstention.model_copy(update=update))


@dataclass(frozen=True)
class AnsweredQuestions(Promise):
    """ρ refuses most questions of a kind that no document answers.

    Attributes:
        record: The default refusal.
        field: Field of the record that counts the kind.
    """

    record: RefusalRecord
    field: str

    @classmethod
    def of(cls, records: StatedRecords) -> Iterator[Promise]:
        """Yield the promises of ρ about the kinds that choose it; near misses are only counted."""
        for field, questions in _QUESTIONS.items():
            counted = getattr(records.refusal, field, None)
            if records.refusal is not None and counted is not None and counted.lower > 0:
                words = f"At most {percent_at_most(1 - counted.lower)} of the {questions} get a result."
                yield cls(f"{questions} refused", words, 1 - counted.lower, records.refusal, field)

    def measured(self, evidence: Evidence) -> Measured | None:
        """Count the questions again; the share that gets a result has to be within the limit stated before."""
        counted = getattr(evidence.refusal(self.record), self.field, None)
        if counted is None:
            return None
        share = 1 - counted.refused / counted.queries
        return Measured(share, share, counted.queries)

    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """Say that the share is unknown, unless the questions were counted again."""
        counted = getattr(self.record, self.field)
        if getattr(records.refusal, self.field, None) != counted:
            return records
        update = {self.field: counted.model_copy(update={"lower": 0.0})}
        return replace(records, refusal=records.refusal and records.refusal.model_copy(update=update))


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
        if records.refusal is not None and (share := records.refusal.lost.upper) < 1:
            yield cls(
                "answers refused",
                f"At most {percent_at_most(share)} of the right answers are refused.",
                share,
                records.refusal,
            )

    def measured(self, evidence: Evidence) -> Measured | None:
        """Measure the share again, which has to be within the limit stated before."""
        lost = evidence.lost(self.record)
        return None if lost is None else Measured(lost.mean, lost.mean, None)

    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """Say that the share is unknown, unless it was measured again."""
        if records.refusal is None or records.refusal.lost != self.record.lost:
            return records
        unknown = self.record.lost.model_copy(update={"lower": 0.0, "upper": 1.0})
        return replace(records, refusal=records.refusal.model_copy(update={"lost": unknown}))
