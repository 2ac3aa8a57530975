"""The committed description of the API is the one the code gives."""

from pathlib import Path

import orjson

from service.openapi import document

COMMITTED = Path(__file__).parents[2] / "docs" / "openapi.json"


def test_the_committed_document_is_up_to_date() -> None:
    assert orjson.loads(COMMITTED.read_bytes()) == document(), "the API changed; run: make openapi"
