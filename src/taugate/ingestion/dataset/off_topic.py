"""Off-topic questions that come with Taugate: everyday questions and short requests that most corpora do not answer.

They were written for this purpose, in ten languages and from some seventy fields, so that they are off topic for almost
every corpus. A corpus that covers one of the fields answers a few of them. Requests are what people say to an
assistant: short commands, small talk and quick questions of general knowledge.
"""

from functools import cache
from pathlib import Path
from typing import NamedTuple

_FILE = Path(__file__).with_name("off_topic.tsv")


class OffTopicQuestion(NamedTuple):
    """An off-topic question.

    Attributes:
        language: English name of its language, as in `question_rule`.
        field: Field of knowledge, or "request".
        text: Text of the question.
    """

    language: str
    field: str
    text: str

    @property
    def is_request(self) -> bool:
        """Whether it is a short request to an assistant."""
        return self.field == "request"


@cache
def off_topic_table() -> tuple[OffTopicQuestion, ...]:
    """Return all off-topic questions, grouped by language; English comes first."""
    lines = _FILE.read_text(encoding="utf-8").splitlines()
    return tuple(OffTopicQuestion(*line.split("\t")) for line in lines)


def off_topic_questions() -> list[str]:
    """Return the texts of all off-topic questions."""
    return [question.text for question in off_topic_table()]


def off_topic_example(language: str | None) -> str:
    """Return an off-topic question in a language, in any language if the table lacks it, or if it is None."""
    questions = [question for question in off_topic_table() if not question.is_request]
    return next((question.text for question in questions if question.language == language), questions[0].text)
