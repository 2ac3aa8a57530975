"""A judging session, shared by terminal and page: its keys, the texts around a result, and the writing of qrels."""

import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

from taugate.ingestion.dataset.lock import DatasetBusy
from taugate.ingestion.labels.judging import Judging
from taugate.ingestion.labels.session import Question

# The keys and their actions; the page has the same ones.
KEYS = {"y": "relevant", "n": "not relevant", "s": "skip query", "u": "undo", "q": "stop"}
_MIN_LETTERS = 4  # shorter words are in every passage, so marking them does not help
# Thai and Lao, Myanmar, Khmer, Japanese and Chinese put no spaces between words.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
_GRAMMAR = re.compile("[\u3040-\u309f]+")  # Hiragana alone: endings and particles of Japanese


class Segment(NamedTuple):
    """A piece of a passage, and whether it is a word of the query."""

    text: str
    matched: bool


class JudgingSession:
    """The session of one judge: the current question, and what the keys do to it.

    Attributes:
        work: The judge's sample.
        question: The result to judge next, or None if the sample is finished.
    """

    def __init__(self, work: Judging, say: Callable[[str], None]) -> None:
        self.work = work
        self._say = say
        self.question = work.session.question()

    def handle_key(self, key: str) -> bool:
        """Carry out the action of a key; returns False if the judge stops.

        The qrels are written whenever a query is finished, or after the next one if another command is writing to the
        data set.

        Args:
            key: One of KEYS; any other key does nothing.

        Raises:
            InputError: If the data set has changed.
        """
        session, question = self.work.session, self.question
        if key == "q":
            return False
        if key == "u":
            if not session.undo():
                self._say("there is nothing to undo")
        elif question is None:
            return True
        elif key == "s":
            session.skip(question)
        elif key in {"y", "n"}:
            session.judge(question, relevant=key == "y")
        else:
            return True
        self.question = session.question()
        if question is None or self.question is None or self.question.query != question.query:
            with suppress(DatasetBusy):
                self.work.write()
        return True


def heading(question: Question) -> str:
    """Return the heading of a passage; showing its score or the threshold's decision would bias the judge."""
    if question.rank is not None:
        return f"Result {question.place} of {question.of}"
    return f"No result was relevant. Passage {question.place} of {question.of} that shares words with the query"


def segments(text: str, query: str) -> list[Segment]:
    """Split a text into segments that match words of the query and segments that do not.

    For languages without spaces between words, pairs of adjacent letters are compared instead of words.

    Args:
        text: The text to split.
        query: The query; case and Unicode form are ignored.
    """
    query_words = set[str]()
    for start, end, spaced in _runs(query):
        run = _folded(query[start:end])
        if not spaced:
            query_words.update(run[place : place + 2] for place in range(len(run) - 1))
        elif len(run) >= _MIN_LETTERS or run.isdecimal():
            query_words.add(run)
    matched = [False] * len(text)
    for start, end, spaced in _runs(text):
        pieces = [(start, end)] if spaced else [(place, place + 2) for place in range(start, end - 1)]
        for first, last in pieces:
            piece = _folded(text[first:last])
            if piece in query_words and not _GRAMMAR.fullmatch(piece):
                matched[first:last] = [True] * (last - first)
    groups = groupby(zip(text, matched, strict=True), key=lambda pair: pair[1])
    return [Segment("".join(letter for letter, _ in group), marked) for marked, group in groups]


def _runs(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield start and end of each run of letters and digits, and whether its language puts spaces between words."""
    for kind, group in groupby(range(len(text)), key=lambda place: _kind(text[place])):
        if kind is not None:
            places = [*group]
            yield places[0], places[-1] + 1, kind


def _kind(letter: str) -> bool | None:
    """Return whether a letter's language puts spaces between words; None for what is part of no word."""
    if letter.isalnum() or letter in "_\u200c\u200d" or unicodedata.category(letter)[0] == "M":
        return not _UNSPACED.match(letter)
    return None


def _folded(word: str) -> str:
    return unicodedata.normalize("NFKC", word).casefold()
