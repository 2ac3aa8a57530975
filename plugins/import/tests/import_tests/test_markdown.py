"""Markdown: every word except markup reaches the document."""

import random
import re

import pytest

from taugate_import.markdown import parse_markdown, parse_markdown_file
from taugate_import.word_share import lost_numbers, share_kept


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ('See [it][x].\n\n[x]: http://a.b "The words"\n', 'See [it][x].\n\n[x]: http://a.b "The words"'),
        ("Text[^1].\n\n[^1]: word\n", "Text[^1].\n\n[^1]: word"),
        ("<details><summary>How?</summary>\n\nSo **it** is.\n\n</details>\n", "How?\n\nSo **it** is."),
        ("<T>\n\n<your name>\n", "<T>\n\n<your name>"),
        ("<img src=a alt='A pump'>\n", "A pump"),
        ("a\n\n<!-- left out -->\n\nb\n", "a\n\nb"),
        ("a\n\n<!-- never closed\n\nwords\n", "a\n\nnever closed words"),
        ("<table><tr><td>a</td><td>b</td></tr></table>\n", "|  |  |\n| --- | --- |\n| a | b |"),
        ('<TabItem label="Linux">\n\napt\n', '<TabItem label="Linux">\n\napt'),
        ("- item\n\n    ```html\n    <p>code</p>\n    ```\n", "- item\n\n    ```html\n    <p>code</p>\n    ```"),
        ("!!! note\n    Indented\n", "!!! note\n    Indented"),
    ],
)
def test_markdown_words_are_kept(source: str, text: str) -> None:
    file = parse_markdown_file(source)
    assert file.documents[0].text == text and share_kept(file.source_text, file.documents, file.left_out) == 1
    assert not lost_numbers(file.source_text, file.documents, file.left_out)


def test_converted_markdown_has_no_front_matter() -> None:
    assert parse_markdown("---\n\na: b\n\n---\n\n<T>\n", converted=True).text == "a: b\n\n<T>"


@pytest.mark.parametrize(
    "front_matter",
    [
        "---\ntitle: Pump\ndate: 2024-01-02T10:00:00Z\ndescription: How it starts\nproducts: [p1, p2]\nweight: 10\n"
        "seo:\n  title: Deep words\ntags: [a, b]\n---\n",
        '+++\ntitle = "Pump"\ndate = 2024-01-02\ndescription = "How it starts"\nproducts = ["p1", "p2"]\nweight = 10\n'
        'tags = ["a", "b"]\n[seo]\ntitle = "Deep words"\n+++\n',
    ],
)
def test_front_matter_fields_are_kept(front_matter: str) -> None:
    file = parse_markdown_file(f"{front_matter}Text.\n")
    (document,) = file.documents
    assert document.title == "Pump" and document.text.startswith("How it starts\n\n") and "Deep words" in document.text
    assert document.text.endswith("\n\nText.") and share_kept(file.source_text, file.documents, file.left_out) == 1
    assert not lost_numbers(file.source_text, file.documents, file.left_out)
    assert document.metadata == {"created": "2024-01-02", "tags": ["a", "b"], "products": ["p1", "p2"], "weight": 10}


@pytest.mark.parametrize(
    ("written", "value"),
    [
        *((text, text) for text in ("1.10", "NO", "on", "007123", "12:30", "0x1F", "1_000", "1e5", "+5", ".5")),
        *((text, text) for text in ("2024-05-01", "2024-05-01T10:00:00Z", "12345678901234567890", "0.00001")),
        *(("true", True), ("false", False), ("-3", -3), ("2.5", 2.5), ("0", 0)),
    ],
)
def test_front_matter_values_stay_as_written(written: str, value: object) -> None:
    file = parse_markdown_file(f"---\nvalue: {written}\ntags: [{written}, b]\n---\nText.\n")
    assert file.documents[0].metadata == {"value": value, "tags": [written, "b"]}
    assert share_kept(file.source_text, file.documents) == 1


@pytest.mark.slow
def test_damaged_markdown_reports_lost_words() -> None:
    numbers = (f"w{number:04}" for number in range(10_000))
    paragraph = "## {} {}\n\n{} *{}* [{}](http://a.b) {}\n\n- {}\n- {}\n\n<b>{}</b> `{}`\n\n<div>{}</div>\n\n"
    source = "".join(paragraph.format(*(next(numbers) for _ in range(11))) for _ in range(20))
    insertions = [
        "<!-- ",
        "```\n",
        "\n---\n",
        "\n<div>\n",
        "\n<script>\n",
        "\n[a]: <",
        '\n<T x="\n',
        "\n<pre>\n",
        "\n<?\n",
    ]
    silent = []
    for seed in range(200):
        rng = random.Random(seed)  # noqa: S311 (no secret is made of it)
        at = rng.randrange(len(source))
        damaged = rng.choice([
            source[:at],
            source[:at] + source[at + rng.randrange(1, 200) :],
            source[:at] + rng.choice(insertions) + source[at:],
        ])  # fmt: skip
        file = parse_markdown_file(damaged)
        there = set(re.findall(r"w\d{4}", damaged))
        lost = there - set(re.findall(r"w\d{4}", file.documents[0].text))
        if len(lost) > 0.02 * len(there) and share_kept(file.source_text, file.documents, file.left_out) >= 0.98:
            silent.append((seed, len(lost)))
    assert silent == []
