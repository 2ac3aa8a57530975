"""The OpenAPI document: FastAPI's description of the operations, plus the limits of the settings."""

from typing import Any

from fastapi import FastAPI

from taugate.service.http.endpoints import Endpoint
from taugate.service.http.replies import ErrorResponse
from taugate.service.settings import Settings
from taugate.service.settings.groups import RequestSettings

REQUEST_ID = {
    "X-Request-ID": {
        "description": "id of the request, also in the log; taken from the request if it has a valid X-Request-ID",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    }
}
_RETRY_AFTER = {
    "Retry-After": {
        "description": "seconds to wait before trying again",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    }
}
_SECURITY_SCHEMES = {
    "bearer": {"type": "http", "scheme": "bearer", "description": "an API key; not needed if no keys are configured"},
    "header": {
        "type": "apiKey",
        "in": "header",
        "name": "X-API-Key",
        "description": "an API key, as an alternative to the Authorization header",
    },
}
SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}]  # alternatives
# By status. Without a description FastAPI uses the phrase of Python's HTTPStatus, which changed for 413 and 422 in
# Python 3.13.
_ERRORS = {
    400: "Malformed HTTP or JSON",
    401: "The API key is missing, unknown or expired",
    403: "The API key lacks the scope of this path, or has a filter that this path does not allow",
    404: "Unknown name or id",
    408: "The request was not received in time",
    409: "The release in service is of another kind than the path, or could not be replaced",
    413: "The body is too large",
    422: "The body is invalid; the message names the fields",
    429: "The queue is full, or the key is over its rate limit; Retry-After says when to try again",
    431: "The request line and headers are too long",
    500: "Internal error; the log has the reason under the request id",
    503: "No release is loaded, its engine is not responding, or too many connections are open",
    504: "The reply was not ready before the deadline",
}
# Fields of requests that have configured limits, by model.
_LIMITED = {
    **dict.fromkeys(("SearchRequest", "ExplainRequest"), ("query", "k", "min_results")),
    **dict.fromkeys(("FeedbackRequest", "VectorStoreQuery", "DifyQuery"), ("query",)),
    "GateRequest": ("query", "k"),
    **dict.fromkeys(("BatchRequest", "GateBatchRequest", "GoldenRequest"), ("queries",)),
    "RetrievalSetting": ("top_k",),
}


def error_replies(row: Endpoint) -> dict[int | str, dict[str, Any]]:
    """Describe the errors of an endpoint, by status."""
    statuses = {400, 408, 431, 500, 503, *row.errors}
    if not row.public:
        statuses |= {401, 403}
    if row.cost:
        statuses |= {413, 422, 429, 504}
    return {
        status: {
            "model": ErrorResponse,
            "description": _ERRORS[status],
            "headers": REQUEST_ID | (_RETRY_AFTER if status in {429, 503} else {}),
        }
        for status in sorted(statuses)
    }


def judging_link(results: str) -> dict[str, Any]:
    """Return an OpenAPI link from a reply to the judgement of its first result.

    `results` is the JSON pointer to the reply to one query, "" if it is the whole body.
    """
    return {
        "JudgeFirstResult": {
            "operationId": "feedback",
            "description": "Judge whether the first result answers the query.",
            "requestBody": {
                "query_id": f"$response.body#{results}/query_id",
                "document_id": f"$response.body#{results}/results/0/id",
                "relevant": True,
            },
        }
    }


def describe(app: FastAPI, settings: Settings) -> dict[str, Any]:
    """Return the OpenAPI document of an application, with the limits of its settings; it is built once and cached."""
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        app.openapi_schema = None  # FastAPI has set it, and the document is still incomplete
        _add_limits(document["components"]["schemas"], settings)
        document["components"]["securitySchemes"] = _SECURITY_SCHEMES
        app.openapi_schema = document
    return app.openapi_schema


def _add_limits(schemas: dict[str, Any], settings: Settings) -> None:
    """Add the limits that JSON Schema can express to the schemas of requests."""
    for model in _LIMITED.keys() & schemas.keys():
        for field in _LIMITED[model]:
            _limit(schemas[model]["properties"][field], settings.requests)


def _limit(schema: dict[str, Any], limits: RequestSettings) -> None:
    """Limit a query, a list of them or a number of results, and all alternatives of such a field."""
    kind = schema.get("type")
    if kind == "string":
        schema["maxLength"] = limits.max_query_chars
    elif kind == "integer":
        schema["maximum"] = limits.max_k
    elif kind == "array":
        schema["maxItems"] = limits.max_batch
        _limit(schema["items"], limits)
    for alternative in schema.get("anyOf", ()):
        _limit(alternative, limits)
