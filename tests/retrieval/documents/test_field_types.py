"""What fields hold: the same whether it is told from the columns of a corpus or from its documents one by one."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from taugate.errors import InputError
from taugate.retrieval.documents.field_types import FieldType, FieldTypes
from taugate.retrieval.documents.filters import BOOLEANS, NUMBERS, TEXTS, Filter, Not, OneOf, Range
from taugate.retrieval.documents.metadata import Metadata
from taugate.retrieval.documents.store import Document

VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-9, 9), st.floats(-9, 9), st.text("ab"), st.lists(st.text("ab"), max_size=2)
)
CORPORA = st.lists(st.dictionaries(st.sampled_from("xyz"), VALUES), min_size=1, max_size=6)


def corpus(*records: dict[str, Any]) -> list[Document]:
    return [Document(f"d{position}", "text", None, record) for position, record in enumerate(records)]


@given(CORPORA)
def test_columns_and_documents_say_the_same(records: list[dict[str, Any]]) -> None:
    documents = corpus(*records)
    assert FieldTypes.of(documents) == Metadata.of(documents).types


def test_lists_are_told_from_single_texts_and_a_field_without_values_is_none() -> None:
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


@pytest.mark.parametrize(("wanted", "message"), REFUSED)
def test_a_kind_of_value_that_a_field_never_has_is_refused_of_keys_alone(wanted: Filter, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        TYPES.check_kinds(wanted)
    TYPES.check(wanted)


def test_fields_are_listed_up_to_a_limit() -> None:
    with pytest.raises(InputError, match=r"^the documents have no metadata; leave it out$"):
        FieldTypes().check((OneOf.of("a", 1),))
    many = FieldTypes.of(corpus({f"f{number:02}": 1 for number in range(18)} | {"a" * 50: 1}))
    with pytest.raises(
        InputError, match=rf"^no document has the field x; the fields are {'a' * 40}…, f00, .*f14 and 3 more$"
    ):
        many.check((OneOf.of("x", 1),))
