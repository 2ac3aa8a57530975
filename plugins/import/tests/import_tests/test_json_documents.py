"""JSON: nested values become text, and each object that is a record becomes a document."""

import json
from typing import Any

import pytest

from import_tests.kept import complete
from taugate.data.parsed import ParsedDocument, UnreadableFile
from taugate_import.json_documents import parse_json, parse_json_lines
from taugate_import.word_share import lost_numbers, share_kept


def parse(value: Any) -> list[ParsedDocument]:
    """Parse a value as JSON, and check that none of its words is lost."""
    return complete(parse_json(value if isinstance(value, bytes) else json.dumps(value).encode())).documents


def texts_of(documents: list[ParsedDocument]) -> dict[str, str]:
    """Return the texts of documents by key."""
    return {document.key: document.text for document in documents}


def test_flat_records_keep_text_metadata_and_keys() -> None:
    (document,) = parse(
        [{"_id": "k", "title": "T", "text": "Body", "price": 3, "tags": ["a"], "metadata": {"lang": "en"}}]
    )
    assert (document.key, document.title, document.text) == ("k", "T", "Body")
    assert document.metadata == {"price": 3, "tags": ["a"], "lang": "en"}
    assert texts_of(parse([{"name": "valve", "size": 3}])) == {"1": "name: valve\nsize: 3"}


def test_nested_values_are_text_or_metadata() -> None:
    (document,) = parse(
        [
            {
                "text": "Body",
                "author": {"name": "Ann", "age": 40},
                "summary": "long " * 50,
                "answers": [{"text": "Yes.", "votes": 2, "right": True}, {"text": "No.", "url": "https://example.org"}],
            }
        ]
    )
    assert document.text.startswith("Body\n\nsummary: long long ")
    assert "answers.text: Yes.\nanswers.votes: 2\n\nanswers.text: No." in document.text
    assert document.metadata == {"author.name": "Ann", "author.age": 40, "answers.url": ["https://example.org"]}


def test_question_set_gives_document_per_article() -> None:
    questions = [{"id": "q1", "question": "When?", "answers": [{"text": "below two bars", "answer_start": 40}]}]
    articles = [
        {"title": "Pumps", "paragraphs": [{"context": "It starts below two bars.", "qas": questions}]},
        {"title": "Seals", "paragraphs": [{"context": "Replace the seal.", "qas": []}]},
    ]
    pumps, seals = parse({"version": "v2.0", "data": articles})
    assert (pumps.title, pumps.metadata) == ("Pumps", {"version": "v2.0"})
    assert "paragraphs.context: It starts below two bars.\nparagraphs.qas.id: q1" in pumps.text
    assert "paragraphs.qas.answers.text: below two bars" in pumps.text
    assert seals.text == "paragraphs.context: Replace the seal."


def test_wordpress_posts_become_markdown() -> None:
    content = "<h2>Start</h2><p>It <b>starts</b> when &amp; if.</p><ul><li>One</li></ul>"
    (post,) = parse(
        [
            {
                "id": 7,
                "date": "2026-01-02T03:04:05",
                "title": {"rendered": "Pumps &amp; seals"},
                "content": {"rendered": content, "protected": False},
                "_links": {"self": [{"href": "https://example.org/7", "embeddable": True}]},
            }
        ]
    )
    assert (post.key, post.title) == ("7", "Pumps & seals")
    assert post.text == "## Start\n\nIt **starts** when & if.\n\n* One"
    assert post.blocks[1].headings == ("Start",)
    assert post.metadata == {"date": "2026-01-02T03:04:05", "_links.self.href": ["https://example.org/7"]}


def test_text_mentioning_tags_is_kept() -> None:
    for text in (
        "If a < b and List<String> then use the <p> tag.",
        "See `<b>x</b>` there.",
        "1 <2> 3",
        "Tom & Jerry &amp;",
    ):
        (document,) = parse([{"text": text}])
        assert document.text == text


def test_objects_by_id_become_documents() -> None:
    results = parse({"d1": {"title": "Pumps", "text": "It starts."}, "d2": {"title": "Seals", "text": "Replace it."}})
    assert texts_of(results) == {"d1": "It starts.", "d2": "Replace it."}
    named = parse({"d1": {"_id": "x1", "text": "One."}, "d2": {"_id": "x2", "text": "Two."}})
    assert [(document.key, document.metadata) for document in named] == [("d1", {"id": "x1"}), ("d2", {"id": "x2"})]
    pages = {"12": {"pageid": 12, "extract": "A pump."}, "13": {"pageid": 13, "extract": "A seal."}}
    assert [*texts_of(parse({"batchcomplete": "", "query": {"pages": pages}}))] == ["12", "13"]
    questions = {"How do I start it?": {"answer": "Press green."}, "How do I stop it?": {"answer": "Press red."}}
    assert [document.title for document in parse(questions)] == [*questions]


def test_several_arrays_get_keys_with_their_path() -> None:
    results = parse({"articles": [{"text": "One."}, {"text": "Two."}], "authors": [{"name": "A"}]})
    assert texts_of(results) == {"articles/1": "One.", "articles/2": "Two.", "authors/1": "name: A"}


def test_record_with_nested_records_is_one_document() -> None:
    (document,) = parse({"title": "T", "text": "Body", "comments": [{"text": "First!"}, {"text": "Second"}]})
    assert document.text == "Body\n\ncomments.text: First!\n\ncomments.text: Second"


def test_values_around_records_are_kept() -> None:
    intro = "A long introduction that says what this manual is about. " * 3
    one, two, remainder = parse(
        {"title": "Manual", "year": 2020, "intro": intro, "parts": [{"text": "a " * 200}, {"text": "b " * 200}]}
    )
    assert (one.title, two.title, one.metadata) == ("Manual", "Manual", {"year": 2020})
    assert (remainder.key, remainder.text) == ("3", f"intro: {intro}".rstrip())


@pytest.mark.parametrize(
    "value",
    [
        {
            "took": 3,
            "hits": {"total": 1, "hits": [{"_id": "1", "_score": 1.5, "_source": {"title": "T", "body": "Words."}}]},
        },
        {"data": [{"id": 1, "attributes": {"title": "T", "content": "Words."}}], "meta": {"page": 1}},
        {"items": [{"id": "1", "fields": {"title": "T", "body": "Words."}}]},
    ],
    ids=["Elasticsearch", "Strapi", "Contentful"],
)
def test_records_in_envelopes_are_unwrapped(value: Any) -> None:
    (document,) = parse(value)
    assert (document.key, document.title, document.text) == ("1", "T", "Words.")


_SPAN = {"type": "text", "version": 1, "format": 0, "mode": "normal"}
RICH_TEXTS: dict[str, Any] = {
    "plain blocks": [{"type": "paragraph", "text": "One two."}, {"type": "paragraph", "text": "Three."}],
    "Editor.js": {
        "time": 1550476186479,
        "blocks": [
            {"id": "a", "type": "header", "data": {"text": "One <b>two</b>.", "level": 2}},
            {"id": "b", "type": "list", "data": {"style": "ordered", "items": ["Three."]}},
        ],
        "version": "2.28.0",
    },
    "ProseMirror": {
        "type": "doc",
        "content": [
            {"type": "heading", "attrs": {"level": 1}, "content": [{"type": "text", "text": "One two."}]},
            {
                "type": "paragraph",
                "content": [
                    {"type": "text", "text": "Three"},
                    {"type": "text", "marks": [{"type": "bold"}], "text": "."},
                ],
            },
        ],
    },
    "Lexical": {
        "root": {
            "type": "root",
            "children": [
                {"type": "paragraph", "children": [{**_SPAN, "text": "One two."}], "indent": 0},
                {
                    "type": "paragraph",
                    "children": [{"type": "link", "url": "https://a.b", "children": [{**_SPAN, "text": "Three."}]}],
                },
            ],
        }
    },
    "Slate": [
        {"type": "paragraph", "children": [{"text": "One "}, {"text": "two.", "bold": True}]},
        {"children": [{"text": "Three."}]},
    ],
    "Contentful": {
        "nodeType": "document",
        "data": {},
        "content": [
            {
                "nodeType": "paragraph",
                "data": {},
                "content": [{"nodeType": "text", "value": text, "marks": [], "data": {}}],
            }
            for text in ("One two.", "Three.")
        ],
    },
    "Notion": {
        "object": "list",
        "results": [
            {
                "object": "block",
                "id": "c02f",
                "type": "paragraph",
                "has_children": False,
                "paragraph": {
                    "rich_text": [{"type": "text", "text": {"content": text}, "plain_text": text, "href": None}]
                },
            }
            for text in ("One two.", "Three.")
        ],
        "next_cursor": None,
        "has_more": False,
    },
    "Quill": {
        "ops": [{"insert": "One "}, {"insert": "two.", "attributes": {"bold": True}}, {"insert": "\n\nThree.\n"}]
    },
    "Draft.js": {
        "blocks": [
            {"key": key, "text": text, "type": "unstyled", "depth": 0, "inlineStyleRanges": [], "data": {}}
            for key, text in (("a", "One two."), ("b", "Three."))
        ],
        "entityMap": {},
    },
    "Portable Text": [
        {
            "_type": "block",
            "_key": "k",
            "style": "normal",
            "markDefs": [],
            "children": [{"_type": "span", "text": text}],
        }
        for text in ("One two.", "Three.")
    ],
}


@pytest.mark.parametrize("editor", RICH_TEXTS)
def test_editor_rich_text_becomes_paragraphs(editor: str) -> None:
    (document,) = parse([{"id": "a", "content": RICH_TEXTS[editor]}])
    assert document.text.replace("*", "") == "One two.\n\nThree."
    assert document.metadata == {}


def test_rich_text_file_is_one_document() -> None:
    for editor in ("Editor.js", "ProseMirror", "Lexical", "Slate", "Contentful", "Notion", "Quill", "Portable Text"):
        (document,) = parse(RICH_TEXTS[editor])
        assert document.text.replace("*", "") == "One two.\n\nThree."


def test_lists_of_sentences_are_text_and_names_tags() -> None:
    paragraphs = ["First paragraph here.", "Second one."]
    (document,) = parse([{"content": paragraphs, "notes": ["It leaks.", "Mend it."], "tags": ["a b", "c"]}])
    assert document.text == "First paragraph here.\n\nSecond one.\n\nnotes: It leaks.\nMend it."
    assert document.metadata == {"tags": ["a b", "c"]}
    (message,) = parse([{"text": ["Hello ", {"type": "bold", "text": "world"}, " again"]}])
    assert message.text == "Hello world again"


@pytest.mark.parametrize(
    "table",
    [
        {"text": {"0": "One.", "1": "Two."}, "n": {"0": 1, "1": 2}},
        {"text": ["One.", "Two."], "n": [1, 2]},
        [{"text": "One.", "n": 1}, {"text": "Two.", "n": 2}],
    ],
    ids=["columns", "lists", "records"],
)
def test_pandas_table_gives_document_per_row(table: Any) -> None:
    one, two = parse(table)
    assert (one.key, one.text, one.metadata) == ("1", "One.", {"n": 1})
    assert (two.key, two.text, two.metadata) == ("2", "Two.", {"n": 2})


def test_strings_and_rows_become_documents() -> None:
    assert texts_of(parse(["One.", "Two."])) == {"1": "One.", "2": "Two."}
    assert texts_of(parse([["name", "days"], ["Seal", 30]])) == {"1": "name: Seal\ndays: 30"}
    assert texts_of(parse(b'"One string"')) == {"1": "One string"}
    assert texts_of(parse({"menu": {"open": "Open it", "close": "Close it"}})) == {
        "1": "menu.open: Open it\nmenu.close: Close it"
    }


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32"])
def test_unicode_encodings_of_json_read(encoding: str) -> None:
    for parser in (parse_json, parse_json_lines):
        (document,) = parser('{"text": "Größe"}\n'.encode(encoding)).documents
        assert document.text == "Größe"


def test_unusual_json_values_lose_nothing() -> None:
    numbers = b'"n": 123456789012345678901234567890, "f": 1e999, "a": NaN, "b": -Infinity'
    raw = b'[{"text": "t", ' + numbers + b', "half": "\\ud800 x"}]'
    (document,) = parse_json(raw).documents
    assert document.metadata == {"n": "123456789012345678901234567890", "f": "1e999", "half": "? x"}


def test_repeated_names_keep_all_values() -> None:
    parsed = parse_json(b'[{"text": "one", "text": "two", "tag": "a", "tag": "a"}]')
    assert parsed.documents[0].text == "one\ntwo"
    assert parsed.notes == ("repeats names within an object; all values are kept: text",)


def test_vectors_left_out_and_noted() -> None:
    parsed = parse_json(
        json.dumps([{"text": "x", "embedding": [number / 7 for number in range(50)], "size": [3, 4]}]).encode()
    )
    assert parsed.documents[0].text == "x\n\nsize: 3, 4"
    assert parsed.notes == ("leaves out long lists of numbers: embedding",)
    assert share_kept(parsed.source_text, parsed.documents, parsed.left_out) == 1.0
    assert not lost_numbers(parsed.source_text, parsed.documents, parsed.left_out)


def test_json_values_in_sequence_read() -> None:
    for raw in (
        b'{"text": "one"}\n{"text": "two"}',
        b'{"text": "one"}{"text": "two"}',
        b'{\n"text": "one"\n}\n{"text":\n"two"}',
    ):
        for parser in (parse_json, parse_json_lines):
            assert [document.text for document in parser(raw).documents] == ["one", "two"]
    lines = b'["a", "b"]\n"one string"\n\n{"text": "c"}\n'
    assert [document.text for document in parse_json_lines(lines).documents] == ["a, b", "one string", "c"]


def test_broken_json_line_is_noted() -> None:
    raw = b'{"text": "one"}\n{"text": "two", \n{"text": "three"}\n'
    for parser in (parse_json, parse_json_lines):
        parsed = parser(raw)
        assert [document.text for document in parsed.documents] == ["one", "three"]
        assert parsed.notes == ("1 line is not JSON and left out: line 2",)
        assert share_kept(parsed.source_text, parsed.documents, parsed.left_out) == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"{", "is not JSON: expecting property name enclosed in double quotes on line 1"),
        (b'{"a": 1, // no\n"b": 2}', "JSON has no comments: remove them"),
        (b'\n{"a": "x",\n}', "^is not JSON: remove the comma on line 2, before }$"),
        (b"[[1,\n\n], 2]", "^is not JSON: remove the comma on line 1, before ]$"),
        (b'{"text": "x",}\n' * 2, "^is not JSON: remove the comma on line 1, before }$"),
        (b"[1, 2", "is not JSON: "),
        (b"[]", "holds no record with text"),
        (b"{}", "holds no record with text"),
        (b"null", "holds no record with text"),
        (b'{"a": {"b": []}}', "holds no record with text"),
        (b'{"text": "cut off in the mid', "unterminated string on line 1$"),
        (b'[{"_id": "1"}]', "holds no record with text"),
    ],
)
def test_invalid_json_refused_with_reason(raw: bytes, message: str) -> None:
    with pytest.raises(UnreadableFile, match=message):
        parse_json(raw)
