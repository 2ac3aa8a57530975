"""The part that terminal and page share: the keys, the words around a result, and when labels are written."""

import re
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import groupby
from typing import NamedTuple

from taugate.ingestion.dataset.lock import DatasetBusy
from taugate.ingestion.labels.judging import Judging
from taugate.ingestion.labels.session import Question

# Every key with what it does; the page has the same.
KEYS = {"y": "relevant", "n": "not relevant", "s": "skip query", "u": "undo", "q": "stop"}
_SHORTEST = 4  # letters: shorter words are in every passage, and marking them helps nobody
# Thai and Lao, Myanmar, Khmer, Japanese and Chinese put no spaces between words.
_UNSPACED = re.compile("[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff]")
_GRAMMAR = re.compile("[\u3040-\u309f]+")  # Hiragana alone: endings and particles of Japanese


class Segment(NamedTuple):
    """A piece of a passage, and whether it is a word of the query."""

    text: str
    matched: bool


class Desk:
    """One judge's place of work: the result that is asked about, and what each key does to it.

    Attributes:
        work: The judge's sample.
        say: Called with each sentence that the judge should read.
    """

    def __init__(self, work: Judging, say: Callable[[str], None]) -> None:
        self.work = work
        self._say = say
        self.question = work.session.question()

    def press(self, key: str) -> bool:
        """Do what a key says; returns False where the judge stops.

        Each time a query is finished, the labels of the data set are written. Where another command is writing to it
        just then, that waits until the next time.

        Args:
            key: One of KEYS; any other does nothing.

        Raises:
            InputError: Where the data set has changed.
        """
        session, question = self.work.session, self.question
        if key == "q":
            return False
        if key == "u":
            if not session.undo():
                self._say("there is nothing to take back")
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
    """Say where a passage comes from. Its score and the threshold's decision are not said: they would sway a judge.

    Args:
        question: That is asked.
    """
    if question.rank is not None:
        return f"Result {question.place} of {question.of}"
    return f"No result was relevant. Here is passage {question.place} of {question.of} that shares words with the query"


def segments(text: str, query: str) -> list[Segment]:
    """Divide a text where words of the query begin and end.

    A language without spaces between words has no words to compare; there, two letters that also stand side by side in
    the query are marked.

    Args:
        text: To divide.
        query: Whose words are looked for, with regard to neither case nor form.
    """
    wanted = set[str]()
    for start, end, spaced in _runs(query):
        run = _folded(query[start:end])
        if not spaced:
            wanted.update(run[place : place + 2] for place in range(len(run) - 1))
        elif len(run) >= _SHORTEST or run.isdecimal():
            wanted.add(run)
    matched = [False] * len(text)
    for start, end, spaced in _runs(text):
        pieces = [(start, end)] if spaced else [(place, place + 2) for place in range(start, end - 1)]
        for first, last in pieces:
            piece = _folded(text[first:last])
            if piece in wanted and not _GRAMMAR.fullmatch(piece):
                matched[first:last] = [True] * (last - first)
    groups = groupby(zip(text, matched, strict=True), key=lambda each: each[1])
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
