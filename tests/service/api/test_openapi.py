"""The committed description of the API is the one the code gives, and what is sent of it was written once."""

import asyncio
from pathlib import Path
from typing import Any

import httpx
import orjson

from taugate.service.api.app import create_app, openapi_document
from taugate.service.settings import Settings

COMMITTED = Path(__file__).parents[3] / "docs" / "openapi.json"


def test_the_committed_document_is_up_to_date() -> None:
    assert orjson.loads(COMMITTED.read_bytes()) == openapi_document(), "the API changed; run: make openapi"


def test_each_path_is_routed_once_and_each_operation_has_a_short_name() -> None:
    app = create_app(Settings(releases=Path("releases")))
    posts = [route.path for route in app.routes if "POST" in (getattr(route, "methods", None) or ())]  # type: ignore[attr-defined]  # of the routes that have one
    assert sorted(posts) == ["/explain", "/feedback", "/search", "/search/batch"], (
        "/admin/reload is in a router of its own"
    )
    operations = [operation for path in openapi_document()["paths"].values() for operation in path.values()]
    assert {operation["operationId"] for operation in operations} == {
        *("search", "search_batch", "explain", "feedback", "reload", "livez", "readyz", "release", "reference"),
        *("metrics", "playground", "playground_style", "playground_script"),
    }


def test_it_is_written_once() -> None:
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
