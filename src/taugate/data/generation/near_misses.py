"""Near misses: labelled queries with one part changed, such that no document answers them, made without a model.

A near miss changes one part of an answerable query, so that no document holds the new part together with the rest. In
SQuAD 2.0, people made unanswerable questions in the same ways: of the 3,106 of its development set whose cause is
annotated (SQuAD2-CR), 63 % have another entity, another number or date, or an antonym.
"""

import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self

import numpy as np

from taugate.data.beir import Dataset, read_dataset
from taugate.data.generation.generate import check_request, free_id, normalized, sampling_key
from taugate.data.generation.term_index import DATES, Term, TermIndex, asks_amount, index_terms, opposite, stem
from taugate.data.judgements import GENERATED
from taugate.data.queries import NEAR_MISS_KINDS, DatasetQuery, NearMissKind, QueryFile, replace_queries, sole_writer
from taugate.data.questions import QuestionRule
from taugate.errors import InputError

_MAX_SOURCES = 2000  # labelled queries to read: twenty for each near miss, which bounds time and memory
_TRIES = 1000  # names of other queries to try for one query
_MAX_YEARS = 40  # between a year and the one in its place, so that both are about as likely
_LATEST = 1980  # years from here on become earlier ones, as later ones may lie in the future
_OTHER_YEARS = 5  # years to try in place of one
_JOINING = 3  # letters of a word that may join the parts of a name, such as "of", "and", "the" and "der"
_NEIGHBOURS = 2  # documents before and after one that may be passages of the same text, which tell a fact together
# Alikeness from which two names are nearly always of one kind: chosen by reading on squad_v2_dev, squadshifts_new_wiki
# and covidqa_chunks, where .4 still replaced people by countries.
_ALIKE = 0.5
_BEFORE, _BEHIND = {"", " ", "¿", "¡", "“", '"'}, {"", " ", "?", ",", ";", ":", "!", "'", "’", "”", '"'}

MAX_PER_KIND = 100  # a share of .9 to within six points: 1.96 · √(.9 · .1 / 100) = .059


class _Part(NamedTuple):
    """A part of a query that replaces a part of another one."""

    source: int  # position of the query in `Dataset.answerable`
    start: int  # position of its first character
    end: int  # position after its last character
    text: str
    keys: tuple[str, ...]


@dataclass(frozen=True)
class _Query:
    """A labelled query."""

    text: str
    terms: list[Term]
    documents: frozenset[int]

    def names(self, source: int) -> Iterator[tuple[str, _Part]]:
        """Yield runs of capitalised words with their form: number of words, all capitals or not."""
        # The first word is left out, as its capital says nothing. So are months, weekdays, abbreviations without a
        # digit (many have several meanings), and parts of longer names and lists: runs with only words of up to three
        # letters between them ("Ministry of Sound", "Kent and Bath").
        runs: list[list[int]] = []
        for place in range(1, len(self.terms)):
            term, previous = self.terms[place], self.terms[place - 1]
            if not term.text[0].isupper():
                continue
            if runs and runs[-1][-1] == place - 1 and self.text[previous.end : term.start] == " ":
                runs[-1].append(place)
            else:
                runs.append([place])
        joined = {
            row
            for left in range(len(runs) - 1)
            if all(len(term.text) <= _JOINING for term in self.terms[runs[left][-1] + 1 : runs[left + 1][0]])
            for row in (left, left + 1)
        }
        for row, run in enumerate(runs):
            start, end = self.terms[run[0]].start, self.terms[run[-1]].end
            text, whole = self.text[start:end], row not in joined and self.is_whole(start, end)
            if whole and text.casefold() not in DATES and not (text.isupper() and text.isalpha()):
                part = _Part(source, start, end, text, tuple(self.terms[place].key for place in run))
                yield f"{len(run)} {text.isupper()}", part

    def is_whole(self, start: int, end: int) -> bool:
        """Return whether a part stands between spaces and punctuation: neither in a compound nor in parentheses."""
        # Without one in parentheses, a question asks the same. A full stop before more text marks an abbreviation.
        behind = self.text[end:]
        return self.text[:start][-1:] in _BEFORE and (behind[:1] in _BEHIND or behind.strip() == ".")


@dataclass(frozen=True)
class ChangedQueries:
    """The labelled queries of a data set, and what is needed to change them."""

    queries: dict[int, _Query]  # a seeded sample in random order, by the position in `Dataset.answerable`
    index: TermIndex  # the documents that hold the rare terms of the queries
    names: dict[str, dict[tuple[str, ...], _Part]]  # names with a rare term, by their form and keys
    years: dict[str, list[str]]
    rule: QuestionRule
    seed: int

    @classmethod
    def read(cls, dataset: Dataset, seed: int) -> Self:
        """Read a sample of the queries, without crops: a document nearly holds a changed one, too."""
        labelled = dataset.answerable
        rows = [row for row, query in enumerate(labelled) if query.origin != "crop"]
        order = sorted(rows, key=lambda row: sampling_key(labelled[row].id, seed))[:_MAX_SOURCES]
        queries = {
            row: _Query(labelled[row].text, index_terms(labelled[row].text), frozenset(labelled[row].relevant))
            for row in order
        }
        rng = np.random.default_rng(seed)
        rule = QuestionRule.for_texts(query.text for query in queries.values())
        years_in_queries = {term.text: None for query in queries.values() for term in query.terms if term.is_year}
        years = {year: [str(other) for other in _other_years(int(year), rng)] for year in years_in_queries}
        vocabulary = {term.key for query in queries.values() for term in query.terms}
        vocabulary |= {year for other_years in years.values() for year in other_years}
        answers = frozenset[int]().union(*(query.documents for query in queries.values()))
        index = TermIndex.build(dataset.documents, vocabulary, answers)
        names: dict[str, dict[tuple[str, ...], _Part]] = {}
        for row, query in queries.items():
            for form, part in query.names(row):
                if index.rare(part.keys):
                    names.setdefault(form, {}).setdefault(part.keys, part)
        return cls(queries, index, names, years, rule, seed)

    def with_other_name(self, source: int) -> Iterator[str]:
        """Yield a query with the name of another query in its place; a passage and its neighbours mention both."""
        query, anchors = self.queries[source], self._anchors(source)
        rarity = {key: len(self.index.holders[key]) for key in anchors}
        names = [(form, part) for form, part in query.names(source) if rarity.keys() & set(part.keys)]
        # The rarest name is what the query is about: another one seldom leaves the answer as it is.
        for form, name in sorted(names, key=lambda item: min(rarity[key] for key in item[1].keys if key in rarity)):
            around = [key for key in anchors if key not in name.keys]
            for other in self._similar_names(form, name):
                new = {*other.keys}.difference(term.key for term in query.terms)
                if self._near(name.keys) & self.index.holding_any(new) and self._apart(query, new, around):
                    yield query.text[: name.start] + other.text + query.text[name.end :]

    def with_other_year(self, source: int) -> Iterator[str]:
        """Yield a question for an amount with another year in place of one that the documents that answer it hold."""
        # The year ends a clause, but no date. The year of an event is often a detail: a document still tells the rest.
        query, anchors = self.queries[source], self._anchors(source)
        for place, term in enumerate(query.terms if asks_amount(query.text, self.rule.language) else []):
            if not term.is_year or place == 0 or not self._answers_hold(query, [term.key]):
                continue
            ends = query.text[term.end :][:1] not in {" ", "'", "’"} and query.is_whole(term.start, term.end)
            if ends and (place == 1 or query.terms[place - 1].text.islower()):
                around = [key for key in anchors if key != term.key]
                for year in self.years[term.text]:
                    if year not in self.index.common and self._apart(query, [year], around):
                        yield query.text[: term.start] + year + query.text[term.end :]

    def with_opposite(self, source: int) -> Iterator[str]:
        """Yield a question with the opposite of one of its words, which the documents that answer it do not hold."""
        # No other document holds all of its rare terms.
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
        """Return whether no document and none near it hold new terms of a changed query with the rare terms around."""
        rare = self.index.rare(new)
        joined = self._near(around) & self.index.holding_any(rare)
        return bool(around) and not joined and not self._answers_hold(query, rare)

    def _near(self, keys: Iterable[str]) -> set[int]:
        """Return the documents that hold a rare term, and those around them in the corpus."""
        return {row + step for row in self.index.holding_any(keys) for step in range(-_NEIGHBOURS, _NEIGHBOURS + 1)}

    def _similar_names(self, form: str, name: _Part) -> list[_Part]:
        """Return names of a form that the corpus uses like another one, those used most alike first."""
        # Names of several words also share their last one, such as "Baltic Sea" and "Caribbean Sea".
        candidates = list(self.names.get(form, {}).values())
        if len(name.keys) > 1:
            candidates = [part for part in candidates if part.keys[-1] == name.keys[-1]]
        drawn = np.random.default_rng([self.seed, name.source]).permutation(len(candidates))[:_TRIES]
        parts = [candidates[place] for place in drawn.tolist()]
        alike = {part: self.index.alikeness(name.keys, part.keys) for part in parts}
        return sorted((part for part in parts if alike[part] >= _ALIKE), key=lambda part: -alike[part])


def _other_years(year: int, rng: np.random.Generator) -> Iterator[int]:
    """Yield years at most 40 from a year."""
    for _ in range(_OTHER_YEARS):
        distance = int(rng.integers(2, _MAX_YEARS, endpoint=True))
        yield year + distance if year < _LATEST and rng.random() < 0.5 else year - distance


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A question that, with high probability, no document answers."""

    text: str
    kind: NearMissKind
    source: int  # position in `Dataset.answerable` of the query that it was made from


def near_misses(dataset: Dataset, seed: int) -> list[NearMiss]:
    """Return the near misses that a person could read and correct, or make some if none was written."""
    # Those written by `taugate queries --unanswerable` count if they were made from an answerable query of the data
    # set.
    positions = {query.id: row for row, query in enumerate(dataset.answerable)}
    written = [
        NearMiss(query.text, query.kind, positions[query.source])
        for query in dataset.written_near_misses
        if query.kind is not None and query.source in positions
    ]
    return written or make_near_misses(dataset, seed)


def make_near_misses(dataset: Dataset, seed: int, max_per_kind: int = MAX_PER_KIND) -> list[NearMiss]:
    """Make near misses from the answerable queries of a data set."""
    # A query makes at most one near miss of each kind, a crop none, and none repeats a query of the data set. The
    # corpus is read once, and no model is used. Texts without spaces between words give few or none.
    if all(query.origin == "crop" for query in dataset.answerable):
        return []
    changed = ChangedQueries.read(dataset, seed)
    makers: dict[NearMissKind, Callable[[int], Iterator[str]]] = {
        "name": changed.with_other_name,
        "year": changed.with_other_year,
        "opposite": changed.with_opposite,
    }
    taken = {normalized(query.text) for query in dataset.answerable + dataset.unanswerable}
    questions: list[NearMiss] = []
    for kind, make in makers.items():
        before = len(questions)
        for source in changed.queries:
            if len(questions) == before + max_per_kind:
                break
            text = next((text for text in make(source) if normalized(text) not in taken), None)
            if text is not None:
                taken.add(normalized(text))
                questions.append(NearMiss(text, kind, source))
    return questions


def generate_near_misses(data: Path, split: str, max_queries: int, seed: int) -> list[NearMiss]:
    """Make near misses from the queries of a split, and write them into queries.jsonl."""
    # They belong to no split; `near_misses` returns them in place of new ones. Those of an earlier run are replaced,
    # and every other query keeps its line, byte for byte.
    check_request(data, max_queries)
    with sole_writer(data), tempfile.TemporaryDirectory(prefix="taugate-") as spool:
        dataset = read_dataset(data, split, Path(spool))
        per_kind = min(MAX_PER_KIND, -(-max_queries // len(NEAR_MISS_KINDS)))
        questions = make_near_misses(dataset, seed, per_kind)[:max_queries]
        if not questions:
            raise InputError(
                f"{data}: no query of split {split} can be changed so that surely no document answers it; write such "
                'questions yourself, with "answerable": false'
            )
        before = QueryFile.read(data)
        existing = before.texts(other_than="near_miss")
        added: dict[str, DatasetQuery] = {}
        for near_miss in questions:
            source = dataset.answerable[near_miss.source].id
            name = free_id(f"{near_miss.kind}:{source}", existing, added)
            added[name] = DatasetQuery(near_miss.text, "near_miss", None, near_miss.kind, source, answerable=False)
        replace_queries(data, GENERATED, before, added, [], removed=before.texts("near_miss"))
    return questions
