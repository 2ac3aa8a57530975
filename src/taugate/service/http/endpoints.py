"""The table of endpoints, and what answers each.

Authorization, limits, rates, routing and openapi.json read the table. No other file names a path. The packages above
provide an `Operation` for each row.
"""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_type_hints

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response

from taugate.service.access.keys import KeyScope
from taugate.service.errors import ApiError
from taugate.service.settings import Part

BodyLimit = Literal["max_body_bytes", "max_batch_bytes"]


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
        cost: What a request is charged to the rate of its key: `one` query, the `queries` of its body, or None.
        body_limit: Setting with the largest size of the body in bytes. Bodies of GET requests are ignored.
        part: Part of the service that must be on for the path to exist, None if the path always exists.
        errors: Statuses of errors that only some handlers reply, for openapi.json.
    """

    name: str
    method: Literal["GET", "POST"]
    path: str
    tag: str | None
    scope: KeyScope | None = None
    public: bool = False
    filtered: bool = False
    cost: Literal["one", "queries"] | None = None
    body_limit: BodyLimit = "max_body_bytes"
    part: Part | None = None
    errors: tuple[int, ...] = ()


_ROWS = (
    Endpoint("search", "POST", "/search", "search", "search", filtered=True, cost="one"),
    Endpoint(
        "search_batch",
        "POST",
        "/search/batch",
        "search",
        "search",
        filtered=True,
        cost="queries",
        body_limit="max_batch_bytes",
    ),
    Endpoint(
        "search_vector_store",
        "POST",
        "/v1/vector_stores/{vector_store_id}/search",
        "dialects",
        "search",
        filtered=True,
        cost="queries",
        part="openai",
        errors=(404,),
    ),
    Endpoint("dify_retrieval", "POST", "/dify/retrieval", "dialects", "search", filtered=True, cost="one", part="dify"),
    Endpoint("explain", "POST", "/explain", "search", "search", filtered=True, cost="one", errors=(404,)),
    Endpoint("feedback", "POST", "/feedback", "search", "feedback", filtered=True, cost="one", errors=(404,)),
    Endpoint("livez", "GET", "/livez", "operations", public=True),
    Endpoint("readyz", "GET", "/readyz", "operations", public=True, errors=(503,)),
    Endpoint("release", "GET", "/release", "operations", errors=(503,)),
    Endpoint("reference", "GET", "/release/reference", "operations", "search", errors=(503,)),
    Endpoint("metrics", "GET", "/metrics", "operations", "metrics"),
    Endpoint("reload", "POST", "/admin/reload", "operations", "admin", errors=(409, 503)),
    Endpoint("playground", "GET", "/playground", "playground", public=True, part="playground"),
    Endpoint("playground_style", "GET", "/playground/app.css", "playground", public=True, part="playground"),
    Endpoint("playground_script", "GET", "/playground/app.js", "playground", public=True, part="playground"),
    Endpoint("openapi", "GET", "/openapi.json", None, public=True),
)
ENDPOINTS: Mapping[str, Endpoint] = {endpoint.name: endpoint for endpoint in _ROWS}

# Handlers have the parameters `request`, of Starlette, and `body` if the endpoint has one.
Handler = Callable[..., Awaitable[Response]]
# Returns the status, code and further fields of an error reply, given the request's headers by lower-case name.
ErrorForm = Callable[[ApiError, Mapping[bytes, bytes]], tuple[int, str, dict[str, Any]]]


class Operation(APIRoute):
    """An endpoint and its handler. FastAPI describes it by the handler's signature; `RequestSteps` calls the handler.

    Attributes:
        row: The endpoint in the table.
        handler: Coroutine function that replies to authorized requests.
        model: Model of the body, None if the handler takes none.
        queries: Function that counts the queries of a body.
        error_form: Form of error replies in a dialect, None for that of Taugate.
    """

    def __init__(
        self,
        name: str,
        handler: Handler,
        responses: dict[int | str, dict[str, Any]],
        *,
        queries: Callable[[Any], int] = lambda body: 1,
        error_form: ErrorForm | None = None,
        **description: Any,  # noqa: ANN401 (any argument of FastAPI's APIRoute)
    ) -> None:
        """Bind a handler to a row.

        Args:
            name: Name of the row.
            handler: See the class.
            responses: Replies by status for openapi.json; the first is that of success.
            queries: See the class.
            error_form: See the class.
            description: Further arguments of FastAPI's APIRoute for openapi.json, such as `response_class`.
        """
        self.row = ENDPOINTS[name]
        self.handler, self.queries, self.error_form = handler, queries, error_form
        self.model: type[BaseModel] | None = get_type_hints(handler).get("body")
        super().__init__(
            self.row.path,
            handler,
            methods=[self.row.method],
            name=name,
            status_code=int(next(iter(responses))),
            tags=[] if self.row.tag is None else [self.row.tag],
            include_in_schema=self.row.tag is not None,
            response_model=None,
            responses=responses,
            generate_unique_id_function=lambda route: route.name,
            **description,
        )


class Operations:
    """The operations of an application, by path."""

    def __init__(self, operations: Sequence[Operation], parts: Collection[Part]) -> None:
        """Check that there is one for every row.

        Args:
            operations: The operations.
            parts: The optional parts of the service that are on.

        Raises:
            LookupError: If a row has no operation, or one of a part that is off has.
        """
        rows = {name for name, row in ENDPOINTS.items() if row.part is None or row.part in parts}
        if odd := rows ^ {operation.name for operation in operations}:
            raise LookupError(f"the table of endpoints and the operations differ: {', '.join(sorted(odd))}")
        self._by_path = {operation.path: operation for operation in operations}
        self._templates = [operation for operation in operations if operation.param_convertors]

    def find(self, path: str) -> tuple[Operation | None, dict[str, str]]:
        """Return the operation of a request path, None if there is none, and the values of its template."""
        if operation := self._by_path.get(path):
            return operation, {}
        for operation in self._templates:
            if match := operation.path_regex.fullmatch(path):  # `match` would accept a line feed at the end
                return operation, match.groupdict()
        return None, {}
