"""Documents by position, from two files that belong together."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import regex
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import PydanticCustomError
from safetensors.numpy import load_file, save_file

from taugate.errors import InputError, ReleaseError
from taugate.release import layout
from taugate.release.names import BOOLEANS, NUMBERS, TEXTS
from taugate.retrieval.documents.columns import Column, TagColumn
from taugate.retrieval.documents.filter_schema import read_filter
from taugate.retrieval.documents.filters import Filter, Not, OneOf, Range, all_of, both, filter_json, instant, written
from taugate.retrieval.documents.metadata import FieldType, FieldTypes, Metadata, holds
from taugate.retrieval.documents.store import Document, DocumentStore, DocumentWriter
from taugate.retrieval.documents.visible_text import has_visible_text

DOCUMENTS = [
    Document("a", "plain text"),
    Document("b", 'line\nbreaks \u2028 and "quotes" åäö 🙂', "A title", {"year": 1973, "open": True, "score": 0.1}),
    Document("c", "x" * 100_000, None, {"none": None}),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    writer = DocumentWriter(tmp_path)
    for document in DOCUMENTS:
        writer.append(document)
    writer.close()
    return tmp_path


def test_stored_documents_are_read_back(folder: Path) -> None:
    store = DocumentStore(folder)
    assert len(store) == 3
    assert list(store) == DOCUMENTS
    assert store[1:] == DOCUMENTS[1:]
    assert [store[position] for position in (2, 0)] == [DOCUMENTS[2], DOCUMENTS[0]]


@pytest.mark.parametrize("position", [-1, 3])
def test_position_outside_store_raises(folder: Path, position: int) -> None:
    with pytest.raises(IndexError):
        DocumentStore(folder)[position]


def test_encoded_text_joins_title_and_text() -> None:
    assert Document("a", "text", "title").encoded_text == "title text"
    assert Document("a", "text").encoded_text == "text"


@pytest.mark.parametrize("name", [layout.TEXTS, layout.OFFSETS])
def test_mismatched_store_files_are_refused(folder: Path, name: str) -> None:
    (folder / name).write_bytes((folder / name).read_bytes()[:-1])
    with pytest.raises(ReleaseError, match=name):
        DocumentStore(folder)


def test_texts_stay_on_disk(folder: Path) -> None:
    store = DocumentStore(folder)
    assert layout.TEXTS in Path("/proc/self/maps").read_text(encoding="utf-8")
    assert store[0].id == "a"


DATES = [
    "2011-12-31",
    "2012-01-01",
    "2012-01-01T00:30:00+02:00",  # still 2011 in UTC
    "2012-01-01 15:00",
    "2012-01-02T00:00:00Z",
    "2012-01-01T23:59:59.999999-00:00",
    "not a date",
    "2012-02-30",
    "20120101",
    "2012",
    None,
]
DATED = [Document(f"d{place}", "text", None, {"created": date}) for place, date in enumerate(DATES)]
METADATA = Metadata.of(DATED)


@pytest.mark.parametrize(
    ("condition", "found"),
    [
        ({"gte": "2012-01-01"}, [1, 3, 4, 5]),
        ({"gt": "2012-01-01"}, [4]),
        ({"lt": "2012-01-01"}, [0, 2]),
        ({"lte": "2012-01-01"}, [0, 1, 2, 3, 5]),
        ({"gte": "2012-01-01T15:00:00Z", "lt": "2012-01-02"}, [3, 5]),
        ({"gt": "2012-01-01T15:00Z"}, [4, 5]),
        ({"gte": "2011-12-31T23:30:00+01:00", "lte": "2011-12-31T22:30:00Z"}, [2]),
        ({"gt": "2011-01-01", "gte": "2012-01-02"}, [4]),
        ({"lt": "2012-01-01", "lte": "2030-01-01"}, [0, 2]),
        ({"gt": "2030-01-01"}, []),
        ({"lte": "9999-12-31"}, [0, 1, 2, 3, 4, 5]),
    ],
    ids=str,
)
def test_date_bounds_select_documents(condition: dict[str, Any], found: list[int]) -> None:
    query_filter = read_filter({"created": condition})
    assert query_filter is not None
    METADATA.check_kinds(query_filter)
    assert np.flatnonzero(METADATA.where(query_filter)).tolist() == found
    assert [place for place, each in enumerate(DATED) if holds(query_filter, each.metadata)] == found
    again = read_filter(filter_json(query_filter))
    assert again is not None
    assert np.flatnonzero(METADATA.where(again)).tolist() == found


@pytest.mark.parametrize(
    "text", ["2012-1-1", "2012", "2012-02-30", "20120101", "2012-W01-1", "today", "", "2012-01-01T25:00"]
)
def test_bound_without_date_is_refused(text: str) -> None:
    with pytest.raises(PydanticCustomError, match="created: gte needs a finite number, or an ISO date such as"):
        read_filter({"created": {"gte": text}})


def test_mixed_bounds_are_refused() -> None:
    with pytest.raises(PydanticCustomError, match="created: bounds mix numbers and dates"):
        read_filter({"created": {"gte": 5, "lt": "2012-01-01"}})


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ({"created": {"gte": 5}}, "created holds dates, but the filter compares it with numbers"),
        ({"created": 5}, "created holds dates, but the filter compares it with numbers"),
        ({"year": {"lt": "2012-01-01"}}, "year holds numbers, but the filter compares it with dates"),
        ({"name": {"lt": "2012-01-01"}}, "name holds texts, but the filter compares it with dates"),
        ({"days": {"lt": "2012-01-01"}}, "days holds lists of strings, which have no order"),
    ],
    ids=str,
)
def test_check_kinds_refuses_absent_kinds(condition: dict[str, Any], message: str) -> None:
    documents = [Document("d", "t", None, {"created": "2012-01-01", "year": 5, "name": "x", "days": ["2012-01-01"]})]
    query_filter = read_filter(condition)
    assert query_filter is not None
    for types in (FieldTypes.of(documents), Metadata.of(documents).types):
        with pytest.raises(InputError, match=message):
            types.check_kinds(query_filter)


@pytest.mark.parametrize(
    "text", ["1684-05-01", "1969-12-31T23:59:59.5Z", "2012-01-01T10:00:00.123456+05:30", "9999-12-31"]
)
def test_written_moment_is_read_back(text: str) -> None:
    moment = instant(text)
    assert moment is not None
    assert instant(written(moment)) == moment


def test_written_moment_is_capped_at_9999() -> None:
    moment = instant("9999-12-31")
    assert moment is not None
    assert written(moment + 86400) == "9999-12-31T23:59:59.999999+00:00"


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.floats(-9, 9), st.text("ab"), st.lists(st.text("ab"), max_size=2)
)
CORPORA = st.lists(st.dictionaries(st.sampled_from("xyz"), VALUES), min_size=1, max_size=6)


def corpus(*records: dict[str, Any]) -> list[Document]:
    return [Document(f"d{position}", "text", None, record) for position, record in enumerate(records)]


@given(CORPORA)
def test_field_types_of_columns_and_documents_agree(records: list[dict[str, Any]]) -> None:
    documents = corpus(*records)
    assert FieldTypes.of(documents) == Metadata.of(documents).types


def test_field_types_with_lists_and_empty_fields() -> None:
    types = FieldTypes.of(corpus({"b": "x", "a": ["x"], "c": []}, {"b": True, "a": 7, "d": None}))
    assert [*types.by_name.items()] == [
        ("a", FieldType(frozenset({NUMBERS, TEXTS}), has_lists=True)),
        ("b", FieldType(frozenset({BOOLEANS, TEXTS}))),
    ]


TYPES = FieldTypes.of(corpus({"year": 1999, "open": True, "tags": ["pump"], "any": 1}, {"any": "1"}))
REFUSED: list[tuple[Filter, str]] = [
    ((OneOf.of("year", "1999"),), "year holds numbers, but the filter compares it with texts"),
    ((OneOf.of("open", 1),), "open holds booleans, but the filter compares it with numbers"),
    ((Not((OneOf.of("tags", 5),)),), "tags holds texts, but the filter compares it with numbers"),
    ((Range("open", gt=0),), "open holds booleans, but the filter compares it with numbers"),
    ((OneOf.of("any", 1, True),), "any holds numbers and texts, but the filter compares it with booleans"),
]


@pytest.mark.parametrize(("query_filter", "message"), REFUSED)
def test_check_kinds_refuses_absent_kind(query_filter: Filter, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        TYPES.check_kinds(query_filter)
    TYPES.check(query_filter)


def test_unknown_field_message_lists_fields() -> None:
    with pytest.raises(InputError, match=r"^the documents have no metadata; remove the filter$"):
        FieldTypes().check((OneOf.of("a", 1),))
    many = FieldTypes.of(corpus({f"f{number:02}": 1 for number in range(18)} | {"a" * 50: 1}))
    with pytest.raises(
        InputError, match=rf"^no document has the field x; the fields are {'a' * 40}…, f00, .*f14 and 3 more$"
    ):
        many.check((OneOf.of("x", 1),))


RECORDS: list[dict[str, Any]] = [
    {"tags": ["pump", "seal"], "year": 2001},
    {"tags": "pump"},
    {},
    {"tags": []},
    {"tags": ["seal", "valve", "seal"]},
    {"tags": None},
    {"tags": [""], "year": 2003},
    {"tags": 7},
]


def found(*conditions: OneOf | Range) -> list[int]:
    return [*np.flatnonzero(Metadata.of(corpus(*RECORDS)).where(all_of(*conditions)))]


def test_tag_equality_means_contains() -> None:
    assert found(OneOf.of("tags", "pump")) == [0, 1]
    assert found(OneOf.of("tags", "seal")) == [0, 4]
    assert found(OneOf.of("tags", "")) == [6]
    assert found(OneOf.of("tags", "pum")) == []
    assert found(OneOf.of("tags", 7)) == [7]


def test_tag_list_means_any_of() -> None:
    assert found(OneOf.of("tags", "valve", "pump", "absent")) == [0, 1, 4]
    assert found(*both((OneOf.of("tags", "pump"),), (OneOf.of("tags", "seal"),))) == [0]
    assert found(OneOf.of("tags", "pump", ""), Range("year", gt=2001)) == [6]


def test_tag_bounds_are_refused_by_field() -> None:
    metadata = Metadata.of(corpus(*RECORDS))
    for check in (metadata.check, metadata.check_kinds, metadata.where):
        with pytest.raises(InputError, match="^tags holds lists of strings, which have no order; name a string$"):
            check((Range("tags", gt=1),))
    metadata.check((Range("year", gt=1),))


def test_empty_tag_lists_have_no_column(tmp_path: Path) -> None:
    assert not Metadata.of(corpus({"a": []}, {"a": None})).columns
    metadata = Metadata.of(corpus({"a": "x", "b": 1, "c": []}, {"a": "y", "b": "z", "c": None}))
    assert all(isinstance(column, Column) for column in metadata.columns.values())
    metadata.save(tmp_path / "m")
    assert {*load_file(tmp_path / "m")} == {
        "fields",
        *(f"{i}.{part}" for i in (0, 1) for part in ("json", "offsets", "codes")),
    }


def test_tag_column_agrees_with_loop() -> None:
    rng = np.random.default_rng(3)
    records = [{"tags": [f"t{tag}" for tag in rng.integers(0, 50, rng.integers(0, 9))]} for _ in range(3000)]
    column = Metadata.of(corpus(*records)).columns["tags"]
    assert isinstance(column, TagColumn)
    for query_filter in (["t0"], ["t1", "t49"], [f"t{tag}" for tag in range(50)], ["absent"]):
        assert column.where_one_of(OneOf.of("tags", *query_filter)).tolist() == [
            bool({*query_filter} & {*record["tags"]}) for record in records
        ]
    assert column.codes.nbytes <= 4 * sum(max(1, len(record["tags"])) for record in records)


HOSTILE = {
    "starts too few": {"0.starts": np.array([0, 2, 3])},
    "starts late": {"0.starts": np.array([1, 2, 3, 4])},
    "starts end early": {"0.starts": np.array([0, 1, 2, 3])},
    "starts end late": {"0.starts": np.array([0, 2, 3, 5])},
    "starts fall": {"0.starts": np.array([0, 3, 2, 4])},
    "a document without codes": {"0.starts": np.array([0, 2, 2, 4])},
    "starts of another type": {"0.starts": np.array([0, 2, 3, 4], dtype=np.int32)},
    "starts of no field": {"1.starts": np.array([0, 2, 3, 4])},
    "codes too high": {"0.codes": np.array([0, 3, 2, -1], dtype=np.int32)},
    "codes too low": {"0.codes": np.array([0, -2, 2, -1], dtype=np.int32)},
    "codes of two dimensions": {"0.codes": np.array([[0], [1], [2], [-1]], dtype=np.int32)},
    "of other documents": {"0.codes": np.array([1, 2, 0, -1], dtype=np.int32)},
}


@pytest.mark.parametrize("change", HOSTILE.values(), ids=HOSTILE.keys())
def test_invalid_tag_file_is_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    documents, path = corpus({"a": ["x", "y"]}, {"a": "z"}, {}), tmp_path / "m"
    Metadata.of(documents).save(path)
    assert Metadata.load(path, documents).columns["a"].keys(0) == ((2, "x"), (2, "y"))
    save_file(load_file(path) | change, path)
    with pytest.raises(ReleaseError, match="calibrate again"):
        Metadata.load(path, documents)


# Marks and format characters that later Unicode versions added are unassigned for an older Python.
_IGNORABLE = regex.compile(r"[\p{Default_Ignorable_Code_Point}\p{White_Space}\p{Cc}]")


def test_unicode_ignorable_character_is_invisible() -> None:
    characters = map(chr, range(sys.maxunicode + 1))
    assert [
        hex(ord(character)) for character in characters if _IGNORABLE.match(character) and has_visible_text(character)
    ] == []


def test_letters_digits_punctuation_are_visible() -> None:
    visible = regex.compile(r"[[\p{L}\p{N}\p{P}\p{S}]--[\p{Default_Ignorable_Code_Point}⠀𝅙𓑁𓑂]]", regex.VERSION1)
    characters = map(chr, range(sys.maxunicode + 1))
    assert [
        hex(ord(character)) for character in characters if visible.match(character) and not has_visible_text(character)
    ] == []


@pytest.mark.parametrize(
    "text",
    ["", " \t\n\x1c", "\u200b\ufeff\u200d", "\0", "\u00ad", "\u3164\u115f\u1160\uffa0", "\u2800", "\ufe0f", "\u0301",
     "\U000e0041\U000e007f", "\u202e\u2066", "\ud800"],
)  # fmt: skip
def test_text_of_invisible_characters_is_invisible(text: str) -> None:
    assert not has_visible_text(text)
    assert has_visible_text(f"{text}a")


@pytest.mark.parametrize("text", ["?", "é", "ก", "한", "🙂", "\ue000", "e\u0301", "…"])
def test_one_visible_character_is_enough(text: str) -> None:
    assert has_visible_text(text)
