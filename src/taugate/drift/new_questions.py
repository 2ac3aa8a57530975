"""Names the questions that are least like those of a calibration, grouped by the words that are new in them.

A question is unusual if its best similarity is outside the middle 90 % of the calibration's. One in ten is, without any
drift, so single ones say little. A group of unusual questions that share a word which is rare in ordinary questions and
in the documents says what users have begun to ask. This needs no list of stop words, because common words are in
ordinary questions or documents too.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import log
from typing import NamedTuple

import numpy as np

from taugate.policy.arrays import Float32
from taugate.retrieval.index.words import words

MAX_GROUPS = 10  # as many as a person reads under an alarm
# Distinct unusual questions that are kept: a thousand of 200 characters take 0.4 MB, and are grouped in 20 ms.
MAX_QUESTIONS = 1000
_MAX_WORDS = 50_000  # of ordinary texts, some 5 MB: no traffic can make the count grow without limit
# A word is new if it is at least this many times as frequent in unusual questions as in ordinary ones and in documents,
# and in less than this share of either. At 5 and 10 times, words such as "did" and "were", which a small corpus lacks,
# named most groups of foreign questions mixed with the sample's own; at 30 times, hardly any.
_MIN_RATIO, _MAX_SHARE = 30.0, 0.05
_TAIL = 5.0  # per cent, as for θ of COE and ROE


class UsualRange(NamedTuple):
    """The middle 90 % of the best similarities of calibration queries."""

    lower: float
    upper: float

    @classmethod
    def of(cls, best: Float32) -> "UsualRange":
        """Return the range of q similarities, (q,)."""
        lower, upper = np.percentile(best, [_TAIL, 100 - _TAIL])
        return cls(float(lower), float(upper))

    def distance(self, similarity: float) -> float:
        """Return how far a similarity is outside; 0 within."""
        return max(self.lower - similarity, similarity - self.upper, 0.0)


@dataclass(slots=True)
class _Question:
    count: int
    since: float
    best: float


@dataclass(frozen=True, slots=True)
class QuestionGroup:
    """Unusual questions that share a word."""

    question: str  # the one that is least like the calibration
    word: str | None  # word that all of them have and that is rare elsewhere; None if the question has none
    count: int  # how often they were asked
    since: float  # Unix time at which the first of them was asked
    best: float  # best similarity of `question`


class _WordShares:
    """The shares of texts that have a word."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._counts, self._texts = Counter[str](), 0
        for text in texts:
            self.add(text)

    def add(self, text: str) -> None:
        """Count the words of a text."""
        self._texts += 1
        full = len(self._counts) >= _MAX_WORDS
        self._counts.update(word for word in {*words(text)} if not full or word in self._counts)

    def share(self, word: str) -> float:
        """Return the share of texts that have the word, as if half a text more had it; 0 if there are no texts."""
        return (self._counts[word] + 0.5) / (self._texts + 1) if self._texts else 0.0


class NewQuestions:
    """Collects questions with their best similarities, and groups the unusual ones."""

    def __init__(self, usual: UsualRange, calibration: Sequence[str] = (), passages: Iterable[str] = ()) -> None:
        """Start without traffic.

        `usual` are best similarities, `calibration` its questions, which are never new, `passages` a sample of the
        documents.
        """
        self.usual = usual
        self._unusual: dict[str, _Question] = {}
        self._calibration = frozenset(calibration)
        self._ordinary, self._passages = _WordShares(calibration), _WordShares(passages)

    def add(self, text: str, at: float, best: float, *, is_new: bool) -> None:
        """Add a question that was asked at a Unix time.

        `is_new`: it was asked under an alarm; others only show which words are ordinary.
        """
        if not is_new:
            self._ordinary.add(text)
        elif text in self._calibration or not self.usual.distance(best):
            return
        elif question := self._unusual.get(text):
            question.count += 1
            question.since = min(question.since, at)
        elif len(self._unusual) < MAX_QUESTIONS:
            self._unusual[text] = _Question(1, at, best)

    def forget_unusual(self) -> None:
        """Forget the unusual questions, as of an earlier alarm, and keep the words of ordinary ones."""
        self._unusual.clear()

    def groups(self) -> list[QuestionGroup]:
        """Return at most MAX_GROUPS groups, the most frequent first, then those least like the calibration."""
        left = {text: {*words(text)} for text in self._unusual}
        weights = self._new_words(left.values())
        groups: list[QuestionGroup] = []
        while len(groups) < MAX_GROUPS:
            counts = Counter(word for its_words in left.values() for word in its_words & {*weights})
            shared = [word for word, count in counts.items() if count > 1]
            if not shared:
                break
            word = max(shared, key=lambda word: (counts[word] * weights[word], word))
            groups.append(self._group([text for text, its_words in left.items() if word in its_words], word))
            left = {text: its_words for text, its_words in left.items() if word not in its_words}
        farthest = sorted(left, key=self._distance, reverse=True)[: MAX_GROUPS - len(groups)]
        groups += [self._group([text], self._rarest(left[text])) for text in farthest]
        return sorted(groups, key=lambda group: (-group.count, -self.usual.distance(group.best)))

    def _new_words(self, questions: Iterable[set[str]]) -> dict[str, float]:
        """Return the words that are rare elsewhere, with the logarithm of how many times as frequent they are here."""
        # That times the number of questions is the log-likelihood by which corpora are compared (Dunning, Accurate
        # methods for the statistics of surprise and coincidence, 1993), but for the term of the words that are missing.
        questions = list(questions)
        counts = Counter(word for question in questions for word in question if _names(word))
        shares = {word: max(self._share(word), 1e-9) for word in counts}
        ratios = {word: count / len(questions) / shares[word] for word, count in counts.items()}
        return {word: log(ratio) for word, ratio in ratios.items() if ratio >= _MIN_RATIO and shares[word] < _MAX_SHARE}

    def _share(self, word: str) -> float:
        """Return the share of ordinary questions, or of documents, that have the word, whichever is larger."""
        return max(self._ordinary.share(word), self._passages.share(word))

    def _rarest(self, its_words: Iterable[str]) -> str | None:
        rare = [word for word in its_words if _names(word)]
        return min(rare, key=lambda word: (self._share(word), -len(word), word), default=None)

    def _distance(self, text: str) -> float:
        return self.usual.distance(self._unusual[text].best)

    def _group(self, texts: Sequence[str], word: str | None) -> QuestionGroup:
        questions = [self._unusual[text] for text in texts]
        farthest = max(texts, key=lambda text: (self._distance(text), self._unusual[text].count))
        count, since = sum(question.count for question in questions), min(question.since for question in questions)
        return QuestionGroup(farthest, word, count, since, self._unusual[farthest].best)


def _names(word: str) -> bool:
    """Return whether a word can name a group: words of one or two Latin letters are articles, pronouns and the like."""
    return len(word) > 2 or not word.isascii() or not word.isalpha()
