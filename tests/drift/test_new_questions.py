"""Which questions are new under an alarm, which word names a group of them, and which of them is its example."""

from collections.abc import Sequence

import zaragoza_construction_faq

from taugate.drift.new_questions import NewQuestions, QuestionGroup, UsualRange

SAMPLE = zaragoza_construction_faq.load(lang="en")
QUESTIONS, PASSAGES = [entry["q"] for entry in SAMPLE], [entry["a"] for entry in SAMPLE]
VISAS = [f"How long does a visa for {country} take?" for country in ("India", "China", "Brazil", "Ghana", "Vietnam")]
USUAL = UsualRange(0.4, 0.9)


def groups_of(asked: Sequence[tuple[str, float]], questions: Sequence[str] = QUESTIONS) -> list[QuestionGroup]:
    """Return the groups of questions that were asked under an alarm with these best similarities."""
    collected = NewQuestions(USUAL, questions, PASSAGES)
    for number, (text, best) in enumerate(asked):
        collected.add(text, 500.0 + number, best, is_new=True)
    return collected.groups()


def test_questions_that_share_new_word_are_one_group() -> None:
    egg = "How do I cook an egg?"
    visas, single = groups_of([*((text, 0.2) for text in VISAS), (egg, 0.1), (egg, 0.1)])
    assert (visas.word, visas.count, visas.since) == ("visa", 5, 500.0)
    assert (single.count, single.since, single.question) == (2, 505.0, egg)
    assert single.word in {"cook", "egg"}


def test_example_of_group_is_farthest_from_calibration() -> None:
    group, *_ = groups_of([(VISAS[0], 0.3), (VISAS[0], 0.3), (VISAS[1], 0.12), (VISAS[2], 0.25)])
    assert (group.question, group.best, group.count) == (VISAS[1], 0.12, 4)


def test_question_of_calibration_is_never_new() -> None:
    assert groups_of([(text, 0.1) for text in QUESTIONS[:20]]) == []


def test_word_of_documents_names_no_group() -> None:
    asked = [(f"Does {name} need a building permit, was it said?", 0.2) for name in ("Ann", "Bo", "Cy", "Di")]
    assert {group.word for group in groups_of(asked)}.isdisjoint({"building", "permit", "was", "it", "need"})


def test_word_of_ordinary_traffic_names_no_group() -> None:
    collected = NewQuestions(USUAL)
    for number in range(100):
        collected.add(f"Where is the lamp of room {number}?", float(number), 0.6, is_new=False)
    for name in ("hall", "attic", "cellar"):
        collected.add(f"Where is the lamp of the {name}?", 200.0, 0.2, is_new=True)
    assert {group.word for group in collected.groups()} == {"hall", "attic", "cellar"}


def test_short_latin_word_names_no_group_but_others_do() -> None:
    groups = groups_of([("al 5g al", 0.2), ("al 5g", 0.2), ("al 东京", 0.2), ("al 东京 al", 0.2)])
    assert {group.word for group in groups} == {"5g", "东京"}
