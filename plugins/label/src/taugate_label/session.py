"""One judge's session on a sample: the next result, the progress, and a journal, so that a kill loses nothing.

The journal of one judge: a line for each key press, so that a killed process loses nothing. A judgement is of a query's
text and a document's text, whatever their ids. So it remains valid in a later sample, for another release and after the
corpus has changed, as long as both texts are the same.
"""

import hashlib
import json
import os
import statistics
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Literal, NamedTuple, Self

import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from taugate.data.lines import LineError, read_lines
from taugate.errors import InputError
from taugate.retrieval.documents.store import Document
from taugate.storage.files import append_lines, sync
from taugate.storage.folders import acquire_if_possible
from taugate_label.sample import Round, SampledQuery

_DIGITS = 32  # hexadecimal digits that stand for a pair of texts

Documents = Mapping[str, Document]  # passages by id
_PAUSE_SECONDS = 60.0  # a longer time between two judgements is a break, and not part of the work
_MIN_TIMES = 5  # judgements needed before the remaining time is estimated


def pair_of(query: str, document: Document) -> str:
    """Return hexadecimal digits that stand for a query's text and a document's: equal texts have equal digits."""
    parts = [query, document.title or "", document.text]
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]


class Entry(BaseModel):
    """One key press.

    Attributes:
        at: Unix time in seconds.
        action: Judge a result, skip a query, or undo the last judgement or skip.
        query: Id of the query, empty if the action has none.
        document: Id of the passage, empty if the action has none.
        relevant: The judgement; None for other actions.
    """

    model_config = ConfigDict(frozen=True, strict=True, extra="forbid")

    at: float
    round: int
    action: Literal["judge", "skip", "undo"]
    query: str = ""
    document: str = ""
    pair: str = ""
    relevant: bool | None = None


@dataclass
class Journal:
    """The key presses of one judge, without those that were undone."""

    judge: str
    entries: list[Entry] = field(default_factory=list)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a judge's file; a line that a killed process left unfinished is skipped."""
        journal = cls(path.stem)
        if not path.exists():
            return journal
        for number, text in read_lines(path):
            try:
                record = orjson.loads(text)
            except orjson.JSONDecodeError:
                if '{"at":'.startswith(text[:6]):
                    continue
                record = None
            try:
                journal.add(Entry.model_validate(record))
            except ValidationError as error:
                raise LineError(path, number, "not a key press of `taugate judge`", "remove the line") from error
        return journal

    def add(self, entry: Entry) -> None:
        """Apply a key press."""
        if entry.action != "undo":
            self.entries.append(entry)
        elif self.entries:
            self.entries.pop()

    def judgements(self) -> dict[str, bool]:
        """Return, for each pair, whether it is relevant; the latest judgement counts."""
        return {entry.pair: entry.relevant for entry in self.entries if entry.relevant is not None}

    def skipped(self, number: int) -> set[str]:
        """Return the ids of the queries that the judge skipped in one sample."""
        return {entry.query for entry in self.entries if entry.action == "skip" and entry.round == number}


class OpenJournal:
    """A judge's file, locked while the judge is judging: no other process may add to it."""

    def __init__(self, descriptor: int, journal: Journal) -> None:
        self._descriptor = descriptor
        self.journal = journal

    def append(self, entry: Entry) -> None:
        """Write a key press to the disk, then apply it."""
        # In ASCII, so that a line that is cut off anywhere is still text.
        line = json.dumps(entry.model_dump(exclude_defaults=True), separators=(",", ":"))
        append_lines(self._descriptor, f"{line}\n".encode("ascii"))
        sync(self._descriptor)
        self.journal.add(entry)


@contextmanager
def open_journal(path: Path) -> Iterator[OpenJournal]:
    """Open a judge's file, which is created if needed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
    try:
        if not acquire_if_possible(descriptor, path.parent):
            raise InputError(
                f"{path}: {path.stem} is judging in another process; end it, or give another name with --judge"
            )
        yield OpenJournal(descriptor, Journal.read(path))
    finally:
        os.close(descriptor)


def now() -> float:
    """Return the Unix time in seconds, as entries have it."""
    return round(time.time(), 3)


class Question(NamedTuple):
    """A result that the judge is asked about.

    Attributes:
        rank: Its place among the results, from 1; None for a passage that the search did not return.
    """

    query: SampledQuery
    document: Document
    rank: int | None
    of: int
    place: int
    pair: str


class Progress(NamedTuple):
    """The progress of a judge.

    Attributes:
        minutes: Estimate of the remaining time; None with too few judgements.
    """

    done: int
    total: int
    unit: str
    judgements: int
    minutes: int | None

    def __str__(self) -> str:
        left = ""
        if self.done == self.total:
            left = ", 0 min left"
        elif self.minutes is not None:
            left = f", about {self.minutes} min left" if self.minutes else ", less than 1 min left"
        judged = f"{self.judgements:,} judgement{'' if self.judgements == 1 else 's'}"
        return f"{self.done:,} of {self.total:,} {self.unit}, {judged}{left}"


class Session:
    """A judge's session on a sample.

    Attributes:
        disputed: Pairs of the disputed results, to ask about these alone; None to ask about all results.
    """

    def __init__(
        self, sample: Round, documents: Documents, open_journal: OpenJournal, disputed: Collection[str] | None = None
    ) -> None:
        self.sample = sample
        self._documents = documents
        self._open = open_journal
        self._disputed = disputed

    def question(self) -> Question | None:
        """Return the next result to judge; None at the end of the sample."""
        journal = self._open.journal
        judgements, skipped = journal.judgements(), journal.skipped(self.sample.number)
        for query in self.sample.queries:
            if query.id in skipped:
                continue
            for question in self._questions(query, judgements):
                if question.pair not in judgements:
                    return question
        return None

    def _questions(self, query: SampledQuery, judgements: Mapping[str, bool]) -> Iterator[Question]:
        """Yield the questions that this judge is asked about a query."""
        if self._disputed is None:
            return questions(query, self._documents, judgements)
        return (question for question in all_questions(query, self._documents) if question.pair in self._disputed)

    def judge(self, question: Question, *, relevant: bool) -> None:
        """Record whether a result is relevant."""
        self._note(
            Entry(
                at=now(),
                round=self.sample.number,
                action="judge",
                query=question.query.id,
                document=question.document.id,
                pair=question.pair,
                relevant=relevant,
            )
        )

    def skip(self, question: Question) -> None:
        """Skip the query of a question."""
        self._note(Entry(at=now(), round=self.sample.number, action="skip", query=question.query.id))

    def undo(self) -> bool:
        """Undo the last judgement or skip in this sample; returns False if there is none."""
        entries = self._open.journal.entries
        if not entries or entries[-1].round != self.sample.number:
            return False
        self._note(Entry(at=now(), round=self.sample.number, action="undo"))
        return True

    def progress(self) -> Progress:
        """Return the progress of the judge."""
        journal = self._open.journal
        entries = [entry for entry in journal.entries if entry.round == self.sample.number]
        judged = [entry for entry in entries if entry.action == "judge"]
        open_judgements = 0  # of the query that is being judged
        if self._disputed is None:
            unit, total = "queries", len(self.sample.queries)
            skipped = journal.skipped(self.sample.number)
            closed = {query.id for query in finished(self.sample, self._documents, journal)}
            done = len(skipped) + len(closed)
            open_judgements = sum(entry.query not in closed for entry in judged)
            judgements_per_item = (len(judged) - open_judgements) / len(closed) if closed else None
        else:
            unit, total, judgements_per_item = "disputed results", len(self._disputed), 1.0
            judgements, skipped = journal.judgements(), journal.skipped(self.sample.number)
            query_by_pair = {
                question.pair: query.id
                for query in self.sample.queries
                for question in self._questions(query, judgements)
            }
            done = sum(pair in judgements or query in skipped for pair, query in query_by_pair.items())
        gaps = [later.at - earlier.at for earlier, later in pairwise(entries)]
        gaps = [gap for gap in gaps if 0 <= gap <= _PAUSE_SECONDS]
        minutes = None
        if len(gaps) >= _MIN_TIMES and judgements_per_item is not None:
            remaining = max((total - done) * judgements_per_item - open_judgements, 0)
            minutes = round(remaining * statistics.mean(gaps) / 60)
        return Progress(done, total, unit, len(judged), minutes)

    def _note(self, entry: Entry) -> None:
        self._open.append(entry)


def questions(query: SampledQuery, documents: Documents, judgements: Mapping[str, bool]) -> Iterator[Question]:
    """Yield the questions about a query: all results and, if none is relevant, passages possibly missed.

    The first of these passages that is relevant ends the query.

    Args:
        judgements: The judge's answers by pair, read while the questions are consumed, so that each question may depend
            on the previous answer.
    """
    has_relevant = False
    for question in all_questions(query, documents):
        if question.rank is None and has_relevant:
            return
        yield question
        has_relevant = has_relevant or judgements.get(question.pair, False)


def all_questions(query: SampledQuery, documents: Documents) -> Iterator[Question]:
    """Yield a question for each result of a query, then one for each passage that the search may have missed."""
    for names, ranked in ((query.results, True), (query.others, False)):
        for place, name in enumerate(names, 1):
            document, rank = documents[name], place if ranked else None
            yield Question(query, document, rank, len(names), place, pair_of(query.text, document))


def finished(sample: Round, documents: Documents, journal: Journal) -> Iterator[SampledQuery]:
    """Yield the queries that a judge has judged completely; skipped ones are left out."""
    judgements, skipped = journal.judgements(), journal.skipped(sample.number)
    for query in sample.queries:
        if query.id in skipped:
            continue
        if all(question.pair in judgements for question in questions(query, documents, judgements)):
            yield query
