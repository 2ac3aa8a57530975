"""The OpenAPI document: what FastAPI reads off the routes, and the limits, keys and refusals that all routes share."""

from typing import Any

from fastapi import FastAPI
from fastapi.routing import APIRoute

from taugate.service.access.authorization import PathRule, path_rule
from taugate.service.api.schemas import ErrorResponse
from taugate.service.settings import Settings

# Replies by status, in the form of FastAPI's argument `responses`.
Responses = dict[int | str, dict[str, Any]]

_REQUEST_ID = {
    "X-Request-ID": {
        "description": "under which the log knows the request; its own, where it brought one",
        "required": True,
        "schema": {"type": "string", "pattern": "^[A-Za-z0-9._-]{1,64}$"},
    }
}
_RETRY_AFTER = {
    "Retry-After": {
        "description": "seconds after which to try again",
        "required": True,
        "schema": {"type": "integer", "minimum": 1},
    }
}
_SECURITY_SCHEMES = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "an API key; none is needed where none are configured",
    },
    "header": {"type": "apiKey", "in": "header", "name": "X-API-Key", "description": "the same in a header of its own"},
}
_SECURITY: list[dict[str, list[str]]] = [{"bearer": []}, {"header": []}]  # either of them
# Errors of the routes themselves, by status. Without a description FastAPI takes the phrase of Python's HTTPStatus,
# which is another one for 413 and 422 from 3.13 on.
_ERRORS = {
    404: "Nothing with this name or id is known",
    409: "The release that is current could not be loaded; the one before keeps serving",
    413: "The body is too large",
    422: "The body is not what this path expects; the message says where",
    500: "The service failed; its log has the reason under the request's id",
    504: "The answer was not ready before the deadline",
}
# Refusals that come before a route is reached, by status, with their descriptions.
_REFUSALS = {
    "400": "This is no HTTP, or the body is no JSON",
    "408": "The whole request was not there in time",
    "431": "The head of the request is too long",
    "503": "No release is loaded, its engine does not answer, or too many connections are open",
}
_KEY_REFUSALS = {
    "401": "There is no key, or none that is known",
    "403": "The key has not the scope of this path, or has a filter",
}
_RATE_REFUSALS = {
    "429": "The queue is full, or the key asks for more than its rate; Retry-After says when to try again"
}
_RATE_LIMITED_SCOPES = {"search", "feedback"}
_DIALECT_QUERIES = {"VectorStoreQuery", "DifyQuery"}  # models whose queries have the same limits


def operation_id(route: APIRoute) -> str:
    """Return the OpenAPI operation id of a route: its name, which no two routes share.

    Args:
        route: As FastAPI hands it to its argument `generate_unique_id_function`.
    """
    return route.name


def replies(status: int, model: object, **further: Any) -> Responses:  # noqa: ANN401 (whatever OpenAPI has)
    """Describe the reply of a route when all is well.

    Args:
        status: HTTP status.
        model: Pydantic model of the body, None for none.
        further: OpenAPI fields such as `links`.
    """
    return {status: {"model": model, "headers": _REQUEST_ID, **further}}


def errors(*statuses: int) -> Responses:
    """Describe the errors that a route may answer by itself.

    Args:
        statuses: HTTP statuses; 500 is added, which any route may answer. Those that any path may be refused with get
            their description later, from `describe`.
    """
    described: Responses = {}
    for status in sorted({*statuses, 500}):
        described[status] = {"model": ErrorResponse, "headers": _error_headers(status)}
        if status in _ERRORS:
            described[status]["description"] = _ERRORS[status]
    return described


def judging(results: str) -> dict[str, Any]:
    """Describe the link from a search reply to the judgement of its first result, as OpenAPI's field `links` has it.

    Args:
        results: JSON pointer to the reply of one query, "" where it is the whole body.
    """
    return {
        "JudgeFirstResult": {
            "operationId": "feedback",
            "description": "Tell whether the first result answers the query.",
            "requestBody": {
                "query_id": f"$response.body#{results}/query_id",
                "document_id": f"$response.body#{results}/results/0/id",
                "relevant": True,
            },
        }
    }


def describe(app: FastAPI, settings: Settings) -> dict[str, Any]:
    """Return the OpenAPI document of an application, which is made once and kept by it.

    Args:
        app: Whose routes are described.
        settings: Have the limits that are put into it.
    """
    if app.openapi_schema is None:
        document = FastAPI.openapi(app)
        app.openapi_schema = None  # which FastAPI has set: nobody gets a document that is half described
        _add_limits(document["components"]["schemas"], settings)
        document["components"]["securitySchemes"] = _SECURITY_SCHEMES
        for path, operations in document["paths"].items():
            rule = path_rule(path)
            for operation in operations.values():
                _add_refusals(operation, rule)
        app.openapi_schema = document
    return app.openapi_schema


def _add_limits(schemas: dict[str, Any], settings: Settings) -> None:
    """Add those limits to the schemas of requests for which JSON Schema has a word."""
    for search in (schemas[name]["properties"] for name in ("SearchRequest", "ExplainRequest")):
        search["query"]["maxLength"] = settings.requests.max_query_chars
        for name in ("k", "min_results"):
            _schema_of_type(search[name], "integer")["maximum"] = settings.requests.max_k
    judged = _schema_of_type(schemas["FeedbackRequest"]["properties"]["query"], "string")
    judged["maxLength"] = settings.requests.max_query_chars
    batch = schemas["BatchRequest"]["properties"]
    batch["queries"]["maxItems"] = settings.requests.max_batch
    _schema_of_type(batch["queries"]["items"], "string")["maxLength"] = settings.requests.max_query_chars
    if "RetrievalSetting" in schemas:
        _schema_of_type(schemas["RetrievalSetting"]["properties"]["top_k"], "integer")["maximum"] = (
            settings.requests.max_k
        )
    for name in _DIALECT_QUERIES & schemas.keys():
        query = schemas[name]["properties"]["query"]
        _schema_of_type(query, "string")["maxLength"] = settings.requests.max_query_chars
        for several in (each for each in query.get("anyOf", ()) if each.get("type") == "array"):
            several["maxItems"] = settings.requests.max_batch
            several["items"]["maxLength"] = settings.requests.max_query_chars


def _schema_of_type(schema: dict[str, Any], kind: str) -> dict[str, Any]:
    """Return the schema of that type: the given one, or the first among its alternatives.

    Raises:
        LookupError: Where there is none: a model has changed, and its limits have to follow.
    """
    alternatives: list[dict[str, Any]] = schema.get("anyOf", [schema])
    for each in alternatives:
        if each.get("type") == kind:
            return each
    raise LookupError(f"a limit is for {kind}, and {schema} is not; let _add_limits follow the model that has changed")


def _add_refusals(operation: dict[str, Any], rule: PathRule | None) -> None:
    """Add to an operation the keys it needs, and the replies to requests that do not reach its route."""
    refusals = dict(_REFUSALS)
    if rule is None or not rule.public:
        operation["security"] = _SECURITY
        refusals |= _KEY_REFUSALS
    if rule is not None and rule.scope in _RATE_LIMITED_SCOPES:
        refusals |= _RATE_REFUSALS
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorResponse"}}}
    responses = operation["responses"]
    for status, text in refusals.items():
        described = {"content": content, "headers": _error_headers(int(status))}
        responses[status] = described | responses.get(status, {}) | {"description": text}
    operation["responses"] = dict(sorted(responses.items()))


def _error_headers(status: int) -> dict[str, Any]:
    return _REQUEST_ID | (_RETRY_AFTER if status in {429, 503} else {})
