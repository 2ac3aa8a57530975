"""Tags of files: front matter of Markdown, keywords of web pages, and lists in records."""

from typing import Any

import orjson
import pytest

from taugate_import.html import parse_html
from taugate_import.json_documents import parse_json
from taugate_import.markdown import parse_markdown


@pytest.mark.parametrize(
    ("front_matter", "tags"),
    [
        ("tags: [pump, seal, pump]", ["pump", "seal"]),
        ("tags:\n  - pump\n  - 2024\n  - true\n  - {a: b}", ["pump", "2024", "true"]),
        ("tags: pump, seal ; two  words", ["pump", "seal", "two words"]),
        ("keywords: [a]", ["a"]),
        ("keywords: [a]\ntags: [b]", ["b"]),
        ("tags: []\ncategories: [c]", ["c"]),
        ("tags: ''", None),
        ("tags: 3", None),
        ("title: none", None),
    ],
)
def test_front_matter_tags_are_read(front_matter: str, tags: list[str] | None) -> None:
    assert parse_markdown(f"---\n{front_matter}\n---\ntext").metadata.get("tags") == tags


def test_page_keywords_become_tags() -> None:
    page = (
        b"<head><meta name=Keywords content='pump, seal'><meta property=article:tag content=valve>"
        b"<meta property=article:tag content=pump></head><body><p>text</p>"
    )
    (document,) = parse_html(page).documents
    assert document.metadata["tags"] == ["pump", "seal", "valve"]
    (document,) = parse_html(b"<meta name=keywords content=' , '><p>text</p>").documents
    assert "tags" not in document.metadata


@pytest.mark.parametrize(
    ("value", "kept"),
    [(["a", "b", "a"], ["a", "b"]), (["a", 1], None), ([], None), ([""], None), ([["a"]], None), ({"a": 1}, None)],
)
def test_record_lists_become_tags(value: Any, kept: list[str] | None) -> None:
    (document,) = parse_json(orjson.dumps([{"text": "x", "tags": value}])).documents
    assert document.metadata.get("tags") == kept


def test_textless_record_shows_its_tags() -> None:
    (document,) = parse_json(b'[{"name": "valve", "tags": ["a", "b"]}]').documents
    assert document.text == "name: valve\ntags: a, b"
