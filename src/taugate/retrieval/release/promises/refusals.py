"""Promises of the rule that refuses queries as a whole: certified by unanswerable queries, or stated of ρ."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from taugate.retrieval.release.evidence import Interval
from taugate.retrieval.release.promises.promise import NOTHING, Evidence, Measured, Promise, StatedRecords, percent
from taugate.retrieval.release.records import AbstentionRecord, ErrorLimit, RefusalRecord


@dataclass(frozen=True)
class LimitedAnswers(Promise):
    """At most a share of the unanswerable queries gets a result.

    Attributes:
        record: The rule that refuses queries.
    """

    record: AbstentionRecord

    @classmethod
    def of(cls, records: StatedRecords) -> Iterator[Promise]:
        """Yield the promise of a certified rule."""
        record = records.abstention
        if record is not None and record.certified and record.answered_unanswerable.asked is not None:
            yield cls(record.answered_unanswerable.asked, record)

    @property
    def name(self) -> str:
        """See Promise."""
        return "answered"

    @property
    def words(self) -> str:
        """See Promise."""
        return f"At most {percent(self.most)} of the unanswerable queries get a result."

    def measured(self, evidence: Evidence) -> Measured | None:
        """Certify the same limit again."""
        return _measured(evidence.answered(self.record), certified=True)

    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """See `LimitedRefusals.withdraw`."""
        return _uncertified(records)


@dataclass(frozen=True)
class LimitedRefusals(Promise):
    """At most a share of the answerable queries is refused.

    Attributes:
        record: The rule that refuses queries.
    """

    record: AbstentionRecord

    @classmethod
    def of(cls, records: StatedRecords) -> Iterator[Promise]:
        """Yield the promise of a certified rule: the requested limit, or the one that was found."""
        if records.abstention is not None and records.abstention.certified:
            limit = records.abstention.empty_answerable
            yield cls(limit.upper if limit.asked is None else limit.asked, records.abstention)

    @property
    def name(self) -> str:
        """See Promise."""
        return "refused"

    @property
    def words(self) -> str:
        """See Promise."""
        return f"At most {percent(self.most)} of the answerable queries are refused."

    def measured(self, evidence: Evidence) -> Measured | None:
        """Certify a requested limit again; one that was only found has to be no smaller than the share."""
        certified = self.record.empty_answerable.asked is not None
        return _measured(evidence.refused(self.record), certified=certified)

    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """Mark the rule as not certified: both of its limits are one statement."""
        return _uncertified(records)


@dataclass(frozen=True)
class RefusedQuestions(Promise):
    """ρ refuses most questions of a kind that no document answers.

    Attributes:
        record: The default refusal.
        field: Field of the record that counts the kind.
        questions: The kind in words.
    """

    record: RefusalRecord
    field: str
    questions: str

    @classmethod
    def of(cls, records: StatedRecords) -> Iterator[Promise]:
        """Yield the promises of ρ about the kinds that choose it; near misses are only counted."""
        kinds = {
            "off_topic": "off-topic questions",
            "request": "short requests",
            "unanswerable": "unanswerable queries",
        }
        for field, questions in kinds.items():
            counted = None if records.refusal is None else getattr(records.refusal, field)
            if records.refusal is not None and counted is not None and counted.lower > 0:
                yield cls(1 - counted.lower, records.refusal, field, questions)

    @property
    def name(self) -> str:
        """See Promise."""
        return f"{self.questions} refused"

    @property
    def words(self) -> str:
        """See Promise."""
        return f"At most {percent(self.most)} of the {self.questions} get a result."

    def measured(self, evidence: Evidence) -> Measured | None:
        """Count the questions again; the share that gets a result has to be within the limit stated before."""
        record = evidence.refusal(self.record)
        counted = None if record is None else getattr(record, self.field)
        if counted is None:
            return None
        share = 1 - counted.refused / counted.queries
        return Measured(share, share, counted.queries)

    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """Say that the share is unknown, unless the questions were counted again."""
        counted = getattr(self.record, self.field)
        if records.refusal is None or getattr(records.refusal, self.field) != counted:
            return records
        unknown = counted.model_copy(update={"lower": 0.0})
        return replace(records, refusal=records.refusal.model_copy(update={self.field: unknown}))


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
        if records.refusal is not None and records.refusal.lost.upper < 1:
            yield cls(records.refusal.lost.upper, records.refusal)

    @property
    def name(self) -> str:
        """See Promise."""
        return "answers refused"

    @property
    def words(self) -> str:
        """See Promise."""
        return f"At most {percent(self.most)} of the right answers are refused."

    def measured(self, evidence: Evidence) -> Measured | None:
        """Measure the share again, which has to be within the limit stated before."""
        lost = evidence.lost(self.record)
        return None if lost is None else Measured(lost.mean, lost.mean, None)

    def withdraw(self, records: StatedRecords) -> StatedRecords:
        """Say that the share is unknown, unless it was measured again."""
        if records.refusal is None or records.refusal.lost != self.record.lost:
            return records
        unknown = Interval(mean=self.record.lost.mean, lower=0.0, upper=1.0)
        return replace(records, refusal=records.refusal.model_copy(update={"lost": unknown}))


def _measured(limit: ErrorLimit | None, *, certified: bool) -> Measured | None:
    """Return what was measured of a limit: the confidence limit if it was certified, else the share."""
    if limit is None:
        return None
    return Measured(limit.found, limit.upper if certified else limit.found, limit.queries)


def _uncertified(records: StatedRecords) -> StatedRecords:
    if records.abstention is None:
        return records
    return replace(records, abstention=records.abstention.model_copy(update={"certified": False, "guarantee": NOTHING}))
