"""The off-topic questions are many, varied, and usable as they are."""

from collections import Counter

import pytest

from taugate.ingestion.dataset.off_topic import off_topic_example, off_topic_questions, off_topic_table
from taugate.ingestion.queries.generate import normalized
from taugate.ingestion.queries.question_rule import QuestionRule


def test_table_covers_ten_languages_and_many_fields() -> None:
    table = off_topic_table()
    languages = Counter(question.language for question in table)
    assert len(table) >= 320
    assert len(languages) == 10
    assert min(languages.values()) >= 32
    assert len({question.field for question in table}) >= 30


def test_questions_are_distinct_lines_without_surrounding_space() -> None:
    texts = off_topic_questions()
    assert len({normalized(text) for text in texts}) == len(texts)
    assert all(text == " ".join(text.split()) for text in texts)


def test_some_questions_are_queries_without_question_mark() -> None:
    questions = [question for question in off_topic_table() if not question.is_request]
    short = [question for question in questions if not question.text.endswith(("?", "？"))]
    assert len({question.language for question in short}) == 10
    assert 0.1 < len(short) / len(questions) < 0.4


def test_every_language_has_requests() -> None:
    requests = Counter(question.language for question in off_topic_table() if question.is_request)
    assert requests["English"] == 100
    assert len(requests) == 10
    assert min(requests.values()) >= 12


@pytest.mark.parametrize("language", sorted({question.language for question in off_topic_table()} - {"Polish"}))
def test_language_of_questions_is_recognized(language: str) -> None:
    texts = [question.text for question in off_topic_table() if question.language == language]
    assert QuestionRule.for_texts(texts).language == language


def test_example_is_in_the_language_or_in_any() -> None:
    table = {question.text: question.language for question in off_topic_table()}
    assert table[off_topic_example("German")] == "German"
    assert off_topic_example("Finnish") == off_topic_example(None) in table
