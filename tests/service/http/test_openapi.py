"""docs/openapi.json is current, and the served document is serialized once."""

import asyncio
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from fastapi import FastAPI

from taugate.service.app import create_app, openapi_document
from taugate.service.settings import Settings

COMMITTED = Path(__file__).parents[3] / "docs" / "openapi.json"


def test_committed_openapi_is_current() -> None:
    assert orjson.loads(COMMITTED.read_bytes()) == openapi_document(), "the API changed; run: make openapi"


def test_error_descriptions_ignore_python_version() -> None:
    """The phrases of Python's HTTPStatus are not: 3.13 calls 413 "Content Too Large"."""
    phrases = {status.phrase for status in HTTPStatus if status >= 400} | {"Content Too Large", "Unprocessable Content"}
    for path in openapi_document()["paths"].values():
        for operation in path.values():
            assert phrases.isdisjoint(reply["description"] for reply in operation["responses"].values())


def test_operations_have_unique_short_names() -> None:
    operations = [operation for path in openapi_document()["paths"].values() for operation in path.values()]
    assert {operation["operationId"] for operation in operations} == {
        *(
            "search",
            "search_batch",
            "gate",
            "gate_batch",
            "golden",
            "golden_check",
            "explain",
            "feedback",
            "reload",
            "livez",
            "readyz",
            "release",
            "reference",
        ),
        *("metrics", "playground", "playground_style", "playground_script"),
    }


def test_dialect_schemas_have_configured_limits() -> None:
    settings = Settings(releases=Path("releases"), dialects="openai,dify", max_query_chars=77, max_batch=5, max_k=9)
    schemas = create_app(settings).openapi()["components"]["schemas"]
    one, several = schemas["VectorStoreQuery"]["properties"]["query"]["anyOf"]
    assert (one["maxLength"], several["maxItems"], several["items"]["maxLength"]) == (77, 5, 77)
    assert schemas["DifyQuery"]["properties"]["query"]["maxLength"] == 77
    assert schemas["RetrievalSetting"]["properties"]["top_k"]["anyOf"][0]["maximum"] == 9


def test_limit_without_field_is_500(monkeypatch: pytest.MonkeyPatch) -> None:
    described = FastAPI.openapi

    def without_k(app: FastAPI) -> dict[str, Any]:
        document = described(app)
        del document["components"]["schemas"]["SearchRequest"]["properties"]["k"]
        return document

    monkeypatch.setattr(FastAPI, "openapi", without_k)
    app = create_app(Settings(releases=Path("releases")))

    with pytest.raises(KeyError, match="k"):
        app.openapi()

    async def ask() -> httpx.Response:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            return await asyncio.wait_for(http.get("/openapi.json"), 30)

    assert asyncio.run(ask()).status_code == 500


def test_openapi_is_serialized_once() -> None:
    app = create_app(Settings(releases=Path("releases")))
    describe, written = app.openapi, 0

    def count() -> dict[str, Any]:
        nonlocal written
        written += 1
        return describe()

    app.openapi = count  # type: ignore[method-assign]

    async def ask() -> list[httpx.Response]:
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost") as http:
            return [
                *await asyncio.gather(*(http.get("/openapi.json") for _ in range(4))),
                await http.get("/openapi.json"),
            ]

    replies = asyncio.run(ask())
    assert [reply.json() == openapi_document() for reply in replies] == [True] * 5
    assert written == 1
