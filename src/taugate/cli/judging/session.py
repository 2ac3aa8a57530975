"""A judging session, of the page: its keys, the texts around a result, and the writing of qrels."""

from collections.abc import Callable
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

import regex

from taugate.ingestion.dataset.lock import DatasetBusy
from taugate.ingestion.labels.judging import Judging
from taugate.ingestion.labels.session import Question
from taugate.retrieval.index.words import UNSPACED, words

# What every judge has to agree on, so that judgements can be compared.
GUIDELINE = "Relevant: the passage answers the query, or a part of it. The same topic alone is not enough."
# The keys of the page, and their actions.
KEYS = {"y": "relevant", "n": "not relevant", "s": "skip query", "u": "undo", "q": "stop"}
_LETTER = regex.compile(rf"{UNSPACED}\p{{M}}*+")  # of a language without spaces between words
_PAIR = regex.compile(rf"(?:{_LETTER.pattern}){{2}}")
_WORD = regex.compile(rf"(?<![\w\u200c\u200d])(?:(?!{UNSPACED})[\w\u200c\u200d])++")
# Shorter words are in every passage, so marking them does not help, unless they hold a digit or are acronyms.
_MARKED = regex.compile(rf"\w{{4,}}|\w*\d\w*|{_PAIR.pattern}|{_LETTER.pattern}")
_ACRONYM = regex.compile(r"\w+\p{Lu}\w*")  # a capital letter after the first, as in EU, pH and 3D
_GRAMMAR = regex.compile(r"\p{Hiragana}+")  # Hiragana alone: endings and particles of Japanese


class Commands(NamedTuple):
    """Commands of a judge: to go on judging this sample, and to calibrate on the judgements."""

    judge: str
    calibrate: str


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


def next_step(work: Judging, commands: Commands) -> tuple[str, str]:
    """Return what a judge who stops can do next: a phrase, and the command."""
    progress = work.session.progress()
    if progress.done < progress.total:
        return "Continue with", commands.judge
    if work.verdicts().judged:
        return "Next, calibrate on the judgements", commands.calibrate
    return "Every query was skipped. Judge others with", f"{commands.judge} --more"


def heading(question: Question) -> str:
    """Return the heading of a passage; showing its score or the threshold's decision would bias the judge."""
    if question.rank is not None:
        return f"Result {question.place} of {question.of}"
    return f"No result was relevant. Passage {question.place} of {question.of} that shares words with the query"


def segments(text: str, query: str) -> list[Segment]:
    """Split a text into segments that match words of the query, whatever their case and Unicode form, and others.

    For languages without spaces between words, pairs of adjacent letters are compared instead of words.
    """
    query_words = set(words(query))
    acronyms = _acronyms(query)
    marked = {word for word in query_words if _MARKED.fullmatch(word) and not _GRAMMAR.fullmatch(word)}
    marked |= query_words & (acronyms | _acronyms(text))
    matched = [False] * len(text)
    for pattern in (_WORD, _PAIR, _LETTER):
        for piece in pattern.finditer(text, overlapped=True):
            if marked.intersection(words(piece[0])):
                matched[slice(*piece.span())] = [True] * len(piece[0])
    groups = groupby(zip(text, matched, strict=True), key=lambda pair: pair[1])
    return [Segment("".join(letter for letter, _ in group), is_match) for is_match, group in groups]


def _acronyms(text: str) -> set[str]:
    """Return the words of a text that have capital letters within them, unless all of it is in capitals."""
    return set() if text.isupper() else {folded for piece in _ACRONYM.findall(text) for folded in words(piece)}
