"""The off-topic questions are many, varied, and usable as they are."""

from collections import Counter

import pytest

from taugate.data.generation.generate import normalized
from taugate.data.questions import QuestionRule, off_topic_example, off_topic_questions, off_topic_sent, off_topic_table


def test_halves_have_many_questions_of_a_kind() -> None:
    counts = Counter((question.language, question.is_request, question.chooses) for question in off_topic_table())
    assert len(counts) == 40  # ten languages, two kinds, two halves
    assert all(count >= (150 if language == "English" else 50) for (language, *_), count in counts.items())


def test_half_that_states_has_several_questions_of_a_field() -> None:
    fields = Counter(
        (question.language, question.is_request, question.field)
        for question in off_topic_table()
        if not question.chooses
    )
    assert min(fields.values()) >= 5
    for language in {question.language for question in off_topic_table()}:
        assert sum(key[0] == language for key in fields) >= 20


def test_questions_are_distinct_lines_without_surrounding_space() -> None:
    texts = [question.text for question in off_topic_table()]
    assert len({normalized(text) for text in texts}) == len(texts)
    assert all(text == " ".join(text.split()) for text in texts)


def test_some_questions_are_queries_without_question_mark() -> None:
    questions = [question for question in off_topic_table() if not question.is_request]
    short = [question for question in questions if not question.text.endswith(("?", "？"))]
    assert len({question.language for question in short}) == 10
    assert 0.1 < len(short) / len(questions) < 0.4


def test_questions_are_in_the_language_of_queries() -> None:
    english, unknown = off_topic_questions(["Who pays for the repair of the roof?"]), off_topic_questions(["zzz"])
    assert {question.language for question in english} == {"English"}
    assert len({question.language for question in unknown}) == 10
    assert len(unknown) <= len(english)


@pytest.mark.parametrize("query", ["Who pays for the repair of the roof?", "Wer zahlt für die Reparatur?", "zzz"])
def test_store_is_sent_half_a_minute_of_questions_of_both_halves(query: str) -> None:
    sent = Counter((question.is_request, question.chooses) for question in off_topic_sent([query]))
    assert 200 <= sum(sent.values()) <= 300
    assert min(sent.values()) >= 40


@pytest.mark.parametrize("language", sorted({question.language for question in off_topic_table()} - {"Polish"}))
def test_language_of_questions_is_recognized(language: str) -> None:
    texts = [question.text for question in off_topic_table() if question.language == language]
    assert QuestionRule.for_texts(texts).language == language


def test_example_is_in_the_language_or_in_any() -> None:
    table = {question.text: question.language for question in off_topic_table()}
    assert table[off_topic_example("German")] == "German"
    assert off_topic_example("Finnish") == off_topic_example(None) in table
