"""Rare terms of queries with the documents that hold them, and closed classes of words that replace one another.

Shows that no document holds two terms together, and that two names are of one kind.
"""

import math
import re
from collections import Counter
from collections.abc import Iterable, Set
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, Self

import regex

from taugate.retrieval.documents.store import DocumentStore
from taugate.retrieval.index.words import UNSPACED

# Only pairs that a question rarely survives: "with" and "without" may share an answer, a first event is often the last
# one, too, and a document that says what increases also says whether it decreases.
_OPPOSITES = {
    "English": "earliest/latest largest/smallest biggest/smallest highest/lowest oldest/youngest longest/shortest "
    "maximum/minimum northern/southern",
    "German": "größte/kleinste größten/kleinsten höchste/niedrigste höchsten/niedrigsten älteste/jüngste "
    "längste/kürzeste maximal/minimal maximale/minimale",
    "French": "maximum/minimum maximal/minimal maximale/minimale",
    "Spanish": "máximo/mínimo máxima/mínima mayor/menor",
    "Italian": "massimo/minimo massima/minima maggiore/minore",
    "Portuguese": "máximo/mínimo máxima/mínima maior/menor",
    "Dutch": "grootste/kleinste hoogste/laagste oudste/jongste langste/kortste maximaal/minimaal maximale/minimale",
}
# Beginnings of words that ask for an amount, which often holds for one year only.
_AMOUNTS = {
    "English": ("how many", "how much", "what percent", "what proportion", "what share", "what fraction"),
    "German": ("wie viel", "wieviel", "welcher anteil"),
    "French": ("combien", "quel pourcentage", "quelle part "),
    "Spanish": ("cuánt", "qué porcentaje", "qué proporción"),
    "Italian": ("quanto", "quanti ", "quanta", "quante", "quale percentuale", "che percentuale"),
    "Portuguese": ("quanto", "quanta ", "quantas", "que percentagem", "que porcentagem"),
    "Dutch": ("hoeveel", "welk percentage", "welk deel"),
}
# Months and weekdays of the languages that write them with a capital, in lower case.
_DATES = """
january february march april may june july august september october november december januar februar märz mai juni juli
oktober dezember monday tuesday wednesday thursday friday saturday sunday montag dienstag mittwoch donnerstag freitag
samstag sonntag
"""
DATES = frozenset(_DATES.split())

_TERM = re.compile(r"[^\W_]+")
_WORD_OR_MARK = re.compile(r"[^\W_]+|[^\w\s]")
_UNSPACED = regex.compile(UNSPACED)
# Words with the same first letters count as one, in any language: the first five of a Turkish word retrieve as well as
# its lemma (Can et al. 2008, JASIST 59, 407). Six join fewer words of different meaning.
_STEM = 6
# A term is rare if at most 2 % of the documents hold it: 10 of a FAQ with 503, 24 of the 1,204 of squad_v2_dev. The
# limit of 500 bounds the memory for a large corpus.
_MAX_SHARE, _MIN_LIMIT, _MAX_LIMIT = 0.02, 3, 500
_MIN_USES = 5  # of a name, from which the words around it tell its kind; chosen with the alikeness needed
_YEARS = range(1000, 2100)


def opposite(word: str, language: str | None) -> str | None:
    """Return the opposite of a word in lower case, or None if it is unknown."""
    for pair in _OPPOSITES.get(language or "", "").split():
        one, _, other = pair.partition("/")
        if word in {one, other}:
            return other if word == one else one
    return None


def asks_amount(question: str, language: str | None) -> bool:
    """Return whether a question asks for an amount."""
    text = f" {question.casefold().replace('¿', ' ')}"
    return any(f" {amount}" in text for amount in _AMOUNTS.get(language or "", ()))


class Term(NamedTuple):
    """A word or a number in a text."""

    text: str
    start: int  # position of the first character
    end: int  # position after the last character
    key: str  # the stem; terms with equal keys count as the same term

    @property
    def is_year(self) -> bool:
        """Whether the term is a number that may be a year."""
        return len(self.text) == 4 and self.text.isascii() and self.text.isdecimal() and int(self.text) in _YEARS


def index_terms(text: str) -> list[Term]:
    """Return the terms of a text in their order, without those of languages without spaces between words."""
    matches = [match for match in _TERM.finditer(text) if not _UNSPACED.search(match[0])]
    return [Term(match[0], match.start(), match.end(), stem(match[0].casefold())) for match in matches]


def stem(word: str) -> str:
    """Return the key of a word in lower case: its first letters, or the whole number."""
    return word if word.isdecimal() else word[:_STEM]


@dataclass(frozen=True)
class TermIndex:
    """The documents that hold each rare term of a vocabulary."""

    holders: dict[str, frozenset[int]]  # documents by key, for the rare terms of the vocabulary
    common: frozenset[str]  # keys of the terms that more documents hold
    keys: dict[int, frozenset[str]]  # all keys of some documents, by the position of the document
    # square roots of the shares of the words and marks before a capitalised term of the vocabulary
    before: dict[str, dict[str, float]]
    behind: dict[str, dict[str, float]]

    @classmethod
    def build(cls, documents: DocumentStore, vocabulary: Set[str], read_whole: Set[int]) -> Self:
        """Read the corpus once; `documents`: the corpus; chunks count as their document."""
        positions = count() if documents.parents is None else map(int, documents.parents)
        limit = min(_MAX_LIMIT, max(_MIN_LIMIT, int(_MAX_SHARE * len(documents))))
        holders: dict[str, set[int]] = {}
        common: set[str] = set()
        keys: dict[int, set[str]] = {position: set() for position in read_whole}
        before: dict[str, Counter[str]] = {}
        behind: dict[str, Counter[str]] = {}
        for position, document in zip(positions, documents, strict=False):
            present = {stem(word) for word in set(_TERM.findall(document.encoded_text.casefold()))}
            tokens = ["", *_WORD_OR_MARK.findall(document.encoded_text), ""]
            for left, word, right in zip(tokens, tokens[1:], tokens[2:], strict=False):
                if word[0].isupper() and (key := stem(word.casefold())) in vocabulary:
                    before.setdefault(key, Counter())[left] += 1
                    behind.setdefault(key, Counter())[right] += 1
            if position in keys:
                keys[position] |= present
            for key in (present & vocabulary) - common:
                holders.setdefault(key, set()).add(position)
                if len(holders[key]) > limit:
                    del holders[key]
                    common.add(key)
        return cls(
            {key: frozenset(positions) for key, positions in holders.items()},
            frozenset(common),
            {position: frozenset(present) for position, present in keys.items()},
            {key: _roots(counts) for key, counts in before.items() if counts.total() >= _MIN_USES},
            {key: _roots(counts) for key, counts in behind.items() if counts.total() >= _MIN_USES},
        )

    def alikeness(self, one: tuple[str, ...], other: tuple[str, ...]) -> float:
        """Return how alike the words around two names are, from 0 to 1."""
        # It is the sum of √(p · q) over the words before the names (Bhattacharyya 1943), or over those behind if less.
        before = _product(self.before.get(one[0], {}), self.before.get(other[0], {}))
        return min(before, _product(self.behind.get(one[-1], {}), self.behind.get(other[-1], {})))

    def rare(self, keys: Iterable[str]) -> list[str]:
        """Return the keys of rare terms, without repetition and in their order."""
        return [key for key in dict.fromkeys(keys) if key in self.holders]

    def holding_all(self, keys: Iterable[str]) -> frozenset[int]:
        """Return the documents that hold all rare terms; `keys`: keys, at least one of them rare."""
        return frozenset.intersection(*(self.holders[key] for key in self.rare(keys)))

    def holding_any(self, keys: Iterable[str]) -> frozenset[int]:
        """Return the documents that hold a rare term."""
        return frozenset[int]().union(*(self.holders[key] for key in self.rare(keys)))


def _roots(counts: Counter[str]) -> dict[str, float]:
    total = counts.total()
    return {word: math.sqrt(number / total) for word, number in counts.items()}


def _product(roots: dict[str, float], other_roots: dict[str, float]) -> float:
    return sum(roots[word] * other_roots[word] for word in roots.keys() & other_roots.keys())
