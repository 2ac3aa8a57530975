"""Labelled queries with one part changed, such that no document holds the new part together with the rest."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np

from taugate.ingestion.dataset.beir import Dataset
from taugate.ingestion.queries.crop import sampling_key
from taugate.ingestion.queries.question_rule import QuestionRule
from taugate.ingestion.queries.substitutes import nouns_between, nouns_of, opposite
from taugate.ingestion.queries.term_index import Term, TermIndex, stem, terms

_MAX_SOURCES = 2000  # labelled queries to read: twenty for each near miss, which bounds time and memory
_TRIES = 40  # names of other queries to try for one query
_MAX_YEARS = 40  # between a year and the one in its place, so that both are about as likely
_LATEST = 1980  # years from here on become earlier ones, as later ones may lie in the future
_OTHER_YEARS = 5  # years to try in place of one
_BEFORE, _BEHIND = {"", " ", "¿", "¡", "“", '"'}, {"", " ", "?", ".", ",", ";", ":", "!", "'", "’", "”", '"'}


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
        """Yield runs of capitalised words, each with two shapes: the words on both sides, and the word before it.

        The first word is left out, as its capital says nothing. Names between the same words are often alike.
        """
        runs: list[list[int]] = []
        for place in range(1, len(self.terms)):
            term, previous = self.terms[place], self.terms[place - 1]
            if not term.text[0].isupper():
                continue
            if runs and runs[-1][-1] == place - 1 and self.text[previous.end : term.start] == " ":
                runs[-1].append(place)
            else:
                runs.append([place])
        for run in runs:
            if not self.is_whole(self.terms[run[0]].start, self.terms[run[-1]].end):
                continue
            part, before = _part(source, [self.terms[place] for place in run]), self.word_at(run[0] - 1)
            yield f"{before} … {self.word_at(run[-1] + 1)}", part
            yield f"{before} …", part

    def is_whole(self, start: int, end: int) -> bool:
        """Return whether a part stands between spaces and punctuation: neither in a compound nor in parentheses.

        An abbreviation in parentheses may change without a change of the question.

        Args:
            start: Position of the first character of the part.
            end: Position after its last character.
        """
        return self.text[:start][-1:] in _BEFORE and self.text[end:][:1] in _BEHIND

    def word_at(self, place: int) -> str:
        """Return the term at a place in lower case, "" after the last one."""
        return self.terms[place].text.casefold() if place < len(self.terms) else ""


@dataclass(frozen=True)
class ChangedQueries:
    """The labelled queries of a data set, and what is needed to change them.

    Attributes:
        queries: A seeded sample in random order, by the position in `Dataset.answerable`.
        index: The documents that hold the rare terms of the queries.
        names: Names with a rare term, by their shape.
        years: Years to try in place of a year.
        rule: Rule of the language of the queries.
        seed: Seed of every choice.
    """

    queries: dict[int, _Query]
    index: TermIndex
    names: dict[str, list[_Part]]
    years: dict[str, list[str]]
    rule: QuestionRule
    seed: int

    @classmethod
    def read(cls, dataset: Dataset, seed: int) -> Self:
        """Read a sample of the queries, and the corpus. Crops are left out: a document nearly holds a changed one, too.

        Args:
            dataset: Corpus and labelled queries.
            seed: Seed of the sample and of every choice.
        """
        labelled = dataset.answerable
        rows = [row for row, query in enumerate(labelled) if query.origin != "crop"]
        order = sorted(rows, key=lambda row: sampling_key(labelled[row].id, seed))[:_MAX_SOURCES]
        queries = {
            row: _Query(labelled[row].text, terms(labelled[row].text), frozenset(labelled[row].relevant))
            for row in order
        }
        rng = np.random.default_rng(seed)
        rule = QuestionRule.for_texts(query.text for query in queries.values())
        found = {term.text: None for query in queries.values() for term in query.terms if term.is_year}
        years = {year: [str(other) for other in _other_years(int(year), rng)] for year in found}
        vocabulary = {term.key for query in queries.values() for term in query.terms}
        vocabulary |= {year for others in years.values() for year in others}
        vocabulary |= {stem(noun.casefold()) for noun in nouns_of(rule.language)}
        answers = frozenset[int]().union(*(query.documents for query in queries.values()))
        index = TermIndex.build(dataset.documents, vocabulary, answers)
        names: dict[str, list[_Part]] = {}
        for row, query in queries.items():
            for shape, part in query.names(row):
                if index.rare(part.keys):
                    names.setdefault(shape, []).append(part)
        return cls(queries, index, names, years, rule, seed)

    def with_other_name(self, source: int) -> Iterator[str]:
        """Yield a query with the name in another query in place of its own.

        Args:
            source: Position of the query in `Dataset.answerable`.
        """
        query, anchors = self.queries[source], self._anchors(source)
        rarity = {key: len(self.index.holders[key]) for key in anchors}
        names = [(shape, part) for shape, part in query.names(source) if rarity.keys() & set(part.keys)]
        # The rarest name is what the query is about: another one seldom leaves the answer as it is.
        for shape, own in sorted(names, key=lambda item: min(rarity[key] for key in item[1].keys if key in rarity)):
            around = [key for key in anchors if key not in own.keys]
            for other in self._others(shape, source):
                if self._apart(query, other.keys, around):
                    yield query.text[: own.start] + self._text(other) + query.text[own.end :]

    def with_other_year(self, source: int) -> Iterator[str]:
        """Yield a question with another year in place of one that the documents that answer it hold.

        Args:
            source: Position of the query in `Dataset.answerable`.
        """
        query, anchors = self.queries[source], self._anchors(source)
        for term in query.terms if self.rule.holds(query.text) else []:
            if term.is_year and query.is_whole(term.start, term.end) and self._answers_hold(query, [term.key]):
                around = [key for key in anchors if key != term.key]
                for year in self.years[term.text]:
                    if year not in self.index.common and self._apart(query, [year], around):
                        yield query.text[: term.start] + year + query.text[term.end :]

    def with_absent_thing(self, source: int) -> Iterator[str]:
        """Yield a question with a thing that no document mentions in place of one that its answers hold.

        A claim with such a thing may still be supported as a whole.

        Args:
            source: Position of the query in `Dataset.answerable`.
        """
        query, anchors = self.queries[source], self._anchors(source)
        for place in range(1, len(query.terms) if self.rule.holds(query.text) else 0):
            term, before, after = query.terms[place], query.word_at(place - 1), query.word_at(place + 1)
            is_noun = term.text.isalpha() and query.is_whole(term.start, term.end)
            if not is_noun or not self._answers_hold(query, [term.key]) or not {*anchors} - {term.key}:
                continue
            nouns = nouns_between(before, after, self.rule.language)
            for noun in np.random.default_rng([self.seed, source]).permutation(list(nouns)).tolist():
                if not self.index.knows(stem(noun.casefold())):
                    yield query.text[: term.start] + nouns[noun] + query.text[term.end :]

    def with_opposite(self, source: int) -> Iterator[str]:
        """Yield a question with the opposite of one of its words, which the documents that answer it do not hold.

        No other document holds all of its rare terms.

        Args:
            source: Position of the query in `Dataset.answerable`.
        """
        query, anchors = self.queries[source], self._anchors(source)
        if not anchors or not self.rule.holds(query.text) or self.index.holding_all(anchors) - query.documents:
            return
        words = query.text.split()
        for term in query.terms:
            other = opposite(term.text, self.rule.language) if term.text in words else None
            if other is None or other in words:
                continue
            if self._answers_hold(query, [term.key]) and not self._answers_hold(query, [stem(other)]):
                yield query.text[: term.start] + other + query.text[term.end :]

    def _anchors(self, source: int) -> list[str]:
        """Return the keys of the rare terms that a query shares with a document that answers it."""
        query = self.queries[source]
        return [key for key in self.index.rare(term.key for term in query.terms) if self._answers_hold(query, [key])]

    def _answers_hold(self, query: _Query, keys: Iterable[str]) -> bool:
        """Return whether a document that answers a query holds one of the terms."""
        return any(key in self.index.keys[document] for document in query.documents for key in keys)

    def _apart(self, query: _Query, new: Iterable[str], around: list[str]) -> bool:
        """Return whether no document holds new terms of a changed query with the rare terms around them.

        Args:
            query: The query before the change.
            new: Keys of the new terms.
            around: Keys of the rare terms that stay.
        """
        rare = self.index.rare(new)
        together = self.index.holding_any(rare) & self.index.holding_any(around)
        return bool(around) and not together and not self._answers_hold(query, rare)

    def _others(self, shape: str, source: int) -> list[_Part]:
        """Return some names in other queries of a shape, drawn at random; those of the closest topics come first."""
        candidates = self.names.get(shape, [])
        drawn = np.random.default_rng([self.seed, source]).permutation(len(candidates))[:_TRIES]
        parts = [candidates[place] for place in drawn.tolist() if candidates[place].source != source]
        own = self._topic(source)
        return sorted(parts, key=lambda part: -len(own & self._topic(part.source)))

    def _topic(self, source: int) -> frozenset[str]:
        """Return the rare terms of the documents that answer a query."""
        answers = (self.index.keys[document] for document in self.queries[source].documents)
        return frozenset[str]().union(*answers) & self.index.holders.keys()

    def _text(self, part: _Part) -> str:
        return self.queries[part.source].text[part.start : part.end]


def _part(source: int, run: list[Term]) -> _Part:
    return _Part(source, run[0].start, run[-1].end, tuple(term.key for term in run))


def _other_years(year: int, rng: np.random.Generator) -> Iterator[int]:
    """Yield years at most 40 from a year."""
    for _ in range(_OTHER_YEARS):
        distance = int(rng.integers(2, _MAX_YEARS, endpoint=True))
        yield year + distance if year < _LATEST and rng.random() < 0.5 else year - distance
