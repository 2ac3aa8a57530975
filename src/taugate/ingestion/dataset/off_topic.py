"""Off-topic questions that come with Taugate: everyday questions and short requests that most corpora do not answer.

They were written for this purpose, in ten languages and from many fields, so that they are off topic for almost every
corpus. A corpus that covers one of the fields answers a few of them. Requests are what people say to an assistant:
short commands, small talk and quick questions of general knowledge.

There are two halves, written apart: one chooses ρ, and the other states how many questions ρ refuses. Questions of one
author resemble each other, and so do those of one field.
"""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

from taugate.ingestion.queries.question_rule import QuestionRule

_FILES = ("off_topic_choosing.tsv", "off_topic_stating.tsv")
# Of all languages together, for queries in a language that the table lacks, every fourth question is about as many as
# there are in English.
_ALL_LANGUAGES_STEP = 4
# So many are sent to a store at 10 a second in half a minute.
_MAX_SENT = 300


class OffTopicQuestion(NamedTuple):
    """An off-topic question.

    Attributes:
        language: English name of its language, as in `question_rule`.
        kind: "question" about another subject, or "request".
        field: Field of knowledge, or group of requests.
        text: Text of the question.
        chooses: Whether it is in the half that chooses ρ.
    """

    language: str
    kind: str
    field: str
    text: str
    chooses: bool

    @property
    def is_request(self) -> bool:
        """Whether it is a short request to an assistant."""
        return self.kind == "request"


@cache
def off_topic_table() -> tuple[OffTopicQuestion, ...]:
    """Return all off-topic questions, those that choose first, grouped by language; English comes first."""
    return tuple(
        OffTopicQuestion(language, kind, field, text, chooses=file == _FILES[0])
        for file in _FILES
        for line in Path(__file__).with_name(file).read_text(encoding="utf-8").splitlines()
        for language, kind, field, text in [line.split("\t")]
    )


def off_topic_questions(queries: Iterable[str]) -> tuple[OffTopicQuestion, ...]:
    """Return the off-topic questions in the language of queries, or some in all languages if the table lacks it.

    An encoder of one language gives foreign questions low scores, so these would hide how many of the users' own are
    answered.
    """
    table, language = off_topic_table(), QuestionRule.for_texts(queries).language
    return tuple(question for question in table if question.language == language) or table[::_ALL_LANGUAGES_STEP]


def off_topic_sent(queries: Iterable[str]) -> tuple[OffTopicQuestion, ...]:
    """Return at most 300 of these questions, evenly spaced, to send to a store."""
    questions = off_topic_questions(queries)
    return questions[:: -(-len(questions) // _MAX_SENT)]


def off_topic_example(language: str | None) -> str:
    """Return an off-topic question in a language, in any language if the table lacks it, or if it is None."""
    questions = [question for question in off_topic_table() if not question.is_request]
    return next((question.text for question in questions if question.language == language), questions[0].text)
