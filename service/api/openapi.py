"""What openapi.json says beyond what FastAPI reads off the routes: replies of every route, headers, keys.

`python -m taugate.service.api.openapi FILE` writes docs/openapi.json.
"""

import sys
from pathlib import Path
from typing import Any

import orjson
from fastapi import FastAPI

from taugate.service.access.access import rule_of
from taugate.service.api.schemas import ErrorResponse
from taugate.service.settings import Settings

Responses = dict[int | str, dict[str, Any]]

REQUEST_ID = {
    "X-Request-ID": {
        "description": "under which the log knows the request; its own, where it brought one",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    }
}
RETRY_AFTER = {
    "Retry-After": {
        "description": "seconds after which to try again",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    }
}


def replies(status: int, model: object, **further: Any) -> Responses:  # noqa: ANN401 (whatever OpenAPI has)
    """The reply of a route when all is well."""
    return {status: {"model": model, "headers": REQUEST_ID, **further}}


def errors(*statuses: int) -> Responses:
    """Errors that a route may answer; 500 is one of every route."""
    return {
        status: {"model": ErrorResponse, "headers": REQUEST_ID | (RETRY_AFTER if status == 429 else {})}
        for status in sorted({*statuses, 500})
    }


def judging(results: str) -> dict[str, Any]:
    """The link from a reply to the judgement of its first result; results: JSON pointer to the reply of one query."""
    return {
        "JudgeFirstResult": {
            "operationId": "feedback_feedback_post",
            "description": "Tell whether the first result answers the query.",
            "requestBody": {
                "query_id": f"$response.body#{results}/query_id",
                "document_id": f"$response.body#{results}/results/0/id",
                "relevant": True,
            },
        }
    }


def describe(app: FastAPI, settings: Settings) -> dict[str, Any]:
    """The document, with the limits that are settings where JSON Schema has a word for them."""
    if app.openapi_schema is None:
        schemas = FastAPI.openapi(app)["components"]["schemas"]
        search, batch = (schemas[name]["properties"] for name in ("SearchRequest", "BatchRequest"))
        search["query"]["maxLength"] = settings.requests.max_query_chars
        for name in ("k", "min_results"):
            _number(search[name])["maximum"] = settings.requests.max_k
        batch["queries"]["maxItems"] = settings.requests.max_batch
        _text(batch["queries"]["items"])["maxLength"] = settings.requests.max_query_chars
    assert app.openapi_schema is not None  # noqa: S101 (FastAPI.openapi keeps it)
    return app.openapi_schema


def _number(field: dict[str, Any]) -> dict[str, Any]:
    """The integer of a field that may be null, too."""
    return next(each for each in field.get("anyOf", [field]) if each["type"] == "integer")


def _text(item: dict[str, Any]) -> dict[str, Any]:
    """The text among what an item may be."""
    return next(each for each in item["anyOf"] if each.get("type") == "string")


_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "an API key; none is needed where none are configured",
    },
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "the same in a header of its own"},
}
_EITHER: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}]
_KEY = {
    "401": "There is no key, or none that is known",
    "403": "The key has not the scope of this path, or has a filter",
}
_RATE = {"429": "The queue is full, or the key asks for more than its rate; Retry-After says when to try again"}
_ANY = {
    "400": "This is no HTTP, or the body is no JSON",
    "408": "The whole request was not there in time",
    "431": "The head of the request is too long",
    "503": "No release is loaded, or too many connections are open",
}
_LIMITED = {"search", "feedback"}


def describe_access(app: FastAPI) -> None:
    """Add keys and their refusals to what the application says of itself."""
    of_the_routes = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = of_the_routes()
            document["components"]["securitySchemes"] = _SCHEMES
            for path, operations in document["paths"].items():
                rule = rule_of(path)
                closed = rule is None or not rule.open
                said = _ANY | _KEY if closed else _ANY
                said = said | _RATE if rule is not None and rule.scope in _LIMITED else said
                for operation in operations.values():
                    _describe(operation, said, closed=closed)
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]  # the way that FastAPI documents


def _describe(operation: dict[str, Any], said: dict[str, str], *, closed: bool) -> None:
    if closed:
        operation["security"] = _EITHER
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}}
    replies = operation["responses"]
    for status, text in said.items():
        headers = REQUEST_ID | (RETRY_AFTER if status == "429" else {})
        replies[status] = {"content": content, "headers": headers} | replies.get(status, {}) | {"description": text}
    operation["responses"] = dict(sorted(replies.items()))


def document() -> dict[str, Any]:
    """The OpenAPI document of an application with default settings."""
    from taugate.service.api.app import create_app  # which describes itself by this file

    return create_app(Settings(releases=Path("releases"))).openapi()


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(orjson.dumps(document(), option=orjson.OPT_INDENT_2) + b"\n")
