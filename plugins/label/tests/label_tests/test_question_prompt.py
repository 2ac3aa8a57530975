"""Prompts about documents, and their examples."""

import json
from pathlib import Path

import pytest

from taugate.errors import InputError
from taugate_label.questions import BUILT_IN, MAX_DOCUMENT, Example, QuestionPrompt, on_one_line, read_examples


def test_prompt_matches_inpars() -> None:
    prompt = QuestionPrompt.of("Riga was\nfounded in 1201.", (Example("Old.", "How old?"),), 0)
    assert prompt.completion() == (
        "Example 1:\nDocument: Old.\nRelevant Query: How old?\n\n"
        "Example 2:\nDocument: Riga was founded in 1201.\nRelevant Query:"
    )


def test_prompts_have_distinct_seeds() -> None:
    seeds = {QuestionPrompt.of(text, BUILT_IN, seed).seed for text in ("a", "b") for seed in (0, 1)}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert QuestionPrompt.of("a", BUILT_IN, 0) == QuestionPrompt.of(" a\n", BUILT_IN, 0)


def test_long_document_cut_between_words() -> None:
    cut = on_one_line("word " * 1000, MAX_DOCUMENT)
    assert cut == " ".join(["word"] * 200)
    assert on_one_line("阈" * 2000, MAX_DOCUMENT) == "阈" * MAX_DOCUMENT


def test_examples_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "examples.jsonl"
    path.write_text(json.dumps({"document": "Old.", "query": "How old?"}) + "\n")
    assert read_examples(path) == (Example("Old.", "How old?"),)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds 0 examples; give 1 to 20"),
        ('{"document": "a", "query": "b"}\n' * 21, "holds 21 examples"),
        ('{"document": "a"}\n', ':1: no "query"'),
        ('{"document": "a", "query": 3}\n', '"query" is a number'),
        ("What?\n", ":1: not JSON"),
        (None, 'no such file; write one {"document": …, "query": …} a line'),
    ],
)
def test_invalid_example_file_is_refused(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "examples.jsonl"
    if content is not None:
        path.write_text(content)
    with pytest.raises(InputError, match=message):
        read_examples(path)
