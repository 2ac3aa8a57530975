"""A judging session, shared by terminal and page: its keys, the texts around a result, and the writing of qrels."""

from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

import regex

from taugate.ingestion.dataset.lock import DatasetBusy
from taugate.ingestion.labels.judging import Judging
from taugate.ingestion.labels.session import Question
from taugate.retrieval.index.words import UNSPACED, words

# The keys and their actions; the page has the same ones.
KEYS = {"y": "relevant", "n": "not relevant", "s": "skip query", "u": "undo", "q": "stop"}
_PAIR = regex.compile(rf"(?:{UNSPACED}\p{{M}}*+){{2}}")  # two letters of a language without spaces between words
_WORD = regex.compile(rf"(?<![\w\u200c\u200d])(?:(?!{UNSPACED})[\w\u200c\u200d])++")
# Shorter words are in every passage, so marking them does not help.
_MARKED = regex.compile(rf"\w{{4,}}|\d+|{_PAIR.pattern}")
_GRAMMAR = regex.compile(r"\p{Hiragana}+")  # Hiragana alone: endings and particles of Japanese


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
        """Carry out the action of a key of KEYS, any other does nothing; returns False if the judge stops.

        The qrels are written whenever a query is finished, or after the next one if another command is writing to the
        data set.

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
    """Split a text into segments that match words of the query, whatever their case and Unicode form, and others.

    For languages without spaces between words, pairs of adjacent letters are compared instead of words.
    """
    query_words = {word for word in words(query) if _MARKED.fullmatch(word) and not _GRAMMAR.fullmatch(word)}
    matched = [False] * len(text)
    for pattern in (_WORD, _PAIR):
        for piece in pattern.finditer(text, overlapped=True):
            if query_words.intersection(words(piece[0])):
                matched[slice(*piece.span())] = [True] * len(piece[0])
    groups = groupby(zip(text, matched, strict=True), key=lambda pair: pair[1])
    return [Segment("".join(letter for letter, _ in group), marked) for marked, group in groups]
