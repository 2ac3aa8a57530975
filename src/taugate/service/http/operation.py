"""What answers the requests of an endpoint, and how it is found."""

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, get_type_hints

from fastapi.routing import APIRoute
from pydantic import BaseModel
from starlette.responses import Response

from taugate.service.errors import ApiError
from taugate.service.http.endpoints import ENDPOINTS
from taugate.service.http.openapi import REQUEST_ID, SECURITY, error_replies
from taugate.service.settings import Part

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
        is_known: Function that returns whether the reply to a body is in memory. If it is set, requests with any other
            body are refused at once while the queue is full.
        allowed: Methods of its path, including those of other endpoints.
        error_form: Form of error replies in a dialect, None for that of Taugate.
    """

    def __init__(
        self,
        name: str,
        handler: Handler,
        reply: type[BaseModel] | None,
        *,
        described: Mapping[str, Any] | None = None,
        queries: Callable[[Any], int] = lambda body: len(getattr(body, "queries", (body,))),
        error_form: ErrorForm | None = None,
        **description: Any,  # noqa: ANN401 (any argument of FastAPI's APIRoute)
    ) -> None:
        """Bind a handler to the row with a name; `reply` is the model of a successful reply, None for no JSON.

        `described` has further fields of that reply for openapi.json, such as `links`.
        """
        self.row = ENDPOINTS[name]
        self.handler, self.queries, self.error_form = handler, queries, error_form
        self.allowed: tuple[str, ...] = ("GET", "HEAD") if self.row.method == "GET" else (self.row.method,)
        self.is_known: Callable[[Any], bool] | None = None
        secured = {} if self.row.public else {"security": SECURITY}
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
                self.row.status: {"model": reply, "headers": REQUEST_ID, **(described or {})},
                **error_replies(self.row),
            },
            generate_unique_id_function=lambda route: route.name,
            **{**description, "openapi_extra": secured | description.get("openapi_extra", {})},
        )


class Operations:
    """The operations of an application, by path."""

    def __init__(self, operations: Sequence[Operation], parts: Collection[Part]) -> None:
        """Raise LookupError unless there is one for every row, of parts of the service that are on."""
        rows = {name for name, row in ENDPOINTS.items() if row.part is None or row.part in parts}
        if odd := rows ^ {operation.name for operation in operations}:
            raise LookupError(f"the table of endpoints and the operations differ: {', '.join(sorted(odd))}")
        self._templates = [operation for operation in operations if operation.param_convertors]
        self._by_path: dict[str, dict[str, Operation]] = {}  # and by method
        for operation in operations:
            if not operation.param_convertors:
                self._by_path.setdefault(operation.path, {})[operation.row.method] = operation
        for by_method in self._by_path.values():
            allowed = tuple(method for operation in by_method.values() for method in operation.allowed)
            for operation in by_method.values():
                operation.allowed = allowed

    @property
    def paths(self) -> Collection[str]:
        """The paths without a part that varies."""
        return self._by_path.keys()

    def find(self, path: str, method: str) -> tuple[Operation | None, dict[str, str]]:
        """Return the operation of a request path, None if there is none, and the values of its template.

        If none of the path has the method, another of its operations is returned.
        """
        if by_method := self._by_path.get(path):
            return by_method.get("GET" if method == "HEAD" else method) or next(iter(by_method.values())), {}
        for operation in self._templates:
            if match := operation.path_regex.fullmatch(path):  # `match` would accept a line feed at the end
                return operation, match.groupdict()
        return None, {}
