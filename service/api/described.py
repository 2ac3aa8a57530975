"""What openapi.json says beyond the models: headers, errors, links between routes, and the limits in force here."""

from typing import Any

from fastapi import FastAPI

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
        search["query"]["maxLength"] = settings.max_query_chars
        for name in ("k", "min_results"):
            _number(search[name])["maximum"] = settings.max_k
        batch["queries"]["maxItems"] = settings.max_batch
        _text(batch["queries"]["items"])["maxLength"] = settings.max_query_chars
    assert app.openapi_schema is not None  # noqa: S101 (FastAPI.openapi keeps it)
    return app.openapi_schema


def _number(field: dict[str, Any]) -> dict[str, Any]:
    """The integer of a field that may be null, too."""
    return next(each for each in field.get("anyOf", [field]) if each["type"] == "integer")


def _text(item: dict[str, Any]) -> dict[str, Any]:
    """The text among what an item may be."""
    return next(each for each in item["anyOf"] if each.get("type") == "string")
