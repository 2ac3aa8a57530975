"""Field types are the same whether collected from columns or from documents."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.errors import InputError
from taugate.release.names import BOOLEANS, NUMBERS, TEXTS
from taugate.retrieval.documents.filters import Filter, Not, OneOf, Range
from taugate.retrieval.documents.metadata import FieldType, FieldTypes, Metadata
from taugate.retrieval.documents.store import Document

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
