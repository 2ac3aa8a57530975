"""One judge's way through a sample: the next result, the judgements, and the progress."""

import statistics
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import NamedTuple

from taugate.ingestion.labels.journal import Entry, Journal, OpenJournal, now, pair_of
from taugate.ingestion.labels.sample import Round, SampledQuery
from taugate.retrieval.documents.store import Document

Documents = Mapping[str, Document]  # passages by id
_PAUSE_SECONDS = 60.0  # a longer time between two judgements is a break, and not part of the work
_MIN_TIMES = 5  # judgements, before anything is said about the time that is left


class Question(NamedTuple):
    """A result that the judge is asked about.

    Attributes:
        query: That it may answer.
        document: The passage.
        rank: Its place among the results, from 1; None for a passage that the search did not return.
        of: How many results, or such passages, the query has.
        place: Which of those it is, from 1.
        pair: Digits that stand for both texts.
    """

    query: SampledQuery
    document: Document
    rank: int | None
    of: int
    place: int
    pair: str


class Progress(NamedTuple):
    """How far a judge is.

    Attributes:
        done: Queries, or disputed results, that are judged or skipped.
        total: How many there are.
        unit: Name of what is counted.
        judgements: How many results were judged.
        minutes: How long the rest takes; None while too little is known.
    """

    done: int
    total: int
    unit: str
    judgements: int
    minutes: int | None

    def __str__(self) -> str:
        left = "" if self.minutes is None else f", about {max(self.minutes, 1)} min left"
        judged = f"{self.judgements:,} judgement{'' if self.judgements == 1 else 's'}"
        return f"{self.done:,} of {self.total:,} {self.unit}, {judged}{left}"


class Session:
    """A judge's way through a sample.

    Attributes:
        sample: The round.
        documents: Every passage that it names.
        open_journal: Where key presses are written.
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
            for question in self._asked(query, judgements):
                if question.pair not in judgements:
                    return question
        return None

    def _asked(self, query: SampledQuery, judgements: Mapping[str, bool]) -> Iterator[Question]:
        """Yield what this judge is asked about a query."""
        if self._disputed is None:
            return questions(query, self._documents, judgements)
        return (each for each in all_questions(query, self._documents) if each.pair in self._disputed)

    def judge(self, question: Question, *, relevant: bool) -> None:
        """Note whether a result is relevant.

        Args:
            question: That was asked.
        """
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
        """Leave a query out.

        Args:
            question: One of its results.
        """
        self._note(Entry(at=now(), round=self.sample.number, action="skip", query=question.query.id))

    def undo(self) -> bool:
        """Take the last judgement or skip in this sample back; returns False where there is none."""
        entries = self._open.journal.entries
        if not entries or entries[-1].round != self.sample.number:
            return False
        self._note(Entry(at=now(), round=self.sample.number, action="undo"))
        return True

    def progress(self) -> Progress:
        """Say how far the judge is."""
        journal = self._open.journal
        entries = [each for each in journal.entries if each.round == self.sample.number]
        judged = [each for each in entries if each.action == "judge"]
        if self._disputed is None:
            unit, total = "queries", len(self.sample.queries)
            skipped = journal.skipped(self.sample.number)
            done = len(skipped) + sum(1 for _ in finished(self.sample, self._documents, journal))
            each_takes = len(judged) / (done - len(skipped)) if done > len(skipped) else None
        else:
            unit, total, each_takes = "disputed results", len(self._disputed), 1.0
            judgements, skipped = journal.judgements(), journal.skipped(self.sample.number)
            asked = {
                each.pair: each.query.id for query in self.sample.queries for each in self._asked(query, judgements)
            }
            done = sum(pair in judgements or query in skipped for pair, query in asked.items())
        gaps = [later.at - earlier.at for earlier, later in pairwise(entries)]
        gaps = [gap for gap in gaps if 0 <= gap <= _PAUSE_SECONDS]
        minutes = None
        if len(gaps) >= _MIN_TIMES and each_takes is not None:
            minutes = round((total - done) * each_takes * statistics.mean(gaps) / 60)
        return Progress(done, total, unit, len(judged), minutes)

    def _note(self, entry: Entry) -> None:
        self._open.append(entry)


def questions(query: SampledQuery, documents: Documents, judgements: Mapping[str, bool]) -> Iterator[Question]:
    """Yield what a judge is asked about a query: all results and, if none is relevant, passages that the search missed.

    The first of these passages that is relevant ends the query.

    Args:
        query: Of the sample.
        documents: Every passage that it names.
        judgements: What the judge has said, by pair; read as the questions are taken, so that each may depend on the
            answer to the one before.
    """
    found = False
    for question in all_questions(query, documents):
        if question.rank is None and found:
            return
        yield question
        found = found or judgements.get(question.pair, False)


def all_questions(query: SampledQuery, documents: Documents) -> Iterator[Question]:
    """Yield a question for each result of a query, then one for each passage that the search may have missed.

    Args:
        query: Of the sample.
        documents: Every passage that it names.
    """
    for names, ranked in ((query.results, True), (query.others, False)):
        for place, name in enumerate(names, 1):
            document, rank = documents[name], place if ranked else None
            yield Question(query, document, rank, len(names), place, pair_of(query.text, document))


def finished(sample: Round, documents: Documents, journal: Journal) -> Iterator[SampledQuery]:
    """Yield the queries of which a judge has judged all that there is to judge, skipped ones left out.

    Args:
        sample: The round.
        documents: Every passage that it names.
        journal: Of the judge.
    """
    judgements, skipped = journal.judgements(), journal.skipped(sample.number)
    for query in sample.queries:
        if query.id not in skipped and all(each.pair in judgements for each in questions(query, documents, judgements)):
            yield query
