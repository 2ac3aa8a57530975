"""The manifest's engine record: readable JSON that round-trips, and errors for anything else."""

import hashlib
from typing import Any
from unicodedata import normalize

import orjson
import pytest
from pydantic import ValidationError

from taugate.release.engine import EngineRecord
from taugate.retrieval.documents.filters import OneOf, Range
from taugate.retrieval.documents.metadata import FieldTypes
from taugate.retrieval.documents.store import Document
from taugate.retrieval.engines.engine import field_types, recorded_fields
from taugate.retrieval.engines.filters import FilterDialect, condition, date_key, filterable
from tests.retrieval.engines.corpus import corpus

RECORD = EngineRecord(
    kind="pgvector",
    rows=1500,
    dimension=24,
    shards=("a", "b"),
    sample="c",
    fields=recorded_fields(FieldTypes.of(corpus().documents)),
)


def test_field_types_json_round_trips() -> None:
    written = orjson.loads(RECORD.model_dump_json())
    assert written["fields"] == {
        "day": ["texts", "dates"],
        "lang": ["texts"],
        "odd [\"name\\']": ["numbers"],
        "one": ["booleans", "numbers", "texts"],
        "rare": ["numbers"],
        "tags": ["texts", "lists"],
        "year": ["numbers"],
    }
    assert EngineRecord.model_validate(written, strict=True) == RECORD
    assert EngineRecord.model_validate(RECORD.model_dump()) == RECORD


def test_collection_name_ignores_fields_without_dates() -> None:
    fields = {name: kinds for name, kinds in RECORD.fields.items() if name != "day"}
    without = RECORD.model_copy(update={"fields": fields})
    assert without.model_copy(update={"fields": {}}).collection == without.collection


def test_collection_name_depends_on_dates() -> None:
    assert RECORD.model_copy(update={"fields": {}}).collection != RECORD.collection


WRONG: dict[str, tuple[Any, str]] = {
    "names alone": (["year"], "not an object of fields with the kinds of their values"),
    "nothing": (None, "not an object of fields with the kinds of their values"),
    "one word": ({"year": "numbers"}, "year: must be a list of kinds of values (booleans, numbers, texts"),
    "no kind": ({"year": []}, "year: must be a list of kinds"),
    "lists of nothing": ({"tags": ["lists"]}, "tags: must be a list of kinds"),
    "a kind that is none": ({"year": ["numbers", "colours"]}, "year: must be a list of kinds"),
    "a kind twice": ({"year": ["numbers", "numbers"]}, "year: must be a list of kinds"),
    "a list in a list": ({"{year}": [["numbers"]]}, "{year}: must be a list of kinds"),
    "a long name": ({"y" * 99: 1}, "y" * 40 + "…: must be a list of kinds"),
}


@pytest.mark.parametrize(("fields", "message"), WRONG.values(), ids=WRONG)
def test_invalid_fields_are_refused_by_name(fields: Any, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        EngineRecord.model_validate(RECORD.model_dump() | {"fields": fields})
    (error,) = refused.value.errors()
    assert error["loc"] == ("fields",)
    assert error["msg"].startswith(message)


def test_filter_finds_every_unicode_form() -> None:
    """Rows are uploaded in the composed form, and by earlier versions as the corpus had them."""
    dialect = FilterDialect(has_any=" ".join, compares=lambda key, sign, number: f"{key}{sign}")
    forms = [(normalize(name, "é"), normalize(value, "ü")) for name in ("NFC", "NFD") for value in ("NFC", "NFD")]
    uploaded = {token for name, value in forms for token in filterable(Document("d", "", None, {name: value})).tokens}
    earlier = {hashlib.sha256(orjson.dumps((2, name, value))).hexdigest()[:24] for name, value in forms}
    assert len(uploaded) == 2  # its id, and the value in one form
    asked = condition((OneOf.of(*forms[-1]),), dialect)
    assert all(token in asked for token in earlier)
    within = condition((Range(forms[0][0], gt=0, kind=3),), dialect)
    assert all(f"{date_key(name)}>" in within for name, _ in forms)


def test_field_of_earlier_collection_is_named_in_composed_form() -> None:
    written = RECORD.model_dump() | {"fields": {normalize("NFD", "é"): ["texts"]}}
    field_types(EngineRecord.model_validate(written)).check((OneOf.of("é", "a"),))
