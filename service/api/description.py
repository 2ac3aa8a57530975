"""What openapi.json says of keys: which header they are sent in, where they are needed, what refusals say."""

from typing import Any

from fastapi import FastAPI

from taugate.service.access.rules import rule_of
from taugate.service.api.described import REQUEST_ID, RETRY_AFTER

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
