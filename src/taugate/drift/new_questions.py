"""Names the questions that are least like those of a calibration, grouped by the words that are new in them.

A question is unusual if its best similarity is outside the middle 90 % of the calibration's. One in ten is, without any
drift, so single ones say little. A group of unusual questions that share a word which ordinary questions do not have
says what users have begun to ask. This needs no list of stop words, because common words are in ordinary questions too.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from taugate.retrieval.index.words import words
from taugate.retrieval.vectors.similarity import Float32

MAX_GROUPS = 10  # as many as a person reads under an alarm
# Distinct unusual questions that are kept: a thousand of 200 characters take 0.4 MB, and are grouped in 20 ms.
MAX_QUESTIONS = 1000
_MAX_WORDS = 50_000  # of ordinary questions, some 5 MB: no traffic can make the count grow without limit
_MIN_DEVIATIONS = 3.0  # of a count that is a Poisson variable: fewer, and words such as "is" and "for" make groups
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
    """Unusual questions that share a word.

    Attributes:
        question: The one that is asked most often; of several, the one least like the calibration.
        word: Word that all of them have, None for one question alone.
        count: How often they were asked.
        since: Unix time at which the first of them was asked.
        best: Best similarity of `question`.
    """

    question: str
    word: str | None
    count: int
    since: float
    best: float


class NewQuestions:
    """Collects questions with their best similarities, and groups the unusual ones."""

    def __init__(self, usual: UsualRange) -> None:
        self.usual = usual
        self._unusual: dict[str, _Question] = {}
        self._words: Counter[str] = Counter()  # of ordinary questions: how many have the word
        self._ordinary = 0

    def add(self, text: str, at: float, best: float, *, is_new: bool) -> None:
        """Add a question that was asked at a Unix time.

        Args:
            text: The question.
            at: Unix time.
            best: Its best similarity.
            is_new: Whether it was asked under an alarm; others only show which words are ordinary.
        """
        if not is_new or not self.usual.distance(best):
            self._ordinary += 1
            full = len(self._words) >= _MAX_WORDS
            self._words.update(word for word in {*words(text)} if not full or word in self._words)
        elif question := self._unusual.get(text):
            question.count += 1
            question.since = min(question.since, at)
        elif len(self._unusual) < MAX_QUESTIONS:
            self._unusual[text] = _Question(1, at, best)

    def forget_unusual(self) -> None:
        """Forget the unusual questions, as of an earlier alarm, and keep the words of ordinary ones."""
        self._unusual.clear()

    def groups(self) -> list[QuestionGroup]:
        """Return at most MAX_GROUPS groups, the most frequent first."""
        left = {text: {*words(text)} for text in self._unusual}
        groups: list[QuestionGroup] = []
        while len(groups) < MAX_GROUPS and (word := self._newest_word(left.values())):
            groups.append(self._group([text for text, its_words in left.items() if word in its_words], word))
            left = {text: its_words for text, its_words in left.items() if word not in its_words}
        groups += self._single([*left], MAX_GROUPS - len(groups))
        return sorted(groups, key=lambda group: -group.count)

    def _newest_word(self, questions: Iterable[set[str]]) -> str | None:
        """Return the word that exceeds its share of ordinary questions in most questions; None if only in one.

        The excess is more than 1 and more than three standard deviations of the number that is expected.
        """
        questions = list(questions)
        counts = Counter(word for question in questions for word in question)
        share = len(questions) / (self._ordinary + 1)
        excess: dict[str, float] = {}
        for word, count in counts.items():
            expected = share * self._words[word]
            if count - expected > max(1.0, _MIN_DEVIATIONS * math.sqrt(expected)):
                excess[word] = count - expected
        return max(excess, key=lambda word: (excess[word], word), default=None)

    def _group(self, texts: Sequence[str], word: str | None) -> QuestionGroup:
        questions = [self._unusual[text] for text in texts]
        first = max(texts, key=lambda text: (self._unusual[text].count, self.usual.distance(self._unusual[text].best)))
        count, since = sum(question.count for question in questions), min(question.since for question in questions)
        return QuestionGroup(first, word, count, since, self._unusual[first].best)

    def _single(self, texts: Sequence[str], limit: int) -> list[QuestionGroup]:
        """Return questions that share no new word, the most frequent first, then those least like the calibration."""
        order = sorted(
            texts, key=lambda text: (-self._unusual[text].count, -self.usual.distance(self._unusual[text].best))
        )
        return [self._group([text], None) for text in order[:limit]]
