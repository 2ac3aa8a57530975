"""Paraphrases by rules in the query's language, or by a model whose replies are cached."""

import pytest

from taugate.data.generation.language_model import (
    Completion,
    ParaphrasePrompt,
    paraphrases_by_model,
    paraphrases_by_rules,
    query_in,
)
from taugate.data.questions import QuestionRule
from taugate.errors import InputError


def test_english_paraphrases_are_polite_or_key_words() -> None:
    assert paraphrases_by_rules("What is the tuning of\n a ukulele?", QuestionRule("English")) == (
        "I would like to know: What is the tuning of a ukulele?",
        "Could somebody help me with this? What is the tuning of a ukulele?",
        "tuning a ukulele",
    )


@pytest.mark.parametrize(
    ("language", "query", "words"),
    [
        ("German", "Wie oft wird der Ofen gereinigt?", "oft Ofen gereinigt"),
        ("Spanish", "¿Cuánto cuesta la licencia?", "cuesta licencia"),
        ("Chinese", "如何泡茶？", "如何泡茶"),
        (None, "Jak se vaří čaj?", "Jak se vaří čaj"),
    ],
)
def test_languages_have_their_own_frames(language: str | None, query: str, words: str) -> None:
    results = paraphrases_by_rules(query, QuestionRule(language))
    assert results[2] == words
    assert len({query, *results}) == 4
    assert all(query in item for item in results[:2])


@pytest.mark.parametrize("language", ["English", "Chinese", None])
def test_query_of_function_words_leaves_no_empty_text(language: str | None) -> None:
    for query in ("What is it?", "?"):
        assert all(paraphrases_by_rules(query, QuestionRule(language)))


class Parrot:
    """Replies with a numbered variant of each query, or with a given text."""

    name = "parrot"
    parallel = 2

    def __init__(self, reply: str, identity: str) -> None:
        self.identity, self.reply = identity, reply
        self.asked: list[ParaphrasePrompt] = []

    def ask(self, prompt: ParaphrasePrompt) -> Completion:
        self.asked.append(prompt)
        return Completion(self.reply.format(query=prompt.query, seed=prompt.seed), 1, 1, 0.0)

    def close(self) -> None: ...


def test_model_paraphrases_are_distinct_and_cached() -> None:
    queries, counted = ["Which bird sleeps?", "How warm is Mars?"], []
    first = Parrot("In other words {seed}: {query}\nmore", "parrot-1")
    written = paraphrases_by_model(queries, 3, 0, first, lambda: counted.append(1))
    assert len(first.asked) == len(counted) == len({prompt.seed for prompt in first.asked}) == 12
    for query, results in zip(queries, written, strict=True):
        assert len(set(results)) == 3
        assert all(text.startswith("In other words") and text.endswith(query) for text in results)
    again = Parrot("never", "parrot-1")
    assert paraphrases_by_model(queries, 3, 0, again, lambda: None) == written
    assert not again.asked


@pytest.mark.parametrize("reply", ["", "{query}", "always the same"])
def test_repetitive_model_is_refused(reply: str) -> None:
    with pytest.raises(InputError, match=r"parrot: wrote [01] paraphrases of 'Which bird sleeps\?', and 3 are needed"):
        paraphrases_by_model(["Which bird sleeps?"], 3, 0, Parrot(reply, f"parrot {reply}"), lambda: None)


def test_chat_and_completion_have_same_content() -> None:
    queries = ["Which bird sleeps?"]
    model = Parrot("{seed}", "parrot-2")
    paraphrases_by_model(queries, 1, 0, model, lambda: None)
    prompt = model.asked[0]
    assert prompt.completion().endswith("Question: Which bird sleeps?\nThe same in other words:")
    assert prompt.messages()[-1] == {"role": "user", "content": "Which bird sleeps?"}


@pytest.mark.parametrize(
    ("reply", "query"),
    [
        (" Who built it?\nExample 5:", "Who built it?"),
        ("\n\n  Relevant Query: Who  built it?", "Who built it?"),
        ('"Who built it?"', "Who built it?"),
        ("**Question:** Who built it?", "Who built it?"),
        ("1. Who built it?\n2. When?", "Who built it?"),
        ("„Wer hat es gebaut?“", "Wer hat es gebaut?"),
        ("「誰が建てましたか」", "誰が建てましたか"),
        ('Who is "he"?', 'Who is "he"?'),
        ("", ""),
        (" \n\t", ""),
        ('""', ""),
        ("None.", ""),
        ("None of the above?", "None of the above?"),
    ],
)
def test_query_is_extracted_from_reply(reply: str, query: str) -> None:
    assert query_in(reply) == query
