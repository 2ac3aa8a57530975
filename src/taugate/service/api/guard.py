"""Authorization in front of every route: a refused request gets its reply before any of its body is read."""

from starlette.types import ASGIApp, Receive, Scope, Send

from taugate.service.access.authorization import PATH_RULES, AllowedHosts, Authorizer, path_rule
from taugate.service.api.replies import error_reply, no_such_path
from taugate.service.api.request_context import request_headers
from taugate.service.errors import ApiError, BadRequest, HeadersTooLarge, NotFound
from taugate.service.metrics import Metrics
from taugate.service.settings import Settings

_MAX_HEADERS = 100  # Apache's default


class Guard:
    """ASGI middleware that checks the head of a request, its host, and its API key, in this order.

    An unknown path is 404 even without a key: openapi.json is public, so the paths are no secret.
    """

    def __init__(self, app: ASGIApp, authorizer: Authorizer, metrics: Metrics, settings: Settings) -> None:
        """Wrap an application, which only gets authorized requests."""
        self._app, self._authorizer, self._refused = app, authorizer, metrics.refused
        self._hosts, self._max_header_bytes = AllowedHosts(settings), settings.connections.max_header_bytes
        self._parts = settings.parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a request, or pass it on with its key in its state. Scopes other than HTTP pass through."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path, headers = scope["path"], request_headers(scope)
        rule = path_rule(path, self._parts)
        try:
            self._check_head(scope, headers)
            self._hosts.check(headers.get(b"host", b""))
            if rule is None:
                raise NotFound(no_such_path(path))
            key = self._authorizer.authorize(rule, path, headers)
        except ApiError as error:
            if not isinstance(error, NotFound):
                self._refused.labels(error.code).inc()
            if rule is not None and rule.path in PATH_RULES:  # logs and metrics count it under the requested route
                scope["route"] = rule
            await error_reply(scope, error)(scope, receive, send)
            return
        if key is not None:
            scope["state"]["key"] = key
        scope["state"]["authorized"] = not rule.public
        await self._app(scope, receive, send)

    def _check_head(self, scope: Scope, headers: dict[bytes, bytes]) -> None:
        lines = scope["headers"]  # including every line of a repeated header
        size = len(scope["path"]) + len(scope["query_string"]) + sum(len(name) + len(value) for name, value in lines)
        if len(lines) > _MAX_HEADERS or size > self._max_header_bytes:  # h11 limits a head that arrives in parts
            raise HeadersTooLarge("the request line and headers exceed TAUGATE_MAX_HEADER_BYTES or 100 headers")
        # RFC 9112, section 6.1: requests with both are used for request smuggling.
        if b"content-length" in headers and b"transfer-encoding" in headers:
            raise BadRequest("send Content-Length or Transfer-Encoding, not both: proxies disagree on which one counts")
