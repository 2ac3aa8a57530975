"""Parquet: each row is a document, nested columns are read as in JSON, and values keep their kind."""

import datetime
import decimal
import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from import_tests.kept import complete
from taugate.data.parsed import ParsedFile, UnreadableFile
from taugate_import.records import parse_parquet


def parse(rows: list[dict[str, Any]], schema: pa.Schema | None = None) -> ParsedFile:
    """Write rows as Parquet and parse them, and check that none of their words is lost."""
    file = io.BytesIO()
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows, schema=schema), file)
    return complete(parse_parquet(file.getvalue()))


def test_nested_parquet_columns_are_text_with_path() -> None:
    answers = [{"text": "Yes.", "votes": 2}, {"text": "No.", "votes": 1}]
    (document,) = parse(
        [{"id": "a", "text": "Body", "author": {"name": "Ann"}, "answers": answers, "tags": ["x", "y"]}]
    ).documents
    assert document.key == "a"
    assert document.text == "Body\n\nanswers.text: Yes.\nanswers.votes: 2\n\nanswers.text: No.\nanswers.votes: 1"
    assert document.metadata == {"author.name": "Ann", "tags": ["x", "y"]}


def test_parquet_dates_and_decimals_keep_their_kind() -> None:
    row = {
        "text": "x",
        "on": datetime.date(2024, 5, 6),
        "at": datetime.datetime(2024, 5, 6, 7, 8, 9, tzinfo=datetime.UTC),
        "price": decimal.Decimal("12.50"),
        "count": decimal.Decimal("3"),
        "none": None,
        "missing": float("nan"),
        "flag": True,
    }
    (document,) = parse([row]).documents
    assert document.metadata == {
        "on": "2024-05-06",
        "at": "2024-05-06T07:08:09+00:00",
        "price": 12.5,
        "count": 3,
        "flag": True,
    }


def test_parquet_vectors_and_bytes_noted() -> None:
    parsed = parse(
        [{"text": "x", "vector": [number / 3 for number in range(40)], "image": b"\xff\xd8\xff", "note": b"words"}]
    )
    assert parsed.notes == ("leaves out lists of numbers and bytes: vector, image",)
    assert parsed.documents[0].metadata == {"note": "words"}


def test_parquet_maps_and_categories_read() -> None:
    schema = pa.schema(
        [
            ("text", pa.string()),
            ("kind", pa.dictionary(pa.int8(), pa.string())),
            ("names", pa.map_(pa.string(), pa.string())),
        ]
    )
    (document,) = parse([{"text": "x", "kind": "pump", "names": {"de": "Pumpe", "fr": "Pompe"}}], schema).documents
    assert document.metadata == {"kind": "pump", "names.de": "Pumpe", "names.fr": "Pompe"}


def test_invalid_parquet_is_refused() -> None:
    with pytest.raises(UnreadableFile, match="is not Parquet, or is damaged"):
        parse_parquet(b"PAR1PAR1")
