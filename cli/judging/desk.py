"""What the terminal and the page have in common: the keys, the words around a result, and when labels are written."""

import re
import unicodedata
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from taugate.ingestion.dataset.lock import DatasetBusy
from taugate.ingestion.labels.judging import Judging
from taugate.ingestion.labels.session import Question

# Every key with what it does; the page has the same.
KEYS = {"y": "relevant", "n": "not relevant", "s": "skip query", "u": "undo", "q": "stop"}
_WORD = re.compile(r"\w+")
_SHORTEST = 4  # letters: shorter words are in every passage, and marking them helps nobody


class Segment(NamedTuple):
    """A piece of a passage, and whether it is a word of the query."""

    text: str
    matched: bool


class Desk:
    """One judge's place of work: the result that is asked about, and what each key does to it.

    work: the judge's sample. say: told, in a sentence, what the user should know.
    """

    def __init__(self, work: Judging, say: Callable[[str], None]) -> None:
        self.work = work
        self._say = say
        self.question = work.session.question()

    def press(self, key: str) -> bool:
        """Do what a key says; returns False where the judge stops.

        Each time a query is finished, the labels of the data set are written. Where another command is writing to it
        just then, that waits until the next time.

        key: one of KEYS; any other does nothing. Raises InputError where the data set has changed.
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
    """Say where a passage comes from: neither its score nor whether the threshold keeps it, which would sway a judge.

    question: that is asked.
    """
    if question.rank is not None:
        return f"Result {question.place} of {question.of}"
    return f"No result was relevant. Here is passage {question.place} of {question.of} that shares words with the query"


def segments(text: str, query: str) -> list[Segment]:
    """Divide a text where the query's longer words begin and end.

    text: to divide. query: whose words are looked for, with regard to neither case nor form.
    """
    wanted = {word for word in map(_folded, _WORD.findall(query)) if len(word) >= _SHORTEST or word.isdecimal()}
    pieces, end = list[Segment](), 0
    for match in _WORD.finditer(text):
        if _folded(match[0]) in wanted:
            if match.start() > end:
                pieces.append(Segment(text[end : match.start()], matched=False))
            pieces.append(Segment(match[0], matched=True))
            end = match.end()
    if end < len(text):
        pieces.append(Segment(text[end:], matched=False))
    return pieces


def _folded(word: str) -> str:
    return unicodedata.normalize("NFKC", word).casefold()
