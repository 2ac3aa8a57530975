"""What happens to a request, in order: its id, head, host, key, method, rate and body are checked, then it is handled.

An unknown path is 404 even without a key: openapi.json is public, so the paths are no secret.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from pydantic import BaseModel
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from taugate.errors import EncoderUnavailable, EngineUnavailable, TextRefused
from taugate.service import errors
from taugate.service.access.admission import Admission
from taugate.service.access.authorization import AllowedHosts, Authorizer
from taugate.service.http import exchange
from taugate.service.http.bodies import MAX_SMALL_BYTES, check_json, read_body, read_json, read_large_json, suggest_path
from taugate.service.http.connection import current_connection
from taugate.service.http.exchange import Caller
from taugate.service.http.operation import ENDPOINTS, Operation
from taugate.service.runtime.logs import CompletedRequest, SpanRef
from taugate.service.settings import MAX_QUERIES, Part, Settings

_log = logging.getLogger(__name__)
_MAX_HEADERS = 100  # Apache's default
_MAX_PATH_CHARS = 100  # of an unknown path in a message
_UNMATCHED = "unmatched"  # one label for all unknown paths, so that made-up paths do not become series


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
        """Return the operation of a request path, None if there is none, and the values of its template."""
        # If none of the path has the method, another of its operations is returned.
        if by_method := self._by_path.get(path):
            return by_method.get("GET" if method == "HEAD" else method) or next(iter(by_method.values())), {}
        for operation in self._templates:
            if match := operation.path_regex.fullmatch(path):  # `match` would accept a line feed at the end
                return operation, match.groupdict()
        return None, {}


class RequestSteps:
    """ASGI middleware that takes every request through the steps, up to the handler of its operation.

    A refused request gets its reply before any of its body is read. Every reply is counted, timed and logged.
    Scopes other than HTTP pass through to the application.
    """

    def __init__(
        self,
        app: ASGIApp,
        operations: Operations,
        settings: Settings,
        authorizer: Authorizer,
        admission: Admission,
        log: exchange.RequestLog,
    ) -> None:
        self._app, self._operations = app, operations
        self._hosts, self._authorizer = AllowedHosts(settings), authorizer
        self._admission, self._limits = admission, settings.requests
        self._max_header_bytes, self._request_log = settings.connections.max_header_bytes, log
        self._large = asyncio.Lock()  # many large bodies together would hold the event loop as long as one undivided

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Reply to a request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        caller = self._identify(scope)
        operation, scope["path_params"] = self._operations.find(scope["path"], scope["method"])
        response = None
        try:
            response = _finished(await self._reply(caller, operation, scope, receive), caller)
            body = b"" if scope["method"] == "HEAD" else response.body
            await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
            await send({"type": "http.response.body", "body": body})
        finally:
            if response is not None:  # else the process is stopping
                self._record(caller, operation, scope, response, began)

    def refuse_at_once(self, scope: Scope, body: bytes) -> Response | None:
        """Return the reply to a search that the full queue refuses; None for any other request."""
        # The steps are those of `_handle`, but nothing is awaited, so that refusals take little time from the
        # queries that wait. A search whose reply is in memory, or that another step refuses, takes the usual
        # way.
        if not self._admission.is_full:
            return None
        began = time.perf_counter()
        operation, _ = self._operations.find(scope["path"], scope["method"])
        if operation is None:
            return None
        caller = self._identify(scope)
        if not self._would_wait(caller, operation, scope, body):
            return None
        self._count_authorized(caller)
        try:
            self._admission.rates.charge_here(caller.key)
            error: errors.ApiError = self._admission.overloaded()
        except errors.RateLimited as refusal:
            error = refusal
        response = _finished(self._error_reply(error, caller, operation), caller)
        self._record(caller, operation, scope, response, began)
        return response

    def _would_wait(self, caller: Caller, operation: Operation, scope: Scope, body: bytes) -> bool:
        """Return whether a request would pass all steps, without Redis, and then wait in the queue."""
        if operation.is_known is None or operation.model is None:
            return False
        try:
            _check_method(self._check(caller, operation, scope), scope)
            check_json(caller.headers.get(b"content-type", b""))
            if len(body) > self._limits.max_body_bytes or self._admission.rates.is_shared(caller.key):
                return False
            return not operation.is_known(read_json(body, operation.model))
        except Exception:  # noqa: BLE001 (the usual way replies, and logs what is unexpected)
            return False

    def _identify(self, scope: Scope) -> Caller:
        """Give the request its id, and begin its trace."""
        headers = dict(scope["headers"])
        span = SpanRef.of(scope["headers"]) if b"traceparent" in headers else None
        trace = self._request_log.begin_trace(span)
        caller = Caller(exchange.request_id(headers.get(b"x-request-id", b"")), headers, span, trace)
        exchange.current_caller.set(caller)
        return caller

    async def _reply(self, caller: Caller, operation: Operation | None, scope: Scope, receive: Receive) -> Response:
        """Return the reply of the handler, or of the step that refused the request."""
        try:
            return await self._handle(caller, operation, scope, receive)
        except errors.ApiError as refusal:
            error = refusal
        except EngineUnavailable:  # its message names hosts, and is in the log
            error = errors.EngineAway()
        except EncoderUnavailable as away:
            error = errors.EncoderAway(away.retry_in)
        except TextRefused:
            error = errors.Invalid("query: the endpoint that encodes queries refuses it, such as one that is too long")
        except Exception:  # noqa: BLE001 (the last resort: logged in full, but not shown in the reply)
            _log.exception("unhandled exception", extra={"fields": {"request_id": caller.id}})
            error = errors.Internal()
        return self._error_reply(error, caller, operation)

    def _error_reply(self, error: errors.ApiError, caller: Caller, operation: Operation | None) -> Response:
        """Count an error, and return its reply."""
        self._request_log.add_error(error.code)
        if operation is not None and operation.error_form is not None:
            status, code, further = operation.error_form(error, caller.headers)
            body = exchange.error_body(code, str(error), caller.id) | further
            return exchange.json_reply(body, status, error.headers)
        if exchange.PROBLEM_TYPE in caller.headers.get(b"accept", b"").lower():
            return exchange.problem_reply(error, caller.id)
        return exchange.json_reply(exchange.error_body(error.code, str(error), caller.id), error.status, error.headers)

    async def _handle(self, caller: Caller, operation: Operation | None, scope: Scope, receive: Receive) -> Response:
        """Take a request through the steps; raises ApiError if one of them refuses it."""
        operation = self._check(caller, operation, scope)
        self._count_authorized(caller)
        _check_method(operation, scope)
        request = Request(scope, receive)
        if operation.model is None:
            return await operation.handler(request)
        declared, lists = caller.headers.get(b"content-length", b""), operation.row.lists
        is_small = declared.isdigit() and int(declared) <= self._limits.max_body_bytes
        is_batch = "queries" in lists or (bool(lists) and not is_small)
        with self._admission.body(caller.key_name, batch=is_batch) as count:
            body = await self._read_and_charge(caller, operation, operation.model, receive, count)
            return await operation.handler(request, body)

    def _check(self, caller: Caller, operation: Operation | None, scope: Scope) -> Operation:
        """Check head, host, key and method of a request; return its operation."""
        self._check_head(scope, caller.headers)
        self._hosts.check(caller.headers.get(b"host", b""))
        if operation is None:
            path = scope["path"]
            suggestion = suggest_path(path, self._operations.paths)
            listed = f"{ENDPOINTS['docs'].path} and {ENDPOINTS['openapi'].path} list all paths"
            raise errors.NotFound(f"there is no path {path[:_MAX_PATH_CHARS]}{suggestion or ';'} {listed}")
        row = operation.row
        if not row.public:
            caller.key = self._authorizer.authorize(row.path, caller.headers, row.scope, filtered=row.filtered)
            caller.authorized = True
        return operation

    def _count_authorized(self, caller: Caller) -> None:
        if caller.authorized:
            self._authorizer.count(caller.key)
            if (connection := current_connection.get()) is not None:
                connection.request_authorized(caller.key_name)

    def _check_head(self, scope: Scope, headers: Mapping[bytes, bytes]) -> None:
        lines = scope["headers"]  # including every line of a repeated header
        size = len(scope["path"]) + len(scope["query_string"]) + sum(len(name) + len(value) for name, value in lines)
        if len(lines) > _MAX_HEADERS or size > self._max_header_bytes:  # h11 limits a head that arrives in parts
            raise errors.HeadersTooLarge(
                "the request line and headers exceed header_bytes of TAUGATE_MAX_CONNECTIONS, or 100 headers"
            )
        # RFC 9112, section 6.1: requests with both are used for request smuggling.
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise errors.BadRequest(
                "send Content-Length or Transfer-Encoding, not both: proxies disagree on which one counts"
            )

    def _record(
        self, caller: Caller, operation: Operation | None, scope: Scope, response: Response, began: float
    ) -> None:
        """Record a request with its reply; `began` is a time of time.perf_counter()."""
        route = _UNMATCHED if operation is None else operation.path
        completed = CompletedRequest(caller.id, scope["method"], route, response.status_code)
        self._request_log.add(caller, completed, time.perf_counter() - began)

    async def _read_and_charge(
        self,
        caller: Caller,
        operation: Operation,
        model: type[BaseModel],
        receive: Receive,
        count: Callable[[int], None],
    ) -> BaseModel:
        """Return the body of a request, which is charged to the rate of its key once."""
        # A single query is charged before the body is read, because an invalid body takes as long to read. A
        # key over its rate is refused then, too.
        headers, limits, costs_one = caller.headers, self._limits, operation.row.cost == "one"
        await self._admission.rates.charge(caller.key, int(costs_one))
        if not costs_one:
            await asyncio.sleep(0)  # so that simultaneous batches are all counted before the first one runs
        charged = 1
        try:
            check_json(headers.get(b"content-type", b""))
            declared = headers.get(b"content-length", b"")
            body = await read_body(receive, limits, operation.row.body_limit, declared, count)
            charged += len(body) // limits.max_body_bytes  # if the body is invalid
            if operation.row.lists and len(body) > MAX_SMALL_BYTES:
                async with self._large:
                    parsed = await read_large_json(bytes(body), model, operation.row.lists)
            else:
                parsed = read_json(body, model)
            queries = operation.queries(parsed)
            if queries > limits.max_batch:
                raise errors.TooLarge(f"{queries} queries, at most {limits.max_batch} per request (TAUGATE_MAX_BATCH)")
            charged = max(queries, _in_searches(parsed, limits.max_k))
        finally:
            if not costs_one:
                await self._admission.rates.charge(caller.key, min(charged, MAX_QUERIES))
        return parsed


def _finished(response: Response, caller: Caller) -> Response:
    """Add the request's id, and the security headers that a reply does not set itself, as the playground does."""
    headers = response.raw_headers
    present = {name for name, _ in headers}
    headers += [header for header in exchange.SECURITY_HEADERS if header[0] not in present]
    headers.append((b"x-request-id", caller.id.encode()))
    return response


def _in_searches(body: Any, max_k: int) -> int:  # noqa: ANN401 (any model)
    """Return how many searches consider as many results as the queries of a body have, at least one for each query."""
    sent = (len(getattr(query, "results", ())) for query in getattr(body, "queries", (body,)))
    return sum(max(1, -(-results // max_k)) for results in sent)


def _check_method(operation: Operation, scope: Scope) -> None:
    if scope["method"] not in operation.allowed:
        raise errors.MethodNotAllowed(
            f"{scope['path']} does not support {scope['method']}", ", ".join(operation.allowed)
        )
