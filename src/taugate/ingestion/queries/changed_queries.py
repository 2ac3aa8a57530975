"""Labelled queries with one part changed, such that no document holds the rare terms of both parts."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple, Self

import numpy as np

from taugate.ingestion.dataset.beir import Dataset
from taugate.ingestion.queries.crop import sampling_key
from taugate.ingestion.queries.opposites import opposite
from taugate.ingestion.queries.question_rule import QuestionRule
from taugate.ingestion.queries.term_index import Term, TermIndex, stem, terms

_MAX_SOURCES = 2000  # labelled queries to read: twenty for each near miss, which bounds time and memory
_TRIES = 40  # parts of other queries to try for one query
_MAX_YEARS = 40  # between a year and the one in its place, so that both are about as likely
_YEARS = range(1000, 2100)
_LATEST = 1980  # years from here on become earlier ones, as later ones may lie in the future
_NUMBERS = 5  # numbers to try in place of one
# Words before which a query is cut in two; cut elsewhere, it is seldom a sentence when the tail changes.
_PREPOSITIONS = frozenset(
    [
        *("of", "in", "for", "on", "at", "by", "with", "from", "about", "between", "during", "under", "against"),
        *("von", "für", "mit", "auf", "bei", "aus", "über", "durch", "im", "am"),  # German
        *("de", "du", "des", "dans", "pour", "sur", "par", "avec"),  # French
        *("del", "en", "para", "por", "con", "sobre"),  # Spanish
        *("di", "della", "nel", "nella", "per", "su"),  # Italian
        *("do", "da", "no", "na", "em", "com"),  # Portuguese
        *("van", "voor", "met", "op", "bij", "uit"),  # Dutch
        *("w", "z", "dla", "o", "od", "przez"),  # Polish
    ]
)
_MAX_TAIL = 5  # terms after the preposition: a longer end is seldom one phrase


class _Part(NamedTuple):
    """A part of a query that replaces a part of another one.

    Attributes:
        source: Position of the query in `Dataset.answerable`.
        start: Position of its first character.
        end: Position after its last character.
        keys: Keys of its terms.
    """

    source: int
    start: int
    end: int
    keys: tuple[str, ...]


@dataclass(frozen=True)
class _Query:
    """A labelled query.

    Attributes:
        text: Its text.
        terms: Its terms.
        documents: Documents that answer it.
    """

    text: str
    terms: list[Term]
    documents: frozenset[int]

    def names(self, source: int) -> Iterator[tuple[str, _Part]]:
        """Yield runs of capitalised words and single other words, with a shape: words around them, and capitals.

        The first word is left out, as its capital says nothing. Words between the same two words are often of the same
        part of speech.
        """
        runs: list[list[Term]] = []
        for previous, term in pairwise(self.terms):
            is_name = term.text[0].isupper()
            adjoins = self.text[previous.end : term.start] == " "
            if runs and runs[-1][-1] is previous and is_name and adjoins and previous.text[0].isupper():
                runs[-1].append(term)
            elif not term.is_number:
                runs.append([term])
        places = {term.start: place for place, term in enumerate(self.terms)}
        for run in runs:
            before = self.terms[places[run[0].start] - 1]
            after = self.terms[places[run[-1].start] + 1 : places[run[-1].start] + 2]
            kind = "name" if run[0].text[0].isupper() else "word"
            yield f"{kind} {before.key} … {after[0].key if after else ''}", _part(source, run)

    def tails(self, source: int) -> Iterator[tuple[str, _Part]]:
        """Yield the part from the last preposition to the end, if it is short, with its first word as its shape."""
        places = [place for place, term in enumerate(self.terms) if place and term.text in _PREPOSITIONS]
        if places and 1 <= len(self.terms) - places[-1] - 1 <= _MAX_TAIL:
            part = _part(source, self.terms[places[-1] :])
            yield f"tail {self.terms[places[-1]].text}", part._replace(end=len(self.text))


@dataclass(frozen=True)
class ChangedQueries:
    """The labelled queries of a data set, and what is needed to change them.

    Attributes:
        queries: A seeded sample in random order, by the position in `Dataset.answerable`.
        index: The documents that hold the rare terms of the queries.
        parts: Parts with a rare term, by their shape.
        numbers: Numbers to try in place of a number.
        rule: Rule of the language of the queries.
        seed: Seed of every choice.
    """

    queries: dict[int, _Query]
    index: TermIndex
    parts: dict[str, list[_Part]]
    numbers: dict[str, list[str]]
    rule: QuestionRule
    seed: int

    @classmethod
    def read(cls, dataset: Dataset, seed: int) -> Self:
        """Read a sample of the queries, and the corpus.

        Args:
            dataset: Corpus and labelled queries.
            seed: Seed of the sample and of every choice.
        """
        labelled = dataset.answerable
        order = sorted(range(len(labelled)), key=lambda row: sampling_key(labelled[row].id, seed))[:_MAX_SOURCES]
        queries = {
            row: _Query(labelled[row].text, terms(labelled[row].text), frozenset(labelled[row].relevant))
            for row in order
        }
        rng = np.random.default_rng(seed)
        found = {term.text: None for query in queries.values() for term in query.terms if term.is_number}
        numbers = {number: list(_other_numbers(number, rng)) for number in found}
        vocabulary = {term.key for query in queries.values() for term in query.terms}
        vocabulary |= {stem(other) for others in numbers.values() for other in others}
        answers = frozenset[int]().union(*(query.documents for query in queries.values()))
        index = TermIndex.build(dataset.documents, vocabulary, answers)
        parts: dict[str, list[_Part]] = {}
        for row, query in queries.items():
            for shape, part in (*query.names(row), *query.tails(row)):
                if index.rare(part.keys):
                    parts.setdefault(shape, []).append(part)
        return cls(queries, index, parts, numbers, QuestionRule.for_texts(q.text for q in queries.values()), seed)

    def with_other_name(self, source: int) -> Iterator[str]:
        """Yield a query with a name, or a rare word, of another query in place of its own.

        No document holds all rare terms of the new name and one of the rare terms around it.

        Args:
            source: Position of the query in `Dataset.answerable`.
        """
        query, anchors = self.queries[source], self._anchors(source)
        for shape, own in self._shuffled(query.names(source), source):
            around = [key for key in anchors if key not in own.keys]
            if not around or len(around) == len(anchors):
                continue
            for other in self._others(shape, source):
                if not self._answers_hold(query, other.keys) and not self.index.holding_all(
                    other.keys
                ) & self.index.holding_any(around):
                    yield query.text[: own.start] + self._text(other) + query.text[own.end :]

    def with_other_tail(self, source: int) -> Iterator[str]:
        """Yield the beginning of a query with the end of another one, from the same preposition on.

        No document holds a rare term of the beginning with one of the end.

        Args:
            source: Position of the query in `Dataset.answerable`.
        """
        query, anchors = self.queries[source], self._anchors(source)
        for shape, own in self._shuffled(query.tails(source), source):
            before = {term.key for term in query.terms if term.end <= own.start}
            head = [key for key in anchors if key in before]
            if not head:
                continue
            for other in self._others(shape, source):
                if not self._answers_hold(query, other.keys) and not self.index.holding_any(
                    head
                ) & self.index.holding_any(other.keys):
                    yield query.text[: own.start] + self._text(other)

    def with_other_number(self, source: int) -> Iterator[str]:
        """Yield a question with another number in place of one that its documents hold.

        No document holds the new number and one of the other rare terms.

        Args:
            source: Position of the query in `Dataset.answerable`.
        """
        query, anchors = self.queries[source], self._anchors(source)
        if not self.rule.holds(query.text):
            return
        for term in query.terms:
            around = [key for key in anchors if key != term.key]
            if around and term.is_number and self._answers_hold(query, [term.key]):
                for other in self.numbers[term.text]:
                    key = stem(other)
                    if not self._answers_hold(query, [key]) and not self.index.holding_any(
                        [key]
                    ) & self.index.holding_any(around):
                        yield query.text[: term.start] + other + query.text[term.end :]

    def with_opposite(self, source: int) -> Iterator[str]:
        """Yield a question with the opposite of one of its words, which the documents that answer it do not hold.

        No other document holds all of the rare terms.

        Args:
            source: Position of the query in `Dataset.answerable`.
        """
        query, anchors = self.queries[source], self._anchors(source)
        if not anchors or not self.rule.holds(query.text) or self.index.holding_all(anchors) - query.documents:
            return
        for term in query.terms:
            other = opposite(term.text, self.rule.language)
            if (
                other is not None
                and self._answers_hold(query, [term.key])
                and not self._answers_hold(query, [stem(other)])
            ):
                yield query.text[: term.start] + other + query.text[term.end :]

    def _anchors(self, source: int) -> list[str]:
        """Return the keys of the rare terms that a query shares with a document that answers it."""
        query = self.queries[source]
        return [key for key in self.index.rare(term.key for term in query.terms) if self._answers_hold(query, [key])]

    def _answers_hold(self, query: _Query, keys: Iterable[str]) -> bool:
        """Return whether a document that answers a query holds one of the terms, if rare, or a single term."""
        keys = list(keys)
        checked = self.index.rare(keys) if len(keys) > 1 else keys
        return any(key in self.index.keys[document] for document in query.documents for key in checked)

    def _others(self, shape: str, source: int) -> Iterator[_Part]:
        """Yield some parts of other queries of a shape, in random order."""
        candidates = self.parts.get(shape, [])
        rng = np.random.default_rng([self.seed, source])
        for place in rng.permutation(len(candidates))[:_TRIES].tolist():
            if candidates[place].source != source:
                yield candidates[place]

    def _shuffled(self, parts: Iterable[tuple[str, _Part]], source: int) -> list[tuple[str, _Part]]:
        listed = list(parts)
        return [listed[place] for place in np.random.default_rng([self.seed, source, 1]).permutation(len(listed))]

    def _text(self, part: _Part) -> str:
        return self.queries[part.source].text[part.start : part.end]


def _part(source: int, run: list[Term]) -> _Part:
    return _Part(source, run[0].start, run[-1].end, tuple(term.key for term in run))


def _other_numbers(number: str, rng: np.random.Generator) -> Iterator[str]:
    """Yield numbers near a number of two digits or more: half as far as zero at most, and years at most 40 apart."""
    if len(number) < 2 or number.startswith("0"):
        return
    value = int(number)
    distance = _MAX_YEARS if value in _YEARS else value // 2
    for _ in range(_NUMBERS):
        yield str(
            value + int(rng.integers(2, max(3, distance))) * (1 if value < _LATEST and rng.random() < 0.5 else -1)
        )
