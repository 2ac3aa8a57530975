"""The table of endpoints, what answers their requests, and how the OpenAPI document describes them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response

from taugate.service.access.authorization import KeyScope
from taugate.service.errors import ApiError
from taugate.service.http.exchange import ErrorResponse
from taugate.service.settings import Part, Settings
from taugate.service.settings.groups import RequestSettings

BodyLimit = Literal["max_body_bytes", "max_batch_bytes"]

# Handlers have the parameters `request`, of Starlette, and `body` if the endpoint has one.
Handler = Callable[..., Awaitable[Response]]
# Returns the status, code and further fields of an error reply, given the request's headers by lower-case name.
ErrorForm = Callable[[ApiError, Mapping[bytes, bytes]], tuple[int, str, dict[str, Any]]]

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


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A path of the service with its method.

    Attributes:
        name: Operation id.
        method: HTTP method; HEAD is supported wherever GET is.
        path: Request path, or a template if a part of the path varies.
        tag: Group in openapi.json, None to leave the endpoint out.
        scope: Scope that the API key needs, None if any key will do.
        public: True if no key is needed.
        filtered: True if replies are limited to documents within the key's filter. A key with a filter may use only
            such endpoints.
        cost: What a request is charged to the rate of its key: `one` query, the `queries` of its body, which count more
            with many results, or None.
        lists: Lists that may make the body large, see `read_large_json`; empty if it has the size of a single query.
        part: Part of the service that must be on for the path to exist, None if the path always exists.
        status: Status of a successful reply.
        errors: Statuses of errors that only this handler replies, for openapi.json.
    """

    name: str
    method: Literal["GET", "POST"]
    path: str
    tag: str | None
    scope: KeyScope | None = None
    public: bool = False
    filtered: bool = False
    cost: Literal["one", "queries"] | None = None
    lists: tuple[str, ...] = ()
    part: Part | None = None
    status: int = 200
    errors: tuple[int, ...] = ()

    @property
    def body_limit(self) -> BodyLimit:
        """Setting with the largest size of the body in bytes. Bodies of GET requests are ignored."""
        return "max_batch_bytes" if self.lists else "max_body_bytes"


# Columns: name, method, path, tag, scope; then what differs from the defaults.
# fmt: off
_ROWS = (
    Endpoint("search", "POST", "/search", "search", "search", filtered=True, cost="one", errors=(409,)),
    Endpoint("search_batch", "POST", "/search/batch", "search", "search", filtered=True, cost="queries",
             lists=("queries",), errors=(409,)),
    Endpoint("search_vector_store", "POST", "/v1/vector_stores/{vector_store_id}/search", "dialects", "search",
             filtered=True, cost="queries", part="openai", errors=(404, 409)),
    Endpoint("dify_retrieval", "POST", "/dify/retrieval", "dialects", "search", filtered=True, cost="one", part="dify",
             errors=(409,)),
    Endpoint("gate", "POST", "/gate", "gate", "search", cost="queries", lists=("results",), errors=(409,)),
    Endpoint("gate_batch", "POST", "/gate/batch", "gate", "search", cost="queries", lists=("queries", "results"),
             errors=(409,)),
    Endpoint("golden", "GET", "/gate/golden", "gate", "search", errors=(404, 409)),
    Endpoint("golden_check", "POST", "/gate/golden", "gate", "search", cost="queries", lists=("queries", "results"),
             errors=(404, 409)),
    Endpoint("explain", "POST", "/explain", "search", "search", filtered=True, cost="one", errors=(404, 409)),
    Endpoint("feedback", "POST", "/feedback", "search", "feedback", filtered=True, cost="one", errors=(404, 409),
             status=202),
    Endpoint("livez", "GET", "/livez", "operations", public=True),
    Endpoint("readyz", "GET", "/readyz", "operations", public=True),
    Endpoint("release", "GET", "/release", "operations"),
    Endpoint("reference", "GET", "/release/reference", "operations", "search"),
    Endpoint("metrics", "GET", "/metrics", "operations", "metrics"),
    Endpoint("reload", "POST", "/admin/reload", "operations", "admin", errors=(409,)),
    Endpoint("playground", "GET", "/playground", "playground", public=True, part="playground"),
    Endpoint("playground_style", "GET", "/playground/app.css", "playground", public=True, part="playground"),
    Endpoint("playground_script", "GET", "/playground/app.js", "playground", public=True, part="playground"),
    # For the page alone, and not in openapi.json: they change with it.
    Endpoint("playground_questions", "GET", "/playground/questions", None, "search", part="playground"),
    Endpoint("playground_new_questions", "GET", "/playground/new-questions", None, "metrics", part="playground"),
    Endpoint("playground_documents", "POST", "/playground/documents", None, "search", cost="one", part="playground"),
    Endpoint("playground_shadow", "POST", "/playground/shadow", None, "search", cost="one", part="playground"),
    Endpoint("openapi", "GET", "/openapi.json", None, public=True),
    Endpoint("docs", "GET", "/docs", None, public=True),
    Endpoint("home", "GET", "/", None, public=True),
)
# fmt: on
ENDPOINTS: Mapping[str, Endpoint] = {endpoint.name: endpoint for endpoint in _ROWS}


class Operation(APIRoute):
    """An endpoint and its handler. FastAPI describes it by the handler's signature; `RequestSteps` calls the handler.

    Attributes:
        row: The endpoint in the table.
        handler: Coroutine function that replies to authorized requests.
        model: Model of the body, None if the handler takes none.
        queries: Function that counts the queries of a body.
        is_known: Function that returns whether the reply to a body is in memory. If it is set, requests with any other
            body are refused at once while the queue is full.
        allowed: Methods of its path, including those of other endpoints.
        error_form: Form of error replies in a dialect, None for that of Taugate.
    """

    def __init__(  # noqa: PLR0913 (what may differ between operations)
        self,
        name: str,
        handler: Handler,
        reply: type[BaseModel] | None,
        *,
        described: Mapping[str, Any] | None = None,
        judged: str | None = None,
        is_known: Callable[[Any], bool] | None = None,
        queries: Callable[[Any], int] = lambda body: len(getattr(body, "queries", (body,))),
        error_form: ErrorForm | None = None,
        **description: Any,  # noqa: ANN401 (any argument of FastAPI's APIRoute)
    ) -> None:
        """Bind a handler to the row with a name; `reply` is the model of a successful reply, None for no JSON.

        `described` has further fields of that reply for openapi.json. `judged` is the JSON pointer to the reply to one
        query, "" if it is the whole body, whose first result /feedback can judge; None if there is none.
        """
        self.row = ENDPOINTS[name]
        self.handler, self.queries, self.error_form = handler, queries, error_form
        self.allowed: tuple[str, ...] = ("GET", "HEAD") if self.row.method == "GET" else (self.row.method,)
        self.is_known = is_known
        secured = {} if self.row.public else {"security": SECURITY}
        links = {} if judged is None else {"links": _judging_link(judged)}
        self.model: type[BaseModel] | None = get_type_hints(handler).get("body")
        super().__init__(
            self.row.path,
            handler,
            methods=[self.row.method],
            name=name,
            status_code=self.row.status,
            tags=[] if self.row.tag is None else [self.row.tag],
            include_in_schema=self.row.tag is not None,
            response_model=None,
            responses={
                self.row.status: {"model": reply, "headers": REQUEST_ID, **links, **(described or {})},
                **error_replies(self.row),
            },
            generate_unique_id_function=lambda route: route.name,
            **{**description, "openapi_extra": secured | description.get("openapi_extra", {})},
        )


def _judging_link(results: str) -> dict[str, Any]:
    """Return an OpenAPI link from the reply at a JSON pointer to the judgement of its first result."""
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
