"""The manifest's engine record: JSON for people, read back as it was, and refused where it is anything else."""

from typing import Any

import orjson
import pytest
from pydantic import ValidationError

from taugate.retrieval.documents.field_types import FieldTypes
from taugate.retrieval.engines.record import EngineRecord
from tests.retrieval.engines.corpus import corpus

RECORD = EngineRecord(
    kind="pgvector", rows=1500, dimension=24, shards=("a", "b"), sample="c", fields=FieldTypes.of(corpus().documents)
)


def test_json_says_what_fields_hold_and_is_read_back() -> None:
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


def test_collection_fields_without_dates_has_the_same_name() -> None:
    fields = FieldTypes({name: kinds for name, kinds in RECORD.fields.by_name.items() if name != "day"})
    without = RECORD.model_copy(update={"fields": fields})
    assert without.model_copy(update={"fields": FieldTypes()}).collection == without.collection


def test_collection_dates_that_an_earlier_version_did_not_upload_has_another_name() -> None:
    assert RECORD.model_copy(update={"fields": FieldTypes()}).collection != RECORD.collection


WRONG: dict[str, tuple[Any, str]] = {
    "names alone": (["year"], "no object of fields, each with the kinds of its values"),
    "nothing": (None, "no object of fields, each with the kinds of its values"),
    "one word": ({"year": "numbers"}, "year: no list of the kinds of its values, which are booleans, numbers, texts"),
    "no kind": ({"year": []}, "year: no list of the kinds"),
    "lists of nothing": ({"tags": ["lists"]}, "tags: no list of the kinds"),
    "a kind that is none": ({"year": ["numbers", "colours"]}, "year: no list of the kinds"),
    "a kind twice": ({"year": ["numbers", "numbers"]}, "year: no list of the kinds"),
    "a list in a list": ({"{year}": [["numbers"]]}, "{year}: no list of the kinds"),
    "a long name": ({"y" * 99: 1}, "y" * 40 + "…: no list of the kinds"),
}


@pytest.mark.parametrize(("fields", "message"), WRONG.values(), ids=WRONG)
def test_fields_that_are_anything_else_are_refused_by_name(fields: Any, message: str) -> None:
    with pytest.raises(ValidationError) as refused:
        EngineRecord.model_validate(RECORD.model_dump() | {"fields": fields})
    (error,) = refused.value.errors()
    assert error["loc"] == ("fields",)
    assert error["msg"].startswith(message)
