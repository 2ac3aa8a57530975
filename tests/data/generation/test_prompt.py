"""Prompts, their examples, and queries in replies."""

import json
from pathlib import Path

import pytest

from taugate.data.generation.prompt import BUILT_IN, MAX_DOCUMENT, Example, Prompt, on_one_line, query_of, read_examples
from taugate.errors import InputError


def test_prompt_matches_inpars() -> None:
    prompt = Prompt.of("Riga was\nfounded in 1201.", (Example("Old.", "How old?"),), 0)
    assert prompt.completion() == (
        "Example 1:\nDocument: Old.\nRelevant Query: How old?\n\n"
        "Example 2:\nDocument: Riga was founded in 1201.\nRelevant Query:"
    )


def test_prompts_have_distinct_seeds() -> None:
    seeds = {Prompt.of(text, BUILT_IN, seed).seed for text in ("a", "b") for seed in (0, 1)}
    assert len(seeds) == 4
    assert all(0 <= seed < 2**31 for seed in seeds)
    assert Prompt.of("a", BUILT_IN, 0) == Prompt.of(" a\n", BUILT_IN, 0)


def test_long_document_cut_between_words() -> None:
    cut = on_one_line("word " * 1000, MAX_DOCUMENT)
    assert cut == " ".join(["word"] * 200)
    assert on_one_line("阈" * 2000, MAX_DOCUMENT) == "阈" * MAX_DOCUMENT


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
    assert query_of(reply) == query


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
